//! Lists that merge by one or more keys, as kustomize joins them: element by element, with lookups whose results depend on
//! what was found before.
//!
//! An element may lack a key, or be null. kustomize then guesses which elements belong together, and its guesses are
//! visible in what it prints: an element without a protocol can push out others with its number, one without a name all
//! others. This follows them step by step (kyaml's `walk/associative_sequence.go`), at a cost of the square of the length;
//! [`super::keyed`] is for the lists that most objects have.

use super::place::At;
use super::{DIRECTIVE, walk};
use crate::schema::{Field, Type};
use crate::value::{Map, Str, Value};

/// The texts of the merge keys of an element.
type Texts = Vec<Str>;

/// The nodes of both lists. An element of the object is changed where it stands, so lists hold places.
struct Lists<'k> {
    nodes: Vec<Value>,
    keys: Vec<&'k str>,
}

/// `patch` is `None` where the object had no list: it gets the patch's, and the two are one from there on.
pub(super) fn join(
    target: Vec<Value>,
    patch: Option<Vec<Value>>,
    keys: &[&str],
    of: Type<'_>,
    place: At<'_>,
) -> Result<Vec<Value>, String> {
    let count = target.len();
    let mut lists = Lists { nodes: target, keys: keys.to_vec() };
    let mut target: Vec<usize> = (0..count).collect();
    let patch: Option<Vec<usize>> = patch.map(|patch| {
        lists.nodes.extend(patch);
        (count..lists.nodes.len()).collect()
    });

    let mut wanted: Vec<Texts> = Vec::new();
    for at in patch.iter().flatten().chain(&target) {
        let texts = lists.listed(*at);
        if !wanted.contains(&texts) {
            wanted.push(texts);
        }
    }
    if keys.len() > 1 {
        unify(&mut wanted);
    }
    // Keys that no element has do not count.
    let used: Vec<usize> =
        (0..keys.len()).filter(|k| wanted.iter().any(|texts| !texts[*k].is_empty())).collect();
    let used = if used.is_empty() { (0..keys.len()).collect() } else { used };
    lists.keys = used.iter().map(|k| keys[*k]).collect();

    let mut out: Vec<usize> = Vec::new();
    for texts in wanted {
        let texts: Texts = used.iter().map(|k| texts[*k].clone()).collect();
        let own = lists.first(&target, &texts);
        let new = lists.first(patch.as_ref().unwrap_or(&target), &texts);
        let new_value = new.map(|at| lists.nodes[at].clone());
        // What is to be replaced stays where it stands, and is laid over its replacement at the end.
        let directive = new_value.as_ref().and_then(|new| new.as_map()?.get(DIRECTIVE)?.as_str());
        let is_replaced = own.is_some() && directive == Some("replace");
        let own_value = own.map(|at| lists.nodes[at].clone());
        // A directive counts once: the element can be looked for again.
        if let Some(map) = new.and_then(|at| lists.nodes[at].as_map_mut()) {
            map.remove(DIRECTIVE);
        }
        let merged = walk(own_value, new_value, Field { merge_keys: None, of }, place)?;
        let (Some(Value::Map(mut map)), Some(at)) = (merged, own.or(new)) else {
            lists.set(&mut target, &texts, None)?;
            continue;
        };
        if map.is_empty() {
            lists.set(&mut target, &texts, None)?;
            continue;
        }
        for (key, text) in lists.keys.iter().zip(&texts).filter(|(_, text)| !text.is_empty()) {
            map.get_or_insert_with(key, || Value::string(text.clone()));
        }
        let at = if is_replaced || own.is_none() {
            lists.nodes.push(Value::Map(map));
            lists.nodes.len() - 1
        } else {
            lists.nodes[at] = Value::Map(map);
            at
        };
        lists.set(&mut out, &texts, Some(at))?;
    }
    for at in target {
        let texts = lists.texts(at)?;
        if texts.len() < lists.keys.len() {
            // Each key that is looked for in vain adds the element once.
            out.push(at);
        }
        if lists.keys.len() > 1 {
            lists.set(&mut out, &texts, None)?;
        }
        lists.set(&mut out, &texts, Some(at))?;
    }
    Ok(out.into_iter().map(|at| lists.nodes[at].clone()).collect())
}

impl Lists<'_> {
    /// What kustomize counts an element by: empty for a key that it lacks, or that has no text.
    fn listed(&self, at: usize) -> Texts {
        let text = |key: &&str| match self.nodes[at].as_map()?.get(key)? {
            Value::Null(_) => None,
            value => value.scalar_text(),
        };
        self.keys.iter().map(|key| text(key).unwrap_or_else(|| "".into())).collect()
    }

    /// The texts of the keys that an element has.
    fn texts(&self, at: usize) -> Result<Texts, String> {
        match &self.nodes[at] {
            Value::Map(map) => Ok(self.keys.iter().filter_map(|key| map.get(key)).map(text).collect()),
            Value::Null(_) => Ok(Vec::new()),
            other => Err(self.misfit(other)),
        }
    }

    fn misfit(&self, element: &Value) -> String {
        let keys = self.keys.join(" and ");
        format!(
            "an element of a list that is merged by {keys} must be a mapping, not {}",
            element.type_name()
        )
    }

    /// The first element that has these texts; an empty one does not count, unless all are empty.
    fn first(&self, list: &[usize], texts: &[Str]) -> Option<usize> {
        let all_count = texts.iter().all(|text| text.is_empty());
        let fits = |at: &&usize| {
            let map = self.nodes[**at].as_map();
            map.is_some_and(|map| {
                let mut pairs =
                    self.keys.iter().zip(texts).filter(|(_, wanted)| all_count || !wanted.is_empty());
                pairs.all(|(key, wanted)| map.get(key).is_some_and(|value| text(value) == *wanted))
            })
        };
        list.iter().find(fits).copied()
    }

    /// Takes the elements with these texts out, and puts one in their place, or at the end. An empty text stands for any;
    /// fewer texts than keys leave the other keys open, and without any text no element is kept.
    fn set(&self, list: &mut Vec<usize>, texts: &[Str], element: Option<usize>) -> Result<(), String> {
        if texts.is_empty() {
            // To put a null there is to take it out.
            *list = element.into_iter().filter(|at| !self.nodes[*at].is_null()).collect();
            return Ok(());
        }
        let mut found = false;
        let mut kept = Vec::with_capacity(list.len() + 1);
        for at in list.iter().copied() {
            let map = match &self.nodes[at] {
                // Elements with nothing in them go whenever kustomize looks for one.
                Value::Null(_) => continue,
                Value::Map(map) if map.is_empty() => continue,
                Value::Map(map) => map,
                // It has no text that could fit.
                _ if texts.first().is_some_and(|text| !text.is_empty()) => {
                    kept.push(at);
                    continue;
                }
                other => return Err(self.misfit(other)),
            };
            let has = |(key, wanted): (&&str, &Str)| {
                map.get(key).is_some_and(|value| wanted.is_empty() || text(value) == *wanted)
            };
            if self.keys.iter().zip(texts).all(has) {
                found = true;
                kept.extend(element);
            } else {
                kept.push(at);
            }
        }
        if !found {
            kept.extend(element);
        }
        *list = kept;
        Ok(())
    }
}

/// The text of a value; a list or mapping has an empty one.
fn text(value: &Value) -> Str {
    value.scalar_text().unwrap_or_else(|| "".into())
}

/// Can [`super::keyed`] join these elements, as each has a key of its own kind of text?
pub(super) fn is_regular(items: &[Value], key: &str) -> bool {
    let has_key = |map: &Map| match map.get(key) {
        None | Some(Value::Null(_)) => false,
        Some(value) => value.scalar_text().is_some_and(|text| !text.is_empty()),
    };
    items.iter().all(|item| item.as_map().is_some_and(has_key))
}

/// Two elements that agree where both have a key, and in one at least, are taken for one.
fn unify(wanted: &mut [Texts]) {
    for i in 0..wanted.len() {
        let first = wanted[i].clone();
        for j in 0..wanted.len() {
            if let Some(both) = matched(&first, &wanted[j]) {
                wanted[i].clone_from(&both);
                wanted[j] = both;
            }
        }
    }
}

fn matched(a: &Texts, b: &Texts) -> Option<Texts> {
    let mut common = false;
    let mut both = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(b) {
        if a == b {
            common = true;
        } else if !a.is_empty() && !b.is_empty() {
            return None;
        }
        both.push(if a.is_empty() { b.clone() } else { a.clone() });
    }
    common.then_some(both)
}
