//! Block scalars: `|` and `>`.

use super::{Mark, Problem, Scanner, Style, Token};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl Scanner<'_> {
    pub(super) fn block_scalar(&mut self) -> Result<Token, Problem> {
        let start = self.mark;
        let literal = self.at(0) == b'|';
        self.skip();
        let (chomping, increment) = self.block_header(start)?;
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
            while !self.is_break_or_end(0) {
                self.read(&mut text);
            }
            self.read_line(&mut leading_break);
            self.block_breaks(&mut indent, &mut trailing_breaks)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&leading_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&trailing_breaks);
        }
        let style = if literal { Style::Literal } else { Style::Folded };
        Ok(Token::Scalar(text, style))
    }

    /// What stands after the bar, up to the end of the line: how the end is chomped, and the indentation, 0 for none.
    fn block_header(&mut self, start: Mark) -> Result<(Chomping, usize), Problem> {
        let (mut chomping, mut increment) = (None, None);
        loop {
            match self.at(0) {
                b'+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                b'-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                b'0' if increment.is_none() => {
                    return self.error("the indentation of a block scalar cannot be 0");
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
            self.scan_line_comment(start);
        }
        if !self.is_end() && !self.is_break(0) {
            return self.error("unexpected characters after the header of a block scalar");
        }
        self.skip_line();
        Ok((chomping.unwrap_or(Chomping::Clip), increment.unwrap_or(0)))
    }

    /// Goes past the indentation and empty lines, and finds the indentation where it is not known yet.
    fn block_breaks(&mut self, indent: &mut usize, breaks: &mut String) -> Result<(), Problem> {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.mark.column < *indent) && self.at(0) == b' ' {
                self.skip();
            }
            deepest = deepest.max(self.mark.column);
            if (*indent == 0 || self.mark.column < *indent) && self.at(0) == b'\t' {
                return self.error("a tab is used for indentation");
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
