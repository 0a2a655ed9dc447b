//! Labels and annotations that stand in several places of an object and change together.
//!
//! kustomize puts one node of its tree into every place of an object where a label or annotation is new. A later patch,
//! replacement or label that changes one of them in place changes all: an overlay that sets `app` in the metadata also
//! sets it in the selector and the template, if its base added it there. A JSON patch rewrites the object, and ends this.

use std::rc::Rc;
use std::sync::Arc;

use crate::fieldspec::{FieldSpec, Step};
use crate::resource::Resource;
use crate::value::{Map, Str, Value};

/// One text in several places: where the specifications lead, those that hold this very text and no copy of it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) key: Str,
    pub(super) text: Str,
    pub(super) fields: Rc<[FieldSpec]>,
}

impl Group {
    pub(super) fn holds(&self, key: &str, value: &Value) -> bool {
        *self.key == *key && matches!(value, Value::String(text) if Arc::ptr_eq(text, &self.text))
    }

    /// The places in an object, the first ones first.
    fn places(&self, object: &Map) -> Vec<Place> {
        let mut out = Vec::new();
        for field in self.fields.iter() {
            self.collect(object, &field.path, &mut Vec::new(), &mut out);
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    fn collect(&self, map: &Map, path: &[Step], at: &mut Place, out: &mut Vec<Place>) {
        let Some((step, rest)) = path.split_first() else {
            if map.get(&self.key).is_some_and(|value| self.holds(&self.key, value)) {
                let mut place = at.clone();
                place.push(Part::Key(self.key.clone()));
                out.push(place);
            }
            return;
        };
        at.push(Part::Key(step.key.clone()));
        match map.get(&step.key) {
            Some(Value::Map(map)) => self.collect(map, rest, at, out),
            Some(Value::List(items)) => {
                for (i, item) in items.iter().enumerate() {
                    if let Value::Map(map) = item {
                        at.push(Part::Index(i));
                        self.collect(map, rest, at, out);
                        at.pop();
                    }
                }
            }
            _ => {}
        }
        at.pop();
    }
}

/// Keys and indices that lead to a value.
type Place = Vec<Part>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Key(Str),
    Index(usize),
}

fn find<'v>(object: &'v mut Map, place: &Place) -> Option<&'v mut Value> {
    let (first, rest) = place.split_first()?;
    let Part::Key(key) = first else { return None };
    rest.iter().try_fold(object.get_mut(key)?, |value, part| match (part, value) {
        (Part::Key(key), Value::Map(map)) => map.get_mut(key),
        (Part::Index(i), Value::List(items)) => items.get_mut(*i),
        _ => None,
    })
}

/// The places of an object's groups before a change.
pub(super) struct Watch(Vec<(Rc<Group>, Vec<Place>)>);

impl Watch {
    pub(super) fn start(resource: &mut Resource) -> Self {
        let groups = std::mem::take(&mut resource.shared);
        let watched = |group: Rc<Group>| {
            let places = group.places(resource.value());
            (group, places)
        };
        Self(groups.into_iter().map(watched).collect())
    }

    /// Carries what changed in one place to the others.
    pub(super) fn settle(self, resource: &mut Resource) {
        for (group, places) in self.0 {
            if let Some(group) = resource.edit(|object| carry(object, group, &places)) {
                resource.shared.push(group);
            }
        }
    }
}

/// The group as it is from now on; none where its value is no text any more.
fn carry(object: &mut Map, group: Rc<Group>, places: &[Place]) -> Option<Rc<Group>> {
    let mut left: Vec<&Place> = Vec::with_capacity(places.len());
    let mut changed = None;
    for place in places {
        match find(object, place) {
            None | Some(Value::Map(_) | Value::List(_)) => continue,
            Some(value) if group.holds(&group.key, value) => {}
            // What is written last counts, also where it is the text that was there before.
            Some(value) => changed = Some(value.clone()),
        }
        left.push(place);
    }
    let Some(changed) = changed else { return Some(group) };
    // A text of its own, so that nothing else is taken for a part of the group.
    let value = changed.as_str().map_or_else(|| changed.clone(), Value::string);
    for place in left {
        if let Some(slot) = find(object, place) {
            *slot = value.clone();
        }
    }
    set_all(object, &group, &value)
}

/// Sets what is left of a group.
pub(super) fn set_all(object: &mut Map, group: &Group, value: &Value) -> Option<Rc<Group>> {
    for place in group.places(object) {
        if let Some(slot) = find(object, &place) {
            *slot = value.clone();
        }
    }
    let Value::String(text) = value else { return None };
    Some(Rc::new(Group { key: group.key.clone(), text: text.clone(), fields: group.fields.clone() }))
}
