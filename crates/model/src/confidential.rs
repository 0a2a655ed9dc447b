//! A JSON value that may hold secrets: it is wiped from memory when it goes.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

/// A value whose texts are overwritten when it is dropped, and which does not print. Names of fields are not overwritten: they are not secret.
#[derive(Clone, Default, PartialEq)]
pub struct Confidential(Value);

impl Confidential {
    /// The value itself, which nobody wipes any more.
    #[must_use]
    pub fn into_value(mut self) -> Value {
        std::mem::take(&mut self.0)
    }

    /// As JSON, in a buffer that is overwritten, too.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // In one piece from the beginning: what a buffer grows out of is left as it is.
        let mut bytes = Zeroizing::new(Vec::with_capacity(json_length(&self.0)));
        // A value that is nothing but JSON is written into memory without an error.
        let _ = serde_json::to_writer(&mut *bytes, &self.0);
        bytes
    }
}

/// Bytes that a value has as JSON, without writing it anywhere.
#[must_use]
pub fn json_length(value: &Value) -> usize {
    let mut length = Counter(0);
    // As of `to_bytes`: there is no error.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

/// Counts bytes and keeps none.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl From<Value> for Confidential {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl PartialEq<Value> for Confidential {
    fn eq(&self, other: &Value) -> bool {
        self.0 == *other
    }
}

impl Deref for Confidential {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Confidential {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl Drop for Confidential {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Confidential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[confidential]")
    }
}

/// Overwrites all texts of a value. What is read from outside is nested a hundred levels at most.
fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(map) => map.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_texts_are_wiped_and_nothing_prints() {
        let value = || json!({"a": "one", "b": ["two", {"c": "three", "d": 4}], "e": null});
        let mut wiped = value();
        wipe(&mut wiped);
        assert_eq!(wiped, json!({"a": "", "b": ["", {"c": "", "d": 4}], "e": null}));
        let confidential = Confidential::from(value());
        assert_eq!(format!("{confidential:?}"), "[confidential]");
        assert_eq!(confidential["b"][0], "two");
        assert_eq!(*confidential.to_bytes(), value().to_string().into_bytes());
    }
}
