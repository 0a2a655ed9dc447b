//! The nodes of an object and of the patch that is merged into it.
//!
//! kustomize changes both where they stand, and puts nodes of the patch into the object. Where an element of the patch belongs
//! to several elements of the object, what it adds to them is one node, and whoever changes it in one place changes it in all.
//! So a node is known by its id here, and lists and mappings hold ids. A value is taken apart only as far as somebody looks
//! into it.

use super::place::{Hints, in_style, set_alone};
use crate::budget::{Budget, Held, Size};
use crate::value::{NullForm, Str, Value};

/// A node of the merge that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) usize);

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Scalar,
    List,
    Map,
}

pub(super) enum Node {
    /// As it was read: nobody looked inside so far.
    Whole(Value),
    List(ListNode),
    Map(MapNode),
}

#[derive(Clone)]
pub(super) struct ListNode {
    pub(super) items: Vec<NodeId>,
    pub(super) brackets: bool,
}

/// A mapping that was taken apart.
#[derive(Clone, Default)]
pub(super) struct MapNode {
    /// Sorted by key. Of equal keys, the first comes first.
    pub(super) entries: Vec<(Str, NodeId)>,
    pub(super) brackets: bool,
    pub(super) odd: bool,
    /// Other mappings with this number began as this one, and kustomize keeps what they hold in the same memory: it loses
    /// or doubles entries of one when it adds some to another or takes some out. 0 for a mapping of its own.
    pub(super) array: u32,
}

pub(super) struct Slot {
    pub(super) node: Node,
    /// It comes from the patch, so that it has to be fitted to where it comes to stand.
    pub(super) of_patch: bool,
}

/// All nodes of a merge.
pub(super) struct Nodes<'m> {
    slots: Vec<Slot>,
    pub(super) hints: &'m Hints<'m>,
    pub(super) budget: &'m Budget,
    /// Memory of the slots.
    held: Held,
    /// May one stand in several places?
    pub(super) shared: bool,
    /// The highest number of [`MapNode::array`].
    arrays: u32,
}

/// Nodes that are made at once: most objects have more that a patch looks at, but not many.
const FEW: usize = 48;

/// Memory of a node and of its place in a list or mapping that was taken apart, while the table of all grows.
const NODE: usize = 3 * size_of::<Slot>() + size_of::<(Str, NodeId)>() + size_of::<u32>();

/// Stands for a list or mapping that was taken apart where only the text of a scalar counts: it has none.
const TAKEN_APART: &Value = &Value::Null(NullForm::Empty);

impl MapNode {
    /// The place of the first entry with a key, or where one would be.
    pub(super) fn find(&self, key: &str) -> Result<usize, usize> {
        let at = self.entries.partition_point(|(other, _)| **other < *key);
        if self.entries.get(at).is_some_and(|(other, _)| **other == *key) { Ok(at) } else { Err(at) }
    }

    /// Fails where entries cannot come or go as they do in kustomize.
    pub(super) fn check_own(&self) -> Result<(), String> {
        if self.array == 0 { Ok(()) } else { Err(TANGLED.into()) }
    }
}

/// What is said of an input that kustomize itself does not keep apart.
const TANGLED: &str = "the patch adds one mapping to several elements of a list and then changes it in one of them, which \
                       kustomize confuses; give the elements all merge keys of the list";

impl<'m> Nodes<'m> {
    pub(super) fn new(hints: &'m Hints<'m>, budget: &'m Budget) -> Result<Self, String> {
        let (slots, held) = (Vec::with_capacity(FEW), budget.hold(FEW * size_of::<Slot>())?);
        Ok(Self { slots, hints, budget, held, shared: false, arrays: 0 })
    }

    /// A node of its own.
    pub(super) fn add(&mut self, value: Value, of_patch: bool) -> NodeId {
        self.put(Node::Whole(value), of_patch)
    }

    /// A list that was put together.
    pub(super) fn add_list(&mut self, items: Vec<NodeId>) -> NodeId {
        self.put(Node::List(ListNode { items, brackets: false }), false)
    }

    fn put(&mut self, node: Node, of_patch: bool) -> NodeId {
        self.slots.push(Slot { node, of_patch });
        NodeId(self.slots.len() - 1)
    }

    /// Notes that a node may stand in several places from now on.
    pub(super) fn may_share(&mut self) {
        self.shared = true;
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.slots[id.0].node
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.slots[id.0].node
    }

    pub(super) fn kind(&self, id: NodeId) -> Kind {
        match self.node(id) {
            Node::Whole(Value::Null(_)) => Kind::Null,
            Node::Whole(Value::List(_)) | Node::List(_) => Kind::List,
            Node::Whole(Value::Map(_)) | Node::Map(_) => Kind::Map,
            Node::Whole(_) => Kind::Scalar,
        }
    }

    pub(super) fn type_name(&self, id: NodeId) -> &'static str {
        match self.node(id) {
            Node::Whole(value) => value.type_name(),
            Node::List(_) => "a list",
            Node::Map(_) => "a mapping",
        }
    }

    pub(super) fn is_null(&self, id: NodeId) -> bool {
        self.kind(id) == Kind::Null
    }

    /// A null for which something was written.
    pub(super) fn is_written_null(&self, id: NodeId) -> bool {
        matches!(self.node(id), Node::Whole(Value::Null(form)) if !form.text().is_empty())
    }

    /// A mapping without keys.
    pub(super) fn is_empty_map(&self, id: NodeId) -> bool {
        self.kind(id) == Kind::Map && self.len(id) == 0
    }

    /// Is it a mapping that has a key which is a list or mapping?
    pub(super) fn is_odd(&self, id: NodeId) -> bool {
        match self.node(id) {
            Node::Whole(Value::Map(map)) => map.is_odd(),
            Node::Map(map) => map.odd,
            Node::Whole(_) | Node::List(_) => false,
        }
    }

    /// Elements or keys; none of a scalar.
    pub(super) fn len(&self, id: NodeId) -> usize {
        match self.node(id) {
            Node::Whole(Value::List(items)) => items.len(),
            Node::Whole(Value::Map(map)) => map.len(),
            Node::List(list) => list.items.len(),
            Node::Map(map) => map.entries.len(),
            Node::Whole(_) => 0,
        }
    }

    /// The text of a scalar; a list or mapping has an empty one.
    pub(super) fn text(&self, id: NodeId) -> Str {
        match self.node(id) {
            Node::Whole(value) => value.scalar_text().unwrap_or_default(),
            Node::List(_) | Node::Map(_) => Str::default(),
        }
    }

    /// The value of a key, as far as its text counts.
    pub(super) fn field(&self, id: NodeId, key: &str) -> Option<&Value> {
        match self.node(id) {
            Node::Whole(value) => value.as_map()?.get(key),
            Node::List(_) => None,
            Node::Map(map) => match self.node(map.entries[map.find(key).ok()?].1) {
                Node::Whole(value) => Some(value),
                Node::List(_) | Node::Map(_) => Some(TAKEN_APART),
            },
        }
    }

    /// A scalar, or a list or mapping that nobody has looked into.
    pub(super) fn whole_mut(&mut self, id: NodeId) -> Option<&mut Value> {
        if let Node::Whole(value) = self.node_mut(id) { Some(value) } else { None }
    }

    fn brackets(&self, id: NodeId) -> bool {
        match self.node(id) {
            Node::Whole(Value::List(list)) => list.brackets(),
            Node::Whole(Value::Map(map)) => map.brackets(),
            Node::List(list) => list.brackets,
            Node::Map(map) => map.brackets,
            Node::Whole(_) => false,
        }
    }

    fn set_brackets(&mut self, id: NodeId, brackets: bool) {
        match self.node_mut(id) {
            Node::Whole(Value::List(list)) => list.set_brackets(brackets),
            Node::Whole(Value::Map(map)) => map.set_brackets(brackets),
            Node::List(list) => list.brackets = brackets,
            Node::Map(map) => map.brackets = brackets,
            Node::Whole(_) => {}
        }
    }

    /// A list or mapping with nothing in it has brackets that say nothing, and takes those of what is merged into it.
    pub(super) fn set_style(&mut self, own: Option<NodeId>, new: Option<NodeId>) {
        if let (Some(own), Some(new)) = (own, new)
            && self.len(own) == 0
        {
            let brackets = self.brackets(new);
            self.set_brackets(own, brackets);
        }
    }

    /// Takes a list or mapping apart.
    pub(super) fn expand(&mut self, id: NodeId) -> Result<(), String> {
        let Slot { node, of_patch } = &mut self.slots[id.0];
        let (Node::Whole(value), of_patch) = (node, *of_patch) else { return Ok(()) };
        let node = match value {
            Value::List(list) => {
                let (brackets, list) = (list.brackets(), std::mem::take(list));
                self.held.grow(self.budget, NODE * (1 + list.len()))?;
                let mut items = Vec::with_capacity(list.len());
                items.extend(list.into_iter().map(|value| self.add(value, of_patch)));
                Node::List(ListNode { items, brackets })
            }
            Value::Map(map) => {
                let (brackets, odd, map) = (map.brackets(), map.is_odd(), std::mem::take(map));
                self.held.grow(self.budget, NODE * (1 + map.len()))?;
                let mut entries = Vec::with_capacity(map.len());
                for (key, value) in map.into_entries() {
                    let value = self.add(value, of_patch);
                    entries.push((key, value));
                    self.add_later(&mut entries, of_patch)?;
                }
                Node::Map(MapNode { entries, brackets, odd, array: 0 })
            }
            Value::Null(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
        };
        self.slots[id.0].node = node;
        Ok(())
    }

    /// Adds the further values of the last key.
    fn add_later(&mut self, entries: &mut Vec<(Str, NodeId)>, of_patch: bool) -> Result<(), String> {
        let Some((key, _)) = entries.last() else { return Ok(()) };
        let later = self.hints.later(key);
        if later.is_empty() {
            return Ok(());
        }
        let key = key.clone();
        for value in later {
            self.budget.put(Size::of(value), 0)?;
            self.held.grow(self.budget, NODE)?;
            let value = self.add(value.clone(), of_patch);
            entries.push((key.clone(), value));
        }
        Ok(())
    }

    /// How many nodes there are.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Takes a node, or copies it where it is needed again, and tells whether it comes from the patch.
    pub(super) fn take_or_copy(&mut self, id: NodeId, keep: bool) -> Result<Slot, String> {
        let Slot { node, of_patch } = &mut self.slots[id.0];
        let of_patch = *of_patch;
        if !keep {
            return Ok(Slot { node: std::mem::replace(node, EMPTY), of_patch });
        }
        let part = |parts: usize| Size { nodes: 1 + parts, ..Size::default() };
        let size = match node {
            Node::Whole(value) => Size::of(value),
            Node::List(list) => part(list.items.len()),
            Node::Map(map) => part(map.entries.len()),
        };
        self.budget.put(size, 0)?;
        let node = match node {
            Node::Whole(value) => Node::Whole(value.clone()),
            Node::List(list) => Node::List(list.clone()),
            Node::Map(map) => Node::Map(map.clone()),
        };
        Ok(Slot { node, of_patch })
    }

    /// Says that what these mappings hold is in the same memory.
    pub(super) fn set_same_array(&mut self, ids: &[NodeId]) -> Result<(), String> {
        self.arrays = self.arrays.saturating_add(1);
        for id in ids {
            self.expand(*id)?;
            let array = self.arrays;
            if let Node::Map(map) = self.node_mut(*id) {
                map.array = array;
            }
        }
        Ok(())
    }

    /// Takes what a mapping holds out of it, until [`Self::put_map`].
    pub(super) fn take_map(&mut self, id: NodeId) -> Result<MapNode, String> {
        self.expand(id)?;
        match self.node_mut(id) {
            Node::Map(map) => Ok(std::mem::take(map)),
            Node::Whole(_) | Node::List(_) => Ok(MapNode::default()),
        }
    }

    pub(super) fn put_map(&mut self, id: NodeId, map: MapNode) {
        *self.node_mut(id) = Node::Map(map);
    }

    /// Takes the first entry with a key out of a mapping.
    pub(super) fn remove(&mut self, id: NodeId, key: &str) -> Result<(), String> {
        self.expand(id)?;
        if let Node::Map(map) = self.node_mut(id)
            && let Ok(at) = map.find(key)
        {
            map.check_own()?;
            map.entries.remove(at);
        }
        Ok(())
    }

    /// Gives a mapping a key, unless it has it.
    pub(super) fn set_missing(&mut self, id: NodeId, key: &str, text: &Str) -> Result<(), String> {
        if self.field(id, key).is_some() {
            return Ok(());
        }
        self.expand(id)?;
        self.held.grow(self.budget, NODE)?;
        let value = self.add(Value::string(text.clone()), false);
        if let Node::Map(map) = self.node_mut(id)
            && let Err(at) = map.find(key)
        {
            map.check_own()?;
            map.entries.insert(at, (key.into(), value));
        }
        Ok(())
    }

    /// The elements of a list that was taken apart.
    pub(super) fn items(&self, id: NodeId) -> &[NodeId] {
        if let Node::List(list) = self.node(id) { &list.items } else { &[] }
    }

    pub(super) fn set_items(&mut self, id: NodeId, items: Vec<NodeId>) {
        if let Node::List(list) = self.node_mut(id) {
            list.items = items;
        }
    }

    /// A field that only one side has is set to its own value.
    pub(super) fn set_alone(&mut self, id: NodeId) {
        if let Node::Whole(value @ Value::String(_)) = self.node_mut(id) {
            set_alone(value);
        }
    }

    /// Takes the tag of a scalar away.
    pub(super) fn untag(&mut self, id: NodeId) -> Result<(), String> {
        let hints = self.hints;
        if let Node::Whole(value) = self.node_mut(id) { hints.untag(value) } else { Ok(()) }
    }

    /// Makes the node of a field what another one is, all but the style: kustomize copies what the other one says of itself,
    /// so both hold the same nodes from then on. Whether the other one is still needed, `keep` tells.
    pub(super) fn overwrite(&mut self, id: NodeId, other: NodeId, keep: bool) -> Result<(), String> {
        let of_patch = self.slots[other.0].of_patch;
        if let Node::Whole(new) = self.node(other)
            && !matches!(new, Value::List(_) | Value::Map(_))
        {
            let old = if let Node::Whole(old) = self.node(id) { old } else { TAKEN_APART };
            let new = in_style(Some(old), new.clone());
            if keep {
                *self.node_mut(other) = Node::Whole(new.clone());
            }
            self.slots[id.0] = Slot { node: Node::Whole(new), of_patch };
            return Ok(());
        }
        let brackets = self.brackets(id);
        if keep || self.brackets(other) != brackets {
            self.expand(other)?;
        }
        self.set_brackets(other, brackets);
        let node = if keep { self.twin(other) } else { std::mem::replace(self.node_mut(other), EMPTY) };
        self.slots[id.0] = Slot { node, of_patch };
        Ok(())
    }

    /// A list or mapping that holds the same nodes as another.
    fn twin(&mut self, id: NodeId) -> Node {
        let next = self.arrays.saturating_add(1);
        match self.node_mut(id) {
            Node::List(list) => Node::List(list.clone()),
            Node::Map(map) => {
                if map.array == 0 {
                    map.array = next;
                }
                let twin = map.clone();
                self.arrays = self.arrays.max(twin.array);
                Node::Map(twin)
            }
            Node::Whole(value) => Node::Whole(value.clone()),
        }
    }
}

/// What is left of a node that was taken.
pub(super) const EMPTY: Node = Node::Whole(Value::Null(NullForm::Empty));
