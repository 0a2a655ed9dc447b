//! From text to tokens, by the rules of libyaml, which go-yaml has too.
//!
//! These rules are those of YAML 1.1, and laxer than the standard in places that people's files rely on: the lines of a
//! quoted scalar and of a list in brackets may stand at any column. A key must be on one line and shorter than 1,024
//! characters, so no more than that is ever read ahead.

mod block;
mod directive;
mod flow;

use std::borrow::Cow;
use std::collections::VecDeque;

use super::read::ReadError;
use crate::run::{self, Bytes};

/// A place in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Characters before it.
    pub(super) index: usize,
    /// Line, from 0.
    pub(super) line: usize,
    /// Characters before it on its line.
    pub(super) column: usize,
}

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarStyle {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'t> {
    /// `%YAML`, with its two numbers.
    Version(u32, u32),
    /// `%TAG`.
    TagDirective {
        handle: &'t str,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    StreamEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'t str),
    Anchor(&'t str),
    Tag {
        handle: &'t str,
        suffix: String,
    },
    Scalar(Cow<'t, str>, ScalarStyle),
}

/// A token with its place.
#[derive(Debug, Clone)]
pub(super) struct Lexeme<'t> {
    pub(super) token: Token<'t>,
    pub(super) start: Mark,
    pub(super) end: Mark,
}

/// A place where a key may begin that is known as one by the colon after it.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// It stands where nothing else may.
    required: bool,
    /// The number of its token.
    token: usize,
    mark: Mark,
}

/// Characters that a key may have at most.
const KEY_CHARS: usize = 1_024;

pub(super) struct Scanner<'t> {
    text: &'t str,
    bytes: &'t [u8],
    /// The byte at which the mark is.
    pos: usize,
    mark: Mark,
    tokens: VecDeque<Lexeme<'t>>,
    /// Tokens taken so far.
    taken: usize,
    /// One for the block level, and one for each open bracket.
    keys: Vec<SimpleKey>,
    key_allowed: bool,
    /// The column of the innermost block; -1 outside of all.
    indent: isize,
    indents: Vec<isize>,
    /// How many lists and mappings may nest.
    depth: usize,
    ended: bool,
    /// Where a block ends that keeps empty lines at its end, with nothing but comments after it.
    before_comments: Option<usize>,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str, depth: usize) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            pos: 0,
            mark: Mark::default(),
            tokens: VecDeque::new(),
            taken: 0,
            keys: vec![SimpleKey::default()],
            key_allowed: true,
            indent: -1,
            indents: Vec::new(),
            depth,
            ended: false,
            before_comments: None,
        }
    }

    /// Where a block ends that keeps empty lines at its end, with nothing but comments after it in the document.
    pub(super) fn before_comments(&self) -> Option<usize> {
        self.before_comments
    }

    /// The next token, which stays the next one.
    pub(super) fn peek(&mut self) -> Result<&Lexeme<'t>, ReadError> {
        self.fill()?;
        let end = |mark| ReadError { line: mark, message: "unexpected end".into() };
        self.tokens.front().ok_or(end(self.mark.line + 1))
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Result<Lexeme<'t>, ReadError> {
        self.fill()?;
        self.taken += 1;
        let line = self.mark.line + 1;
        self.tokens.pop_front().ok_or_else(|| ReadError { line, message: "unexpected end".into() })
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError { line: self.mark.line + 1, message: message.into() })
    }

    /// The byte this far ahead; 0 past the end, and nowhere else.
    fn at(&self, ahead: usize) -> u8 {
        self.bytes.get(self.pos + ahead).copied().unwrap_or(0)
    }

    /// The length of the line break this far ahead; 0 where there is none.
    fn break_len(&self, ahead: usize) -> usize {
        match self.at(ahead) {
            b'\n' => 1,
            b'\r' => 1 + usize::from(self.at(ahead + 1) == b'\n'),
            0xc2 if self.at(ahead + 1) == 0x85 => 2,
            0xe2 if self.at(ahead + 1) == 0x80 && matches!(self.at(ahead + 2), 0xa8 | 0xa9) => 3,
            _ => 0,
        }
    }

    fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.at(ahead), b' ' | b'\t')
    }

    fn is_break(&self, ahead: usize) -> bool {
        self.break_len(ahead) > 0
    }

    fn is_end(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    fn is_blank_or_end(&self, ahead: usize) -> bool {
        matches!(self.at(ahead), b' ' | b'\t' | 0) || self.is_break(ahead)
    }

    /// Is this `---` or `...`, alone at the start of a line?
    fn is_document_mark(&self) -> bool {
        self.mark.column == 0
            && (self.bytes[self.pos..].starts_with(b"---") || self.bytes[self.pos..].starts_with(b"..."))
            && self.is_blank_or_end(3)
    }

    /// Goes on by one character that is not a line break.
    fn skip(&mut self) {
        self.pos += match self.at(0) {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
        };
        self.pos = self.pos.min(self.bytes.len());
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Goes on by one character, which becomes part of a text.
    fn read(&mut self, into: &mut String) {
        let from = self.pos;
        self.skip();
        into.push_str(&self.text[from..self.pos]);
    }

    /// Goes on past a line break, if there is one.
    fn skip_line(&mut self) {
        let len = self.break_len(0);
        if len == 0 {
            return;
        }
        self.mark.index += 1 + usize::from(self.at(0) == b'\r' && len == 2);
        self.mark.line += 1;
        self.mark.column = 0;
        self.pos += len;
    }

    /// Goes on past a line break, which becomes part of a text: as a newline, but for the two of Unicode.
    fn read_line(&mut self, into: &mut String) {
        match self.break_len(0) {
            0 => return,
            3 => into.push_str(&self.text[self.pos..self.pos + 3]),
            _ => into.push('\n'),
        }
        self.skip_line();
    }

    /// Goes on to the end of the line.
    fn skip_comment(&mut self) {
        while !self.is_end() && !self.is_break(0) {
            self.skip_run(&run::BREAKS);
        }
    }

    /// Goes on by at least one character, and then to the next byte that is special. None of them is a line break.
    fn skip_run<const SINGLE: usize>(&mut self, special: &Bytes<SINGLE, 0>) {
        self.skip();
        let len = run::len(&self.bytes[self.pos..], special);
        // Characters begin where no byte goes on with one before it.
        let chars = self.bytes[self.pos..self.pos + len].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        self.pos += len;
        self.mark.index += chars;
        self.mark.column += chars;
    }

    fn push(&mut self, token: Token<'t>, start: Mark) {
        self.tokens.push_back(Lexeme { token, start, end: self.mark });
    }

    /// Reads until the first token is certain.
    fn fill(&mut self) -> Result<(), ReadError> {
        loop {
            if !self.tokens.is_empty() {
                let Some(at) = self.keys.iter().rposition(|key| key.possible && key.token == self.taken)
                else {
                    return Ok(());
                };
                if !self.is_key_valid(at)? {
                    return Ok(());
                }
            }
            if self.ended {
                return Ok(());
            }
            self.fetch()?;
        }
    }

    /// May a key still begin where one was possible?
    fn is_key_valid(&mut self, at: usize) -> Result<bool, ReadError> {
        let Some(key) = self.keys.get_mut(at).filter(|key| key.possible) else { return Ok(false) };
        if key.mark.line < self.mark.line || key.mark.index + KEY_CHARS < self.mark.index {
            if key.required {
                let line = key.mark.line + 1;
                return Err(ReadError { line, message: "could not find expected ':'".into() });
            }
            key.possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn save_key(&mut self) -> Result<(), ReadError> {
        let column = isize::try_from(self.mark.column).unwrap_or(isize::MAX);
        let required = self.flow() == 0 && self.indent == column;
        if self.key_allowed {
            self.remove_key()?;
            let token = self.taken + self.tokens.len();
            let key = SimpleKey { possible: true, required, token, mark: self.mark };
            if let Some(last) = self.keys.last_mut() {
                *last = key;
            }
        }
        Ok(())
    }

    fn remove_key(&mut self) -> Result<(), ReadError> {
        let Some(key) = self.keys.last_mut().filter(|key| key.possible) else { return Ok(()) };
        if key.required {
            let line = key.mark.line + 1;
            return Err(ReadError { line, message: "could not find expected ':'".into() });
        }
        key.possible = false;
        Ok(())
    }

    /// How many brackets are open.
    fn flow(&self) -> usize {
        self.keys.len() - 1
    }

    /// Begins a block at a column, if it is deeper than the one that is open; `token` is the number of its first token.
    fn roll(
        &mut self,
        column: usize,
        token: Option<usize>,
        start: Token<'t>,
        mark: Mark,
    ) -> Result<(), ReadError> {
        let column = isize::try_from(column).unwrap_or(isize::MAX);
        if self.flow() > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        self.check_depth()?;
        let lexeme = Lexeme { token: start, start: mark, end: mark };
        match token {
            Some(number) => self.tokens.insert(number - self.taken, lexeme),
            None => self.tokens.push_back(lexeme),
        }
        Ok(())
    }

    fn check_depth(&self) -> Result<(), ReadError> {
        if self.indents.len() + self.flow() > self.depth {
            return self.error(format!("nested deeper than {}", self.depth));
        }
        Ok(())
    }

    /// Ends blocks that are deeper than a column.
    fn unroll(&mut self, column: isize) {
        if self.flow() > 0 {
            return;
        }
        while self.indent > column {
            self.push(Token::BlockEnd, self.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn skip_to_token(&mut self) {
        loop {
            while self.at(0) == b' ' || ((self.flow() > 0 || !self.key_allowed) && self.at(0) == b'\t') {
                self.skip();
            }
            if self.at(0) == b'#' {
                self.skip_comment();
            }
            if !self.is_break(0) {
                return;
            }
            self.skip_line();
            if self.flow() == 0 {
                self.key_allowed = true;
            }
        }
    }

    /// Reads one more token, or a few.
    fn fetch(&mut self) -> Result<(), ReadError> {
        self.skip_to_token();
        self.unroll(isize::try_from(self.mark.column).unwrap_or(isize::MAX));
        if self.is_end() {
            return self.stream_end();
        }
        let start = self.mark;
        if start.column == 0 && self.at(0) == b'%' {
            self.unroll(-1);
            self.remove_key()?;
            self.key_allowed = false;
            let token = self.directive()?;
            self.push(token, start);
            return Ok(());
        }
        if self.is_document_mark() {
            self.unroll(-1);
            self.remove_key()?;
            self.key_allowed = false;
            let token = if self.at(0) == b'-' { Token::DocumentStart } else { Token::DocumentEnd };
            (0..3).for_each(|_| self.skip());
            self.push(token, start);
            return Ok(());
        }
        let in_flow = self.flow() > 0;
        match self.at(0) {
            b'[' => self.flow_start(Token::FlowSequenceStart),
            b'{' => self.flow_start(Token::FlowMappingStart),
            b']' => self.flow_end(Token::FlowSequenceEnd),
            b'}' => self.flow_end(Token::FlowMappingEnd),
            b',' => {
                self.remove_key()?;
                self.key_allowed = true;
                self.indicator(Token::FlowEntry)
            }
            b'-' if self.is_blank_or_end(1) => self.block_entry(),
            b'?' if in_flow || self.is_blank_or_end(1) => self.key(),
            b':' if in_flow || self.is_blank_or_end(1) => self.value(),
            b'*' | b'&' => self.anchor(),
            b'!' => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.tag()?;
                self.push(token, start);
                Ok(())
            }
            b'|' | b'>' if !in_flow => {
                self.remove_key()?;
                self.key_allowed = true;
                let token = self.block_scalar()?;
                self.push(token, start);
                Ok(())
            }
            b'\'' | b'"' => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.quoted_scalar()?;
                self.push(token, start);
                Ok(())
            }
            c if self.begins_plain(c) => {
                self.save_key()?;
                self.key_allowed = false;
                let (token, end) = self.plain_scalar()?;
                self.tokens.push_back(Lexeme { token, start, end });
                Ok(())
            }
            _ => self.error("found character that cannot start any token"),
        }
    }

    fn begins_plain(&self, c: u8) -> bool {
        match c {
            b'-' => !self.is_blank(1),
            b'?' | b':' => self.flow() == 0 && !self.is_blank_or_end(1),
            b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"'
            | b'%' | b'@' | b'`' => false,
            _ => !self.is_blank_or_end(0),
        }
    }

    fn stream_end(&mut self) -> Result<(), ReadError> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.unroll(-1);
        self.remove_key()?;
        self.key_allowed = false;
        self.ended = true;
        self.push(Token::StreamEnd, self.mark);
        Ok(())
    }

    /// A token of one character.
    fn indicator(&mut self, token: Token<'t>) -> Result<(), ReadError> {
        let start = self.mark;
        self.skip();
        self.push(token, start);
        Ok(())
    }

    fn flow_start(&mut self, token: Token<'t>) -> Result<(), ReadError> {
        self.save_key()?;
        self.keys.push(SimpleKey::default());
        self.check_depth()?;
        self.key_allowed = true;
        self.indicator(token)
    }

    fn flow_end(&mut self, token: Token<'t>) -> Result<(), ReadError> {
        self.remove_key()?;
        if self.keys.len() > 1 {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.indicator(token)
    }

    fn block_entry(&mut self) -> Result<(), ReadError> {
        // In brackets, the parser finds the mistake.
        if self.flow() == 0 {
            if !self.key_allowed {
                return self.error("block sequence entries are not allowed in this context");
            }
            self.roll(self.mark.column, None, Token::BlockSequenceStart, self.mark)?;
        }
        self.remove_key()?;
        self.key_allowed = true;
        self.indicator(Token::BlockEntry)
    }

    fn key(&mut self) -> Result<(), ReadError> {
        if self.flow() == 0 {
            if !self.key_allowed {
                return self.error("mapping keys are not allowed in this context");
            }
            self.roll(self.mark.column, None, Token::BlockMappingStart, self.mark)?;
        }
        self.remove_key()?;
        self.key_allowed = self.flow() == 0;
        self.indicator(Token::Key)
    }

    fn value(&mut self) -> Result<(), ReadError> {
        let last = self.keys.len() - 1;
        if self.is_key_valid(last)? {
            let key = self.keys[last];
            let lexeme = Lexeme { token: Token::Key, start: key.mark, end: key.mark };
            self.tokens.insert(key.token - self.taken, lexeme);
            self.roll(key.mark.column, Some(key.token), Token::BlockMappingStart, key.mark)?;
            self.keys[last].possible = false;
            self.key_allowed = false;
        } else {
            if self.flow() == 0 {
                if !self.key_allowed {
                    return self.error("mapping values are not allowed in this context");
                }
                self.roll(self.mark.column, None, Token::BlockMappingStart, self.mark)?;
            }
            self.key_allowed = self.flow() == 0;
        }
        self.indicator(Token::Value)
    }
}
