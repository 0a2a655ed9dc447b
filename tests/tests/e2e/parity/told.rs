//! What an object tells of itself in its status and its Events, as lines that can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Names that differ from run to run, and what stands for them.
pub(crate) type Names = BTreeMap<String, String>;

/// What is told, by what it is about. Of Events there are many, so they are a set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Fields of the metadata and the status, by their paths; a condition's by its type.
    pub(crate) fields: BTreeMap<String, String>,
    /// `TYPE REASON MESSAGE {ANNOTATIONS}`.
    pub(crate) events: BTreeSet<String>,
}

/// What `object` and the Events about it tell; of an object that is gone, its Events.
pub(crate) fn told(object: Option<&Value>, events: &[Value], names: &Names) -> Told {
    let mut told = Told::default();
    let fields = &mut told.fields;
    let empty = Value::Null;
    let object = object.unwrap_or(&empty);
    let metadata = &object["metadata"];
    for key in ["generation", "finalizers"] {
        fields.insert(key.to_owned(), text(&metadata[key]));
    }
    for (key, value) in object["status"].as_object().into_iter().flatten() {
        match key.as_str() {
            "conditions" => conditions(value, fields),
            "history" => history(value, fields),
            "artifact" => artifact(key, value, fields),
            "includedArtifacts" => {
                for (index, one) in value.as_array().into_iter().flatten().enumerate() {
                    artifact(&format!("{key}[{index}]"), one, fields);
                }
            }
            // Each side's own, and of what is there only.
            "url" => {
                fields.insert(key.clone(), "there".to_owned());
            }
            "inventory" => {
                let entries = value["entries"].as_array().into_iter().flatten();
                let ids: BTreeSet<String> =
                    entries.map(|one| format!("{}@{}", text(&one["id"]), text(&one["v"]))).collect();
                fields.insert(key.clone(), ids.into_iter().collect::<Vec<_>>().join(" "));
            }
            _ => {
                fields.insert(key.clone(), text(value));
            }
        }
    }
    for event in events {
        let mut annotations = event["metadata"]["annotations"].clone();
        // Of what each side has packed by itself.
        for (_, digest) in
            annotations.as_object_mut().into_iter().flatten().filter(|(key, _)| key.ends_with("/digest"))
        {
            *digest = "DIGEST".into();
        }
        let annotations = if annotations.is_null() { "{}".to_owned() } else { annotations.to_string() };
        let [type_, reason, message] = ["type", "reason", "message"].map(|key| text(&event[key]));
        // Objects are applied side by side, so their order is none.
        let mut lines: Vec<&str> = message.lines().collect();
        if lines.iter().all(|line| line.ends_with(" created") || line.ends_with(" configured")) {
            lines.sort_unstable();
        }
        let message = lines.join("\n");
        told.events.insert(normal(&format!("{type_} {reason} {message} {annotations}"), names));
        fields.insert("events.source".to_owned(), text(&event["source"]["component"]));
    }
    for value in told.fields.values_mut() {
        *value = normal(value, names);
    }
    // What is not there and what is empty are the same.
    told.fields.retain(|_, value| !value.is_empty());
    told
}

fn conditions(all: &Value, fields: &mut BTreeMap<String, String>) {
    for condition in all.as_array().into_iter().flatten() {
        let [type_, status, reason, message, observed] =
            ["type", "status", "reason", "message", "observedGeneration"].map(|key| text(&condition[key]));
        fields.insert(type_.clone(), format!("{status} {reason}"));
        fields.insert(format!("{type_}.message"), message);
        fields.insert(format!("{type_}.observedGeneration"), observed);
    }
}

/// What of an artifact does not hang on who packed and who serves it.
fn artifact(key: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    for part in ["revision", "metadata"] {
        fields.insert(format!("{key}.{part}"), text(&value[part]));
    }
}

/// Digests by the order in which they came up: what they are of is each one's own form of a build.
fn history(all: &Value, fields: &mut BTreeMap<String, String>) {
    let entries: Vec<&Value> = all.as_array().into_iter().flatten().collect();
    let mut digests: Vec<&Value> = Vec::new();
    for entry in entries.iter().rev() {
        if !digests.contains(&&entry["digest"]) {
            digests.push(&entry["digest"]);
        }
    }
    for (index, entry) in entries.iter().enumerate() {
        let number = digests.iter().position(|digest| **digest == entry["digest"]).unwrap_or_default();
        let [status, revision, total] =
            [&entry["lastReconciledStatus"], &entry["metadata"]["revision"], &entry["totalReconciliations"]]
                .map(text);
        fields.insert(format!("history[{index}]"), format!("build-{} {status} {revision}", number + 1));
        fields.insert(format!("history[{index}].totalReconciliations"), total);
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text with the run's own names replaced, and how long something took.
fn normal(text: &str, names: &Names) -> String {
    let mut text = text.trim().to_owned();
    for (name, stands) in names {
        text = text.replace(name, stands);
    }
    let words = text.split_inclusive([' ', '\n', ':', ',']);
    words
        .map(|word| {
            let end = word.trim_end_matches([' ', '\n', ':', ',']);
            if is_time_taken(end) { format!("DURATION{}", &word[end.len()..]) } else { word.to_owned() }
        })
        .collect()
}

/// Whether a word is a Go duration that was measured: one that somebody chose has no fraction.
fn is_time_taken(word: &str) -> bool {
    let is_of_units = word.chars().all(|one| one.is_ascii_digit() || ".hmµs".contains(one));
    let is_measured = word.contains('.') || word.ends_with("ms") || word.ends_with("µs");
    is_of_units && is_measured && word.starts_with(|one: char| one.is_ascii_digit()) && word.ends_with('s')
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    let names = Names::from([("main@sha1:ab12".to_owned(), "REVISION-1".to_owned())]);
    let text = "Reconciliation finished in 31.5ms, next run in 1h0m0s at main@sha1:ab12";
    assert_eq!(normal(text, &names), "Reconciliation finished in DURATION, next run in 1h0m0s at REVISION-1");
    assert_eq!(normal("failed after 1.0023s: x", &names), "failed after DURATION: x");
}
