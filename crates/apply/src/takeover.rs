//! Taking over an object from tools that were used before: their fields become ours, so that what they set and the
//! build does not is removed, and what they change later is seen as drift.

use serde_json::{Map, Value, json};

use crate::FIELD_MANAGER;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The JSON patch that makes the fields of kubectl, and of our own plain updates, ours; `None` if there is nothing to
/// take over. It tests the resource version that it was made from.
pub(crate) fn takeover(live: &Value) -> Option<Value> {
    let metadata = live.get("metadata")?;
    let entries = metadata.get("managedFields")?.as_array()?;
    let (foreign, kept): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(|entry| is_taken(entry));
    let annotated =
        metadata.get("annotations").is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    if foreign.is_empty() && !annotated {
        return None;
    }
    let mut patch = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion")?,
    })];
    if annotated {
        patch.push(json!({
            "op": "remove", "path": "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        }));
    }
    if !foreign.is_empty() {
        patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": merged(live, &foreign, &kept)}));
    }
    Some(Value::Array(patch))
}

/// Whether the fields of this entry become ours. Entries of subresources (`status`, `scale`) stay who they are.
fn is_taken(entry: &Value) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    if !text("subresource").is_empty() {
        return false;
    }
    match (text("manager"), text("operation")) {
        (FIELD_MANAGER, "Update") => true,
        (manager, "Update" | "Apply") if manager.starts_with("kubectl") => true,
        ("before-first-apply", "Update") => true,
        _ => false,
    }
}

/// `kept` with the fields of `foreign` merged into our entry.
fn merged(live: &Value, foreign: &[&Value], kept: &[&Value]) -> Value {
    let is_ours = |entry: &Value| {
        entry.get("manager").is_some_and(|manager| manager == FIELD_MANAGER)
            && entry.get("operation").is_some_and(|operation| operation == "Apply")
            && entry.get("subresource").and_then(Value::as_str).unwrap_or_default().is_empty()
    };
    let mut entries: Vec<Value> = kept.iter().map(|entry| (*entry).clone()).collect();
    let ours = match entries.iter().position(is_ours) {
        Some(ours) => ours,
        None => {
            entries.push(json!({
                "manager": FIELD_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {},
                "apiVersion": foreign[0].get("apiVersion").or_else(|| live.get("apiVersion")),
            }));
            entries.len() - 1
        }
    };
    if let Some(fields) = entries[ours].get_mut("fieldsV1").and_then(Value::as_object_mut) {
        for other in foreign.iter().filter_map(|entry| entry.get("fieldsV1")?.as_object()) {
            unite(fields, other);
        }
        // The annotation goes with the tool that wrote it.
        if let Some(annotations) = fields
            .get_mut("f:metadata")
            .and_then(|metadata| metadata.get_mut("f:annotations"))
            .and_then(Value::as_object_mut)
        {
            annotations.remove(&format!("f:{LAST_APPLIED}"));
        }
    }
    Value::Array(entries)
}

/// The union of two field sets: their tries laid over each other.
fn unite(into: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (key, value) in other {
        let slot = into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
        if let (Some(slot), Some(value)) = (slot.as_object_mut(), value.as_object()) {
            unite(slot, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::takeover;

    #[test]
    fn nothing_of_others_is_nothing_to_do() {
        let live = json!({"metadata": {"resourceVersion": "5", "managedFields": [
            {"manager": "roadstead", "operation": "Apply", "fieldsV1": {}},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
            {"manager": "kubectl", "operation": "Update", "subresource": "scale"},
            {"manager": "helm", "operation": "Update"},
        ]}});
        assert_eq!(takeover(&live), None);
    }

    #[test]
    fn fields_of_kubectl_become_ours() {
        let live = json!({"apiVersion": "v1", "metadata": {
            "resourceVersion": "5",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [
                {"manager": "roadstead", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}},
                {"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "fieldsV1": {
                    "f:data": {".": {}, "f:b": {}},
                    "f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}}},
                }},
                {"manager": "helm", "operation": "Update", "fieldsV1": {"f:data": {"f:c": {}}}},
            ],
        }});
        let patch = takeover(&live).expect("there is something to take over");
        assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "5"}));
        assert_eq!(patch[1]["op"], "remove");
        assert_eq!(
            patch[2]["value"],
            json!([
                {"manager": "roadstead", "operation": "Apply", "fieldsV1": {
                    "f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:annotations": {}},
                }},
                {"manager": "helm", "operation": "Update", "fieldsV1": {"f:data": {"f:c": {}}}},
            ])
        );
    }
}
