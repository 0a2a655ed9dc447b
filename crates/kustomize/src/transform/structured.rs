//! JSON and YAML inside of a text, changed in place.

use crate::budget::{Budget, Held, Size};
use crate::json;
use crate::value::{NullForm, Value};
use crate::yaml::{self, Dialect, read_counted};

/// What a text says, if it is JSON or YAML; of several documents, the first.
pub(super) fn parse(text: &str, budget: &Budget) -> Result<(Value, Held), String> {
    let read = read_counted(text.as_bytes(), Dialect::Patch, budget.limits(), budget.room())
        // What is wrong names keys, and here these are part of a value.
        .map_err(|error| format!("the text cannot be read as YAML: line {}", error.line))?;
    let held = budget.hold(read.memory)?;
    match read.documents.into_iter().next() {
        Some(document) => Ok((document.value, held)),
        None if text.trim().is_empty() => Err("the text is empty".into()),
        None => Ok((Value::Null(NullForm::Written), held)),
    }
}

/// Is a text JSON, rather than YAML?
pub(super) fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Changes what a text says, and writes it as it was written: JSON stays JSON, on one line or on several, and YAML keeps its
/// order, quotes and comments.
pub(super) fn edit(
    text: &str,
    budget: &Budget,
    change: impl FnOnce(&mut Value) -> Result<(), String>,
) -> Result<String, String> {
    /// Of a value in what is read to find out how the text was written, and of a byte.
    const STYLE: (usize, usize) = (640, 8);
    let (mut value, _held) = parse(text, budget)?;
    let _style = budget.hold(Size::of(&value).nodes * STYLE.0 + text.len() * STYLE.1)?;
    change(&mut value)?;
    // What is written grows by doubling.
    let _written = budget.hold(Size::of(&value).written().saturating_mul(3))?;
    let mut out = String::with_capacity(text.len());
    if !is_json(text) {
        yaml::write_like(&mut out, &value, text);
        return Ok(out.trim().to_owned());
    }
    if text.contains('\n') && text.contains("  ") {
        json::write_pretty(&mut out, &value);
    } else {
        json::write(&mut out, &value);
    }
    Ok(out)
}
