//! Directives, anchors, aliases and tags.

use super::{ReadError, Scanner, Token};

/// A letter, digit, `_` or `-`: what names are made of.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

impl<'t> Scanner<'t> {
    /// The characters from here on that names are made of.
    fn word(&mut self) -> &'t str {
        let from = self.pos;
        while is_word(self.at(0)) {
            self.skip();
        }
        &self.text[from..self.pos]
    }

    fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip();
        }
    }

    pub(super) fn anchor(&mut self) -> Result<(), ReadError> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.mark;
        let alias = self.at(0) == b'*';
        self.skip();
        let name = self.word();
        let ends = self.is_blank_or_end(0)
            || matches!(self.at(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            return self.error("did not find expected alphabetic or numeric character");
        }
        self.push(if alias { Token::Alias(name) } else { Token::Anchor(name) }, start);
        Ok(())
    }

    pub(super) fn directive(&mut self) -> Result<Token<'t>, ReadError> {
        self.skip();
        let name = self.word();
        if name.is_empty() {
            return self.error("could not find expected directive name");
        }
        if !self.is_blank_or_end(0) {
            return self.error("found unexpected non-alphabetical character");
        }
        self.skip_blanks();
        let token = match name {
            "YAML" => {
                let major = self.number()?;
                if self.at(0) != b'.' {
                    return self.error("did not find expected digit or '.' character");
                }
                self.skip();
                Token::Version(major, self.number()?)
            }
            "TAG" => {
                let handle = self.tag_handle(true)?;
                if !self.is_blank(0) {
                    return self.error("did not find expected whitespace");
                }
                self.skip_blanks();
                let prefix = self.tag_uri("")?;
                if !self.is_blank_or_end(0) {
                    return self.error("did not find expected whitespace or line break");
                }
                Token::TagDirective { handle, prefix }
            }
            _ => return self.error("found unknown directive name"),
        };
        self.skip_blanks();
        if self.at(0) == b'#' {
            self.skip_comment();
        }
        if !self.is_end() && !self.is_break(0) {
            return self.error("did not find expected comment or line break");
        }
        self.skip_line();
        Ok(token)
    }

    fn number(&mut self) -> Result<u32, ReadError> {
        const MOST_DIGITS: usize = 2;
        let from = self.pos;
        while self.at(0).is_ascii_digit() {
            self.skip();
            if self.pos - from > MOST_DIGITS {
                return self.error("found extremely long version number");
            }
        }
        match self.text[from..self.pos].parse() {
            Ok(number) => Ok(number),
            Err(_) => self.error("did not find expected version number"),
        }
    }

    pub(super) fn tag(&mut self) -> Result<Token<'t>, ReadError> {
        let (handle, suffix) = if self.at(1) == b'<' {
            self.skip();
            self.skip();
            let suffix = self.tag_uri("")?;
            if self.at(0) != b'>' {
                return self.error("did not find the expected '>'");
            }
            self.skip();
            ("", suffix)
        } else {
            let handle = self.tag_handle(false)?;
            if handle.len() > 1 && handle.ends_with('!') {
                (handle, self.tag_uri("")?)
            } else {
                // What looked like a handle is the beginning of a tag.
                match self.tag_uri(handle)? {
                    suffix if suffix.is_empty() => ("", "!".to_owned()),
                    suffix => ("!", suffix),
                }
            }
        };
        if !self.is_blank_or_end(0) {
            return self.error("did not find expected whitespace or line break");
        }
        Ok(Token::Tag { handle, suffix })
    }

    fn tag_handle(&mut self, directive: bool) -> Result<&'t str, ReadError> {
        let from = self.pos;
        if self.at(0) != b'!' {
            return self.error("did not find expected '!'");
        }
        self.skip();
        self.word();
        if self.at(0) == b'!' {
            self.skip();
        } else if directive && self.pos - from > 1 {
            return self.error("did not find expected '!'");
        }
        Ok(&self.text[from..self.pos])
    }

    /// The rest of a tag, after the handle that was taken for one.
    fn tag_uri(&mut self, head: &str) -> Result<String, ReadError> {
        let mut bytes = head.as_bytes().get(1..).unwrap_or_default().to_vec();
        let mut any = !head.is_empty();
        loop {
            match self.at(0) {
                b'%' => {
                    let hex = self.text.get(self.pos + 1..self.pos + 3);
                    let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
                        return self.error("did not find URI escaped octet");
                    };
                    bytes.push(byte);
                    (0..3).for_each(|_| self.skip());
                }
                byte if is_word(byte) || b";/?:@&=+$,.!~*'()[]".contains(&byte) => {
                    bytes.push(byte);
                    self.skip();
                }
                _ => break,
            }
            any = true;
        }
        if !any {
            return self.error("did not find expected tag URI");
        }
        String::from_utf8(bytes).or_else(|_| self.error("found an incorrect UTF-8 octet"))
    }
}
