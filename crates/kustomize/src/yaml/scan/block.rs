//! Block scalars: `|` and `>`.

use super::{ReadError, ScalarStyle, Scanner, Token};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl<'t> Scanner<'t> {
    pub(super) fn block_scalar(&mut self) -> Result<Token<'t>, ReadError> {
        let literal = self.at(0) == b'|';
        self.skip();
        let (chomping, increment) = self.block_header()?;
        let base = usize::try_from(self.indent).unwrap_or(0);
        let mut indent = if increment > 0 { base + increment } else { 0 };

        let (mut text, mut leading_break, mut trailing_breaks) =
            (String::new(), String::new(), String::new());
        self.block_breaks(&mut indent, &mut trailing_breaks)?;
        let mut leading_blank = false;
        while self.mark.column == indent && !self.is_end() {
            let trailing_blank = self.is_blank(0);
            if !literal && !leading_blank && !trailing_blank && leading_break.starts_with('\n') {
                if trailing_breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&leading_break);
            }
            leading_break.clear();
            text.push_str(&trailing_breaks);
            trailing_breaks.clear();
            leading_blank = self.is_blank(0);
            let from = self.pos;
            self.skip_comment();
            text.push_str(&self.text[from..self.pos]);
            self.read_line(&mut leading_break);
            self.block_breaks(&mut indent, &mut trailing_breaks)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&leading_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&trailing_breaks);
            if text.ends_with("\n\n") || text == "\n" {
                self.before_comments = self.only_comments_follow().then_some(self.mark.index);
            }
        }
        let style = if literal { ScalarStyle::Literal } else { ScalarStyle::Folded };
        Ok(Token::Scalar(text.into(), style))
    }

    /// Does nothing but comments follow in the document, and one at least? Where one that is less indented than the block
    /// stands at another column than the first, go-yaml parts them and gives the first to the block.
    fn only_comments_follow(&self) -> bool {
        let indent = usize::try_from(self.indent).unwrap_or(0);
        let mut first = None;
        let mut begin = self.mark.column;
        for line in self.text[self.pos..].split('\n') {
            let content = line.trim_start_matches(' ');
            let column = std::mem::take(&mut begin) + line.len() - content.len();
            if content.starts_with('#') {
                let first = *first.get_or_insert(column);
                if column < indent && column != first {
                    return false;
                }
            } else if column == 0 && (content.starts_with("---") || content.starts_with("...")) {
                break;
            } else if !matches!(content, "" | "\r") {
                return false;
            }
        }
        first.is_some()
    }

    /// What stands after the bar, up to the end of the line: how the end is chomped, and the indentation, 0 for none.
    fn block_header(&mut self) -> Result<(Chomping, usize), ReadError> {
        let (mut chomping, mut increment) = (None, None);
        loop {
            match self.at(0) {
                b'+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                b'-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                b'0' if increment.is_none() => {
                    return self.error("found an indentation indicator equal to 0");
                }
                digit @ b'1'..=b'9' if increment.is_none() => increment = Some(usize::from(digit - b'0')),
                _ => break,
            }
            self.skip();
        }
        while self.is_blank(0) {
            self.skip();
        }
        if self.at(0) == b'#' {
            self.skip_comment();
        }
        if !self.is_end() && !self.is_break(0) {
            return self.error("did not find expected comment or line break");
        }
        self.skip_line();
        Ok((chomping.unwrap_or(Chomping::Clip), increment.unwrap_or(0)))
    }

    /// Goes past the indentation and empty lines, and finds the indentation where it is not known yet.
    fn block_breaks(&mut self, indent: &mut usize, breaks: &mut String) -> Result<(), ReadError> {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.mark.column < *indent) && self.at(0) == b' ' {
                self.skip();
            }
            deepest = deepest.max(self.mark.column);
            if (*indent == 0 || self.mark.column < *indent) && self.at(0) == b'\t' {
                return self.error("found a tab character where an indentation space is expected");
            }
            if !self.is_break(0) {
                break;
            }
            self.read_line(breaks);
        }
        if *indent == 0 {
            let least = usize::try_from(self.indent + 1).unwrap_or(0);
            *indent = deepest.max(least).max(1);
        }
        Ok(())
    }
}
