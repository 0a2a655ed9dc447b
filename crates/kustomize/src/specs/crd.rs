//! Files of `crds`: OpenAPI definitions of custom resources, whose extensions say which fields hold names and labels.

use std::collections::{BTreeMap, HashSet};

use crate::fieldspec::{FieldSpec, Step};
use crate::value::{Map, Str, Value};

use super::{BackReference, Specs, merge_fields};

/// How deep definitions may use each other.
const MAX_DEPTH: usize = 100;

/// How many properties are looked at, counting one as often as a definition is used.
const MAX_PROPERTIES: usize = 100_000;

/// Reads definitions by type name.
pub(crate) fn read(definitions: &Map) -> Result<Specs, String> {
    let mut types: BTreeMap<&str, &Map> = BTreeMap::new();
    for (name, definition) in definitions.iter() {
        let schema = definition.as_map().and_then(|map| field(map, "Schema"));
        if let Some(properties) = schema.and_then(|schema| schema.as_map()?.get("properties")?.as_map()) {
            types.insert(name, properties);
        }
    }
    let mut specs = Specs::default();
    let mut left = MAX_PROPERTIES;
    for (name, properties) in &types {
        if !["kind", "apiVersion", "metadata"].iter().all(|key| properties.contains_key(key)) {
            continue;
        }
        let kind = name.rsplit('.').next().unwrap_or(name);
        let mut walk =
            Walk { types: &types, kind, specs: Specs::default(), on_the_way: HashSet::new(), left };
        walk.definition(name, &mut Vec::new())?;
        left = walk.left;
        specs.merge(&walk.specs)?;
    }
    Ok(specs)
}

/// A field of a Go struct: its name in any case.
fn field<'m>(map: &'m Map, name: &str) -> Option<&'m Value> {
    map.get(name).or_else(|| map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v))
}

struct Walk<'d> {
    types: &'d BTreeMap<&'d str, &'d Map>,
    kind: &'d str,
    specs: Specs,
    /// Types that contain the present one: a type that contains itself is entered once.
    on_the_way: HashSet<Str>,
    left: usize,
}

impl Walk<'_> {
    fn definition(&mut self, name: &str, path: &mut Vec<Str>) -> Result<(), String> {
        let Some(properties) = self.types.get(name).copied() else { return Ok(()) };
        if !self.on_the_way.insert(name.into()) {
            return Err(format!(
                "type {name} contains itself; name references cannot be followed through it"
            ));
        }
        if path.len() > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} types inside of each other"));
        }
        for (key, property) in properties.iter() {
            let Some(property) = property.as_map() else { continue };
            self.left = self.left.checked_sub(1).ok_or("too many properties")?;
            path.push(key.clone());
            self.property(property, path)?;
            if let Some(Value::String(reference)) = property.get("$ref") {
                self.definition(reference, path)?;
            }
            path.pop();
        }
        self.on_the_way.remove(name);
        Ok(())
    }

    fn property(&mut self, property: &Map, path: &[Str]) -> Result<(), String> {
        let extension = |name: &str| field(property, name).and_then(Value::as_str);
        if extension("x-kubernetes-annotation").is_some() {
            merge_fields(&mut self.specs.annotations, &[spec(self.kind, path, None)])?;
        }
        if extension("x-kubernetes-label-selector").is_some() {
            merge_fields(&mut self.specs.common_labels, &[spec(self.kind, path, None)])?;
        }
        if extension("x-kubernetes-identity").is_some() {
            merge_fields(&mut self.specs.name_prefix, &[spec(self.kind, path, None)])?;
        }
        if let Some(version) = extension("x-kubernetes-object-ref-api-version")
            && let Some(kind) = extension("x-kubernetes-object-ref-kind")
        {
            let name = extension("x-kubernetes-object-ref-name-key").unwrap_or("name");
            let reference = BackReference {
                group: "".into(),
                version: version.into(),
                kind: kind.into(),
                referrers: vec![spec(self.kind, path, Some(name))],
            };
            self.specs.add_reference(&reference)?;
        }
        Ok(())
    }
}

fn spec(kind: &str, path: &[Str], last: Option<&str>) -> FieldSpec {
    let step = |key: &str| Step { key: key.into(), list: false };
    FieldSpec {
        group: "".into(),
        version: "".into(),
        kind: kind.into(),
        path: path.iter().map(|key| step(key)).chain(last.map(step)).collect(),
        create: false,
    }
}
