//! The `openapi` field: a schema as Kubernetes publishes it, of which the merge keys and the scopes are read.

use std::collections::HashMap;

use crate::value::{Map, Value};

/// References to references that are followed.
const MAX_REFERENCES: usize = 32;

/// A schema from a file.
#[derive(Debug, Default)]
pub(crate) struct OpenApi {
    definitions: Map,
    /// Names of definitions by version and kind.
    objects: HashMap<(String, String), String>,
    /// Has a kind a namespace?
    namespaced: HashMap<(String, String), bool>,
}

impl OpenApi {
    /// Takes the parts of a schema that are used.
    pub(crate) fn new(mut schema: Map) -> Self {
        let mut out = Self::default();
        if let Some(Value::Map(definitions)) = schema.remove("definitions") {
            out.definitions = definitions;
        }
        for (name, definition) in out.definitions.iter() {
            let kinds = definition.as_map().and_then(|map| map.get("x-kubernetes-group-version-kind"));
            let Some(Value::List(kinds)) = kinds else { continue };
            for id in kinds.iter().filter_map(kind_of) {
                out.objects.insert(id, name.to_string());
            }
        }
        let Some(Value::Map(paths)) = schema.remove("paths") else { return out };
        for (path, operations) in paths.iter() {
            let kind = operations.at(&["get", "x-kubernetes-group-version-kind"]);
            let Some(id) = kind.and_then(kind_of) else { continue };
            let namespaced = out.namespaced.entry(id).or_insert(false);
            *namespaced |= path.contains("namespaces/{namespace}");
        }
        out
    }

    pub(super) fn of_object(&self, api_version: &str, kind: &str) -> Option<&Map> {
        let name = self.objects.get(&(api_version.to_owned(), kind.to_owned()))?;
        self.definitions.get(name)?.as_map()
    }

    pub(super) fn is_cluster_scoped(&self, api_version: &str, kind: &str) -> bool {
        self.namespaced.get(&(api_version.to_owned(), kind.to_owned())) == Some(&false)
    }

    /// The merge keys of a field, if it is a list that merges, and the definition of it or of its elements.
    pub(super) fn field<'s>(&'s self, of: &'s Map, name: &str) -> (Option<Vec<&'s str>>, Definition<'s>) {
        let property = of.get("properties").and_then(|properties| properties.as_map()?.get(name));
        let property = property.or_else(|| of.get("additionalProperties"));
        let property = property.and_then(Value::as_map);
        property.map_or((None, Definition::Unknown), |property| self.of_schema(property))
    }

    /// The same for a field of this schema.
    pub(super) fn of_schema<'s>(&'s self, property: &'s Map) -> (Option<Vec<&'s str>>, Definition<'s>) {
        let schema = match self.resolve(property) {
            Definition::Own(schema) => schema,
            other => return (None, other),
        };
        let is_list = match schema.get("type") {
            Some(Value::String(text)) => &**text == "array",
            Some(Value::List(types)) => matches!(types.as_slice(), [one] if one.as_str() == Some("array")),
            _ => false,
        };
        let keys = merge_keys(schema);
        if keys.is_none() && !is_list {
            return (None, Definition::Own(schema));
        }
        let items = schema.get("items").and_then(Value::as_map).filter(|_| is_list);
        (keys, items.map_or(Definition::Unknown, |items| self.resolve(items)))
    }

    /// Follows `$ref`.
    fn resolve<'s>(&'s self, schema: &'s Map) -> Definition<'s> {
        let mut schema = schema;
        for _ in 0..MAX_REFERENCES {
            let Some(Value::String(reference)) = schema.get("$ref") else { return Definition::Own(schema) };
            let Some(name) = reference.strip_prefix("#/definitions/") else { return Definition::Unknown };
            match self.definitions.get(&name.replace("~1", "/").replace("~0", "~")) {
                Some(Value::Map(next)) => schema = next,
                Some(_) => return Definition::Unknown,
                None => return Definition::Elsewhere(name),
            }
        }
        Definition::Unknown
    }
}

/// What a schema leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Definition<'s> {
    /// A definition of the file.
    Own(&'s Map),
    /// The name of a definition that the file does not have; the builtin schema may.
    Elsewhere(&'s str),
    Unknown,
}

fn kind_of(value: &Value) -> Option<(String, String)> {
    let map = value.as_map()?;
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = (text("group"), text("version"));
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some((api_version, text("kind").to_owned()))
}

fn merge_keys(schema: &Map) -> Option<Vec<&str>> {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    if !text("x-kubernetes-patch-strategy")?.split(',').any(|word| word == "merge") {
        return None;
    }
    if let Some(Value::List(keys)) = schema.get("x-kubernetes-list-map-keys") {
        return Some(keys.iter().filter_map(Value::as_str).collect());
    }
    Some(text("x-kubernetes-patch-merge-key").into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keys_are_found_behind_references() {
        let json = serde_json::json!({"definitions": {
            "x.Foo": {
                "x-kubernetes-group-version-kind": [{"group": "x", "version": "v1", "kind": "Foo"}],
                "properties": {"spec": {"$ref": "#/definitions/x.Spec"}},
            },
            "x.Spec": {"properties": {"items": {
                "type": "array",
                "items": {"$ref": "#/definitions/x.Item"},
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "id",
            }}},
            "x.Item": {"properties": {"id": {"type": "string"}}},
        }});
        let Value::Map(map) = Value::from_json(&json) else { panic!("no mapping") };
        let schema = OpenApi::new(map);
        let (_, spec) = schema.field(schema.of_object("x/v1", "Foo").unwrap(), "spec");
        let Definition::Own(spec) = spec else { panic!("{spec:?}") };
        let (keys, item) = schema.field(spec, "items");
        assert_eq!(keys, Some(vec!["id"]));
        assert!(matches!(item, Definition::Own(_)));
    }
}
