//! From text to tokens and comments, by the rules of libyaml as go-yaml has them.
//!
//! The kustomize crate has a scanner of the same rules, which passes over comments. This one keeps them: which value a comment
//! belongs to depends on indentation, empty lines and what the scanner has read ahead, so it follows go-yaml step by step.

mod block;
mod comments;
mod keys;
mod quoted;
mod tag;
mod token;

use std::collections::VecDeque;

use keys::SimpleKey;

pub(super) use comments::{Comment, Kind as CommentKind};
pub(super) use token::{Lexeme, Mark, Problem, Style, Token};

/// Tokens that are read ahead, so that a comment is known before the token that it belongs to is gone.
const AHEAD: usize = 2;

pub(super) struct Scanner<'t> {
    text: &'t str,
    bytes: &'t [u8],
    /// The byte at which the mark is.
    pos: usize,
    mark: Mark,
    /// Line breaks since the last thing that is neither break nor blank.
    newlines: usize,
    tokens: VecDeque<Lexeme>,
    /// Tokens taken so far, and the last of them.
    taken: usize,
    last_taken: Option<Lexeme>,
    /// One for the block level, and one for each open bracket.
    keys: Vec<SimpleKey>,
    key_allowed: bool,
    /// The column of the innermost block; -1 outside of all.
    indent: isize,
    indents: Vec<isize>,
    /// How many lists and mappings may nest.
    depth: usize,
    ended: bool,
    comments: Vec<Comment>,
    /// How many of them the parser has.
    comments_taken: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str, depth: usize) -> Self {
        let start = Lexeme { token: Token::StreamStart, start: Mark::default() };
        Self {
            text,
            bytes: text.as_bytes(),
            pos: 0,
            mark: Mark::default(),
            newlines: 0,
            tokens: VecDeque::from([start]),
            taken: 0,
            last_taken: None,
            keys: vec![SimpleKey::default()],
            key_allowed: true,
            indent: -1,
            indents: Vec::new(),
            depth,
            ended: false,
            comments: Vec::new(),
            comments_taken: 0,
        }
    }

    /// The next token, which stays the next one.
    pub(super) fn peek(&mut self) -> Result<&Lexeme, Problem> {
        self.fill()?;
        let line = self.mark.line + 1;
        self.tokens.front().ok_or_else(|| Problem { line, what: "unexpected end of the file".into() })
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Result<Lexeme, Problem> {
        self.fill()?;
        let line = self.mark.line + 1;
        let lexeme = self
            .tokens
            .pop_front()
            .ok_or_else(|| Problem { line, what: "unexpected end of the file".into() })?;
        self.taken += 1;
        // What it says is not asked for again.
        let token = match &lexeme.token {
            Token::Scalar(_, style) => Token::Scalar(String::new(), *style),
            other => other.clone(),
        };
        self.last_taken = Some(Lexeme { token, start: lexeme.start });
        Ok(lexeme)
    }

    /// The next comment that belongs to what begins at a mark or before it, if `wanted` says so.
    pub(super) fn take_comment(
        &mut self,
        start: Mark,
        wanted: impl FnOnce(&Comment) -> bool,
    ) -> Option<Comment> {
        let comment = self.comments.get_mut(self.comments_taken)?;
        if start.index < comment.token.index || !wanted(comment) {
            return None;
        }
        self.comments_taken += 1;
        // Its places are forgotten with it: what looks back over comments goes by those that are not taken yet.
        Some(std::mem::take(comment))
    }

    fn error<T>(&self, what: &str) -> Result<T, Problem> {
        Err(Problem { line: self.mark.line + 1, what: what.to_owned() })
    }

    /// The token before the next `back` ones in the queue, or before all that are in it.
    fn recent(&self, back: usize) -> Option<&Lexeme> {
        let in_queue = self.tokens.len().checked_sub(back + 1).and_then(|at| self.tokens.get(at));
        in_queue.or(if self.tokens.len() == back { self.last_taken.as_ref() } else { None })
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

    fn is_break_or_end(&self, ahead: usize) -> bool {
        self.at(ahead) == 0 || self.is_break(ahead)
    }

    fn is_blank_or_end(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_break_or_end(ahead)
    }

    /// Is this `---` or `...`, alone at the start of a line?
    fn is_document_mark(&self) -> bool {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        let marks = rest.starts_with(b"---") || rest.starts_with(b"...");
        self.mark.column == 0 && marks && self.is_blank_or_end(3)
    }

    /// Goes on by one character that is not a line break.
    fn skip(&mut self) {
        if !self.is_blank(0) {
            self.newlines = 0;
        }
        let width = match self.at(0) {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
        };
        self.pos = (self.pos + width).min(self.bytes.len());
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Goes on by one character, which becomes part of a text.
    fn read(&mut self, into: &mut String) {
        let from = self.pos;
        self.skip();
        into.push_str(self.text.get(from..self.pos).unwrap_or_default());
    }

    /// Goes on past a line break, if there is one.
    fn skip_line(&mut self) {
        let len = self.break_len(0);
        if len == 0 {
            return;
        }
        self.mark.index += 1 + isize::from(self.at(0) == b'\r' && len == 2);
        self.mark.line += 1;
        self.mark.column = 0;
        self.pos += len;
        self.newlines += 1;
    }

    /// Goes on past a line break, which becomes part of a text: as a line feed, but for the two of Unicode.
    fn read_line(&mut self, into: &mut String) {
        match self.break_len(0) {
            0 => return,
            3 => into.push_str(self.text.get(self.pos..self.pos + 3).unwrap_or_default()),
            _ => into.push('\n'),
        }
        self.skip_line();
    }

    fn push(&mut self, token: Token, start: Mark) {
        self.tokens.push_back(Lexeme { token, start });
    }

    /// Reads until the first token is certain, and some more.
    fn fill(&mut self) -> Result<(), Problem> {
        loop {
            if self.tokens.len() > AHEAD {
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

    /// How many brackets are open.
    fn flow(&self) -> usize {
        self.keys.len().saturating_sub(1)
    }

    /// Begins a block at a column, if it is deeper than the one that is open; `token` is the number of its first token.
    fn roll(&mut self, mark: Mark, token: Option<usize>, start: Token) -> Result<(), Problem> {
        if self.flow() > 0 || self.indent >= column(mark) {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column(mark);
        self.check_depth()?;
        let at = token.and_then(|number| number.checked_sub(self.taken)).unwrap_or(self.tokens.len());
        self.tokens.insert(at.min(self.tokens.len()), Lexeme { token: start, start: mark });
        Ok(())
    }

    fn check_depth(&self) -> Result<(), Problem> {
        if self.indents.len() + self.flow() > self.depth {
            return self.error(&format!("nested more than {} levels deep", self.depth));
        }
        Ok(())
    }

    /// Ends blocks that are deeper than a column. `scan` is where the white space before this began.
    fn unroll(&mut self, column: isize, scan: Mark) {
        if self.flow() > 0 {
            return;
        }
        let mut end = Mark { index: scan.index - 1, ..scan };
        while self.indent > column {
            end = self.before_foot(end);
            self.push(Token::BlockEnd, end);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn skip_to_token(&mut self) {
        let scan = self.mark;
        loop {
            while self.at(0) == b' ' || ((self.flow() > 0 || !self.key_allowed) && self.at(0) == b'\t') {
                self.skip();
            }
            self.move_comment_of_entry();
            if self.at(0) == b'#' {
                self.scan_comments(scan);
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
    fn fetch(&mut self) -> Result<(), Problem> {
        let scan = self.mark;
        self.skip_to_token();
        self.unroll(column(self.mark), scan);
        if self.is_end() {
            return self.stream_end();
        }
        let start = self.mark;
        if start.column == 0 && self.at(0) == b'%' {
            self.unroll(-1, start);
            self.remove_key()?;
            self.key_allowed = false;
            let token = self.directive()?;
            self.push(token, start);
            return Ok(());
        }
        if self.is_document_mark() {
            self.unroll(-1, start);
            self.remove_key()?;
            self.key_allowed = false;
            let token = if self.at(0) == b'-' { Token::DocumentStart } else { Token::DocumentEnd };
            (0..3).for_each(|_| self.skip());
            self.push(token, start);
            return Ok(());
        }
        // What follows a colon or, in brackets, a comma on its line is about what is before that.
        let about_former = if self.flow() == 0 { self.at(0) == b':' } else { self.at(0) == b',' };
        let about = self.recent(0).filter(|_| about_former).map_or(start, |former| former.start);
        self.fetch_value(start)?;
        // A dash has no comment of its own: it is about what follows.
        if self.recent(0).is_none_or(|last| last.token != Token::BlockEntry) {
            self.scan_line_comment(about);
        }
        Ok(())
    }

    fn fetch_value(&mut self, start: Mark) -> Result<(), Problem> {
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
                let token = self.plain_scalar()?;
                self.push(token, start);
                Ok(())
            }
            _ => self.error("unexpected character"),
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

    fn stream_end(&mut self) -> Result<(), Problem> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.unroll(-1, self.mark);
        self.remove_key()?;
        self.key_allowed = false;
        self.ended = true;
        self.push(Token::StreamEnd, self.mark);
        Ok(())
    }

    /// A token of one character.
    fn indicator(&mut self, token: Token) -> Result<(), Problem> {
        let start = self.mark;
        self.skip();
        self.push(token, start);
        Ok(())
    }

    fn flow_start(&mut self, token: Token) -> Result<(), Problem> {
        self.save_key()?;
        self.keys.push(SimpleKey::default());
        self.check_depth()?;
        self.key_allowed = true;
        self.indicator(token)
    }

    fn flow_end(&mut self, token: Token) -> Result<(), Problem> {
        self.remove_key()?;
        if self.keys.len() > 1 {
            self.keys.pop();
        }
        self.key_allowed = false;
        self.indicator(token)
    }

    fn block_entry(&mut self) -> Result<(), Problem> {
        // In brackets, the parser finds the mistake.
        if self.flow() == 0 {
            if !self.key_allowed {
                return self.error("a list is not allowed here");
            }
            self.roll(self.mark, None, Token::BlockSequenceStart)?;
        }
        self.remove_key()?;
        self.key_allowed = true;
        self.indicator(Token::BlockEntry)
    }

    fn key(&mut self) -> Result<(), Problem> {
        if self.flow() == 0 {
            if !self.key_allowed {
                return self.error("a key is not allowed here");
            }
            self.roll(self.mark, None, Token::BlockMappingStart)?;
        }
        self.remove_key()?;
        self.key_allowed = self.flow() == 0;
        self.indicator(Token::Key)
    }

    fn value(&mut self) -> Result<(), Problem> {
        let last = self.keys.len().saturating_sub(1);
        let valid = self.is_key_valid(last)?;
        if let Some(key) = self.keys.get(last).copied().filter(|_| valid) {
            let at = key.token.saturating_sub(self.taken).min(self.tokens.len());
            self.tokens.insert(at, Lexeme { token: Token::Key, start: key.mark });
            self.roll(key.mark, Some(key.token), Token::BlockMappingStart)?;
            if let Some(key) = self.keys.get_mut(last) {
                key.possible = false;
            }
            self.key_allowed = false;
        } else {
            if self.flow() == 0 {
                if !self.key_allowed {
                    return self.error("a value is not allowed here");
                }
                self.roll(self.mark, None, Token::BlockMappingStart)?;
            }
            self.key_allowed = self.flow() == 0;
        }
        self.indicator(Token::Value)
    }
}

fn column(mark: Mark) -> isize {
    isize::try_from(mark.column).unwrap_or(isize::MAX)
}
