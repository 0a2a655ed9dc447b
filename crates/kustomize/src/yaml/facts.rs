//! What the emitter must know of a text to choose how it is written.

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
