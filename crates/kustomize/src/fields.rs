//! Reads the fields of a mapping one by one, with names in any case, and tells what was left over.

use crate::error::{Error, Quoted};
use crate::tree::TreePath;
use crate::value::{Map, Num, Number, Str, Value};
use crate::yaml::scalar_as_written;

/// The kustomization that is read, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) dir: TreePath,
    pub(crate) file: String,
}

impl Site {
    /// A file that a kustomization names, for errors about its fields.
    pub(crate) fn of_file(file: &TreePath) -> Self {
        let (dir, name) = file.as_str().rsplit_once('/').unwrap_or(("", file.as_str()));
        Self { dir: TreePath::new(dir).unwrap_or_default(), file: name.to_owned() }
    }

    /// An error about a field.
    pub(crate) fn error(&self, field: impl Into<String>, message: impl std::fmt::Display) -> Error {
        Error::Field {
            file: self.file.clone(),
            dir: Quoted(self.dir.clone()),
            field: field.into(),
            message: message.to_string(),
        }
    }
}

/// The fields of one mapping.
pub(crate) struct Fields<'s> {
    site: &'s Site,
    /// Where the mapping stands, as `patches[0].target`.
    place: String,
    left: Vec<(Str, Value)>,
    /// Fields that nobody asks for are not an error.
    lenient: bool,
}

impl<'s> Fields<'s> {
    pub(crate) fn new(site: &'s Site, place: impl Into<String>, map: Map) -> Self {
        Self { site, place: place.into(), left: map.into_entries(), lenient: false }
    }

    /// The same where kustomize does not mind fields that it does not know.
    pub(crate) fn lenient(site: &'s Site, place: impl Into<String>, map: Map) -> Self {
        Self { lenient: true, ..Self::new(site, place, map) }
    }

    fn name(&self, field: &str) -> String {
        if self.place.is_empty() { field.to_owned() } else { format!("{}.{field}", self.place) }
    }

    pub(crate) fn error(&self, field: &str, message: impl std::fmt::Display) -> Error {
        self.site.error(self.name(field), message)
    }

    fn wrong<T>(&self, field: &str, wanted: &str, value: &Value) -> Result<T, Error> {
        let quote = if wanted == "a string" && matches!(value, Value::Bool(_) | Value::Number(_)) {
            "; quote it"
        } else {
            ""
        };
        Err(self.error(field, format!("{wanted} is needed, not {}{quote}", value.type_name())))
    }

    /// The text of a value. Where kustomize does not mind unknown fields, it makes texts of numbers and booleans too.
    fn to_text(&self, value: Value) -> Result<Str, Value> {
        match value {
            Value::String(text) => Ok(text.into_shared()),
            Value::Bool(_) | Value::Number(_) if self.lenient => Ok(scalar_as_written(&value).into()),
            other => Err(other),
        }
    }

    /// Is nothing left but nulls and empty texts?
    pub(crate) fn is_blank(&self) -> bool {
        self.left.iter().all(|(_, value)| value.is_null() || value.as_str() == Some(""))
    }

    /// Is a field there, and no null?
    pub(crate) fn has(&self, field: &str) -> bool {
        self.left.iter().any(|(key, value)| key.eq_ignore_ascii_case(field) && !value.is_null())
    }

    /// Takes a field out: the exact name first, else any that differs in case only.
    pub(crate) fn take(&mut self, field: &str) -> Option<Value> {
        let exact = self.left.iter().position(|(key, _)| &**key == field);
        let at = exact.or_else(|| self.left.iter().position(|(key, _)| key.eq_ignore_ascii_case(field)))?;
        Some(self.left.swap_remove(at).1)
    }

    /// A string; empty where there is none.
    pub(crate) fn text(&mut self, field: &str) -> Result<String, Error> {
        match self.take(field) {
            None | Some(Value::Null(_)) => Ok(String::new()),
            Some(value) => match self.to_text(value) {
                Ok(text) => Ok(text.to_string()),
                Err(other) => self.wrong(field, "a string", &other),
            },
        }
    }

    /// A string that may be missing.
    pub(crate) fn optional_text(&mut self, field: &str) -> Result<Option<String>, Error> {
        match self.take(field) {
            None | Some(Value::Null(_)) => Ok(None),
            Some(value) => match self.to_text(value) {
                Ok(text) => Ok(Some(text.to_string())),
                Err(other) => self.wrong(field, "a string", &other),
            },
        }
    }

    /// A boolean; false where there is none.
    pub(crate) fn flag(&mut self, field: &str) -> Result<bool, Error> {
        match self.take(field) {
            None | Some(Value::Null(_)) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => self.wrong(field, "true or false", &other),
        }
    }

    /// An integer; 0 where there is none.
    pub(crate) fn integer(&mut self, field: &str) -> Result<i64, Error> {
        match self.take(field) {
            None | Some(Value::Null(_)) => Ok(0),
            Some(Value::Number(Number { num, text })) => match num.canonical() {
                Num::Int(i) => Ok(i),
                Num::Uint(_) | Num::Float(_) => {
                    Err(self.error(field, format!("an integer is needed, not {text}")))
                }
            },
            Some(other) => self.wrong(field, "an integer", &other),
        }
    }

    /// A list of strings.
    pub(crate) fn texts(&mut self, field: &str) -> Result<Vec<String>, Error> {
        let items = self.items(field)?;
        let read = |(i, item)| match self.to_text(item) {
            Ok(text) => Ok(text.to_string()),
            Err(other) => self.wrong(&format!("{field}[{i}]"), "a string", &other),
        };
        items.into_iter().enumerate().map(read).collect()
    }

    fn items(&mut self, field: &str) -> Result<Vec<Value>, Error> {
        match self.take(field) {
            None | Some(Value::Null(_)) => Ok(Vec::new()),
            Some(Value::List(items)) => Ok(items.into_vec()),
            Some(other) => self.wrong(field, "a list", &other),
        }
    }

    /// A mapping of strings to strings.
    pub(crate) fn pairs(&mut self, field: &str) -> Result<Vec<(Str, Str)>, Error> {
        let map = match self.take(field) {
            None | Some(Value::Null(_)) => return Ok(Vec::new()),
            Some(Value::Map(map)) => map,
            Some(other) => return self.wrong(field, "a mapping", &other),
        };
        let read = |(key, value)| match self.to_text(value) {
            Ok(text) => Ok((key, text)),
            Err(Value::Null(_)) => Ok((key, "".into())),
            Err(other) => self.wrong(&format!("{field}.{key}"), "a string", &other),
        };
        map.into_entries().into_iter().map(read).collect()
    }

    /// A mapping with fields of its own.
    pub(crate) fn map<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(&mut Fields<'s>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let map = match self.take(field) {
            None | Some(Value::Null(_)) => return Ok(None),
            Some(Value::Map(map)) => map,
            Some(other) => return self.wrong(field, "a mapping", &other),
        };
        let mut fields = Fields { lenient: self.lenient, ..Fields::new(self.site, self.name(field), map) };
        let out = read(&mut fields)?;
        fields.finish()?;
        Ok(Some(out))
    }

    /// A list of mappings.
    pub(crate) fn list<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields<'s>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let items = self.items(field)?;
        let mut out = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            let Value::Map(map) = item else {
                return self.wrong(&format!("{field}[{i}]"), "a mapping", &item);
            };
            let place = self.name(&format!("{field}[{i}]"));
            let mut fields = Fields { lenient: self.lenient, ..Fields::new(self.site, place, map) };
            out.push(read(&mut fields)?);
            fields.finish()?;
        }
        Ok(out)
    }

    /// Fails if fields are left that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.left.first() {
            _ if self.lenient => Ok(()),
            None => Ok(()),
            Some((field, _)) => Err(Error::UnknownField {
                file: self.site.file.clone(),
                dir: Quoted(self.site.dir.clone()),
                field: self.name(field),
            }),
        }
    }
}
