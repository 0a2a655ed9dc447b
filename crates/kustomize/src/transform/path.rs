//! Field paths of replacements: `spec.containers.[name=web].env.0.value`.
//!
//! A part is a key, an index, `*` for all elements of a list, or `[key=value]` for some of them. A dot in a key is written
//! `\.`, or the key stands in brackets.

use crate::budget::{Budget, Size};
use crate::pattern::{self, Pattern};
use crate::value::{List, Map, Str, Text, TextStyle, Value};
use crate::yaml;

/// Splits a path at its dots.
pub(super) fn split(path: &str, limit: usize) -> Result<Vec<String>, String> {
    let parts = split_at(path, '.', limit)?;
    let mut out: Vec<String> = Vec::new();
    let mut parts = parts.into_iter();
    while let Some(mut part) = parts.next() {
        if part.starts_with('[') && !part.ends_with(']') {
            for more in parts.by_ref() {
                part = format!("{part}.{more}");
                if part.ends_with(']') {
                    break;
                }
            }
            if !part.contains('=') {
                part = part.trim_matches(['[', ']']).to_owned();
            }
        }
        out.push(part);
    }
    Ok(out)
}

/// Splits a path at a character; with a backslash before it, it is part of a key.
pub(super) fn split_at(path: &str, at: char, limit: usize) -> Result<Vec<String>, String> {
    let mut parts: Vec<String> = Vec::new();
    let too_many = || format!("field path {path:?} has more than {limit} parts");
    for piece in path.strip_prefix(at).unwrap_or(path).split(at) {
        match parts.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => {
                last.pop();
                last.push(at);
                last.push_str(piece);
            }
            None => parts.push(piece.to_owned()),
        }
        if parts.len() > limit {
            return Err(too_many());
        }
    }
    Ok(parts)
}

fn number(part: &str) -> Option<i64> {
    part.parse().ok()
}

/// Key and value of `[key=value]`.
fn element(part: &str) -> Option<Result<(&str, &str), String>> {
    let inner = part.strip_prefix('[')?.strip_suffix(']')?;
    let pair = inner.split_once('=');
    Some(pair.ok_or_else(|| format!("{part} is not [key=value], and an element of a list is meant")))
}

/// What stands at a path; `[key=value]` is one element whose key has exactly this value.
pub(super) fn lookup<'v>(value: &'v Value, parts: &[String]) -> Result<Option<&'v Value>, String> {
    walk(value, parts, &mut Vec::new())
}

/// The same, and the way there goes to `way`.
fn walk<'v>(value: &'v Value, parts: &[String], way: &mut Vec<At>) -> Result<Option<&'v Value>, String> {
    let mut at = value;
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        let list = || match at {
            Value::List(items) => Ok(items),
            other => Err(format!("{part}: a list is needed, not {}", other.type_name())),
        };
        let index = if let Some(index) = number(part) {
            Some(usize::try_from(index).map_err(|_| format!("{part}: an index is not negative"))?)
        } else if part == "-" {
            let Some(last) = list()?.len().checked_sub(1) else { return Ok(None) };
            Some(last)
        } else if part == "*" {
            return Err("* can only stand in the field paths of a target".into());
        } else if let Some(pair) = element(part) {
            let (key, wanted) = pair?;
            let Some(found) = list()?.iter().position(|item| has(item, key, wanted)) else { return Ok(None) };
            Some(found)
        } else {
            None
        };
        let next = match (index, at) {
            (Some(index), _) => list()?.get(index),
            (None, Value::Null(_)) => None,
            (None, Value::Map(map)) => map.get(part),
            (None, other) => return Err(format!("{part}: a mapping is needed, not {}", other.type_name())),
        };
        let Some(next) = next else { return Ok(None) };
        way.push(index.map_or_else(|| At::Key(part.into()), At::Index));
        at = next;
    }
    Ok(Some(at))
}

/// The same in an object, with the way there.
pub(super) fn lookup_in<'v>(
    object: &'v Map,
    parts: &[String],
) -> Result<Option<(&'v Value, Vec<At>)>, String> {
    let Some(at) = parts.iter().position(|part| !part.trim().is_empty()) else {
        return Err("the path is empty; name a field".into());
    };
    let part = parts[at].trim();
    if number(part).is_some() || matches!(part, "-" | "*") || element(part).is_some() {
        return Err(format!("{part}: a list is needed, not a mapping"));
    }
    let Some(value) = object.get(part) else { return Ok(None) };
    let mut way = vec![At::Key(part.into())];
    let found = walk(value, &parts[at + 1..], &mut way)?;
    Ok(found.map(|found| (found, way)))
}

/// The same for a change.
pub(super) fn lookup_mut<'v>(value: &'v mut Value, parts: &[String]) -> Option<&'v mut Value> {
    let mut way = Vec::new();
    walk(value, parts, &mut way).ok()??;
    follow_mut(value, &way)
}

/// What stands at a path, with keys and elements made where they are missing.
pub(super) fn make<'v>(value: &'v mut Value, parts: &[String]) -> Result<&'v mut Value, String> {
    let mut at = value;
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    for (i, part) in parts.iter().enumerate() {
        let next = parts.get(i + 1);
        let missing = || match next {
            None => Value::string(""),
            Some(next) if element(next).is_some() || number(next).is_some() => Value::List(List::default()),
            Some(_) => Value::Map(Map::new()),
        };
        at = match at {
            Value::Map(map) => map.get_or_insert_with(part, missing),
            Value::List(items) => {
                let index = match (number(part), element(part)) {
                    (Some(index), _) => usize::try_from(index).unwrap_or(usize::MAX),
                    (None, None) => return Err(format!("{part}: a mapping is needed, not a list")),
                    (None, Some(pair)) => {
                        let (key, wanted) = pair?;
                        items.iter().position(|item| has(item, key, wanted)).unwrap_or_else(|| {
                            items.push(new_element(key, yaml::plain_value(wanted)));
                            items.len() - 1
                        })
                    }
                };
                items.get_mut(index).ok_or_else(|| format!("{part}: the list has no such element"))?
            }
            other => return Err(format!("{part}: a mapping is needed, not {}", other.type_name())),
        };
    }
    Ok(at)
}

/// An element for `[key=value]`.
fn new_element(key: &str, value: Value) -> Value {
    if key.is_empty() { value } else { Value::Map([(Str::from(key), value)].into_iter().collect()) }
}

/// Has an element a key with this value; without a key, is it this value?
fn has(item: &Value, key: &str, wanted: &str) -> bool {
    let text = |value: &Value| value.scalar_text().unwrap_or_else(|| "".into());
    if key.is_empty() {
        return &*text(item) == wanted;
    }
    item.as_map().and_then(|map| map.get(key)).is_some_and(|value| &*text(value) == wanted)
}

/// One part of a path that leads to fields to set.
#[derive(Debug)]
pub(super) enum Part {
    Key(Str),
    Index(usize),
    Every,
    Element {
        /// Empty: the elements themselves are compared.
        key: String,
        /// The value; for elements that are there it is a regular expression.
        text: String,
        pattern: Pattern,
    },
}

/// Reads the parts of a path that leads to fields to set.
pub(super) fn parse(parts: &[String], budget: &Budget) -> Result<Vec<Part>, String> {
    let one = |part: &String| {
        if let Some(index) = number(part).and_then(|index| usize::try_from(index).ok()) {
            return Ok(Part::Index(index));
        }
        if part == "*" {
            return Ok(Part::Every);
        }
        let Some(pair) = element(part) else { return Ok(Part::Key(part.as_str().into())) };
        let (key, text) = pair?;
        let pattern = pattern::compile(text, text, budget)?;
        Ok(Part::Element { key: key.to_owned(), text: text.to_owned(), pattern })
    };
    parts.iter().map(one).collect()
}

/// What is made of a last part that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    Nothing,
    Scalar,
    Map,
    List,
}

impl Make {
    /// What a value needs.
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Map(_) => Self::Map,
            Value::List(_) => Self::List,
            _ => Self::Scalar,
        }
    }

    /// The value for a missing part, by the part after it.
    fn value(self, next: Option<&Part>) -> Value {
        match (next, self) {
            (Some(Part::Index(_) | Part::Element { .. }), _) | (None, Self::List) => {
                Value::List(List::default())
            }
            (Some(_), _) | (None, Self::Map) => Value::Map(Map::new()),
            (None, Self::Scalar | Self::Nothing) => Value::string(""),
        }
    }
}

/// A field that a path leads to.
pub(super) struct Field<'v> {
    pub(super) value: &'v mut Value,
    /// It was made just now: a scalar has no type yet.
    pub(super) made: bool,
    /// It stands in brackets.
    pub(super) in_brackets: bool,
}

impl<'v> Field<'v> {
    /// A field that was there.
    fn known(value: &'v mut Value, in_brackets: bool) -> Self {
        Self { value, made: false, in_brackets }
    }
}

/// What is done on the way.
pub(super) trait Visitor {
    /// Sets a field that the path leads to.
    fn set(&mut self, field: Field<'_>) -> Result<(), String>;
    /// Counts elements of a list that are looked at.
    fn count(&mut self, elements: usize) -> Result<(), String>;
    /// What counts.
    fn budget(&self) -> &Budget;
    /// Is a text changed, rather than an object?
    fn in_text(&self) -> bool {
        false
    }
    /// The path goes into a field or an element.
    fn enter(&mut self, _at: At) {}
    /// It leaves the one that it went into last.
    fn leave(&mut self) {}
}

/// A step of the way to a field.
#[derive(Debug, Clone)]
pub(super) enum At {
    Key(Str),
    Index(usize),
}

/// What stands at the end of a way.
pub(super) fn follow<'v>(value: &'v Value, way: &[At]) -> Option<&'v Value> {
    way.iter().try_fold(value, |value, at| match (at, value) {
        (At::Key(key), Value::Map(map)) => map.get(key),
        (At::Index(index), Value::List(items)) => items.get(*index),
        _ => None,
    })
}

/// The same for a change.
pub(super) fn follow_mut<'v>(value: &'v mut Value, way: &[At]) -> Option<&'v mut Value> {
    way.iter().try_fold(value, |value, at| match (at, value) {
        (At::Key(key), Value::Map(map)) => map.get_mut(key),
        (At::Index(index), Value::List(items)) => items.get_mut(*index),
        _ => None,
    })
}

type Set<'s> = &'s mut dyn Visitor;

/// Sets every field that a path leads to; gives back their number.
pub(super) fn visit(value: &mut Value, parts: &[Part], make: Make, set: Set<'_>) -> Result<usize, String> {
    step(Field::known(value, false), parts, make, set)
}

fn enter(at: At, field: Field<'_>, parts: &[Part], make: Make, set: Set<'_>) -> Result<usize, String> {
    set.enter(at);
    let count = step(field, parts, make, set);
    set.leave();
    count
}

fn step(field: Field<'_>, parts: &[Part], make: Make, set: Set<'_>) -> Result<usize, String> {
    let Some((part, rest)) = parts.split_first() else {
        set.set(field)?;
        return Ok(1);
    };
    let wrong = |wanted: &str, found: &Value| format!("{wanted} is needed, not {}", found.type_name());
    let in_brackets = field.in_brackets
        || match &*field.value {
            Value::Map(map) => map.brackets(),
            Value::List(items) => items.brackets(),
            _ => false,
        };
    let found = |value, made| Field { value, made, in_brackets };
    match (part, field.value) {
        // kustomize makes the field in a null all the same, and then writes the null without it.
        (Part::Key(_), Value::Null(_)) => Ok(usize::from(make != Make::Nothing)),
        (Part::Key(key), Value::Map(map)) => {
            let made = !map.contains_key(key);
            if made && make == Make::Nothing {
                return Ok(0);
            }
            let value = map.get_or_insert_with(key, || make.value(rest.first()));
            if !rest.is_empty() && !matches!(value, Value::Map(_) | Value::List(_)) {
                return inside_of_text(value, rest, make, set);
            }
            enter(At::Key(key.clone()), Field { value, made, in_brackets }, rest, make, set)
        }
        (Part::Key(key), other) => Err(format!("{key}: {}", wrong("a mapping", other))),
        (Part::Index(index), Value::List(items)) => {
            let made = items.len() == *index && make != Make::Nothing;
            if made {
                items.push(make.value(rest.first()));
            }
            let count = items.len();
            let item = items.get_mut(*index);
            let item = item.ok_or_else(|| format!("index {index} is out of range for a list of {count}"))?;
            enter(At::Index(*index), found(item, made), rest, make, set)
        }
        (Part::Every, Value::List(items)) => {
            set.count(items.len())?;
            items.iter_mut().enumerate().try_fold(0, |count, (at, item)| {
                Ok(count + enter(At::Index(at), found(item, false), rest, make, set)?)
            })
        }
        (Part::Element { .. }, Value::List(items)) => elements(items, part, (rest, in_brackets), make, set),
        (_, other) => Err(wrong("a list", other)),
    }
}

/// The elements of a list that a `[key=value]` means; one is made where there is none.
fn elements(
    items: &mut Vec<Value>,
    part: &Part,
    (rest, in_brackets): (&[Part], bool),
    make: Make,
    set: Set<'_>,
) -> Result<usize, String> {
    let Part::Element { key, text, pattern } = part else { return Ok(0) };
    set.count(items.len())?;
    let in_text = set.in_text();
    let mut one = |at: usize, item: &mut Value| {
        // An element that is compared itself is what is meant, whatever the path says after it.
        let (rest, compared) = if key.is_empty() {
            (&[][..], Some(&*item))
        } else {
            (rest, item.as_map().and_then(|map| map.get(key)))
        };
        let matches = match compared {
            Some(value) => pattern.is_match(&written(value)?),
            None => false,
        };
        if !matches {
            return Ok(0);
        }
        enter(At::Index(at), Field::known(item, in_brackets), rest, make, &mut *set)
    };
    let mut count = 0;
    for (at, item) in items.iter_mut().enumerate() {
        count += one(at, item)?;
    }
    if count > 0 || make == Make::Nothing {
        return Ok(count);
    }
    let at = items.len();
    // Its value has no type yet, but for one in a text, which is written at once.
    let value = match in_text {
        true => yaml::plain_value(text),
        false => Value::String(Text::new(text.as_str(), TextStyle::Untagged)),
    };
    items.push(new_element(key, value));
    items.get_mut(at).map_or(Ok(0), |new| one(at, new))
}

/// A value as a regular expression is compared with it.
fn written(value: &Value) -> Result<Str, String> {
    /// Bytes of a list or mapping that is written out for this.
    const MOST: usize = 1 << 20;
    if let Some(text) = value.scalar_text() {
        return Ok(text);
    }
    if Size::of(value).written() > MOST {
        return Err(format!("{} is too large to be compared with a regular expression", value.type_name()));
    }
    let mut out = String::new();
    yaml::write_document(&mut out, value);
    Ok(out.trim().into())
}

/// A path that goes on inside of a text counts as found where it leads somewhere in what the text says, but what is set
/// there is lost: kustomize works on a copy.
fn inside_of_text(value: &Value, rest: &[Part], make: Make, set: Set<'_>) -> Result<usize, String> {
    let text = value.scalar_text().unwrap_or_else(|| "".into());
    set.count(text.len())?;
    let (mut value, _held) = super::structured::parse(&text, set.budget())?;
    step(Field::known(&mut value, false), rest, make, set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting() {
        for (path, want) in [
            ("a.b", vec!["a", "b"]),
            (r"a.b\.c.d", vec!["a", "b.c", "d"]),
            ("a.[b.c/d].e", vec!["a", "b.c/d", "e"]),
            ("a.[name=x.y].0", vec!["a", "[name=x.y]", "0"]),
            (".a", vec!["a"]),
            ("a.[b", vec!["a", "b"]),
        ] {
            assert_eq!(split(path, 10).unwrap(), want, "{path}");
        }
        assert!(split("a.b.c", 2).is_err());
    }

    struct SetX(Budget);

    impl Visitor for SetX {
        fn budget(&self) -> &Budget {
            &self.0
        }

        fn set(&mut self, field: Field<'_>) -> Result<(), String> {
            *field.value = Value::string("x");
            Ok(())
        }

        fn count(&mut self, _: usize) -> Result<(), String> {
            Ok(())
        }
    }

    fn run(value: &serde_json::Value, path: &str, make: Make) -> Result<(usize, serde_json::Value), String> {
        let mut value = Value::from_json(value);
        let budget = Budget::new(&crate::Limits::default());
        let parts = parse(&split(path, 10)?, &budget)?;
        let count = visit(&mut value, &parts, make, &mut SetX(budget))?;
        Ok((count, value.to_json()))
    }

    #[test]
    fn fields_are_found_and_made() {
        use serde_json::json;
        let value = json!({"l": [{"n": "ab"}, {"n": "b"}]});
        let all = json!({"l": [{"n": "x"}, {"n": "x"}]});
        assert_eq!(run(&value, "l.*.n", Make::Nothing).unwrap(), (2, all.clone()));
        assert_eq!(run(&value, "l.[n=b].n", Make::Nothing).unwrap(), (2, all));
        assert_eq!(run(&value, "l.[n=^c].n", Make::Nothing).unwrap().0, 0);
        let made = json!({"l": [{"n": "ab"}, {"n": "b"}, {"n": "c", "m": "x"}]});
        assert_eq!(run(&value, "l.[n=c].m", Make::Scalar).unwrap(), (1, made));
        let made = json!({"l": [{"n": "ab"}, {"n": "b"}], "a": {"b": ["x"]}});
        assert_eq!(run(&value, "a.b.0", Make::Scalar).unwrap(), (1, made));
        assert!(run(&value, "l.5.n", Make::Scalar).is_err());
        assert!(run(&value, "l.[n].n", Make::Scalar).is_err());
        assert!(run(&value, "l.[n=(].n", Make::Scalar).is_err());
    }
}
