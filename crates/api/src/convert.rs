//! Between the versions of a kind and its storage form, which is the superset of all of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::kind::{KindId, Version};

/// An object of `version` as it is to be stored. `stored` is what is there, from which the fields come that `version`
/// cannot express.
#[must_use]
pub fn to_storage(kind: KindId, version: &Version, mut incoming: Value, stored: Option<&Value>) -> Value {
    let storage = kind.get().storage_version();
    set(&mut incoming, "apiVersion", storage.api_version().into());
    set(&mut incoming, "kind", kind.get().kind.into());
    if let Some(stored) = stored {
        for path in version.hidden {
            restore(&mut incoming, stored, path);
        }
    }
    if matches!(kind, KindId::Cluster | KindId::ExternalArtifact) {
        set_default(&mut incoming, "spec", json!({}));
    }
    if kind == KindId::Event && version.group != storage.group {
        rename(&mut incoming, EVENT_FIELDS.map(|(core, events)| (events, core)));
        // The core version has one that is always there.
        set_default(&mut incoming, "involvedObject", json!({}));
    }
    if kind == KindId::Kustomization {
        if version.name == "v1alpha1" {
            kustomization_from_v1alpha1(&mut incoming);
        } else {
            kustomization_from_v1(&mut incoming, stored);
        }
    }
    incoming
}

/// A stored object as `version` shows it.
#[must_use]
pub fn from_storage(kind: KindId, version: &Version, mut stored: Value) -> Value {
    set(&mut stored, "apiVersion", version.api_version().into());
    set(&mut stored, "kind", kind.get().kind.into());
    if kind == KindId::Event && !version.storage {
        rename(&mut stored, EVENT_FIELDS);
    }
    if kind == KindId::Kustomization {
        if version.name == "v1alpha1" {
            kustomization_to_v1alpha1(&mut stored);
        } else {
            let account = stored["spec"]["serviceAccount"]["name"].as_str().map(str::to_owned);
            if let (Some(account), Some(spec)) = (account, map(&mut stored, "spec")) {
                spec.insert("serviceAccountName".to_owned(), account.into());
            }
        }
    }
    for path in version.hidden {
        hide(&mut stored, path);
    }
    stored
}

fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(field.to_owned(), value);
    }
}

fn set_default(object: &mut Value, field: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.entry(field).or_insert(value);
    }
}

/// What the core version of an Event calls its fields, and what `events.k8s.io/v1` does.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(object: &mut Value, fields: [(&str, &str); 7]) {
    let Some(object) = object.as_object_mut() else { return };
    for (from, to) in fields {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}

fn map<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

/// Storage knows the service account in v1alpha1's form, which can name a namespace too.
fn kustomization_from_v1(incoming: &mut Value, stored: Option<&Value>) {
    let Some(spec) = map(incoming, "spec") else { return };
    spec.remove("serviceAccount");
    let Some(name) = spec.remove("serviceAccountName") else { return };
    let present =
        stored.map(|stored| &stored["spec"]["serviceAccount"]).filter(|account| account["name"] == name);
    spec.insert("serviceAccount".to_owned(), present.cloned().unwrap_or_else(|| json!({ "name": name })));
}

fn kustomization_from_v1alpha1(incoming: &mut Value) {
    if let Some(spec) = map(incoming, "spec") {
        // Some of the specification's samples leave it out, and its Go type then reads `false`.
        spec.entry("prune").or_insert(Value::Bool(false));
    }
    let Some(status) = map(incoming, "status") else { return };
    // Made of the inventory whenever it is read.
    status.remove("snapshot");
    let mut texts = Vec::new();
    for field in REVISION_FIELDS {
        if let Some(Value::String(text)) = status.get_mut(field)
            && let Some(modern) = modern_revision(text)
        {
            texts.push((std::mem::replace(text, modern.clone()), modern));
        }
    }
    for_messages(status, |message| {
        for (legacy, modern) in &texts {
            *message = message.replace(legacy, modern);
        }
    });
}

fn kustomization_to_v1alpha1(stored: &mut Value) {
    if let Some(spec) = map(stored, "spec") {
        spec.entry("path").or_insert_with(|| "./".into());
    }
    let Some(status) = map(stored, "status") else { return };
    for field in REVISION_FIELDS {
        if let Some(Value::String(text)) = status.get_mut(field) {
            *text = legacy_revisions(text);
        }
    }
    for_messages(status, |message| *message = legacy_revisions(message));
    if let Some(snapshot) = snapshot(status) {
        status.insert("snapshot".to_owned(), snapshot);
    }
}

/// The snapshot that stands for an inventory.
fn snapshot(status: &Map<String, Value>) -> Option<Value> {
    let inventory = status.get("inventory")?["entries"].as_array()?;
    let mut entries: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for entry in inventory {
        // `<namespace>_<name>_<group>_<kind>`; of these, names may hold the separator twice.
        let (Some(id), Some(version)) = (entry["id"].as_str(), entry["v"].as_str()) else { continue };
        let Some((namespace, rest)) = id.split_once('_') else { continue };
        let mut from_the_end = rest.rsplitn(3, '_');
        let (Some(kind), Some(group)) = (from_the_end.next(), from_the_end.next()) else { continue };
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        entries.entry(namespace).or_default().insert(format!("{api_version}, Kind={kind}"), kind.into());
    }
    let checksum = status.get("history").and_then(|history| history[0]["digest"].as_str());
    let entries: Vec<Value> = entries
        .into_iter()
        .map(|(namespace, kinds)| json!({ "namespace": namespace, "kinds": kinds }))
        .collect();
    Some(json!({ "checksum": checksum.unwrap_or_default(), "entries": entries }))
}

const REVISION_FIELDS: [&str; 2] = ["lastAppliedRevision", "lastAttemptedRevision"];

fn for_messages(status: &mut Map<String, Value>, mut change: impl FnMut(&mut String)) {
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::String(message)) = condition.get_mut("message") {
            change(message);
        }
    }
}

/// `main/<commit>` -> `main@sha1:<commit>`; none where it is no such text.
fn modern_revision(text: &str) -> Option<String> {
    let (reference, commit) = text.rsplit_once('/').unwrap_or(("", text));
    roadstead_model::Revision::git(reference, commit).ok().map(|revision| revision.to_string())
}

/// Every `main@sha1:<commit>` in a text -> `main/<commit>`.
fn legacy_revisions(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("sha1:") {
        let (before, tail) = (&rest[..at], &rest[at + "sha1:".len()..]);
        let digits = tail.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits == 40 {
            match before.strip_suffix('@') {
                Some(before) => {
                    out.push_str(before);
                    out.push('/');
                }
                None => out.push_str(before),
            }
            out.push_str(&tail[..digits]);
        } else {
            out.push_str(before);
            out.push_str("sha1:");
            out.push_str(&tail[..digits]);
        }
        rest = &tail[digits..];
    }
    out.push_str(rest);
    out
}

/// Takes the field at `a.b[].c` away.
fn hide(object: &mut Value, path: &str) {
    match path.split_once('.') {
        None => {
            if let Some(object) = object.as_object_mut() {
                object.remove(path);
            }
        }
        Some((segment, rest)) => match segment.strip_suffix("[]") {
            Some(list) => {
                for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    hide(item, rest);
                }
            }
            None => {
                if let Some(inner) = object.get_mut(segment) {
                    hide(inner, rest);
                }
            }
        },
    }
}

/// Brings the field at `a.b[].c` back from `stored`, where its parent is still there. Items of a list are the same where
/// their name and namespace are.
fn restore(object: &mut Value, stored: &Value, path: &str) {
    match path.split_once('.') {
        None => {
            if let (Some(object), Some(value)) = (object.as_object_mut(), stored.get(path)) {
                object.entry(path).or_insert_with(|| value.clone());
            }
        }
        Some((segment, rest)) => match segment.strip_suffix("[]") {
            Some(list) => {
                let old = stored.get(list).and_then(Value::as_array);
                for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    let same =
                        |old: &&Value| old["name"] == item["name"] && old["namespace"] == item["namespace"];
                    if let Some(old) = old.and_then(|old| old.iter().find(same)) {
                        restore(item, old, rest);
                    }
                }
            }
            None => {
                if let (Some(inner), Some(old)) = (object.get_mut(segment), stored.get(segment)) {
                    restore(inner, old, rest);
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{from_storage, legacy_revisions, to_storage};
    use crate::KindId;

    const COMMIT: &str = "a1afe267b54f38b46b487f6e938a6fd508278c07";

    #[test]
    fn revisions_in_messages() {
        assert_eq!(
            legacy_revisions(&format!(
                "Applied revision: release/1@sha1:{COMMIT}, was sha1:{COMMIT}; sha1:abc"
            )),
            format!("Applied revision: release/1/{COMMIT}, was {COMMIT}; sha1:abc")
        );
    }

    #[test]
    fn an_old_version_keeps_what_it_cannot_express() {
        let kind = KindId::Kustomization.get();
        let (v1, old) =
            (kind.version(kind.group(), "v1").unwrap(), kind.version(kind.group(), "v1alpha1").unwrap());
        let stored = to_storage(
            kind.id,
            v1,
            json!({
                "spec": {
                    "interval": "5m", "prune": true, "wait": true, "serviceAccountName": "deployer",
                    "sourceRef": { "kind": "GitRepository", "name": "web" },
                    "dependsOn": [{ "name": "a", "readyExpr": "true" }, { "name": "b" }],
                },
                "status": {
                    "lastAppliedRevision": format!("main@sha1:{COMMIT}"),
                    "conditions": [{ "type": "Ready", "message": format!("Applied revision: main@sha1:{COMMIT}") }],
                    "inventory": { "entries": [] },
                },
            }),
            None,
        );
        let mut shown = from_storage(kind.id, old, stored.clone());
        assert_eq!(shown["apiVersion"], "kustomize.toolkit.fluxcd.io/v1alpha1");
        assert_eq!(shown["status"]["lastAppliedRevision"], format!("main/{COMMIT}"));
        assert_eq!(shown["status"]["conditions"][0]["message"], format!("Applied revision: main/{COMMIT}"));
        assert_eq!(shown["spec"]["serviceAccount"], json!({ "name": "deployer" }));
        assert_eq!(shown["spec"]["wait"], json!(null));
        assert_eq!(shown["status"].get("inventory"), None);
        // The default that v1alpha1 shows is taken over; all else comes back as it was.
        let mut want = stored.clone();
        want["spec"]["path"] = json!("./");
        assert_eq!(to_storage(kind.id, old, shown.clone(), Some(&stored)), want);

        shown["spec"]["dependsOn"] = json!([{ "name": "b" }, { "name": "a" }]);
        shown["spec"]["serviceAccount"] = json!({ "name": "deployer", "namespace": "other" });
        let merged = to_storage(kind.id, old, shown, Some(&stored));
        assert_eq!(
            merged["spec"]["dependsOn"],
            json!([{ "name": "b" }, { "name": "a", "readyExpr": "true" }])
        );
        let again = to_storage(kind.id, v1, from_storage(kind.id, v1, merged.clone()), Some(&merged));
        assert_eq!(again, merged, "v1 keeps the account's namespace");
    }
}
