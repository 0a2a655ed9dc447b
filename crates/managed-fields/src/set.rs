//! Sets of fields, as `fieldsV1` holds them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::MAX_DEPTH;
use crate::path::{Path, PathElement};
use crate::schema::TypeRef;

/// A set of fields: a tree whose nodes may be members or only lead to members. That a field is in the set says nothing of
/// the fields within it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Set {
    pub(crate) members: BTreeSet<PathElement>,
    /// None of them is empty.
    pub(crate) children: BTreeMap<PathElement, Set>,
}

impl Set {
    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds a field. The root is not a field.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether a field is in it.
    #[must_use]
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    pub(crate) fn put_child(&mut self, element: PathElement, child: Self) {
        if !child.is_empty() {
            self.children.insert(element, child);
        }
    }

    /// What is in either.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            match self.children.get_mut(element) {
                Some(known) => known.add(child),
                None => {
                    self.children.insert(element.clone(), child.clone());
                }
            }
        }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out =
            Self { members: self.members.intersection(&other.members).cloned().collect(), ..Self::default() };
        for (element, child) in &self.children {
            if let Some(other) = other.children.get(element) {
                out.put_child(element.clone(), child.intersection(other));
            }
        }
        out
    }

    /// What is in this and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out =
            Self { members: self.members.difference(&other.members).cloned().collect(), ..Self::default() };
        for (element, child) in &self.children {
            match other.children.get(element) {
                Some(other) => out.put_child(element.clone(), child.difference(other)),
                None => out.put_child(element.clone(), child.clone()),
            }
        }
        out
    }

    /// What is in this and neither in the other nor within what is in the other.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut out =
            Self { members: self.members.difference(&other.members).cloned().collect(), ..Self::default() };
        for (element, child) in &self.children {
            if other.members.contains(element) {
                continue;
            }
            match other.children.get(element) {
                Some(other) => out.put_child(element.clone(), child.recursive_difference(other)),
                None => out.put_child(element.clone(), child.clone()),
            }
        }
        out
    }

    /// Takes away fields at the root, with all within them.
    pub(crate) fn without_roots(&mut self, names: &[&str]) {
        for name in names {
            let element = PathElement::Field((*name).to_owned());
            self.members.remove(&element);
            self.children.remove(&element);
        }
    }

    /// The set with the named fields that lead to its members: with `a.b.c` also `a`, where the schema names `a`.
    pub(crate) fn with_named_fields(&self, type_: &TypeRef) -> Self {
        let atom = type_.atom();
        let map = atom.and_then(|atom| atom.map.as_ref());
        let list = atom.and_then(|atom| atom.list.as_ref());
        let mut out = Self { members: self.members.clone(), ..Self::default() };
        for (element, child) in &self.children {
            let mut inner = &TypeRef::None;
            match (element, map, list) {
                (PathElement::Field(name), Some(map), _) => {
                    inner = map.field(name);
                    if map.fields.contains_key(name) {
                        out.members.insert(element.clone());
                    }
                }
                (PathElement::Key(_), _, Some(list)) => inner = &list.element,
                _ => {}
            }
            out.put_child(element.clone(), child.with_named_fields(inner));
        }
        out
    }

    /// All fields, each with its whole path, those of a node before those within it.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Path>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            out.push(Path(path));
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, out);
            prefix.pop();
        }
    }

    /// As `fieldsV1`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut out: Map<String, Value> =
            self.members.iter().map(|member| (member.encode(), Value::Object(Map::new()))).collect();
        for (element, child) in &self.children {
            let mut inner = child.to_json();
            if self.members.contains(element)
                && let Value::Object(inner) = &mut inner
            {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), inner);
        }
        Value::Object(out)
    }

    /// Reads `fieldsV1`. Forms of steps that are not known are left out.
    ///
    /// # Errors
    /// What is not a set of fields, or nests too deep.
    pub fn from_json(value: &Value) -> Result<Self, String> {
        Self::read(value, 0).map(|(set, _)| set)
    }

    /// The set of a node's children, and whether the node itself is a member.
    fn read(value: &Value, depth: usize) -> Result<(Self, bool), String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        let map = value.as_object().ok_or("want an object of fields")?;
        let mut set = Self::default();
        let mut member = false;
        for (key, value) in map {
            if key == "." {
                member = true;
                continue;
            }
            let Some(element) = PathElement::decode(key)? else { continue };
            let (child, is_member) = Self::read(value, depth + 1)?;
            if is_member {
                set.members.insert(element.clone());
            }
            set.put_child(element, child);
        }
        let member = member || set.is_empty();
        Ok((set, member))
    }
}
