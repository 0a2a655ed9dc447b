//! From nodes to the value that they make, and back to nodes that are tied together as they were.

use std::collections::BTreeMap;

use super::nodes::{ListNode, MapNode, Node, NodeId, Nodes, Slot};
use super::place::fit;
use crate::budget::{Budget, weight};
use crate::transform::tangle::{Part, Place, TORN, Tangles};
use crate::value::{List, Map, Str, Value};
use crate::yaml::KeyAgain;

/// What came of a merge.
#[derive(Debug, Default)]
pub(in crate::transform) struct Merged {
    /// None where nothing is left.
    pub(in crate::transform) value: Option<Value>,
    /// Keys that stand several times in a mapping of it.
    pub(in crate::transform) again: Vec<KeyAgain>,
    /// Nodes that stand in several places of it.
    pub(in crate::transform) tangles: Tangles,
}

/// Memory of a key that stands several times, besides its text and its values.
const AGAIN: usize = 192;
/// Memory of a place in a list that grows, besides its parts.
const PLACE: usize = 96;

/// What is given so far.
#[derive(Default)]
struct Given {
    again: Vec<KeyAgain>,
    shared: Option<Shared>,
}

/// What is to be known where nodes may stand in several places.
#[derive(Default)]
struct Shared {
    /// In how many places a node stands, by its number.
    places: Vec<u32>,
    /// In how many of them it is still to be given.
    left: Vec<u32>,
    /// Was it given before?
    seen: Vec<bool>,
    /// How many mappings have each number of [`MapNode::array`].
    arrays: BTreeMap<u32, usize>,
    path: Place,
    same: BTreeMap<NodeId, Vec<Place>>,
    same_arrays: BTreeMap<u32, Vec<Place>>,
}

impl Nodes<'_> {
    /// Gives the value that a node stands for, with all below it.
    pub(super) fn give_all(&mut self, root: NodeId) -> Result<Merged, String> {
        /// Of a node, in what is counted.
        const COUNTED: usize = 2 * size_of::<u32>() + size_of::<bool>();
        let _held = self.budget.hold(if self.shared { COUNTED * self.count() } else { 0 })?;
        let mut given = Given::default();
        if self.shared {
            let mut shared = Shared { places: vec![0; self.count()], ..Shared::default() };
            self.count_places(root, &mut shared);
            if shared.is_tangled() {
                shared.left.clone_from(&shared.places);
                shared.seen.resize(shared.places.len(), false);
                given.shared = Some(shared);
            }
        }
        let value = self.give(root, false, false, &mut given)?;
        let tangles = given.shared.map(Shared::into_tangles).unwrap_or_default();
        Ok(Merged { value: Some(value), again: given.again, tangles })
    }

    fn count_places(&self, id: NodeId, shared: &mut Shared) {
        let places = &mut shared.places[id.0];
        *places = places.saturating_add(1);
        if *places > 1 {
            return;
        }
        match self.node(id) {
            Node::Whole(_) => {}
            Node::List(list) => list.items.iter().for_each(|item| self.count_places(*item, shared)),
            Node::Map(map) => {
                if map.array != 0 {
                    *shared.arrays.entry(map.array).or_default() += 1;
                }
                map.entries.iter().for_each(|(_, value)| self.count_places(*value, shared));
            }
        }
    }

    /// `keep`: what is around it is needed once more, and so is this.
    fn give(&mut self, id: NodeId, brackets: bool, keep: bool, given: &mut Given) -> Result<Value, String> {
        let (keep, first) = given.shared.as_mut().map_or((keep, false), |shared| shared.begin(id, keep));
        let Slot { node, of_patch } = self.take_or_copy(id, keep)?;
        match node {
            Node::Whole(value) => Ok(if of_patch { fit(value, brackets) } else { value }),
            Node::List(ListNode { items: ids, brackets: own }) => {
                let mut items = Vec::with_capacity(ids.len());
                for (at, id) in ids.into_iter().enumerate() {
                    given.enter(self.budget, || Part::Item(at), id, first)?;
                    items.push(self.give(id, brackets || own, keep, given)?);
                    given.leave();
                }
                let mut items = List::from(items);
                items.set_brackets(own);
                Ok(Value::List(items))
            }
            Node::Map(map) => {
                if first {
                    given.note_array(self.budget, map.array)?;
                }
                self.give_map(map, brackets, keep, first, given)
            }
        }
    }

    fn give_map(
        &mut self,
        map: MapNode,
        brackets: bool,
        keep: bool,
        first: bool,
        given: &mut Given,
    ) -> Result<Value, String> {
        let inner = brackets || map.brackets;
        let mut entries: Vec<(Str, Value)> = Vec::with_capacity(map.entries.len());
        let mut equal = 0;
        for (key, id) in map.entries {
            let again = self.hints.any_again() && entries.last().is_some_and(|(last, _)| *last == key);
            equal = if again { equal + 1 } else { 0 };
            given.enter(self.budget, || Part::Key(key.clone(), equal), id, first)?;
            let value = self.give(id, inner, keep, given)?;
            given.leave();
            match entries.last_mut() {
                Some((last, _)) if again => {
                    self.budget.keep(AGAIN + weight::TEXT + key.len())?;
                    put_again(&mut given.again, last, value);
                }
                // Nobody shall take it for one that stands there several times.
                _ if self.hints.is_again(&key) => {
                    self.budget.keep(weight::TEXT + key.len())?;
                    entries.push((Str::from(&*key), value));
                }
                _ => entries.push((key, value)),
            }
        }
        let mut entries = Map::from_sorted(entries);
        entries.set_brackets(map.brackets);
        entries.set_odd(map.odd);
        Ok(Value::Map(entries))
    }

    /// Ties nodes of an object together that an earlier merge left in several places.
    pub(super) fn tie(&mut self, root: NodeId, tangles: &Tangles) -> Result<(), String> {
        for places in &tangles.same {
            let Some((first, others)) = places.split_first() else { continue };
            let node = self.find(root, first)?;
            for place in others {
                let Some((last, around)) = place.split_last() else { continue };
                let around = self.find(root, around)?;
                let other = self.step(around, last)?;
                if !self.agree(node, other)? {
                    return Err(TORN.into());
                }
                self.put_at(around, last, node);
            }
        }
        for places in &tangles.arrays {
            let nodes = places.iter().map(|place| self.find(root, place)).collect::<Result<Vec<_>, _>>()?;
            self.set_same_array(&nodes)?;
        }
        Ok(())
    }

    fn find(&mut self, root: NodeId, place: &[Part]) -> Result<NodeId, String> {
        place.iter().try_fold(root, |id, part| self.step(id, part))
    }

    /// What is at a place in a list or mapping.
    fn step(&mut self, id: NodeId, part: &Part) -> Result<NodeId, String> {
        self.budget.work(1)?;
        self.expand(id)?;
        let found = match (self.node(id), part) {
            (Node::List(list), Part::Item(at)) => list.items.get(*at).copied(),
            (Node::Map(map), Part::Key(key, later)) => map.find(key).ok().and_then(|at| {
                let (found, id) = map.entries.get(at + later)?;
                (found == key).then_some(*id)
            }),
            _ => None,
        };
        found.ok_or_else(|| TORN.into())
    }

    /// Puts a node where another one is.
    fn put_at(&mut self, id: NodeId, part: &Part, node: NodeId) {
        match (self.node_mut(id), part) {
            (Node::List(list), Part::Item(at)) => list.items[*at] = node,
            (Node::Map(map), Part::Key(key, later)) => {
                if let Ok(at) = map.find(key) {
                    map.entries[at + later].1 = node;
                }
            }
            _ => {}
        }
    }

    /// Whether two nodes make the same value.
    fn agree(&mut self, a: NodeId, b: NodeId) -> Result<bool, String> {
        self.budget.work(1)?;
        if let (Node::Whole(a), Node::Whole(b)) = (self.node(a), self.node(b)) {
            return Ok(a == b);
        }
        self.expand(a)?;
        self.expand(b)?;
        let pairs: Vec<(NodeId, NodeId)> = match (self.node(a), self.node(b)) {
            (Node::List(a), Node::List(b)) if a.items.len() == b.items.len() => {
                a.items.iter().copied().zip(b.items.iter().copied()).collect()
            }
            (Node::Map(a), Node::Map(b))
                if a.entries.iter().map(|a| &a.0).eq(b.entries.iter().map(|b| &b.0)) =>
            {
                a.entries.iter().zip(&b.entries).map(|(a, b)| (a.1, b.1)).collect()
            }
            _ => return Ok(false),
        };
        for (a, b) in pairs {
            if !self.agree(a, b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Given {
    /// Goes from a list or mapping to a node in it. Where it was not given before, all places of the node are noted.
    fn enter(
        &mut self,
        budget: &Budget,
        part: impl FnOnce() -> Part,
        id: NodeId,
        first: bool,
    ) -> Result<(), String> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        shared.path.push(part());
        if first && shared.places[id.0] > 1 {
            let place = shared.note(budget)?;
            shared.same.entry(id).or_default().push(place);
        }
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.path.pop();
        }
    }

    fn note_array(&mut self, budget: &Budget, array: u32) -> Result<(), String> {
        if let Some(shared) = &mut self.shared
            && shared.arrays.get(&array).is_some_and(|count| *count > 1)
        {
            let place = shared.note(budget)?;
            shared.same_arrays.entry(array).or_default().push(place);
        }
        Ok(())
    }
}

impl Shared {
    fn is_tangled(&self) -> bool {
        self.places.iter().any(|places| *places > 1) || self.arrays.values().any(|count| *count > 1)
    }

    /// Whether a node is needed again, and whether this is the first time that it is given.
    fn begin(&mut self, id: NodeId, keep: bool) -> (bool, bool) {
        let left = &mut self.left[id.0];
        if !keep {
            *left = left.saturating_sub(1);
        }
        (keep || *left > 0, !std::mem::replace(&mut self.seen[id.0], true))
    }

    fn note(&self, budget: &Budget) -> Result<Place, String> {
        budget.keep(PLACE + size_of::<Part>() * self.path.len())?;
        Ok(self.path.clone())
    }

    fn into_tangles(self) -> Tangles {
        Tangles { same: self.same.into_values().collect(), arrays: self.same_arrays.into_values().collect() }
    }
}

/// Adds a value to those of a key that it had before. The key becomes one of its own with its second value.
fn put_again(all: &mut Vec<KeyAgain>, key: &mut Str, value: Value) {
    if let Some(again) = all.iter_mut().rev().find(|again| Str::ptr_eq(&again.key, key)) {
        again.later.push(value);
        return;
    }
    *key = Str::from(&**key);
    all.push(KeyAgain { key: key.clone(), later: vec![value] });
}
