//! `vars`: values of fields, put where `$(NAME)` stands.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;

use crate::budget::Budget;
use crate::error::Error;
use crate::fields::Fields;
use crate::fieldspec::{Create, FieldSpec};
use crate::resource::{Id, Resource};
use crate::resources::Resources;
use crate::value::{Map, Num, Str, Text, Value};
use crate::yaml::plain_value;

/// An entry of `vars`: a name for a field of an object.
#[derive(Debug, Clone)]
pub(crate) struct Var {
    name: Str,
    group: String,
    version: String,
    kind: String,
    object: String,
    /// Empty for any.
    namespace: String,
    path: String,
}

impl Var {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let name = f.text("name")?.into();
        let object = f.map("objref", |f| {
            let mut version = f.text("version")?;
            let mut group = f.text("group")?;
            let api_version = f.text("apiVersion")?;
            match api_version.split('/').collect::<Vec<_>>().as_slice() {
                [""] => {}
                [v] => version = (*v).to_owned(),
                [g, v] => (group, version) = ((*g).to_owned(), (*v).to_owned()),
                _ => {}
            }
            Ok([group, version, f.text("kind")?, f.text("name")?, f.text("namespace")?])
        })?;
        let [group, version, kind, object, namespace] = object.unwrap_or_default();
        let path = f.map("fieldref", |f| f.text("fieldPath"))?.unwrap_or_default();
        let path = if path.is_empty() { "metadata.name".to_owned() } else { path };
        Ok(Self { name, group, version, kind, object, namespace, path })
    }

    fn names(&self, id: &Id) -> bool {
        *id.name == *self.object
            && *id.gvk.group == *self.group
            && *id.gvk.version == *self.version
            && *id.gvk.kind == *self.kind
            && (self.namespace.is_empty() || *id.effective_namespace == *self.namespace)
    }

    /// Notes the var in the object that it names, if that is there yet.
    pub(crate) fn mark(&self, objects: &mut Resources) -> Result<(), String> {
        let named = objects.by_name(&self.object).to_vec();
        let fits = |at: &usize| objects.get(*at).all_ids().any(|id| self.names(id));
        let found: Vec<usize> = named.into_iter().filter(fits).collect();
        match found.as_slice() {
            [] => Ok(()),
            [at] => {
                objects.get_mut(*at).vars.push(self.name.clone());
                Ok(())
            }
            several => {
                let ids: Vec<String> = several.iter().map(|at| objects.get(*at).id().to_string()).collect();
                Err(format!("var {} could take its value from any of {}", self.name, ids.join(", ")))
            }
        }
    }
}

/// The vars of a kustomization and of its bases.
#[derive(Debug, Default)]
pub(crate) struct Vars {
    by_name: BTreeMap<Str, Var>,
}

impl Vars {
    /// Adds a var; its name must be new.
    pub(crate) fn add(&mut self, var: Var) -> Result<(), String> {
        match self.by_name.insert(var.name.clone(), var) {
            None => Ok(()),
            Some(other) => Err(format!("duplicate var {}", other.name)),
        }
    }

    pub(crate) fn append(&mut self, others: Self) -> Result<(), String> {
        others.by_name.into_values().try_for_each(|var| self.add(var))
    }

    /// Puts the values of all vars into the fields that may refer to them.
    pub(crate) fn resolve(
        &self,
        specs: &[FieldSpec],
        budget: &Budget,
        objects: &mut Resources,
    ) -> Result<(), String> {
        if self.by_name.is_empty() {
            return Ok(());
        }
        let values = self.values(objects)?;
        for resource in objects.list_mut() {
            let id = resource.id().clone();
            let with = With { values: &values, budget };
            let result = resource.edit(|object| {
                specs
                    .iter()
                    .filter(|spec| spec.matches(&id.gvk))
                    .try_for_each(|spec| spec.apply(object, Create::Nothing, &mut |value| with.set(value)))
            });
            result.map_err(|message| format!("{id}: {message}"))?;
            resource.refresh();
        }
        Ok(())
    }

    fn values(&self, objects: &Resources) -> Result<HashMap<Str, Typed>, String> {
        let mut marked: HashMap<&Str, &Resource> = HashMap::new();
        for resource in objects.iter() {
            for name in &resource.vars {
                marked.entry(name).or_insert(resource);
            }
        }
        let value = |var: &Var| {
            let Some(resource) = marked.get(&var.name) else {
                let Var { name, kind, object, .. } = var;
                return Err(format!(
                    "var {name}: {kind} {object:?}, from which it takes its value, was not found"
                ));
            };
            let value = lookup(resource.value(), &var.path).and_then(Typed::new);
            let value = value
                .ok_or_else(|| format!("var {}: {} has no field {}", var.name, resource.id(), var.path))?;
            Ok((var.name.clone(), value))
        };
        self.by_name.values().map(value).collect()
    }
}

/// What a var stands for.
struct Typed {
    /// In the place of a text that is nothing but a reference to it.
    whole: Value,
    /// Inside of a text; `None` for lists and mappings, which no text can hold.
    part: Option<Str>,
}

impl Typed {
    /// The value that Go makes of a scalar; `None` for a number that it cannot read.
    fn new(value: &Value) -> Option<Self> {
        let (whole, part) = match value {
            Value::Number(number) => {
                let is_float = matches!(number.num, Num::Float(_));
                match number.text.parse::<i64>() {
                    // `-0` is an integer to Go.
                    Ok(int) if !is_float || int == 0 => (Value::int(int), int.to_string().into()),
                    // Go has no number for what only fits 64 bits without a sign.
                    Err(_) if number.text.parse::<u64>().is_ok() => return None,
                    // A float, by its tag perhaps, and so is a large integer that came by JSON.
                    _ => {
                        let text = if is_float {
                            without_underscores(&number.text)?
                        } else {
                            (&*number.text).into()
                        };
                        let float: f64 = text.parse().ok()?;
                        (plain_value(&float.to_string()), general(float).into())
                    }
                }
            }
            Value::Null(_) => {
                let text = value.scalar_text()?;
                (Value::string(text.clone()), text)
            }
            Value::String(text) => (Value::string(text.as_shared().clone()), text.as_shared().clone()),
            other => return Some(Self { whole: other.clone(), part: other.scalar_text() }),
        };
        Some(Self { whole, part: Some(part) })
    }
}

/// The text of a float without the underscores that Go allows between digits; `None` where others are in it.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(text.into());
    }
    let is_digit =
        |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let between_digits = |(at, _): (usize, &str)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    text.match_indices('_').all(between_digits).then(|| text.replace('_', "").into())
}

/// Follows a path as `spec.ports[0].port` or `metadata.annotations.[a.b/c]`.
fn lookup<'v>(object: &'v Map, path: &str) -> Option<&'v Value> {
    let parts = split(path);
    let (first, rest) = parts.split_first()?;
    rest.iter().try_fold(object.get(first)?, |value, part| step(value, part))
}

fn step<'v>(value: &'v Value, part: &str) -> Option<&'v Value> {
    if let Ok(index) = part.parse::<i64>() {
        let Value::List(items) = value else { return None };
        return items.get(usize::try_from(index).ok()?);
    }
    if part == "-" {
        let Value::List(items) = value else { return None };
        return items.last();
    }
    let Some(inner) = part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) else {
        return value.as_map()?.get(part);
    };
    let (key, wanted) = inner.split_once('=')?;
    let Value::List(items) = value else { return None };
    items.iter().find(|item| {
        let found = if key.is_empty() { Some(*item) } else { item.as_map().and_then(|map| map.get(key)) };
        found.and_then(Value::scalar_text).is_some_and(|text| *text == *wanted)
    })
}

/// The keys of a path. Dots part them, unless escaped or in brackets; `a[0]` is two of them.
fn split(path: &str) -> Vec<String> {
    let mut raw: Vec<String> = Vec::new();
    for part in path.split('.') {
        match raw.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push('.');
                last.push_str(part);
            }
            _ => raw.push(part.to_owned()),
        }
    }
    let mut out = Vec::new();
    let mut parts = raw.into_iter();
    while let Some(mut part) = parts.next() {
        if part.starts_with('[') && !part.ends_with(']') {
            for next in parts.by_ref() {
                part.push('.');
                part.push_str(&next);
                if part.ends_with(']') {
                    break;
                }
            }
            if !part.contains('=') {
                part = part.trim_matches(['[', ']']).to_owned();
            }
        }
        let index = part.strip_suffix(']').and_then(|part| part.rsplit_once('['));
        match index {
            Some((name, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                out.extend(Some(name.to_owned()).filter(|name| !name.is_empty()));
                out.push(digits.to_owned());
            }
            _ => out.push(part),
        }
    }
    out.retain(|part| !part.trim().is_empty());
    out
}

/// What the fields of an object may be set to.
struct With<'w> {
    values: &'w HashMap<Str, Typed>,
    budget: &'w Budget,
}

impl With<'_> {
    fn set(&self, value: &mut Value) -> Result<(), String> {
        match value {
            Value::String(text) if !text.is_time() => *value = self.replaced(text)?,
            Value::Map(map) => {
                for (_, value) in map.values_mut() {
                    if let Value::String(text) = value
                        && !text.is_time()
                    {
                        *value = self.replaced(text)?;
                    }
                }
            }
            Value::List(items) => {
                for item in items {
                    let Value::String(text) = item else {
                        return Err(format!(
                            "a list that may refer to vars holds strings only, not {}",
                            item.type_name()
                        ));
                    };
                    *item = self.replaced(text)?;
                }
            }
            Value::String(_) | Value::Null(_) | Value::Bool(_) | Value::Number(_) => {}
        }
        Ok(())
    }

    /// The text set again: it is not folded any more.
    fn replaced(&self, text: &Text) -> Result<Value, String> {
        replace(text.as_shared(), self.values, self.budget)
    }
}

/// Resolves all references in a text. A text that is one reference becomes the value with its type.
///
/// Every reference is counted before its value is put in: a text of nothing but references to a long value is
/// thousands of times as long afterwards.
fn replace(text: &Str, values: &HashMap<Str, Typed>, budget: &Budget) -> Result<Value, String> {
    /// The text grows by doubling, and is then copied into the object, as base64 at worst.
    const COPIES: usize = 5;
    if !text.contains('$') {
        return Ok(Value::string(text.clone()));
    }
    budget.make(text.len())?;
    let mut building = budget.hold(COPIES * text.len())?;
    let mut out = Vec::with_capacity(text.len());
    let mut rest: &str = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.extend_from_slice(before.as_bytes());
        rest = after;
        if let Some(tail) = after.strip_prefix('$') {
            out.push(b'$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            let value = values.get(name).and_then(|value| Some((&value.whole, value.part.as_ref()?)));
            if text.len() == name.len() + "$()".len() {
                return Ok(value.map_or_else(|| Value::string(text.clone()), |(whole, _)| whole.clone()));
            }
            let value = value.map_or_else(|| format!("$({name})").into(), |(_, part)| part.clone());
            budget.make(value.len())?;
            building.grow(budget, COPIES * value.len())?;
            out.extend_from_slice(value.as_bytes());
            rest = tail;
        } else if let Some((first, tail)) = after.as_bytes().split_first()
            && !first.is_ascii()
        {
            // kustomize takes the first byte after the dollar sign for a character.
            let mut buffer = [0; 4];
            out.push(b'$');
            out.extend_from_slice(char::from(*first).encode_utf8(&mut buffer).as_bytes());
            let more = tail.iter().take_while(|b| **b & 0xc0 == 0x80).count();
            out.extend_from_slice(&tail[..more]);
            rest = after.get(1 + more..).unwrap_or_default();
        } else {
            out.push(b'$');
        }
    }
    out.extend_from_slice(rest.as_bytes());
    // What is not UTF-8 any more is printed as base64.
    Ok(match String::from_utf8(out) {
        Ok(text) => Value::string(text),
        Err(error) => Value::string(base64::engine::general_purpose::STANDARD.encode(error.as_bytes())),
    })
}

/// The shortest form of a float, with an exponent for the very small and from a million on.
fn general(f: f64) -> String {
    /// Go writes floats with an exponent from here on.
    const EXPONENT: i32 = 6;
    let scientific = format!("{f:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..EXPONENT).contains(&exponent) {
        return format!("{f}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parted() {
        assert_eq!(split("spec.ports[0].port"), ["spec", "ports", "0", "port"]);
        assert_eq!(split("metadata.annotations.[a.b/c]"), ["metadata", "annotations", "a.b/c"]);
        assert_eq!(split(r"data.a\.b"), ["data", "a.b"]);
        assert_eq!(split("spec.containers.[name=a.b].image"), ["spec", "containers", "[name=a.b]", "image"]);
    }

    #[test]
    fn references_are_resolved() {
        let values = [("A", Value::string("x")), ("N", Value::int(7)), ("F", plain_value("1.50e6"))];
        let values: HashMap<Str, Typed> =
            values.iter().map(|(name, value)| ((*name).into(), Typed::new(value).unwrap())).collect();
        let budget = Budget::new(&crate::Limits::default());
        let run = |text: &str| replace(&text.into(), &values, &budget).unwrap();
        assert_eq!(run("$(N)"), Value::int(7));
        assert_eq!(run("$(N)$(A)"), Value::string("7x"));
        assert_eq!((run("$(F)"), run("v$(F)")), (plain_value("1500000"), Value::string("v1.5e+06")));
        assert_eq!(run("$$(A) $(B) $(A"), Value::string("$(A) $(B) $(A"));
        assert_eq!(run("$x$"), Value::string("$x$"));
    }
}
