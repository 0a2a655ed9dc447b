//! The fields that a field selector may name, besides name and namespace: one row per kind.
//!
//! All of them are fields that never change in an object's life: the change log says of labels what they were before,
//! and of fields it does not, so a watch could not tell that an object left its selector. Therefore a Namespace's
//! `status.phase`, which Kubernetes has as well, is not among them.

use std::collections::BTreeMap;

use roadstead_api::KindId;
use roadstead_hub_store::Stored;

/// What every kind can be selected by.
const COMMON: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// (field, JSON pointer)
type Field = (&'static str, &'static str);

/// What objects of a kind can be selected by as well, as Kubernetes has it.
fn of_kind(kind: KindId) -> &'static [Field] {
    match kind {
        KindId::Secret => &[("type", "/type")],
        KindId::Event => &[
            ("involvedObject.apiVersion", "/involvedObject/apiVersion"),
            ("involvedObject.fieldPath", "/involvedObject/fieldPath"),
            ("involvedObject.kind", "/involvedObject/kind"),
            ("involvedObject.name", "/involvedObject/name"),
            ("involvedObject.namespace", "/involvedObject/namespace"),
            ("involvedObject.uid", "/involvedObject/uid"),
            ("reason", "/reason"),
            ("reportingComponent", "/reportingComponent"),
            ("source", "/source/component"),
            ("type", "/type"),
        ],
        _ => &[],
    }
}

/// Whether objects of this kind can be selected by `field`.
pub(crate) fn is_selectable(kind: KindId, field: &str) -> bool {
    COMMON.contains(&field) || of_kind(kind).iter().any(|(known, _)| *known == field)
}

/// What an object has in the fields that it can be selected by. One that it does not have is an empty text.
pub(crate) fn of(stored: &Stored) -> BTreeMap<String, String> {
    let common = [("metadata.name", stored.name.as_str()), ("metadata.namespace", stored.namespace.as_str())];
    let own = of_kind(stored.kind).iter().map(|(field, pointer)| {
        (*field, stored.object.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default())
    });
    common.into_iter().chain(own).map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
}
