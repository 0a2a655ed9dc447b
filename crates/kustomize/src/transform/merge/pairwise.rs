//! Lists that merge by one or more keys, and of which an element lacks one that others have or is null. kustomize joins them
//! element by element, with lookups whose results depend on what was found before.
//!
//! It guesses which elements belong together, and its guesses are visible in what it prints: an element without a protocol can
//! push out others with its number, one without a name all others. This follows them step by step (kyaml's
//! `walk/associative_sequence.go`), at a cost of the square of the length; [`super::keyed`] is for the lists that most objects
//! have.

use super::Merge;
use super::nodes::{Kind, NodeId, Nodes};
use crate::schema::{Field, Type};
use crate::value::{Str, Value};

/// The texts of the merge keys of an element.
type Texts = Vec<Str>;

/// The merge keys of a list.
struct Keys<'k>(Vec<&'k str>);

/// Joins two lists. An element can come to stand in several places.
pub(super) fn join<'m>(
    merge: &mut Merge<'m>,
    own: NodeId,
    new: Option<NodeId>,
    keys: &[&str],
    of: Type<'m>,
) -> Result<Vec<NodeId>, String> {
    merge.nodes.may_share();
    merge.found_again += 1;
    let mut keys = Keys(keys.to_vec());
    let patch = new.map_or(&[][..], |new| merge.nodes.items(new));
    let wanted = keys.wanted(&merge.nodes, patch.iter().chain(merge.nodes.items(own)));
    let mut out: Vec<NodeId> = Vec::new();
    for texts in &wanted {
        let nodes = &merge.nodes;
        let first = |list: NodeId| keys.first(nodes, nodes.items(list), texts);
        let (own_first, new_first) = (first(own), new.and_then(first));
        merge.budget.work(nodes.len(own) + new.map_or(0, |new| nodes.len(new)))?;
        let merged = merge.walk(own_first, new_first, &Field { merge_keys: None, of })?;
        match merged.filter(|id| !merge.nodes.is_empty_map(*id)) {
            Some(id) => {
                for (key, text) in keys.0.iter().zip(texts).filter(|(_, text)| !text.is_empty()) {
                    merge.nodes.set_missing(id, key, text)?;
                }
                keys.set(&merge.nodes, &mut out, texts, Some(id))?;
            }
            None => {
                let mut left = merge.nodes.items(own).to_vec();
                keys.set(&merge.nodes, &mut left, texts, None)?;
                merge.nodes.set_items(own, left);
            }
        }
    }
    // What is to be replaced is still there, and is laid over its replacement.
    for id in merge.nodes.items(own) {
        keys.lay_over(&merge.nodes, &mut out, *id)?;
    }
    merge.found_again -= 1;
    Ok(out)
}

impl Keys<'_> {
    /// The texts to look for, those of each element once. Keys that no element has are left out, here and of the lists'.
    fn wanted<'a>(&mut self, nodes: &Nodes<'_>, elements: impl Iterator<Item = &'a NodeId>) -> Vec<Texts> {
        let mut wanted: Vec<Texts> = Vec::new();
        for id in elements {
            let texts = self.listed(nodes, *id);
            if !wanted.contains(&texts) {
                wanted.push(texts);
            }
        }
        if self.0.len() > 1 {
            unify(&mut wanted);
        }
        let is_used = |k: &usize| wanted.iter().any(|texts| !texts[*k].is_empty());
        let used: Vec<usize> = (0..self.0.len()).filter(is_used).collect();
        if used.is_empty() {
            return wanted;
        }
        self.0 = used.iter().map(|k| self.0[*k]).collect();
        wanted.into_iter().map(|texts| used.iter().map(|k| texts[*k].clone()).collect()).collect()
    }

    /// Puts an element of the object into the result, in the place of what has its texts.
    fn lay_over(&self, nodes: &Nodes<'_>, out: &mut Vec<NodeId>, id: NodeId) -> Result<(), String> {
        let texts = self.texts(nodes, id)?;
        // Each key that is looked for in vain adds the element once.
        out.extend((texts.len()..self.0.len()).map(|_| id));
        if self.0.len() > 1 {
            self.set(nodes, out, &texts, None)?;
        }
        self.set(nodes, out, &texts, Some(id))
    }

    /// What kustomize counts an element by: empty for a key that it lacks, or that has no text.
    fn listed(&self, nodes: &Nodes<'_>, id: NodeId) -> Texts {
        let text = |key: &&str| match nodes.field(id, key)? {
            Value::Null(_) => None,
            value => value.scalar_text(),
        };
        self.0.iter().map(|key| text(key).unwrap_or_default()).collect()
    }

    /// The texts of the keys that an element has.
    fn texts(&self, nodes: &Nodes<'_>, id: NodeId) -> Result<Texts, String> {
        match nodes.kind(id) {
            Kind::Map => Ok(self.0.iter().filter_map(|key| nodes.field(id, key)).map(text).collect()),
            Kind::Null => Ok(Vec::new()),
            Kind::Scalar | Kind::List => Err(self.misfit(nodes, id)),
        }
    }

    fn misfit(&self, nodes: &Nodes<'_>, id: NodeId) -> String {
        let (keys, found) = (self.0.join(" and "), nodes.type_name(id));
        format!("an element of a list that is merged by {keys} must be a mapping, not {found}")
    }

    /// The first element that has these texts; an empty one does not count, unless all are empty.
    fn first(&self, nodes: &Nodes<'_>, list: &[NodeId], texts: &[Str]) -> Option<NodeId> {
        let all_count = texts.iter().all(|text| text.is_empty());
        let fits = |id: &&NodeId| {
            let mut pairs = self.0.iter().zip(texts).filter(|(_, wanted)| all_count || !wanted.is_empty());
            nodes.kind(**id) == Kind::Map
                && pairs
                    .all(|(key, wanted)| nodes.field(**id, key).is_some_and(|value| text(value) == *wanted))
        };
        list.iter().find(fits).copied()
    }

    /// Takes the elements with these texts out, and puts one in their place, or at the end. An empty text stands for any;
    /// fewer texts than keys leave the other keys open, and without any text no element is kept.
    fn set(
        &self,
        nodes: &Nodes<'_>,
        list: &mut Vec<NodeId>,
        texts: &[Str],
        element: Option<NodeId>,
    ) -> Result<(), String> {
        if texts.is_empty() {
            // To put a null there is to take it out.
            *list = element.into_iter().filter(|id| !nodes.is_null(*id)).collect();
            return Ok(());
        }
        let mut found = false;
        let mut kept = Vec::with_capacity(list.len() + 1);
        for id in list.iter().copied() {
            match nodes.kind(id) {
                // Elements with nothing in them go whenever kustomize looks for one.
                Kind::Null => continue,
                Kind::Map if nodes.is_empty_map(id) => continue,
                Kind::Map => {}
                // It has no text that could fit.
                Kind::Scalar | Kind::List if texts.first().is_some_and(|text| !text.is_empty()) => {
                    kept.push(id);
                    continue;
                }
                Kind::Scalar | Kind::List => return Err(self.misfit(nodes, id)),
            }
            let has = |(key, wanted): (&&str, &Str)| {
                nodes.field(id, key).is_some_and(|value| wanted.is_empty() || text(value) == *wanted)
            };
            if self.0.iter().zip(texts).all(has) {
                found = true;
                kept.extend(element);
            } else {
                kept.push(id);
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
    value.scalar_text().unwrap_or_default()
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
