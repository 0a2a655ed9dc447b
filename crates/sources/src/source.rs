//! What all kinds of sources have in common for whoever fetches them: what is asked for comes as an artifact at a revision, or
//! as a failure that says why and whether to try again.
//!
//! A kind is one implementation of [`Source`] and one variant of [`FetchError`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use roadstead_model::{Reason, Revision};
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

use crate::artifact::Artifact;
use crate::attempt::{Engine, Note, Room};
use crate::bucket::BucketError;
use crate::git::GitError;
use crate::helm::{HelmError, Why};
use crate::oci::OciError;

/// What is to be fetched, from where and as whom, within which bounds.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync {
    /// The artifact of what it holds now, or [`Outcome::Unchanged`] where that is still `known`. What servers send is read where
    /// `engine` says. Ends within the source's own timeout, soon after `stop`, and where it is dropped.
    ///
    /// # Errors
    /// Why there is no artifact, and what was learned before. Whatever artifact the caller has stays as good as it was.
    async fn fetch(
        &self,
        known: Option<&Revision>,
        engine: &dyn Engine,
        stop: &CancellationToken,
    ) -> Result<Outcome, Failed>;

    /// Where it is fetched from, fit for messages: whatever looks like credentials is left out.
    fn shown_url(&self) -> String;

    /// Whether it is fetched with credentials.
    fn has_credentials(&self) -> bool;

    /// The address that was connected to although it is not allowed, where there was one.
    fn tolerated(&self) -> Option<Refusal>;

    /// Room for the artifact is reserved there, before its first byte is taken.
    fn reserve_in(&mut self, room: Room);
}

/// What a fetch found.
#[derive(Debug)]
pub enum Outcome {
    /// It still holds what the caller has; nothing was transferred.
    Unchanged(Revision),
    /// Something else.
    Fetched(Box<Fetched>),
}

/// What a source held.
pub struct Fetched {
    /// Which moment that was.
    pub revision: Revision,
    /// Its files.
    pub artifact: Artifact,
    /// What a user should know although it is not an error: skipped submodules, say. At most a hundred.
    pub notes: Vec<Note>,
    /// What else is known of it, for the artifact's status: annotations of an OCI artifact's manifest, 16 KiB at most.
    pub metadata: BTreeMap<String, String>,
    /// Whose signatures were verified, where that was asked for: the message of the condition.
    pub verified: Option<String>,
    /// What people are told of it beside its revision.
    pub facts: Facts,
    /// What was reserved for the artifact ([`Source::reserve_in`]): free again once this is dropped.
    pub room: Option<roadstead_budget::Reservation>,
    /// Who wants the same and waits for it goes on once this is dropped: when the artifact is stored.
    pub turn: Option<tokio::sync::OwnedMutexGuard<()>>,
}

/// What people are told of an artifact beside its revision, by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Facts {
    /// Of a commit, the first line of its message as [`git::subject`](crate::git::subject) cuts it.
    Commit(String),
    /// Of an OCI artifact: what there is stands in its metadata.
    Manifest,
    /// How many objects of a bucket are in it.
    Objects(usize),
    /// Bytes of an index.
    Index(u64),
    /// What is known of a chart.
    Chart(ChartFacts),
}

/// What is known of a chart that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartFacts {
    /// What it is called.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether it was packed here; else it is as it came.
    pub is_packaged: bool,
    /// The files of values that were merged into it.
    pub values_files: Vec<String>,
}

impl Fetched {
    /// What is known of the chart, where it is one.
    #[must_use]
    pub fn chart(&self) -> Option<&ChartFacts> {
        match &self.facts {
            Facts::Chart(chart) => Some(chart),
            _ => None,
        }
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched")
            .field("revision", &self.revision)
            .field("artifact", &self.artifact)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// What an attempt learned that its source holds, whether or not that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// Which moment that is.
    pub revision: Revision,
    /// Of a chart, what it is called.
    pub chart: Option<String>,
}

impl From<&Fetched> for Learned {
    fn from(fetched: &Fetched) -> Self {
        let chart = fetched.chart().map(|chart| chart.name.clone());
        Self { revision: fetched.revision.clone(), chart }
    }
}

/// An attempt that failed. It says what its error says.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// Why.
    pub error: FetchError,
    /// What it had learned by then; none where it did not come so far as to know.
    pub learned: Option<Box<Learned>>,
}

impl From<FetchError> for Failed {
    /// Of an attempt that is known to have learned nothing, or of which that is not known.
    fn from(error: FetchError) -> Self {
        Self { error, learned: None }
    }
}

/// Why there is no new artifact. Every text names the source's URL, and none holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Of a Git repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Of an OCI repository.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// Of a bucket.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// Of a Helm repository or a chart.
    #[error(transparent)]
    Helm(#[from] HelmError),
    /// Others waited for its place.
    #[error(
        "`{url}` was not fetched within {held:.0?} and gave way to other sources that are waiting; it will be tried again"
    )]
    GaveWay {
        /// Where it is fetched from.
        url: String,
        /// How long it had its place.
        held: Duration,
    },
}

impl FetchError {
    /// The reason of the source's condition; none of its own where it says nothing about the source.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Git(error) => Some(error.reason()),
            Self::Oci(error) => Some(error.reason()),
            Self::Bucket(error) => Some(error.reason()),
            Self::Helm(error) => error.reason(),
            Self::GaveWay { .. } => None,
        }
    }

    /// Whether it is not signed by whom it should be.
    #[must_use]
    pub fn is_unverified(&self) -> bool {
        match self {
            Self::Git(GitError::Unverified { .. }) | Self::Oci(OciError::Unverified { .. }) => true,
            Self::Helm(error) => matches!(*error.why, Why::Oci(OciError::Unverified { .. })),
            _ => false,
        }
    }

    /// Whether it may go away without anyone changing the source or the object: try again soon, rather than at the next interval.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Git(error) => error.is_transient(),
            Self::Oci(error) => error.is_transient(),
            Self::Bucket(error) => error.is_transient(),
            Self::Helm(error) => error.is_transient(),
            Self::GaveWay { .. } => true,
        }
    }

    /// Until when the server takes no requests, where that is what it says.
    #[must_use]
    pub fn rate_limited_until(&self) -> Option<Timestamp> {
        match self {
            Self::Git(error) => error.rate_limited_until(),
            Self::Oci(OciError::Attempt(error)) => error.rate_limited_until(),
            Self::Bucket(error) => error.rate_limited_until(),
            Self::Helm(error) => error.rate_limited_until(),
            Self::Oci(_) | Self::GaveWay { .. } => None,
        }
    }

    /// Whether that is the word of the GitHub API, which gives out what to log in with, and not of the source's server.
    #[must_use]
    pub fn is_of_the_api(&self) -> bool {
        matches!(self, Self::Git(error) if error.is_of_the_api())
    }

    /// Whether a process with more memory would take it.
    #[must_use]
    pub fn is_for_want_of_memory(&self) -> bool {
        match self {
            Self::Git(error) => error.is_for_want_of_memory(),
            Self::Oci(error) => error.is_for_want_of_memory(),
            Self::Bucket(error) => error.is_for_want_of_memory(),
            Self::Helm(_) | Self::GaveWay { .. } => false,
        }
    }

    /// Whether nothing changes before somebody changes the spec, or what it refers to.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.reason().is_some_and(Reason::is_of_the_spec)
            || matches!(self, Self::Helm(error) if error.is_stalled())
    }

    /// Whether it is about a chart that came, and could not be made into an artifact.
    #[must_use]
    pub fn is_of_building(&self) -> bool {
        matches!(self, Self::Helm(error) if error.is_of_building())
    }
}
