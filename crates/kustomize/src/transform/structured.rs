//! JSON and YAML inside of a text, changed in place.

use crate::json;
use crate::limits::Limits;
use crate::value::{NullForm, Value};
use crate::yaml::{self, Dialect, read_documents};

/// What a text says, if it is JSON or YAML; of several documents, the first.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let documents = read_documents(text.as_bytes(), Dialect::Patch, &Limits::default())
        .map_err(|error| format!("the text is no YAML: line {}: {}", error.line, error.message))?;
    match documents.into_iter().next() {
        Some(document) => Ok(document.value),
        None if text.trim().is_empty() => Err("the text is empty".into()),
        None => Ok(Value::Null(NullForm::Written)),
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
    change: impl FnOnce(&mut Value) -> Result<(), String>,
) -> Result<String, String> {
    let mut value = parse(text)?;
    change(&mut value)?;
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
