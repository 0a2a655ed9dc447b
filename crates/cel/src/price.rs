//! Regular expressions of an expression, with what looking for them costs.

use roadstead_go_regex::{Limits, PatternError, compile};

use crate::node::Pattern;

/// The most bytes of a pattern.
const MOST_BYTES: usize = 4 << 10;
/// The sizes that a compiled pattern may have, and the steps that it takes for each byte of a text: `tests/bounds.rs` has patterns
/// that need nearly as many.
const SIZES: [(usize, u64); 4] = [(4 << 10, 8), (16 << 10, 50), (64 << 10, 200), (256 << 10, 800)];

/// Compiles a pattern. Its size is found out by trying, since the library does not tell.
pub(crate) fn priced(pattern: &str) -> Result<Pattern, PatternError> {
    let mut last = PatternError::TooLarge { pattern: crate::error::shown(pattern) };
    if pattern.len() > MOST_BYTES {
        return Err(last);
    }
    for (size, steps) in SIZES {
        match compile(pattern, Limits { program: size, tables: size }) {
            Ok(regex) => return Ok(Pattern { regex, steps }),
            Err(error @ PatternError::TooLarge { .. }) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
