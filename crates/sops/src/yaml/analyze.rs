//! What a text holds, as far as it decides in which style it can be written.

/// A character that needs no escape in double quotes, and none at all elsewhere.
pub(super) fn is_printable(c: char) -> bool {
    match c {
        '\u{feff}' => false,
        '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}' => true,
        // Those above the basic plane are not printed as they are.
        _ => false,
    }
}

/// A character that ends a line.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Which styles can hold a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    /// It has more than one line.
    pub(super) multiline: bool,
    pub(super) plain: bool,
    pub(super) single_quoted: bool,
    pub(super) block: bool,
}

impl Allowed {
    pub(super) fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self { multiline: false, plain: true, single_quoted: true, block: false };
        }
        let mut seen =
            Seen { indicators: text.starts_with("---") || text.starts_with("..."), ..Seen::default() };
        let mut before = Before::Blank;
        let mut characters = text.chars().peekable();
        let mut first = true;
        while let Some(c) = characters.next() {
            let next = characters.peek().copied();
            seen.look(c, next, first, before);
            before = Before::of(c);
            first = false;
        }
        let last = text.chars().next_back();
        let begin = text.chars().next();
        let is_space = |c: Option<char>| c == Some(' ');
        let breaks = |c: Option<char>| c.is_some_and(is_break);
        let edges = is_space(begin) || breaks(begin) || is_space(last) || breaks(last);
        let special = seen.space_break || seen.special;
        let quoted = !(seen.break_space || special || seen.tab);
        Self {
            multiline: seen.line_break,
            plain: quoted && !edges && !seen.line_break && !seen.indicators,
            single_quoted: quoted,
            block: !special && !is_space(last),
        }
    }
}

/// The character before another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Space,
    Break,
    /// A tab, or nothing at all.
    Blank,
    Other,
}

impl Before {
    fn of(c: char) -> Self {
        match c {
            ' ' => Self::Space,
            '\t' => Self::Blank,
            '\0' => Self::Blank,
            c if is_break(c) => Self::Break,
            _ => Self::Other,
        }
    }
}

#[derive(Default)]
struct Seen {
    /// Something that means something where it stands.
    indicators: bool,
    line_break: bool,
    special: bool,
    tab: bool,
    space_break: bool,
    break_space: bool,
}

impl Seen {
    fn look(&mut self, c: char, next: Option<char>, first: bool, before: Before) {
        let blank_follows = next.is_none_or(|next| matches!(next, ' ' | '\t'));
        self.indicators |= match c {
            '#' if first => true,
            ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => first,
            '?' | '-' => first && blank_follows,
            ':' => blank_follows,
            '#' => before != Before::Other,
            _ => false,
        };
        match c {
            '\t' => self.tab = true,
            c => self.special |= !is_printable(c),
        }
        self.break_space |= c == ' ' && before == Before::Break;
        self.line_break |= is_break(c);
        self.space_break |= is_break(c) && before == Before::Space;
    }
}
