//! Patches: JSON patch, merge patch, and strategic merge for the core kinds.

use roadstead_api::KindId;
use serde_json::{Map, Value};

use crate::HubError;

/// A patch.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists merge by their keys. For the kinds that Kubernetes has built in only.
    Strategic(Value),
    /// Server-side apply: the fields that the manager wants to own, and whether it takes them from others.
    Apply {
        /// The configuration.
        config: Value,
        /// Whether it takes fields that others own.
        force: bool,
    },
}

/// A JSON patch with more operations is refused: each costs a walk of the object.
const MAX_OPERATIONS: usize = 10_000;

/// `object` with the patch applied.
pub(crate) fn apply(kind: KindId, mut object: Value, patch: &Patch) -> Result<Value, HubError> {
    match patch {
        Patch::Json(operations) => {
            let bad =
                |error: &dyn std::fmt::Display| HubError::BadRequest(format!("the JSON patch: {error}"));
            if operations.as_array().is_some_and(|list| list.len() > MAX_OPERATIONS) {
                return Err(bad(&format_args!("more than {MAX_OPERATIONS} operations")));
            }
            let operations: json_patch::Patch =
                serde::Deserialize::deserialize(operations).map_err(|error| bad(&error))?;
            json_patch::patch(&mut object, &operations).map_err(|error| bad(&error))?;
        }
        Patch::Merge(patch) => {
            only_objects(patch)?;
            json_patch::merge(&mut object, patch);
        }
        Patch::Strategic(patch) => {
            only_objects(patch)?;
            if !kind.get().builtin {
                return Err(HubError::UnsupportedMediaType(format!(
                    "{} is no built-in kind: want application/merge-patch+json or application/json-patch+json",
                    kind.get().kind
                )));
            }
            if let (Value::Object(object), Value::Object(patch)) = (&mut object, patch) {
                strategic(object, patch)?;
            }
        }
        Patch::Apply { .. } => {
            return Err(HubError::Internal("an apply is no patch of what is shown".to_owned()));
        }
    }
    Ok(object)
}

fn only_objects(patch: &Value) -> Result<(), HubError> {
    if patch.is_object() { Ok(()) } else { Err(HubError::BadRequest("the patch is no object".to_owned())) }
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

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

fn strategic(object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), HubError> {
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        *object =
            patch.iter().filter(|(key, _)| *key != "$patch").map(|(k, v)| (k.clone(), v.clone())).collect();
        return Ok(());
    }
    if patch.get("$patch").and_then(Value::as_str) == Some("delete") {
        object.clear();
        return Ok(());
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        object.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if key == "$patch" || key == "$retainKeys" || key.starts_with(ORDER) {
            continue;
        }
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(list)), Some(gone)) = (object.get_mut(field), value.as_array()) {
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            return Err(HubError::BadRequest(format!("the patch has a directive that is not known: {key}")));
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
                        merge_list(list, items, by)?;
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

fn merge_list(list: &mut Vec<Value>, items: &[Value], by: &str) -> Result<(), HubError> {
    if items.iter().any(|item| item["$patch"] == "replace") {
        *list = items.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    for item in items {
        if by.is_empty() {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        }
        let at = list.iter().position(|present| present[by] == item[by]);
        match (at, item.as_object()) {
            (Some(at), Some(patch)) if patch.get("$patch").and_then(Value::as_str) == Some("delete") => {
                list.remove(at);
            }
            (Some(at), Some(patch)) => {
                if let Some(Value::Object(present)) = list.get_mut(at) {
                    strategic(present, patch)?;
                }
            }
            (None, Some(patch)) if patch.contains_key("$patch") => {}
            (None, _) => list.push(item.clone()),
            (Some(_), None) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use roadstead_api::KindId;
    use serde_json::json;

    use super::{Patch, apply};

    #[test]
    fn strategic_merge_of_a_secret() {
        let secret = json!({ "metadata": { "name": "a", "labels": { "x": "1", "y": "2" }, "finalizers": ["a/b", "c/d"] },
            "data": { "k": "b2xk", "gone": "eA==" } });
        let patch = Patch::Strategic(json!({ "data": { "k": "bmV3", "gone": null }, "metadata": {
            "labels": { "y": null }, "finalizers": ["e/f"], "$deleteFromPrimitiveList/finalizers": ["a/b"],
            "$setElementOrder/finalizers": ["c/d", "e/f"] } }));
        assert_eq!(
            apply(KindId::Secret, secret, &patch).unwrap(),
            json!({ "metadata": { "name": "a", "labels": { "x": "1" }, "finalizers": ["c/d", "e/f"] },
                "data": { "k": "bmV3" } })
        );
        assert!(apply(KindId::Kustomization, json!({}), &patch).is_err(), "no built-in kind");
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for patch in [
            Patch::Json(json!({})),
            Patch::Json(json!([{ "op": "replace", "path": "/not/there", "value": 1 }])),
            Patch::Merge(json!([])),
            Patch::Strategic(json!({ "$unheard": 1 })),
        ] {
            assert!(apply(KindId::Secret, json!({}), &patch).is_err(), "{patch:?}");
        }
    }
}
