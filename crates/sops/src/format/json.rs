//! JSON as Go's `encoding/json` reads and writes it.
//!
//! Duplicate names are all kept, anything after the object is ignored, and invalid Unicode becomes the replacement
//! character.

use zeroize::Zeroizing;

use super::{Format, Tally};
use crate::buffer::Buffer;
use crate::error::{Error, Place};
use crate::number;
use crate::tree::{Item, Key, Map, Text, Value};

pub(super) fn read(file: &[u8], tally: &mut Tally<'_>) -> Result<Map, Error> {
    let mut reader = Reader { bytes: file, at: 0, tally };
    if reader.next()? != b'{' {
        return Err(reader.error("the top level must be an object"));
    }
    reader.at += 1;
    reader.object(1)
}

struct Reader<'r, 'l> {
    bytes: &'r [u8],
    at: usize,
    tally: &'r mut Tally<'l>,
}

impl Reader<'_, '_> {
    fn error(&self, problem: &str) -> Error {
        let before = self.bytes.get(..self.at).unwrap_or(self.bytes);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        self.tally.malformed(format!("line {line}: {problem}"))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is not white space, which is not taken.
    fn next(&mut self) -> Result<u8, Error> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
        self.peek().ok_or_else(|| self.error("unexpected end of the file"))
    }

    fn takes(&mut self, byte: u8) -> Result<bool, Error> {
        let is = self.next()? == byte;
        self.at += usize::from(is);
        Ok(is)
    }

    /// What follows the brace.
    fn object(&mut self, depth: usize) -> Result<Map, Error> {
        self.tally.check_depth(depth)?;
        let mut map = Map::new();
        if self.takes(b'}')? {
            return Ok(map);
        }
        loop {
            if !self.takes(b'"')? {
                return Err(self.error("expected a name in quotes"));
            }
            let name = self.string()?;
            self.tally.count(name.len())?;
            if !self.takes(b':')? {
                return Err(self.error("expected a colon after a name"));
            }
            let value = self.value(depth)?;
            map.push(Item::new(name, value));
            if self.takes(b'}')? {
                return Ok(map);
            }
            if !self.takes(b',')? {
                return Err(self.error("expected a comma or the end of the object"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Value>, Error> {
        self.tally.check_depth(depth)?;
        let mut list = Vec::new();
        if self.takes(b']')? {
            return Ok(list);
        }
        loop {
            list.push(self.value(depth)?);
            if self.takes(b']')? {
                return Ok(list);
            }
            if !self.takes(b',')? {
                return Err(self.error("expected a comma or the end of the list"));
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        let from = self.at;
        let value = match self.next()? {
            b'{' => {
                self.at += 1;
                Value::Map(self.object(depth + 1)?)
            }
            b'[' => {
                self.at += 1;
                Value::List(self.list(depth + 1)?)
            }
            b'"' => {
                self.at += 1;
                let text = self.string()?;
                self.tally.count(text.len())?;
                return Ok(Value::Text(Text::new(text)));
            }
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.word("true", Value::Bool(true))?,
            b'f' => self.word("false", Value::Bool(false))?,
            b'n' => self.word("null", Value::Null)?,
            _ => return Err(self.error("expected a value")),
        };
        let bytes = if matches!(value, Value::Map(_) | Value::List(_)) { 0 } else { self.at - from };
        self.tally.count(bytes)?;
        Ok(value)
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Error> {
        if !self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return Err(self.error("expected a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<Value, Error> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut valid = if zero { whole == 1 } else { whole > 0 };
        if self.peek() == Some(b'.') {
            self.at += 1;
            valid &= self.digits() > 0;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            valid &= self.digits() > 0;
        }
        let text = self.bytes.get(from..self.at).and_then(|text| std::str::from_utf8(text).ok());
        let text = text.filter(|_| valid).ok_or_else(|| self.error("this is not a valid number"))?;
        if let Ok(number) = text.parse() {
            return Ok(Value::Int(number));
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Value::Float).ok_or_else(|| self.error("a number is out of range"))
    }

    /// What follows a quote, up to the next one.
    fn string(&mut self) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let plain = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            push_valid(rest.get(..plain).unwrap_or_default(), &mut text);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) => return Err(self.error("a string contains a control character")),
                None => return Err(self.error("a string is not terminated")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let c = match self.bytes.get(self.at + 1) {
            Some(b'u') => {
                let first = self
                    .unit(self.at)
                    .ok_or_else(|| self.error("a \\u escape needs four hexadecimal digits"))?;
                self.at += 6;
                return Ok(self.scalar(first));
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.error("a string contains an unknown escape")),
        };
        self.at += 2;
        Ok(c)
    }

    /// The four digits of an escape that stands there.
    fn unit(&self, at: usize) -> Option<u16> {
        let digits = self.bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| hex)
    }

    /// The character that an escape begins, with the second half of a pair taken if it follows.
    fn scalar(&mut self, first: u16) -> char {
        let second = self.unit(self.at);
        let pair = [Some(first), second].into_iter().flatten();
        match char::decode_utf16(pair).next() {
            Some(Ok(c)) => {
                self.at += if c.len_utf16() == 2 { 6 } else { 0 };
                c
            }
            _ => char::REPLACEMENT_CHARACTER,
        }
    }
}

/// Appends text, with each byte that is not part of a character replaced.
fn push_valid(bytes: &[u8], text: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for _ in chunk.invalid() {
            text.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

pub(super) fn write(documents: &[Map]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut writer = Writer { out: Buffer::default(), path: Vec::new() };
    writer.map(documents.first().map_or(&[], Vec::as_slice), 0)?;
    writer.out.push(b'\n');
    Ok(writer.out.into_inner())
}

struct Writer {
    out: Buffer,
    path: Vec<u8>,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn line(&mut self, depth: usize) {
        self.out.push(b'\n');
        self.out.fill(b'\t', depth);
    }

    fn map(&mut self, items: &[Item], depth: usize) -> Result<(), Error> {
        self.put("{");
        let mut empty = true;
        for item in items {
            let Key::Name(name) = &item.key else { continue };
            if !empty {
                self.put(",");
            }
            empty = false;
            self.line(depth + 1);
            self.string(name);
            self.put(": ");
            let length = self.path.len();
            self.path.extend_from_slice(name);
            self.path.push(b':');
            self.value(&item.value, depth + 1)?;
            self.path.truncate(length);
        }
        if !empty {
            self.line(depth);
        }
        self.put("}");
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value {
            Value::Null | Value::Comment(_) => self.put("null"),
            Value::Bool(flag) => self.put(if *flag { "true" } else { "false" }),
            Value::Int(number) => self.put(&number.to_string()),
            Value::Float(number) => {
                let text = number::json(*number).ok_or_else(|| Error::Emit {
                    format: Format::Json,
                    place: Place::new(1, &self.path),
                    problem: "JSON has no infinite numbers and no NaN",
                })?;
                self.put(&text);
            }
            Value::Time(time) => self.string(time.nanoseconds().as_bytes()),
            Value::Text(text) => self.string(text.bytes()),
            Value::Map(items) => self.map(items, depth)?,
            Value::List(items) => self.list(items, depth)?,
        }
        Ok(())
    }

    fn list(&mut self, items: &[Value], depth: usize) -> Result<(), Error> {
        self.put("[");
        let mut empty = true;
        for item in items.iter().filter(|item| !matches!(item, Value::Comment(_))) {
            if !empty {
                self.put(",");
            }
            empty = false;
            self.line(depth + 1);
            self.value(item, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.put("]");
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) {
        self.put("\"");
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                self.character(c);
            }
            for _ in chunk.invalid() {
                self.put("\\ufffd");
            }
        }
        self.put("\"");
    }

    fn character(&mut self, c: char) {
        match c {
            '"' => self.put("\\\""),
            '\\' => self.put("\\\\"),
            '\u{8}' => self.put("\\b"),
            '\u{c}' => self.put("\\f"),
            '\n' => self.put("\\n"),
            '\r' => self.put("\\r"),
            '\t' => self.put("\\t"),
            '\0'..'\u{20}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                self.put(&format!("\\u{:04x}", u32::from(c)));
            }
            c => self.put(c.encode_utf8(&mut [0; 4])),
        }
    }
}
