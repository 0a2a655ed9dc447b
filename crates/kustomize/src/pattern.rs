//! Regular expressions of a kustomization, bounded.
//!
//! The `regex` crate looks at each character of a text once or a bounded number of times, so none of them takes
//! exponential time; what is left to bound is the memory of a compiled one.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

use crate::budget::{Budget, Held};

/// A brace that begins no repetition (`{2}`, `{2,}`, `{2,3}`), as in `${NAME}`, stands for itself in Go's expressions.
fn escape_braces(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains('{') {
        return pattern.into();
    }
    let mut out = String::with_capacity(pattern.len() + 8);
    let (mut rest, mut in_class) = (pattern, false);
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let len = match c {
            // With what it escapes; of `\pL` and `\x41` the long forms have a brace.
            '\\' => {
                let name = tail.chars().next();
                let long = matches!(name, Some('p' | 'P' | 'x')) && tail[1..].starts_with('{');
                1 + name.map_or(0, char::len_utf8) + if long { tail.find('}').unwrap_or(0) } else { 0 }
            }
            '{' if !in_class && !is_repetition(tail) => {
                out.push('\\');
                1
            }
            c => c.len_utf8(),
        };
        match c {
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        let (part, after) = rest.split_at(len);
        out.push_str(part);
        rest = after;
    }
    out.into()
}

/// Does a text go on as a repetition does after its brace?
fn is_repetition(text: &str) -> bool {
    let Some((inner, _)) = text.split_once('}') else { return false };
    let (least, most) = inner.split_once(',').unwrap_or((inner, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

/// A compiled regular expression, with the memory that it takes.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    _held: Held,
}

impl Pattern {
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Compiles a regular expression; `shown` is what the user wrote.
pub(crate) fn compile(pattern: &str, shown: &str, budget: &Budget) -> Result<Pattern, String> {
    /// Of one that is small, as nearly all are: the library tells no size, so larger ones are found out by trying.
    const SMALL: usize = 16 << 10;
    /// Of the tables that it fills while it looks at a text.
    const CACHE: usize = 64 << 10;
    /// The expression is kept forwards and backwards, and what looks at a text needs as much again.
    const COPIES: usize = 6;
    let pattern = escape_braces(pattern);
    let most = budget.limits().regex_bytes;
    let mut size = SMALL.min(most);
    loop {
        let held = budget.hold(COPIES * size + 2 * CACHE)?;
        match RegexBuilder::new(&pattern).size_limit(size).dfa_size_limit(CACHE).build() {
            Ok(regex) => return Ok(Pattern { regex, _held: held }),
            Err(regex::Error::CompiledTooBig(_)) if size < most => size = size.saturating_mul(4).min(most),
            Err(error) => return Err(explain(error, shown)),
        }
    }
}

fn explain(error: regex::Error, shown: &str) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!(
                "the regular expression {:?} needs more than {limit} bytes; make it simpler",
                start(shown)
            )
        }
        // The last line of the library's message says what is wrong; those before it draw the place.
        other => {
            let message = other.to_string();
            let why = message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("{:?} is not a regular expression: {why}", start(shown))
        }
    }
}

/// As much of a text as a message can hold.
fn start(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::escape_braces;

    #[test]
    fn braces_that_are_no_repetition() {
        for (pattern, want) in [
            ("a{2}b{2,}c{2,3}", "a{2}b{2,}c{2,3}"),
            ("${NAME}-x", r"$\{NAME}-x"),
            (r"\{a\}[{]{", r"\{a\}[{]\{"),
            (r"\p{L}{,2}\x{41}", r"\p{L}\{,2}\x{41}"),
            (r"{\", r"\{\"),
        ] {
            assert_eq!(escape_braces(pattern), want);
        }
    }
}
