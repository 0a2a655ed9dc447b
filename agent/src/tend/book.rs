//! The ledger of one applier, as the engine sees it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_apply::{Applied, AsApplied, Difference, Ledger};
use roadstead_model::{ApplierUid, Digest, ObjectRef};

use super::{Tended, bytes_of};

/// How many bytes of fields are kept of one run: those of further objects are not told. A few runs are under way at once.
const MAX_BYTES: usize = 1024 * 1024;

/// Keeps how an applier's objects are applied, and how they differed from that.
pub(crate) struct Book {
    tended: Arc<Tended>,
    applier: ApplierUid,
    /// These are asked about in any case.
    doubted: bool,
    /// How objects differ is wanted.
    wanted: bool,
    differences: Mutex<Differences>,
}

#[derive(Debug, Default)]
struct Differences {
    of: BTreeMap<ObjectRef, Difference>,
    /// About how many bytes their fields would take, all of them.
    bytes: usize,
}

impl Book {
    /// What stands as it was applied is not asked about, unless it is doubted.
    pub(crate) fn of(tended: &Arc<Tended>, applier: ApplierUid, doubted: bool) -> Self {
        Self { tended: Arc::clone(tended), applier, doubted, wanted: false, differences: Mutex::default() }
    }

    /// The same, which also keeps how objects differ.
    pub(crate) fn with_differences(self) -> Self {
        Self { wanted: true, ..self }
    }

    /// How objects differed, as far as that was wanted.
    pub(crate) fn take_differences(&self) -> BTreeMap<ObjectRef, Difference> {
        std::mem::take(&mut self.differences.lock().unwrap_or_else(PoisonError::into_inner).of)
    }
}

impl Ledger for Book {
    fn stands(&self, object: &ObjectRef, sent: &Digest) -> bool {
        self.tended.stands(self.applier, object, sent) && !self.doubted
    }

    fn was_other(&self, object: &ObjectRef, sent: &Digest) -> Option<bool> {
        self.tended.was_other(self.applier, object, sent)
    }

    fn as_applied(&self, object: &ObjectRef) -> Option<AsApplied> {
        self.tended.as_applied(self.applier, object)
    }

    fn wants_differences(&self) -> bool {
        self.wanted
    }

    fn differs(&self, object: &ObjectRef, mut difference: Difference) {
        let mut differences = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        differences.bytes += bytes_of(&difference.fields);
        if differences.bytes > MAX_BYTES {
            difference.fields = Vec::new();
        }
        differences.of.insert(object.clone(), difference);
    }

    fn note(&self, object: &ObjectRef, applied: Applied) {
        self.tended.note(self.applier, object, applied);
    }
}
