//! From nodes to text, byte by byte as go-yaml's emitter writes them with an indentation of four.
//!
//! A comment waits until the place comes where the emitter looks for one of its kind; which place that is follows from the
//! order in which it goes through the nodes, so that order is kept here.

mod scalar;

use zeroize::{Zeroize as _, Zeroizing};

use super::nodes::{Kind, Node};
use super::scalars::Scalar;
use super::scan::Style;
use crate::buffer::Buffer;

/// Columns of an indentation.
const INDENT: isize = 4;
/// A key of more bytes is not written on one line with its value.
const SIMPLE_KEY: usize = 128;

/// What a value is within.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Document,
    Sequence,
    /// As a key on one line with its value.
    SimpleKey,
    Mapping,
}

/// Comments that are to be written.
#[derive(Default)]
struct Pending {
    head: Zeroizing<Vec<u8>>,
    line: Zeroizing<Vec<u8>>,
    foot: Zeroizing<Vec<u8>>,
    /// The foot of a key, which is written once its value is.
    tail: Zeroizing<Vec<u8>>,
    key_line: Zeroizing<Vec<u8>>,
}

pub(super) struct Emitter {
    out: Buffer,
    /// Of the innermost block; -1 outside of all.
    indent: isize,
    column: isize,
    /// The last character was white space.
    whitespace: bool,
    /// Nothing but indentation and what counts as it stands on the line.
    indention: bool,
    /// The indentation of a foot that was just written: an empty line parts it from what follows at the same.
    foot_indent: isize,
    pending: Pending,
    documents: usize,
}

impl Default for Emitter {
    fn default() -> Self {
        Self {
            out: Buffer::default(),
            indent: -1,
            column: 0,
            whitespace: true,
            indention: true,
            foot_indent: -1,
            pending: Pending::default(),
            documents: 0,
        }
    }
}

impl Emitter {
    pub(super) fn finish(self) -> Zeroizing<Vec<u8>> {
        self.out.into_inner()
    }

    /// Writes one document.
    pub(super) fn document(&mut self, root: &Node<'_>) {
        if self.documents > 0 {
            self.write_indent();
            self.indicator("---", true, false, false);
            self.write_indent();
        }
        self.documents += 1;
        self.announce(root);
        self.head_comment();
        self.node(root, Within::Document);
        if matches!(root.kind, Kind::Null | Kind::Scalar(_)) {
            self.line_comment();
            self.foot_comment();
        }
        // What comes last is parted from what is before it.
        self.foot_indent = 0;
        self.foot_comment();
        self.foot_indent = -1;
        self.write_indent();
    }

    /// Takes up what a node begins with. Of a list or map, the line and the foot are for its end.
    fn announce(&mut self, node: &Node<'_>) {
        take_up(&mut self.pending.head, &node.head);
        if matches!(node.kind, Kind::Null | Kind::Scalar(_)) {
            take_up(&mut self.pending.line, &node.line);
            take_up(&mut self.pending.foot, &node.foot);
        }
    }

    /// Writes a node that was announced. `line_comment` and `foot_comment` follow a scalar at once, and the beginning of anything
    /// else.
    fn node(&mut self, node: &Node<'_>, within: Within) {
        match &node.kind {
            Kind::Null => self.plain("null"),
            Kind::Scalar(scalar) => self.scalar(scalar, within),
            Kind::Sequence(items) => {
                self.after_start();
                if items.is_empty() {
                    self.end_comments(node, &Zeroizing::default());
                    self.empty_sequence();
                } else {
                    self.sequence(items, within);
                    self.end_comments(node, &Zeroizing::default());
                }
            }
            Kind::Mapping(pairs) => {
                self.after_start();
                if pairs.is_empty() {
                    self.end_comments(node, &Zeroizing::default());
                    self.empty_mapping(within);
                } else {
                    self.mapping(pairs, node, within);
                }
            }
        }
    }

    /// What the emitter does after the beginning of a list or map, before it goes into it.
    fn after_start(&mut self) {
        self.line_comment();
        self.foot_comment();
    }

    /// Takes up what a list or map ends with.
    fn end_comments(&mut self, node: &Node<'_>, tail: &Zeroizing<Vec<u8>>) {
        take_up(&mut self.pending.line, &node.line);
        take_up(&mut self.pending.foot, &node.foot);
        take_up(&mut self.pending.tail, tail);
    }

    fn empty_sequence(&mut self) {
        self.indicator("[", true, true, false);
        if self.column == 0 {
            self.write_indent();
        }
        self.indicator("]", false, false, false);
        self.line_comment();
        self.foot_comment();
    }

    fn empty_mapping(&mut self, within: Within) {
        self.indicator("{", true, true, false);
        let outer = self.indent;
        self.indent = self.deeper_or_first(within);
        self.head_comment();
        self.indent = outer;
        self.indicator("}", false, false, false);
        self.line_comment();
        self.foot_comment();
    }

    /// The indentation of a scalar or an empty collection.
    fn deeper_or_first(&self, within: Within) -> isize {
        if self.indent < 0 { INDENT } else { self.deeper(within) }
    }

    /// The indentation of a block in one that is within something.
    fn deeper(&self, within: Within) -> isize {
        match within {
            _ if self.indent < 0 => 0,
            // What begins behind a dash is as deep as it stands there.
            Within::Sequence => self.indent + 2,
            _ => INDENT * ((self.indent + INDENT) / INDENT),
        }
    }

    fn sequence(&mut self, items: &[Node<'_>], within: Within) {
        let outer = self.indent;
        self.indent = self.deeper(within);
        for item in items {
            self.announce(item);
            self.head_comment();
            self.write_indent();
            self.indicator("-", true, false, true);
            self.node(item, Within::Sequence);
            if matches!(item.kind, Kind::Null | Kind::Scalar(_)) {
                self.line_comment();
                self.foot_comment();
            }
        }
        self.indent = outer;
    }

    fn mapping(&mut self, pairs: &[(Node<'_>, Node<'_>)], node: &Node<'_>, within: Within) {
        let outer = self.indent;
        self.indent = self.deeper(within);
        let mut tail = Zeroizing::default();
        for (key, value) in pairs {
            take_up(&mut self.pending.tail, &tail);
            self.announce_key(key);
            self.head_comment();
            self.write_indent();
            if !self.pending.line.is_empty() {
                self.pending.key_line = std::mem::take(&mut self.pending.line);
            }
            self.pair(key, value);
            tail = key.foot.clone();
        }
        self.end_comments(node, &tail);
        self.head_comment();
        self.indent = outer;
    }

    /// The foot of a key is written after its value.
    fn announce_key(&mut self, key: &Node<'_>) {
        take_up(&mut self.pending.head, &key.head);
        take_up(&mut self.pending.line, &key.line);
    }

    fn pair(&mut self, key: &Node<'_>, value: &Node<'_>) {
        let simple = match &key.kind {
            Kind::Scalar(scalar) => {
                let length = scalar.text.len() + scalar.tag.map_or(0, str::len);
                !scalar.allowed.multiline && length <= SIMPLE_KEY
            }
            _ => false,
        };
        if simple {
            self.node(key, Within::SimpleKey);
            self.announce(value);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.node(key, Within::Mapping);
            self.announce(value);
            self.write_indent();
            self.indicator(":", true, false, true);
        }
        self.key_line_comment(value);
        self.node(value, Within::Mapping);
        if matches!(value.kind, Kind::Null | Kind::Scalar(_)) {
            self.line_comment();
            self.foot_comment();
        }
    }

    /// A comment behind a key goes behind its value, or, where that is below it, where it is.
    fn key_line_comment(&mut self, value: &Node<'_>) {
        if self.pending.key_line.is_empty() {
            return;
        }
        match &value.kind {
            Kind::Null | Kind::Scalar(_) => {
                if self.pending.line.is_empty() {
                    self.pending.line = std::mem::take(&mut self.pending.key_line);
                }
            }
            Kind::Sequence(_) | Kind::Mapping(_) => {
                std::mem::swap(&mut self.pending.line, &mut self.pending.key_line);
                self.line_comment();
                std::mem::swap(&mut self.pending.line, &mut self.pending.key_line);
            }
        }
    }

    fn head_comment(&mut self) {
        if !self.pending.tail.is_empty() {
            self.write_indent();
            let tail = std::mem::take(&mut self.pending.tail);
            self.comment(&tail);
            self.foot_indent = self.indent.max(0);
        }
        if !self.pending.head.is_empty() {
            self.write_indent();
            let head = std::mem::take(&mut self.pending.head);
            self.comment(&head);
        }
    }

    fn line_comment(&mut self) {
        if self.pending.line.is_empty() {
            return;
        }
        if !self.whitespace {
            self.put(' ');
        }
        let line = std::mem::take(&mut self.pending.line);
        self.comment(&line);
    }

    fn foot_comment(&mut self) {
        if self.pending.foot.is_empty() {
            return;
        }
        self.write_indent();
        let foot = std::mem::take(&mut self.pending.foot);
        self.comment(&foot);
        self.foot_indent = self.indent.max(0);
    }

    /// Writes a comment of one line or more, and ends its line.
    fn comment(&mut self, comment: &[u8]) {
        let mut text = String::from_utf8_lossy(comment).into_owned();
        let mut ended = false;
        for c in text.chars() {
            if super::analyze::is_break(c) {
                self.write_break(c);
                ended = true;
                continue;
            }
            if ended {
                self.write_indent();
            }
            self.put(c);
            self.indention = false;
            ended = false;
        }
        text.zeroize();
        if !ended {
            self.put_break();
        }
        self.whitespace = true;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.max(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.put_break();
        }
        if self.foot_indent == indent {
            self.put_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.foot_indent = -1;
    }

    fn indicator(&mut self, text: &str, needs_space: bool, is_space: bool, is_indention: bool) {
        if needs_space && !self.whitespace {
            self.put(' ');
        }
        text.chars().for_each(|c| self.put(c));
        self.whitespace = is_space;
        self.indention = self.indention && is_indention;
    }

    fn put(&mut self, c: char) {
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    fn put_break(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
        self.indention = true;
    }

    /// A line break of a text.
    fn write_break(&mut self, c: char) {
        if c == '\n' {
            self.put_break();
        } else {
            self.put(c);
            self.column = 0;
            self.indention = true;
        }
    }
}

/// What is there replaces what waits; nothing leaves it.
fn take_up(pending: &mut Zeroizing<Vec<u8>>, comment: &Zeroizing<Vec<u8>>) {
    if !comment.is_empty() {
        pending.clone_from(comment);
    }
}
