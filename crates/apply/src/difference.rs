//! How an object differs from what is to be sent, told to whoever keeps a ledger and wants to know.

use roadstead_model::{FieldDrift, FieldValues};
use serde_json::Value;

use crate::compare::{self, Values};
use crate::engine::Engine;
use crate::pointer::{self, Pointer};
use crate::prepare::Planned;
use crate::{Difference, Footprint, Scope, takeover};

/// Tells the ledger how an object differs from what is to be sent, where it wants to know.
pub(crate) fn tell_difference(engine: &Engine, planned: &Planned, differ: impl FnOnce(&mut Difference)) {
    if let Some(ledger) = engine.ledger.as_ref().filter(|ledger| ledger.wants_differences()) {
        let scope = Scope::of(&planned.reference, &planned.resource);
        let mut difference =
            Difference { scope, missing: false, fields: Vec::new(), managers: Vec::new(), footprint: None };
        differ(&mut difference);
        ledger.differs(&planned.reference, difference);
    }
}

/// How applying changes an object: what differs from the answer to the dry-run, and what goes as it is taken over.
pub(crate) fn differ(
    engine: &Engine,
    difference: &mut Difference,
    planned: &Planned,
    live: &Value,
    wanted: &Value,
    ignored: &[Pointer],
    extras: Vec<String>,
) {
    let values = if planned.sensitive {
        Values::Hashed(&planned.values_key, &planned.reference)
    } else {
        Values::Plain
    };
    let mut fields = if ignored.is_empty() {
        compare::differences(live, wanted, values)
    } else {
        compare::differences(&pointer::without(live, ignored), &pointer::without(wanted, ignored), values)
    };
    for path in extras {
        if fields.iter().all(|field| field.path != path) {
            let tell = |object: &Value| object.pointer(&path).map(|value| values.tell(&path, value));
            // Of a list, elements go.
            let is_list = live.pointer(&path).is_some_and(Value::is_array);
            let told = FieldValues { live: tell(live), desired: tell(wanted).filter(|_| is_list) };
            fields.push(FieldDrift { path, values: Some(told) });
        }
    }
    fields.sort();
    fields.truncate(compare::MAX_NAMED);
    difference.managers = takeover::managers_of(live, &fields);
    difference.fields = fields;
    difference.footprint = Some(Footprint::of(live, &engine.hashes.footprints));
}
