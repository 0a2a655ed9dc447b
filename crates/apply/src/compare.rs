//! Whether applying would change a live object: its answer to a dry-run against what it is.

use std::collections::BTreeSet;

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

/// How many differences of one object are named, and how long each name may be.
pub(crate) const MAX_NAMED: usize = 20;
pub(crate) const MAX_POINTER: usize = 256;

/// Where `wanted` differs from `live`, as JSON pointers: the deepest fields that do, and lists as a whole where they differ in length.
/// Names fields only, never values; at most twenty.
pub(crate) fn differences(live: &Value, wanted: &Value) -> Vec<String> {
    let empty = Map::new();
    let (live, wanted) = (live.as_object().unwrap_or(&empty), wanted.as_object().unwrap_or(&empty));
    let mut found = Vec::new();
    for key in METADATA {
        let (live, wanted) = (metadata(live, key), metadata(wanted, key));
        walk(&mut format!("/metadata/{key}"), live, wanted, &mut found);
    }
    let keys: BTreeSet<&String> =
        live.keys().chain(wanted.keys()).filter(|key| !IGNORED.contains(&key.as_str())).collect();
    for key in keys {
        walk(&mut format!("/{}", escaped(key)), live.get(key), wanted.get(key), &mut found);
    }
    found
}

pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn walk(at: &mut String, live: Option<&Value>, wanted: Option<&Value>, found: &mut Vec<String>) {
    if live == wanted || found.len() == MAX_NAMED {
        return;
    }
    let length = at.len();
    match (live, wanted) {
        (Some(Value::Object(live)), Some(Value::Object(wanted))) => {
            let keys: BTreeSet<&String> = live.keys().chain(wanted.keys()).collect();
            for key in keys {
                at.push('/');
                at.push_str(&escaped(key));
                walk(at, live.get(key), wanted.get(key), found);
                at.truncate(length);
            }
        }
        (Some(Value::Array(live)), Some(Value::Array(wanted))) if live.len() == wanted.len() => {
            for (index, (live, wanted)) in live.iter().zip(wanted).enumerate() {
                at.push_str(&format!("/{index}"));
                walk(at, Some(live), Some(wanted), found);
                at.truncate(length);
            }
        }
        _ => found.push(at[..at.floor_char_boundary(MAX_POINTER)].to_owned()),
    }
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

    use super::{differences, differs};

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

    #[test]
    fn differences_are_named_by_their_deepest_fields() {
        let live = json!({"metadata": {"labels": {"a/b": "1"}, "resourceVersion": "1"},
                          "data": {"k": "v", "same": "x"}, "spec": {"list": [{"n": 1}, {"n": 2}], "short": [1]}, "status": 1});
        let wanted = json!({"metadata": {"labels": {"a/b": "2"}, "resourceVersion": "2"},
                            "data": {"new": "v", "same": "x"}, "spec": {"list": [{"n": 1}, {"n": 3}], "short": []}});
        assert_eq!(
            differences(&live, &wanted),
            ["/metadata/labels/a~1b", "/data/k", "/data/new", "/spec/list/1/n", "/spec/short"]
        );
        assert!(differences(&live, &live).is_empty());
        let many: Value =
            (0..100).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(differences(&json!({"data": many}), &json!({"data": {}})).len(), 20);
    }
}
