//! What differs between two builds, object by object and field by field. Pure; it runs in a worker process.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_model::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Objects that are listed.
pub(super) const MAX_OBJECTS: usize = 1_000;
/// Fields that are listed, of all objects together.
const MAX_FIELDS: usize = 5_000;
/// Bytes of what is listed: names, paths and values. As JSON it may be some times as much.
const MAX_BYTES: usize = 2 << 20;
/// Bytes of a value, as JSON, that is shown.
const MAX_VALUE_BYTES: usize = 2 << 10;

/// What differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Difference {
    /// The objects that differ, sorted.
    pub(super) objects: Vec<ChangedObject>,
    /// Objects, and fields, that are not listed since there are too many.
    pub(super) objects_left_out: usize,
    pub(super) fields_left_out: usize,
    /// Objects that are the same in both.
    pub(super) unchanged: usize,
}

/// An object that only one build has, or that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedObject {
    pub(super) id: ObjectId,
    pub(super) change: Change,
    pub(super) fields: Vec<ChangedField>,
}

/// What names an object in a build.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ObjectId {
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Change {
    Added,
    Removed,
    Changed,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedField {
    /// `.spec.containers[name=web].image`
    pub(super) path: String,
    /// None where the older build does not have it.
    pub(super) from: Option<Shown>,
    /// None where the newer build does not have it.
    pub(super) to: Option<Shown>,
}

/// A value as it may leave the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Shown {
    Value(Value),
    /// The beginning of a value that is too long, as JSON.
    Beginning(String),
    /// The digest of a value that is secret.
    Secret(Digest),
}

impl Shown {
    fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.to_string().len(),
            Self::Beginning(text) => text.len(),
            Self::Secret(_) => size_of::<Digest>(),
        }
    }
}

/// What differs from `older` to `newer`. `all_secret`: any value may be one that a Secret said.
pub(super) fn compare(older: Vec<Value>, newer: Vec<Value>, all_secret: bool) -> Difference {
    let (mut older, mut newer) = (by_id(older), by_id(newer));
    let ids: BTreeSet<ObjectId> = older.keys().chain(newer.keys()).cloned().collect();
    let mut found = Difference::default();
    let mut room = Room { fields: MAX_FIELDS, bytes: MAX_BYTES };
    for id in ids {
        let (from, to) = (older.remove(&id), newer.remove(&id));
        if from == to {
            found.unchanged += 1;
            continue;
        }
        let ObjectId { kind, group, namespace, name } = &id;
        let named = kind.len() + group.len() + namespace.len() + name.len();
        if found.objects.len() == MAX_OBJECTS || !room.takes(named) {
            found.objects_left_out += 1;
            continue;
        }
        let change = match (&from, &to) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        };
        let is_secret = id.group.is_empty() && id.kind == "Secret";
        let mut fields = Fields { all_secret, is_secret, found: Vec::new(), left_out: 0, room };
        // What the object is called stands above its fields.
        let none = from.as_ref().or(to.as_ref()).map_or(Value::Null, what_it_is);
        fields.differ("", from.as_ref().unwrap_or(&none), to.as_ref().unwrap_or(&none));
        room = fields.room;
        found.fields_left_out += fields.left_out;
        found.objects.push(ChangedObject { id, change, fields: fields.found });
    }
    found
}

/// An object of that kind that says nothing.
fn what_it_is(object: &Value) -> Value {
    let said =
        ["apiVersion", "kind"].into_iter().filter_map(|key| Some((key.to_owned(), object.get(key)?.clone())));
    Value::Object(said.collect())
}

fn by_id(objects: Vec<Value>) -> BTreeMap<ObjectId, Value> {
    let id = |object: &Value| {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = text("/apiVersion");
        ObjectId {
            kind: text("/kind"),
            group: version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    };
    objects.into_iter().map(|object| (id(&object), object)).collect()
}

/// Collects the fields in which one object differs.
struct Fields {
    all_secret: bool,
    is_secret: bool,
    found: Vec<ChangedField>,
    left_out: usize,
    room: Room,
}

/// What may still be listed.
struct Room {
    fields: usize,
    bytes: usize,
}

impl Room {
    fn takes(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

impl Fields {
    fn differ(&mut self, path: &str, from: &Value, to: &Value) {
        if from == to {
            return;
        }
        match (from, to) {
            (Value::Object(from), Value::Object(to)) => {
                let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
                for key in keys {
                    self.either(&field(path, key), from.get(key), to.get(key));
                }
            }
            (Value::Array(from), Value::Array(to)) => match (by_name(from), by_name(to)) {
                (Some(from), Some(to)) => {
                    let names: BTreeSet<&str> = from.keys().chain(to.keys()).copied().collect();
                    for name in names {
                        let path = format!("{path}[name={name}]");
                        self.either(&path, from.get(name).copied(), to.get(name).copied());
                    }
                }
                _ => {
                    for index in 0..from.len().max(to.len()) {
                        self.either(&format!("{path}[{index}]"), from.get(index), to.get(index));
                    }
                }
            },
            _ => self.note(path, Some(from), Some(to)),
        }
    }

    fn either(&mut self, path: &str, from: Option<&Value>, to: Option<&Value>) {
        let empty = |value: &Value| {
            if value.is_array() { Value::Array(Vec::new()) } else { Value::Object(Map::new()) }
        };
        // Of what is new as a whole there is one line, unless a part of it may be to be hidden.
        let may_hide = self.is_secret || self.all_secret;
        let parts =
            |value: &Value| may_hide && *value != empty(value) && (value.is_object() || value.is_array());
        match (from, to) {
            (Some(from), Some(to)) => self.differ(path, from, to),
            (Some(from), None) if parts(from) => self.differ(path, from, &empty(from)),
            (None, Some(to)) if parts(to) => self.differ(path, &empty(to), to),
            (from, to) => self.note(path, from, to),
        }
    }

    /// Whether values at a path, or in it, are secret.
    fn hides(&self, path: &str) -> bool {
        let is_value = |field: &str| {
            path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        // What was applied by kubectl stands in an annotation as a whole.
        self.all_secret
            || self.is_secret && [".data", ".stringData", ".metadata.annotations"].into_iter().any(is_value)
    }

    fn note(&mut self, path: &str, from: Option<&Value>, to: Option<&Value>) {
        if from == to {
            return;
        }
        let hides = self.hides(path);
        let shown = |value: &Value| {
            let text = value.to_string();
            if hides {
                return Shown::Secret(Digest::of(text.as_bytes()));
            }
            if text.len() <= MAX_VALUE_BYTES {
                return Shown::Value(value.clone());
            }
            let end = (0..=MAX_VALUE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            Shown::Beginning(text[..end].to_owned())
        };
        let (from, to) = (from.map(shown), to.map(shown));
        let bytes = path.len() + [&from, &to].into_iter().flatten().map(Shown::bytes).sum::<usize>();
        if self.room.fields == 0 || !self.room.takes(bytes) {
            self.left_out += 1;
            return;
        }
        self.room.fields -= 1;
        self.found.push(ChangedField { path: path.to_owned(), from, to });
    }
}

fn field(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'));
    if plain { format!("{path}.{key}") } else { format!("{path}[{}]", Value::from(key)) }
}

/// A list whose items all have a name of their own, by that.
fn by_name(list: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let named: Option<BTreeMap<&str, &Value>> =
        list.iter().map(|item| Some((item.get("name")?.as_str()?, item))).collect();
    named.filter(|named| named.len() == list.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn lines(older: Value, newer: Value, all_secret: bool) -> Vec<String> {
        let list = |value: Value| value.as_array().cloned().unwrap_or_default();
        let shown = |value: &Option<Shown>| match value {
            None => "-".to_owned(),
            Some(Shown::Value(value)) => value.to_string(),
            Some(Shown::Beginning(text)) => format!("{} bytes of it", text.len()),
            Some(Shown::Secret(_)) => "secret".to_owned(),
        };
        let found = compare(list(older), list(newer), all_secret);
        let mut lines = Vec::new();
        for ChangedObject { id, change, fields } in found.objects {
            lines.push(format!("{:?} {}/{}/{}", change, id.kind, id.namespace, id.name));
            lines.extend(
                fields
                    .iter()
                    .map(|field| format!("  {}: {} -> {}", field.path, shown(&field.from), shown(&field.to))),
            );
        }
        lines
    }

    fn deployment(image: &str, replicas: i32) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": "web", "name": "web" },
            "spec": { "replicas": replicas, "args": ["a", "b"], "containers": [
                { "name": "side", "image": "side:1" }, { "name": "web", "image": image } ] },
        })
    }

    #[test]
    fn fields_are_named_as_people_name_them() {
        let mut newer = deployment("web:2", 3);
        newer["spec"]["args"] = json!(["a", "c", "d"]);
        newer["spec"]["containers"].as_array_mut().expect("a list").swap(0, 1);
        newer["metadata"]["annotations"] = json!({ "example.com/a": "b" });
        insta::assert_snapshot!(lines(json!([deployment("web:1", 2)]), json!([newer]), false).join("\n"), @r#"
        Changed Deployment/web/web
          .metadata.annotations: - -> {"example.com/a":"b"}
          .spec.args[1]: "b" -> "c"
          .spec.args[2]: - -> "d"
          .spec.containers[name=web].image: "web:1" -> "web:2"
          .spec.replicas: 2 -> 3
        "#);
    }

    #[test]
    fn objects_that_come_and_go_are_told_and_secrets_are_not() {
        let secret = |data: Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": data });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "a": "x".repeat(5_000) } });
        let older = json!([secret(json!({ "same": "YQ==", "other": "YQ==" })), map]);
        let newer = json!([
            secret(json!({ "same": "YQ==", "other": "Yg==", "new.key": "YQ==" })),
            { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "t", "labels": { "a": "b" } }, "stringData": { "k": "plain" } },
        ]);
        insta::assert_snapshot!(lines(older, newer, false).join("\n"), @r#"
        Removed ConfigMap//m
          .data: 2048 bytes of it -> -
          .metadata: {"name":"m"} -> -
        Changed Secret//s
          .data["new.key"]: - -> secret
          .data.other: secret -> secret
        Added Secret//t
          .metadata.labels.a: - -> "b"
          .metadata.name: - -> "t"
          .stringData.k: - -> secret
        "#);
    }

    #[test]
    fn what_secrets_were_part_of_is_secret_as_a_whole() {
        let found = lines(json!([deployment("web:1", 2)]), json!([deployment("web:2", 2)]), true);
        assert_eq!(found[1], "  .spec.containers[name=web].image: secret -> secret");
    }

    #[test]
    fn a_list_is_bounded() {
        let many = |word: &str| -> Vec<Value> {
            let fields: Map<String, Value> = (0..10).map(|n| (format!("k{n}"), word.into())).collect();
            let map = |n| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("m{n}") }, "data": fields });
            (0..1_200).map(map).collect()
        };
        let found = compare(many("a"), many("b"), false);
        assert_eq!((found.objects.len(), found.objects_left_out), (MAX_OBJECTS, 200));
        assert_eq!(found.fields_left_out, 5_000);
        let long = |word: &str| -> Vec<Value> {
            let fields: Map<String, Value> =
                (0..3).map(|n| (format!("{n}{}", "k".repeat(1 << 20)), word.into())).collect();
            vec![
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": fields }),
            ]
        };
        let found = compare(long("a"), long("b"), false);
        assert_eq!((found.objects[0].fields.len(), found.fields_left_out), (1, 2));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]|name|data", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn objects_that_differ_have_a_field_that_does(one in value(), other in value()) {
            let object = |value: &Value| json!({ "apiVersion": "v1", "kind": "K", "metadata": { "name": "n" }, "spec": value });
            let found = compare(vec![object(&one)], vec![object(&other)], false);
            prop_assert_eq!(found.objects.is_empty(), one == other);
            prop_assert!(found.objects.iter().all(|object| !object.fields.is_empty()));
        }

        #[test]
        fn no_secret_value_leaves_the_worker(one in value(), other in value()) {
            let object = |value: &Value| {
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "n" }, "data": { "k": value, "canary": "canary" } })
            };
            let mut gone = object(&other);
            gone["data"].as_object_mut().expect("a map").remove("canary");
            for (older, newer) in [(vec![object(&one)], vec![gone]), (Vec::new(), vec![object(&one)])] {
                let told = serde_json::to_string(&compare(older, newer, false)).expect("it has a JSON form");
                prop_assert!(!told.contains("\"canary\""), "{}", told);
            }
        }
    }
}
