//! Lists of which all elements have the same merge keys: nearly all lists.
//!
//! kustomize changes the elements of the object where they stand, and at the end lays all of them over what it has put
//! together: in the place of what has the same keys where there is one key, and at the end where there are several. So of
//! several elements with the same texts the last stays as it is, and an element that is to be replaced is not.

use std::collections::HashMap;

use super::Merge;
use super::nodes::{NodeId, Nodes};
use crate::schema::{Field, Type};
use crate::value::{Str, Value};

/// What elements are found by: the texts of their merge keys. Those of most lists have one.
#[derive(PartialEq, Eq, Hash)]
enum Texts {
    One(Str),
    Several(Vec<Str>),
}

/// Those of the keys that an element of the lists has, if all elements have all of these.
pub(super) fn used<'k>(
    nodes: &Nodes<'_>,
    own: NodeId,
    new: Option<NodeId>,
    keys: &[&'k str],
) -> Option<Vec<&'k str>> {
    let all = || nodes.items(own).iter().chain(new.map_or(&[][..], |new| nodes.items(new)));
    let has = |id: NodeId, key: &str| match nodes.field(id, key) {
        None | Some(Value::Null(_)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(value) => value.scalar_text().is_some(),
    };
    let used: Vec<&str> = keys.iter().copied().filter(|key| all().any(|id| has(*id, key))).collect();
    let have_all = all().all(|id| used.iter().all(|key| has(*id, key)));
    Some(used).filter(|used| !used.is_empty() && have_all)
}

/// Elements with the same texts.
#[derive(Default)]
struct Group {
    /// The first ones: of several elements of the patch with the same texts, the first counts.
    own: Option<NodeId>,
    new: Option<NodeId>,
    /// The place in the result; none where all elements of the object go.
    place: Option<usize>,
}

/// Joins two lists of which all elements have these keys.
pub(super) fn join<'m>(
    merge: &mut Merge<'m>,
    own: NodeId,
    new: Option<NodeId>,
    keys: &[&str],
    of: Type<'m>,
) -> Result<Vec<NodeId>, String> {
    let nodes = &merge.nodes;
    // Never missing: all elements have one.
    let text = |id: NodeId, key: &str| nodes.field(id, key).and_then(Value::scalar_text).unwrap_or_default();
    let texts = |id: NodeId| match keys {
        [key] => Texts::One(text(id, key)),
        keys => Texts::Several(keys.iter().map(|key| text(id, key)).collect()),
    };
    let mut groups: Vec<Group> = Vec::new();
    let mut by_texts: HashMap<Texts, usize> = HashMap::new();
    let mut group_of = |groups: &mut Vec<Group>, id: NodeId| {
        *by_texts.entry(texts(id)).or_insert_with(|| {
            groups.push(Group::default());
            groups.len() - 1
        })
    };
    for id in new.map_or(&[][..], |new| nodes.items(new)) {
        let group = group_of(&mut groups, *id);
        groups[group].new.get_or_insert(*id);
    }
    let mut own_items = Vec::with_capacity(nodes.len(own));
    for id in nodes.items(own) {
        let group = group_of(&mut groups, *id);
        groups[group].own.get_or_insert(*id);
        own_items.push((group, *id));
    }
    let mut out: Vec<Option<NodeId>> = Vec::with_capacity(groups.len());
    for group in &mut groups {
        let merged = merge.walk(group.own, group.new, &Field { merge_keys: None, of })?;
        if let Some(id) = merged.filter(|id| !merge.nodes.is_empty_map(*id)) {
            group.place = Some(out.len());
            out.push(Some(id));
        }
    }
    own_items.retain(|(group, _)| groups[*group].place.is_some());
    merge.nodes.set_items(own, own_items.iter().map(|(_, id)| *id).collect());
    for (group, id) in own_items {
        let Some(place) = &mut groups[group].place else { continue };
        if keys.len() > 1 {
            out[*place] = None;
            *place = out.len();
            out.push(Some(id));
        } else {
            out[*place] = Some(id);
        }
    }
    Ok(out.into_iter().flatten().collect())
}
