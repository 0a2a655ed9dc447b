//! Who manages which field of an object: `metadata.managedFields` through the hub's writes.
//!
//! The engine is `roadstead-managed-fields`; here is what it needs to know of the hub's kinds, and what of its record is
//! kept where a write changes nothing.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use roadstead_api::schema::schema;
use roadstead_api::{KINDS, Kind, KindId, Version, from_storage, to_storage};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_managed_fields::{Error, Options, Schema, Versions, apply, update};
use serde::Serialize;
use serde_json::{Value, json};

use crate::HubError;
use crate::objects::forms::{Part, SYSTEM_METADATA, show, whole};

/// Under which name the hub itself writes.
pub(crate) const HUB: &str = "roadstead-hub";

/// Who writes what, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) version: &'static Version,
    pub(crate) part: Part,
    pub(crate) now: Timestamp,
}

impl<'a> Writer<'a> {
    fn options(&self, kind: &Kind, api_version: &'a str, force: bool) -> Options<'a> {
        let (subresource, excluded): (_, &[&str]) = match self.part {
            Part::Status => ("status", &["metadata", "spec"]),
            Part::Main if kind.status => ("", &["status"]),
            Part::Main => ("", &[]),
        };
        Options { manager: self.manager, api_version, subresource, excluded, force, time: self.now }
    }
}

/// The versions of a kind, between which an object goes by way of what is stored of it.
struct KindVersions<'a> {
    kind: &'static Kind,
    stored: Option<&'a Value>,
}

impl KindVersions<'_> {
    fn version(&self, api_version: &str) -> Option<&'static Version> {
        self.kind.versions.iter().find(|version| version.api_version() == api_version)
    }
}

impl Versions for KindVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        static SCHEMAS: OnceLock<BTreeMap<(KindId, String), Schema>> = OnceLock::new();
        let schemas = SCHEMAS.get_or_init(|| {
            let versions = KINDS.iter().flat_map(|kind| kind.versions.iter().map(|version| (*kind, version)));
            let compiled = |(kind, version): (&Kind, &Version)| {
                ((kind.id, version.api_version()), Schema::new(schema(kind, version)))
            };
            versions.map(compiled).collect()
        });
        schemas.get(&(self.kind.id, api_version.to_owned()))
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        let (from, to) = (self.version(from)?, self.version(to)?);
        let storage = to_storage(self.kind.id, from, object.clone(), self.stored);
        Some(from_storage(self.kind.id, to, storage))
    }
}

/// Notes what a write that is not an apply made of an object; `requested` is what the client would have for its managers.
pub(crate) fn note(
    before: Option<&Stored>,
    after: &mut Stored,
    requested: Option<Value>,
    writer: Writer<'_>,
) {
    let kind = after.kind.get();
    let api_version = writer.version.api_version();
    let old = before.map_or_else(|| json!({}), |before| show(before, writer.version));
    let mut new = show(after, writer.version);
    put_entries(&mut new, requested);
    let stored = before.map(whole);
    let versions = KindVersions { kind, stored: stored.as_ref() };
    let entries = match update(&old, &mut new, &writer.options(kind, &api_version, false), &versions) {
        Ok(()) => take_entries(&mut new),
        Err(error) => {
            // No write fails by this. The record is as it was, which an apply by one of them will set right.
            tracing::warn!(object = %after, error = &error as &dyn std::error::Error, "cannot determine the managers of an object");
            before.and_then(|before| entries(&before.object)).cloned()
        }
    };
    put_entries(&mut after.object, entries);
    if let Some(before) = before {
        settle(before, after);
    }
}

/// Notes what the hub itself did to an object beyond its status.
pub(crate) fn note_hub(before: Option<&Stored>, after: &mut Stored, now: Timestamp) {
    let version = after.kind.get().storage_version();
    note(before, after, None, Writer { manager: HUB, version, part: Part::Main, now });
}

/// Sets the status, as the hub does at every reconciliation: of the object, only the status is looked at.
pub(crate) fn set_status<T: Serialize>(
    stored: &mut Stored,
    status: &T,
    now: Timestamp,
) -> Result<(), StoreError> {
    let part = |object: &Value| {
        let mut out = json!({ "metadata": { "uid": object["metadata"]["uid"] } });
        if let Some(status) = object.get("status") {
            out["status"] = status.clone();
        }
        out
    };
    let mut old = part(&stored.object);
    put_entries(&mut old, entries(&stored.object).cloned());
    stored.set_status(status)?;
    let kind = stored.kind.get();
    let version = kind.storage_version();
    let api_version = version.api_version();
    let writer = Writer { manager: HUB, version, part: Part::Status, now };
    let mut new = part(&stored.object);
    let versions = KindVersions { kind, stored: None };
    match update(&old, &mut new, &writer.options(kind, &api_version, false), &versions) {
        Ok(()) => put_entries(&mut stored.object, take_entries(&mut new)),
        Err(error) => {
            tracing::warn!(object = %stored, error = &error as &dyn std::error::Error, "cannot determine the managers of a status");
        }
    }
    Ok(())
}

/// A configuration applied to an object (none where it is to be made), both in the writer's version. Gives the object,
/// and its managers apart from it.
pub(crate) fn merge(
    before: Option<&Stored>,
    kind: &'static Kind,
    config: &Value,
    force: bool,
    writer: Writer<'_>,
) -> Result<(Value, Option<Value>), HubError> {
    let live = before.map_or_else(|| json!({}), |before| show(before, writer.version));
    let stored = before.map(whole);
    let versions = KindVersions { kind, stored: stored.as_ref() };
    let api_version = writer.version.api_version();
    let mut object =
        apply(&live, config, &writer.options(kind, &api_version, force), &versions).map_err(refused)?;
    let entries = take_entries(&mut object);
    Ok((object, entries))
}

fn refused(error: Error) -> HubError {
    match error {
        Error::Conflicts(conflicts) => HubError::ApplyConflict {
            message: conflicts.to_string(),
            causes: conflicts
                .0
                .iter()
                .map(|conflict| (conflict.path.to_string(), conflict.message()))
                .collect(),
        },
        Error::BadRequest(_) | Error::ManagedFields(_) => HubError::BadRequest(error.to_string()),
        Error::Schema { .. } => HubError::BadRequest(format!("failed to create typed patch object: {error}")),
        Error::Conversion { .. } => HubError::Internal(error.to_string()),
    }
}

/// `metadata.managedFields`.
pub(crate) fn entries(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_entries(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Sets `metadata.managedFields`, or takes it away.
pub(crate) fn put_entries(object: &mut Value, entries: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        match entries {
            Some(entries) => metadata.insert("managedFields".to_owned(), entries),
            None => metadata.remove("managedFields"),
        };
    }
}

/// Where a write changed nothing but times of managers, they stay as they were: no new version is made of it.
pub(crate) fn settle(before: &Stored, after: &mut Stored) {
    let timeless = |object: &Value| {
        let mut entries = entries(object).cloned().unwrap_or_default();
        for entry in entries.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries
    };
    if timeless(&before.object) == timeless(&after.object) && same_but_managers(before, after) {
        put_entries(&mut after.object, entries(&before.object).cloned());
    }
}

/// Whether a write changes nothing.
pub(crate) fn unchanged(before: &Stored, after: &Stored) -> bool {
    entries(&before.object) == entries(&after.object) && same_but_managers(before, after)
}

fn same_but_managers(before: &Stored, after: &Stored) -> bool {
    /// What a user can set, apart from names.
    fn own(object: &Value) -> (BTreeMap<&String, &Value>, BTreeMap<&String, &Value>) {
        let metadata = object.get("metadata").and_then(Value::as_object);
        let rest = object.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata").collect();
        let metadata = metadata
            .into_iter()
            .flatten()
            .filter(|(key, _)| {
                !SYSTEM_METADATA.contains(&key.as_str()) && !matches!(key.as_str(), "namespace" | "name")
            })
            .collect();
        (rest, metadata)
    }
    before.generation == after.generation
        && before.deletion_timestamp == after.deletion_timestamp
        && before.secret == after.secret
        && own(&before.object) == own(&after.object)
}

#[cfg(test)]
mod tests;
