//! Rules of the core group's kinds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::entries;
use crate::validate::FieldError;

/// All data of a Secret or ConfigMap, in bytes.
const MAX_DATA: usize = 1024 * 1024;

/// The name of a piece of data: it can become a file's.
fn key(field: &str, key: &str, errors: &mut Vec<FieldError>) {
    let valid = !key.is_empty()
        && key.len() <= 253
        && key != "."
        && !key.starts_with("..")
        && key.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'));
    if !valid {
        let why = "a key has letters, digits, `-`, `_` and `.`, at most 253";
        errors.push(FieldError::invalid(field, &key.into(), why));
    }
}

/// How large the data is; the values themselves are never shown.
fn decoded(field: &str, key: &str, value: &Value, errors: &mut Vec<FieldError>) -> usize {
    match STANDARD.decode(value.as_str().unwrap_or_default()) {
        Ok(plain) => plain.len(),
        Err(_) => {
            errors.push(FieldError {
                field: format!("{field}[{key}]"),
                reason: "FieldValueInvalid",
                message: "Invalid value: want base64".to_owned(),
            });
            0
        }
    }
}

fn bounded(size: usize, errors: &mut Vec<FieldError>) {
    if size > MAX_DATA {
        let message = format!("Too long: must have at most {MAX_DATA} bytes");
        errors.push(FieldError { field: "data".to_owned(), reason: "FieldValueTooLong", message });
    }
}

/// What is immutable stays so, with its data.
fn frozen(object: &Value, old: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if object["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", why));
    }
    for field in fields.iter().filter(|field| object[**field] != old[**field]) {
        errors.push(FieldError::forbidden(*field, why));
    }
}

pub(super) fn config_map(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (name, value) in entries(&object["data"]) {
        key("data", name, errors);
        size += value.as_str().map_or(0, str::len);
    }
    for (name, value) in entries(&object["binaryData"]) {
        key("binaryData", name, errors);
        size += decoded("binaryData", name, value, errors);
        if object["data"].get(name).is_some() {
            errors.push(FieldError::invalid("binaryData", &name.as_str().into(), "data has this key too"));
        }
    }
    bounded(size, errors);
    if let Some(old) = old {
        frozen(object, old, &["data", "binaryData"], errors);
    }
}

pub(super) fn event(object: &Value, errors: &mut Vec<FieldError>) {
    // An event without a word for it is none; older clients leave the type away.
    if object["reason"].as_str().is_some_and(|reason| reason.len() > 128) {
        errors.push(FieldError::invalid("reason", &object["reason"], "at most 128 characters"));
    }
    if object["message"].as_str().is_some_and(|message| message.len() > MAX_DATA) {
        let message = format!("Too long: must have at most {MAX_DATA} bytes");
        errors.push(FieldError { field: "message".to_owned(), reason: "FieldValueTooLong", message });
    }
}

pub(super) fn secret(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (name, value) in entries(&object["data"]) {
        key("data", name, errors);
        size += decoded("data", name, value, errors);
    }
    bounded(size, errors);
    let needed: &[&str] = match object["type"].as_str() {
        Some("kubernetes.io/tls") => &["tls.crt", "tls.key"],
        Some("kubernetes.io/dockerconfigjson") => &[".dockerconfigjson"],
        Some("kubernetes.io/ssh-auth") => &["ssh-privatekey"],
        _ => &[],
    };
    for key in needed {
        if object["data"].get(key).is_none() {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    }
    let Some(old) = old else { return };
    if object["type"] != old["type"] {
        errors.push(FieldError::invalid("type", &object["type"], "field is immutable"));
    }
    frozen(object, old, &["data"], errors);
}
