//! Whether applying would change a live object: its answer to a dry-run against what it is.

use serde_json::{Map, Value};

/// What the apiserver or a controller keeps, and nobody applies.
const IGNORED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// What of the metadata can be applied.
const METADATA: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// Whether `wanted` (the dry-run's result) differs from `live` in labels, annotations, finalizers, owners, or anything
/// outside metadata and status. An absent and an empty label map are the same.
pub(crate) fn differs(live: &Value, wanted: &Value) -> bool {
    let empty = Map::new();
    let (live, wanted) = (live.as_object().unwrap_or(&empty), wanted.as_object().unwrap_or(&empty));
    fn content(object: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
        object.iter().filter(|(key, _)| !IGNORED.contains(&key.as_str()))
    }
    // serde_json's map may keep an order, so keys are looked up rather than walked in parallel.
    let same_content = content(live).count() == content(wanted).count()
        && content(wanted).all(|(key, value)| live.get(key) == Some(value));
    !same_content || METADATA.iter().any(|key| metadata(live, key) != metadata(wanted, key))
}

/// A part of the metadata; empty is absent.
fn metadata<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(key).filter(|value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::differs;

    #[test]
    fn what_counts_as_a_difference() {
        let live = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "labels": {"l": "1"},
            "generation": 3, "resourceVersion": "7", "managedFields": [1]}, "spec": {"r": 1}, "status": {"s": 1}});
        let with = |pointer: &str, value: Value| {
            let mut other = live.clone();
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            other.pointer_mut(parent).expect("a parent")[key] = value;
            other
        };
        for (pointer, value, different) in [
            ("/metadata/resourceVersion", json!("8"), false),
            ("/metadata/generation", json!(4), false),
            ("/metadata/managedFields", json!([2]), false),
            ("/metadata/annotations", json!({}), false),
            ("/status/s", json!(2), false),
            ("/metadata/labels/l", json!("2"), true),
            ("/metadata/annotations", json!({"a": "b"}), true),
            ("/metadata/finalizers", json!(["f"]), true),
            ("/spec/r", json!(2), true),
            ("/spec/new", json!(null), true),
            ("/data", json!({"k": "v"}), true),
        ] {
            let other = with(pointer, value);
            assert_eq!(differs(&live, &other), different, "{pointer}");
            assert_eq!(differs(&other, &live), different, "{pointer}, the other way round");
        }
    }
}
