//! What the answer to a dry-run tells of the object that is there, so that it need not be read.
//!
//! Where an apply changes nothing, the apiserver leaves our `managedFields` entry as it was, its time included; where it changes a
//! field, the entry has the time of the request, to the second. So an entry that is not the one that we know tells of a change. One
//! that is tells of none by itself: the object may have been changed twice within that second. Clocks are not asked about that: those of
//! several apiservers may differ, and a proxy may set the `Date` of an answer. But the resource version in the answer is that of the
//! object that is there: where it was seen in that version to stand as it was applied, and the same is to be applied, nothing changes.

use serde_json::Value;

use crate::directives::{Directives, Ssa};
use crate::engine::Engine;
use crate::prepare::Planned;
use crate::takeover::{Restarts, takeover};
use crate::{Footprint, flux};

/// What an answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The object that is there is the one in the answer.
    Unchanged,
    /// Applying changes it, and there is nothing of anybody else to be asked about.
    Changed,
}

/// What `answer`, to a dry-run of `planned`, tells; `ignores` says whether any fields are ignored. None where the object has to be read.
pub(crate) fn told(engine: &Engine, planned: &Planned, answer: &Value, ignores: bool) -> Option<Told> {
    let ledger = engine.ledger.as_ref()?;
    let known = ledger.as_applied(&planned.reference)?;
    let now = Footprint::of(answer, &engine.hashes.footprints);
    if known.footprint.has_same_of_ours(&now) {
        let is_as_seen = known.version != 0 && known.version == now.version();
        return (is_as_seen && known.sent == Some(planned.digest)).then_some(Told::Unchanged);
    }
    let is_plain = !engine.observes
        && !ledger.wants_differences()
        && !ignores
        && !planned.adopts.flux
        && matches!(planned.directives.ssa, Ssa::Override | Ssa::Merge)
        && !Directives::are_said(answer)
        && answer.pointer("/metadata/deletionTimestamp").is_none_or(Value::is_null)
        && flux::owner(answer).is_none()
        && takeover(answer, Restarts::Go, &planned.adopts).is_none();
    (is_plain && known.footprint.differs_in_ours(&now)).then_some(Told::Changed)
}
