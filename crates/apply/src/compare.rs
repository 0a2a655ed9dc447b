//! Whether applying would change a live object: its answer to a dry-run against what it is.

use std::collections::BTreeSet;

use roadstead_model::{FieldDrift, FieldValues, ObjectRef};
use serde_json::{Map, Value};

use crate::HashKey;

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

/// How many differences of one object are named, how long each name may be, and how much of each value is told, in bytes.
pub(crate) const MAX_NAMED: usize = 20;
pub(crate) const MAX_POINTER: usize = 256;
const MAX_VALUE: usize = 128;

/// How values are told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values<'a> {
    /// As JSON, cut where they are long.
    Plain,
    /// As keyed hashes, of this object's values: they may be secret.
    Hashed(&'a HashKey, &'a ObjectRef),
}

impl Values<'_> {
    /// What is told of a value at `pointer`.
    pub(crate) fn tell(self, pointer: &str, value: &Value) -> String {
        match self {
            Self::Hashed(key, object) => format!("hash:{:016x}", key.of_value(object, pointer, value)),
            Self::Plain => {
                let mut text = value.to_string();
                if text.len() > MAX_VALUE {
                    text.truncate(text.floor_char_boundary(MAX_VALUE));
                    text.push('…');
                }
                text
            }
        }
    }
}

/// Where `wanted` differs from `live`: the deepest fields that do, and lists as a whole where they differ in length. At most twenty.
pub(crate) fn differences(live: &Value, wanted: &Value, values: Values<'_>) -> Vec<FieldDrift> {
    let empty = Map::new();
    let (live, wanted) = (live.as_object().unwrap_or(&empty), wanted.as_object().unwrap_or(&empty));
    let mut walk = Walk { at: String::new(), found: Vec::new(), values };
    for key in METADATA {
        let (live, wanted) = (metadata(live, key), metadata(wanted, key));
        walk.at = format!("/metadata/{key}");
        walk.compare(live, wanted);
    }
    let keys: BTreeSet<&String> =
        live.keys().chain(wanted.keys()).filter(|key| !IGNORED.contains(&key.as_str())).collect();
    for key in keys {
        walk.at = format!("/{}", escaped(key));
        walk.compare(live.get(key), wanted.get(key));
    }
    walk.found
}

pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A walk through two objects side by side.
struct Walk<'a> {
    at: String,
    found: Vec<FieldDrift>,
    values: Values<'a>,
}

impl Walk<'_> {
    fn compare(&mut self, live: Option<&Value>, wanted: Option<&Value>) {
        if live == wanted || self.found.len() == MAX_NAMED {
            return;
        }
        let length = self.at.len();
        match (live, wanted) {
            (Some(Value::Object(live)), Some(Value::Object(wanted))) => {
                let keys: BTreeSet<&String> = live.keys().chain(wanted.keys()).collect();
                for key in keys {
                    self.at.push('/');
                    self.at.push_str(&escaped(key));
                    self.compare(live.get(key), wanted.get(key));
                    self.at.truncate(length);
                }
            }
            (Some(Value::Array(live)), Some(Value::Array(wanted))) if live.len() == wanted.len() => {
                for (index, (live, wanted)) in live.iter().zip(wanted).enumerate() {
                    self.at.push_str(&format!("/{index}"));
                    self.compare(Some(live), Some(wanted));
                    self.at.truncate(length);
                }
            }
            _ => {
                let tell = |value: &Value| self.values.tell(&self.at, value);
                let values = Some(FieldValues { live: live.map(tell), desired: wanted.map(tell) });
                let path = self.at[..self.at.floor_char_boundary(MAX_POINTER)].to_owned();
                self.found.push(FieldDrift { path, values });
            }
        }
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

    use roadstead_model::ObjectRef;

    use super::{Values, differences, differs};
    use crate::HashKey;

    fn object() -> ObjectRef {
        let [group, version, kind, namespace, name] =
            ["", "v1", "Secret", "apps", "a"].map(ToOwned::to_owned);
        ObjectRef { group, version, kind, namespace, name }
    }

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
        let paths = |live: &Value, wanted: &Value| -> Vec<String> {
            differences(live, wanted, Values::Plain).into_iter().map(|field| field.path).collect()
        };
        assert_eq!(
            paths(&live, &wanted),
            ["/metadata/labels/a~1b", "/data/k", "/data/new", "/spec/list/1/n", "/spec/short"]
        );
        assert!(paths(&live, &live).is_empty());
        let many: Value =
            (0..100).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(paths(&json!({"data": many}), &json!({"data": {}})).len(), 20);
    }

    #[test]
    fn values_are_told_in_short_and_secret_ones_as_hashes() {
        let (live, wanted) =
            (json!({"data": {"a": "x", "b": "ä".repeat(500)}}), json!({"data": {"a": "y", "c": 1}}));
        let told = |values| -> Vec<(Option<String>, Option<String>)> {
            let fields = differences(&live, &wanted, values).into_iter();
            fields.filter_map(|field| field.values).map(|values| (values.live, values.desired)).collect()
        };
        let plain = told(Values::Plain);
        assert_eq!(plain[0], (Some("\"x\"".to_owned()), Some("\"y\"".to_owned())));
        assert!(plain[1].0.as_ref().unwrap().len() <= 128 + "…".len() && plain[1].1.is_none());
        assert_eq!(plain[2], (None, Some("1".to_owned())));
        let (key, object) = (HashKey::random(), object());
        let hashed = told(Values::Hashed(&key, &object));
        assert_eq!(hashed, told(Values::Hashed(&key, &object)), "the same value has the same hash");
        let all = format!("{hashed:?}");
        assert!(all.contains("hash:") && !all.contains('x') && !all.contains('ä'), "{all}");
        assert_ne!(hashed[0].0, hashed[0].1);
    }
}
