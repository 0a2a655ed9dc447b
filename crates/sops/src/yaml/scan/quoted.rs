//! Quoted and plain scalars.

use super::{Problem, Scanner, Style, Token};

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

    fn is_empty(&self) -> bool {
        !self.broken && self.blanks.is_empty()
    }

    fn clear(&mut self) {
        self.blanks.clear();
        self.first.clear();
        self.more.clear();
        self.broken = false;
    }
}

impl Scanner<'_> {
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

    pub(super) fn quoted_scalar(&mut self) -> Result<Token, Problem> {
        let quote = self.at(0);
        let style = if quote == b'\'' { Style::Single } else { Style::Double };
        let start = self.mark;
        self.skip();
        let mut text = String::new();
        let mut space = Space::default();
        loop {
            if self.is_document_mark() {
                return self.error("unexpected document marker in a quoted scalar");
            }
            if self.is_end() {
                let line = start.line + 1;
                return Err(Problem { line, what: "a quoted scalar is not terminated".into() });
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
                    _ => self.read(&mut text),
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
        Ok(Token::Scalar(text, style))
    }

    fn escape(&mut self, into: &mut String) -> Result<(), Problem> {
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
                    _ => return self.error("unknown escape"),
                });
                self.skip();
                self.skip();
                return Ok(());
            }
        };
        let from = self.pos + 2;
        let hex = self.text.get(from..from + digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(hex) = hex else { return self.error("an escape needs hexadecimal digits") };
        let Some(c) = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32) else {
            return self.error("an escape does not name a character");
        };
        into.push(c);
        (0..digits + 2).for_each(|_| self.skip());
        Ok(())
    }

    /// A plain scalar. White space after it is read too.
    pub(super) fn plain_scalar(&mut self) -> Result<Token, Problem> {
        let indent = usize::try_from(self.indent + 1).unwrap_or(0);
        let mut text = String::new();
        let mut space = Space::default();
        loop {
            if self.is_document_mark() || self.at(0) == b'#' {
                break;
            }
            while !self.is_blank_or_end(0) && !self.ends_plain() {
                if !space.is_empty() {
                    space.fold(&mut text);
                }
                self.read(&mut text);
            }
            if !(self.is_blank(0) || self.is_break(0)) {
                break;
            }
            while self.is_blank(0) || self.is_break(0) {
                if space.broken && self.mark.column < indent && self.at(0) == b'\t' {
                    return self.error("a tab is used for indentation");
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
        Ok(Token::Scalar(text, Style::Plain))
    }

    fn ends_plain(&self) -> bool {
        match self.at(0) {
            b':' => self.is_blank_or_end(1),
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.flow() > 0,
            _ => false,
        }
    }
}
