//! Directives, anchors, aliases and tags.

use super::{Problem, Scanner, Token};

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
        self.text.get(from..self.pos).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip();
        }
    }

    pub(super) fn anchor(&mut self) -> Result<(), Problem> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.mark;
        let alias = self.at(0) == b'*';
        self.skip();
        let name = self.word();
        let ends = self.is_blank_or_end(0)
            || matches!(self.at(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            return self.error("the name of an anchor or alias is not valid");
        }
        self.push(if alias { Token::Alias(name.to_owned()) } else { Token::Anchor(name.to_owned()) }, start);
        Ok(())
    }

    pub(super) fn directive(&mut self) -> Result<Token, Problem> {
        self.skip();
        let name = self.word();
        if name.is_empty() {
            return self.error("a directive has no name");
        }
        if !self.is_blank_or_end(0) {
            return self.error("the name of a directive is not valid");
        }
        self.skip_blanks();
        let token = match name {
            "YAML" => {
                let major = self.number()?;
                if self.at(0) != b'.' {
                    return self.error("a version has no point");
                }
                self.skip();
                Token::Version(major, self.number()?)
            }
            "TAG" => {
                let handle = self.tag_handle(true)?;
                if !self.is_blank(0) {
                    return self.error("white space is missing in a directive");
                }
                self.skip_blanks();
                let prefix = self.tag_uri("")?;
                if !self.is_blank_or_end(0) {
                    return self.error("white space is missing after a tag");
                }
                Token::TagDirective { handle: handle.to_owned(), prefix }
            }
            _ => return self.error("there is no such directive"),
        };
        self.skip_blanks();
        if self.at(0) == b'#' {
            while !self.is_break_or_end(0) {
                self.skip();
            }
        }
        if !self.is_end() && !self.is_break(0) {
            return self.error("there is something behind a directive");
        }
        self.skip_line();
        Ok(token)
    }

    fn number(&mut self) -> Result<u32, Problem> {
        const MOST_DIGITS: usize = 2;
        let from = self.pos;
        while self.at(0).is_ascii_digit() {
            self.skip();
            if self.pos - from > MOST_DIGITS {
                return self.error("a version is too long");
            }
        }
        match self.text.get(from..self.pos).unwrap_or_default().parse() {
            Ok(number) => Ok(number),
            Err(_) => self.error("a version has no number"),
        }
    }

    pub(super) fn tag(&mut self) -> Result<Token, Problem> {
        let (handle, suffix) = if self.at(1) == b'<' {
            self.skip();
            self.skip();
            let suffix = self.tag_uri("")?;
            if self.at(0) != b'>' {
                return self.error("a tag lacks its '>'");
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
            return self.error("white space is missing after a tag");
        }
        Ok(Token::Tag { handle: handle.to_owned(), suffix })
    }

    fn tag_handle(&mut self, directive: bool) -> Result<&'t str, Problem> {
        let from = self.pos;
        if self.at(0) != b'!' {
            return self.error("a tag has no '!'");
        }
        self.skip();
        self.word();
        if self.at(0) == b'!' {
            self.skip();
        } else if directive && self.pos - from > 1 {
            return self.error("a tag has no '!'");
        }
        Ok(self.text.get(from..self.pos).unwrap_or_default())
    }

    /// The rest of a tag, after the handle that was taken for one.
    fn tag_uri(&mut self, head: &str) -> Result<String, Problem> {
        let mut bytes = head.as_bytes().get(1..).unwrap_or_default().to_vec();
        let mut any = !head.is_empty();
        loop {
            match self.at(0) {
                b'%' => {
                    let hex = self.text.get(self.pos + 1..self.pos + 3);
                    let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
                        return self.error("an escape in a tag is not valid");
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
            return self.error("a tag is empty");
        }
        String::from_utf8(bytes).or_else(|_| self.error("a tag is not UTF-8"))
    }
}
