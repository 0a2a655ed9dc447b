//! As what somebody was taken for somebody else, as the audit log tells it.

use std::collections::BTreeMap;

use roadstead_model::{AuditEntry, Digest};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::cut;
use crate::identity::{Impersonation, MASTERS};

/// Groups, and values of extra, that are named.
const MOST: usize = 64;
/// Bytes of all of them, as JSON.
const MAX_BYTES: usize = 2 << 10;

/// As what somebody was taken for another user, beside the name.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditImpersonation {
    /// The uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub uid: String,
    /// The groups, those first whose names begin with `system:`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub groups: Vec<String>,
    /// What else was to be known of the user.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub extra: BTreeMap<String, Vec<String>>,
    /// How many groups, and values of extra, have no room here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<usize>,
}

/// What tells entries apart that are alike but for this, and is short; empty where nothing was asked for.
pub(super) fn key(entry: &AuditEntry) -> String {
    entry.impersonated.as_deref().map_or_else(String::new, |text| Digest::of(text.as_bytes()).hex())
}

/// What has room yet.
struct Room {
    names: usize,
    bytes: usize,
}

impl Room {
    /// A name as it is told, where there is room for it.
    fn take(&mut self, name: &str) -> Option<String> {
        let mut name = name.to_owned();
        cut(&mut name);
        self.bytes = self.bytes.checked_sub(Value::from(name.as_str()).to_string().len() + 1)?;
        self.names = self.names.checked_sub(1)?;
        Some(name)
    }
}

impl AuditImpersonation {
    /// As it is stored; none where nothing was asked for but a name.
    pub(in crate::identity) fn told(wanted: &Impersonation) -> Option<String> {
        let Impersonation { user: _, uid, groups, extra } = wanted;
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return None;
        }
        let (mut told, mut room) = (Self::default(), Room { names: MOST, bytes: MAX_BYTES });
        let mut left_out = 0;
        told.uid.clone_from(uid);
        cut(&mut told.uid);
        // Nobody hides those that say most among many others.
        let mut groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        groups.sort_by_key(|group| (*group != MASTERS, !group.starts_with("system:")));
        for group in groups {
            match room.take(group) {
                Some(group) => told.groups.push(group),
                None => left_out += 1,
            }
        }
        for (key, value) in
            extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)))
        {
            match (room.take(key), room.take(value)) {
                (Some(key), Some(value)) => told.extra.entry(key).or_default().push(value),
                _ => left_out += 1,
            }
        }
        told.left_out = (left_out > 0).then_some(left_out);
        serde_json::to_string(&told).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_takes_little_room_and_says_how_much_there_was() {
        assert_eq!(
            AuditImpersonation::told(&Impersonation { user: "jane".into(), ..Default::default() }),
            None
        );
        let mut wanted = Impersonation { uid: "u".repeat(10_000), ..Impersonation::default() };
        wanted.groups = (0..1_000).map(|number| format!("\u{1}{number}").repeat(100)).collect();
        wanted.groups.push("system:nodes".to_owned());
        wanted.groups.push(MASTERS.to_owned());
        wanted.extra.insert("\0".repeat(10_000), vec!["x".repeat(10_000); 100]);
        let text = AuditImpersonation::told(&wanted).unwrap();
        assert!(text.len() <= MAX_BYTES + 512, "{}", text.len());
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&told["groups"][0], &told["groups"][1]), (&MASTERS.into(), &"system:nodes".into()));
        let named = told["groups"].as_array().unwrap().len();
        assert_eq!(told["leftOut"], 1_002 - named + 100);
    }
}
