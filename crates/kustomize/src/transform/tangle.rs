//! Nodes that a patch left in several places of an object.
//!
//! kustomize puts an element that lacks a merge key into a list more than once, and what an element of a patch adds into all
//! elements that it belongs to. Each of these is one node of its tree: whoever changes it in one place changes it in all. The
//! next patch is merged into nodes that are tied together again; whatever else changes an object changes all places in the
//! same way, or the build ends.

use crate::value::{Map, Str, Value};

/// What is tied together in an object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tangles {
    /// Places of the same node.
    pub(super) same: Vec<Vec<Place>>,
    /// Places of mappings that hold their entries in the same memory.
    pub(super) arrays: Vec<Vec<Place>>,
}

/// The way from an object to a value in it.
pub(super) type Place = Vec<Part>;

/// A step of the way.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// A key of a mapping, and how many equal keys come before it.
    Key(Str, usize),
    Item(usize),
}

/// What is said where one of several places was changed.
pub(super) const TORN: &str = "a patch left one element or value in several places of the object's lists, and something later \
                               changed it in one of them, which kustomize would change in all; give the elements all merge \
                               keys of their lists";

impl Tangles {
    pub(super) fn is_empty(&self) -> bool {
        self.same.is_empty() && self.arrays.is_empty()
    }

    /// Fails where not all places of a node hold the same.
    pub(crate) fn check(&self, object: &Map) -> Result<(), String> {
        let differ = |places: &Vec<Place>| {
            let mut values = places.iter().filter(|place| is_first(place)).map(|place| find(object, place));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        if self.same.iter().any(differ) { Err(TORN.into()) } else { Ok(()) }
    }
}

/// Whether the way leads through keys that are the first of their name. The others are not in the value.
fn is_first(place: &Place) -> bool {
    place.iter().all(|part| !matches!(part, Part::Key(_, 1..)))
}

fn find<'v>(object: &'v Map, place: &Place) -> Option<&'v Value> {
    let (first, rest) = place.split_first()?;
    let Part::Key(key, _) = first else { return None };
    rest.iter().try_fold(object.get(key)?, |value, part| match (part, value) {
        (Part::Key(key, _), Value::Map(map)) => map.get(key),
        (Part::Item(at), Value::List(items)) => items.get(*at),
        _ => None,
    })
}
