//! An object without some of its fields.

use serde_json::{Map, Value};

use crate::path::PathElement;
use crate::schema::TypeRef;
use crate::set::Set;
use crate::typed::item_element;

/// The value without the fields and items of the set. What loses all that it held is null.
pub(crate) fn remove(value: &Value, gone: &Set, type_: &TypeRef) -> Value {
    let view = type_.view(Some(value));
    if let Some(map) = view.map {
        let Some(fields) = value.as_object().filter(|_| !map.atomic) else { return Value::Null };
        let mut out = Map::new();
        for (name, value) in fields {
            let element = PathElement::Field(name.clone());
            if gone.members.contains(&element) {
                continue;
            }
            let kept = match gone.children.get(&element) {
                Some(inner) => remove(value, inner, map.field(name)),
                None => value.clone(),
            };
            out.insert(name.clone(), kept);
        }
        return if out.is_empty() { Value::Null } else { Value::Object(out) };
    }
    if view.scalar.is_some() {
        return value.clone();
    }
    let Some(list) = view.list else { return Value::Null };
    let Some(items) = value.as_array().filter(|_| list.keys.is_some()) else { return Value::Null };
    let mut out = Vec::new();
    for item in items {
        let Ok(element) = item_element(list, item) else { continue };
        if gone.members.contains(&element) {
            continue;
        }
        out.push(match gone.children.get(&element) {
            Some(inner) => remove(item, inner, &list.element),
            None => item.clone(),
        });
    }
    if out.is_empty() { Value::Null } else { Value::Array(out) }
}
