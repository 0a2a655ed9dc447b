//! A value added to fields, or to file paths in fields.

use std::borrow::Cow;

use crate::budget::Held;
use crate::error::Error;
use crate::fields::{Fields, Site};
use crate::kustomization::Selector;
use crate::load::{Documents, FIELDS, Loader};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::value::{Map, Value};
use crate::yaml::{self, Dialect};

use super::name;
use super::path;
use super::select::Matcher;
use super::step::{Namespace, Subjects};

/// A value, and where it goes.
#[derive(Debug, Clone)]
pub(crate) struct ValueAdd {
    /// Empty for the name of the kustomization's directory.
    pub(crate) value: String,
    pub(crate) targets: Vec<Addition>,
    /// A file with more targets; empty for none.
    pub(crate) target_file: String,
}

/// Fields that a value goes to.
#[derive(Debug, Clone)]
pub(crate) struct Addition {
    /// All objects where there is none.
    selector: Option<Selector>,
    /// With slashes; `\/` is a slash in a key.
    field_path: String,
    /// Place in the file path that the field holds, from 1; 0 sets the whole field.
    position: usize,
}

impl Addition {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let field_path = f.text("fieldPath")?;
        if field_path.is_empty() {
            return Err(f.error("fieldPath", "is missing"));
        }
        let position = usize::try_from(f.integer("filePathPosition")?)
            .map_err(|_| f.error("filePathPosition", "must not be negative"))?;
        Ok(Self { selector: f.map("selector", Selector::read)?, field_path, position })
    }
}

/// Adds a value wherever it goes.
pub(super) fn apply(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    add: &ValueAdd,
    objects: &mut Resources,
) -> Result<(), Error> {
    let value = if add.value.is_empty() { site.dir.file_name() } else { &add.value };
    let mut held = None;
    let mut targets = Cow::Borrowed(add.targets.as_slice());
    if !add.target_file.is_empty() {
        let (more, memory) = read_targets(loader, site, field, &add.target_file)?;
        targets.to_mut().extend(more);
        held = Some(memory);
    }
    let _held = held;
    for (i, target) in targets.iter().enumerate() {
        one(target, value, loader, objects)
            .map_err(|message| loader.fail(site, &format!("{field}: targets[{i}]"), message))?;
    }
    Ok(())
}

/// The targets in a file, and the memory that they take.
fn read_targets(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    path: &str,
) -> Result<(Vec<Addition>, Held), Error> {
    let field = format!("{field}: targetFilePath");
    let file = loader.file(site, &field, path)?;
    let Documents { list, held, .. } = loader.documents(&file, Dialect::Kustomization)?;
    let fields = loader.budget.hold(held.bytes().saturating_mul(FIELDS));
    let fields = fields.map_err(|message| loader.fail(site, &field, message))?;
    match list.into_iter().next().map(|document| document.value) {
        Some(Value::Map(map)) => {
            Ok((Fields::lenient(site, field, map).list("targets", Addition::read)?, fields))
        }
        _ => Err(site.error(field, format!("{path:?} holds no mapping with targets"))),
    }
}

fn one(target: &Addition, value: &str, loader: &Loader<'_>, objects: &mut Resources) -> Result<(), String> {
    let depth = loader.limits.depth;
    loader.budget.work(objects.len())?;
    let selected = match &target.selector {
        None => (0..objects.len()).collect(),
        Some(selector) => Matcher::new(selector, &loader.budget)?.select(objects),
    };
    let parts = path::split_at(&target.field_path, '/', depth)?;
    for at in selected {
        loader.budget.make(value.len() + target.field_path.len())?;
        objects.change(at, |resource| {
            if target.field_path == "metadata/namespace" {
                set_namespace(resource, value)?;
            } else {
                let id = resource.id().clone();
                resource
                    .edit(|object| set(object, &parts, value, target.position))
                    .map_err(|message| format!("{id}: {}: {message}", target.field_path))?;
            }
            resource.refresh();
            Ok::<(), String>(())
        })?;
    }
    Ok(())
}

/// A namespace goes to objects that have one, and to subjects of role bindings.
fn set_namespace(resource: &mut Resource, value: &str) -> Result<(), String> {
    let step = Namespace {
        namespace: value.into(),
        fields: Cow::Borrowed(&[]),
        unset_only: false,
        subjects: Subjects::default(),
    };
    name::set_namespace(&step, resource)
}

fn set(object: &mut Map, parts: &[String], value: &str, position: usize) -> Result<(), String> {
    let mut whole = Value::Map(std::mem::take(object));
    let result = path::make(&mut whole, parts).and_then(|slot| {
        let old =
            slot.scalar_text().ok_or_else(|| format!("a string is needed, not {}", slot.type_name()))?;
        let text = match position.checked_sub(1) {
            None => value.to_owned(),
            Some(position) => insert(&old, position, value),
        };
        // A new field has no type yet; a text stays one.
        *slot = if old.is_empty() || slot.as_str().is_none() {
            yaml::plain_value(&text)
        } else {
            Value::string(text)
        };
        Ok(())
    });
    if let Value::Map(map) = whole {
        *object = map;
    }
    result
}

/// Puts a part into a file path, at the end where the position is past it.
fn insert(path: &str, position: usize, part: &str) -> String {
    let (root, rest) = path.strip_prefix('/').map_or(("", path), |rest| ("/", rest));
    // Empty parts count for the position, and are then left out.
    let mut parts: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
    parts.insert(position.min(parts.len()), part);
    parts.retain(|part| !part.is_empty());
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::insert;

    #[test]
    fn parts_of_file_paths() {
        for (path, position, want) in [
            ("", 0, "x"),
            ("/", 3, "/x"),
            ("pie", 0, "x/pie"),
            ("/pie", 0, "/x/pie"),
            ("/raw", 9, "/raw/x"),
            ("a/b/c", 2, "a/b/x/c"),
            ("http://h/p", 2, "http:/x/h/p"),
        ] {
            assert_eq!(insert(path, position, "x"), want);
        }
    }
}
