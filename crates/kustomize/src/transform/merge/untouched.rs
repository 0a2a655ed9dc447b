//! Mappings of the object for which the patch has nothing, and which nobody else looks at: nearly all of most objects.
//!
//! They are merged with nothing, and lose nulls that nobody wrote. Where their lists are as lists are, so that no element has
//! to do with another, that is done where they stand; what has other lists is left to the merge of nodes.

use std::collections::HashSet;

use super::place::{Hints, set_alone};
use crate::schema::{Field, Type};
use crate::value::{List, Map, Str, Value};

/// Up to so many elements are compared with each other.
const FEW: usize = 8;

/// Why a mapping was left half-way. What was done until there may be done again.
enum Stop {
    Odd,
    Failed(String),
}

/// Merges nothing into a mapping. Tells whether it is done; if not, it is left to others.
pub(super) fn leave<'m>(value: &mut Value, of: Type<'m>, hints: &'m Hints<'m>) -> Result<bool, String> {
    let Value::Map(map) = value else { return Ok(false) };
    if hints.any_again() {
        return Ok(false);
    }
    match leave_map(map, of, hints) {
        Ok(()) => Ok(true),
        Err(Stop::Odd) => Ok(false),
        Err(Stop::Failed(message)) => Err(message),
    }
}

fn leave_map<'m>(map: &mut Map, of: Type<'m>, hints: &'m Hints<'m>) -> Result<(), Stop> {
    if map.is_odd() {
        return Err(Stop::Odd);
    }
    map.try_retain(|key, value| {
        let field = hints.field(of, Some(key), None);
        let stays = leave_value(value, &field, hints).map_err(|stop| match stop {
            Stop::Odd => Stop::Odd,
            Stop::Failed(message) => Stop::Failed(super::within(key, &message)),
        })?;
        set_alone(value);
        Ok(stays)
    })
}

/// Whether a value stays.
fn leave_value<'m>(value: &mut Value, field: &Field<'m>, hints: &'m Hints<'m>) -> Result<bool, Stop> {
    match value {
        Value::Null(form) => return Ok(!form.text().is_empty()),
        Value::Map(map) => leave_map(map, of_map(map, field.of), hints)?,
        Value::List(list) => {
            if let Some(keys) = &field.merge_keys {
                leave_list(list, keys, field.of, hints)?;
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(true)
}

fn of_map<'m>(map: &Map, of: Type<'m>) -> Type<'m> {
    let text = |key: &str| map.get(key).and_then(Value::scalar_text).unwrap_or_default();
    of.or_object(std::iter::once_with(|| (text("apiVersion"), text("kind"))))
}

fn leave_list<'m>(list: &mut List, keys: &[&str], of: Type<'m>, hints: &'m Hints<'m>) -> Result<(), Stop> {
    if !is_usual(list, keys) {
        return Err(Stop::Odd);
    }
    for item in list.iter_mut() {
        match item {
            Value::Map(map) => leave_map(map, of_map(map, of), hints)?,
            scalar if scalar.as_str() == Some("") => {}
            scalar => hints.untag(scalar).map_err(Stop::Failed)?,
        }
    }
    Ok(())
}

/// Whether all elements of a list have the same merge keys, and no two the same texts: each is found by its own.
fn is_usual(list: &[Value], keys: &[&str]) -> bool {
    if keys.is_empty() {
        return list.iter().all(is_scalar) && are_different(list, same_text, |item| vec![text(item)]);
    }
    if keys.len() > super::MAX_KEYS {
        return false;
    }
    let is_used = |key: &&str| list.iter().any(|item| field(item, key).is_some());
    let have_all = |key: &&str| list.iter().all(|item| field(item, key).is_some());
    if !keys.iter().filter(|key| is_used(key)).all(have_all) {
        return false;
    }
    // Those of the first element are those of all.
    let Some(first) = list.first() else { return true };
    let used = || keys.iter().filter(|key| field(first, key).is_some());
    let same = |a: &Value, b: &Value| {
        let mut both = used().map(|key| (field(a, key), field(b, key)));
        both.all(|both| matches!(both, (Some(a), Some(b)) if same_text(a, b)))
    };
    let texts = |item: &Value| used().filter_map(|key| field(item, key)).map(text).collect();
    used().next().is_some() && are_different(list, same, texts)
}

/// Whether no two elements are the same.
fn are_different(
    list: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
    texts: impl Fn(&Value) -> Vec<Str>,
) -> bool {
    if list.len() <= FEW {
        return list.iter().enumerate().all(|(at, item)| !list[..at].iter().any(|other| same(item, other)));
    }
    let mut seen = HashSet::with_capacity(list.len());
    list.iter().all(|item| seen.insert(texts(item)))
}

/// The value of a merge key, if it has a text.
fn field<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
    item.as_map()?.get(key).filter(|value| is_scalar(value) && value.as_str() != Some(""))
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Null(_) | Value::List(_) | Value::Map(_))
}

fn text(value: &Value) -> Str {
    value.scalar_text().unwrap_or_default()
}

fn same_text(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Number(a), Value::Number(b)) => a.text == b.text,
        (a, b) => text(a) == text(b),
    }
}
