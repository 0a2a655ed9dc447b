//! The ledger of one applier, as the engine sees it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_apply::{Applied, Ledger};
use roadstead_model::{ApplierUid, Digest, ObjectRef};

use super::Tended;

/// Keeps how an applier's objects are applied, and which fields of them were changed.
pub(crate) struct Book {
    tended: Arc<Tended>,
    applier: ApplierUid,
    /// These are asked about in any case.
    doubted: bool,
    changed: Mutex<BTreeMap<ObjectRef, Vec<String>>>,
}

impl Book {
    /// What stands as it was applied is not asked about, unless it is doubted.
    pub(crate) fn of(tended: &Arc<Tended>, applier: ApplierUid, doubted: bool) -> Arc<Self> {
        Arc::new(Self { tended: Arc::clone(tended), applier, doubted, changed: Mutex::default() })
    }

    /// Which fields of an object were changed, as JSON pointers.
    pub(crate) fn fields(&self, object: &ObjectRef) -> Vec<String> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).get(object).cloned().unwrap_or_default()
    }
}

impl Ledger for Book {
    fn stands(&self, object: &ObjectRef, sent: &Digest) -> bool {
        self.tended.stands(self.applier, object, sent) && !self.doubted
    }

    fn was_other(&self, object: &ObjectRef, sent: &Digest) -> Option<bool> {
        self.tended.was_other(self.applier, object, sent)
    }

    fn tells_fields(&self) -> bool {
        self.doubted
    }

    fn note(&self, object: &ObjectRef, mut applied: Applied) {
        let fields = std::mem::take(&mut applied.fields);
        if self.doubted && !fields.is_empty() {
            let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
            changed.insert(object.clone(), fields);
        }
        self.tended.note(self.applier, object, applied);
    }
}
