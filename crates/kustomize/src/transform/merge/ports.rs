//! Lists that merge by two keys: ports (number and protocol) and topology spread constraints.
//!
//! An element may lack a key. kustomize then guesses which elements belong together, and its guesses are visible in what
//! it prints (an element without a protocol can push out others with its number). This follows them step by step.

use super::place::At;
use super::walk;
use crate::schema::{Field, Type};
use crate::value::{Map, Str, Value};

/// The texts of the merge keys of an element; empty where it lacks one.
type Texts = Vec<Str>;

/// The nodes of both lists. An element of the object is changed where it stands, so lists hold places.
struct Lists<'k> {
    nodes: Vec<Value>,
    keys: Vec<&'k str>,
}

pub(super) fn join(
    target: Vec<Value>,
    patch: Vec<Value>,
    keys: &[&str],
    of: Type<'_>,
    place: At<'_>,
) -> Result<Vec<Value>, String> {
    let patch_len = patch.len();
    let mut lists = Lists { nodes: patch, keys: keys.to_vec() };
    lists.nodes.extend(target);
    let patch: Vec<usize> = (0..patch_len).collect();
    let mut target: Vec<usize> = (patch_len..lists.nodes.len()).collect();

    let mut wanted: Vec<Texts> = Vec::new();
    for at in 0..lists.nodes.len() {
        let texts = lists.texts(at);
        if !wanted.contains(&texts) {
            wanted.push(texts);
        }
    }
    unify(&mut wanted);
    // Keys that no element has do not count.
    let used: Vec<usize> =
        (0..keys.len()).filter(|k| wanted.iter().any(|texts| !texts[*k].is_empty())).collect();
    let used = if used.is_empty() { (0..keys.len()).collect() } else { used };
    lists.keys = used.iter().map(|k| keys[*k]).collect();

    let mut out: Vec<usize> = Vec::new();
    for texts in wanted {
        let texts: Texts = used.iter().map(|k| texts[*k].clone()).collect();
        let own = lists.first(&target, &texts);
        let new = lists.first(&patch, &texts);
        let merged = walk(
            own.map(|at| lists.nodes[at].clone()),
            new.map(|at| lists.nodes[at].clone()),
            Field { merge_keys: None, of },
            place,
        )?;
        let place = own.or(new);
        match (merged, place) {
            (Some(Value::Map(mut map)), Some(place)) if !map.is_empty() => {
                for (key, text) in lists.keys.iter().zip(&texts) {
                    if !text.is_empty() {
                        map.get_or_insert_with(key, || Value::string(text.clone()));
                    }
                }
                lists.nodes[place] = Value::Map(map);
                lists.set(&mut out, &texts, Some(place));
            }
            _ => lists.set(&mut target, &texts, None),
        }
    }
    for at in target {
        let texts: Texts = lists.texts(at).into_iter().filter(|text| !text.is_empty()).collect();
        if texts.is_empty() {
            // Looking for it, kustomize loses all the others.
            out = vec![at];
            continue;
        }
        // With one key, kustomize puts the element where it stands already.
        if lists.keys.len() > 1 {
            lists.set(&mut out, &texts, None);
        }
        lists.set(&mut out, &texts, Some(at));
    }
    Ok(out.into_iter().map(|at| lists.nodes[at].clone()).collect())
}

impl Lists<'_> {
    fn texts(&self, at: usize) -> Texts {
        let text = |key: &&str| self.nodes[at].as_map()?.get(key)?.scalar_text();
        self.keys.iter().map(|key| text(key).unwrap_or_else(|| "".into())).collect()
    }

    /// The first element that has all the texts that are not empty; none has no text at all.
    fn first(&self, list: &[usize], texts: &Texts) -> Option<usize> {
        if texts.iter().all(|text| text.is_empty()) {
            return None;
        }
        let fits = |at: &usize| {
            self.texts(*at).iter().zip(texts).all(|(has, wanted)| wanted.is_empty() || has == wanted)
        };
        list.iter().copied().find(fits)
    }

    /// Takes the elements with these texts out, and puts one in their place, or at the end. An empty text stands for any;
    /// fewer texts than keys leave the other keys open.
    fn set(&self, list: &mut Vec<usize>, texts: &Texts, element: Option<usize>) {
        let mut found = false;
        let mut kept = Vec::with_capacity(list.len() + 1);
        for at in list.iter().copied() {
            // Elements with nothing in them go whenever kustomize looks for one.
            if matches!(&self.nodes[at], Value::Null(_)) || self.nodes[at].as_map().is_some_and(Map::is_empty)
            {
                continue;
            }
            let has = self.texts(at);
            let fits = has
                .iter()
                .zip(texts)
                .all(|(has, wanted)| if wanted.is_empty() { !has.is_empty() } else { has == wanted });
            if !fits {
                kept.push(at);
            } else {
                found = true;
                kept.extend(element);
            }
        }
        if !found {
            kept.extend(element);
        }
        *list = kept;
    }
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
