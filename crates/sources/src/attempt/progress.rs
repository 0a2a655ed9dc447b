//! How far an attempt came.

use std::sync::{Arc, Mutex, PoisonError};

use roadstead_model::Revision;

use crate::source::{Failed, FetchError, Learned};

/// What an attempt has learned so far. Whoever waits for it has it also where the work is broken off, in time or by a signal. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<Option<Learned>>>);

impl Progress {
    /// The source holds this; what was learned before may have been less exact, or have changed meanwhile.
    pub(crate) fn learn(&self, revision: Revision) {
        self.keep(Learned { revision, chart: None });
    }

    /// It holds this chart.
    pub(crate) fn learn_of_chart(&self, name: &str, version: Revision) {
        self.keep(Learned { revision: version, chart: Some(name.to_owned()) });
    }

    fn keep(&self, learned: Learned) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(learned);
    }

    /// The attempt has failed, having come so far.
    pub(crate) fn failed(&self, error: impl Into<FetchError>) -> Failed {
        let learned = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Failed { error: error.into(), learned: learned.map(Box::new) }
    }
}
