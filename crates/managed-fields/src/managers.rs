//! Who manages an object: the entries of `metadata.managedFields`.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::MAX_MANAGERS;
use crate::gojson::write_string;
use crate::set::Set;

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        })
    }
}

/// What tells an entry from the others. Who applies has one entry, whatever version they apply in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ManagerId {
    pub(crate) operation: Operation,
    pub(crate) manager: String,
    /// Empty for who applies.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

impl ManagerId {
    /// The text by which an apiserver sorts managers.
    pub(crate) fn text(&self) -> String {
        let operation = self.operation.to_string();
        let fields = [
            ("manager", &self.manager),
            ("operation", &operation),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ];
        let mut out = "{".to_owned();
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            if out.len() > 1 {
                out.push(',');
            }
            write_string(&mut out, name, false);
            out.push(':');
            write_string(&mut out, value, true);
        }
        out.push('}');
        out
    }
}

/// What a manager owns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owned {
    /// The version whose fields these are.
    pub(crate) api_version: String,
    pub(crate) time: Option<Timestamp>,
    pub(crate) set: Set,
}

/// The managers of one object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Managers {
    pub(crate) by_id: BTreeMap<ManagerId, Owned>,
}

impl Managers {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Reads `metadata.managedFields`.
    ///
    /// # Errors
    /// An entry that cannot be read, or more than [`MAX_MANAGERS`].
    pub fn decode(value: Option<&Value>) -> Result<Self, String> {
        let entries = match value {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("want a list".to_owned()),
        };
        if entries.len() > MAX_MANAGERS {
            return Err(format!("more than {MAX_MANAGERS} managers"));
        }
        let mut managers = Self::default();
        for (at, entry) in entries.iter().enumerate() {
            let (id, owned) = decode_entry(entry).map_err(|why| format!("entry {at}: {why}"))?;
            managers.by_id.insert(id, owned);
        }
        Ok(managers)
    }

    /// As `metadata.managedFields`, in the order in which an apiserver writes them; none where there are no managers.
    #[must_use]
    pub fn encode(&self) -> Option<Value> {
        if self.by_id.is_empty() {
            return None;
        }
        let mut entries: Vec<(&ManagerId, &Owned)> = self.by_id.iter().collect();
        entries.sort_by(|(id, owned), (other_id, other)| {
            let key = |id: &ManagerId, owned: &Owned| (id.operation, seconds(owned.time));
            let (a, b) = (key(id, owned), key(other_id, other));
            a.cmp(&b)
                .then_with(|| id.manager.cmp(&other_id.manager))
                .then_with(|| owned.api_version.cmp(&other.api_version))
                .then_with(|| id.subresource.cmp(&other_id.subresource))
        });
        Some(entries.into_iter().map(|(id, owned)| encode_entry(id, owned)).collect())
    }

    /// Takes away managers that own nothing.
    pub(crate) fn tidy(&mut self) {
        self.by_id.retain(|_, owned| !owned.set.is_empty());
    }

    /// Folds the oldest entries of updates together, those of one version into one, until there are at most `max`.
    pub(crate) fn cap(&mut self, max: usize) {
        let mut updaters: Vec<(i64, String, ManagerId)> = self
            .by_id
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, owned)| (seconds(owned.time), id.text(), id.clone()))
            .collect();
        let mut length = updaters.len();
        if length <= max {
            return;
        }
        updaters.sort();
        let mut first_of: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (_, _, id) in updaters {
            if length <= max {
                return;
            }
            let Some(owned) = self.by_id.get(&id).cloned() else { continue };
            let Some(first) = first_of.get(&owned.api_version) else {
                first_of.insert(owned.api_version, id);
                continue;
            };
            let bucket = ManagerId {
                operation: Operation::Update,
                manager: "ancient-changes".to_owned(),
                api_version: owned.api_version.clone(),
                subresource: String::new(),
            };
            if !self.by_id.contains_key(&bucket)
                && let Some(known) = self.by_id.remove(first)
            {
                self.by_id.insert(bucket.clone(), known);
            }
            self.by_id.remove(&id);
            if let Some(known) = self.by_id.get_mut(&bucket) {
                known.set.add(&owned.set);
                // The newer time.
                known.time = owned.time;
            }
            length -= 1;
        }
    }
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

fn decode_entry(entry: &Value) -> Result<(ManagerId, Owned), String> {
    let entry = entry.as_object().ok_or("want an object")?;
    let text = |field: &str| match entry.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) if text.len() <= 1024 => Ok(text.clone()),
        Some(_) => Err(format!("{field}: want a text of at most 1024 bytes")),
    };
    let operation = match text("operation")?.as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let api_version = text("apiVersion")?;
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    if text("fieldsType")? != "FieldsV1" {
        return Err("fieldsType must be `FieldsV1`".to_owned());
    }
    let time = match text("time")?.as_str() {
        "" => None,
        time => Some(time.parse().map_err(|_| "time: want RFC 3339")?),
    };
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => Set::default(),
        Some(fields) => Set::from_json(fields)?,
    };
    let of_update = if operation == Operation::Update { api_version.clone() } else { String::new() };
    let (manager, subresource) = (text("manager")?, text("subresource")?);
    let id = ManagerId { operation, manager, api_version: of_update, subresource };
    Ok((id, Owned { api_version, time, set }))
}

fn encode_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut out = Map::new();
    let mut text = |field: &str, value: &str| {
        if !value.is_empty() {
            out.insert(field.to_owned(), value.into());
        }
    };
    text("manager", &id.manager);
    text("operation", &id.operation.to_string());
    text("apiVersion", &owned.api_version);
    text("subresource", &id.subresource);
    text("fieldsType", "FieldsV1");
    if let Some(time) = owned.time.and_then(|time| Timestamp::from_second(time.as_second()).ok()) {
        text("time", &time.to_string());
    }
    out.insert("fieldsV1".to_owned(), owned.set.to_json());
    Value::Object(out)
}
