//! What the emitter must know of a text to choose how it is written.

use crate::run::{self, Bytes};

/// May a text stand without quotes in brackets?
pub(super) fn flow_plain_allowed(text: &str) -> bool {
    !text.is_empty() && !text.contains([',', '[', ']', '{', '}', '?', ':'])
}

/// What the emitter must know of a text to choose its style.
pub(super) struct Facts {
    pub(super) multiline: bool,
    pub(super) plain_allowed: bool,
    pub(super) single_allowed: bool,
    pub(super) block_allowed: bool,
}

/// What is found in a text that is not empty.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Something that has a meaning where it stands.
    indicators: bool,
    line_breaks: bool,
    /// What cannot be printed.
    special: bool,
    /// A space after a line break.
    break_space: bool,
    /// A space before a line break.
    space_break: bool,
}

impl Seen {
    /// The same for a text without line breaks of other kinds than the usual one; none for others.
    fn simple(text: &str) -> Option<Self> {
        /// All that needs a second look: the rest says nothing. Of what is not ASCII, these begin the characters that
        /// cannot be printed, and the line breaks.
        const NOTABLE: Bytes<5, 2> = Bytes([b'#', b':', 0x7f, 0xc2, 0xe2], [(0, 0x1f), (0xef, 0xff)]);
        let bytes = text.as_bytes();
        let first = *bytes.first()?;
        let blank_at = |at: usize| bytes.get(at).is_none_or(|byte| matches!(byte, b' ' | b'\t'));
        let mut seen = Self {
            indicators: text.starts_with("---")
                || text.starts_with("...")
                || matches!(first, b'?' | b'-') && blank_at(1)
                || matches!(
                    first,
                    b',' | b'['
                        | b']'
                        | b'{'
                        | b'}'
                        | b'&'
                        | b'*'
                        | b'!'
                        | b'|'
                        | b'>'
                        | b'\''
                        | b'"'
                        | b'%'
                        | b'@'
                        | b'`'
                ),
            line_breaks: false,
            special: false,
            break_space: false,
            space_break: false,
        };
        let mut at = 0;
        loop {
            at += run::len(&bytes[at..], &NOTABLE);
            let Some(byte) = bytes.get(at) else { return Some(seen) };
            let before = at.checked_sub(1).map(|at| bytes[at]);
            match byte {
                b'\n' => {
                    seen.line_breaks = true;
                    seen.space_break |= before == Some(b' ');
                    seen.break_space |= bytes.get(at + 1) == Some(&b' ');
                }
                b'#' => seen.indicators |= matches!(before, None | Some(b' ' | b'\t' | b'\n' | 0)),
                b':' => seen.indicators |= blank_at(at + 1),
                0x80.. => {
                    let c = text[at..].chars().next()?;
                    if is_break(c) {
                        return None;
                    }
                    seen.special |= !is_printable(c);
                    at += c.len_utf8() - 1;
                }
                b'\r' => return None,
                _ => seen.special = true,
            }
            at += 1;
        }
    }

    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut line_breaks, mut special) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let (mut previous_space, mut previous_break) = (false, false);
        let mut preceded_by_whitespace = true;
        let mut chars = text.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let followed = chars.peek().is_none_or(|(_, c)| matches!(c, ' ' | '\t'));
            indicators |= match c {
                '#' => preceded_by_whitespace,
                ':' => followed,
                '?' | '-' if i == 0 => followed,
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
                    i == 0
                }
                _ => false,
            };
            special |= !is_printable(c);
            if c == ' ' {
                break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(c) {
                line_breaks = true;
                space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            preceded_by_whitespace = matches!(c, ' ' | '\t' | '\0') || is_break(c);
        }
        Self { indicators, line_breaks, special, break_space, space_break }
    }
}

impl Facts {
    pub(super) fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self {
                multiline: false,
                plain_allowed: true,
                single_allowed: true,
                block_allowed: false,
            };
        }
        let Seen { indicators, line_breaks, special, break_space, space_break } =
            Seen::simple(text).unwrap_or_else(|| Seen::of(text));
        let edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let outer = edge(text.chars().next()) || edge(text.chars().next_back());
        let hard = space_break || special;
        Self {
            multiline: line_breaks,
            plain_allowed: !(outer || break_space || hard || line_breaks || indicators),
            single_allowed: !(break_space || hard),
            block_allowed: !(text.ends_with(' ') || hard),
        }
    }
}

/// Does the character end a line?
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Printable for go-yaml 2, which knows nothing above the basic plane.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Is there a character other than a tab that cannot be printed?
pub(super) fn has_unprintable(text: &str) -> bool {
    /// Of what is not ASCII, these begin the characters that cannot be printed.
    const SUSPECT: Bytes<3, 2> = Bytes([0x7f, 0xc2, 0xe2], [(0, 0x1f), (0xef, 0xff)]);
    let mut at = 0;
    loop {
        at += run::len(&text.as_bytes()[at..], &SUSPECT);
        match text[at..].chars().next() {
            Some(c) if c != '\t' && !is_printable(c) => return true,
            Some(c) => at += c.len_utf8(),
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_that_cannot_be_printed_is_found() {
        for c in ('\0'..=char::MAX).filter(|c| *c != '\t') {
            assert_eq!(has_unprintable(&format!("a{c}ä")), !is_printable(c), "{c:?}");
        }
    }

    #[test]
    fn the_short_way_sees_what_the_long_one_sees() {
        let parts = [
            "a",
            " ",
            "\n",
            ":",
            "#",
            "-",
            "?",
            "é",
            "\t",
            "\0",
            "\u{1f600}",
            "\u{feff}",
            "\u{a0}",
            "\u{ff01}",
            "ж",
            "'",
            "...",
            "\x7f",
        ];
        let all = parts.len();
        for i in 0..all * all * all * all {
            let text: String =
                [i, i / all, i / all / all, i / all / all / all].iter().map(|i| parts[i % all]).collect();
            assert_eq!(Seen::simple(&text), Some(Seen::of(&text)), "{text:?}");
        }
        assert_eq!(Seen::simple("a\rb"), None);
        assert_eq!(Seen::simple("a\u{2028}b"), None);
    }
}
