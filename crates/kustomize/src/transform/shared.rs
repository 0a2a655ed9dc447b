//! Labels and annotations that stand in several places of an object and change together.
//!
//! kustomize puts one node of its tree into every place of an object where a label or annotation is new. A later patch,
//! replacement or label that changes one of them in place changes all: an overlay that sets `app` in the metadata also
//! sets it in the selector and the template, if its base added it there. A JSON patch rewrites the object, and ends this.

use std::rc::Rc;
use std::sync::Arc;

use crate::budget::{Budget, Held, weight};
use crate::fieldspec::{FieldSpec, Step};
use crate::resource::Resource;
use crate::value::{Map, Number, Str, Text, Value};

use super::merge::{in_style, set_alone};

/// One value in several places: where the specifications lead, those that hold this very key and no copy of it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) key: Str,
    pub(super) value: Value,
    pub(super) fields: Rc<[FieldSpec]>,
}

impl Group {
    /// Is this the key of one of its places?
    pub(super) fn is_at(&self, key: &Str) -> bool {
        Str::ptr_eq(key, &self.key)
    }

    /// Was a value set to one of its places? It may say what was there before.
    fn differs(&self, value: &Value) -> bool {
        match (value, &self.value) {
            (Value::String(a), Value::String(b)) => !Arc::ptr_eq(a.as_shared(), b.as_shared()),
            (Value::Number(a), Value::Number(b)) => !Arc::ptr_eq(&a.text, &b.text),
            (a, b) => a != b,
        }
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

    /// The value at one of the places, if it is still one.
    fn find<'v>(&self, object: &'v mut Map, place: &Place) -> Option<&'v mut Value> {
        let (_, around) = place.split_last()?;
        let Value::Map(map) = find(object, around)? else { return None };
        if map.own_key(&self.key).is_some_and(|key| self.is_at(key)) { map.get_mut(&self.key) } else { None }
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
            if map.own_key(&self.key).is_some_and(|key| self.is_at(key)) {
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

/// Makes what was copied from an object no part of what changes together in it, or in others that got the same labels.
pub(crate) fn leave_groups(value: &mut Value, groups: &[Rc<Group>], budget: &Budget) -> Result<(), String> {
    match value {
        _ if groups.is_empty() => {}
        Value::List(items) => {
            items.iter_mut().try_for_each(|item| leave_groups(item, groups, budget))?;
        }
        Value::Map(map) => {
            for (key, value) in map.entries_mut() {
                if groups.iter().any(|group| group.is_at(key)) {
                    budget.keep(weight::TEXT + key.len())?;
                    *key = Str::from(&**key);
                }
                leave_groups(value, groups, budget)?;
            }
        }
        Value::Null(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Keys and indices that lead to a value.
type Place = Vec<Part>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Key(Str),
    Index(usize),
}

fn find<'v>(object: &'v mut Map, place: &[Part]) -> Option<&'v mut Value> {
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

    /// Carries what changed in one place to the others. A merge comes by all places, in their order, and sets each once more.
    pub(super) fn settle(mut self, resource: &mut Resource, merged: bool) -> Result<(), String> {
        for (group, places) in self.groups {
            let group = resource.edit(|object| carry(object, group, &places, merged, &mut self.hold))?;
            resource.shared.push(group);
        }
        Ok(())
    }
}

/// The group as it is from now on.
fn carry(
    object: &mut Map,
    group: Rc<Group>,
    places: &[Place],
    merged: bool,
    hold: &mut Hold<'_>,
) -> Result<Rc<Group>, String> {
    let mut left: Vec<&Place> = Vec::with_capacity(places.len());
    let (mut value, mut quoted, mut changed) = (group.value.clone(), false, false);
    for place in places {
        match group.find(object, place) {
            // It is gone, or something that was copied took its place.
            None | Some(Value::Map(_) | Value::List(_)) => continue,
            // What is written last counts, also where it is the text that was there before.
            Some(new) if group.differs(new) => {
                // It took over the style that this place had, and not the one that the places before gave to all.
                value = if quoted { in_style(Some(&value), new.clone()) } else { new.clone() };
                changed = true;
            }
            Some(_) if merged => quoted |= set_alone(&mut value),
            Some(_) => {}
        }
        left.push(place);
    }
    if !changed && !quoted {
        return Ok(group);
    }
    let value = if changed { on_its_own(value) } else { value };
    for place in left {
        if let Some(slot) = find(object, place) {
            *slot = value.clone();
        }
    }
    set_all(object, &group, &value, hold)
}

/// A value with a text of its own, so that it can be told from others that say the same.
fn on_its_own(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(Text::new(&*text, text.style())),
        Value::Number(number) => Value::Number(Number { text: Str::from(&*number.text), ..number }),
        other => other,
    }
}

/// Sets what is left of a group.
pub(super) fn set_all(
    object: &mut Map,
    group: &Group,
    value: &Value,
    hold: &mut Hold<'_>,
) -> Result<Rc<Group>, String> {
    for place in group.places(object, hold)? {
        if let Some(slot) = find(object, &place) {
            *slot = value.clone();
        }
    }
    Ok(Rc::new(Group { key: group.key.clone(), value: value.clone(), fields: group.fields.clone() }))
}
