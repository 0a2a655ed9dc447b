//! What reading a text takes: values, bytes and memory, each counted before it is made.

use crate::budget::weight;
use crate::limits::Limits;
use crate::value::Value;

/// What a value comes to: what an alias to it counts for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) nodes: usize,
    /// Bytes of text.
    pub(super) text: usize,
    /// Bytes of its lists and mappings. Texts are shared by all copies.
    pub(super) slots: usize,
}

/// The counters of one text.
pub(super) struct Tally<'l> {
    limits: &'l Limits,
    /// Memory that may be taken.
    room: usize,
    count: Count,
    /// Bytes of texts and keys, each once.
    texts: usize,
    /// Memory that is needed until the text is read.
    passing: usize,
    anchors: usize,
    /// The most places that open lists and open mappings had.
    items: usize,
    entries: usize,
}

impl<'l> Tally<'l> {
    /// Starts with a text of this many bytes, for which this much memory is left.
    pub(super) fn start(limits: &'l Limits, room: usize, bytes: usize) -> Result<Self, String> {
        // The text itself, and one scalar as long as it: what it is read into grows by doubling, and is copied out.
        const COPIES: usize = 5;
        /// Of the tokens that are read ahead, and what is open.
        const AHEAD: usize = 256 << 10;
        let mut tally = Self {
            limits,
            room: room.min(limits.memory),
            count: Count::default(),
            texts: 0,
            passing: 0,
            anchors: 0,
            items: 0,
            entries: 0,
        };
        tally.pass(bytes.saturating_mul(COPIES).saturating_add(AHEAD))?;
        Ok(tally)
    }

    pub(super) fn counted(&self) -> Count {
        self.count
    }

    /// Memory of what was read.
    pub(super) fn kept(&self) -> usize {
        self.count.slots.saturating_add(self.texts)
    }

    fn check(&self) -> Result<(), String> {
        let Limits { total_bytes, nodes, .. } = *self.limits;
        if self.count.text > total_bytes {
            return Err(format!("more than {total_bytes} bytes, with aliases expanded"));
        }
        if self.count.nodes > nodes {
            return Err(format!("more than {nodes} values, with aliases expanded"));
        }
        if self.kept().saturating_add(self.passing) > self.room {
            return Err(format!("more than {} bytes of memory", self.limits.memory));
        }
        Ok(())
    }

    /// Memory that is needed until the text is read.
    fn pass(&mut self, bytes: usize) -> Result<(), String> {
        self.passing = self.passing.saturating_add(bytes);
        self.check()
    }

    /// A list or mapping that begins.
    pub(super) fn open(&mut self) -> Result<(), String> {
        self.count.nodes = self.count.nodes.saturating_add(1);
        self.count.slots = self.count.slots.saturating_add(weight::ALLOCATION);
        self.check()
    }

    /// A scalar with this much text.
    pub(super) fn scalar(&mut self, text: usize) -> Result<(), String> {
        self.count.nodes = self.count.nodes.saturating_add(1);
        self.count.text = self.count.text.saturating_add(text);
        self.check()
    }

    /// The text of a scalar, which is about to be copied.
    pub(super) fn text(&mut self, text: usize) -> Result<(), String> {
        self.texts = self.texts.saturating_add(weight::TEXT).saturating_add(text);
        self.check()
    }

    /// A key that is noted.
    pub(super) fn odd_key(&mut self, text: usize) -> Result<(), String> {
        /// Of its place in a list that grows.
        const PLACE: usize = 96;
        self.texts = self.texts.saturating_add(weight::TEXT + PLACE).saturating_add(text);
        self.check()
    }

    /// A comment that may be a schema, and the key that it is about.
    pub(super) fn hint(&mut self, comment: usize, key: usize) -> Result<(), String> {
        /// Of a byte of JSON: of `[0,0]`, every other is a value with a text of its own, in a table that grows.
        const BYTE: usize = 2 * weight::ENTRY + weight::TEXT;
        /// Of a place in a list that grows.
        const PLACE: usize = 256;
        self.texts = self
            .texts
            .saturating_add(PLACE + weight::TEXT + key)
            .saturating_add(comment.saturating_mul(BYTE));
        self.check()
    }

    /// Places for lines.
    pub(super) fn lines(&mut self, lines: usize) -> Result<(), String> {
        self.pass(lines.saturating_mul(2 * size_of::<&str>()))
    }

    /// A key that was not there before, with its place in the table of keys.
    pub(super) fn new_key(&mut self, text: usize) -> Result<(), String> {
        const PLACE: usize = 64;
        self.passing = self.passing.saturating_add(PLACE);
        self.text(text)
    }

    /// A copy of what counts this much: what is about to be cloned.
    pub(super) fn copy(&mut self, of: Count) -> Result<(), String> {
        self.count.nodes = self.count.nodes.saturating_add(of.nodes);
        self.count.text = self.count.text.saturating_add(of.text);
        self.count.slots = self.count.slots.saturating_add(of.slots);
        self.check()
    }

    /// An anchor for what counts this much.
    pub(super) fn anchor(&mut self, of: Count) -> Result<(), String> {
        /// Of an entry in the tables of anchors.
        const ANCHOR: usize = 320;
        self.anchors += 1;
        if self.anchors > self.limits.anchors {
            return Err(format!("more than {} anchors", self.limits.anchors));
        }
        self.count.nodes = self.count.nodes.saturating_add(of.nodes);
        self.count.text = self.count.text.saturating_add(of.text);
        self.pass(of.slots.saturating_add(ANCHOR))
    }

    /// A value that is added to what is open; so many places are taken in open lists and in open mappings.
    pub(super) fn put(&mut self, items: usize, entries: usize, in_list: bool) -> Result<(), String> {
        /// Of a place among those of all open lists or mappings: the table grows, is copied out, and sorted.
        const OPEN_ITEM: usize = 2 * weight::ITEM;
        const OPEN_ENTRY: usize = 3 * weight::ENTRY;
        // What was read is made of the right size, and keeps no room to grow.
        let slot = if in_list { weight::ITEM_AS_READ } else { weight::ENTRY_AS_READ };
        self.count.slots = self.count.slots.saturating_add(slot);
        let more =
            items.saturating_sub(self.items) * OPEN_ITEM + entries.saturating_sub(self.entries) * OPEN_ENTRY;
        (self.items, self.entries) = (self.items.max(items), self.entries.max(entries));
        self.pass(more)
    }

    /// A table of this many entries, which a merge makes and drops.
    pub(super) fn merged(&mut self, entries: usize) -> Result<(), String> {
        self.pass(entries.saturating_mul(2 * weight::ENTRY))
    }
}

/// What a value comes to.
pub(super) fn scalar_count(value: &Value) -> Count {
    let text = match value {
        Value::String(text) => text.len(),
        Value::Number(number) => number.text.len(),
        _ => 0,
    };
    Count { nodes: 1, text, slots: 0 }
}
