//! Reading an untyped object: whatever is missing or of another type reads as absent, never as a panic.

use serde_json::Value;

use crate::MAX_MESSAGE;

/// An object, read by JSON pointers.
pub(crate) struct Fields<'a>(&'a Value);

/// One entry of `status.conditions`.
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    message: &'a str,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(object: &'a Value) -> Self {
        Self(object)
    }

    pub(crate) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.0.pointer(pointer)
    }

    /// The text at `pointer`; empty where there is none.
    pub(crate) fn text(&self, pointer: &str) -> &'a str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn integer(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).and_then(Value::as_i64)
    }

    /// The count at `pointer`: controllers leave zeros out of a status.
    pub(crate) fn count(&self, pointer: &str) -> i64 {
        self.integer(pointer).unwrap_or(0)
    }

    pub(crate) fn conditions(&self) -> impl Iterator<Item = Condition<'a>> {
        let entries = self.at("/status/conditions").and_then(Value::as_array);
        entries.into_iter().flatten().map(|entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            Condition {
                kind: text("type"),
                status: text("status"),
                reason: text("reason"),
                message: text("message"),
            }
        })
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<Condition<'a>> {
        self.conditions().find(|condition| condition.kind == kind)
    }
}

impl Condition<'_> {
    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub(crate) fn is_false(&self) -> bool {
        self.status == "False"
    }

    /// The condition's message, else its reason, else its type and status; bounded.
    pub(crate) fn explain(&self) -> String {
        let text = [self.message, self.reason].into_iter().find(|text| !text.is_empty());
        text.map_or_else(|| format!("{} is {}", self.kind, self.status), bounded)
    }
}

/// `text`, cut at a character's boundary to at most [`MAX_MESSAGE`] bytes.
pub(crate) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_MESSAGE)].to_owned()
}
