//! From values to bytes, as go-yaml 2 writes them: sorted keys, its choice of quotes, literal blocks, lines of 80.

use std::fmt::Write as _;

use super::facts::{Facts, is_break, is_printable};
use super::keys::{in_order, sort_keys};
use super::resolve::plain_is_text;
use crate::run::{self, Bytes};
use crate::value::{Map, NullForm, Num, Value};

/// From this column on, a line is broken at the next single space.
const BEST_WIDTH: usize = 80;
const BEST_INDENT: isize = 2;
/// A key longer than this is written with `?`.
const SIMPLE_KEY_BYTES: usize = 128;

/// Appends a document, without `---`, ending with a newline.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::value::Value;
/// use roadstead_kustomize::yaml::write_document;
///
/// let mut out = String::new();
/// write_document(&mut out, &Value::from_json(&serde_json::json!({"a10": "yes", "a2": ["x", 1]})));
/// assert_eq!(out, "a2:\n- x\n- 1\na10: \"yes\"\n");
/// ```
pub fn write_document(out: &mut String, value: &Value) {
    match value {
        Value::Map(map) if !map.is_empty() => write_map(out, map),
        value => Emitter::run(out, |emitter| emitter.node(value, Context::Root)),
    }
}

/// A scalar as it is written without quotes.
pub(crate) fn scalar_as_written(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.num.canonical() {
            Num::Int(i) => i.to_string(),
            Num::Uint(u) => u.to_string(),
            Num::Float(f) => float_as_written(f),
        },
        other => other.scalar_text().map_or_else(String::new, |text| text.to_string()),
    }
}

/// Appends a mapping as a document, without `---`, ending with a newline.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::value::{Map, Value};
/// use roadstead_kustomize::yaml::write_map;
///
/// let mut map = Map::new();
/// map.insert("kind", Value::string("List"));
/// let mut out = String::new();
/// write_map(&mut out, &map);
/// assert_eq!(out, "kind: List\n");
/// ```
pub fn write_map(out: &mut String, map: &Map) {
    if map.is_empty() {
        out.push_str("{}\n");
    } else {
        Emitter::run(out, |emitter| emitter.map(map));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Root,
    Sequence,
    Mapping,
    SimpleKey,
    /// In brackets, on one line.
    Flow,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
    /// Nothing is asked: empty brackets.
    Raw,
}

pub(super) struct Emitter<'o> {
    out: &'o mut String,
    /// From this column on, a line is broken at the next single space.
    width: usize,
    column: usize,
    indent: isize,
    /// The last character was white space.
    whitespace: bool,
    /// Only indentation and indicators stand on the line so far.
    indention: bool,
}

impl<'o> Emitter<'o> {
    fn run(out: &'o mut String, write: impl FnOnce(&mut Self)) {
        Self::run_to(out, BEST_WIDTH, write);
    }

    /// The same without breaking long lines, as go-yaml 3 does.
    pub(super) fn run_wide(out: &'o mut String, write: impl FnOnce(&mut Self)) {
        Self::run_to(out, usize::MAX, write);
    }

    fn run_to(out: &'o mut String, width: usize, write: impl FnOnce(&mut Self)) {
        let mut emitter = Self { out, width, column: 0, indent: -1, whitespace: true, indention: true };
        write(&mut emitter);
        emitter.indent = 0;
        emitter.write_indent();
    }

    pub(super) fn indent(&self) -> isize {
        self.indent
    }

    /// Writes a comment, after a space where something stands before it.
    pub(super) fn comment(&mut self, text: &str) {
        if !self.whitespace {
            self.put(' ');
        }
        text.chars().for_each(|c| self.put(c));
        (self.whitespace, self.indention) = (false, false);
    }

    /// Begins a list; gives the indent to go back to.
    pub(super) fn open_list(&mut self, context: Context) -> isize {
        let indentless = context == Context::Mapping && !self.indention;
        self.increase_indent(false, indentless)
    }

    /// Begins a mapping; gives the indent to go back to.
    pub(super) fn open_map(&mut self) -> isize {
        self.increase_indent(false, false)
    }

    /// Ends a list or mapping.
    pub(super) fn close(&mut self, before: isize) {
        self.indent = before;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    /// Writes a text without line breaks.
    fn put_line(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    /// Is a text to be written as it is: printable ASCII that no line break can come into?
    fn fits(&self, text: &str, allow_breaks: bool) -> bool {
        (!allow_breaks || self.column.saturating_add(text.len()) <= self.width)
            && run::len(text.as_bytes(), &Bytes([], [(0, b' ' - 1), (b'~' + 1, 0xff)])) == text.len()
    }

    pub(super) fn put_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    pub(super) fn write_indent(&mut self) {
        let indent = usize::try_from(self.indent).unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.put_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    pub(super) fn indicator(
        &mut self,
        text: &str,
        need_whitespace: bool,
        is_whitespace: bool,
        is_indention: bool,
    ) {
        if need_whitespace && !self.whitespace {
            self.put(' ');
        }
        self.out.push_str(text);
        self.column += text.len();
        self.whitespace = is_whitespace;
        self.indention = self.indention && is_indention;
    }

    fn increase_indent(&mut self, flow: bool, indentless: bool) -> isize {
        let before = self.indent;
        if before < 0 {
            self.indent = if flow { BEST_INDENT } else { 0 };
        } else if !indentless {
            self.indent += BEST_INDENT;
        }
        before
    }

    fn node(&mut self, value: &Value, context: Context) {
        match value {
            Value::Null(NullForm::Quoted) => self.text("", context),
            Value::Null(_) => self.scalar("null", Style::Plain, context),
            Value::Bool(true) => self.scalar("true", Style::Plain, context),
            Value::Bool(false) => self.scalar("false", Style::Plain, context),
            Value::Number(_) => self.scalar(&scalar_as_written(value), Style::Plain, context),
            Value::String(text) => self.text(text, context),
            Value::List(items) if items.is_empty() => self.indicator("[]", true, false, false),
            Value::List(items) => {
                let indentless = context == Context::Mapping && !self.indention;
                let before = self.increase_indent(false, indentless);
                for item in items {
                    self.write_indent();
                    self.indicator("-", true, false, true);
                    self.node(item, Context::Sequence);
                }
                self.indent = before;
            }
            Value::Map(map) if map.is_empty() => self.indicator("{}", true, false, false),
            Value::Map(map) => self.map(map),
        }
    }

    fn map(&mut self, map: &Map) {
        let before = self.increase_indent(false, false);
        // The keys come in byte order. That is the natural order too, except where digits or non-letters are involved.
        if map.iter().is_sorted_by(|a, b| in_order(&a.0, &b.0)) {
            map.iter().for_each(|(key, value)| self.entry(key, value));
        } else {
            let mut entries: Vec<_> = map.iter().map(|(k, v)| (&**k, v)).collect();
            sort_keys(&mut entries);
            entries.into_iter().for_each(|(key, value)| self.entry(key, value));
        }
        self.indent = before;
    }

    fn entry(&mut self, key: &str, value: &Value) {
        self.write_indent();
        if key.len() <= SIMPLE_KEY_BYTES && !key.contains(is_break) {
            self.text(key, Context::SimpleKey);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.text(key, Context::Mapping);
            self.write_indent();
            self.indicator(":", true, false, true);
        }
        self.node(value, Context::Mapping);
    }

    fn text(&mut self, text: &str, context: Context) {
        if is_word(text) && plain_is_text(text) {
            // Most texts: the long way comes to the same.
            if !self.whitespace {
                self.put(' ');
            }
            self.put_line(text);
            (self.whitespace, self.indention) = (false, false);
            return;
        }
        let style = if text.contains('\n') {
            Style::Literal
        } else if plain_is_text(text) {
            Style::Plain
        } else {
            Style::Double
        };
        self.scalar(text, style, context);
    }

    pub(super) fn scalar(&mut self, text: &str, wanted: Style, context: Context) {
        let facts = Facts::of(text);
        let key = context == Context::SimpleKey;
        let mut style = wanted;
        if key && facts.multiline {
            style = Style::Double;
        }
        if style == Style::Plain && (!facts.plain_allowed || (text.is_empty() && key)) {
            style = Style::Single;
        }
        if style == Style::Single && !facts.single_allowed {
            style = Style::Double;
        }
        if matches!(style, Style::Literal | Style::Folded) && (!facts.block_allowed || key) {
            style = Style::Double;
        }
        let before = self.increase_indent(true, false);
        match style {
            Style::Plain => self.plain(text, !key),
            Style::Single => self.single_quoted(text, !key),
            Style::Double => self.double_quoted(text, !key),
            Style::Literal => self.literal(text, false),
            Style::Folded => self.literal(text, true),
            Style::Raw => self.indicator(text, true, false, false),
        }
        self.indent = before;
    }

    /// A text without a newline; of the characters that break a line, only the two of Unicode can be in it.
    fn folded(&mut self, text: &str, allow_breaks: bool, quoted: bool) {
        if self.fits(text, allow_breaks) && !(quoted && text.contains('\'')) {
            // The callers note what this leaves behind.
            self.put_line(text);
            return;
        }
        let mut spaces = false;
        let mut breaks = false;
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let i = at;
            at += c.len_utf8();
            if c == ' ' {
                let inside = !quoted || (i > 0 && i + 1 < text.len());
                let next_is_space = text[at..].starts_with(' ');
                if allow_breaks && !spaces && self.column > self.width && inside && !next_is_space {
                    self.write_indent();
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else if is_break(c) {
                self.out.push(c);
                self.column = 0;
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if quoted && c == '\'' {
                    self.put('\'');
                }
                let Bytes([a, b, c, d], []) = run::BREAKS;
                let special = Bytes([b'\'', a, b, c, d], []);
                at = self.run_end(text, (i, at), allow_breaks, &special);
                let run = &text[i..at];
                self.put_line(run);
                self.indention = false;
                (spaces, breaks) = (run.ends_with(' '), false);
            }
        }
    }

    /// Where what begins at a character ends of which nothing is special: no line is broken before it is full.
    fn run_end<const SINGLE: usize, const RANGES: usize>(
        &self,
        text: &str,
        (start, next): (usize, usize),
        allow_breaks: bool,
        special: &Bytes<SINGLE, RANGES>,
    ) -> usize {
        let room =
            if allow_breaks { self.width.saturating_add(1).saturating_sub(self.column) } else { text.len() };
        let full = start.saturating_add(room).clamp(next, text.len());
        let mut at = next + run::len(&text.as_bytes()[next..full], special);
        if at == full {
            let rest = &text.as_bytes()[at..];
            let word = run::len(rest, &Bytes([b' '], []));
            at += run::len(&rest[..word], special);
        }
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    fn plain(&mut self, text: &str, allow_breaks: bool) {
        if !self.whitespace {
            self.put(' ');
        }
        self.folded(text, allow_breaks, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.indicator("'", true, false, false);
        self.folded(text, allow_breaks, true);
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn double_quoted(&mut self, text: &str, allow_breaks: bool) {
        // go-yaml asks whether the whole text starts with a byte-order mark where it means this character.
        let all = text.starts_with('\u{feff}');
        self.indicator("\"", true, false, false);
        if self.fits(text, allow_breaks) && !text.contains(['"', '\\']) {
            self.put_line(text);
            self.indicator("\"", false, false, false);
            (self.whitespace, self.indention) = (false, false);
            return;
        }
        let mut spaces = false;
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let i = at;
            at += c.len_utf8();
            if all || !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                self.escape(c);
                spaces = false;
            } else if c == ' ' {
                if allow_breaks && !spaces && self.column > self.width && i > 0 && at < text.len() {
                    self.write_indent();
                    if text[at..].starts_with(' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else {
                let special = Bytes([b'"', b'\\'], [(0, b' ' - 1), (0x7f, 0xff)]);
                at = self.run_end(text, (i, at), allow_breaks, &special);
                let run = &text[i..at];
                self.put_line(run);
                spaces = run.ends_with(' ');
            }
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\x07' => 'a',
            '\x08' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\x0b' => 'v',
            '\x0c' => 'f',
            '\r' => 'r',
            '\x1b' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => '\0',
        };
        let before = self.out.len();
        let code = u32::from(c);
        // Writing to a String cannot fail.
        let _ = match (short, code) {
            ('\0', ..=0xff) => write!(self.out, "\\x{code:02X}"),
            ('\0', ..=0xffff) => write!(self.out, "\\u{code:04X}"),
            ('\0', _) => write!(self.out, "\\U{code:08X}"),
            (short, _) => write!(self.out, "\\{short}"),
        };
        self.column += self.out.len() - before;
    }

    /// A block; folded, a line that does not start with a space has an empty line after it.
    fn literal(&mut self, text: &str, folded: bool) {
        self.indicator(if folded { ">" } else { "|" }, true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut back = text.chars().rev();
        match (back.next(), back.next()) {
            (Some(last), _) if !is_break(last) => self.indicator("-", false, false, false),
            (Some(_), None) => self.indicator("+", false, false, false),
            (Some(_), Some(before)) if is_break(before) => self.indicator("+", false, false, false),
            _ => {}
        }
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        let mut leading_space = true;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if is_break(c) {
                if folded && !breaks && !leading_space && c == '\n' && !text.starts_with([' ', '\t']) {
                    self.put_break();
                }
                if c == '\n' {
                    self.put_break();
                } else {
                    self.out.push(c);
                    self.column = 0;
                }
                self.indention = true;
                breaks = true;
                rest = &rest[c.len_utf8()..];
            } else {
                if breaks {
                    self.write_indent();
                    leading_space = matches!(c, ' ' | '\t');
                }
                let (line, tail) = rest.split_at(line_len(rest));
                self.put_line(line);
                self.indention = false;
                breaks = false;
                rest = tail;
            }
        }
    }
}

/// The bytes of a text up to its first line break.
fn line_len(text: &str) -> usize {
    let mut at = 0;
    loop {
        at += run::len(&text.as_bytes()[at..], &run::BREAKS);
        match text[at..].chars().next() {
            Some(c) if !is_break(c) => at += c.len_utf8(),
            _ => return at,
        }
    }
}

/// A text that needs no quotes for any of its characters, wherever it stands.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '/'))
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'/' | b'.' | b'-'))
}

/// A float as Go prints it with `%g`.
pub(crate) fn float_as_written(f: f64) -> String {
    let scientific = format!("{f:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    format!("{f}")
}
