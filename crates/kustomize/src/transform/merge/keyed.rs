//! Lists that merge by one key, which all elements have.
//!
//! kustomize changes the elements of the object where they stand, and at the end lays all of them over what it has put
//! together. So of several elements with one key the last stays as it is, and an element that is to be replaced is not.

use std::collections::{HashMap, HashSet};

use super::place::At;
use super::{DIRECTIVE, walk};
use crate::schema::{Field, Type};
use crate::value::{Map, Str, Value};

/// An element of the result.
enum Place {
    /// An element of the object's own.
    Own(usize),
    New(Value),
}

/// The lists while they are joined.
struct Join<'j> {
    /// Elements of the object; `None` for those that are gone.
    own: Vec<Option<Value>>,
    by_key: HashMap<Str, Vec<usize>>,
    out: Vec<Place>,
    /// Places in the result.
    placed: HashMap<Str, usize>,
    at: At<'j>,
}

/// Whether each of the elements has the key, with a text.
pub(super) fn all_have(key: &str, items: &[Value]) -> bool {
    let has_key = |map: &Map| match map.get(key) {
        None | Some(Value::Null(_)) => false,
        Some(value) => value.scalar_text().is_some_and(|text| !text.is_empty()),
    };
    items.iter().all(|item| item.as_map().is_some_and(has_key))
}

/// Joins two lists of which [`all_have`] the key.
pub(super) fn join(
    target: Vec<Value>,
    patch: &mut Vec<Value>,
    key: &str,
    of: Type<'_>,
    at: At<'_>,
) -> Result<Vec<Value>, String> {
    let key_of = |item: &Value| {
        let text = item.as_map().and_then(|map| map.get(key)).and_then(Value::scalar_text);
        // Never missing: all elements have one.
        text.unwrap_or_else(|| "".into())
    };
    let own_keys: Vec<Str> = target.iter().map(key_of).collect();
    let mut by_key: HashMap<Str, Vec<usize>> = HashMap::new();
    for (at, key) in own_keys.iter().enumerate() {
        by_key.entry(key.clone()).or_default().push(at);
    }
    let own = target.into_iter().map(Some).collect();
    // Where the two are one, the object's are what is left.
    let keep_patch = at.keep_patch && !at.shared;
    let mut join = Join { own, by_key, out: Vec::new(), placed: HashMap::new(), at: At { keep_patch, ..at } };
    let mut seen: HashSet<Str> = HashSet::new();
    for item in patch.iter_mut() {
        let key = key_of(item);
        // Of several elements of the patch with one key, the first counts.
        if seen.insert(key.clone()) {
            join.element(key, Some(item), of)?;
        }
    }
    for key in own_keys.iter().cloned() {
        if seen.insert(key.clone()) {
            join.element(key, None, of)?;
        }
    }
    if at.keep_patch && at.shared {
        *patch = join.own.iter().flatten().cloned().collect();
    }
    Ok(join.finish(own_keys))
}

impl Join<'_> {
    /// Joins the elements with one key.
    fn element(&mut self, key: Str, patch: Option<&mut Value>, of: Type<'_>) -> Result<(), String> {
        let field = Field { merge_keys: None, of };
        let first = self.by_key.get(&key).and_then(|places| places.first().copied());
        let Some(first) = first else {
            if let Some(value) = walk(None, patch, field, self.at)?.filter(|value| !is_empty(value)) {
                self.placed.insert(key, self.out.len());
                self.out.push(Place::New(value));
            }
            return Ok(());
        };
        let directive = patch.as_ref().and_then(|patch| patch.as_map()?.get(DIRECTIVE)?.as_str());
        let keeps = directive == Some("replace") && !self.at.shared;
        let before = self.own[first].take();
        let kept = if keeps { before.clone() } else { None };
        match walk(before, patch, field, self.at)?.filter(|value| !is_empty(value)) {
            Some(value) => {
                self.own[first] = Some(kept.unwrap_or(value));
                self.placed.insert(key, self.out.len());
                self.out.push(Place::Own(first));
            }
            None => {
                for at in self.by_key.remove(&key).unwrap_or_default() {
                    self.own[at] = None;
                }
            }
        }
        Ok(())
    }

    /// Lays the elements of the object over the result.
    fn finish(mut self, own_keys: Vec<Str>) -> Vec<Value> {
        for (at, key) in own_keys.into_iter().enumerate() {
            if self.own[at].is_none() {
                continue;
            }
            match self.placed.get(&key) {
                Some(place) => self.out[*place] = Place::Own(at),
                None => {
                    self.placed.insert(key, self.out.len());
                    self.out.push(Place::Own(at));
                }
            }
        }
        let Self { mut own, out, .. } = self;
        out.into_iter()
            .filter_map(|place| match place {
                Place::New(value) => Some(value),
                Place::Own(at) => own[at].take(),
            })
            .collect()
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_map().is_some_and(Map::is_empty)
}
