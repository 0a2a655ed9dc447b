//! What a person in the cluster has confirmed: lines that name one action each.
//!
//! `apply GROUP/KIND [NAMESPACE/]NAME CONTENT`, `delete GROUP/KIND [NAMESPACE/]NAME`, `deletions DIGEST`, `upgrade IMAGE`, `removal`. The
//! refusal prints the line. An apply is confirmed with a digest of the object, so that a hub cannot put another one in its place.

use std::collections::BTreeSet;

use roadstead_model::{Digest, ObjectRef};
use serde_json::Value;

use crate::object::Action;
use crate::policy::Malformed;

/// Characters of a digest that a line names: 128 bits.
const SHORT: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Confirmed(BTreeSet<String>);

impl Confirmed {
    pub(crate) fn parse(text: &str) -> Result<Self, Malformed> {
        let mut lines = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_known = matches!(
                words.as_slice(),
                ["apply", _, _, _] | ["delete", _, _] | ["deletions" | "upgrade", _] | ["removal"]
            );
            if !is_known {
                return Err(Malformed::new(format!(
                    "confirmed: `{line}` is not a line that a refusal prints"
                )));
            }
            lines.insert(words.join(" "));
        }
        Ok(Self(lines))
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.0.contains(line)
    }
}

/// The line that confirms an action.
pub(crate) fn line(action: Action, object: &ObjectRef, content: Option<&Value>) -> String {
    let group = if object.group.is_empty() { "core" } else { &object.group };
    let namespace =
        if object.namespace.is_empty() { String::new() } else { format!("{}/", object.namespace) };
    // A name may have no white space: what has is refused by the apiserver, and must not look like two words here.
    let name = object.name.replace(char::is_whitespace, "?");
    let named = format!("{group}/{} {namespace}{name}", object.kind);
    match action {
        Action::Delete => format!("delete {named}"),
        Action::Read => format!("read {named}"),
        Action::Apply => {
            format!("apply {named} {}", content.map_or_else(|| "-".to_owned(), |value| short(object, value)))
        }
    }
}

/// The line that confirms deletions at once: just these objects.
pub(crate) fn deletions(digest: &Digest) -> String {
    format!("deletions {}", digest.hex().chars().take(SHORT).collect::<String>())
}

/// A digest of an object. Of a Secret without its values: the line is shown on the hub.
fn short(object: &ObjectRef, content: &Value) -> String {
    let is_secret = object.group.is_empty() && object.kind == "Secret";
    let text = match content.as_object().filter(|_| is_secret) {
        Some(fields) => {
            let mut fields = fields.clone();
            fields.remove("data");
            fields.remove("stringData");
            Value::Object(fields).to_string()
        }
        None => content.to_string(),
    };
    Digest::of(text.as_bytes()).hex().chars().take(SHORT).collect()
}
