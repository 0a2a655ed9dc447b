//! Quoted and plain scalars.

use std::borrow::Cow;

use super::{Mark, ReadError, ScalarStyle, Scanner, Token};
use crate::run::{self, Bytes};

/// White space inside of a scalar: blanks on one line, or line breaks.
#[derive(Default)]
struct Space {
    blanks: String,
    /// After the first line break, blanks do not count.
    broken: bool,
    first: String,
    more: String,
}

impl Space {
    /// Puts what it comes to into a text: one line break is a space, of several the first is left out.
    fn fold(&mut self, into: &mut String) {
        if !self.broken {
            into.push_str(&self.blanks);
        } else if self.first.starts_with('\n') {
            into.push_str(if self.more.is_empty() { " " } else { &self.more });
        } else {
            into.push_str(&self.first);
            into.push_str(&self.more);
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.blanks.clear();
        self.first.clear();
        self.more.clear();
        self.broken = false;
    }
}

impl<'t> Scanner<'t> {
    /// Takes one blank or line break.
    fn space(&mut self, space: &mut Space) {
        if self.is_blank(0) {
            if space.broken { self.skip() } else { self.read(&mut space.blanks) }
        } else if space.broken {
            self.read_line(&mut space.more);
        } else {
            space.blanks.clear();
            self.read_line(&mut space.first);
            space.broken = true;
        }
    }

    pub(super) fn quoted_scalar(&mut self) -> Result<Token<'t>, ReadError> {
        let quote = self.at(0);
        let style = if quote == b'\'' { ScalarStyle::Single } else { ScalarStyle::Double };
        let start = self.mark;
        self.skip();
        if let Some(text) = self.simple_quoted(quote) {
            return Ok(Token::Scalar(Cow::Borrowed(text), style));
        }
        let mut text = String::new();
        let mut space = Space::default();
        loop {
            if self.is_document_mark() {
                return self.error("found unexpected document indicator");
            }
            if self.is_end() {
                let line = start.line + 1;
                return Err(ReadError {
                    line,
                    message: "found unexpected end of stream in quoted scalar".into(),
                });
            }
            while !self.is_blank_or_end(0) && self.at(0) != 0 {
                match self.at(0) {
                    b'\'' if quote == b'\'' && self.at(1) == b'\'' => {
                        text.push('\'');
                        self.skip();
                        self.skip();
                    }
                    c if c == quote => break,
                    b'\\' if quote == b'"' && self.is_break(1) => {
                        self.skip();
                        self.skip_line();
                        space.broken = true;
                        break;
                    }
                    b'\\' if quote == b'"' => self.escape(&mut text)?,
                    _ => {
                        let from = self.pos;
                        let Bytes([a, b, c, d], []) = run::BREAKS;
                        self.skip_words(&Bytes([quote, b'\\', b'\t', 0, a, b, c, d], []));
                        text.push_str(&self.text[from..self.pos]);
                    }
                }
            }
            if self.at(0) == quote {
                break;
            }
            while self.is_blank(0) || self.is_break(0) {
                self.space(&mut space);
            }
            space.fold(&mut text);
        }
        self.skip();
        Ok(Token::Scalar(text.into(), style))
    }

    /// The text of a quoted scalar on one line without escapes, which nearly all are.
    fn simple_quoted(&mut self, quote: u8) -> Option<&'t str> {
        let rest = &self.bytes[self.pos..];
        let len = run::len(rest, &Bytes([quote, b'\\', b'\r', b'\n'], [(0x80, 0xff)]));
        if rest.get(len) != Some(&quote) || rest.get(len + 1) == Some(&b'\'') {
            return None;
        }
        let text = &self.text[self.pos..self.pos + len];
        // Line breaks of more than one byte are not in it, nor are characters.
        self.pos += len + 1;
        self.mark.index += len + 1;
        self.mark.column += len + 1;
        Some(text)
    }

    fn escape(&mut self, into: &mut String) -> Result<(), ReadError> {
        let digits = match self.at(1) {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            other => {
                into.push(match other {
                    b'0' => '\0',
                    b'a' => '\x07',
                    b'b' => '\x08',
                    b't' | b'\t' => '\t',
                    b'n' => '\n',
                    b'v' => '\x0b',
                    b'f' => '\x0c',
                    b'r' => '\r',
                    b'e' => '\x1b',
                    b' ' => ' ',
                    b'"' => '"',
                    b'\'' => '\'',
                    b'\\' => '\\',
                    b'N' => '\u{85}',
                    b'_' => '\u{a0}',
                    b'L' => '\u{2028}',
                    b'P' => '\u{2029}',
                    _ => return self.error("found unknown escape character"),
                });
                self.skip();
                self.skip();
                return Ok(());
            }
        };
        let from = self.pos + 2;
        let hex = self.text.get(from..from + digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(hex) = hex else { return self.error("did not find expected hexdecimal number") };
        let Some(c) = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32) else {
            return self.error("found invalid Unicode character escape code");
        };
        into.push(c);
        (0..digits + 2).for_each(|_| self.skip());
        Ok(())
    }

    /// A plain scalar, and its end: white space after it is read too.
    pub(super) fn plain_scalar(&mut self) -> Result<(Token<'t>, Mark), ReadError> {
        let indent = usize::try_from(self.indent + 1).unwrap_or(0);
        let mut end = self.mark;
        let (from, mut to) = (self.pos, self.pos);
        // Made once there is more than one line.
        let mut text: Option<String> = None;
        let mut space = Space::default();
        loop {
            if self.is_document_mark() || self.at(0) == b'#' {
                break;
            }
            let part = self.pos;
            self.plain_part();
            if self.pos > part {
                match &mut text {
                    None if space.broken => {
                        let mut folded = self.text[from..to].to_owned();
                        space.fold(&mut folded);
                        folded.push_str(&self.text[part..self.pos]);
                        text = Some(folded);
                    }
                    // All of it stands there as it is.
                    None => space.clear(),
                    Some(text) => {
                        space.fold(text);
                        text.push_str(&self.text[part..self.pos]);
                    }
                }
                (to, end) = (self.pos, self.mark);
            }
            if !(self.is_blank(0) || self.is_break(0)) {
                break;
            }
            while self.is_blank(0) || self.is_break(0) {
                if space.broken && self.mark.column < indent && self.at(0) == b'\t' {
                    return self.error("found a tab character that violates indentation");
                }
                self.space(&mut space);
            }
            if self.flow() == 0 && self.mark.column < indent {
                break;
            }
        }
        if space.broken {
            self.key_allowed = true;
        }
        let text = text.map_or(Cow::Borrowed(&self.text[from..to]), Cow::Owned);
        Ok((Token::Scalar(text, ScalarStyle::Plain), end))
    }

    /// Goes on to the end of the line, to white space that is not a space between words, or to what ends a plain scalar.
    fn plain_part(&mut self) {
        const ENDS: Bytes<14, 0> = {
            let Bytes([a, b, c, d], []) = run::BREAKS;
            Bytes([b'\t', 0, b':', b'#', b',', b'?', b'[', b']', b'{', b'}', a, b, c, d], [])
        };
        let in_flow = self.flow() > 0;
        while !self.is_blank_or_end(0) {
            match self.at(0) {
                b':' if self.is_blank_or_end(1) => return,
                b',' | b'?' | b'[' | b']' | b'{' | b'}' if in_flow => return,
                // A hash after a space begins a comment.
                _ => self.skip_words(&ENDS),
            }
        }
    }

    /// Goes on to the next byte that is special, but not past spaces before it: they may stand at the end of a line.
    fn skip_words<const SINGLE: usize>(&mut self, special: &Bytes<SINGLE, 0>) {
        let from = self.pos;
        self.skip_run(special);
        let run = &self.bytes[from..self.pos];
        let spaces = run.iter().rev().take_while(|byte| **byte == b' ').count();
        self.pos -= spaces;
        self.mark.index -= spaces;
        self.mark.column -= spaces;
    }
}
