//! INI files as go-ini reads and writes them.
//!
//! What stands before the first section is in one called `DEFAULT`. Sections of one name are kept apart; of keys of one name
//! in a section the last one counts, at the place of the first.

use std::collections::HashMap;

use zeroize::Zeroizing;

use super::{Format, Tally, as_text};
use crate::buffer::Buffer;
use crate::error::{Error, Place};
use crate::tree::{Comment, Item, Key, Map, Text, Value};

const DEFAULT: &str = "DEFAULT";

#[derive(Default)]
struct Section {
    name: Vec<u8>,
    comment: Vec<u8>,
    keys: Vec<Entry>,
    /// Where among the keys each name is.
    places: HashMap<Vec<u8>, usize>,
    /// For keys that are called `-`: they are counted.
    next: usize,
}

struct Entry {
    name: Vec<u8>,
    value: Text,
    comment: Vec<u8>,
}

impl Section {
    fn named(name: &[u8]) -> Self {
        Self { name: name.to_vec(), next: 1, ..Self::default() }
    }

    fn into_item(self) -> Item {
        let mut items = Map::new();
        if !self.comment.is_empty() {
            items.push(Item::comment(Comment::new(without_sign(&self.comment))));
        }
        for entry in self.keys {
            items.push(Item::new(entry.name, Value::Text(entry.value)));
            if !entry.comment.is_empty() {
                items.push(Item::comment(Comment::new(without_sign(&entry.comment))));
            }
        }
        Item::new(self.name, Value::Map(items))
    }
}

/// A comment without what marks it as one.
fn without_sign(comment: &[u8]) -> &[u8] {
    let Some(sign @ (b';' | b'#')) = comment.first() else { return comment };
    let skip = comment.iter().take_while(|byte| *byte == sign || **byte == b' ').count();
    comment.get(skip..).unwrap_or_default()
}

pub(super) fn read(file: &[u8], tally: &mut Tally<'_>) -> Result<Map, Error> {
    let file = file.strip_prefix("\u{feff}".as_bytes()).unwrap_or(file);
    let mut reader = Reader { rest: file, line: 0, comment: Vec::new(), tally };
    let mut sections = vec![Section::named(DEFAULT.as_bytes())];
    while let Some(line) = reader.next_line() {
        let line = trim_start(line);
        match line.first() {
            None => {}
            // The end of its line stays until the whole comment is known.
            Some(b'#' | b';') => reader.comment.extend_from_slice(line),
            Some(b'[') => sections.push(reader.section(line)?),
            Some(_) => {
                let Some(section) = sections.last_mut() else { continue };
                reader.key(line, section)?;
            }
        }
    }
    Ok(sections.into_iter().map(Section::into_item).collect())
}

struct Reader<'r, 'l> {
    rest: &'r [u8],
    line: usize,
    /// What was read of comments and belongs to what comes next.
    comment: Vec<u8>,
    tally: &'r mut Tally<'l>,
}

impl<'r> Reader<'r, '_> {
    /// A line, with its end.
    fn next_line(&mut self) -> Option<&'r [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        self.line += 1;
        Some(line)
    }

    fn error(&self, problem: &str) -> Error {
        self.tally.malformed(format!("line {}: {problem}", self.line))
    }

    fn take_comment(&mut self) -> Vec<u8> {
        let comment = std::mem::take(&mut self.comment);
        trim(&comment).to_vec()
    }

    fn section(&mut self, line: &[u8]) -> Result<Section, Error> {
        let end = line.iter().rposition(|byte| *byte == b']');
        let parts = end.and_then(|end| Some((line.get(1..end)?, line.get(end + 1..)?)));
        let (name, after) = parts.ok_or_else(|| self.error("a section header has no closing bracket"))?;
        if name.is_empty() {
            return Err(self.error("a section has no name"));
        }
        self.tally.count(name.len())?;
        if let Some(at) = after.iter().position(|byte| matches!(byte, b'#' | b';')) {
            self.comment.extend_from_slice(after.get(at..).unwrap_or_default());
        }
        let mut section = Section::named(name);
        section.comment = self.take_comment();
        Ok(section)
    }

    fn key(&mut self, line: &'r [u8], section: &mut Section) -> Result<(), Error> {
        let (name, value) = self.name(line)?;
        let name = match name {
            b"-" => {
                section.next += 1;
                format!("#{}", section.next - 1).into_bytes()
            }
            b"" => return Err(self.error("a key has no name")),
            name => name.to_vec(),
        };
        let value = self.value(value)?;
        self.tally.count(name.len() + value.len() + self.comment.len())?;
        let comment = self.take_comment();
        let known = section.places.get(&name).and_then(|at| section.keys.get_mut(*at));
        match known {
            Some(entry) => (entry.value, entry.comment) = (Text::new(value), comment),
            None => {
                section.places.insert(name.clone(), section.keys.len());
                section.keys.push(Entry { name, value: Text::new(value), comment });
            }
        }
        Ok(())
    }

    /// The name of a key, which may be in quotes, and what follows the sign after it.
    fn name<'t>(&self, line: &'t [u8]) -> Result<(&'t [u8], &'t [u8]), Error> {
        let missing = || self.error("expected '=' or ':' after the key");
        let split = |text: &'t [u8]| {
            let at = text.iter().position(|byte| matches!(byte, b'=' | b':'))?;
            Some((text.get(..at)?, text.get(at + 1..)?))
        };
        let quote: &[u8] = match line {
            [b'"', b'"', b'"', _, _, _, _, ..] => b"\"\"\"",
            [b'"', ..] => b"\"",
            [b'`', ..] => b"`",
            _ => {
                let (name, value) = split(line).ok_or_else(missing)?;
                return Ok((trim(name), value));
            }
        };
        let inner = line.get(quote.len()..).unwrap_or_default();
        let end = find(inner, quote).ok_or_else(|| self.error("a quoted key is not terminated"))?;
        let after = inner.get(end + quote.len()..).unwrap_or_default();
        let (_, value) = split(after).ok_or_else(missing)?;
        Ok((trim(inner.get(..end).unwrap_or_default()), value))
    }

    fn value(&mut self, text: &'r [u8]) -> Result<Vec<u8>, Error> {
        let text = trim_start(text);
        let quote: &[u8] = match text {
            [b'"', b'"', b'"', _, ..] => b"\"\"\"",
            [b'`', ..] => b"`",
            _ => return self.plain_value(text),
        };
        let inner = text.get(quote.len()..).unwrap_or_default();
        if let Some(end) = rfind(inner, quote) {
            return Ok(inner.get(..end).unwrap_or_default().to_vec());
        }
        let mut value = inner.to_vec();
        while let Some(line) = self.next_line() {
            if let Some(end) = rfind(line, quote) {
                let (last, after) = line.split_at_checked(end).unwrap_or((line, &[]));
                value.extend_from_slice(last);
                if let Some(at) = after.iter().position(|byte| matches!(byte, b'#' | b';')) {
                    self.comment.extend_from_slice(trim(after.get(at..).unwrap_or_default()));
                }
                return Ok(value);
            }
            value.extend_from_slice(line);
        }
        Err(self.error("a quoted value is not terminated"))
    }

    fn plain_value(&mut self, text: &[u8]) -> Result<Vec<u8>, Error> {
        let text = trim(text);
        if let Some(start) = text.strip_suffix(b"\\") {
            return Ok(self.continued(start));
        }
        let comment = text.iter().position(|byte| matches!(byte, b'#' | b';'));
        let text = match comment {
            Some(at) => {
                self.comment.extend_from_slice(text.get(at..).unwrap_or_default());
                trim(text.get(..at).unwrap_or_default())
            }
            None => text,
        };
        for quote in [b'\'', b'"'] {
            if let [first, inner @ .., last] = text
                && (*first, *last) == (quote, quote)
                && !inner.contains(&quote)
            {
                return Ok(inner.to_vec());
            }
        }
        Ok(text.to_vec())
    }

    /// A value that goes on on the following lines, each ended by a backslash but the last.
    fn continued(&mut self, start: &[u8]) -> Vec<u8> {
        let mut value = start.to_vec();
        while let Some(line) = self.next_line() {
            let line = trim(line);
            if line.is_empty() {
                break;
            }
            value.extend_from_slice(line);
            if value.last() != Some(&b'\\') {
                break;
            }
            value.pop();
        }
        value
    }
}

/// Without white space at both ends, by Unicode where it is text.
fn trim(bytes: &[u8]) -> &[u8] {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.trim_ascii(), |text| text.trim().as_bytes())
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.trim_ascii_start(), |text| text.trim_start().as_bytes())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn rfind(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).rposition(|window| window == part)
}

pub(super) fn write(documents: &[Map]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut sections = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        for item in document {
            let Some(name) = item.key.name() else { continue };
            let error =
                |problem| Error::Emit { format: Format::Ini, place: Place::new(index + 1, name), problem };
            let Value::Map(items) = &item.value else {
                return Err(error("at the top there can only be sections, which are maps"));
            };
            if name.is_empty() {
                return Err(error("a section needs a name"));
            }
            sections.push(Output::new(name, items).map_err(error)?);
        }
    }
    let mut out = Buffer::default();
    let last = sections.len().saturating_sub(1);
    for (index, section) in sections.iter().enumerate() {
        section.write(index == 0, &mut out);
        let silent = index == 0 && section.is_default() && section.keys.is_empty();
        if index < last && !silent {
            out.push(b'\n');
        }
    }
    Ok(out.into_inner())
}

/// A key with its value and the comment before it.
type Line<'t> = (&'t [u8], Zeroizing<Vec<u8>>, &'t [u8]);

/// A section as it will be written.
struct Output<'t> {
    name: &'t [u8],
    comment: &'t [u8],
    keys: Vec<Line<'t>>,
}

impl<'t> Output<'t> {
    fn new(name: &'t [u8], items: &'t [Item]) -> Result<Self, &'static str> {
        let (comment, items) = match items {
            [Item { key: Key::Comment(comment), .. }, rest @ ..] => (comment.text.bytes(), rest),
            all => (&[][..], all),
        };
        let mut section = Self { name, comment, keys: Vec::new() };
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        // The key that was written last, which is not the last one where its name was there before.
        let mut latest = None;
        for item in items {
            match &item.key {
                Key::Comment(comment) => {
                    if let Some((_, _, place)) = latest.and_then(|at: usize| section.keys.get_mut(at)) {
                        *place = comment.text.bytes();
                    }
                }
                Key::Name(name) if name.is_empty() => return Err("a key needs a name"),
                Key::Name(name) => {
                    let text =
                        as_text(&item.value).ok_or("a key of a section cannot hold a map or a list")?;
                    let at = *places.entry(name).or_insert(section.keys.len());
                    match section.keys.get_mut(at) {
                        Some((_, value, _)) => *value = text,
                        None => section.keys.push((name, text, &[])),
                    }
                    latest = Some(at);
                }
            }
        }
        Ok(section)
    }

    fn is_default(&self) -> bool {
        self.name.eq_ignore_ascii_case(DEFAULT.as_bytes())
    }

    fn write(&self, first: bool, out: &mut Buffer) {
        comment(self.comment, false, out);
        if !first || !self.is_default() {
            out.push(b'[');
            out.extend_from_slice(self.name);
            out.extend_from_slice(b"]\n");
        }
        let width = |name: &[u8]| name.len() + 2 * quote_of(name).len();
        let widest = self.keys.iter().map(|(name, ..)| width(name)).max().unwrap_or(0);
        for (name, value, about) in &self.keys {
            comment(about, true, out);
            let quote = quote_of(name);
            for part in [quote, name, quote] {
                out.extend_from_slice(part);
            }
            out.fill(b' ', widest - width(name));
            out.extend_from_slice(b" = ");
            let has = |bytes: &[u8]| value.iter().any(|byte| bytes.contains(byte));
            let quote: &[u8] = if has(b"\n`") {
                b"\"\"\""
            } else if has(b"#;") {
                b"`"
            } else if trim(value).len() != value.len() {
                b"\""
            } else {
                b""
            };
            for part in [quote, value, quote, b"\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}

/// The quotes that a name needs.
fn quote_of(name: &[u8]) -> &'static [u8] {
    if name.iter().any(|byte| matches!(byte, b'"' | b'=' | b':')) {
        b"`"
    } else if name.contains(&b'`') {
        b"\"\"\""
    } else {
        b""
    }
}

/// Writes a comment of one line or more. go-ini trims those of keys only, and those that have their sign.
fn comment(text: &[u8], trimmed: bool, out: &mut Buffer) {
    if text.is_empty() {
        return;
    }
    for line in text.split(|byte| *byte == b'\n') {
        let (sign, text) = match line.split_first() {
            Some((sign @ (b'#' | b';'), text)) => (*sign, trim(text)),
            _ if trimmed => (b';', trim(line)),
            _ => (b';', line),
        };
        out.extend_from_slice(&[sign, b' ']);
        out.extend_from_slice(text);
        out.push(b'\n');
    }
}
