//! Patches: JSON patch, merge patch, and strategic merge for the core kinds.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;

use json_patch::PatchOperation;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{BodyError, json};

/// A patch.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists merge by their keys. For the kinds that Kubernetes has built in only.
    Strategic(Value),
}

/// A JSON patch with more operations is refused: each costs a walk of the object.
const MAX_OPERATIONS: usize = 10_000;

/// What a JSON patch may copy and move in all, in bytes of about its JSON: as kube-apiserver has it. Without it a patch
/// could double an object with each operation.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// And in bytes of memory, of which a list of small objects takes a hundred times its JSON.
const MAX_COPIED_MEMORY: usize = 16 * 1024 * 1024;

/// How deep a JSON patch may nest an object, in which each operation can put one value beneath another: twice as deep as
/// a body may be.
const MAX_DEPTH: usize = 256;

impl Patch {
    /// Reads the body of a patch of this media type, which may take `memory` bytes.
    ///
    /// # Errors
    /// [`BodyError::Unsupported`] for what is not a patch's media type, [`BodyError::Empty`], [`BodyError::Malformed`],
    /// [`BodyError::Memory`].
    pub fn read(media_type: &str, bytes: &[u8], memory: usize) -> Result<Self, BodyError> {
        let make: fn(Value) -> Self = match media_type {
            "application/json-patch+json" => Self::Json,
            "application/merge-patch+json" => Self::Merge,
            "application/strategic-merge-patch+json" => Self::Strategic,
            other => {
                return Err(BodyError::Unsupported(format!(
                    "the body of the request was in an unknown format ({}): accepted media types are \
                     application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json \
                     and {}",
                    json::beginning(other),
                    crate::APPLY
                )));
            }
        };
        if bytes.is_empty() {
            return Err(BodyError::Empty);
        }
        json::parse(bytes, memory).map(|body| make(body.value))
    }

    /// The object with the patch applied.
    ///
    /// # Errors
    /// [`BodyError::Patch`] where it is not a patch of its form, or does not fit the object.
    pub fn apply_to(&self, mut object: Value) -> Result<Value, BodyError> {
        match self {
            Self::Json(operations) => json_patch(&mut object, operations)?,
            Self::Merge(patch) => {
                only_objects(patch)?;
                json_patch::merge(&mut object, patch);
            }
            Self::Strategic(patch) => {
                only_objects(patch)?;
                if let (Value::Object(object), Value::Object(patch)) = (&mut object, patch) {
                    strategic(object, patch)?;
                }
            }
        }
        Ok(object)
    }
}

fn only_objects(patch: &Value) -> Result<(), BodyError> {
    if patch.is_object() { Ok(()) } else { Err(BodyError::Patch("the patch is not an object".to_owned())) }
}

/// How a list is merged: by a key of its items, as a set, or (none) as a whole.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "ownerReferences" => Some("uid"),
        "conditions" => Some("type"),
        "secrets" | "imagePullSecrets" => Some("name"),
        "finalizers" => Some(""),
        _ => None,
    }
}

fn json_patch(object: &mut Value, operations: &Value) -> Result<(), BodyError> {
    let bad = |error: &dyn fmt::Display| BodyError::Patch(format!("the JSON patch: {error}"));
    if operations.as_array().is_some_and(|list| list.len() > MAX_OPERATIONS) {
        return Err(bad(&format_args!("more than {MAX_OPERATIONS} operations")));
    }
    let operations: json_patch::Patch = Deserialize::deserialize(operations).map_err(|error| bad(&error))?;
    let (mut copied, mut memory) = (0, 0);
    for (index, operation) in operations.0.iter().enumerate() {
        let bad = |why: &dyn fmt::Display| {
            bad(&format_args!(
                "operation {index}, at {:?}: {why}",
                json::beginning(operation.path().as_str())
            ))
        };
        let value = match operation {
            PatchOperation::Copy(copy) => copy.from.resolve(object).ok(),
            PatchOperation::Move(moved) => moved.from.resolve(object).ok(),
            PatchOperation::Add(add) => Some(&add.value),
            PatchOperation::Replace(replace) => Some(&replace.value),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        let size = value.map(Size::of).unwrap_or_default();
        if matches!(operation, PatchOperation::Copy(_) | PatchOperation::Move(_)) {
            copied += size.bytes;
        }
        if matches!(operation, PatchOperation::Copy(_)) {
            memory += value.map(json::cost).unwrap_or_default();
        }
        if copied > MAX_COPIED || memory > MAX_COPIED_MEMORY {
            return Err(bad(&format_args!(
                "it copies and moves more than {MAX_COPIED} bytes, or {MAX_COPIED_MEMORY} bytes of memory"
            )));
        }
        if operation.path().count() + size.depth > MAX_DEPTH {
            return Err(bad(&format_args!("the object would nest deeper than {MAX_DEPTH}")));
        }
        // The object is ours to leave half changed.
        json_patch::patch_unsafe(object, std::slice::from_ref(operation))
            .map_err(|error| bad(&error.kind))?;
    }
    Ok(())
}

/// How large a value is.
#[derive(Default)]
struct Size {
    /// About those of its JSON.
    bytes: usize,
    /// Of lists and objects in one another; 1 for a text.
    depth: usize,
}

impl Size {
    /// As deep as [`MAX_DEPTH`] lets values be, so that it may call itself.
    fn of(value: &Value) -> Self {
        let mut all = Self { bytes: 2, depth: 0 };
        let mut inner = |key: usize, value: &Value| {
            let size = Self::of(value);
            all.bytes += key + size.bytes + 1;
            all.depth = all.depth.max(size.depth);
        };
        match value {
            Value::String(text) => all.bytes += text.len(),
            Value::Array(items) => items.iter().for_each(|item| inner(0, item)),
            Value::Object(map) => map.iter().for_each(|(key, value)| inner(key.len() + 3, value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        all.depth += 1;
        all
    }
}

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

fn directive(patch: &Map<String, Value>) -> Option<&str> {
    patch.get("$patch").and_then(Value::as_str)
}

fn strategic(object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), BodyError> {
    match directive(patch) {
        Some("replace") => {
            let kept = patch.iter().filter(|(key, _)| *key != "$patch");
            *object = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            object.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
        object.retain(|key, _| kept.contains(key.as_str()));
    }
    for (key, value) in patch {
        if key == "$patch" || key == "$retainKeys" || key.starts_with(ORDER) {
            continue;
        }
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(list)), Some(gone)) = (object.get_mut(field), value.as_array()) {
                let gone: HashSet<&Value> = gone.iter().collect();
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            return Err(BodyError::Patch(format!(
                "the patch has an unknown directive: {}",
                json::beginning(key)
            )));
        }
        match value {
            Value::Null => {
                object.remove(key);
            }
            Value::Object(inner) => {
                let slot = object.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    strategic(slot, inner)?;
                }
            }
            Value::Array(items) => match merge_key(key) {
                None => {
                    object.insert(key.clone(), value.clone());
                }
                Some(by) => {
                    let slot = object.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(list) = slot {
                        *list = merge_list(std::mem::take(list), items, by)?;
                    }
                }
            },
            _ => {
                object.insert(key.clone(), value.clone());
            }
        }
    }
    Ok(())
}

/// A list with the items of a patch merged in: by the value of a key, or, where that is empty, as a set.
fn merge_list(list: Vec<Value>, items: &[Value], by: &str) -> Result<Vec<Value>, BodyError> {
    if items.iter().any(|item| item["$patch"] == "replace") {
        return Ok(items.iter().filter(|item| item.get("$patch").is_none()).cloned().collect());
    }
    let key = |item: &Value| if by.is_empty() { item.clone() } else { item[by].clone() };
    let mut places: HashMap<Value, usize> = HashMap::new();
    for (place, item) in list.iter().enumerate() {
        places.entry(key(item)).or_insert(place);
    }
    let mut merged: Vec<Option<Value>> = list.into_iter().map(Some).collect();
    for item in items {
        let patch = item.as_object();
        match places.entry(key(item)) {
            Entry::Occupied(place) => {
                let present = merged.get_mut(*place.get());
                match (present, patch) {
                    (Some(present), Some(patch)) if directive(patch) == Some("delete") => {
                        *present = None;
                        place.remove();
                    }
                    (Some(Some(Value::Object(present))), Some(patch)) => strategic(present, patch)?,
                    // Texts that are in the set already.
                    _ => {}
                }
            }
            // What a directive is about is not there.
            Entry::Vacant(_) if patch.is_some_and(|patch| patch.contains_key("$patch")) => {}
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(Some(item.clone()));
            }
        }
    }
    Ok(merged.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::Patch;

    #[test]
    fn strategic_merge_of_a_secret() {
        let secret = json!({ "metadata": { "name": "a", "labels": { "x": "1", "y": "2" }, "finalizers": ["a/b", "c/d"] },
            "data": { "k": "b2xk", "gone": "eA==" } });
        let patch = Patch::Strategic(json!({ "data": { "k": "bmV3", "gone": null }, "metadata": {
            "labels": { "y": null }, "finalizers": ["e/f", "c/d"], "$deleteFromPrimitiveList/finalizers": ["a/b"],
            "$setElementOrder/finalizers": ["c/d", "e/f"] } }));
        assert_eq!(
            patch.apply_to(secret).unwrap(),
            json!({ "metadata": { "name": "a", "labels": { "x": "1" }, "finalizers": ["c/d", "e/f"] },
                "data": { "k": "bmV3" } })
        );
    }

    #[test]
    fn lists_merge_by_their_keys() {
        let object = json!({ "secrets": [{ "name": "a" }, { "name": "b", "x": 1 }, { "name": "c" }] });
        let patch = Patch::Strategic(json!({ "secrets": [
            { "name": "d" }, { "name": "b", "y": 2 }, { "name": "a", "$patch": "delete" }, { "name": "e", "$patch": "delete" },
            { "name": "a", "z": 3 },
        ] }));
        assert_eq!(
            patch.apply_to(object.clone()).unwrap(),
            json!({ "secrets": [{ "name": "b", "x": 1, "y": 2 }, { "name": "c" }, { "name": "d" }, { "name": "a", "z": 3 }] })
        );
        let patch = Patch::Strategic(json!({ "secrets": [{ "$patch": "replace" }, { "name": "z" }] }));
        assert_eq!(patch.apply_to(object).unwrap(), json!({ "secrets": [{ "name": "z" }] }));
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for patch in [
            Patch::Json(json!({})),
            Patch::Json(json!([{ "op": "replace", "path": "/not/there", "value": 1 }])),
            Patch::Merge(json!([])),
            Patch::Strategic(json!({ "$unheard": 1 })),
        ] {
            assert!(patch.apply_to(json!({})).is_err(), "{patch:?}");
        }
        assert!(Patch::read("text/plain", b"{}", 1 << 20).is_err());
        assert!(Patch::read("application/merge-patch+json", b"", 1 << 20).is_err());
    }

    #[test]
    fn patches_that_grow_an_object_end_early() {
        let double = json!({ "op": "copy", "from": "/a", "path": "/a/-" });
        let wider = Patch::Json(vec![double; 60].into());
        let error = wider.apply_to(json!({ "a": ["x"] })).unwrap_err().to_string();
        assert!(error.contains("more than 3145728 bytes"), "{error}");
        let small = serde_json::from_str::<Value>(&format!("[{}0]", "{\"\":0},".repeat(1000))).unwrap();
        let copy = json!({ "op": "copy", "from": "/a", "path": "/b/-" });
        let many = Patch::Json(vec![copy; 100].into());
        let error = many.apply_to(json!({ "a": small, "b": [] })).unwrap_err().to_string();
        assert!(error.contains("16777216 bytes of memory"), "{error}");
        let nest = [
            json!({ "op": "move", "from": "/a", "path": "/b" }),
            json!({ "op": "add", "path": "/a", "value": {} }),
            json!({ "op": "move", "from": "/b", "path": "/a/a" }),
        ];
        let deeper = Patch::Json(nest.iter().cycle().take(9_999).cloned().collect());
        let error = deeper.apply_to(json!({ "a": 1 })).unwrap_err().to_string();
        assert!(error.contains("deeper than 256"), "{error}");
    }

    #[test]
    fn long_lists_merge_in_time() {
        let begin = Instant::now();
        let many: Vec<Value> = (0..200_000).map(|n| Value::from(n.to_string())).collect();
        let object = json!({ "metadata": { "finalizers": many }, "rules": many });
        let patch = json!({ "metadata": { "finalizers": many }, "$deleteFromPrimitiveList/rules": many });
        let patched = Patch::Strategic(patch).apply_to(object).unwrap();
        assert_eq!(patched["metadata"]["finalizers"].as_array().map(Vec::len), Some(200_000));
        assert_eq!(patched["rules"], json!([]));
        // Item by item it would take many minutes.
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i8>().prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = prop::sample::select(vec![
                "a",
                "b",
                "",
                "$patch",
                "secrets",
                "finalizers",
                "name",
                "$retainKeys",
                "$deleteFromPrimitiveList/a",
            ]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// What a merge patch of an object says comes to stand, and saying it twice changes nothing more.
        #[test]
        fn merging_twice_is_merging_once(object in value(), patch in value()) {
            if let Ok(once) = Patch::Merge(patch.clone()).apply_to(object.clone()) {
                prop_assert_eq!(Patch::Merge(patch.clone()).apply_to(once.clone()).unwrap(), once);
            } else {
                prop_assert!(!patch.is_object());
            }
            // Of the others: no panic.
            let _ = Patch::Strategic(patch.clone()).apply_to(object.clone());
            let _ = Patch::Json(patch).apply_to(object);
        }
    }
}
