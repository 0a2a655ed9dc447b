//! `buildMetadata`: annotations that tell where an object comes from and what changed it.
//!
//! kustomize keeps them in the objects all through the build, where patches can see and change them, and takes out at
//! the end what was not asked for. So does this.

use crate::budget::Budget;
use crate::limits::Limits;
use crate::resource::{Resource, metadata};
use crate::resources::Resources;
use crate::transform::leave_groups;
use crate::value::{Map, Str, Value};
use crate::yaml::{Dialect, read_documents, write_map};

/// Where an object comes from.
pub(crate) const ORIGIN: &str = "config.kubernetes.io/origin";
/// What changed it.
const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The version whose behaviour this is.
const MANAGER: &str = "kustomize-v5.8.1";

/// `buildMetadata` of the root kustomization.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BuildMetadata {
    /// Is anything asked for? Then kustomize takes notes of everything.
    pub(crate) notes: bool,
    pub(crate) origins: bool,
    pub(crate) transformations: bool,
    pub(crate) managed_by: bool,
}

impl BuildMetadata {
    /// Asks for what the words name.
    pub(crate) fn add(&mut self, words: &[String]) {
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        self.notes |= !words.is_empty();
        self.origins |= has("originAnnotations");
        self.transformations |= has("transformerAnnotations");
        self.managed_by |= has("managedByLabel");
    }

    /// Sets the label that was asked for, and takes out the notes that were not.
    pub(crate) fn finish(self, objects: &mut Resources) -> Result<(), String> {
        for resource in objects.iter_mut() {
            if self.managed_by {
                let labels = resource.value().get("metadata").and_then(|meta| meta.at(&["labels"]));
                if let Some(other) = labels.filter(|labels| !matches!(labels, Value::Map(_) | Value::Null(_)))
                {
                    return Err(format!("{}: metadata.labels is {}", resource.id(), other.type_name()));
                }
                resource.edit(|object| {
                    metadata(object).get_or_insert_map("labels").insert(MANAGED_BY, Value::string(MANAGER))
                });
            }
            for (key, keep) in [(ORIGIN, self.origins), (TRANSFORMATIONS, self.transformations)] {
                if !keep {
                    remove(resource, key);
                }
            }
        }
        Ok(())
    }
}

fn remove(resource: &mut Resource, key: &str) {
    if resource.texts("annotations").is_none_or(|annotations| !annotations.contains_key(key)) {
        return;
    }
    resource.edit(|object| {
        let meta = metadata(object);
        let annotations = meta.get_or_insert_map("annotations");
        annotations.remove(key);
        if annotations.is_empty() {
            meta.remove("annotations");
        }
    });
}

/// The directory that is built, as the paths on the way to it are written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    path: String,
}

impl Origin {
    /// A path below this directory.
    pub(crate) fn join(&self, path: &str) -> Self {
        Self { path: clean(&self.path, path) }
    }

    /// The note for objects of a file here.
    pub(crate) fn of_file(&self, path: &str) -> Str {
        entry("", &[("path", &clean(&self.path, path))]).into()
    }

    /// The note for what a builtin generator or transformer made or changed.
    pub(crate) fn of_builtin(&self, file: &str, kind: &str) -> Str {
        configured(&clean(&self.path, file), "builtin", kind, "", "")
    }
}

/// The note for what a generator or transformer made or changed that is configured by an object.
pub(crate) fn configured(file: &str, api_version: &str, kind: &str, name: &str, namespace: &str) -> Str {
    let mut out = entry("", &[("configuredIn", file)]);
    out.push_str("configuredBy:\n");
    out.push_str(&entry(
        "  ",
        &[("apiVersion", api_version), ("kind", kind), ("name", name), ("namespace", namespace)],
    ));
    out.into()
}

/// Lines of a mapping in this order; empty texts are left out.
fn entry(indent: &str, fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (key, text) in fields.iter().filter(|(_, text)| !text.is_empty()) {
        let pair = [(Str::from(*key), Value::string(*text))];
        out.push_str(indent);
        write_map(&mut out, &pair.into_iter().collect());
    }
    out
}

/// Joins two paths and takes `.` and `..` out, as Go's `filepath.Join` does; an absolute second path stays below.
fn clean(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Notes the origin of objects that were read from a file, whatever note they had.
pub(crate) fn note_file(note: &Str, objects: &mut Resources) {
    for resource in objects.iter_mut() {
        set(resource, ORIGIN, note.clone());
    }
}

/// Notes the origin of a generated object that has none.
pub(crate) fn note_generated(note: &Str, resource: &mut Resource) {
    if origin(resource).is_none() {
        set(resource, ORIGIN, note.clone());
    }
}

/// The origin that is noted.
pub(crate) fn origin(resource: &Resource) -> Option<&Value> {
    resource.texts("annotations").and_then(|annotations| annotations.get(ORIGIN))
}

/// Fails for an origin that cannot be read: an object can come with an annotation of its own.
pub(crate) fn check(origin: &Value) -> Result<(), String> {
    let invalid = |what: &str| Err(format!("annotation {ORIGIN}: {what}"));
    let Some(text) = origin.scalar_text() else { return Ok(()) };
    let Ok(documents) = read_documents(text.as_bytes(), Dialect::Object, &Limits::few_lines()) else {
        return invalid("is not YAML");
    };
    let map = match documents.first().map(|document| &document.value) {
        None | Some(Value::Null(_)) => return Ok(()),
        Some(Value::Map(map)) => map,
        Some(other) => return invalid(&format!("a mapping is needed, not {}", other.type_name())),
    };
    // A number is a text there.
    let is_text = |value: &Value| !matches!(value, Value::Map(_) | Value::List(_));
    for field in ["path", "repo", "ref", "configuredIn"] {
        if map.get(field).is_some_and(|value| !is_text(value)) {
            return invalid(&format!("{field} must be a string"));
        }
    }
    match map.get("configuredBy") {
        None | Some(Value::Null(_)) => Ok(()),
        Some(Value::Map(by)) => {
            let fields = ["apiVersion", "kind", "name", "namespace"];
            match fields.iter().find(|field| by.get(field).is_some_and(|value| !is_text(value))) {
                Some(field) => invalid(&format!("configuredBy.{field} must be a string")),
                None => Ok(()),
            }
        }
        Some(other) => invalid(&format!("configuredBy: a mapping is needed, not {}", other.type_name())),
    }
}

/// Notes a transformer, changed it anything or not. What has no origin yet must come from the transformer. Each note is as
/// long as all notes before it, and counts before it is made.
pub(crate) fn note_transformed(note: &Str, objects: &mut Resources, budget: &Budget) -> Result<(), String> {
    let mut line = String::from("- ");
    for (i, text) in note.lines().enumerate() {
        if i > 0 {
            line.push_str("  ");
        }
        line.push_str(text);
        line.push('\n');
    }
    for resource in objects.iter_mut().filter(|resource| !resource.value().is_empty()) {
        settle(resource, budget)?;
        if origin(resource).is_none() {
            set(resource, ORIGIN, note.clone());
            continue;
        }
        let before = resource.texts("annotations").and_then(|annotations| annotations.get(TRANSFORMATIONS));
        let before = before.and_then(Value::as_str).unwrap_or_default();
        budget.make(before.len() + line.len())?;
        let all = format!("{before}{line}");
        set(resource, TRANSFORMATIONS, all.into());
    }
    Ok(())
}

/// All annotations are set again with a note, and nothing but their texts is left of them: what was shared with other places
/// of the object is so no longer.
fn settle(resource: &mut Resource, budget: &Budget) -> Result<(), String> {
    let groups = resource.shared.clone();
    resource.edit(|object| {
        let Some(annotations) = metadata(object).get_mut("annotations") else { return Ok(()) };
        leave_groups(annotations, &groups, budget)?;
        for (_, value) in annotations.as_map_mut().into_iter().flat_map(Map::values_mut) {
            if let Some(text) = value.scalar_text() {
                *value = Value::string(text);
            }
        }
        Ok(())
    })
}

fn set(resource: &mut Resource, key: &str, note: Str) {
    resource.edit(|object: &mut Map| {
        metadata(object).get_or_insert_map("annotations").insert(key, Value::string(note));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_go_joins_them() {
        assert_eq!(clean("", "../base"), "../base");
        assert_eq!(clean("../base", "../../x/./y"), "../../x/y");
        assert_eq!(clean("a/b", "../c/"), "a/c");
    }
}
