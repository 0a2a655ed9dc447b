//! Regular expressions of a kustomization, bounded.
//!
//! The `regex` crate looks at each character of a text once or a bounded number of times, so none of them takes
//! exponential time; what is left to bound is the memory of a compiled one.

use regex::{Regex, RegexBuilder};

/// Compiles a regular expression; `shown` is what the user wrote.
pub(crate) fn compile(pattern: &str, shown: &str, bytes: usize) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(bytes).build().map_err(|error| match error {
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
            format!("{:?} is no regular expression: {why}", start(shown))
        }
    })
}

/// As much of a text as a message can hold.
fn start(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("…".chars()).collect()
}
