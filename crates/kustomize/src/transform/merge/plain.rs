//! Lists that merge without a key, as sets of scalars.
//!
//! kustomize finds elements by their text, and to it a null that was not written, an empty text, a list and a mapping all have
//! the same: none. An element that comes to nothing takes all nulls and empty mappings of the object's list with it, and those
//! with its text: so a null `~` takes a text `'~'` after it away. In the end, the object's own elements are laid over what was
//! put together, one by one.

use std::collections::{HashMap, HashSet};

use super::Merge;
use super::nodes::{Kind, NodeId, Nodes};
use crate::schema::{Field, Type};
use crate::value::Str;

/// What was put together so far.
#[derive(Default)]
struct Out {
    /// None for what was taken out again.
    items: Vec<Option<NodeId>>,
    /// Places of texts.
    places: HashMap<Str, usize>,
    /// The text of an element with nothing in it, which goes when the next one comes.
    hollow: Option<Str>,
    /// The type of an element that is a list or mapping, beside which kustomize cannot put another.
    odd: Option<&'static str>,
}

/// Joins two lists: elements of the patch come first, then the rest of the object's. Of those with the same text the object's
/// own stays, and the last of these.
pub(super) fn join<'m>(
    merge: &mut Merge<'m>,
    own: NodeId,
    new: Option<NodeId>,
    of: Type<'m>,
) -> Result<Vec<NodeId>, String> {
    let nodes = &merge.nodes;
    let patch = new.map_or(&[][..], |new| nodes.items(new));
    let wanted: Vec<Str> = patch.iter().chain(nodes.items(own)).map(|id| nodes.text(*id)).collect();
    let firsts_of = |nodes: &Nodes<'_>| (firsts(nodes, Some(own)), firsts(nodes, new));
    let (mut own_firsts, mut new_firsts) = firsts_of(nodes);
    let mut out = Out::default();
    let mut seen: HashSet<Str> = HashSet::new();
    for text in wanted {
        if !seen.insert(text.clone()) {
            continue;
        }
        let (own_first, new_first) = (own_firsts.get(&text).copied(), new_firsts.get(&text).copied());
        let merged = merge.walk(own_first, new_first, &Field { merge_keys: None, of })?;
        match merged.filter(|id| !is_hollow(&merge.nodes, *id)) {
            Some(id) => {
                // Where there is a text, kustomize sets it once more, without a tag.
                if !text.is_empty() {
                    merge.nodes.untag(id)?;
                }
                out.put(&merge.nodes, text, id)?;
            }
            // Only a few texts can come to nothing.
            None => {
                remove(&mut merge.nodes, own, &text)?;
                (own_firsts, new_firsts) = firsts_of(&merge.nodes);
            }
        }
    }
    for id in merge.nodes.items(own) {
        out.lay_over(&merge.nodes, *id)?;
    }
    Ok(out.items.into_iter().flatten().collect())
}

/// Takes elements with a text and those with nothing in them away.
fn remove(nodes: &mut Nodes<'_>, list: NodeId, wanted: &Str) -> Result<(), String> {
    let mut items = nodes.items(list).to_vec();
    items.retain(|id| !is_hollow(nodes, *id));
    if let Some(odd) = items.iter().find(|id| !is_scalar(nodes, **id)) {
        return Err(misfit(nodes.type_name(*odd)));
    }
    items.retain(|id| nodes.text(*id) != *wanted);
    nodes.set_items(list, items);
    Ok(())
}

impl Out {
    /// Adds an element; the text is not there yet.
    fn put(&mut self, nodes: &Nodes<'_>, text: Str, id: NodeId) -> Result<(), String> {
        self.check()?;
        self.odd = Some(id).filter(|id| !is_scalar(nodes, *id)).map(|id| nodes.type_name(id));
        self.places.insert(text, self.items.len());
        self.items.push(Some(id));
        Ok(())
    }

    /// Puts an element of the object in the place of what has its text, or at the end.
    fn lay_over(&mut self, nodes: &Nodes<'_>, id: NodeId) -> Result<(), String> {
        self.check()?;
        if let Some(place) = self.hollow.take().and_then(|text| self.places.remove(&text)) {
            self.items[place] = None;
        }
        let text = nodes.text(id);
        let hollow = is_hollow(nodes, id);
        match self.places.get(&text) {
            Some(place) => {
                self.odd = (!hollow && !is_scalar(nodes, id)).then(|| nodes.type_name(id));
                self.items[*place] = Some(id);
            }
            None if nodes.is_null(id) => return Ok(()),
            None if hollow => {
                self.places.insert(text.clone(), self.items.len());
                self.items.push(Some(id));
            }
            None => return self.put(nodes, text, id),
        }
        if hollow {
            self.hollow = Some(text);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.odd.map_or(Ok(()), |odd| Err(misfit(odd)))
    }
}

fn misfit(type_name: &str) -> String {
    format!("an element of a list that is merged as a set must be a scalar, not {type_name}")
}

/// The first element with each text; a list or mapping has an empty one.
fn firsts(nodes: &Nodes<'_>, list: Option<NodeId>) -> HashMap<Str, NodeId> {
    let items = list.map_or(&[][..], |list| nodes.items(list));
    items.iter().rev().map(|id| (nodes.text(*id), *id)).collect()
}

fn is_scalar(nodes: &Nodes<'_>, id: NodeId) -> bool {
    !matches!(nodes.kind(id), Kind::List | Kind::Map)
}

/// Has it nothing in it?
fn is_hollow(nodes: &Nodes<'_>, id: NodeId) -> bool {
    nodes.is_null(id) || nodes.is_empty_map(id) && !nodes.is_odd(id)
}
