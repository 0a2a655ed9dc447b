//! What can go wrong with a bucket.

use std::fmt;

use roadstead_cloud::ServiceError;
use roadstead_model::Reason;

use super::request::BucketLimits;
use crate::artifact::ArtifactError;
use crate::attempt::AttemptError;
use crate::tree::{Measure, TreeError, shown};

/// Why there is no new artifact. No text of it holds a credential, or the query of a URL.
#[derive(Debug, thiserror::Error)]
#[error("{step}{why}")]
pub struct BucketError {
    /// What was being done.
    pub step: Step,
    /// Why it could not be done.
    #[source]
    pub why: Box<Why>,
}

/// What is done with a bucket, as Flux tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Before anything was asked, or about the attempt as a whole.
    Attempt,
    /// Credentials are changed for others at this URL.
    Token(String),
    /// Whether there is such a bucket.
    Confirm(String),
    /// The file with patterns is received.
    Patterns,
    /// Its objects are listed.
    Index(String),
    /// One of them is received.
    Get(String, String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attempt => Ok(()),
            Self::Token(url) => write!(f, "failed to get credentials from `{url}`: "),
            Self::Confirm(bucket) => {
                write!(f, "failed to confirm existence of '{}' bucket: ", shown(bucket))
            }
            Self::Patterns => f.write_str("failed to get Etag for '.sourceignore' object: "),
            Self::Index(bucket) => {
                write!(f, "indexation of objects from bucket '{}' failed: ", shown(bucket))
            }
            Self::Get(bucket, key) => {
                let (bucket, key) = (shown(bucket), shown(key));
                write!(f, "fetch from bucket '{bucket}' failed: failed to get '{key}' object: ")
            }
        }
    }
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// There is no answer, or not in time.
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    /// There is no such bucket.
    #[error("bucket '{}' not found", shown(bucket))]
    NoBucket {
        /// The bucket.
        bucket: String,
    },
    /// What the spec says is not what we can ask for.
    #[error("{0}")]
    Refused(String),
    /// Credentials would be sent in the clear.
    #[error(
        "nothing is sent to `{url}`: without TLS anyone on the way could read the credentials; use https, or start the hub with \
         --allow-plain-http-credentials"
    )]
    PlainCredentials {
        /// Where they would go.
        url: String,
    },
    /// Nothing is given out to the identity of a cloud.
    #[error("failed to get credentials: {0}")]
    Cloud(ServiceError),
    /// Certificates or keys that were given hold nothing that can be used.
    #[error("{0}")]
    Unusable(String),
    /// The server wants other credentials, or some.
    #[error("{}{}", denied(*status, code), if *had_credentials { "" } else { "; there are no credentials in `spec.secretRef`" })]
    Denied {
        /// HTTP's status: 401 or 403.
        status: u16,
        /// The server's own word for it, where it is a known one.
        code: Option<String>,
        /// Whether there were any credentials.
        had_credentials: bool,
    },
    /// The server is there, and fails.
    #[error("{}", denied(*status, code))]
    Status {
        /// HTTP's status.
        status: u16,
        /// The server's own word for it, where it is a known one.
        code: Option<String>,
    },
    /// A redirect that is not followed.
    #[error("it redirects to `{to}`, which is not followed: {why}")]
    RedirectRefused {
        /// Where to, without credentials.
        to: String,
        /// Why not.
        why: String,
    },
    /// What all fetches may have of the disk is in use.
    #[error(
        "it is too large to be fetched beside the other sources: all the disk space for fetches is in use; it is tried again"
    )]
    NoDisk,
    /// What the server sent is damaged, or is not what it promised.
    #[error("the server sent something invalid: {0}")]
    Corrupt(String),
    /// An object was replaced while it was fetched.
    #[error("it was replaced while the bucket was fetched; it is tried again")]
    Changed,
    /// The bucket is at another revision than the one that alone is of use.
    #[error(
        "it holds revision {found} now: a bucket has its newest state only, so {wanted} cannot be fetched any more"
    )]
    OtherRevision {
        /// What is there.
        found: String,
        /// What is wanted.
        wanted: String,
    },
    /// Larger than allowed.
    #[error("more than {limit} {measure}{}", path.as_ref().map_or_else(String::new, |path| format!(" (at `{path}`)")))]
    TooLarge {
        /// What was measured.
        measure: Measure,
        /// The most that is allowed.
        limit: u64,
        /// Which object, if one is to blame.
        path: Option<String>,
    },
    /// Its objects are not a tree that we take.
    #[error("{0}")]
    Tree(TreeError),
    /// The artifact could not be written.
    #[error("{0}")]
    Pack(ArtifactError),
    /// What read its bytes was ended.
    #[error("what the server sent could not be read: {why}")]
    Ended {
        /// What ended it.
        why: String,
        /// Whether the same may go well the next time.
        transient: bool,
    },
    /// Our own machine: no space, no TLS provider, a bug.
    #[error("it failed inside Roadstead: {0}")]
    Internal(String),
}

fn denied(status: u16, code: &Option<String>) -> String {
    let code = code.as_ref().map_or_else(String::new, |code| format!(" ({code})"));
    format!("the server answered HTTP {status}{code}")
}

impl From<TreeError> for Why {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::TooLarge { measure, limit, path } => {
                Self::TooLarge { measure, limit, path: path.map(|path| shown(&path)) }
            }
            error => Self::Tree(error),
        }
    }
}

impl Why {
    /// Whether a server says that a token is not good, or not any more.
    pub(super) fn is_about_a_token(&self) -> bool {
        const CODES: [&str; 5] = [
            "AuthenticationFailed",
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidAuthenticationInfo",
            "InvalidToken",
        ];
        match self {
            Self::Denied { status: 401, .. } => true,
            Self::Denied { code, .. } | Self::Status { status: 400, code } => {
                code.as_ref().is_some_and(|code| CODES.contains(&code.as_str()))
            }
            _ => false,
        }
    }

    /// What it is of a step.
    pub(super) fn at(self, step: Step) -> BucketError {
        let step = match &self {
            // These say all there is to say.
            Self::NoBucket { .. }
            | Self::Refused(_)
            | Self::Attempt(AttemptError::AddressRefused { .. } | AttemptError::Cancelled { .. }) => {
                Step::Attempt
            }
            _ => step,
        };
        BucketError { step, why: Box::new(self) }
    }
}

impl From<AttemptError> for BucketError {
    fn from(error: AttemptError) -> Self {
        Why::from(error).at(Step::Attempt)
    }
}

impl BucketError {
    /// The `reason` of the condition that this becomes.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match (self.why.as_ref(), &self.step) {
            (Why::Attempt(error), _) => error.reason().unwrap_or(Reason::BucketOperationFailed),
            (Why::Refused(_), _) => Reason::URLInvalid,
            (Why::Cloud(error), _) => crate::cloud::reason(error),
            (Why::PlainCredentials { .. } | Why::Unusable(_), _) | (Why::Denied { .. }, Step::Token(_)) => {
                Reason::AuthenticationFailed
            }
            (Why::Pack(_), _) => Reason::StorageOperationFailed,
            (Why::TooLarge { measure, .. }, _) => match measure {
                // What a server lists without end is the server's doing; the rest is about what would be stored.
                Measure::Keys | Measure::ObjectListBytes | Measure::ObjectListPages | Measure::IndexBytes => {
                    Reason::BucketOperationFailed
                }
                _ => Reason::StorageOperationFailed,
            },
            _ => Reason::BucketOperationFailed,
        }
    }

    /// Whether a process with more memory would take it: the bound is one that [`BucketLimits`] has higher.
    #[must_use]
    pub fn is_for_want_of_memory(&self) -> bool {
        let most = BucketLimits::default();
        let Why::TooLarge { measure, limit, .. } = self.why.as_ref() else { return false };
        *limit
            < match measure {
                Measure::TotalBytes => most.tree.total_bytes,
                Measure::ArtifactBytes => most.artifact_bytes,
                _ => return false,
            }
    }

    /// Until when the server takes no requests, where that is what it says.
    #[must_use]
    pub fn rate_limited_until(&self) -> Option<jiff::Timestamp> {
        match self.why.as_ref() {
            Why::Attempt(error) => error.rate_limited_until(),
            _ => None,
        }
    }

    /// Whether it may go away without anyone changing the bucket or the object: try again soon, rather than at the
    /// next interval.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.why.as_ref() {
            Why::Attempt(error) => error.is_transient(),
            Why::NoDisk | Why::Changed | Why::Internal(_) | Why::Corrupt(_) => true,
            Why::Cloud(error) => error.may_pass(),
            Why::Ended { transient, .. } => *transient,
            Why::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
