//! A list with the way in which it was written.

use std::ops::{Deref, DerefMut};

use super::Value;

/// A list of a [`Value`]. Two are equal if their elements are.
#[derive(Debug, Clone, Default)]
pub struct List {
    items: Vec<Value>,
    brackets: bool,
}

impl List {
    /// The elements.
    pub fn into_vec(self) -> Vec<Value> {
        self.items
    }

    /// Is it written in brackets?
    pub(crate) fn brackets(&self) -> bool {
        self.brackets
    }

    /// Says whether it is written in brackets.
    pub(crate) fn set_brackets(&mut self, brackets: bool) {
        self.brackets = brackets;
    }
}

impl Deref for List {
    type Target = Vec<Value>;

    fn deref(&self) -> &Vec<Value> {
        &self.items
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut Vec<Value> {
        &mut self.items
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl From<Vec<Value>> for List {
    fn from(items: Vec<Value>) -> Self {
        Self { items, brackets: false }
    }
}

impl FromIterator<Value> for List {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl IntoIterator for List {
    type Item = Value;
    type IntoIter = std::vec::IntoIter<Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'l> IntoIterator for &'l List {
    type Item = &'l Value;
    type IntoIter = std::slice::Iter<'l, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'l> IntoIterator for &'l mut List {
    type Item = &'l mut Value;
    type IntoIter = std::slice::IterMut<'l, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}
