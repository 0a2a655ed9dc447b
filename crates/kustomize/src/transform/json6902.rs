//! JSON patches (RFC 6902), as the library that kustomize uses applies them: with negative indices, a replacement also of a
//! key that is not there, and a copy of nothing as a null.

use crate::budget::{Budget, Size};
use crate::value::{NullForm, Value};

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operation {
    op: Op,
    path: String,
    /// Of the value that comes with it.
    size: Size,
}

#[derive(Debug, Clone, PartialEq)]
enum Op {
    Add(Value),
    Remove,
    Replace(Value),
    Move(String),
    Copy(String),
    Test(Value),
}

/// Reads a patch.
pub(super) fn parse(operations: &[Value]) -> Result<Vec<Operation>, String> {
    operations
        .iter()
        .enumerate()
        .map(|(i, value)| one(value).map_err(|message| format!("operation {i}: {message}")))
        .collect()
}

fn one(value: &Value) -> Result<Operation, String> {
    let Value::Map(map) = value else {
        return Err(format!("a mapping is needed, not {}", value.type_name()));
    };
    let text = |key: &str| {
        let value = map.get(key).ok_or_else(|| format!("{key} is missing"))?;
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{key} must be a string"))
    };
    let value = || map.get("value").cloned().unwrap_or(Value::Null(NullForm::Written));
    let op = match text("op")?.as_str() {
        "add" => Op::Add(value()),
        "remove" => Op::Remove,
        "replace" => Op::Replace(value()),
        "move" => Op::Move(text("from")?),
        "copy" => Op::Copy(text("from")?),
        "test" => Op::Test(value()),
        _ => return Err("op is not one of add, remove, replace, move, copy, test".into()),
    };
    let size = match &op {
        Op::Add(value) | Op::Replace(value) | Op::Test(value) => Size::of(value),
        Op::Remove | Op::Move(_) | Op::Copy(_) => Size::default(),
    };
    Ok(Operation { op, path: text("path")?, size })
}

/// Applies a patch.
pub(super) fn apply(operations: &[Operation], target: &mut Value, budget: &Budget) -> Result<(), String> {
    for (i, operation) in operations.iter().enumerate() {
        step(operation, target, budget)
            .map_err(|message| format!("operation {i} ({}): {message}", operation.path))?;
    }
    Ok(())
}

/// A path from its first slash on: what stands before that is dropped, as the library of kustomize does.
fn from_slash(path: &str) -> Result<&str, String> {
    match path.find('/') {
        Some(at) => Ok(&path[at..]),
        None if path.is_empty() => Ok(path),
        None => Err("a path has a '/' in it".into()),
    }
}

fn step(operation: &Operation, target: &mut Value, budget: &Budget) -> Result<(), String> {
    let path = from_slash(&operation.path)?;
    let depth = path.bytes().filter(|byte| *byte == b'/').count();
    // Each part of the path is looked for.
    budget.work(1 + depth)?;
    match &operation.op {
        Op::Add(value) => {
            budget.put(operation.size, depth)?;
            add(target, path, value.clone(), budget)
        }
        Op::Remove => remove(target, path, budget).map(drop),
        Op::Replace(value) => {
            budget.put(operation.size, depth)?;
            replace(target, path, value.clone(), budget)
        }
        Op::Move(from) => {
            let value = remove(target, from_slash(from)?, budget)?;
            budget.put(Size::of(&value), depth)?;
            add(target, path, value, budget)
        }
        Op::Copy(from) => {
            let value = copy(target, from_slash(from)?, budget, depth)?;
            add(target, path, value, budget)
        }
        Op::Test(wanted) => {
            let (above, last) = parent(target, path).map_err(|message| format!("test failed: {message}"))?;
            let found = match above {
                Value::Map(map) => map.get(&last),
                Value::List(items) => Some(&items[index(&last, items.len())?]),
                other => return Err(format!("test failed: {last:?} not found in {}", other.type_name())),
            };
            budget.work(operation.size.nodes + found.map_or(0, |found| Size::of(found).nodes))?;
            match found {
                Some(found) if same(found, wanted) => Ok(()),
                None if wanted.is_null() => Ok(()),
                // Neither value is said: they may be a Secret's.
                Some(_) => Err("test failed: the value is different".into()),
                None => Err(format!("test failed: {last:?} not found")),
            }
        }
    }
}

/// Do two values mean the same JSON?
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null(_), Value::Null(_)) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => a.num.canonical() == b.num.canonical(),
        (Value::String(a), Value::String(b)) => a == b,
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.0 == b.0 && same(&a.1, &b.1))
        }
        _ => false,
    }
}

fn replace(target: &mut Value, path: &str, value: Value, budget: &Budget) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (above, last) = parent(target, path)?;
    match above {
        Value::Map(map) => {
            shift(map.len(), budget)?;
            map.insert(last, value);
        }
        Value::List(items) => {
            let i = index(&last, items.len())?;
            items[i] = value;
        }
        other => return Err(format!("{last:?} not found in {}", other.type_name())),
    }
    Ok(())
}

/// What stands at a path; a null for a key that is not there.
fn copy(target: &mut Value, path: &str, budget: &Budget, depth: usize) -> Result<Value, String> {
    let (above, last) = parent(target, path)?;
    let found = match above {
        Value::Map(map) => map.get(&last),
        Value::List(items) => Some(&items[index(&last, items.len())?]),
        other => return Err(format!("{last:?} not found in {}", other.type_name())),
    };
    let Some(found) = found else { return Ok(Value::Null(NullForm::Written)) };
    budget.put(Size::of(found), depth)?;
    Ok(found.clone())
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The parent of a path and the last part.
fn parent<'v>(target: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), String> {
    let Some((above, last)) = path.rsplit_once('/') else {
        return Err("a path starts with '/'".into());
    };
    Ok((find(target, above)?, unescape(last)))
}

fn find<'v>(target: &'v mut Value, path: &str) -> Result<&'v mut Value, String> {
    if path.is_empty() {
        return Ok(target);
    }
    let Some(parts) = path.strip_prefix('/') else {
        return Err("a path starts with '/'".into());
    };
    let mut at = target;
    for part in parts.split('/') {
        let part = unescape(part);
        at = match at {
            Value::Map(map) => map.get_mut(&part).ok_or_else(|| format!("{part:?} not found"))?,
            Value::List(items) => {
                let i = index(&part, items.len())?;
                &mut items[i]
            }
            other => return Err(format!("{part:?} not found in {}", other.type_name())),
        };
    }
    Ok(at)
}

/// An index of a list that must be there; negative ones count from the end.
fn index(part: &str, len: usize) -> Result<usize, String> {
    let outside = || format!("index {part} is out of range for a list of {len}");
    let number: i64 = part.parse().map_err(|_| format!("{part:?} is not a list index"))?;
    let from_end = usize::try_from(number.unsigned_abs()).map_err(|_| outside())?;
    let i = if number < 0 { len.checked_sub(from_end).ok_or_else(outside)? } else { from_end };
    if i < len { Ok(i) } else { Err(outside()) }
}

/// Counts what moves when an element comes or goes.
fn shift(len: usize, budget: &Budget) -> Result<(), String> {
    budget.work(len / 16)
}

fn add(target: &mut Value, path: &str, value: Value, budget: &Budget) -> Result<(), String> {
    if path.is_empty() {
        return Err("the whole object cannot be the target of add; use replace".into());
    }
    let (above, last) = parent(target, path)?;
    match above {
        Value::Map(map) => {
            shift(map.len(), budget)?;
            map.insert(last, value);
            Ok(())
        }
        Value::List(items) => {
            // One more place than there are items; -1 is the end.
            let i = if last == "-" { items.len() } else { index(&last, items.len() + 1)? };
            shift(items.len() - i, budget)?;
            items.insert(i, value);
            Ok(())
        }
        other => Err(format!("{last:?} not found in {}", other.type_name())),
    }
}

fn remove(target: &mut Value, path: &str, budget: &Budget) -> Result<Value, String> {
    let (above, last) = parent(target, path)?;
    match above {
        Value::Map(map) => {
            shift(map.len(), budget)?;
            map.remove(&last).ok_or_else(|| format!("{last:?} not found"))
        }
        Value::List(items) => {
            let i = index(&last, items.len())?;
            shift(items.len() - i, budget)?;
            Ok(items.remove(i))
        }
        other => Err(format!("{last:?} not found in {}", other.type_name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn run(target: &serde_json::Value, patch: &serde_json::Value) -> Result<serde_json::Value, String> {
        let mut value = Value::from_json(target);
        let Value::List(patch) = Value::from_json(patch) else { return Err("no list".into()) };
        apply(&parse(&patch)?, &mut value, &Budget::new(&Limits::default()))?;
        Ok(value.to_json())
    }

    #[test]
    fn operations() {
        use serde_json::json;
        let target = || json!({"a": [1, 2], "b/c": {"d": 1}});
        let cases = [
            (json!([{"op": "add", "path": "/a/-", "value": 3}]), json!({"a": [1, 2, 3], "b/c": {"d": 1}})),
            (json!([{"op": "add", "path": "/a/0", "value": 0}]), json!({"a": [0, 1, 2], "b/c": {"d": 1}})),
            (
                json!([{"op": "replace", "path": "/b~1c/d", "value": "x"}]),
                json!({"a": [1, 2], "b/c": {"d": "x"}}),
            ),
            (json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1], "b/c": {"d": 1}})),
            (json!([{"op": "move", "from": "/a", "path": "/z"}]), json!({"z": [1, 2], "b/c": {"d": 1}})),
            (json!([{"op": "test", "path": "/a/0", "value": 1}]), target()),
            (
                json!([{"op": "replace", "path": "/n", "value": 1}]),
                json!({"a": [1, 2], "b/c": {"d": 1}, "n": 1}),
            ),
            (
                json!([{"op": "copy", "from": "/none", "path": "/n"}]),
                json!({"a": [1, 2], "b/c": {"d": 1}, "n": null}),
            ),
        ];
        for (patch, want) in cases {
            assert_eq!(run(&target(), &patch).unwrap(), want, "{patch}");
        }
        for patch in [
            json!([{"op": "remove", "path": "/none"}]),
            json!([{"op": "replace", "path": "/a/9", "value": 1}]),
            json!([{"op": "replace", "path": "/none/x", "value": 1}]),
            json!([{"op": "move", "from": "/none", "path": "/x"}]),
            json!([{"op": "add", "path": "/none/x", "value": 1}]),
            json!([{"op": "add", "path": "/a/9", "value": 1}]),
            json!([{"op": "test", "path": "/a/0", "value": 2}]),
            json!([{"op": "frob", "path": "/a"}]),
            json!([{"op": "add"}]),
            json!(["x"]),
        ] {
            assert!(run(&target(), &patch).is_err(), "{patch}");
        }
    }
}
