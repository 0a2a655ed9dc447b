//! What is in brackets.

use crate::escape::{self, Class};
use crate::translate::Fault;

const RANGE: Fault = Fault::Invalid("invalid character class range");
const UNCLOSED: Fault = Fault::Invalid("missing closing ]");

const NAMES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Writes a class in the other form, and gives the length of what was read.
pub(crate) fn translated(text: &str, out: &mut String) -> Result<usize, Fault> {
    let mut rest = text.get(1..).unwrap_or_default();
    out.push('[');
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut is_first = true;
    // The first bracket stands for itself.
    while is_first || !rest.starts_with(']') {
        is_first = false;
        if let Some(length) = named(rest)? {
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        if rest.starts_with('\\')
            && let Some(Class { written, length }) = escape::class(rest)?
        {
            out.push_str(&written);
            rest = &rest[length..];
            continue;
        }
        let low = character(&mut rest)?;
        escape::write(low, out);
        // Before the end a hyphen stands for itself, and so does the second of two that do not.
        let high = rest.strip_prefix('-').filter(|after| !after.is_empty() && !after.starts_with(']'));
        if let Some(after) = high {
            rest = after;
            let high = character(&mut rest)?;
            if high < low {
                return Err(RANGE);
            }
            out.push('-');
            escape::write(high, out);
        }
    }
    out.push(']');
    Ok(text.len() - rest.len() + 1)
}

/// The length of `[:alpha:]` or `[:^alpha:]`, where that is what it begins with.
fn named(text: &str) -> Result<Option<usize>, Fault> {
    let Some((name, _)) = text.strip_prefix("[:").and_then(|after| after.split_once(":]")) else {
        return Ok(None);
    };
    let known = NAMES.contains(&name.strip_prefix('^').unwrap_or(name));
    if known { Ok(Some(name.len() + 4)) } else { Err(RANGE) }
}

fn character(rest: &mut &str) -> Result<char, Fault> {
    let c = rest.chars().next().ok_or(UNCLOSED)?;
    if c == '\\' {
        let (number, length) = escape::character(rest)?;
        *rest = rest.get(length..).unwrap_or_default();
        return escape::known(number);
    }
    *rest = rest.get(c.len_utf8()..).unwrap_or_default();
    Ok(c)
}
