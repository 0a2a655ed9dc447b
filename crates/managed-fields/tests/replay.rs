//! What k8s.io/apimachinery's own library makes of several hundred sequences of writes, replayed.
//!
//! `oracle/` makes the cases and `oracle/regenerate.sh` runs it. `ROADSTEAD_CASES=<file>` replays another file.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};

use roadstead_managed_fields::{Error, Options, Schema, Versions, apply, update};
use serde_json::{Map, Value, json};

const GROUP: &str = "oracle.roadstead.dev";

/// The two versions of the oracle's kind: they name one field differently.
struct Things {
    schemas: BTreeMap<String, Schema>,
}

impl Things {
    fn new() -> Self {
        let all: Value = serde_json::from_str(include_str!("../oracle/schemas.json")).unwrap();
        let mut other = all["v1"].clone();
        let properties = other["properties"]["spec"]["properties"].as_object_mut().unwrap();
        let renamed = properties.remove("oldName").unwrap();
        properties.insert("newName".to_owned(), renamed);
        let schemas = [("v1", &all["v1"]), ("v2", &other)];
        let schemas = schemas.map(|(version, schema)| (format!("{GROUP}/{version}"), Schema::new(schema)));
        Self { schemas: schemas.into() }
    }
}

impl Versions for Things {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.schemas.get(api_version)
    }

    fn convert(&self, object: &Value, _from: &str, to: &str) -> Option<Value> {
        let mut object = object.clone();
        convert(&mut object, to.rsplit('/').next()?);
        Some(object)
    }
}

fn convert(object: &mut Value, version: &str) {
    object["apiVersion"] = format!("{GROUP}/{version}").into();
    let (from, to) = if version == "v1" { ("newName", "oldName") } else { ("oldName", "newName") };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
}

/// What a registry does after: see `finish` of the oracle.
fn finish(mut result: Value, live: Option<&Value>, subresource: &str) -> Value {
    if !result["metadata"].is_object() {
        result["metadata"] = json!({});
    }
    let fields = result.as_object_mut().unwrap();
    let status = fields.remove("status");
    if subresource == "status" {
        let entries = fields["metadata"].as_object_mut().unwrap().remove("managedFields");
        let mut out = live.unwrap().clone();
        out["metadata"].as_object_mut().unwrap().remove("managedFields");
        if let Some(entries) = entries {
            out["metadata"]["managedFields"] = entries;
        }
        out.as_object_mut().unwrap().remove("status");
        if let Some(status) = status {
            out["status"] = status;
        }
        return out;
    }
    if let Some(status) = live.and_then(|live| live.get("status")).filter(|status| !status.is_null()) {
        fields.insert("status".to_owned(), status.clone());
    }
    result["metadata"]["uid"] = "0000".into();
    result
}

fn take(things: &Things, step: &Value, live: Option<&Value>) -> Result<Value, Error> {
    let text = |field: &str| step[field].as_str().unwrap_or_default();
    let api_version = format!("{GROUP}/{}", text("version"));
    let subresource = text("subresource");
    let options = Options {
        manager: text("manager"),
        api_version: &api_version,
        subresource,
        excluded: if subresource == "status" { &["metadata", "spec"] } else { &["status"] },
        force: step["force"].as_bool().unwrap_or_default(),
        time: text("time").parse().unwrap(),
    };
    let mut before = live.cloned().unwrap_or_else(|| json!({ "kind": "Thing" }));
    convert(&mut before, text("version"));
    let mut result = if text("operation") == "Apply" {
        apply(&before, &step["input"], &options, things)?
    } else {
        let mut after = step["input"].clone();
        update(&before, &mut after, &options, things)?;
        after
    };
    convert(&mut result, "v1");
    Ok(finish(result, live, subresource))
}

/// Numbers by what they are worth: 1.0 is 1.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => json!(float as i64),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), plain(value))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Where two values differ.
fn differences(out: &mut String, at: &str, have: &Value, want: &Value) {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            let keys: BTreeSet<&String> = have.keys().chain(want.keys()).collect();
            for key in keys {
                let of =
                    |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_else(|| "(nothing)".into());
                differences(out, &format!("{at}/{key}"), &of(have), &of(want));
            }
        }
        (Value::Array(have), Value::Array(want)) if have.len() == want.len() => {
            for (i, (have, want)) in have.iter().zip(want).enumerate() {
                differences(out, &format!("{at}/{i}"), have, want);
            }
        }
        _ if have != want => *out += &format!("\n  {at}: have {have}, want {want}"),
        _ => {}
    }
}

fn check(things: &Things, step: &Value, live: Option<&Value>) -> Result<Option<Value>, String> {
    let wanted = step.get("object");
    // The original refuses an object whose lists have items twice once it has to look at it in another version, and takes
    // it otherwise. Here it is taken in either case.
    if step["error"]
        .as_str()
        .is_some_and(|why| why.contains("duplicate entries") && !why.contains("typed patch"))
    {
        return Ok(None);
    }
    match take(things, step, live) {
        Ok(object) => match wanted {
            Some(wanted) if plain(wanted) == plain(&object) => Ok(Some(object)),
            _ => {
                let mut out = format!("{} of {}:", step["operation"], step["manager"]);
                differences(&mut out, "", &plain(&object), &plain(wanted.unwrap_or(step)));
                Err(out)
            }
        },
        Err(Error::Conflicts(conflicts)) if !step["conflict"].is_null() => {
            // Without an order among managers in the original.
            let causes = |list: Vec<Value>| {
                let mut texts: Vec<String> = list.iter().map(Value::to_string).collect();
                texts.sort();
                texts
            };
            let have = causes(conflicts.0.iter().map(|c| json!([c.message(), c.path.to_string()])).collect());
            let want = causes(step["causes"].as_array().cloned().unwrap_or_default());
            if conflicts.to_string() == step["conflict"] && have == want {
                return Ok(None);
            }
            Err(format!("have {conflicts}\n{have:?}\n  want {step}"))
        }
        Err(Error::Conflicts(conflicts)) => {
            Err(format!("have {conflicts}, want {step}\n  live {}", live.unwrap_or(&Value::Null)))
        }
        Err(_) if !step["error"].is_null() => Ok(None),
        Err(error) => Err(format!("have {error}, want {step}")),
    }
}

#[test]
fn as_the_original_does() {
    let text = match std::env::var_os("ROADSTEAD_CASES") {
        Some(path) => std::fs::read_to_string(path).unwrap(),
        None => include_str!("cases.jsonl").to_owned(),
    };
    let things = Things::new();
    let (mut cases, mut steps, mut conflicts, mut errors) = (0, 0, 0, 0);
    let mut failures = Vec::new();
    for line in text.lines() {
        cases += 1;
        let case: Vec<Value> = serde_json::from_str(line).unwrap();
        let mut live: Option<Value> = None;
        for (at, step) in case.iter().enumerate() {
            steps += 1;
            conflicts += usize::from(!step["conflict"].is_null());
            errors += usize::from(!step["error"].is_null());
            match check(&things, step, live.as_ref()) {
                Ok(Some(object)) => live = Some(object),
                Ok(None) => {}
                Err(why) => {
                    failures.push(format!("case {cases}, step {}: {why}", at + 1));
                    break;
                }
            }
        }
    }
    println!("{cases} cases, {steps} writes, {conflicts} conflicts, {errors} errors");
    assert!(cases >= 200 && conflicts > 40 && errors > 10, "the cases are too few or too tame");
    assert!(
        failures.is_empty(),
        "{} cases differ; the first:\n{}",
        failures.len(),
        failures[..failures.len().min(12)].join("\n")
    );
}
