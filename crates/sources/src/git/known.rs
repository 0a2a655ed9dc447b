//! What is known of a repository's server from one look to the next, in the memory of one process: it saves requests, and nothing
//! else is different.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roadstead_model::Reason;

use super::greeting::Advertisement;
use super::versions::{MOST_REMEMBERED, Remembered};

/// For so long a commit that is not signed as it should be is not fetched to be verified again. (A key may become valid with time.)
const UNVERIFIED_FOR: Duration = Duration::from_secs(3_600);

/// What is known of one server, for one repository, reference and set of Secrets. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct KnownServer(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    advertisement: Option<Advertisement>,
    unverified: Option<Unverified>,
    objects: Vec<Remembered>,
}

/// Something that was fetched and is not signed as it should be.
#[derive(Debug, Clone)]
pub(super) struct Unverified {
    /// What the reference pointed to.
    pub(super) object: String,
    /// Of a range of versions, the tag that was chosen.
    pub(super) tag: Option<String>,
    pub(super) reason: Reason,
    pub(super) detail: String,
    pub(super) since: Instant,
}

impl KnownServer {
    /// The most that it keeps, in bytes, about.
    pub const MOST: usize = 6 << 10;

    /// Forgets which commit was not verified, so that it is fetched and verified again.
    pub fn forget_verdict(&self) {
        self.lock().unverified = None;
    }

    /// Takes what the server says of itself out for one fetch, which puts it back if it succeeds.
    pub(super) fn take(&self) -> Option<Advertisement> {
        self.lock().advertisement.take()
    }

    pub(super) fn keep(&self, advertisement: Advertisement) {
        self.lock().advertisement = Some(advertisement);
    }

    /// What was not signed as it should be, if that is not too long ago.
    pub(super) fn unverified(&self) -> Option<Unverified> {
        self.lock().unverified.clone().filter(|unverified| unverified.since.elapsed() < UNVERIFIED_FOR)
    }

    pub(super) fn keep_unverified(&self, unverified: Option<Unverified>) {
        self.lock().unverified = unverified;
    }

    pub(super) fn objects(&self) -> Vec<Remembered> {
        self.lock().objects.clone()
    }

    /// Keeps what objects were found to be: what a reader says of them, which concerns nobody but this repository.
    pub(super) fn keep_objects(&self, mut objects: Vec<Remembered>) {
        objects.retain(|object| super::wire::is_object_id(&object.object));
        objects.truncate(MOST_REMEMBERED);
        self.lock().objects = objects;
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
