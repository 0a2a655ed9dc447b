//! Patterns of the operators that trim: `*`, `?`, classes such as `[a-z]`, and `\` before a character that is meant literally.
//!
//! As in Flux, `*` matches slashes too, and a malformed pattern matches nothing only where matching gets that far: then the value
//! stays as it is.

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Star,
    Any,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
    Malformed,
}

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    parts: Vec<Part>,
}

/// The pattern cannot be parsed, and matching got as far as that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadPattern;

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let part = match c {
                '*' => Part::Star,
                '?' => Part::Any,
                '[' => class(&mut rest),
                '\\' => rest.next().map_or(Part::Malformed, Part::Literal),
                c => Part::Literal(c),
            };
            if part == Part::Star && parts.last() == Some(&Part::Star) {
                continue;
            }
            parts.push(part);
        }
        Self { parts }
    }

    /// Whether it matches all of `text`.
    pub(crate) fn matches(&self, text: &[char]) -> Result<bool, BadPattern> {
        let (mut at, mut part) = (0, 0);
        // Where to go on if it does not match: behind the last star, one character later.
        let mut again: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::Star) => {
                    part += 1;
                    if part == self.parts.len() {
                        return Ok(true);
                    }
                    again = Some((part, at));
                    continue;
                }
                Some(one) if at < text.len() && one.takes(text[at])? => {
                    part += 1;
                    at += 1;
                    continue;
                }
                Some(_) => {}
                None if at == text.len() => return Ok(true),
                None => {}
            }
            match &mut again {
                Some((behind, from)) if *from < text.len() => {
                    *from += 1;
                    (part, at) = (*behind, *from);
                }
                _ => return Ok(false),
            }
        }
    }
}

impl Part {
    fn takes(&self, c: char) -> Result<bool, BadPattern> {
        match self {
            Self::Star | Self::Any => Ok(true),
            Self::Literal(own) => Ok(*own == c),
            Self::Class { negated, ranges } => {
                Ok(ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated)
            }
            Self::Malformed => Err(BadPattern),
        }
    }
}

/// What stands behind a `[`.
fn class(rest: &mut std::str::Chars<'_>) -> Part {
    let mut ranges = Vec::new();
    let negated = rest.as_str().starts_with('^');
    if negated {
        rest.next();
    }
    loop {
        if rest.as_str().starts_with(']') && !ranges.is_empty() {
            rest.next();
            return Part::Class { negated, ranges };
        }
        let Some(low) = bound(rest) else { return Part::Malformed };
        let mut high = low;
        if rest.as_str().starts_with('-') {
            rest.next();
            let Some(found) = bound(rest) else { return Part::Malformed };
            high = found;
        }
        ranges.push((low, high));
    }
}

/// A character of a class; something must stand behind it.
fn bound(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let found = match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        c => Some(c),
    };
    found.filter(|_| !rest.as_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::{BadPattern, Pattern};

    fn matches(pattern: &str, text: &str) -> Result<bool, BadPattern> {
        Pattern::new(pattern).matches(&text.chars().collect::<Vec<_>>())
    }

    #[test]
    fn patterns() {
        for (pattern, text) in [
            ("*.txt", "a/b.txt"),
            ("a?c", "aéc"),
            ("[^a-c]x", "dx"),
            ("\\*", "*"),
            ("a*b*c", "a1b2bc"),
            ("", ""),
        ] {
            assert_eq!(matches(pattern, text), Ok(true), "{pattern}");
        }
        for (pattern, text) in [("*.txt", "a.txt.b"), ("[a-c]", "d"), ("a", "ab"), ("a*b", "a"), ("a[", "b")]
        {
            assert_eq!(matches(pattern, text), Ok(false), "{pattern}");
        }
        for pattern in ["a[", "a[]", "a[b-", "a\\"] {
            assert_eq!(matches(pattern, "ab"), Err(BadPattern), "{pattern}");
        }
    }
}
