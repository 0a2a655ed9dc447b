//! What is known of a repository's index from earlier requests, and which versions of charts it has.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::{Digest, Revision};
use tokio::sync::OwnedMutexGuard;

use super::index::{Choice, Chosen};
use crate::file::Validator;
use crate::git::Stored;

/// What is known of the index at one URL that is asked for with the same credentials. Clones share it: of those who want it at the same time
/// one asks the server.
#[derive(Debug, Clone, Default)]
pub struct KnownIndex(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Held by the one that asks, until what came is stored.
    turn: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<Option<LastIndex>>,
}

/// What came last.
#[derive(Debug, Clone)]
pub(super) struct LastIndex {
    /// What the server called it.
    pub(super) validator: Option<Validator>,
    /// The digest of what the server sent.
    pub(super) sent: Digest,
    /// Which revision that is.
    pub(super) revision: Revision,
    /// When it was asked for.
    pub(super) begun: Instant,
}

impl KnownIndex {
    /// Waits until nobody else asks for it.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.turn).lock_owned().await
    }

    pub(super) fn last(&self) -> Option<LastIndex> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn keep(&self, last: LastIndex) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

/// Where indexes are stored.
#[async_trait]
pub trait Indexes: fmt::Debug + Send + Sync {
    /// The index of a revision, if it is stored.
    async fn at(&self, revision: &Revision) -> Option<Arc<dyn Stored>>;
}

/// Which versions one index has of those charts that are asked for, so that it is read once for all objects that take a chart of it. Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct KnownVersions(Arc<Versions>);

#[derive(Debug, Default)]
struct Versions {
    /// Held by the one that reads the index.
    turn: tokio::sync::Mutex<()>,
    found: Mutex<BTreeMap<Choice, Result<Chosen, String>>>,
}

impl KnownVersions {
    /// What it may take of memory.
    pub const MOST: usize = Self::KEPT * Self::EACH;
    /// Charts that are kept, each in so many bytes at most: larger ones are looked up each time.
    const KEPT: usize = 1_000;
    const EACH: usize = 512;

    /// Whether it is known which version of a chart is meant by a range of versions.
    #[must_use]
    pub fn knows(&self, chart: &str, version: &str) -> bool {
        let choice = Choice { chart: chart.to_owned(), version: version.to_owned() };
        self.found().contains_key(&choice)
    }

    /// Waits until nobody else reads the index.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    pub(super) fn get(&self, choice: &Choice) -> Option<Result<Chosen, String>> {
        self.found().get(choice).cloned()
    }

    pub(super) fn keep(&self, choice: Choice, found: Result<Chosen, String>) {
        let size = |chosen: &Chosen| {
            let urls: usize = chosen.urls.iter().map(String::len).sum();
            chosen.version.len() + urls + chosen.digest.as_ref().map_or(0, String::len)
        };
        let size = choice.chart.len() + choice.version.len() + found.as_ref().map_or_else(String::len, size);
        let mut all = self.found();
        if size <= Self::EACH && all.len() < Self::KEPT {
            all.insert(choice, found);
        }
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<Choice, Result<Chosen, String>>> {
        // Whole at any time.
        self.0.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
