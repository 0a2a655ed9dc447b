//! Which fields a new object adds, changes and removes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::path::{PathElement, same};
use crate::schema::{ListType, MapType, TypeRef, View};
use crate::set::Set;
use crate::typed::{fits, item_element};

/// The fields in which two objects differ. No field is in two of the sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

impl Comparison {
    pub(crate) fn without_roots(&mut self, names: &[&str]) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.without_roots(names);
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn put(&mut self, element: &PathElement, node: Node) {
        let Node { inner, added, modified, removed, .. } = node;
        for (set, member, inner) in [
            (&mut self.added, added, inner.added),
            (&mut self.modified, modified, inner.modified),
            (&mut self.removed, removed, inner.removed),
        ] {
            if member {
                set.members.insert(element.clone());
            }
            set.put_child(element.clone(), inner);
        }
    }
}

/// What is known of one field.
#[derive(Default)]
struct Node {
    /// Of the fields within.
    inner: Comparison,
    added: bool,
    modified: bool,
    removed: bool,
    /// Whether it is compared as one whole.
    leaf: bool,
}

impl Node {
    fn is_nothing(&self) -> bool {
        !self.added && !self.modified && !self.removed && self.inner.is_empty()
    }
}

/// Compares two objects of a type.
pub(crate) fn compare(before: &Value, after: &Value, type_: &TypeRef) -> Comparison {
    node(Some(before), Some(after), type_).inner
}

fn node(left: Option<&Value>, right: Option<&Value>, type_: &TypeRef) -> Node {
    let mut out = Node::default();
    let (of_left, of_right) = (type_.view(left), type_.view(right));
    if right.is_none() {
        handle(&mut out, left, right, of_left);
    } else {
        // What a value became of another form is gone with all that was in it.
        if left.is_some() && !of_left.is_like(of_right) {
            handle(&mut out, left, right, of_left);
            out.leaf = false;
        }
        handle(&mut out, left, right, of_right);
    }
    if !out.leaf {
        out.added |= left.is_none();
        out.removed |= left.is_some() && right.is_none();
    }
    out
}

fn handle(out: &mut Node, left: Option<&Value>, right: Option<&Value>, view: View<'_>) {
    if let Some(map) = view.map {
        let (old, new) = (left.and_then(Value::as_object), right.and_then(Value::as_object));
        let empty = old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty);
        if map.atomic || empty { leaf(out, left, right) } else { maps(out, old, new, map) }
    } else if let Some(scalar) = view.scalar {
        if fits(scalar, left) || fits(scalar, right) {
            leaf(out, left, right);
        }
    } else if let Some(list) = view.list {
        let (old, new) = (left.and_then(Value::as_array), right.and_then(Value::as_array));
        let empty = old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty);
        if list.keys.is_none() || empty { leaf(out, left, right) } else { lists(out, old, new, list) }
    }
}

fn leaf(out: &mut Node, left: Option<&Value>, right: Option<&Value>) {
    out.leaf = true;
    match (left, right) {
        (None, _) => out.added = true,
        (_, None) => out.removed = true,
        (Some(left), Some(right)) => out.modified |= !same(left, right),
    }
}

fn maps(out: &mut Node, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, map: &MapType) {
    for (name, value) in old.into_iter().flatten() {
        let other = new.and_then(|new| new.get(name));
        visit(out, || PathElement::Field(name.clone()), Some(value), other, map.field(name));
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            visit(out, || PathElement::Field(name.clone()), None, Some(value), map.field(name));
        }
    }
}

fn visit(
    out: &mut Node,
    element: impl FnOnce() -> PathElement,
    left: Option<&Value>,
    right: Option<&Value>,
    type_: &TypeRef,
) {
    // Most fields are as they were; null is told from the rest by the walk.
    if let (Some(left), Some(right)) = (left, right)
        && left == right
    {
        return;
    }
    let node = node(left, right, type_);
    if !node.is_nothing() {
        out.inner.put(&element(), node);
    }
}

fn lists(out: &mut Node, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, list: &ListType) {
    let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.into_iter().flatten() {
        if let Ok(element) = item_element(list, item) {
            items.entry(element).or_default().0.push(item);
        }
    }
    for item in new.into_iter().flatten() {
        if let Ok(element) = item_element(list, item) {
            items.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in items {
        let inner = &mut out.inner;
        match (old.as_slice(), new.as_slice()) {
            // Items that stand twice are one whole.
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || old.iter().zip(&new).any(|(old, new)| !same(old, new)) {
                    inner.modified.members.insert(element);
                }
            }
            ([_, _, ..], new) => {
                if let Some(new) = new.first() {
                    inner.put(&element, node(None, Some(new), &list.element));
                }
                inner.removed.members.insert(element);
            }
            (old, [_, _, ..]) => {
                if let Some(old) = old.first() {
                    inner.put(&element, node(Some(old), None, &list.element));
                }
                inner.added.members.insert(element);
            }
            (old, new) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                visit(out, || element, old, new, &list.element);
            }
        }
    }
}
