//! Regular expressions of a kustomization, bounded.
//!
//! The `regex` crate looks at each character of a text once or a bounded number of times, so none of them takes
//! exponential time; what is left to bound is the memory of a compiled one.

use regex::Regex;
use roadstead_go_regex::{Limits, PatternError};

use crate::budget::{Budget, Held};

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
    let most = budget.limits().regex_bytes;
    let mut size = SMALL.min(most);
    loop {
        let held = budget.hold(COPIES * size + 2 * CACHE)?;
        match roadstead_go_regex::compile(pattern, Limits { program: size, tables: CACHE }) {
            Ok(regex) => return Ok(Pattern { regex, _held: held }),
            Err(PatternError::TooLarge { .. }) if size < most => size = size.saturating_mul(4).min(most),
            Err(PatternError::TooLarge { .. }) => {
                return Err(format!(
                    "the regular expression {:?} needs more than {most} bytes; make it simpler",
                    start(shown)
                ));
            }
            Err(PatternError::Invalid { problem, .. }) => {
                return Err(format!("{:?} is not a regular expression: {problem}", start(shown)));
            }
            Err(PatternError::Unsupported { problem, .. }) => {
                return Err(format!("the regular expression {:?} is not supported: {problem}", start(shown)));
            }
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
