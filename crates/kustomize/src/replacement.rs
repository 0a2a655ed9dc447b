//! `replacements`: their fields, read from a kustomization, from a file that it names, or from a plugin.

use crate::budget::Held;
use crate::error::Error;
use crate::fields::{Fields, Site};
use crate::kustomization::Selector;
use crate::load::{Documents, FIELDS, Loader};
use crate::value::Value;
use crate::yaml::Dialect;

/// An entry of `replacements`: one replacement, or a file of them.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Inline(Box<Replacement>),
    File(String),
}

/// A value and the fields that it goes to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replacement {
    pub(crate) source: Option<Source>,
    /// A value that stands in the replacement itself.
    pub(crate) value: Option<String>,
    pub(crate) targets: Vec<Target>,
}

/// Where a value comes from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    /// Group, version, kind, name and namespace, word for word.
    pub(crate) object: Selector,
    pub(crate) field_path: String,
    pub(crate) options: FieldOptions,
}

/// Fields that take a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) select: Option<Selector>,
    pub(crate) reject: Vec<Selector>,
    pub(crate) field_paths: Vec<String>,
    pub(crate) options: FieldOptions,
}

/// Which part of a field.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldOptions {
    /// Empty for the whole field.
    pub(crate) delimiter: String,
    pub(crate) index: i64,
    /// Make the field if it is missing.
    pub(crate) create: bool,
}

/// The field that is meant where none is named.
const DEFAULT_PATH: &str = "metadata.name";

impl Entry {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let path = f.text("path")?;
        let replacement = Replacement::read(f)?;
        if path.is_empty() {
            return Ok(Self::Inline(Box::new(replacement)));
        }
        if replacement.source.is_some() || !replacement.targets.is_empty() {
            return Err(f.error("path", "does not go with source and targets in the same entry"));
        }
        Ok(Self::File(path))
    }

    /// The replacements, those of a file loaded, and the memory of these.
    pub(crate) fn load(
        self,
        loader: &Loader<'_>,
        site: &Site,
        field: &str,
    ) -> Result<(Vec<Replacement>, Option<Held>), Error> {
        let path = match self {
            Self::Inline(replacement) => return Ok((vec![*replacement], None)),
            Self::File(path) => path,
        };
        let field = format!("{field}.path");
        let file = loader.file(site, &field, &path)?;
        let Documents { list, held, .. } = loader.documents(&file, Dialect::Kustomization)?;
        let fields = loader.budget.hold(held.bytes().saturating_mul(FIELDS));
        let fields = fields.map_err(|message| loader.fail(site, &field, message))?;
        let document = list.into_iter().next();
        let items = match document.map(|document| document.value) {
            Some(Value::List(items)) => items.into_vec(),
            Some(map @ Value::Map(_)) => vec![map],
            _ => return Err(site.error(field, format!("{path:?} holds no replacements"))),
        };
        let read = |(i, item)| match item {
            Value::Map(map) => {
                Replacement::read(&mut Fields::lenient(site, format!("{field} ({path}) [{i}]"), map))
            }
            other => {
                Err(site.error(&field, format!("{path:?}: a mapping is needed, not {}", other.type_name())))
            }
        };
        let replacements: Result<_, Error> = items.into_iter().enumerate().map(read).collect();
        Ok((replacements?, Some(fields)))
    }
}

impl Replacement {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            source: f.map("source", Source::read)?,
            value: f.optional_text("sourceValue")?,
            targets: f.list("targets", Target::read)?,
        })
    }
}

impl Source {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let mut field_path = f.text("fieldPath")?;
        if field_path.is_empty() {
            field_path = DEFAULT_PATH.to_owned();
        }
        let options = f.map("options", FieldOptions::read)?.unwrap_or_default();
        Ok(Self { object: Selector::read_object(f)?, field_path, options })
    }
}

impl Target {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let mut field_paths = f.texts("fieldPaths")?;
        if field_paths.is_empty() {
            field_paths.push(DEFAULT_PATH.to_owned());
        }
        Ok(Self {
            select: f.map("select", Selector::read)?,
            reject: f.list("reject", Selector::read)?,
            field_paths,
            options: f.map("options", FieldOptions::read)?.unwrap_or_default(),
        })
    }
}

impl FieldOptions {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        // kustomize knows an encoding too, and does nothing with it.
        f.text("encoding")?;
        Ok(Self { delimiter: f.text("delimiter")?, index: f.integer("index")?, create: f.flag("create")? })
    }
}
