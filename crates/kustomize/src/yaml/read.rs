//! From bytes to values: parser events, bounded, with aliases and merge keys resolved.

mod keys;
mod scalars;

use std::collections::{HashMap, HashSet};

use super::hints::{Comments, Hint};
use super::parse::{About, Event, Parser, Span};
use super::scan::{Mark, ScalarStyle};
use super::split::{self, Part};
use super::tally::{Count, Tally, scalar_count};
use crate::limits::Limits;
use crate::value::{List, Map, Str, Value};

/// Whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Kubernetes objects: go-yaml 3.
    Object,
    /// Strategic merge patches: as objects, but kustomize looks at their nodes only, so the first of equal keys counts
    /// and keys may be anything.
    Patch,
    /// `kustomization.yaml`: go-yaml 2 by way of JSON.
    Kustomization,
}

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What it holds.
    pub value: Value,
    /// The line where it starts, from 1.
    pub line: usize,
    pub(crate) notes: KeyNotes,
}

/// What is to be known of some keys and values of a document.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct KeyNotes {
    /// Those of a patch that are not texts. An object may not have them in the end.
    pub(crate) odd_keys: Vec<Str>,
    /// Schemas that comments give for their fields.
    pub(crate) hints: Vec<Hint>,
    /// Those of a patch that stand several times in a mapping.
    pub(crate) again: Vec<KeyAgain>,
    /// Texts of numbers and times that have a tag and quotes: without the tag they are texts.
    pub(crate) quoted: Vec<Str>,
    /// Some booleans have both.
    pub(crate) quoted_bools: bool,
}

/// A key that stands several times in a mapping of a patch. The first one counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyAgain {
    /// No other key has this very text.
    pub(crate) key: Str,
    /// The values after the first.
    pub(crate) later: Vec<Value>,
}

impl KeyNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.is_empty() && !self.is_of_values()
    }

    /// Does it say something of values, rather than of how their fields merge?
    pub(crate) fn is_of_values(&self) -> bool {
        !(self.odd_keys.is_empty() && self.again.is_empty() && self.quoted.is_empty() && !self.quoted_bools)
    }
}

/// Why a text could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ReadError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

/// Reads all documents of a text; empty ones are left out.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::Limits;
/// use roadstead_kustomize::value::Value;
/// use roadstead_kustomize::yaml::{Dialect, read_documents};
///
/// let documents = read_documents(b"a: 1\n---\n---\nb: yes\n", Dialect::Object, &Limits::default())?;
/// assert_eq!(documents.len(), 2);
/// assert!(documents[1].line > 1);
/// assert_eq!(documents[1].value.at(&["b"]), Some(&Value::string("yes")));
/// let error = read_documents(b"a: [\n", Dialect::Object, &Limits::default()).unwrap_err();
/// assert!(error.line >= 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_documents(bytes: &[u8], dialect: Dialect, limits: &Limits) -> Result<Vec<Document>, ReadError> {
    read_counted(bytes, dialect, limits, limits.memory).map(|read| read.documents)
}

/// Documents with what they count for.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) documents: Vec<Document>,
    /// No line of `---` parts the text.
    pub(crate) single: bool,
    /// Values, with aliases expanded.
    pub(crate) nodes: usize,
    /// Memory in bytes.
    pub(crate) memory: usize,
}

/// The same, within the memory that is left, and with what was read.
pub(crate) fn read_counted(
    bytes: &[u8],
    dialect: Dialect,
    limits: &Limits,
    room: usize,
) -> Result<Read, ReadError> {
    read(bytes, dialect, dialect == Dialect::Object, limits, room)
}

/// Reads all documents as a kustomization, and refuses keys that stand twice. These are the rules by which an apiserver
/// reads YAML too. Gives the number of values with them.
///
/// # Errors
/// Where the text is not YAML, or passes a bound.
pub fn read_strict(bytes: &[u8], limits: &Limits) -> Result<(Vec<Document>, usize), ReadError> {
    read_strict_counted(bytes, limits, limits.memory).map(|read| (read.documents, read.nodes))
}

/// The same, within the memory that is left.
pub(crate) fn read_strict_counted(bytes: &[u8], limits: &Limits, room: usize) -> Result<Read, ReadError> {
    read(bytes, Dialect::Kustomization, true, limits, room)
}

fn read(
    bytes: &[u8],
    dialect: Dialect,
    unique: bool,
    limits: &Limits,
    room: usize,
) -> Result<Read, ReadError> {
    let text = split::text(bytes)?;
    let at_start = |message| ReadError { line: 1, message };
    let mut reader = Reader {
        tally: Tally::start(limits, room, text.len()).map_err(at_start)?,
        dialect,
        unique,
        limits,
        documents: Vec::new(),
        stack: Vec::new(),
        items: Vec::new(),
        entries: Vec::new(),
        anchors: HashMap::new(),
        begun: 0,
        notes: KeyNotes::default(),
        comments: None,
        before: Mark::default(),
        keys: HashSet::new(),
        flow: Vec::new(),
        line: 1,
        document_line: 1,
        before_comments: false,
    };
    let mut single = true;
    if dialect == Dialect::Kustomization {
        // go-yaml 2 reads the first document, and does not look at what comes after it. A strict reader does.
        reader.read(Part { text, line: 0 }, !unique)?;
    } else {
        // Of objects, what stands between two `---` is read apart, and the first document of each part counts.
        for (i, part) in split::parts(text).enumerate() {
            single = i == 0;
            reader.read(part?, true)?;
        }
    }
    let (nodes, memory) = (reader.tally.counted().nodes, reader.tally.kept());
    Ok(Read { documents: reader.documents, single, nodes, memory })
}

/// The key under which mappings stand that are merged into the one around it.
const MERGE: &str = "<<";

/// A list or mapping that is still open, with the place of its first item or entry among those of all.
enum Frame<'t> {
    List { first: usize, anchor: Option<Anchor<'t>>, from: Count },
    Map { first: usize, keys: Keys, key: Option<Key>, anchor: Option<Anchor<'t>>, from: Count },
}

/// What the keys of an open mapping say besides the entries.
#[derive(Default)]
struct Keys {
    /// What is merged into it.
    merges: Vec<Value>,
    /// It had a key that says `<<`.
    cleared: bool,
    /// It has a key that is a list or mapping.
    ignored: bool,
}

/// An anchor, and how many began before it.
#[derive(Clone, Copy)]
struct Anchor<'t> {
    name: &'t str,
    number: usize,
}

/// What an anchor is for.
struct Anchored {
    /// How many anchors began before it.
    number: usize,
    /// None while it is still open.
    value: Option<(Value, Count)>,
}

enum Key {
    Name(Str),
    Merge,
    /// A key with the tag of a merge, which stays where it is too.
    MergeAndName(Str),
    /// A key that says `<<` and is not a merge: kustomize clears the first one all the same.
    Cleared,
    /// A list or mapping in a patch, which fits nothing.
    Ignored,
}

struct Reader<'l, 't> {
    dialect: Dialect,
    /// Is a key that stands twice an error?
    unique: bool,
    limits: &'l Limits,
    documents: Vec<Document>,
    stack: Vec<Frame<'t>>,
    /// What stands in the open lists and in the open mappings: each is made at its end, of the right size.
    items: Vec<Value>,
    entries: Vec<(Str, Value)>,
    /// Values by anchor, with what they count; none while what the anchor is for is still open. The number tells which of
    /// several anchors of one name began last.
    anchors: HashMap<&'t str, Anchored>,
    begun: usize,
    notes: KeyNotes,
    /// Of the part that is read, if it has comments that count.
    comments: Option<Comments<'t>>,
    /// Where the last thing ended that is not a comment.
    before: Mark,
    /// Keys come again and again: one allocation for each.
    keys: HashSet<Str>,
    tally: Tally<'l>,
    /// Is each open list or mapping in brackets?
    flow: Vec<bool>,
    line: usize,
    document_line: usize,
    /// Is a block read that keeps empty lines at its end, with nothing but comments after it?
    before_comments: bool,
}

impl<'l, 't> Reader<'l, 't> {
    /// Reads the documents of a part, or its first one.
    fn read(&mut self, part: Part<'t>, first_only: bool) -> Result<(), ReadError> {
        let before = part.line;
        let mut parser = Parser::new(part.text, self.limits.depth);
        self.before = Mark::default();
        self.comments = if self.dialect == Dialect::Kustomization { None } else { Comments::find(part.text) };
        let lines = self.comments.as_ref().map_or(0, Comments::len);
        self.count(|tally| tally.lines(lines))?;
        let mut first = true;
        loop {
            let next = parser.next().map_err(|error| ReadError { line: before + error.line, ..error })?;
            let Some((event, span)) = next else { return Ok(()) };
            self.line = before + span.start.line + 1;
            if let Event::DocumentStart { .. } = event {
                // What follows a line of `---` starts there.
                self.document_line = if before > 0 && first { before } else { self.line };
                first = false;
            }
            let ends = event == Event::DocumentEnd;
            let ended = match event {
                Event::Scalar { .. } | Event::Alias(_) => true,
                Event::SequenceEnd | Event::MappingEnd => self.flow.last() == Some(&true),
                _ => false,
            };
            self.before_comments = parser.is_before_comments(span);
            self.event(event, span)?;
            if ended {
                self.before = span.end;
            }
            if ends && first_only {
                return Ok(());
            }
        }
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError { line: self.line, message: message.into() })
    }

    /// Takes the line into an error of the counters.
    fn count(&mut self, count: impl FnOnce(&mut Tally<'l>) -> Result<(), String>) -> Result<(), ReadError> {
        count(&mut self.tally).or_else(|message| self.error(message))
    }

    fn open(&mut self, frame: Frame<'t>, flow: bool) -> Result<(), ReadError> {
        self.count(Tally::open)?;
        if self.wants_key() && self.dialect != Dialect::Patch {
            return self.error("a mapping key must be a string");
        }
        if self.stack.len() >= self.limits.depth {
            return self.error(format!("nested deeper than {}", self.limits.depth));
        }
        self.stack.push(frame);
        self.flow.push(flow);
        Ok(())
    }

    fn event(&mut self, event: Event<'t>, span: Span) -> Result<(), ReadError> {
        match event {
            Event::DocumentStart { .. } => {
                self.anchors.clear();
                if self.documents.len() >= self.limits.documents {
                    return self.error(format!("more than {} documents", self.limits.documents));
                }
                Ok(())
            }
            Event::Sequence { about, flow } => {
                let from = self.tally.counted();
                let anchor = self.begin(&about);
                self.open(Frame::List { first: self.items.len(), anchor, from }, flow)
            }
            Event::Mapping { about, flow } => {
                let from = self.tally.counted();
                let first = self.entries.len();
                let anchor = self.begin(&about);
                self.open(Frame::Map { first, keys: Keys::default(), key: None, anchor, from }, flow)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Scalar { text, style, about } => self.scalar_event(&text, style, &about, span),
            Event::Alias(name) => self.alias(name),
            Event::DocumentEnd | Event::End => Ok(()),
        }
    }

    fn scalar_event(
        &mut self,
        text: &str,
        style: ScalarStyle,
        about: &About<'t>,
        span: Span,
    ) -> Result<(), ReadError> {
        self.count(|tally| tally.scalar(text.len()))?;
        let anchor = self.begin(about);
        // For go-yaml 3, an exclamation mark alone says nothing.
        let says = |tag: &&str| *tag != "!" || self.dialect == Dialect::Kustomization;
        let tag = about.tag.as_deref().filter(says);
        if self.wants_key() {
            let key = self.hinted_key(text, style, tag, span)?;
            if let Some(anchor) = anchor
                && let Key::Name(name) = &key
            {
                let name = Value::string(name.clone());
                self.anchor(anchor, &name, scalar_count(&name))?;
            }
            self.set_key(key);
            return Ok(());
        }
        let longer;
        let text = if self.before_comments && self.is_made_longer(text, style) {
            longer = format!("{text}\n");
            &longer
        } else {
            text
        };
        self.count(|tally| tally.text(text.len()))?;
        let value = self.scalar(text, style, tag)?;
        if let Some(anchor) = anchor {
            self.anchor(anchor, &value, scalar_count(&value))?;
        }
        self.put(value)
    }

    fn alias(&mut self, name: &str) -> Result<(), ReadError> {
        let count = match self.anchors.get(name) {
            Some(Anchored { value: Some((_, count)), .. }) => *count,
            Some(Anchored { value: None, .. }) => {
                return self.error(format!("anchor {name:?} contains itself"));
            }
            None => return self.error(format!("found unknown anchor {name:?}")),
        };
        self.count(|tally| tally.copy(count))?;
        let anchored = self.anchors.get(name).and_then(|anchored| anchored.value.as_ref());
        let Some(mut value) = anchored.map(|(value, _)| value.clone()) else { return Ok(()) };
        if self.wants_key() {
            let Value::String(name) = value else {
                return self.error("a mapping key must be a string");
            };
            self.set_key(Key::Name(name.into_shared()));
            return Ok(());
        }
        let merges = matches!(
            self.stack.last(),
            Some(Frame::Map { key: Some(Key::Merge | Key::MergeAndName(_)), .. })
        );
        if merges && self.dialect != Dialect::Kustomization && value.as_map().is_none() {
            return self.error("map merge requires a mapping, or a list of mappings, as its value");
        }
        let flow = self.flow.last() == Some(&true);
        self.copy_into(&mut value, flow);
        self.put(value)
    }

    /// Fits a copy to the brackets around it, or to none.
    fn copy_into(&self, value: &mut Value, flow: bool) {
        match (self.dialect, flow) {
            (Dialect::Kustomization, _) => {}
            (_, true) => value.put_in_brackets(),
            (_, false) => value.take_out_of_brackets(),
        }
    }

    fn set_key(&mut self, key: Key) {
        if let Some(Frame::Map { key: slot, .. }) = self.stack.last_mut() {
            *slot = Some(key);
        }
    }

    /// Notes that what an anchor is for begins.
    fn begin(&mut self, about: &About<'t>) -> Option<Anchor<'t>> {
        let name = about.anchor?;
        self.begun += 1;
        self.anchors.insert(name, Anchored { number: self.begun, value: None });
        Some(Anchor { name, number: self.begun })
    }

    /// Keeps what an anchor names. An alias gets a copy, and so does the anchor: both are counted before they are made.
    fn anchor(&mut self, anchor: Anchor<'t>, value: &Value, count: Count) -> Result<(), ReadError> {
        if self.anchors.get(anchor.name).is_some_and(|known| known.number != anchor.number) {
            // An anchor of this name that began inside of this one counts from there on.
            return Ok(());
        }
        self.count(|tally| tally.anchor(count))?;
        let value = Some((value.clone(), count));
        self.anchors.insert(anchor.name, Anchored { number: anchor.number, value });
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame::Map { key: None, .. }))
    }

    fn intern(&mut self, key: &str) -> Result<Str, ReadError> {
        if let Some(known) = self.keys.get(key) {
            return Ok(known.clone());
        }
        self.count(|tally| tally.new_key(key.len()))?;
        let key = Str::from(key);
        self.keys.insert(key.clone());
        Ok(key)
    }

    /// Adds a finished value to what is open.
    fn put(&mut self, value: Value) -> Result<(), ReadError> {
        let in_list = matches!(self.stack.last(), Some(Frame::List { .. }));
        let (items, entries) = (self.items.len() + 1, self.entries.len() + 1);
        self.count(|tally| tally.put(items, entries, in_list))?;
        if matches!(self.stack.last(), Some(Frame::Map { key: Some(Key::Ignored), .. })) {
            // The mapping knows of it, and this tells to look for the mapping.
            self.count(|tally| tally.odd_key(0))?;
            self.notes.odd_keys.push("".into());
        }
        match self.stack.last_mut() {
            None => {
                if !value.is_null() {
                    let notes = std::mem::take(&mut self.notes);
                    self.documents.push(Document { value, line: self.document_line, notes });
                }
            }
            Some(Frame::List { .. }) => self.items.push(value),
            Some(Frame::Map { keys, key, .. }) => match key.take() {
                Some(Key::Name(name)) => self.entries.push((name, value)),
                Some(Key::Merge | Key::MergeAndName(_))
                    if !keys.merges.is_empty() && self.dialect != Dialect::Kustomization =>
                {
                    return self.error("duplicate key << in this mapping");
                }
                Some(Key::Merge) => keys.merges.push(value),
                Some(Key::MergeAndName(name)) => {
                    keys.merges.push(value.clone());
                    self.entries.push((name, value));
                }
                Some(Key::Ignored) => keys.ignored = true,
                Some(Key::Cleared) => {}
                None if self.dialect == Dialect::Patch => *key = Some(Key::Ignored),
                None => return self.error("a mapping key must be a string"),
            },
        }
        Ok(())
    }

    fn close(&mut self, span: Span) -> Result<(), ReadError> {
        let flow = self.flow.pop() == Some(true);
        let (value, anchor, from) = match self.stack.pop() {
            Some(Frame::List { first, anchor, from }) => {
                let mut list: List = self.items.drain(first..).collect();
                list.set_brackets(flow);
                (Value::List(list), anchor, from)
            }
            Some(Frame::Map { first, keys, anchor, from, .. }) => {
                let entries: Vec<_> = self.entries.drain(first..).collect();
                let mut map = match self.dialect {
                    _ if self.unique => match Map::from_unsorted(entries) {
                        Ok(map) => map,
                        Err(key) => {
                            return self.error(format!("duplicate key {key:?} in this mapping"));
                        }
                    },
                    Dialect::Kustomization | Dialect::Object => entries.into_iter().collect(),
                    Dialect::Patch => self.first_entries(entries)?,
                };
                if !keys.merges.is_empty() {
                    map = self.merge(map, keys.merges, flow)?;
                }
                map.set_odd(keys.ignored);
                map.set_brackets(flow);
                (Value::Map(map), anchor, from)
            }
            None => return self.error("unbalanced end of a list or mapping"),
        };
        if flow {
            self.hint_on_brackets(span)?;
        }
        if let Some(anchor) = anchor {
            let now = self.tally.counted();
            let count = Count {
                nodes: now.nodes - from.nodes,
                text: now.text - from.text,
                slots: now.slots - from.slots,
            };
            self.anchor(anchor, &value, count)?;
        }
        self.put(value)
    }

    /// `<<`: what stands in the mapping itself wins, then the earlier of several merged mappings.
    fn merge(&mut self, map: Map, merges: Vec<Value>, flow: bool) -> Result<Map, ReadError> {
        let mut sources = Vec::new();
        for merged in merges {
            match merged {
                Value::List(items) => sources.extend(items),
                single => sources.push(single),
            }
        }
        let count =
            sources.iter().map(|source| source.as_map().map_or(0, Map::len)).sum::<usize>() + map.len();
        self.count(|tally| tally.merged(count))?;
        let mut entries = Vec::with_capacity(count);
        for source in sources.into_iter().rev() {
            let Value::Map(source) = source else {
                return self.error("map merge requires a mapping, or a list of mappings, as its value");
            };
            entries.extend(source.into_entries().into_iter().map(|(key, mut value)| {
                self.copy_into(&mut value, flow);
                (key, value)
            }));
        }
        entries.extend(map.into_entries());
        Ok(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, ReadError> {
        let documents = read_documents(text.as_bytes(), Dialect::Object, &Limits::default())?;
        Ok(documents.into_iter().map(|d| d.value.to_json().to_string()).collect())
    }

    #[test]
    fn documents_anchors_and_merges() {
        let text = "---\na: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n---\n---\n- *x\n";
        assert!(read(text).is_err(), "an anchor ends with its document");
        let text = "# nothing\n---\na: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n---\n---\n- 012\n";
        assert_eq!(read(text).unwrap(), [r#"{"a":{"b":1,"c":2},"d":{"b":1,"c":3}}"#, "[10]"]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, part) in [
            ("a: 1\nb: 2\na: 3\n", 1, "duplicate key"),
            ("a: 1\n2: b\n", 2, "quote it"),
            ("a: .inf\n", 1, "JSON"),
            ("a: b: c\n", 1, ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.line >= line && error.message.contains(part), "{text:?}: {error:?}");
        }
        let error = read_documents(b"a: 1\nb: \xff\n", Dialect::Object, &Limits::default()).unwrap_err();
        assert_eq!(error, ReadError { line: 2, message: "not valid UTF-8".into() });
    }

    #[test]
    fn an_alias_bomb_is_bounded() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..30 {
            let before = format!("*a{}", i - 1);
            text += &format!("a{i}: &a{i} [{}]\n", vec![before; 10].join(", "));
        }
        assert!(read(&text).unwrap_err().message.contains("aliases"));
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(read(&deep).is_err());
        assert!(read(&format!("{}x", "- ".repeat(10_000))).is_err());
    }
}
