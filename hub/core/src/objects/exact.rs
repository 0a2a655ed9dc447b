//! What an applier's configuration is laid over where the object acts by rights that are not its namespace's: nothing that somebody else wants of it
//! stays then, since whoever may write the object would have that done by those rights. Labels, other annotations and that it is suspended do.

use roadstead_api::annotated;
use roadstead_hub_store::{SecretData, Stored};
use serde_json::{Map, Value, json};

use crate::objects::managers;

/// What of an object is not asked for by it, or is part of what it is.
const KEPT: [&str; 5] = ["apiVersion", "kind", "metadata", "status", "type"];
/// What anybody may ask for who may write the object.
const SUSPEND: &str = "suspend";

/// An object without what others than `manager` want of it, and without their names as managers of that.
pub(crate) fn bare(before: &Stored, manager: &str) -> Stored {
    let mut bare = before.clone();
    let suspended = before.object["spec"].get(SUSPEND).cloned();
    let had_spec = before.object.get("spec").is_some();
    if let Some(fields) = bare.object.as_object_mut() {
        fields.retain(|field, _| KEPT.contains(&field.as_str()));
        if had_spec {
            let spec: Map<String, Value> = suspended.into_iter().map(|is| (SUSPEND.to_owned(), is)).collect();
            fields.insert("spec".to_owned(), spec.into());
        }
    }
    if bare.kind.is_applier()
        && let Some(annotations) =
            bare.object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.retain(|name, _| !annotated::is_wanted(name));
    }
    bare.secret = bare.secret.map(|_| SecretData::new(std::collections::BTreeMap::new()));
    let entries = managers::entries(&before.object).and_then(Value::as_array);
    let entries: Vec<Value> =
        entries.into_iter().flatten().filter_map(|entry| left(entry, manager)).collect();
    managers::put_entries(&mut bare.object, (!entries.is_empty()).then(|| entries.into()));
    bare
}

/// What is left of a manager's entry.
fn left(entry: &Value, manager: &str) -> Option<Value> {
    let is_own = entry["manager"] == manager && entry["operation"] == "Apply";
    if is_own || entry["subresource"].as_str().is_some_and(|part| !part.is_empty()) {
        return Some(entry.clone());
    }
    let fields = &entry["fieldsV1"];
    let mut stays = Map::new();
    if let Some(metadata) = fields.get("f:metadata") {
        stays.insert("f:metadata".to_owned(), metadata.clone());
    }
    if let Some(suspend) = fields["f:spec"].get("f:suspend") {
        stays.insert("f:spec".to_owned(), json!({ "f:suspend": suspend }));
    }
    if stays.is_empty() {
        return None;
    }
    let mut entry = entry.clone();
    entry["fieldsV1"] = stays.into();
    Some(entry)
}
