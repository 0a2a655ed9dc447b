//! Steps into an object: a field, an item of a list by its keys, by its value, or by its place.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use crate::gojson::{float_text, quote, write_json, write_string};

/// One step.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of a mapping.
    Field(String),
    /// The item of a list whose fields have these values, sorted by name.
    Key(Vec<(String, Value)>),
    /// The item of a set that has this value.
    Value(Value),
    /// The item at this place.
    Index(i64),
}

/// Steps from an object's root.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Path(pub Vec<PathElement>);

impl PathElement {
    /// As `fieldsV1` writes it.
    #[must_use]
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let mut out = "k:{".to_owned();
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_string(&mut out, name, false);
                    out.push(':');
                    write_json(&mut out, value);
                }
                out.push('}');
                out
            }
            Self::Value(value) => {
                let mut out = "v:".to_owned();
                write_json(&mut out, value);
                out
            }
            Self::Index(at) => format!("i:{at}"),
        }
    }

    /// Reads what `fieldsV1` holds; none for a form that is not known, which a newer server may have written.
    ///
    /// # Errors
    /// A text of a known form that cannot be read.
    pub fn decode(text: &str) -> Result<Option<Self>, String> {
        let bad = |why: &dyn fmt::Display| format!("parsing key as path element {text:?}: {why}");
        let Some((form, rest)) = text.split_once(':').filter(|(form, _)| form.len() == 1) else {
            return Err(bad(&"missing colon"));
        };
        Ok(Some(match form {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(serde_json::from_str(rest).map_err(|error| bad(&error))?),
            "k" => match serde_json::from_str(rest).map_err(|error| bad(&error))? {
                Value::Object(map) => {
                    let mut fields: Vec<(String, Value)> = map.into_iter().collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    Self::Key(fields)
                }
                _ => return Err(bad(&"want an object")),
            },
            "i" => Self::Index(rest.parse().map_err(|error| bad(&error))?),
            _ => return Ok(None),
        }))
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name, value), (other_name, other_value)) in a.iter().zip(b) {
                    let order = name.cmp(other_name).then_with(|| order(value, other_value));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(f, "{element}"))
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => float_text(float),
            _ => number.to_string(),
        },
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect(),
    }
}

/// Whole numbers and others are compared by what they are worth.
fn order_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64(), a.as_u64(), b.as_u64()) {
        (Some(a), Some(b), ..) => a.cmp(&b),
        (.., Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
    }
}

/// A total order over all values: numbers, texts, truths, lists, mappings, null.
pub(crate) fn order(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unlike = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| *order != Ordering::Equal);
            unlike.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let sorted = |map: &serde_json::Map<String, Value>| {
                let mut entries: Vec<(String, Value)> = map.clone().into_iter().collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                PathElement::Key(entries)
            };
            sorted(a).cmp(&sorted(b))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same: `1` and `1.0` are.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || order_numbers(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
