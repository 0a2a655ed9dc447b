//! What a schema says of a value: whether it fits, which fields it has, and how an item of a list is named.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::Error;
use crate::path::PathElement;
use crate::schema::{ListType, MapType, Scalar, TypeRef};
use crate::set::Set;

/// Whether lists may hold items with the same keys, as objects in a store may that were written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Allowed,
    Refused,
}

/// What is wrong, with the path so far, from the inside out.
struct Invalid {
    path: Vec<String>,
    message: String,
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { path: Vec::new(), message: message.into() })
}

impl Invalid {
    fn within(mut self, element: &PathElement) -> Self {
        self.path.push(element.to_string());
        self
    }
}

/// Checks that a value fits its type.
pub(crate) fn check(
    what: &'static str,
    value: &Value,
    type_: &TypeRef,
    duplicates: Duplicates,
) -> Result<(), Error> {
    validate(value, type_, duplicates).map_err(|Invalid { mut path, message }| {
        path.reverse();
        Error::Schema { what, path: path.concat(), message }
    })
}

fn validate(value: &Value, type_: &TypeRef, duplicates: Duplicates) -> Result<(), Invalid> {
    let view = type_.view(Some(value));
    if let Some(map) = view.map {
        return match value {
            Value::Null => Ok(()),
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                let at = || PathElement::Field(name.clone());
                match map.field(name) {
                    TypeRef::None => invalid("field not declared in schema"),
                    type_ => validate(value, type_, duplicates),
                }
                .map_err(|error| error.within(&at()))
            }),
            _ => invalid("expected map"),
        };
    }
    if let Some(scalar) = view.scalar {
        return if fits(scalar, Some(value)) {
            Ok(())
        } else {
            invalid(format!("expected {}", name(scalar)))
        };
    }
    let Some(list) = view.list else { return invalid("nothing is allowed here") };
    match value {
        Value::Null => Ok(()),
        Value::Array(items) => validate_items(items, list, duplicates),
        _ => invalid("expected list"),
    }
}

fn validate_items(items: &[Value], list: &ListType, duplicates: Duplicates) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let element = if list.keys.is_some() {
            let element = item_element(list, item).or_else(|why| invalid(format!("element {at}: {why}")))?;
            if seen.contains(&element) && duplicates == Duplicates::Refused {
                return invalid(format!("duplicate entries for key {element}"));
            }
            seen.insert(element.clone());
            element
        } else {
            PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX))
        };
        validate(item, &list.element, duplicates).map_err(|error| error.within(&element))?;
    }
    Ok(())
}

fn name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Numeric => "numeric (int or float)",
        Scalar::String => "string",
        Scalar::Boolean => "boolean",
        Scalar::Untyped => "any scalar",
    }
}

/// Whether a value is such a scalar; no value and null are any.
pub(crate) fn fits(scalar: Scalar, value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(_) | Value::Object(_)) => false,
        Some(value) => match scalar {
            Scalar::Numeric => value.is_number(),
            Scalar::String => value.is_string(),
            Scalar::Boolean => value.is_boolean(),
            Scalar::Untyped => true,
        },
    }
}

/// How an item of a set, or of a list with keys, is told apart.
pub(crate) fn item_element(list: &ListType, item: &Value) -> Result<PathElement, String> {
    let Some(keys) = &list.keys else { return Err("the list is one whole".to_owned()) };
    if keys.is_empty() {
        return match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            scalar => Ok(PathElement::Value(scalar.clone())),
        };
    }
    let Some(fields) = item.as_object() else {
        return Err("associative list with keys may not have non-map elements".to_owned());
    };
    let defaults = list.element.atom().and_then(|atom| atom.map.as_ref());
    let default = |key: &String| defaults?.fields.get(key)?.default.as_ref();
    let mut found: Vec<(String, Value)> = keys
        .iter()
        .filter_map(|key| Some((key.clone(), fields.get(key).or_else(|| default(key))?.clone())))
        .collect();
    if found.is_empty() {
        let keys = keys.join(" ");
        return Err(format!("associative list with keys has an element that omits all key fields [{keys}]"));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(PathElement::Key(found))
}

/// All fields of a value: leaves, items of lists with keys and of sets, and what is empty.
pub(crate) fn field_set(value: &Value, type_: &TypeRef) -> Set {
    fields(value, type_).0
}

/// The fields within a value, and whether the value itself is a field.
fn fields(value: &Value, type_: &TypeRef) -> (Set, bool) {
    let view = type_.view(Some(value));
    let nothing = Set::default();
    if let Some(map) = view.map {
        return match value {
            _ if map.atomic => (nothing, true),
            Value::Object(_) => (map_fields(value, map), false),
            _ => (nothing, false),
        };
    }
    if view.scalar.is_some() {
        return (nothing, true);
    }
    match (view.list, value) {
        (Some(list), _) if list.keys.is_none() => (nothing, true),
        (Some(list), Value::Array(items)) => (list_fields(items, list), false),
        _ => (nothing, false),
    }
}

fn map_fields(value: &Value, map: &MapType) -> Set {
    let mut set = Set::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let (inner, mut member) = fields(value, map.field(name));
        member |= value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        member |= !map.fields.contains_key(name);
        let element = PathElement::Field(name.clone());
        if member {
            set.members.insert(element.clone());
        }
        set.put_child(element, inner);
    }
    set
}

/// Of items that stand twice, only that they are there.
fn list_fields(items: &[Value], list: &ListType) -> Set {
    let mut set = Set::default();
    for item in items {
        let Ok(element) = item_element(list, item) else { continue };
        if set.members.insert(element.clone()) {
            set.put_child(element, fields(item, &list.element).0);
        } else {
            set.children.remove(&element);
        }
    }
    set
}
