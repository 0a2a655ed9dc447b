//! What of an object a write changed, for the audit log: fields with their old and new values, bounded, and without what is secret.

use std::collections::BTreeSet;
use std::io;

use roadstead_hub_store::{LAST_APPLIED, StoreError, Stored, Tx};
use roadstead_model::AuditEntry;
use serde_json::{Map, Value, json};

use crate::identity::{AuditLog, Identity, audit};

/// Bytes of all fields together, as JSON.
pub(crate) const MAX_BYTES: usize = 8 << 10;
/// Bytes of one value that is shown whole.
const MAX_VALUE: usize = 1 << 10;
/// What of the metadata every write changes, what the entry says anyway, and what says nothing to people.
const PASSED_OVER: [&str; 7] =
    ["managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "name", "namespace"];
/// How a value begins that SOPS has encrypted.
const ENCRYPTED: &str = "ENC[";

/// How a change is noted.
pub(crate) enum Change {
    /// Not at all: it is the hub's own, and follows from what others wrote.
    Unnoted,
    /// By itself.
    Noted(AuditEntry),
    /// Of the status alone: the first one with what changed, and then those that are like it by their number.
    Counted {
        /// What is kept in memory for a while.
        entry: AuditEntry,
        changes: Option<String>,
    },
}

impl AuditLog {
    /// The entry of a change of an object, before and after.
    pub(super) fn of_change(
        &self,
        tx: &Tx,
        who: &Identity,
        verb: &str,
        (before, after): (Option<&Stored>, Option<&Stored>),
    ) -> Change {
        let Some(stored) = after.or(before) else { return Change::Unnoted };
        let Stored { kind, namespace, name, .. } = stored;
        let mut entry = audit::about(who, verb, *kind, namespace, name);
        let of = kind.get();
        let hash = |path: &str, value: &str| {
            let texts = ["audit", of.group(), of.kind, namespace, name, path, value];
            format!("hmac:{}", tx.keyed_hash(&texts))
        };
        let changes = Changes::between(before, after, &hash);
        let only_status = before.is_some() && after.is_some() && changes.only_status();
        // The hub's own work follows from what others wrote, and is in the objects' history.
        let is_hub = *who == Identity::hub();
        if only_status && is_hub {
            return Change::Unnoted;
        }
        if only_status {
            entry.kind.push_str("/status");
            audit::shorten(&mut entry);
            return Change::Counted { entry, changes: changes.into_text() };
        }
        if !is_hub {
            entry.changes = self.within_allowance(&entry, changes.into_text());
        }
        Change::Noted(entry)
    }

    /// Notes a change in its unit of work.
    pub(super) async fn note_change(&self, tx: &mut Tx, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Noted(entry) => tx.note(entry).await,
            Change::Counted { entry, changes } if self.is_first(entry) => {
                let changes = self.within_allowance(entry, changes.clone());
                tx.note(&AuditEntry { changes, ..entry.clone() }).await
            }
            Change::Unnoted | Change::Counted { .. } => Ok(()),
        }
    }

    /// The unit of work failed.
    pub(super) fn was_not_made(&self, change: &Change) {
        if let Change::Counted { entry, .. } = change {
            self.forget(entry);
        }
    }
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    fields: Vec<Value>,
    bytes: usize,
    left_out: usize,
    beside_status: bool,
}

/// A keyed hash of a value at a path.
type Hash<'a> = &'a dyn Fn(&str, &str) -> String;

impl Changes {
    /// What differs between two forms of an object; none is before it was there, or after it is gone. `hash` hides values.
    pub(crate) fn between(before: Option<&Stored>, after: Option<&Stored>, hash: Hash<'_>) -> Self {
        let mut changes = Self::default();
        changes.walk("", before.map(|stored| &stored.object), after.map(|stored| &stored.object), hash);
        // Secrets' data is beside the object.
        let data = |stored: Option<&Stored>| stored.and_then(|stored| stored.secret.as_ref()).cloned();
        let (old, new) = (data(before).unwrap_or_default(), data(after).unwrap_or_default());
        let keys: BTreeSet<&str> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let (from, to) = (old.expose(key), new.expose(key));
            if from != to {
                let path = child(".data", key);
                let hidden = |value: Option<&str>| value.map(|value| Value::from(hash(&path, value)));
                changes.push(&path, hidden(from), hidden(to));
            }
        }
        changes
    }

    /// Whether nothing but the status differs.
    pub(crate) fn only_status(&self) -> bool {
        !self.beside_status
    }

    /// As it is stored; none where nothing differs.
    pub(crate) fn into_text(mut self) -> Option<String> {
        if self.left_out > 0 {
            self.fields.push(json!({ "note": format!("{} more fields are left out", self.left_out) }));
        }
        (!self.fields.is_empty()).then(|| Value::Array(self.fields).to_string())
    }

    fn walk(&mut self, path: &str, from: Option<&Value>, to: Option<&Value>, hash: Hash<'_>) {
        match (from, to) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.walk_object(path, old, new, hash),
            // Of these some fields are passed over.
            (None, Some(Value::Object(new))) if !passed_over(path).is_empty() => {
                self.walk_object(path, &Map::new(), new, hash);
            }
            (Some(Value::Object(old)), None) if !passed_over(path).is_empty() => {
                self.walk_object(path, old, &Map::new(), hash);
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    self.walk(&format!("{path}[{index}]"), old.get(index), new.get(index), hash);
                }
            }
            // What is large and only on one side is told part by part, so that some of it is seen.
            (None, Some(Value::Object(new))) if !fits(to) => self.walk_object(path, &Map::new(), new, hash),
            (Some(Value::Object(old)), None) if !fits(from) => {
                self.walk_object(path, old, &Map::new(), hash);
            }
            (from, to) if from != to => {
                let shown = |value: Option<&Value>| value.map(|value| shown(path, value, hash));
                self.push(path, shown(from), shown(to));
            }
            _ => {}
        }
    }

    fn walk_object(
        &mut self,
        path: &str,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        hash: Hash<'_>,
    ) {
        let over = passed_over(path);
        let keys: BTreeSet<&String> =
            old.keys().chain(new.keys()).filter(|key| !over.contains(&key.as_str())).collect();
        for key in keys {
            self.walk(&child(path, key), old.get(key), new.get(key), hash);
        }
    }

    fn push(&mut self, path: &str, from: Option<Value>, to: Option<Value>) {
        self.beside_status |= !(path == ".status" || path.starts_with(".status."));
        let mut field = json!({ "path": path });
        for (key, value) in [("from", from), ("to", to)] {
            if let Some(value) = value {
                field[key] = value;
            }
        }
        let bytes = field.to_string().len() + 1;
        if self.left_out > 0 || self.bytes + bytes > MAX_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += bytes;
        self.fields.push(field);
    }
}

/// The fields that are passed over of what is at `path`.
fn passed_over(path: &str) -> &'static [&'static str] {
    match path {
        "" => &["apiVersion", "kind"],
        ".metadata" => &PASSED_OVER,
        ".metadata.annotations" => &[LAST_APPLIED],
        _ => &[],
    }
}

/// The path of a key of what is at `path`.
fn child(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain { format!("{path}.{key}") } else { format!("{path}[{}]", Value::from(key)) }
}

/// A value as the log has it: what is encrypted as a keyed hash, and of what is long its beginning.
fn shown(path: &str, value: &Value, hash: Hash<'_>) -> Value {
    let hidden = hide(path, value, hash);
    if fits(Some(&hidden)) {
        return hidden;
    }
    let text = match &hidden {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let end = (0..=MAX_VALUE / 4).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}… (cut: {} bytes)", &text[..end], text.len()).into()
}

fn hide(path: &str, value: &Value, hash: Hash<'_>) -> Value {
    match value {
        Value::String(text) if text.contains(ENCRYPTED) => hash(path, text).into(),
        Value::Array(items) => items.iter().map(|item| hide(path, item, hash)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), hide(path, value, hash)))
            .collect::<Map<_, _>>()
            .into(),
        plain => plain.clone(),
    }
}

/// Whether a value is short enough to be shown whole; writes no more of it than that.
fn fits(value: Option<&Value>) -> bool {
    struct Room(usize);
    impl io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    value.is_none_or(|value| serde_json::to_writer(Room(MAX_VALUE), value).is_ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use proptest::prelude::*;
    use roadstead_api::KindId;
    use roadstead_hub_store::SecretData;

    use super::*;

    fn stored(kind: KindId, object: Value) -> Stored {
        Stored::new(kind, "apps", "one", Timestamp::UNIX_EPOCH, object)
    }

    fn between(before: Option<&Stored>, after: Option<&Stored>) -> Changes {
        Changes::between(before, after, &|path, value| format!("hmac:{path}:{}", value.len()))
    }

    fn text(before: Option<&Stored>, after: Option<&Stored>) -> Value {
        let text = between(before, after).into_text();
        text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn fields_with_their_old_and_new_values() {
        let before = stored(
            KindId::ConfigMap,
            json!({ "metadata": { "generation": 1, "managedFields": [1], "annotations": { "a.b/c": "x", LAST_APPLIED: "{}" } },
                    "data": { "k": "old", "gone": "1", "list": ["a"] } }),
        );
        let after = stored(
            KindId::ConfigMap,
            json!({ "metadata": { "generation": 2, "managedFields": [2], "annotations": { "a.b/c": "y", LAST_APPLIED: "{1}" } },
                    "data": { "k": "new", "added": {"x": 1}, "list": ["a", "b"], "sops": "ENC[AES256_GCM,data:x]" } }),
        );
        assert_eq!(
            text(Some(&before), Some(&after)),
            json!([
                { "path": ".data.added", "to": { "x": 1 } },
                { "path": ".data.gone", "from": "1" },
                { "path": ".data.k", "from": "old", "to": "new" },
                { "path": ".data.list[1]", "to": "b" },
                { "path": ".data.sops", "to": "hmac:.data.sops:22" },
                { "path": ".metadata.annotations[\"a.b/c\"]", "from": "x", "to": "y" },
            ])
        );
        assert_eq!(text(Some(&after), Some(&after)), Value::Null);
        assert_eq!(text(None, Some(&before)).as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn of_secrets_there_are_hashes() {
        let secret = |values: &[(&str, &str)]| {
            let mut stored = stored(KindId::Secret, json!({ "metadata": {}, "type": "Opaque" }));
            let data: BTreeMap<String, String> =
                values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            stored.secret = Some(SecretData::new(data).with_last_applied(Some("hunter2".to_owned())));
            stored
        };
        let (before, after) =
            (secret(&[("a", "hunter2"), ("same", "x")]), secret(&[("a", "hunter"), ("same", "x")]));
        let changes = text(Some(&before), Some(&after));
        assert_eq!(changes, json!([{ "path": ".data.a", "from": "hmac:.data.a:7", "to": "hmac:.data.a:6" }]));
        assert!(!text(Some(&before), None).to_string().contains("hunter"));
    }

    #[test]
    fn a_status_alone_is_known_as_such() {
        let of = |spec: i32, status: i32| {
            stored(KindId::Kustomization, json!({ "spec": spec, "status": { "x": status } }))
        };
        assert!(between(Some(&of(1, 1)), Some(&of(1, 2))).only_status());
        assert!(!between(Some(&of(1, 1)), Some(&of(2, 2))).only_status());
    }

    #[test]
    fn what_is_large_is_cut_and_says_so() {
        let many: Map<String, Value> =
            (0..10_000).map(|n| (format!("k{n:05}"), "v".repeat(40).into())).collect();
        let changes = text(None, Some(&stored(KindId::ConfigMap, json!({ "data": many }))));
        let fields = changes.as_array().unwrap();
        assert!(changes.to_string().len() <= MAX_BYTES + 64);
        let note = fields.last().unwrap()["note"].as_str().unwrap();
        assert_eq!(note, format!("{} more fields are left out", 10_000 - (fields.len() - 1)));
        let long =
            text(None, Some(&stored(KindId::ConfigMap, json!({ "data": { "k": "ä".repeat(1 << 20) } }))));
        assert!(
            long.to_string().len() < MAX_VALUE && long.to_string().contains("cut: 2097152 bytes"),
            "{long}"
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_large_or_breaks_it(keys in prop::collection::vec(".{0,40}", 0..40), value in ".{0,3000}") {
            let data: Map<String, Value> = keys.into_iter().map(|key| (key, value.clone().into())).collect();
            let text = between(None, Some(&stored(KindId::ConfigMap, json!({ "data": data })))).into_text();
            if let Some(text) = text {
                prop_assert!(text.len() <= MAX_BYTES + 64);
                let is_one_line = !text.contains('\n');
                prop_assert!(is_one_line);
                prop_assert!(serde_json::from_str::<Vec<Value>>(&text).is_ok());
            }
        }
    }
}
