//! Functions on strings, and base64. Places in a string are counted in characters.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::budget::Budget;
use crate::error::{Answer, EvalProblem};
use crate::function::Function;
use crate::value::{Text, Value};

/// What may follow the last characters does not matter to Go, and neither does padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Calls a function on a string; `None` where it does not take values of these types.
pub(crate) fn call<'a>(
    function: Function,
    first: &Value<'a>,
    rest: &[Value<'a>],
    budget: &mut Budget,
) -> Answer<Option<Value<'a>>> {
    use Function as F;
    if function == F::Join {
        return join(first, rest, budget);
    }
    let Value::String(text) = first else { return Ok(None) };
    match function {
        // These look at bytes in bulk, or at one end only.
        F::StartsWith | F::EndsWith | F::LowerAscii | F::UpperAscii => budget.read(text.len())?,
        _ => budget.search(text.len())?,
    }
    let found = match (function, rest) {
        (F::Contains, [Value::String(part)]) => Value::Bool(text.contains(&**part)),
        (F::StartsWith, [Value::String(part)]) => Value::Bool(text.starts_with(&**part)),
        (F::EndsWith, [Value::String(part)]) => Value::Bool(text.ends_with(&**part)),
        (F::CharAt, [Value::Int(at)]) => char_at(text, *at, budget)?,
        (F::IndexOf, [Value::String(part)]) => index_of(text, part, 0)?,
        (F::IndexOf, [Value::String(part), Value::Int(from)]) => index_of(text, part, *from)?,
        (F::LastIndexOf, [Value::String(part)]) => last_index_of(text, part, None)?,
        (F::LastIndexOf, [Value::String(part), Value::Int(to)]) => last_index_of(text, part, Some(*to))?,
        (F::LowerAscii, []) => made(text.len(), budget, || text.to_ascii_lowercase())?,
        (F::UpperAscii, []) => made(text.len(), budget, || text.to_ascii_uppercase())?,
        (F::Reverse, []) => made(text.len(), budget, || text.chars().rev().collect())?,
        (F::Quote, []) => made(text.len().saturating_mul(2) + 2, budget, || quote(text))?,
        (F::Trim, []) => part(text, trimmed(text), budget)?,
        (F::Substring, [Value::Int(from)]) => substring(text, *from, None, budget)?,
        (F::Substring, [Value::Int(from), Value::Int(to)]) => substring(text, *from, Some(*to), budget)?,
        (F::Replace, [Value::String(old), Value::String(new)]) => replace(text, old, new, -1, budget)?,
        (F::Replace, [Value::String(old), Value::String(new), Value::Int(most)]) => {
            replace(text, old, new, *most, budget)?
        }
        (F::Split, [Value::String(by)]) => split(text, by, -1, budget)?,
        (F::Split, [Value::String(by), Value::Int(most)]) => split(text, by, *most, budget)?,
        _ => return Ok(None),
    };
    Ok(Some(found))
}

/// A new string of at most so many bytes.
fn made<'a>(bytes: usize, budget: &mut Budget, make: impl FnOnce() -> String) -> Answer<Value<'a>> {
    // The string, and its copy behind a counter.
    budget.bytes(bytes.saturating_mul(2))?;
    Ok(Value::text(make()))
}

/// A part of a string, which is borrowed where the string is.
fn part<'a>(text: &Text<'a>, range: std::ops::Range<usize>, budget: &mut Budget) -> Answer<Value<'a>> {
    Ok(Value::String(match text {
        Text::Borrowed(text) => Text::Borrowed(text.get(range).unwrap_or_default()),
        Text::Shared(text) => {
            budget.bytes(range.len())?;
            Text::Shared(text.get(range).unwrap_or_default().into())
        }
    }))
}

/// The byte at which the character of a number begins; the end has the number of characters.
fn place(text: &str, number: i64) -> Result<usize, EvalProblem> {
    let mut left = usize::try_from(number).map_err(|_| EvalProblem::OutOfRange)?;
    // By hand, since a chain of iterators takes ten times as long in a debug build.
    for (at, byte) in text.as_bytes().iter().enumerate() {
        let within = byte & 0b1100_0000 == 0b1000_0000;
        if within {
            continue;
        }
        if left == 0 {
            return Ok(at);
        }
        left -= 1;
    }
    if left == 0 { Ok(text.len()) } else { Err(EvalProblem::OutOfRange) }
}

/// The number of the character that begins at a byte.
fn number<'a>(text: &str, at: usize) -> Value<'a> {
    let count = text.get(..at).unwrap_or_default().chars().count();
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn char_at<'a>(text: &Text<'a>, at: i64, budget: &mut Budget) -> Answer<Value<'a>> {
    let from = place(text, at)?;
    let length = text[from..].chars().next().map_or(0, char::len_utf8);
    part(text, from..from + length, budget)
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Result<Value<'a>, EvalProblem> {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(EvalProblem::OutOfRange);
    }
    // A start beyond the end finds nothing; only a negative one is an error.
    let Ok(from) = place(text, from) else { return Ok(Value::Int(-1)) };
    Ok(text[from..].find(part).map_or(Value::Int(-1), |at| number(text, from + at)))
}

fn last_index_of<'a>(text: &str, part: &str, to: Option<i64>) -> Result<Value<'a>, EvalProblem> {
    if part.is_empty() {
        return Ok(to.map_or_else(|| number(text, text.len()), Value::Int));
    }
    let end = match to {
        None => text.len(),
        Some(to) if to < 0 => return Err(EvalProblem::OutOfRange),
        Some(to) => match place(text, to) {
            // One that begins at this place is found too, none that begins after it.
            Ok(at) if at < text.len() => (at + part.len()).min(text.len()),
            _ => return Ok(Value::Int(-1)),
        },
    };
    // A match cannot end within a character, so the search may stop where that character starts.
    let end = text.floor_char_boundary(end);
    Ok(text[..end].rfind(part).map_or(Value::Int(-1), |at| number(text, at)))
}

fn substring<'a>(text: &Text<'a>, from: i64, to: Option<i64>, budget: &mut Budget) -> Answer<Value<'a>> {
    if to.is_some_and(|to| from > to) {
        return Err(EvalProblem::OutOfRange.into());
    }
    let begin = place(text, from)?;
    let end = to.map_or(Ok(text.len()), |to| place(text, to))?;
    part(text, begin..end, budget)
}

/// Without what Go takes for white space at both ends, which is what Unicode does.
fn trimmed(text: &str) -> std::ops::Range<usize> {
    let begin = text.len() - text.trim_start().len();
    begin..text.trim_end().len().max(begin)
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// With at most so many of a text replaced; below zero, all.
fn replace<'a>(text: &Text<'a>, old: &str, new: &str, most: i64, budget: &mut Budget) -> Answer<Value<'a>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = text.matches(old).take(most).count();
    if count == 0 {
        return Ok(Value::String(text.clone()));
    }
    made(text.len().saturating_add(count.saturating_mul(new.len())), budget, || text.replacen(old, new, most))
}

/// Split into at most so many parts; below zero, all. By nothing, it is split into its characters.
fn split<'a>(text: &Text<'a>, by: &str, most: i64, budget: &mut Budget) -> Answer<Value<'a>> {
    /// Of a string of its own: its counters.
    const COUNTERS: usize = 16;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = if by.is_empty() { text.chars().count() } else { text.matches(by).count() + 1 }.min(most);
    budget.list(count)?;
    budget.bytes(count.saturating_mul(COUNTERS))?;
    let mut parts = Vec::with_capacity(count);
    let mut at = 0;
    for index in 0..count {
        let rest = &text[at..];
        let length = match () {
            () if index + 1 == count => rest.len(),
            () if by.is_empty() => rest.chars().next().map_or(0, char::len_utf8),
            () => rest.find(by).unwrap_or(rest.len()),
        };
        parts.push(part(text, at..at + length, budget)?);
        at = (at + length + by.len()).min(text.len());
    }
    Ok(Value::list(parts))
}

fn join<'a>(list: &Value<'a>, rest: &[Value<'a>], budget: &mut Budget) -> Answer<Option<Value<'a>>> {
    let between = match rest {
        [] => "",
        [Value::String(between)] => between,
        _ => return Ok(None),
    };
    let Some(count) = list.list_len() else { return Ok(None) };
    budget.values(count)?;
    let mut parts = Vec::with_capacity(count);
    let mut length = between.len().saturating_mul(count);
    for element in (0..count).filter_map(|at| list.element(at)) {
        let Value::String(text) = element else { return Ok(None) };
        length = length.saturating_add(text.len());
        parts.push(text);
    }
    let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
    made(length, budget, || parts.join(between)).map(Some)
}

/// To and from base64.
pub(crate) fn base64<'a>(
    function: Function,
    value: &Value<'a>,
    budget: &mut Budget,
) -> Answer<Option<Value<'a>>> {
    Ok(match (function, value) {
        (Function::Base64Encode, Value::Bytes(bytes)) => {
            Some(made(bytes.len().saturating_mul(2) + 4, budget, || {
                base64::engine::general_purpose::STANDARD.encode(bytes)
            })?)
        }
        (Function::Base64Decode, Value::String(text)) => {
            budget.bytes(text.len().saturating_mul(3))?;
            // Line breaks are skipped, as in Go.
            let text: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
            let bytes = BASE64.decode(text).map_err(|_| EvalProblem::Base64)?;
            Some(Value::Bytes(Arc::from(bytes)))
        }
        _ => None,
    })
}
