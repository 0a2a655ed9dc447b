//! Lists that merge by one or more keys, as kustomize joins them: element by element, with lookups whose results depend on
//! what was found before.
//!
//! An element may lack a key, or be null. kustomize then guesses which elements belong together, and its guesses are
//! visible in what it prints: an element without a protocol can push out others with its number, one without a name all
//! others. This follows them step by step (kyaml's `walk/associative_sequence.go`), at a cost of the square of the length;
//! [`super::keyed`] is for the lists that most objects have.

use std::collections::{HashMap, HashSet};

use super::place::At;
use super::{DIRECTIVE, walk};
use crate::budget::{Budget, Size};
use crate::schema::{Field, Type};
use crate::value::{NullForm, Str, Value};

/// The texts of the merge keys of an element.
type Texts = Vec<Str>;

/// The nodes of both lists. An element is changed where it stands, so lists hold places: one that is found several times
/// takes memory once.
struct Lists<'k> {
    nodes: Vec<Value>,
    keys: Vec<&'k str>,
}

/// Joins two lists. Where the object had none (`At::shared`) the two are one.
pub(super) fn join(
    target: Vec<Value>,
    patch: &mut Vec<Value>,
    keys: &[&str],
    of: Type<'_>,
    place: At<'_>,
) -> Result<Vec<Value>, String> {
    let count = target.len();
    let mut lists = Lists { nodes: target, keys: keys.to_vec() };
    let mut target: Vec<usize> = (0..count).collect();
    if !place.shared {
        lists.nodes.append(patch);
    }
    let new_items: Vec<usize> = (count..lists.nodes.len()).collect();

    let wanted = lists.wanted(new_items.iter().chain(&target));
    let mut seen: HashSet<&Texts> = HashSet::new();
    let mut out: Vec<usize> = Vec::new();
    for texts in &wanted {
        let own = lists.first(&target, texts);
        let new = if place.shared { own } else { lists.first(&new_items, texts) };
        let (own_size, new_size) = (lists.size(own), lists.size(new));
        // Both are there twice meanwhile, at each level of lists inside of each other.
        let held = place.budget.hold(own_size.bytes().saturating_add(new_size.bytes()))?;
        if !seen.insert(texts) {
            place.budget.work(own_size.nodes + new_size.nodes)?;
        }
        let is_replaced = new.is_some_and(|at| lists.is_replacing(at));
        let own_value = own.map(|at| lists.nodes[at].clone());
        // The patch's element can be found by other texts again, as it is then.
        let mut new_value = new.map(|at| lists.take(at));
        let at_element = At { keep_patch: true, ..place };
        let merged = walk(own_value, new_value.as_mut(), Field { merge_keys: None, of }, at_element)?;
        if let Some((at, left)) = new.zip(new_value) {
            lists.nodes[at] = left;
        }
        drop(held);
        // What is to be replaced stays where it is, and is laid over its replacement at the end.
        let at = if is_replaced { new.or(own) } else { own.or(new) };
        match (merged, at) {
            (Some(Value::Map(mut map)), Some(at)) if !map.is_empty() => {
                for (key, text) in lists.keys.iter().zip(texts).filter(|(_, text)| !text.is_empty()) {
                    map.get_or_insert_with(key, || Value::string(text.clone()));
                }
                lists.nodes[at] = Value::Map(map);
                lists.set(&mut out, texts, Some(at))?;
            }
            _ => lists.set(&mut target, texts, None)?,
        }
    }
    for at in &target {
        lists.lay_over(&mut out, *at)?;
    }
    if place.keep_patch {
        let left = if place.shared { target } else { new_items };
        *patch = left.into_iter().map(|at| lists.nodes[at].clone()).collect();
    }
    lists.give(out, place.budget)
}

impl Lists<'_> {
    /// The texts to look for, those of each element once. Keys that no element has are left out, here and of the lists'.
    fn wanted<'a>(&mut self, elements: impl Iterator<Item = &'a usize>) -> Vec<Texts> {
        let mut wanted: Vec<Texts> = Vec::new();
        for at in elements {
            let texts = self.listed(*at);
            if !wanted.contains(&texts) {
                wanted.push(texts);
            }
        }
        if self.keys.len() > 1 {
            unify(&mut wanted);
        }
        let is_used = |k: &usize| wanted.iter().any(|texts| !texts[*k].is_empty());
        let used: Vec<usize> = (0..self.keys.len()).filter(is_used).collect();
        if used.is_empty() {
            return wanted;
        }
        self.keys = used.iter().map(|k| self.keys[*k]).collect();
        wanted.into_iter().map(|texts| used.iter().map(|k| texts[*k].clone()).collect()).collect()
    }

    fn size(&self, at: Option<usize>) -> Size {
        at.map_or_else(Size::default, |at| Size::of(&self.nodes[at]))
    }

    fn take(&mut self, at: usize) -> Value {
        std::mem::replace(&mut self.nodes[at], Value::Null(NullForm::Empty))
    }

    fn is_replacing(&self, at: usize) -> bool {
        let directive = self.nodes[at].as_map().and_then(|map| map.get(DIRECTIVE));
        directive.and_then(Value::as_str) == Some("replace")
    }

    /// Puts an element of the object into the result, in the place of what has its texts.
    fn lay_over(&self, out: &mut Vec<usize>, at: usize) -> Result<(), String> {
        let texts = self.texts(at)?;
        // Each key that is looked for in vain adds the element once.
        out.extend((texts.len()..self.keys.len()).map(|_| at));
        if self.keys.len() > 1 {
            self.set(out, &texts, None)?;
        }
        self.set(out, &texts, Some(at))
    }

    /// The elements at these places. One can come several times, and each time more counts.
    fn give(mut self, out: Vec<usize>, budget: &Budget) -> Result<Vec<Value>, String> {
        let mut left: HashMap<usize, usize> = HashMap::new();
        for at in &out {
            *left.entry(*at).or_default() += 1;
        }
        let mut items = Vec::with_capacity(out.len());
        for at in out {
            let left = left.entry(at).or_default();
            *left -= 1;
            if *left == 0 {
                items.push(self.take(at));
            } else {
                budget.put(Size::of(&self.nodes[at]), 0)?;
                items.push(self.nodes[at].clone());
            }
        }
        Ok(items)
    }

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
