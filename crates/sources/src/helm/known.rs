//! What is known of a repository's index from earlier looks.

use std::sync::{Arc, Mutex, PoisonError};

use roadstead_model::Revision;

use crate::file::Validator;

/// What a server called an index, and which revision that was. Clones share it. To be forgotten where the spec or the credentials are
/// others.
#[derive(Debug, Clone, Default)]
pub struct KnownIndex(Arc<Mutex<Option<(Validator, Revision)>>>);

impl KnownIndex {
    /// What the server called the index of this revision.
    pub(super) fn validator(&self, known: Option<&Revision>) -> Option<Validator> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (validator, revision) = kept.as_ref()?;
        (Some(revision) == known).then(|| validator.clone())
    }

    pub(super) fn keep(&self, validator: Option<Validator>, revision: &Revision) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = validator.map(|validator| (validator, revision.clone()));
    }
}
