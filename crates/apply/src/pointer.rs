//! JSON pointers to ignored fields: who owns such a field, and how it is left as it is.

use serde_json::{Map, Value};

use crate::FIELD_MANAGER;

/// A JSON pointer to something within an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer; the error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix('/').ok_or("it does not begin with a slash")?;
        if text.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])) {
            return Err("after a tilde comes 0 or 1");
        }
        Ok(Self(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect()))
    }

    /// What it points to.
    fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, step)
    }
}

/// What becomes of a map that has nothing left when a field was taken out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Emptied {
    Kept,
    /// It goes too, and also where the field was not in it.
    Gone,
}

/// Takes out what is at the end of some steps.
fn take(value: &mut Value, steps: &[String], emptied: Emptied) {
    let [name, rest @ ..] = steps else { return };
    match value {
        Value::Object(map) if rest.is_empty() => {
            map.remove(name);
        }
        Value::Object(map) => {
            let Some(inner) = map.get_mut(name) else { return };
            take(inner, rest, emptied);
            if emptied == Emptied::Gone && inner.as_object().is_some_and(Map::is_empty) {
                map.remove(name);
            }
        }
        Value::Array(list) => {
            let Some(at) = index(name).filter(|at| *at < list.len()) else { return };
            if rest.is_empty() {
                list.remove(at);
            } else {
                take(&mut list[at], rest, emptied);
            }
        }
        _ => {}
    }
}

/// One step into an object or a list.
fn step<'a>(value: &'a Value, name: &String) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(name),
        Value::Array(list) => list.get(index(name)?),
        _ => None,
    }
}

fn index(name: &str) -> Option<usize> {
    name.parse().ok().filter(|_| name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// An object for comparing: without the fields, and without the maps that have nothing else.
pub(crate) fn without(object: &Value, fields: &[Pointer]) -> Value {
    let mut object = object.clone();
    take_all(&mut object, fields, Emptied::Gone);
    object
}

/// Takes out fields; later ones of a list first, so that those before them stay where they are.
fn take_all(object: &mut Value, fields: &[Pointer], emptied: Emptied) {
    let mut fields: Vec<&Pointer> = fields.iter().collect();
    fields.sort_by_cached_key(|field| {
        field.0.iter().map(|step| (index(step), step.clone())).collect::<Vec<_>>()
    });
    fields.dedup();
    for field in fields.into_iter().rev() {
        take(object, &field.0, emptied);
    }
}

/// Makes what is sent leave ignored fields as they are on the live object. A field that another manager applies is left
/// out; else it is sent as it is, where it is sent at all or was ours before, and left out where the live object has it not.
pub(crate) fn leave(body: &mut Value, live: &Value, fields: &[Pointer]) {
    let managers = Managers::of(live);
    // Where an element of a list is left out, the places of those after it change; the last ones go first.
    let mut out = Vec::new();
    for field in fields {
        let Some(here) = same_place(body, live, field) else { continue };
        match field.get(live) {
            Some(_) if managers.others_apply(live, field) => out.push(here),
            Some(value) if here.get(body).is_some() || managers.we_apply(live, field) => {
                put(body, &here, value);
            }
            Some(_) => {}
            None => out.push(here),
        }
    }
    take_all(body, &out, Emptied::Kept);
}

/// Where a field of the live object is in what is sent: elements of lists that have a name are found by it, as the
/// apiserver merges them, for their order need not be the same. `None` where there is no such element.
fn same_place(body: &Value, live: &Value, field: &Pointer) -> Option<Pointer> {
    let (mut there, mut here) = (Some(live), Some(body));
    let mut steps = Vec::with_capacity(field.0.len());
    for name in &field.0 {
        let mut name_here = name.clone();
        if let Some(Value::Array(list)) = here {
            let wanted = there.and_then(|there| step(there, name)?.get("name"));
            let at = match wanted {
                Some(wanted) => list.iter().position(|element| element.get("name") == Some(wanted)),
                None => index(name).filter(|at| *at < list.len()),
            };
            name_here = at?.to_string();
        }
        there = there.and_then(|there| step(there, name));
        here = here.and_then(|here| step(here, &name_here));
        steps.push(name_here);
    }
    Some(Pointer(steps))
}

/// Sets a field, and creates the maps that it is in; does nothing where a scalar is in the way or a list is too short.
fn put(body: &mut Value, field: &Pointer, value: &Value) {
    let Some((last, parents)) = field.0.split_last() else { return };
    let mut at = body;
    for name in parents {
        let next = match at {
            Value::Object(map) => Some(map.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()))),
            Value::Array(list) => index(name).and_then(|at| list.get_mut(at)),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    match at {
        Value::Object(map) => {
            map.insert(last.clone(), value.clone());
        }
        Value::Array(list) => {
            if let Some(element) = index(last).and_then(|at| list.get_mut(at)) {
                *element = value.clone();
            }
        }
        _ => {}
    }
}

/// What each manager applies of an object; entries of updates and of subresources do not count.
struct Managers<'a>(Vec<(&'a str, &'a Value)>);

impl<'a> Managers<'a> {
    fn of(live: &'a Value) -> Self {
        let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
        let text = |entry: &'a Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let applied = entries
            .into_iter()
            .flatten()
            .filter(|entry| text(entry, "operation") == "Apply" && text(entry, "subresource").is_empty());
        Self(applied.filter_map(|entry| Some((text(entry, "manager"), entry.get("fieldsV1")?))).collect())
    }

    fn others_apply(&self, live: &Value, field: &Pointer) -> bool {
        self.0.iter().any(|(manager, fields)| *manager != FIELD_MANAGER && has(fields, live, field))
    }

    fn we_apply(&self, live: &Value, field: &Pointer) -> bool {
        self.0.iter().any(|(manager, fields)| *manager == FIELD_MANAGER && has(fields, live, field))
    }
}

/// Whether `fieldsV1` has a field, or something within it. An element of a list is there by its keys, or its value.
fn has(fields: &Value, live: &Value, field: &Pointer) -> bool {
    let (mut fields, mut live) = (fields, Some(live));
    for name in &field.0 {
        let element = live.and_then(|live| step(live, name));
        let found = match live {
            Some(Value::Array(_)) => element.and_then(|element| entry_of(fields, element)),
            _ => fields.get(format!("f:{name}")),
        };
        let Some(found) = found else { return false };
        (fields, live) = (found, element);
    }
    true
}

/// What `fieldsV1` has of an element of a list.
fn entry_of<'a>(fields: &'a Value, element: &Value) -> Option<&'a Value> {
    let entries = fields.as_object()?.iter();
    entries.into_iter().find(|(key, _)| is_of(key, element)).map(|(_, found)| found)
}

fn is_of(key: &str, element: &Value) -> bool {
    if let Some(keys) = key.strip_prefix("k:") {
        let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { return false };
        return keys.iter().all(|(key, value)| element.get(key) == Some(value));
    }
    key.strip_prefix("v:")
        .is_some_and(|value| serde_json::from_str::<Value>(value).is_ok_and(|value| value == *element))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Pointer, leave, without};

    fn fields(paths: &[&str]) -> Vec<Pointer> {
        paths.iter().map(|path| Pointer::parse(path).unwrap()).collect()
    }

    fn managed(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": operation, "fieldsV1": fields })
    }

    fn left(mut body: Value, live: &Value, paths: &[&str]) -> Value {
        leave(&mut body, live, &fields(paths));
        body
    }

    #[test]
    fn pointers() {
        let object = |m: &Value| {
            let mut object = json!({ "a": { "b/c": 1, "d~e": 2, "": 3 }, "l": [1, 2, 3, { "x": 1 }] });
            if !m.is_null() {
                object["m"] = m.clone();
            }
            object
        };
        let object_m = object(&json!({ "n": { "o": 1 } }));
        let object = object(&Value::Null);
        for (path, want) in [
            ("/a/b~1c", json!({ "a": { "d~e": 2, "": 3 }, "l": [1, 2, 3, { "x": 1 }] })),
            ("/a/d~0e", json!({ "a": { "b/c": 1, "": 3 }, "l": [1, 2, 3, { "x": 1 }] })),
            ("/a/", json!({ "a": { "b/c": 1, "d~e": 2 }, "l": [1, 2, 3, { "x": 1 }] })),
            ("/l/3/x", json!({ "a": { "b/c": 1, "d~e": 2, "": 3 }, "l": [1, 2, 3, {}] })),
            ("/m/n/o", json!({ "a": { "b/c": 1, "d~e": 2, "": 3 }, "l": [1, 2, 3, { "x": 1 }] })),
            ("/l", json!({ "a": { "b/c": 1, "d~e": 2, "": 3 } })),
        ] {
            let object = if path.starts_with("/m") { &object_m } else { &object };
            assert_eq!(without(object, &fields(&[path])), want, "{path}");
        }
        for path in ["/none", "/a/b", "/l/9", "/l/x", "/l/-", "/l/+1", "/a/b~1c/x"] {
            assert_eq!(without(&object, &fields(&[path])), object, "{path}");
        }
        // The places are those before anything is taken out.
        let removed = without(&object, &fields(&["/l/0", "/l/2", "/l/0", "/l/3"]));
        assert_eq!(removed["l"], json!([2]));
        let long = json!((0..12).collect::<Vec<_>>());
        assert_eq!(without(&long, &fields(&["/2", "/10"])), json!([0, 1, 3, 4, 5, 6, 7, 8, 9, 11]));
    }

    #[test]
    fn a_field_stays_as_it_is() {
        let body = json!({ "spec": { "replicas": 1, "x": 1 } });
        let live = json!({ "spec": { "replicas": 5, "x": 0 } });
        assert_eq!(
            left(body.clone(), &live, &["/spec/replicas"]),
            json!({ "spec": { "replicas": 5, "x": 1 } })
        );
        // Somebody took it out.
        assert_eq!(left(body, &json!({ "spec": {} }), &["/spec/replicas"]), json!({ "spec": { "x": 1 } }));
    }

    #[test]
    fn what_another_applies_is_left_out() {
        let body = json!({ "spec": { "replicas": 1, "x": 1 } });
        let live = |operation: &str, manager: &str| {
            let entry = managed(manager, operation, &json!({ "f:spec": { "f:replicas": {} } }));
            json!({ "spec": { "replicas": 5 }, "metadata": { "managedFields": [entry] } })
        };
        let path = ["/spec/replicas"];
        assert_eq!(left(body.clone(), &live("Apply", "other"), &path), json!({ "spec": { "x": 1 } }));
        // An update owns nothing that we would take, and what is ours is ours.
        for (operation, manager) in [("Update", "other"), ("Apply", crate::FIELD_MANAGER)] {
            let want = json!({ "spec": { "replicas": 5, "x": 1 } });
            assert_eq!(left(body.clone(), &live(operation, manager), &path), want, "{operation}");
        }
    }

    #[test]
    fn what_is_no_longer_wanted_stays_where_it_was_ours() {
        let live = |manager: &str| {
            let entry = managed(manager, "Apply", &json!({ "f:spec": { "f:a": { "f:b": {} } } }));
            json!({ "spec": { "a": { "b": 5 } }, "metadata": { "managedFields": [entry] } })
        };
        let body = json!({ "spec": {} });
        assert_eq!(
            left(body.clone(), &live(crate::FIELD_MANAGER), &["/spec/a/b"]),
            json!({ "spec": { "a": { "b": 5 } } })
        );
        assert_eq!(left(body.clone(), &live("other"), &["/spec/a/b"]), body);
    }

    #[test]
    fn elements_of_lists_are_found_by_their_names() {
        let live = json!({ "c": [{ "name": "sidecar", "r": 9 }, { "name": "app", "r": 5 }], "metadata": { "managedFields": [
            managed("other", "Apply", &json!({ "f:c": { r#"k:{"name":"sidecar"}"#: { "f:r": {} } } })),
        ] } });
        let body = json!({ "c": [{ "name": "app", "r": 1 }] });
        assert_eq!(left(body.clone(), &live, &["/c/1/r"]), json!({ "c": [{ "name": "app", "r": 5 }] }));
        assert_eq!(left(body.clone(), &live, &["/c/0/r"]), body);
        let both = json!({ "c": [{ "name": "app", "r": 1 }, { "name": "sidecar", "r": 1, "x": 1 }] });
        let want = json!({ "c": [{ "name": "app", "r": 5 }, { "name": "sidecar", "x": 1 }] });
        assert_eq!(left(both, &live, &["/c/0/r", "/c/1/r"]), want);
    }
}
