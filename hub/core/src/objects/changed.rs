//! What of an object a write changed, for the audit log: fields with their old and new values, bounded, and without what is secret.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use roadstead_hub_store::{LAST_APPLIED, StoreError, Stored, Tx};
use roadstead_model::AuditEntry;
use serde_json::{Map, Value, json};

use crate::identity::audit::Told;
use crate::identity::{AuditLog, Identity, audit};

/// Bytes of all fields together, as JSON.
pub(crate) const MAX_BYTES: usize = 8 << 10;
/// Bytes of the fields besides that have no room there, and are named with hashes of their values.
const MAX_NAMED: usize = 2 << 10;
/// Bytes of a path that is named so.
const MAX_PATH: usize = 256;
/// Parts of an object that are named.
const MAX_PARTS: usize = 16;
/// Bytes of one value that is shown whole.
const MAX_VALUE: usize = 1 << 10;
/// What of the metadata every write changes, what the entry says anyway, and what says nothing to people.
const PASSED_OVER: [&str; 7] =
    ["managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "name", "namespace"];
/// What acts is told first, so that nobody hides it behind what does not: this comes last.
const LAST: [&str; 2] = ["status", "metadata"];
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
        changes: Option<Told>,
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
            return Change::Counted { entry, changes: changes.told() };
        }
        if !is_hub {
            entry.changes = self.within_allowance(&entry, changes.told());
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
    /// Of each part of the object how many fields changed, and how many of them have no room.
    parts: BTreeMap<String, (usize, usize)>,
    /// What has no room is named with hashes, as far as there is room for that.
    named: Vec<Value>,
    named_bytes: usize,
    /// A hash of all that has no room.
    left_out: String,
    beside_status: bool,
}

/// A keyed hash of a value at a path.
type Hash<'a> = &'a dyn Fn(&str, &str) -> String;

impl Changes {
    /// What differs between two forms of an object; none is before it was there, or after it is gone. `hash` hides values.
    pub(crate) fn between<'a>(before: Option<&'a Stored>, after: Option<&'a Stored>, hash: Hash<'_>) -> Self {
        let mut changes = Self::default();
        let nothing = Map::new();
        let fields = |stored: Option<&'a Stored>| stored.and_then(|stored| stored.object.as_object());
        let (old, new) = (fields(before).unwrap_or(&nothing), fields(after).unwrap_or(&nothing));
        let over = passed_over("");
        let is_first = |key: &&str| !over.contains(key) && !LAST.contains(key);
        let first: BTreeSet<&str> =
            old.keys().chain(new.keys()).map(String::as_str).filter(is_first).collect();
        for key in first {
            changes.walk(&child("", key), old.get(key), new.get(key), hash);
        }
        changes.walk_secret(before, after, hash);
        for key in LAST {
            changes.walk(&child("", key), old.get(key), new.get(key), hash);
        }
        changes
    }

    /// Secrets' data is beside the object.
    fn walk_secret(&mut self, before: Option<&Stored>, after: Option<&Stored>, hash: Hash<'_>) {
        let data = |stored: Option<&Stored>| stored.and_then(|stored| stored.secret.as_ref()).cloned();
        let (old, new) = (data(before).unwrap_or_default(), data(after).unwrap_or_default());
        let keys: BTreeSet<&str> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let (from, to) = (old.expose(key), new.expose(key));
            if from != to {
                let path = child(".data", key);
                let hidden = |value: Option<&str>| value.map(|value| Value::from(hash(&path, value)));
                self.push(&path, (hidden(from), hidden(to)), hash);
            }
        }
    }

    /// Whether nothing but the status differs.
    pub(crate) fn only_status(&self) -> bool {
        !self.beside_status
    }

    /// What is told of it; none where nothing differs.
    pub(crate) fn told(mut self) -> Option<Told> {
        let left_out: usize = self.parts.values().map(|(_, left_out)| left_out).sum();
        if left_out > 0 {
            let of = parts(self.parts.iter().map(|(part, (_, left_out))| (part, *left_out)));
            let named = match self.named.len() {
                0 => String::new(),
                named => format!("; of {named} there are hashes of the values"),
            };
            let note = format!("{left_out} more fields are left out: {of} ({}){named}", self.left_out);
            self.fields.push(json!({ "note": note }));
            self.fields.append(&mut self.named);
        }
        let parts = parts(self.parts.iter().map(|(part, (changed, _))| (part, *changed)));
        (!self.fields.is_empty()).then(|| Told { text: Value::Array(self.fields).to_string(), parts })
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
                self.push(path, (shown(from), shown(to)), hash);
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

    fn push(&mut self, path: &str, (from, to): (Option<Value>, Option<Value>), hash: Hash<'_>) {
        self.beside_status |= !(path == ".status" || path.starts_with(".status."));
        let (changed, left_out) = self.parts.entry(part(path)).or_default();
        *changed += 1;
        let of = field(path, from.clone(), to.clone());
        let text = of.to_string();
        if self.bytes + text.len() < MAX_BYTES {
            self.bytes += text.len() + 1;
            self.fields.push(of);
            return;
        }
        *left_out += 1;
        self.left_out = hash("", &format!("{}{text}", self.left_out));
        if self.named_bytes >= MAX_NAMED {
            return;
        }
        let hidden = |value: Option<Value>| value.map(|value| Value::from(hash(path, &value.to_string())));
        let path = match path.len() {
            0..=MAX_PATH => path.to_owned(),
            bytes => format!("{}… (cut: {bytes} bytes, {})", beginning(path, MAX_PATH), hash("", path)),
        };
        let named = field(&path, hidden(from), hidden(to));
        let bytes = named.to_string().len() + 1;
        if self.named_bytes + bytes <= MAX_NAMED {
            self.named_bytes += bytes;
            self.named.push(named);
        }
    }
}

fn field(path: &str, from: Option<Value>, to: Option<Value>) -> Value {
    let mut field = json!({ "path": path });
    for (key, value) in [("from", from), ("to", to)] {
        if let Some(value) = value {
            field[key] = value;
        }
    }
    field
}

/// The part of an object that a path leads into: its first key.
fn part(path: &str) -> String {
    let end = match path.strip_prefix('.') {
        Some(rest) => rest.find(['.', '[']).map(|end| end + 1),
        None => path.find("\"]").map(|end| end + 2),
    };
    beginning(&path[..end.unwrap_or(path.len())], MAX_PATH / 4).to_owned()
}

/// Parts with how many fields of them, where there are any.
fn parts<'a>(of: impl Iterator<Item = (&'a String, usize)>) -> String {
    let mut all = of.filter(|(_, count)| *count > 0);
    let mut told: Vec<String> =
        all.by_ref().take(MAX_PARTS).map(|(part, count)| format!("{count} of {part}")).collect();
    let more: usize = all.map(|(_, count)| count).sum();
    if more > 0 {
        told.push(format!("{more} of others"));
    }
    told.join(", ")
}

/// What of a text has room.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
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

/// A value as the log has it: what is encrypted as a keyed hash, and of what is long its beginning and a hash of all.
fn shown(path: &str, value: &Value, hash: Hash<'_>) -> Value {
    let hidden = hide(path, value, hash);
    if fits(Some(&hidden)) {
        return hidden;
    }
    let text = match &hidden {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let cut = beginning(&text, MAX_VALUE / 4);
    format!("{cut}… (cut: {} bytes, {})", text.len(), hash(path, &text)).into()
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

    /// Bytes of all that is told of one change: the fields, what is named, and how much there is.
    const MOST_BYTES: usize = MAX_BYTES + MAX_NAMED + (2 << 10);

    fn stored(kind: KindId, object: Value) -> Stored {
        Stored::new(kind, "apps", "one", Timestamp::UNIX_EPOCH, object)
    }

    fn between(before: Option<&Stored>, after: Option<&Stored>) -> Changes {
        Changes::between(before, after, &|path, value| {
            let path: String = path.chars().take(40).collect();
            let sum: u32 = if value.len() > 100 { value.bytes().map(u32::from).sum() } else { 0 };
            format!("hmac:{path}:{}{}", value.len(), if sum == 0 { String::new() } else { format!("+{sum}") })
        })
    }

    fn text(before: Option<&Stored>, after: Option<&Stored>) -> Value {
        let told = between(before, after).told();
        told.map_or(Value::Null, |told| serde_json::from_str(&told.text).unwrap())
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
    fn what_acts_is_told_before_what_describes_it() {
        let of = |word: &str| {
            let padding: Map<String, Value> =
                (0..30).map(|n| (format!("a{n}"), word.repeat(500).into())).collect();
            let mut stored = stored(
                KindId::Secret,
                json!({ "metadata": { "annotations": padding }, "type": word, "status": { "x": word } }),
            );
            stored.secret = Some(SecretData::new(BTreeMap::from([("k".to_owned(), word.to_owned())])));
            stored
        };
        let changes = text(Some(&of("x")), Some(&of("yy")));
        let paths: Vec<&str> =
            changes.as_array().unwrap().iter().filter_map(|field| field["path"].as_str()).collect();
        assert_eq!(paths[..4], [".type", ".data.k", ".status.x", ".metadata.annotations.a0"], "{changes}");
    }

    #[test]
    fn nobody_hides_one_change_among_others() {
        let of = |fill: &str, word: &str| {
            let mut data: Map<String, Value> =
                (0..20).map(|n| (format!("k{n:02}"), fill.repeat(500).into())).collect();
            data.insert("zz".to_owned(), word.repeat(330).into());
            stored(KindId::ConfigMap, json!({ "metadata": { "labels": { "a": fill } }, "data": data }))
        };
        let before = of("x", "old");
        let (one, other) =
            (text(Some(&before), Some(&of("y", "one"))), text(Some(&before), Some(&of("y", "two"))));
        assert_ne!(one, other, "what is left out is told apart");
        let last = one.as_array().unwrap().iter().find(|field| field["path"] == ".data.zz").unwrap();
        assert!(last["to"].as_str().unwrap().starts_with("hmac:"), "{one}");
        // What has room has it, whatever does not.
        let label = json!({ "path": ".metadata.labels.a", "from": "x", "to": "y" });
        assert!(one.as_array().unwrap().contains(&label), "{one}");
        // Whatever the paths are, of what was changed there is something.
        let long: Map<String, Value> =
            (0..200).map(|n| (format!("{n}{}", "k".repeat(20_000)), 1.into())).collect();
        let long = text(None, Some(&stored(KindId::ConfigMap, json!({ "data": long, "b": 1 }))));
        assert!(long.to_string().len() <= MOST_BYTES && long.to_string().contains("200 of .data"), "{long}");
    }

    #[test]
    fn values_that_are_cut_are_told_apart() {
        let of = |end: &str| {
            let text = format!("{}{end}", "v".repeat(5_000));
            stored(KindId::ConfigMap, json!({ "data": { "k": text } }))
        };
        let changes = text(Some(&of("1")), Some(&of("2")));
        assert!(changes[0]["from"] != changes[0]["to"], "{changes}");
        assert!(changes[0]["to"].as_str().unwrap().contains("cut: 5001 bytes, hmac:"), "{changes}");
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
        assert!(changes.to_string().len() <= MOST_BYTES);
        let noted = fields.iter().position(|field| field["note"].is_string()).unwrap();
        let (note, left_out) = (fields[noted]["note"].as_str().unwrap(), 10_000 - noted);
        let wanted = format!("{left_out} more fields are left out: {left_out} of .data (hmac:");
        assert!(note.starts_with(&wanted), "{note}");
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
            let told = between(None, Some(&stored(KindId::ConfigMap, json!({ "data": data })))).told();
            if let Some(Told { text, .. }) = told {
                prop_assert!(text.len() <= MOST_BYTES);
                let is_one_line = !text.contains('\n');
                prop_assert!(is_one_line);
                prop_assert!(serde_json::from_str::<Vec<Value>>(&text).is_ok());
            }
        }
    }
}
