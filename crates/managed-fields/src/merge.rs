//! A configuration laid over an object: what both set is the configuration's, nothing is removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use crate::path::PathElement;
use crate::schema::{ListType, MapType, TypeRef};
use crate::typed::{fits, item_element};

/// `live` with `config` laid over it. Both fit the type.
pub(crate) fn merge(live: &Value, config: &Value, type_: &TypeRef) -> Value {
    node(Some(live), Some(config), type_).unwrap_or(Value::Null)
}

fn node(left: Option<&Value>, right: Option<&Value>, type_: &TypeRef) -> Option<Value> {
    // The form is the new value's.
    let view = type_.view(if right.is_some() { right } else { left });
    let keep = || right.or(left).cloned();
    if let Some(map) = view.map {
        let (old, new) = (left.and_then(Value::as_object), right.and_then(Value::as_object));
        let empty = old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty);
        return if map.atomic || empty { keep() } else { maps(old, new, map) };
    }
    if let Some(scalar) = view.scalar {
        return if fits(scalar, left) || fits(scalar, right) { keep() } else { None };
    }
    let list = view.list?;
    let (old, new) = (left.and_then(Value::as_array), right.and_then(Value::as_array));
    let empty = old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty);
    if list.keys.is_none() || empty { keep() } else { lists(old, new, list) }
}

fn maps(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, map: &MapType) -> Option<Value> {
    let mut out = Map::new();
    for (name, value) in old.into_iter().flatten() {
        let merged = node(Some(value), new.and_then(|new| new.get(name)), map.field(name));
        if let Some(merged) = merged {
            out.insert(name.clone(), merged);
        }
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name))
            && let Some(merged) = node(None, Some(value), map.field(name))
        {
            out.insert(name.clone(), merged);
        }
    }
    if out.is_empty() { None } else { Some(Value::Object(out)) }
}

/// An item that stands twice in the live list is not merged with the new one.
static TWICE: Value = Value::Null;

/// A list's items by their names.
struct Side<'v> {
    order: Vec<(PathElement, &'v Value)>,
    by_name: BTreeMap<PathElement, &'v Value>,
}

impl<'v> Side<'v> {
    fn new(items: Option<&'v Vec<Value>>, list: &ListType) -> Self {
        let mut side = Self { order: Vec::new(), by_name: BTreeMap::new() };
        for item in items.into_iter().flatten() {
            let Ok(element) = item_element(list, item) else { continue };
            side.by_name.entry(element.clone()).and_modify(|known| *known = &TWICE).or_insert(item);
            side.order.push((element, item));
        }
        side
    }
}

/// Items that only the live list has stay where they stand; the others come in the configuration's order.
fn lists(old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, list: &ListType) -> Option<Value> {
    let (old, new) = (Side::new(old, list), Side::new(new, list));
    let mut shared: VecDeque<&PathElement> = new
        .order
        .iter()
        .map(|(element, _)| element)
        .filter(|element| old.by_name.contains_key(element))
        .collect();
    let mut next = shared.pop_front();
    let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < old.order.len() || right < new.order.len() {
        if let (Some((here, _)), Some((there, item))) = (old.order.get(left), new.order.get(right)) {
            if here == there {
                merged.insert(there);
                out.extend(node(old.by_name.get(here).copied(), Some(item), &list.element));
                left += 1;
                right += 1;
                next = shared.pop_front();
                continue;
            }
            if new.by_name.contains_key(here) && next.is_some_and(|next| next != here) {
                // Shared, but not its turn.
                left += 1;
                continue;
            }
        }
        if let Some((here, item)) = old.order.get(left) {
            if !new.by_name.contains_key(here) {
                out.extend(node(Some(item), None, &list.element));
                left += 1;
                continue;
            }
            if merged.contains(here) {
                left += 1;
            }
        }
        if let Some((there, item)) = new.order.get(right) {
            merged.insert(there);
            out.extend(node(old.by_name.get(there).copied(), Some(item), &list.element));
            right += 1;
            if next == Some(there) {
                next = shared.pop_front();
            }
        }
    }
    if out.is_empty() { None } else { Some(Value::Array(out)) }
}
