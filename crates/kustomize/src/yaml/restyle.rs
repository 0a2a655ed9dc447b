//! Writes a value in the style of the text that it was read from: order of keys, quotes, lists and mappings on one line,
//! comments. This is how go-yaml 3 writes back a document that was changed in places.
//!
//! Texts with anchors, aliases or tags are written plainly: they are rare where a text is changed at all.

use std::collections::{HashMap, HashSet};

use super::facts::flow_plain_allowed;
use super::parse::{Event, Parser, Span};
use super::plain_value;
use super::scan::ScalarStyle;
use super::write::{Context, Emitter, Style};
use crate::value::{Map, Value};

/// Writes a value like a text; plainly where the text has something that is not kept.
pub(crate) fn write_like(out: &mut String, value: &Value, text: &str) {
    let Some(document) = Reader::read(text) else {
        super::write_document(out, value);
        return;
    };
    for line in &document.around.head {
        out.push_str(line);
        out.push('\n');
    }
    if !document.around.head.is_empty() {
        out.push('\n');
    }
    Emitter::run_wide(out, |emitter| {
        Writer { emitter, holders: &document.holders, foot: None }.node(
            value,
            Some(&document.root),
            None,
            Context::Root,
        );
    });
    if !document.around.foot.is_empty() {
        out.push('\n');
    }
    for line in &document.around.foot {
        out.push_str(line);
        out.push('\n');
    }
}

/// How a value was written.
enum Node {
    Scalar { text: String, style: Style },
    List { flow: bool, items: Vec<(usize, Node)> },
    Map { flow: bool, entries: Vec<(usize, Key, Node)> },
}

struct Key {
    text: String,
    style: Style,
}

/// Something that comments belong to: an entry of a mapping or an element of a list.
struct Holder {
    line: usize,
    column: usize,
    head: Vec<String>,
    trailing: Option<String>,
    foot: Vec<String>,
}

struct Document {
    root: Node,
    holders: Vec<Holder>,
    around: Around,
}

/// Comments of the whole document: an empty line stands between them and the rest.
#[derive(Default)]
struct Around {
    head: Vec<String>,
    foot: Vec<String>,
}

/// A list or mapping that is still open.
struct Frame {
    node: Node,
    key: Option<(usize, Key)>,
}

/// Reads how a text is written.
struct Reader {
    chars: Vec<char>,
    stack: Vec<Frame>,
    holders: Vec<Holder>,
    /// Where scalars stand: a `#` in them is not a comment.
    scalars: Vec<(usize, usize)>,
    root: Option<Node>,
}

impl Reader {
    fn read(text: &str) -> Option<Document> {
        let mut reader = Self {
            chars: text.chars().collect(),
            stack: Vec::new(),
            holders: Vec::new(),
            scalars: Vec::new(),
            root: None,
        };
        let mut parser = Parser::new(text, usize::MAX);
        while let Some((event, span)) = parser.next().ok()? {
            match event {
                Event::Scalar { text, style, about } if about.is_empty() => reader.scalar(&text, style, span),
                Event::Sequence { about, flow } if about.is_empty() => {
                    reader.element(span);
                    reader.stack.push(Frame { node: Node::List { flow, items: Vec::new() }, key: None });
                }
                Event::Mapping { about, flow } if about.is_empty() => {
                    reader.element(span);
                    reader.stack.push(Frame { node: Node::Map { flow, entries: Vec::new() }, key: None });
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let node = reader.stack.pop()?.node;
                    reader.add(node);
                }
                Event::DocumentEnd => break,
                Event::End | Event::DocumentStart { .. } => {}
                Event::Scalar { .. } | Event::Sequence { .. } | Event::Mapping { .. } | Event::Alias(_) => {
                    return None;
                }
            }
        }
        let root = reader.root.take()?;
        let around = reader.comments();
        Some(Document { root, holders: reader.holders, around })
    }

    fn hold(&mut self, span: Span, back: usize) -> usize {
        let column = span.start.column.saturating_sub(back);
        let line = span.start.line + 1;
        self.holders.push(Holder { line, column, head: Vec::new(), trailing: None, foot: Vec::new() });
        self.holders.len() - 1
    }

    /// Notes the start of an element of a list, whose dash stands before it.
    fn element(&mut self, span: Span) {
        if let Some(Frame { node: Node::List { .. }, .. }) = self.stack.last() {
            let holder = self.hold(span, 2);
            if let Some(frame) = self.stack.last_mut() {
                frame.key = Some((holder, Key { text: String::new(), style: Style::Plain }));
            }
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, span: Span) {
        self.scalars.push((span.start.index, span.end.index));
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::Single => Style::Single,
            ScalarStyle::Double => Style::Double,
            ScalarStyle::Literal => Style::Literal,
            ScalarStyle::Folded => Style::Folded,
        };
        self.element(span);
        let is_key = matches!(self.stack.last(), Some(Frame { node: Node::Map { .. }, key: None }));
        if is_key {
            let holder = self.hold(span, 0);
            if let Some(frame) = self.stack.last_mut() {
                frame.key = Some((holder, Key { text: text.to_owned(), style }));
            }
        } else {
            self.add(Node::Scalar { text: text.to_owned(), style });
        }
    }

    fn add(&mut self, node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        match (&mut frame.node, frame.key.take()) {
            (Node::List { items, .. }, Some((holder, _))) => items.push((holder, node)),
            (Node::Map { entries, .. }, Some((holder, key))) => entries.push((holder, key, node)),
            _ => {}
        }
    }

    /// Gives comments to what they belong to; those of the whole document are left.
    fn comments(&mut self) -> Around {
        let mut around = Around::default();
        let blank = |line: &[char]| line.iter().all(|c| c.is_whitespace());
        let blanks: Vec<bool> = self.chars.split(|c| *c == '\n').map(blank).collect();
        let mut before = Before::default();
        let mut group: Vec<Comment> = Vec::new();
        for comment in self.find_comments() {
            if !comment.own_line {
                let at = self.holders.partition_point(|holder| holder.line <= comment.line);
                if let Some(holder) = at.checked_sub(1).and_then(|at| self.holders.get_mut(at)) {
                    holder.trailing = Some(comment.text);
                }
                continue;
            }
            if group.last().is_some_and(|last| last.line + 1 != comment.line) {
                self.give(std::mem::take(&mut group), &blanks, &mut before, &mut around);
            }
            group.push(comment);
        }
        self.give(group, &blanks, &mut before, &mut around);
        around
    }

    fn find_comments(&self) -> Vec<Comment> {
        let mut out = Vec::new();
        let mut scalars = self.scalars.iter().peekable();
        let (mut at, mut line, mut column, mut blank) = (0, 1, 0, true);
        while let Some(&c) = self.chars.get(at) {
            while scalars.next_if(|(_, end)| *end <= at).is_some() {}
            let inside = scalars.peek().is_some_and(|(start, _)| *start <= at);
            let before = at.checked_sub(1).and_then(|before| self.chars.get(before));
            if c == '\n' {
                (line, column, blank) = (line + 1, 0, true);
                at += 1;
                continue;
            }
            if c == '#' && !inside && before.is_none_or(|c| c.is_whitespace()) {
                let text: String = self.chars[at..].iter().take_while(|c| **c != '\n').collect();
                at += text.chars().count();
                out.push(Comment { line, column, own_line: blank, text: text.trim_end().to_owned() });
                continue;
            }
            blank &= c.is_whitespace() && !inside;
            (at, column) = (at + 1, column + 1);
        }
        out
    }

    /// A block of comments belongs to what follows on the next line, if that is not further out; else to what is before
    /// it, or to the document.
    fn give(&mut self, group: Vec<Comment>, blanks: &[bool], before: &mut Before, around: &mut Around) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let (first, last, column) = (first.line, last.line, last.column);
        let texts = group.into_iter().map(|comment| comment.text);
        let next = self.holders.partition_point(|holder| holder.line <= last);
        if let Some(next) = self.holders.get_mut(next)
            && next.line == last + 1
            && next.column >= column
        {
            next.head.extend(texts);
            return;
        }
        while let Some(holder) = self.holders.get(before.count).filter(|holder| holder.line < first) {
            before.last_at.insert(holder.column, before.count);
            before.count += 1;
        }
        let after_blank = first.checked_sub(2).and_then(|line| blanks.get(line)).is_some_and(|blank| *blank);
        let previous = before.last_at.get(&column).copied().or(before.count.checked_sub(1));
        let at_end = next == self.holders.len();
        match previous.and_then(|at| self.holders.get_mut(at)) {
            _ if at_end && after_blank => around.foot.extend(texts),
            Some(holder) => holder.foot.extend(texts),
            None => around.head.extend(texts),
        }
    }
}

/// What stands before a line.
#[derive(Default)]
struct Before {
    count: usize,
    /// The last holder at each column.
    last_at: HashMap<usize, usize>,
}

/// A comment, with its place.
struct Comment {
    line: usize,
    column: usize,
    own_line: bool,
    text: String,
}

struct Writer<'e, 'o, 'h> {
    emitter: &'e mut Emitter<'o>,
    holders: &'h [Holder],
    /// The indent of a comment after something: an empty line comes before what follows there.
    foot: Option<isize>,
}

impl Writer<'_, '_, '_> {
    fn node(&mut self, value: &Value, style: Option<&Node>, holder: Option<usize>, context: Context) {
        let trailing = holder.and_then(|holder| self.holders[holder].trailing.as_deref());
        match (value, style) {
            (Value::List(items), Some(Node::List { flow: true, .. })) if !items.is_empty() => {
                self.flow(value, style);
            }
            (Value::Map(map), Some(Node::Map { flow: true, .. })) if !map.is_empty() => {
                self.flow(value, style);
            }
            (Value::List(items), _) if !items.is_empty() => {
                self.comment(trailing);
                self.list(items, style, context);
                return;
            }
            (Value::Map(map), _) if !map.is_empty() => {
                self.comment(trailing);
                self.map(map, style);
                return;
            }
            _ => {
                let (text, style) = scalar(value, style);
                // A null that was not written is not written.
                if !text.is_empty() || style != Style::Plain {
                    self.emitter.scalar(&text, style, context);
                }
            }
        }
        self.comment(trailing);
    }

    fn comment(&mut self, text: Option<&str>) {
        if let Some(text) = text {
            self.emitter.comment(text);
        }
    }

    /// Starts a line for an entry, after the comments before it.
    fn start(&mut self, holder: Option<usize>) {
        if self.foot.take() == Some(self.emitter.indent()) {
            self.emitter.put_break();
        }
        for line in holder.map_or(&[][..], |holder| &self.holders[holder].head) {
            self.emitter.write_indent();
            self.emitter.comment(line);
        }
        self.emitter.write_indent();
    }

    fn end(&mut self, holder: Option<usize>) {
        for line in holder.map_or(&[][..], |holder| &self.holders[holder].foot) {
            self.emitter.write_indent();
            self.emitter.comment(line);
            self.foot = Some(self.emitter.indent());
        }
    }

    fn list(&mut self, items: &[Value], style: Option<&Node>, context: Context) {
        let known: &[(usize, Node)] = if let Some(Node::List { items, .. }) = style { items } else { &[] };
        let before = self.emitter.open_list(context);
        for (i, item) in items.iter().enumerate() {
            let known = known.get(i);
            let holder = known.map(|(holder, _)| *holder);
            self.start(holder);
            self.emitter.indicator("-", true, false, true);
            // A comment after an element that is a mapping was given to the last entry on that line.
            self.node(item, known.map(|(_, node)| node), holder, Context::Sequence);
            self.end(holder);
        }
        self.emitter.close(before);
    }

    fn map(&mut self, map: &Map, style: Option<&Node>) {
        let before = self.emitter.open_map();
        for (holder, key, node, value) in ordered(map, style) {
            self.start(holder);
            self.emitter.scalar(&key.0, key.1, Context::SimpleKey);
            self.emitter.indicator(":", false, false, false);
            self.node(value, node, holder, Context::Mapping);
            self.end(holder);
        }
        self.emitter.close(before);
    }

    /// A value on one line.
    fn flow(&mut self, value: &Value, style: Option<&Node>) {
        match value {
            Value::List(items) => {
                let known: &[(usize, Node)] =
                    if let Some(Node::List { items, .. }) = style { items } else { &[] };
                self.emitter.indicator("[", true, true, false);
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.emitter.indicator(",", false, false, false);
                    }
                    self.flow(item, known.get(i).map(|(_, node)| node));
                }
                self.emitter.indicator("]", false, false, false);
            }
            Value::Map(map) => {
                self.emitter.indicator("{", true, true, false);
                for (i, (_, key, node, value)) in ordered(map, style).into_iter().enumerate() {
                    if i > 0 {
                        self.emitter.indicator(",", false, false, false);
                    }
                    self.emitter.scalar(&key.0, flow_style(&key.0, key.1), Context::SimpleKey);
                    self.emitter.indicator(":", false, false, false);
                    self.flow(value, node);
                }
                self.emitter.indicator("}", false, false, false);
            }
            scalar_value => {
                let (text, style) = scalar(scalar_value, style);
                self.emitter.scalar(&text, flow_style(&text, style), Context::Flow);
            }
        }
    }
}

/// A text that could be more than itself on one line is quoted there.
fn flow_style(text: &str, style: Style) -> Style {
    match style {
        Style::Plain if !flow_plain_allowed(text) => Style::Single,
        Style::Literal | Style::Folded => Style::Double,
        style => style,
    }
}

type Ordered<'v> = (Option<usize>, (String, Style), Option<&'v Node>, &'v Value);

/// The entries of a mapping: first those that were there, in their order.
fn ordered<'v>(map: &'v Map, style: Option<&'v Node>) -> Vec<Ordered<'v>> {
    let known: &[(usize, Key, Node)] =
        if let Some(Node::Map { entries, .. }) = style { entries } else { &[] };
    let mut seen = HashSet::new();
    let mut out: Vec<Ordered<'_>> = Vec::with_capacity(map.len());
    for (holder, key, node) in known {
        if let Some(value) = map.get(&key.text)
            && seen.insert(key.text.as_str())
        {
            out.push((Some(*holder), (key.text.clone(), key.style), Some(node), value));
        }
    }
    for (key, value) in map.iter().filter(|(key, _)| !seen.contains(&**key)) {
        let (text, style) = scalar(&Value::string(key.clone()), None);
        out.push((None, (text, style), None, value));
    }
    out
}

/// The text of a scalar and its style: as it was, if it is the same or a text still.
fn scalar(value: &Value, known: Option<&Node>) -> (String, Style) {
    let known = match known {
        Some(Node::Scalar { text, style }) => Some((text, *style)),
        _ => None,
    };
    match (value, known) {
        (Value::List(_), _) => ("[]".to_owned(), Style::Raw),
        (Value::Map(_), _) => ("{}".to_owned(), Style::Raw),
        (Value::String(text), Some((_, style))) if style != Style::Plain => (text.to_string(), style),
        (Value::String(text), _) => {
            // Without quotes it would be something else.
            let style = match plain_value(text) {
                _ if text.contains('\n') => Style::Literal,
                Value::String(_) => Style::Plain,
                _ => Style::Double,
            };
            (text.to_string(), style)
        }
        (value, Some((text, Style::Plain))) if plain_value(text) == *value => (text.clone(), Style::Plain),
        (value, _) => (value.scalar_text().unwrap_or_else(|| "".into()).to_string(), Style::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let documents = crate::yaml::read_documents(
            text.as_bytes(),
            crate::yaml::Dialect::Object,
            &crate::Limits::default(),
        );
        let mut out = String::new();
        write_like(&mut out, &documents.unwrap()[0].value, text);
        out
    }

    #[test]
    fn what_is_written_in_style_stays() {
        for text in [
            "# head\n\nb: 'x' # one\na: \"y # no comment\" # two\n# before\nc:\n- 1\n# between\n- {k: v, l: [a, 1.0]}\n",
            "a:\n  b: 1\n  # after b\nc: |\n  # text\n\n  more\ne:\nf: ~\n",
            "a: 1\n# after a\n\nb: it's\n\n# last\n",
        ] {
            assert_eq!(rewritten(text), text);
        }
        assert_eq!(rewritten("a: &x {b: 1}\n"), "a:\n  b: 1\n");
        assert_eq!(rewritten("a:\n    - b:   1   #  c\n\n    - 'd'\n"), "a:\n- b: 1 #  c\n- 'd'\n");
    }
}
