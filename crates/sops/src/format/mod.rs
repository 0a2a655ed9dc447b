//! The formats that files are read and written in.

mod dotenv;
mod ini;
mod json;

use std::fmt;

use zeroize::Zeroizing;

use crate::error::{Error, Place};
use crate::limits::Limits;
use crate::number;
use crate::tree::{Map, Value};
use crate::yaml;

/// How a file is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// YAML, of one document or several.
    Yaml,
    /// A JSON object.
    Json,
    /// Lines of `NAME=value`.
    Dotenv,
    /// Sections of keys with values.
    Ini,
    /// Any bytes; encrypted, they are the one value of a JSON object.
    Binary,
}

impl Format {
    /// The format of a file with this name. Case matters.
    pub fn of_name(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("yaml" | "yml") => Self::Yaml,
            Some("json") => Self::Json,
            Some("env") => Self::Dotenv,
            Some("ini") => Self::Ini,
            _ => Self::Binary,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Dotenv => "dotenv",
            Self::Ini => "INI",
            Self::Binary => "binary",
        })
    }
}

/// Reads a file, its metadata among the rest.
pub(crate) fn read(format: Format, file: &[u8], limits: &Limits) -> Result<Vec<Map>, Error> {
    let mut tally = Tally::new(format, limits);
    match format {
        Format::Yaml => yaml::read(file, &mut tally),
        Format::Json | Format::Binary => json::read(file, &mut tally).map(|map| vec![map]),
        Format::Dotenv => dotenv::read(file, &mut tally).map(|map| vec![map]),
        Format::Ini => ini::read(file, &mut tally).map(|map| vec![map]),
    }
}

/// Writes documents.
pub(crate) fn write(format: Format, documents: &[Map]) -> Result<Zeroizing<Vec<u8>>, Error> {
    match format {
        Format::Yaml => Ok(yaml::write(documents)),
        Format::Json => json::write(documents),
        Format::Dotenv => dotenv::write(documents),
        Format::Ini => ini::write(documents),
        Format::Binary => binary(documents),
    }
}

fn binary(documents: &[Map]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let error = |problem| Error::Emit { format: Format::Binary, place: Place::new(1, b"data"), problem };
    let [document] = documents else { return Err(error("there are several documents")) };
    let data = document.iter().find(|item| item.is_named("data")).ok_or(error("there is no such value"))?;
    match &data.value {
        Value::Text(text) => Ok(Zeroizing::new(text.bytes().to_vec())),
        _ => Err(error("it is not a string")),
    }
}

/// A scalar in a format that only has strings; none for a map, a list or a comment.
fn as_text(value: &Value) -> Option<Zeroizing<Vec<u8>>> {
    let text = match value {
        Value::Text(text) => return Some(Zeroizing::new(text.bytes().to_vec())),
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number::variable(*number),
        Value::Time(time) => time.seconds(),
        Value::Comment(_) | Value::Map(_) | Value::List(_) => return None,
    };
    Some(Zeroizing::new(text.into_bytes()))
}

/// What a file has taken so far of what it may.
pub(crate) struct Tally<'l> {
    format: Format,
    limits: &'l Limits,
    nodes: usize,
    bytes: usize,
}

impl<'l> Tally<'l> {
    pub(crate) fn new(format: Format, limits: &'l Limits) -> Self {
        Self { format, limits, nodes: 0, bytes: 0 }
    }

    pub(crate) fn depth(&self) -> usize {
        self.limits.depth
    }

    pub(crate) fn nodes(&self) -> usize {
        self.limits.nodes
    }

    /// Counts a value, a comment or a name of so many bytes.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), Error> {
        let Limits { scalar_bytes, made_bytes, nodes, .. } = *self.limits;
        if bytes > scalar_bytes && self.format != Format::Binary {
            return Err(Error::TooLarge { what: "bytes in a value", limit: scalar_bytes });
        }
        self.nodes += 1;
        if self.nodes > nodes {
            return Err(Error::TooLarge { what: "values (with aliases expanded)", limit: nodes });
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > made_bytes {
            return Err(Error::TooLarge {
                what: "bytes in all values (with aliases expanded)",
                limit: made_bytes,
            });
        }
        Ok(())
    }

    /// Refuses what nests deeper than it may.
    pub(crate) fn check_depth(&self, depth: usize) -> Result<(), Error> {
        if depth > self.limits.depth {
            return Err(Error::TooLarge { what: "levels of nesting", limit: self.limits.depth });
        }
        Ok(())
    }

    /// Says that the text is not of its format.
    pub(crate) fn malformed(&self, problem: impl Into<String>) -> Error {
        Error::malformed(self.format, problem)
    }
}
