//! Ownership through both versions of a Kustomization.

use std::collections::BTreeSet;

use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use roadstead_api::{KindId, Version};
use roadstead_hub_store::Stored;
use serde_json::{Value, json};

use super::{Writer, entries, merge, note, put_entries, set_status, settle, unchanged};
use crate::objects::forms::{FieldValidation, Part, create, replace, show};

const GROUP: &str = "kustomize.toolkit.fluxcd.io";

fn version(name: &str) -> &'static Version {
    KindId::Kustomization.get().version(GROUP, name).expect("a version of the kind")
}

fn writer<'a>(manager: &'a str, version: &'static Version, at: i64) -> Writer<'a> {
    Writer { manager, version, part: Part::Main, now: Timestamp::from_second(at).expect("a time") }
}

fn new(spec: &Value) -> Stored {
    let object = json!({ "metadata": { "name": "web" }, "spec": spec });
    let kind = KindId::Kustomization.get();
    let mut warnings = Vec::new();
    let now = Timestamp::UNIX_EPOCH;
    let validation = FieldValidation::Strict;
    let mut stored = create(kind, version("v1"), "default", object, validation, now, &mut warnings)
        .expect("a good object");
    note(None, &mut stored, None, writer("first", version("v1"), 0));
    stored
}

fn base() -> Value {
    json!({ "interval": "5m", "path": "./", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "web" } })
}

/// Fields that only one version has, with values.
const ONLY_V1: [&str; 5] = ["wait", "force", "retryInterval", "namePrefix", "deletionPolicy"];
const ONLY_V1ALPHA1: [&str; 1] = ["validation"];

fn values(field: &str) -> [Value; 2] {
    match field {
        "wait" | "force" | "suspend" => [json!(true), json!(false)],
        "retryInterval" | "timeout" => [json!("1m"), json!("2m")],
        "deletionPolicy" => [json!("Delete"), json!("Orphan")],
        "validation" => [json!("client"), json!("server")],
        _ => [json!("a"), json!("b")],
    }
}

/// A write: through which version, by whom, whether as an apply, and which fields it sets to which of their values.
#[derive(Debug, Clone)]
struct Write {
    modern: bool,
    apply: bool,
    manager: u8,
    fields: Vec<(String, usize)>,
}

fn write() -> impl Strategy<Value = Write> {
    (any::<bool>(), any::<bool>(), 0..3_u8).prop_flat_map(|(modern, apply, manager)| {
        // None that is required: whoever took one by force and leaves it out would make the object invalid.
        let shared = ["timeout", "suspend", "targetNamespace"];
        let own: &[&str] = if modern { &ONLY_V1 } else { &ONLY_V1ALPHA1 };
        let names: Vec<String> = shared.iter().chain(own).map(|name| (*name).to_owned()).collect();
        btree_map(proptest::sample::select(names), 0..2_usize, 1..4).prop_map(move |fields| Write {
            modern,
            apply,
            manager,
            fields: fields.into_iter().collect(),
        })
    })
}

fn take(before: &Stored, write: &Write, at: i64) -> Stored {
    let version = version(if write.modern { "v1" } else { "v1alpha1" });
    // Who applies has one entry for all versions, so that each of these keeps to one.
    let manager = format!("{}{}", if write.modern { "modern" } else { "old" }, write.manager);
    let writer = writer(&manager, version, at);
    let spec = write.fields.iter().map(|(name, value)| (name.clone(), values(name)[*value].clone()));
    let mut warnings = Vec::new();
    if write.apply {
        let config = json!({ "apiVersion": version.api_version(), "kind": "Kustomization",
            "metadata": { "name": "web" }, "spec": Value::Object(spec.collect()) });
        let (object, entries) = merge(Some(before), before.kind.get(), &config, true, writer)
            .expect("nothing stands against force");
        let mut after = replace(before, version, Part::Main, object, FieldValidation::Strict, &mut warnings)
            .expect("a good object");
        put_entries(&mut after.object, entries);
        settle(before, &mut after);
        return after;
    }
    let mut object = show(before, version);
    for (name, value) in spec {
        object["spec"][name] = value;
    }
    let requested = entries(&object).cloned();
    let mut after = replace(before, version, Part::Main, object, FieldValidation::Strict, &mut warnings)
        .expect("a good object");
    note(Some(before), &mut after, requested, writer);
    after
}

/// Who owns a field of the spec, as some version names it.
fn owners(stored: &Stored, version: &str, field: &str) -> BTreeSet<String> {
    let all = entries(&stored.object).and_then(Value::as_array).into_iter().flatten();
    all.filter(|entry| entry["apiVersion"] == format!("{GROUP}/{version}"))
        .filter(|entry| entry["fieldsV1"]["f:spec"].get(format!("f:{field}")).is_some())
        .map(|entry| format!("{} {}", entry["manager"], entry["operation"]))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A write through one version keeps what only the other can express, with whoever owns it.
    #[test]
    fn versions_keep_what_they_cannot_express(writes in vec(write(), 1..10)) {
        let mut stored = new(&base());
        for (at, write) in writes.iter().enumerate() {
            let after = take(&stored, write, at as i64 + 1);
            let (other, hidden): (_, &[&str]) =
                if write.modern { ("v1alpha1", &ONLY_V1ALPHA1) } else { ("v1", &ONLY_V1) };
            for field in hidden {
                prop_assert_eq!(&after.object["spec"][field], &stored.object["spec"][field], "{} by {:?}", field, write);
                prop_assert_eq!(owners(&after, other, field), owners(&stored, other, field), "{} by {:?}", field, write);
            }
            for (field, value) in &write.fields {
                let version = version(if write.modern { "v1" } else { "v1alpha1" });
                prop_assert_eq!(&show(&after, version)["spec"][field], &values(field)[*value]);
                // What changed or was applied is its writer's now.
                let mine = owners(&after, version.name, field);
                let changed = show(&stored, version)["spec"][field] != values(field)[*value];
                prop_assert!(!(changed || write.apply) || !mine.is_empty(), "{} by {:?}: {:#}", field, write, after.object);
            }
            // The same again is nothing new.
            let again = take(&after, write, 1_000_000);
            prop_assert!(unchanged(&after, &again), "{:?}:\n{:#}\n{:#}", write, after.object, again.object);
            stored = after;
        }
    }
}

#[test]
fn the_hub_owns_the_status_that_it_writes() {
    let mut stored = new(&base());
    let before = stored.object.to_string().len();
    let now = Timestamp::from_second(60).expect("a time");
    for revision in ["main@sha1:1", "main@sha1:2"] {
        let status = json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": "Succeeded",
            "message": revision, "lastTransitionTime": "2020-09-17T19:28:48Z" }], "lastAppliedRevision": revision });
        set_status(&mut stored, &status, now).expect("a status");
    }
    let all = entries(&stored.object).and_then(Value::as_array).expect("managers").clone();
    assert_eq!(all.len(), 2, "{all:#?}");
    let hub = all.iter().find(|entry| entry["manager"] == "roadstead-hub").expect("the hub's entry");
    assert_eq!((&hub["subresource"], &hub["operation"]), (&json!("status"), &json!("Update")));
    let of_status = &hub["fieldsV1"]["f:status"];
    assert_eq!(of_status["f:lastAppliedRevision"], json!({}), "{hub:#}");
    assert!(of_status["f:conditions"]["k:{\"type\":\"Ready\"}"]["f:message"].is_object(), "{hub:#}");
    assert!(hub["fieldsV1"].get("f:metadata").is_none(), "{hub:#}");
    println!(
        "an object of {before} bytes has {} bytes with the hub's status",
        stored.object.to_string().len()
    );
}
