//! Scalars in their styles.

use super::{Emitter, INDENT, Scalar, Style, Within};
use crate::yaml::analyze::{is_break, is_printable};

impl Emitter {
    /// Writes what needs no quotes.
    pub(super) fn plain(&mut self, text: &str) {
        if !text.is_empty() && !self.whitespace {
            self.put(' ');
        }
        text.chars().for_each(|c| self.put(c));
        self.whitespace = self.whitespace && text.is_empty();
        self.indention = false;
    }

    pub(super) fn scalar(&mut self, scalar: &Scalar<'_>, within: Within) {
        let style = self.style(scalar, within);
        if let Some(tag) = scalar.tag {
            self.indicator(tag, true, false, false);
        }
        let outer = self.indent;
        self.indent = self.deeper_or_first(within);
        match style {
            Style::Plain => self.plain(&scalar.text),
            Style::Single => self.single_quoted(&scalar.text),
            Style::Double => self.double_quoted(&scalar.text),
            Style::Literal | Style::Folded => self.literal(&scalar.text),
        }
        self.indent = outer;
    }

    fn style(&self, scalar: &Scalar<'_>, within: Within) -> Style {
        let allowed = scalar.allowed;
        let in_key = within == Within::SimpleKey;
        match scalar.style {
            Style::Plain if !allowed.plain || scalar.text.is_empty() && in_key => {
                if allowed.single_quoted {
                    Style::Single
                } else {
                    Style::Double
                }
            }
            Style::Single if !allowed.single_quoted => Style::Double,
            Style::Literal if !allowed.block || in_key => Style::Double,
            style => style,
        }
    }

    fn single_quoted(&mut self, text: &str) {
        self.indicator("'", true, false, false);
        let mut breaks = false;
        for c in text.chars() {
            if c == ' ' {
                self.put(' ');
            } else if is_break(c) {
                if !breaks && c == '\n' {
                    self.put_break();
                }
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn double_quoted(&mut self, text: &str) {
        self.indicator("\"", true, false, false);
        // go-yaml looks for the mark at the beginning of the text wherever it is in it.
        let marked = text.starts_with('\u{feff}');
        for c in text.chars() {
            if marked || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                self.escape(c);
            } else {
                self.put(c);
            }
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn escape(&mut self, c: char) {
        self.put('\\');
        let letter = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c => {
                let (letter, width) = match u32::from(c) {
                    0..=0xff => ('x', 2),
                    0x100..=0xffff => ('u', 4),
                    _ => ('U', 8),
                };
                self.put(letter);
                let digits = format!("{:0width$X}", u32::from(c));
                digits.chars().for_each(|digit| self.put(digit));
                return;
            }
        };
        self.put(letter);
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator(&INDENT.to_string(), false, false, false);
        }
        let mut from_end = text.chars().rev();
        let last = from_end.next().is_some_and(is_break);
        // Of a text that is one break, too, all breaks are kept.
        let more = from_end.next().is_none_or(is_break);
        match (last, more) {
            (false, _) => self.indicator("-", false, false, false),
            (true, true) => self.indicator("+", false, false, false),
            (true, false) => {}
        }
        if self.pending.line.is_empty() {
            self.put_break();
        } else {
            self.line_comment();
        }
        self.whitespace = true;
        let mut breaks = true;
        for c in text.chars() {
            if is_break(c) {
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
    }
}
