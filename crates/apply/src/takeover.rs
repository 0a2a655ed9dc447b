//! Taking over an object from tools that were used before: their fields become ours, so that what they set and the
//! build does not is removed, and what they change later is seen as drift.

use std::sync::Arc;

use roadstead_model::FieldDrift;
use serde_json::{Map, Value, json};

use crate::FIELD_MANAGER;
use crate::compare::{MAX_NAMED, MAX_POINTER, escaped};
use crate::flux::{FLUX, OWNER_LABELS, owner};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The annotation of a Pod template that `kubectl rollout restart` sets, as a field.
const RESTARTED_AT: &str = "f:kubectl.kubernetes.io/restartedAt";

/// What is taken over from other tools, besides kubectl.
#[derive(Debug, Clone, Default)]
pub(crate) struct Adopts {
    /// What a Flux in the cluster has applied.
    pub(crate) flux: bool,
    /// With that, the fields of these managers.
    pub(crate) managers: Arc<[String]>,
}

impl Adopts {
    /// Whether the fields of this entry become ours.
    fn takes(&self, entry: &Value, restarts: Restarts) -> bool {
        is_taken(entry) && (restarts == Restarts::Go || !is_restart(entry))
            || self.flux && (is_of_flux(entry) || self.names(entry))
    }

    fn names(&self, entry: &Value) -> bool {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let manager = text("manager");
        text("subresource").is_empty()
            && manager != FIELD_MANAGER
            && self.managers.iter().any(|name| name == manager)
    }
}

/// Whether a restart that somebody asked for stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restarts {
    /// It does: what is applied is what was applied before, as far as can be told.
    Stay,
    /// The object is changed anyway.
    Go,
}

/// The JSON patch that makes the fields of kubectl, and of our own plain updates, ours; `None` if there is nothing to
/// take over. It tests the resource version that it was made from. What is taken over from Flux is Flux's no more: its labels go in the
/// same write.
pub(crate) fn takeover(live: &Value, restarts: Restarts, adopts: &Adopts) -> Option<Value> {
    let metadata = live.get("metadata")?;
    let entries = metadata.get("managedFields")?.as_array()?;
    let is_foreign = |entry: &&Value| adopts.takes(entry, restarts);
    let (foreign, kept): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(is_foreign);
    let annotated =
        metadata.get("annotations").is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    let owned_by_flux = adopts.flux && owner(live).is_some();
    if foreign.is_empty() && !annotated && !owned_by_flux {
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
    if owned_by_flux {
        let labels = OWNER_LABELS.map(|label| label.replace('/', "~1"));
        let gone = |label| json!({"op": "remove", "path": format!("/metadata/labels/{label}")});
        patch.extend(labels.map(gone));
    }
    if !foreign.is_empty() {
        patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": merged(live, &foreign, &kept, FIELD_MANAGER)}));
    }
    Some(Value::Array(patch))
}

/// Whether the fields of this entry become ours. Entries of subresources (`status`, `scale`) stay who they are.
pub(crate) fn is_taken(entry: &Value) -> bool {
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

/// Whether Flux applied the fields of this entry.
fn is_of_flux(entry: &Value) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    text("manager") == FLUX && text("subresource").is_empty()
}

/// Whether kubectl has nothing but a restart in this entry: the annotation's fields alone.
pub(crate) fn is_restart(entry: &Value) -> bool {
    let is_kubectl = entry["manager"].as_str().is_some_and(|manager| manager.starts_with("kubectl"));
    let only = |value: &Value, key: &str| -> Option<Value> {
        let fields = value.as_object()?;
        let mut named = fields.iter().filter(|(name, _)| *name != ".");
        let (name, below) = named.next()?;
        (name == key && named.next().is_none()).then(|| below.clone())
    };
    let path = ["f:spec", "f:template", "f:metadata", "f:annotations", RESTARTED_AT];
    is_kubectl && path.iter().try_fold(entry["fieldsV1"].clone(), |at, key| only(&at, key)).is_some()
}

/// Which fields of a live object go when it is taken over, as JSON pointers: those that other tools have set and what is applied does not
/// have, by `wanted`, the answer to a dry-run. Lists as a whole.
pub(crate) fn extras(live: &Value, wanted: &Value, restarts: Restarts, adopts: &Adopts) -> Vec<String> {
    let entries =
        |object: &Value| object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let is_ours = |entry: &Value| {
        (entry["manager"].as_str(), entry["operation"].as_str()) == (Some(FIELD_MANAGER), Some("Apply"))
    };
    let ours = entries(wanted).into_iter().find(is_ours).map(|entry| entry["fieldsV1"].clone());
    let is_foreign = |entry: &&Value| adopts.takes(entry, restarts);
    let mut found = Vec::new();
    for entry in entries(live).iter().filter(is_foreign) {
        pointers(&mut String::new(), false, &entry["fieldsV1"], ours.as_ref(), &mut found);
    }
    found.sort();
    found.dedup();
    found
}

/// Who, besides us, has any of these fields, as far as `managedFields` tells. Places in lists are not told apart.
pub(crate) fn managers_of(live: &Value, fields: &[FieldDrift]) -> Vec<String> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let name =
        |entry: &Value| entry["manager"].as_str().filter(|name| *name != FIELD_MANAGER).map(str::to_owned);
    let has = |entry: &Value| fields.iter().any(|field| has_field(&entry["fieldsV1"], &field.path));
    let mut managers: Vec<String> = entries.filter(|entry| has(entry)).filter_map(name).collect();
    managers.sort();
    managers.dedup();
    managers
}

/// Whether a manager's set has the field of a pointer, or something below it.
fn has_field(set: &Value, pointer: &str) -> bool {
    let mut at = set;
    for name in pointer.split('/').skip(1) {
        let Some(fields) = at.as_object() else { return false };
        let is_element = |key: &&String| key.starts_with("k:") || key.starts_with("v:");
        if fields.keys().any(|key| is_element(&key)) {
            return true;
        }
        let name = name.replace("~1", "/").replace("~0", "~");
        let Some(below) = fields.get(&format!("f:{name}")) else { return fields.is_empty() && at != set };
        at = below;
    }
    true
}

/// Adds where `set` has a field that `ours` has not.
fn pointers(at: &mut String, in_list: bool, set: &Value, ours: Option<&Value>, found: &mut Vec<String>) {
    let below: Vec<(&String, &Value)> =
        set.as_object().into_iter().flatten().filter(|(name, _)| *name != ".").collect();
    if below.is_empty() {
        if ours.is_none() && found.len() < MAX_NAMED && !at.is_empty() {
            found.push(at[..at.floor_char_boundary(MAX_POINTER)].to_owned());
        }
        return;
    }
    let length = at.len();
    for (name, below) in below {
        // Of a list it is told which one it is, and nothing of its elements.
        let field = name.strip_prefix("f:").filter(|_| !in_list);
        if let Some(field) = field {
            at.push('/');
            at.push_str(&escaped(field));
        }
        pointers(at, field.is_none(), below, ours.and_then(|ours| ours.get(name)), found);
        at.truncate(length);
    }
}

/// `kept` with the fields of `foreign` merged into the entry of what `manager` has applied.
pub(crate) fn merged(live: &Value, foreign: &[&Value], kept: &[&Value], manager: &str) -> Value {
    let is_ours = |entry: &Value| {
        entry.get("manager").is_some_and(|name| name == manager)
            && entry.get("operation").is_some_and(|operation| operation == "Apply")
            && entry.get("subresource").and_then(Value::as_str).unwrap_or_default().is_empty()
    };
    let mut entries: Vec<Value> = kept.iter().map(|entry| (*entry).clone()).collect();
    let ours = match entries.iter().position(is_ours) {
        Some(ours) => ours,
        None => {
            entries.push(json!({
                "manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {},
                "apiVersion": foreign.first().and_then(|entry| entry.get("apiVersion")).or_else(|| live.get("apiVersion")),
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

    use super::{Adopts, Restarts, extras, takeover};
    use crate::flux::owner;

    fn nothing() -> Adopts {
        Adopts::default()
    }

    fn flux() -> Adopts {
        Adopts { flux: true, ..Adopts::default() }
    }

    #[test]
    fn nothing_of_others_is_nothing_to_do() {
        let live = json!({"metadata": {"resourceVersion": "5", "managedFields": [
            {"manager": "roadstead", "operation": "Apply", "fieldsV1": {}},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
            {"manager": "kubectl", "operation": "Update", "subresource": "scale"},
            {"manager": "helm", "operation": "Update"},
        ]}});
        assert_eq!(takeover(&live, Restarts::Go, &nothing()), None);
    }

    #[test]
    fn only_what_is_not_applied_goes() {
        let entry = |manager: &str, operation: &str, fields: serde_json::Value| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let containers = |env: serde_json::Value| json!({"f:data": {"f:a": {}}, "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:env": env}}}});
        let ours = entry("roadstead", "Apply", containers(json!({"k:{\"name\":\"A\"}": {"f:value": {}}})));
        let wanted = json!({"metadata": {"managedFields": [ours]}});
        // The same fields, whoever has them now.
        let same =
            entry("kubectl-edit", "Update", containers(json!({"k:{\"name\":\"A\"}": {"f:value": {}}})));
        let live = json!({"metadata": {"managedFields": [same]}});
        assert!(extras(&live, &wanted, Restarts::Stay, &nothing()).is_empty());
        let more =
            entry("kubectl-edit", "Update", containers(json!({"k:{\"name\":\"B\"}": {"f:value": {}}})));
        let live = json!({"metadata": {"managedFields": [more.clone(), more]}});
        assert_eq!(extras(&live, &wanted, Restarts::Stay, &nothing()), ["/spec/containers"]);
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
        let annotation = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
        assert_eq!(extras(&live, &live, Restarts::Stay, &nothing()), ["/data/b", annotation]);
        let patch = takeover(&live, Restarts::Stay, &nothing()).expect("there is something to take over");
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

    #[test]
    fn a_restart_stays_alone() {
        let restart = json!({"manager": "kubectl-rollout", "operation": "Update", "fieldsV1": {"f:spec": {"f:template": {
            "f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/restartedAt": {}}}}}}});
        let mut live = json!({"metadata": {"resourceVersion": "5", "managedFields": [restart]}});
        assert_eq!(takeover(&live, Restarts::Stay, &nothing()), None);
        assert!(takeover(&live, Restarts::Go, &nothing()).is_some());
        // An edit of another field by the same manager is not a restart.
        live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
        assert!(takeover(&live, Restarts::Stay, &nothing()).is_some());
    }

    #[test]
    fn what_flux_has_is_taken_only_where_that_is_asked_for() {
        let live = json!({
            "metadata": {
                "resourceVersion": "7",
                "labels": {
                    "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
                },
                "managedFields": [
                    {"manager": "kustomize-controller", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                     "fieldsV1": {"f:data": {"f:old": {}}}},
                    {"manager": "kustomize-controller", "operation": "Update", "subresource": "status", "apiVersion": "v1",
                     "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}},
                ],
            },
        });
        let owner = owner(&live).expect("an owner");
        assert_eq!(owner.to_string(), "flux-system/apps");
        assert_eq!(takeover(&live, Restarts::Go, &nothing()), None);
        let patch = takeover(&live, Restarts::Stay, &flux()).expect("a patch");
        let ops: Vec<(&str, &str)> = patch
            .as_array()
            .expect("a list")
            .iter()
            .map(|op| (op["op"].as_str().expect("op"), op["path"].as_str().expect("path")))
            .collect();
        assert_eq!(
            ops,
            [
                ("test", "/metadata/resourceVersion"),
                ("remove", "/metadata/labels/kustomize.toolkit.fluxcd.io~1name"),
                ("remove", "/metadata/labels/kustomize.toolkit.fluxcd.io~1namespace"),
                ("replace", "/metadata/managedFields"),
            ]
        );
        let entries = patch[3]["value"].as_array().expect("entries");
        assert_eq!(entries.len(), 2, "the status stays Flux's");
        assert_eq!(entries[1]["manager"], "roadstead");
        assert_eq!(entries[1]["fieldsV1"]["f:data"]["f:old"], json!({}));
    }

    #[test]
    fn what_listed_managers_have_is_taken_with_what_is_adopted() {
        let entry = |manager: &str| json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {format!("f:{manager}"): {}}}});
        let live = json!({"metadata": {"resourceVersion": "7", "managedFields": [entry("helm"), entry("other"), entry("roadstead")]}});
        let managers = ["helm".to_owned(), "roadstead".to_owned()];
        let listed = Adopts { flux: true, managers: managers.clone().into() };
        let patch = takeover(&live, Restarts::Stay, &listed).expect("a patch");
        let entries = patch[1]["value"].as_array().expect("entries");
        let managers_left: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str()).collect();
        assert_eq!(managers_left, [Some("other"), Some("roadstead")]);
        let of_ours = json!({"f:data": {"f:helm": {}, "f:roadstead": {}}});
        assert_eq!(entries[1]["fieldsV1"], of_ours);
        // Without adopting, the list says nothing.
        let off = Adopts { flux: false, managers: managers.into() };
        let patch = takeover(&live, Restarts::Stay, &off).expect("our own update");
        assert_eq!(patch[1]["value"].as_array().map(Vec::len), Some(3));
    }
}
