//! Labels and annotations that stand in several places of an object and change together.
//!
//! kustomize puts one node of its tree into every place of an object where a label or annotation is new. A later patch,
//! replacement or label that changes one of them in place changes all: an overlay that sets `app` in the metadata also
//! sets it in the selector and the template, if its base added it there. A JSON patch rewrites the object, and ends this.

use std::rc::Rc;
use std::sync::Arc;

use crate::budget::{Budget, Held};
use crate::fieldspec::{FieldSpec, Step};
use crate::resource::Resource;
use crate::value::{Map, Str, Text, Value};

/// One text in several places: where the specifications lead, those that hold this very text and no copy of it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) key: Str,
    pub(super) text: Str,
    pub(super) fields: Rc<[FieldSpec]>,
}

impl Group {
    pub(super) fn holds(&self, key: &str, value: &Value) -> bool {
        *self.key == *key && matches!(value, Value::String(text) if Arc::ptr_eq(text.as_shared(), &self.text))
    }

    /// The places in an object, the first ones first.
    fn places(&self, object: &Map, held: &mut Hold<'_>) -> Result<Vec<Place>, String> {
        let mut out = Vec::new();
        for field in self.fields.iter() {
            self.collect(object, &field.path, &mut Vec::new(), &mut out, held)?;
        }
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }

    fn collect(
        &self,
        map: &Map,
        path: &[Step],
        at: &mut Place,
        out: &mut Vec<Place>,
        held: &mut Hold<'_>,
    ) -> Result<(), String> {
        /// Of a place besides its parts, in a list that grows.
        const PLACE: usize = 128;
        let Some((step, rest)) = path.split_first() else {
            if map.get(&self.key).is_some_and(|value| self.holds(&self.key, value)) {
                held.held.grow(held.budget, PLACE + (at.len() + 1) * size_of::<Part>())?;
                let mut place = at.clone();
                place.push(Part::Key(self.key.clone()));
                out.push(place);
            }
            return Ok(());
        };
        at.push(Part::Key(step.key.clone()));
        match map.get(&step.key) {
            Some(Value::Map(map)) => self.collect(map, rest, at, out, held)?,
            Some(Value::List(items)) => {
                for (i, item) in items.iter().enumerate() {
                    if let Value::Map(map) = item {
                        at.push(Part::Index(i));
                        self.collect(map, rest, at, out, held)?;
                        at.pop();
                    }
                }
            }
            _ => {}
        }
        at.pop();
        Ok(())
    }
}

/// Memory of places.
pub(super) struct Hold<'b> {
    budget: &'b Budget,
    held: Held,
}

impl<'b> Hold<'b> {
    pub(super) fn new(budget: &'b Budget) -> Result<Self, String> {
        Ok(Self { budget, held: budget.hold(0)? })
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
pub(super) struct Watch<'b> {
    groups: Vec<(Rc<Group>, Vec<Place>)>,
    hold: Hold<'b>,
}

impl<'b> Watch<'b> {
    pub(super) fn start(resource: &mut Resource, budget: &'b Budget) -> Result<Self, String> {
        let mut hold = Hold::new(budget)?;
        let groups = std::mem::take(&mut resource.shared);
        let watched = |group: Rc<Group>| {
            let places = group.places(resource.value(), &mut hold)?;
            Ok((group, places))
        };
        let groups: Result<_, String> = groups.into_iter().map(watched).collect();
        Ok(Self { groups: groups?, hold })
    }

    /// Carries what changed in one place to the others.
    pub(super) fn settle(mut self, resource: &mut Resource) -> Result<(), String> {
        for (group, places) in self.groups {
            if let Some(group) = resource.edit(|object| carry(object, group, &places, &mut self.hold))? {
                resource.shared.push(group);
            }
        }
        Ok(())
    }
}

/// The group as it is from now on; none where its value is not a text any more.
fn carry(
    object: &mut Map,
    group: Rc<Group>,
    places: &[Place],
    hold: &mut Hold<'_>,
) -> Result<Option<Rc<Group>>, String> {
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
    let Some(changed) = changed else { return Ok(Some(group)) };
    // A text of its own, so that nothing else is taken for a part of the group.
    let value = match changed {
        Value::String(text) => Value::String(Text::new(&*text, text.style())),
        other => other,
    };
    for place in left {
        if let Some(slot) = find(object, place) {
            *slot = value.clone();
        }
    }
    set_all(object, &group, &value, hold)
}

/// Sets what is left of a group.
pub(super) fn set_all(
    object: &mut Map,
    group: &Group,
    value: &Value,
    hold: &mut Hold<'_>,
) -> Result<Option<Rc<Group>>, String> {
    for place in group.places(object, hold)? {
        if let Some(slot) = find(object, &place) {
            *slot = value.clone();
        }
    }
    let Value::String(text) = value else { return Ok(None) };
    Ok(Some(Rc::new(Group {
        key: group.key.clone(),
        text: text.as_shared().clone(),
        fields: group.fields.clone(),
    })))
}
