//! OpenAPI v3 schemas, made from the Rust types.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::kind::{Kind, KindId, Version};
use crate::object::{ObjectMeta, Time};
use crate::registry::KINDS;

/// The structural schema of a version of a kind: everything inlined, descriptions from the types' documentation.
#[must_use]
pub fn schema(kind: &Kind, version: &Version) -> &'static Value {
    static SCHEMAS: OnceLock<BTreeMap<(KindId, &'static str, &'static str), Value>> = OnceLock::new();
    static NOTHING: Value = Value::Null;
    let schemas = SCHEMAS.get_or_init(|| {
        let versions =
            KINDS.iter().flat_map(|kind| kind.versions.iter().map(move |version| (*kind, version)));
        versions
            .map(|(kind, version)| ((kind.id, version.group, version.name), build(kind, version)))
            .collect()
    });
    schemas.get(&(kind.id, version.group, version.name)).unwrap_or(&NOTHING)
}

/// The same schema for tools that check files before they reach a hub: what it does not name is refused, and `metadata` is left to
/// Kubernetes' own.
#[must_use]
pub fn strict(kind: &Kind, version: &Version) -> Value {
    let mut strict = schema(kind, version).clone();
    strict["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    close(&mut strict);
    strict["properties"]["apiVersion"] = json!({ "const": version.api_version() });
    strict["properties"]["kind"] = json!({ "const": kind.kind });
    strict["properties"]["metadata"] = json!({ "type": "object" });
    strict
}

/// Refuses what a schema's mappings do not name, where they name anything.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(close);
            let open = ["additionalProperties", "x-kubernetes-preserve-unknown-fields"];
            let names = map
                .get("properties")
                .is_some_and(|found| found.as_object().is_some_and(|all| !all.is_empty()));
            if names
                && map.get("type") == Some(&json!("object"))
                && open.iter().all(|key| !map.contains_key(*key))
            {
                map.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// The schema of `metadata`.
#[must_use]
pub fn metadata_schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(generate::<ObjectMeta>)
}

fn build(kind: &Kind, version: &Version) -> Value {
    let mut schema = (version.schema)();
    for path in version.hidden {
        remove(&mut schema, path);
    }
    for path in version.required {
        let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
        if let Some(parent) = at(&mut schema, parent) {
            require(parent, field);
        }
    }
    for (path, keys) in LIST_MAPS {
        if let Some(list) = at(&mut schema, path).and_then(Value::as_object_mut) {
            list.insert("x-kubernetes-list-type".to_owned(), json!("map"));
            list.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
        }
    }
    for path in SETS {
        mark(&mut schema, path, "x-kubernetes-list-type", "set");
    }
    for path in ATOMIC_LISTS {
        mark(&mut schema, path, "x-kubernetes-list-type", "atomic");
    }
    for path in ATOMIC_MAPS {
        mark(&mut schema, path, "x-kubernetes-map-type", "atomic");
    }
    if kind.id == KindId::ServiceAccount
        && let Some(list) = at(&mut schema, "secrets").and_then(Value::as_object_mut)
    {
        list.insert("x-kubernetes-list-type".to_owned(), json!("map"));
        list.insert("x-kubernetes-list-map-keys".to_owned(), json!(["name"]));
    }
    // A Cluster needs no spec, and an ExternalArtifact neither: that it is there is all that most have to say.
    if matches!(kind.id, KindId::Cluster | KindId::ExternalArtifact)
        && let Some(object) = schema.as_object_mut()
    {
        object.remove("required");
    }
    schema
}

/// Lists whose items are told apart by these fields.
const LIST_MAPS: [(&str, &[&str]); 2] =
    [("status.conditions", &["type"]), ("metadata.ownerReferences", &["uid"])];

/// Lists without order whose items stand once.
const SETS: [&str; 1] = ["metadata.finalizers"];

/// Lists that are merged as one whole, where Kubernetes says so; the others are too, without a word.
const ATOMIC_LISTS: [&str; 5] = [
    "metadata.managedFields",
    "rules",
    "subjects",
    "imagePullSecrets",
    "aggregationRule.clusterRoleSelectors",
];

/// Mappings that are merged as one whole.
const ATOMIC_MAPS: [&str; 5] =
    ["metadata.ownerReferences[]", "roleRef", "involvedObject", "related", "secrets[]"];

fn mark(schema: &mut Value, path: &str, key: &str, value: &str) {
    let wanted = if key == "x-kubernetes-map-type" { "object" } else { "array" };
    if let Some(inner) = at(schema, path).and_then(Value::as_object_mut)
        && inner.get("type").and_then(Value::as_str) == Some(wanted)
    {
        inner.insert(key.to_owned(), json!(value));
    }
}

fn require(schema: &mut Value, field: &str) {
    let Some(schema) = schema.as_object_mut() else { return };
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Some(list) = required.as_array_mut()
        && !list.iter().any(|present| present == field)
    {
        list.push(field.into());
    }
}

/// The subschema at `a.b[].c`; the empty path is the schema itself.
fn at<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut here = schema;
    for segment in path.split('.').filter(|segment| !segment.is_empty()) {
        let (name, list) = segment.strip_suffix("[]").map_or((segment, false), |name| (name, true));
        here = here.get_mut("properties")?.get_mut(name)?;
        if list {
            here = here.get_mut("items")?;
        }
    }
    Some(here)
}

fn remove(schema: &mut Value, path: &str) {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let Some(parent) = at(schema, parent).and_then(Value::as_object_mut) else { return };
    if let Some(properties) = parent.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(field);
    }
    if let Some(required) = parent.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|present| present != field);
    }
}

/// The schema of a type.
pub(crate) fn generate<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Brings a schema into the form that Kubernetes' clients know: structural, no titles, no alternatives.
fn tidy(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        // `true`: anything.
        if schema.as_bool() == Some(true) {
            *schema = json!({ "x-kubernetes-preserve-unknown-fields": true });
        }
        return;
    };
    for key in ["$schema", "title", "default", "nullable", "components", "definitions"] {
        object.remove(key);
    }
    unwrap_optional(object);
    flatten_enum(object);
    if object.get("type").and_then(Value::as_str) == Some("object")
        && !object.contains_key("properties")
        && !object.contains_key("additionalProperties")
    {
        object.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    if object.get("additionalProperties") == Some(&Value::Bool(true)) {
        object.remove("additionalProperties");
        object.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(tidy);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            tidy(inner);
        }
    }
    if let Some(description) = object.get_mut("description")
        && let Some(text) = description.as_str()
    {
        *description = text.split_whitespace().collect::<Vec<_>>().join(" ").into();
    }
}

/// `anyOf` [the type, null] -> the type; the field's own description stays.
fn unwrap_optional(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.remove("anyOf") else { return };
    let inner = choices.into_iter().find(|choice| choice.get("enum") != Some(&json!([null])));
    for (key, value) in inner.and_then(|inner| inner.as_object().cloned()).into_iter().flatten() {
        object.entry(key).or_insert(value);
    }
}

/// `oneOf` constants -> `enum`.
fn flatten_enum(object: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = object.get("oneOf") else { return };
    let values: Vec<Value> = choices
        .iter()
        .flat_map(|choice| match (choice.get("const"), choice.get("enum")) {
            (Some(value), _) => vec![value.clone()],
            (None, Some(Value::Array(values))) => values.clone(),
            _ => Vec::new(),
        })
        .collect();
    object.remove("oneOf");
    object.insert("type".to_owned(), "string".into());
    object.insert("enum".to_owned(), values.into());
}

/// The text of a time, for tables and messages.
#[must_use]
pub fn parse_time(text: &str) -> Option<Time> {
    text.parse().ok().map(Time)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::schema;
    use crate::{KINDS, KindId};

    /// Walks a schema; nothing in it may be of a form that Kubernetes' clients do not read.
    fn is_structural(schema: &Value, path: &str) {
        let object = schema.as_object().unwrap_or_else(|| panic!("{path}: {schema}"));
        for key in ["$ref", "oneOf", "anyOf", "allOf", "not", "nullable", "default"] {
            assert!(!object.contains_key(key), "{path} has {key}: {schema}");
        }
        assert!(
            object.contains_key("type") || object.contains_key("x-kubernetes-preserve-unknown-fields"),
            "{path} has no type: {schema}"
        );
        for (name, inner) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            assert!(inner.get("description").is_some(), "{path}.{name} has no description: {inner}");
            is_structural(inner, &format!("{path}.{name}"));
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = object.get(key) {
                is_structural(inner, &format!("{path}[]"));
            }
        }
    }

    #[test]
    fn strict_schemas_refuse_what_they_do_not_name() {
        let kind = KindId::Kustomization.get();
        for version in kind.versions {
            let schema = super::strict(kind, version);
            let spec = &schema["properties"]["spec"];
            assert_eq!(spec["additionalProperties"], false);
            assert_eq!(spec["properties"]["sourceRef"]["additionalProperties"], false);
            // Any name may be a variable's, or a label's.
            let post_build = &spec["properties"]["postBuild"]["properties"]["substitute"];
            assert_ne!(post_build["additionalProperties"], false, "{post_build}");
            assert_eq!(schema["properties"]["apiVersion"]["const"], version.api_version());
            assert_eq!(schema["properties"]["metadata"], json!({ "type": "object" }));
        }
    }

    #[test]
    fn schemas_are_structural() {
        for kind in KINDS {
            for version in kind.versions {
                is_structural(schema(kind, version), kind.kind);
            }
        }
    }

    #[test]
    fn what_sources_share_is_in_each_of_them() {
        for kind in [KindId::Bucket, KindId::OciRepository, KindId::HelmRepository, KindId::HelmChart] {
            let status = &schema(kind.get(), kind.get().storage_version())["properties"]["status"];
            let fields = &status["properties"];
            assert_eq!(fields["conditions"]["x-kubernetes-list-type"], "map", "{kind}: {status}");
            assert!(fields.get("artifact").is_some() && status.get("required").is_none(), "{kind}: {status}");
        }
    }

    #[test]
    fn versions_differ_as_their_specifications_do() {
        let kind = KindId::Kustomization.get();
        let fields = |version: &str| {
            schema(kind, kind.version(kind.group(), version).unwrap())["properties"]["spec"].clone()
        };
        let (old, new) = (fields("v1alpha1"), fields("v1"));
        assert!(old["properties"].get("serviceAccount").is_some() && old["properties"].get("wait").is_none());
        assert!(new["properties"].get("serviceAccount").is_none() && new["properties"].get("wait").is_some());
        assert_eq!(old["required"], serde_json::json!(["interval", "sourceRef", "path"]));
        assert_eq!(new["required"], serde_json::json!(["interval", "sourceRef", "prune"]));
        assert_eq!(new["properties"]["sourceRef"]["properties"]["kind"]["enum"][1], "Bucket");
    }
}
