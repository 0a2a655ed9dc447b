//! Values in all styles that YAML has.

use std::fmt::Write as _;

use super::Random;

const KEYS: [&str; 14] =
    ["a", "b", "c", "name", "k10", "k9", "x-y", "spec", "env", "data", "\"q r\"", "'1'", "\"on\"", "e.f/g"];
/// Keys that are not a text, or not on one line.
const ODD_KEYS: [&str; 10] = ["1", "true", "~", "1.5", "2020-01-02", "! 1", "!!str 1", "? a", "{x: y}", "<<"];
const PLAIN: [&str; 46] = [
    "x",
    "word",
    "two words",
    "1",
    "012",
    "0x1F",
    "1.50",
    "1e3",
    "-0",
    "true",
    "yes",
    "off",
    "null",
    "~",
    "a: b",
    "2020-01-02",
    "2020-01-02T03:04:05Z",
    "1:30",
    "a#b",
    "@x",
    "-",
    "- x",
    "é",
    "$(V)",
    "a:b",
    "0o17",
    "1_000",
    "+1",
    ".5",
    "",
    "y",
    "=",
    "<<",
    "word with: colon",
    "1.0",
    "1000000",
    "12345678901234567890",
    "1e100",
    ".inf",
    "0b11",
    "190:20:30",
    "a\u{1f600}b",
    "-.5",
    "https://x/y?z=1",
    "a long line of words that goes on and on until it is longer than eighty characters, and then on",
    "Null",
];
pub(super) const LINES: [&str; 14] = [
    "one",
    "two words",
    "  deeper",
    "",
    "fi",
    "ends in space ",
    "# no comment",
    "a: b",
    "- x",
    "\ttab",
    "    deepest",
    "a long line of words that goes on and on until it is longer than eighty characters, and then on",
    "\u{e9}\u{1f600}",
    "\"quotes\" and 'more'",
];
/// So many of the tags fit everything.
const PLAIN_TAGS: usize = 5;
const TAGS: [&str; 12] = [
    "!!str ",
    "!t ",
    "! ",
    "!!str ",
    "! ",
    "!!int ",
    "!!float ",
    "!!bool ",
    "!!null ",
    "!!binary ",
    "!<tag:x> ",
    "!!timestamp ",
];

/// Writes values in random styles.
pub(super) struct Writer<'r> {
    pub(super) random: &'r mut Random,
    pub(super) out: String,
    pub(super) anchors: usize,
    /// May there be keys that are not texts, tags that do not fit, and elements that are nothing?
    pub(super) odd: bool,
}

impl Writer<'_> {
    fn comment(&mut self) {
        if self.random.one_in(25) {
            self.out.push_str(" # note");
        }
    }

    fn line(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// A scalar after a key or dash, within brackets or not.
    fn scalar(&mut self, indent: usize, flow: bool) {
        match self.random.below(if flow { 5 } else { 9 }) {
            0..=1 => {
                let text = self.random.pick(&PLAIN);
                let text = if text.is_empty() && !self.odd { "w" } else { text };
                let odd = text.contains([':', '#', '@', '-', '{']) && flow;
                let text = if odd || matches!(text, "@x" | "- x" | "a: b" | "word with: colon") {
                    "w"
                } else {
                    text
                };
                self.out.push_str(text);
            }
            2 => {
                let text = self.random.pick(&PLAIN).replace('\'', "''");
                let _ = write!(self.out, "'{text}'");
            }
            3 => {
                let text = self.random.pick(&[
                    "x",
                    "\\U0001F600",
                    "a\\x41",
                    "a\\rb",
                    "\\u2028 x",
                    "a \\N b\\N\\N",
                    "\\x7f",
                    "\\uFEFFa",
                    "\\x80",
                    "a long text of words that goes on and on until it is longer than eighty characters, with  two spaces",
                    "a\\nb\\n",
                    "\\u00e9",
                    "  ",
                    "a \\nb",
                    "\\t",
                    "1",
                    "true",
                    "",
                    "a\\n\\n b",
                ]);
                let _ = write!(self.out, "\"{text}\"");
            }
            4 if !flow => {
                self.out.push_str("'one");
                let back = self.random.below(3);
                self.line(indent + back);
                self.out.push_str("two'");
            }
            5..=6 => self.block(indent),
            7 => {
                self.out.push_str("plain on");
                self.line(indent + 2);
                self.out.push_str("two lines");
            }
            _ => self.out.push('w'),
        }
    }

    fn block(&mut self, indent: usize) {
        let style = self.random.pick(&["|", ">"]);
        let chomp = self.random.pick(&["", "-", "+", "", "-", "+", "2", "2-"]);
        self.out.push_str(style);
        self.out.push_str(chomp);
        let count = 1 + self.random.below(4);
        for i in 0..count {
            let line = self.random.pick(&LINES);
            let line = if i == 0 && !self.random.one_in(6) { "first" } else { line };
            if line.is_empty() {
                self.out.push('\n');
            } else {
                self.line(indent + 2);
                self.out.push_str(line);
            }
        }
    }

    /// A value after a key or a dash, whose own lines are indented by more than this.
    fn value(&mut self, indent: usize, depth: usize) {
        match self.random.below(if depth == 0 { 4 } else { 10 }) {
            0..=3 => {
                if !self.random.one_in(12) || (!self.odd && self.out.ends_with('-')) {
                    self.out.push(' ');
                    if self.random.one_in(20) {
                        let few = if self.odd { TAGS.len() } else { PLAIN_TAGS };
                        self.out.push_str(self.random.pick(&TAGS[..few]));
                    }
                    self.scalar(indent, false);
                }
            }
            4..=5 => {
                self.out.push(' ');
                if self.random.one_in(30) {
                    self.out.push_str(self.random.pick(&["!t ", "! ", "!!map ", "!!seq ", "!!set "]));
                }
                self.flow(depth - 1, indent);
                self.comment();
            }
            6 if self.anchors > 0 => {
                let _ = write!(self.out, " *n{}", self.random.below(self.anchors));
            }
            6..=7 => {
                let anchored = self.anchor();
                let dash = if self.random.one_in(2) { indent } else { indent + 2 };
                for _ in 0..1 + self.random.below(3) {
                    self.line(dash);
                    self.out.push('-');
                    self.value(dash, depth - 1);
                }
                self.anchors += usize::from(anchored);
            }
            _ => {
                let anchored = self.anchor();
                self.entries(indent + 2, depth - 1);
                self.anchors += usize::from(anchored);
            }
        }
    }

    /// Writes an anchor now and then. Nothing refers to it before what it is for has ended.
    fn anchor(&mut self) -> bool {
        let anchored = self.anchors == 0 && self.random.one_in(8);
        if anchored {
            let _ = write!(self.out, " &n{}", self.anchors);
        }
        anchored
    }

    pub(super) fn entries(&mut self, indent: usize, depth: usize) {
        let from = self.random.below(KEYS.len());
        for i in 0..1 + self.random.below(3) {
            self.line(indent);
            if self.random.one_in(40) {
                self.out.push_str("# before");
                self.line(indent);
            }
            let key = if self.odd && self.random.one_in(60) {
                self.random.pick(&ODD_KEYS)
            } else {
                KEYS[(from + i) % KEYS.len()]
            };
            self.out.push_str(key);
            self.out.push(':');
            self.value(indent, depth);
        }
    }

    fn flow(&mut self, depth: usize, indent: usize) {
        let list = self.random.one_in(2);
        self.out.push(if list { '[' } else { '{' });
        let from = self.random.below(KEYS.len());
        let count = self.random.below(4);
        for i in 0..count {
            if i > 0 {
                self.out.push_str(", ");
            }
            if self.random.one_in(8) {
                let back = self.random.below(4);
                self.line(indent + back);
            }
            if !list {
                self.out.push_str(KEYS[(from + i) % KEYS.len()]);
                if self.random.one_in(8) {
                    continue;
                }
                self.out.push_str(": ");
            }
            if depth > 0 && self.random.one_in(3) {
                self.flow(depth - 1, indent);
            } else {
                self.scalar(indent, true);
            }
        }
        self.out.push(if list { ']' } else { '}' });
    }
}
