//! What a build has spent of its bounds on work and on growth.
//!
//! Small inputs can ask for a lot: a hundred thousand patches for a hundred thousand objects, a copy of a field into
//! itself that doubles it again and again. Steps count here what they look at and what they make, and end the build once
//! a bound is met. Nothing here knows of time: the same tree always ends at the same place.
//!
//! Memory is counted the same way: whatever a step is about to make is charged first, by [`weight`]. What is kept for the
//! rest of the build is never given back; what is needed for a while only is [`Held`].

use std::cell::Cell;
use std::rc::Rc;

use crate::limits::Limits;
use crate::value::Value;

/// The counters of one build.
#[derive(Debug)]
pub(crate) struct Budget {
    work: Cell<u64>,
    made: Cell<u64>,
    nodes: Cell<usize>,
    /// Bytes of memory that are taken now.
    memory: Rc<Cell<usize>>,
    limits: Limits,
    /// The bound that was met.
    met: Cell<Option<Bound>>,
}

/// A bound of [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) what: &'static str,
    pub(crate) limit: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            work: Cell::new(0),
            made: Cell::new(0),
            nodes: Cell::new(0),
            memory: Rc::default(),
            limits: limits.clone(),
            met: Cell::new(None),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    fn meet(&self, what: &'static str, limit: usize) -> Result<(), String> {
        self.met.set(Some(Bound { what, limit }));
        Err(format!("more than {limit} {what}"))
    }

    /// The bound that was met, if one was.
    pub(crate) fn met(&self) -> Option<Bound> {
        self.met.get()
    }

    /// Counts values that are looked at or moved.
    pub(crate) fn work(&self, steps: usize) -> Result<(), String> {
        self.work.set(self.work.get().saturating_add(steps as u64));
        if self.work.get() > self.limits.work {
            let limit = usize::try_from(self.limits.work).unwrap_or(usize::MAX);
            return self.meet("steps of work (a patch or replacement for each of many objects?)", limit);
        }
        Ok(())
    }

    /// Counts bytes that are put into objects.
    pub(crate) fn make(&self, bytes: usize) -> Result<(), String> {
        self.made.set(self.made.get().saturating_add(bytes as u64));
        if self.made.get() > self.limits.made_bytes as u64 {
            return self.meet("bytes made by patches and other changes", self.limits.made_bytes);
        }
        self.keep(bytes)
    }

    /// Takes memory for the rest of the build.
    pub(crate) fn keep(&self, bytes: usize) -> Result<(), String> {
        let memory = self.memory.get().saturating_add(bytes);
        if memory > self.limits.memory {
            return self.meet("bytes of memory", self.limits.memory);
        }
        self.memory.set(memory);
        Ok(())
    }

    /// Takes memory until what is returned is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Held, String> {
        self.keep(bytes)?;
        Ok(Held { memory: self.memory.clone(), bytes })
    }

    /// Memory that is left.
    pub(crate) fn room(&self) -> usize {
        self.limits.memory.saturating_sub(self.memory.get())
    }

    /// Counts values that were read.
    pub(crate) fn read(&self, nodes: usize) -> Result<(), String> {
        self.nodes.set(self.nodes.get().saturating_add(nodes));
        if self.nodes.get() > self.limits.total_nodes {
            return self.meet("values read in all", self.limits.total_nodes);
        }
        Ok(())
    }

    /// Counts a value that is put at a place this deep, and checks that it does not nest too deep there.
    pub(crate) fn put(&self, size: Size, depth: usize) -> Result<(), String> {
        if depth.saturating_add(size.depth) > self.limits.depth {
            return self.meet("lists and mappings inside of each other", self.limits.depth);
        }
        self.work(size.nodes)?;
        self.make(size.bytes())
    }
}

/// Memory that is taken for a while.
#[derive(Debug)]
#[must_use = "the memory is given back when this is dropped"]
pub(crate) struct Held {
    memory: Rc<Cell<usize>>,
    bytes: usize,
}

impl Held {
    /// Keeps it for the rest of the build.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }

    /// Takes more.
    pub(crate) fn grow(&mut self, budget: &Budget, bytes: usize) -> Result<(), String> {
        budget.keep(bytes)?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.set(self.memory.get().saturating_sub(self.bytes));
    }
}

/// Memory of the parts of values in bytes, with what the allocator adds and the room that a growing list or mapping keeps.
pub(crate) mod weight {
    /// An allocation besides its content.
    pub(crate) const ALLOCATION: usize = 24;
    /// A value in a list.
    pub(crate) const ITEM: usize = 56;
    /// A key and its value in a mapping, without the text of the key.
    pub(crate) const ENTRY: usize = 80;
    /// The same for what was read and has not grown yet.
    pub(crate) const ITEM_AS_READ: usize = 40;
    pub(crate) const ENTRY_AS_READ: usize = 56;
    /// A shared text besides its bytes.
    pub(crate) const TEXT: usize = 16 + ALLOCATION;
    /// An object with its ids, besides its value and the texts of the ids.
    pub(crate) const OBJECT: usize = 1_024;
}

/// How large a value is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Values in it, itself among them.
    pub(crate) nodes: usize,
    /// Bytes of its keys and texts.
    pub(crate) text: usize,
    /// Lists and mappings inside of each other.
    pub(crate) depth: usize,
}

impl Size {
    /// Measures a value. Values nest no deeper than the bound, so this does not either.
    pub(crate) fn of(value: &Value) -> Self {
        let mut size = Self { nodes: 1, text: 0, depth: 0 };
        match value {
            Value::Null(_) | Value::Bool(_) => {}
            Value::Number(number) => size.text = number.text.len(),
            Value::String(text) => size.text = text.len(),
            Value::List(items) => items.iter().for_each(|item| size.contain(Self::of(item))),
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    size.text += key.len();
                    size.contain(Self::of(value));
                }
            }
        }
        if matches!(value, Value::List(_) | Value::Map(_)) {
            size.depth += 1;
        }
        size
    }

    fn contain(&mut self, inner: Self) {
        self.nodes += inner.nodes;
        self.text += inner.text;
        self.depth = self.depth.max(inner.depth);
    }

    /// The most bytes that it takes as text, in YAML or JSON, with its indentation.
    pub(crate) fn written(self) -> usize {
        /// Of a character as JSON escapes it.
        const ESCAPED: usize = 6;
        let indent = 2 * (self.depth + 1);
        // Each line of a text is indented too, and it may have as many as it has bytes.
        let lines = self.nodes.saturating_add(self.text);
        lines.saturating_mul(indent + 4).saturating_add(self.text.saturating_mul(ESCAPED))
    }

    /// About the memory that a value takes, and its place in the output.
    pub(crate) fn bytes(self) -> usize {
        /// Of one value besides its text.
        const NODE: usize = weight::ENTRY + weight::TEXT;
        self.nodes.saturating_mul(NODE).saturating_add(self.text)
    }
}
