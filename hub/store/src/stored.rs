//! An object as it is stored: the whole as JSON, and what the database itself has to know of it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use roadstead_api::{KindId, Reference};
use roadstead_model::{ApplierRef, ResourceUid};
use serde_json::{Map, Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::secret::SecretData;
use crate::time::from_sql;
use crate::{Sealer, StoreError, newer};

/// A stored object.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// `metadata.uid`.
    pub uid: ResourceUid,
    /// The kind.
    pub kind: KindId,
    /// `metadata.namespace`; empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.resourceVersion`; 0 for an object that has not been committed yet.
    pub resource_version: i64,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `metadata.deletionTimestamp`.
    pub deletion_timestamp: Option<Timestamp>,
    /// The whole object in its storage version, without what `secret` holds. Of its metadata, the fields above count
    /// and are written into it when it is stored and read.
    pub object: Value,
    /// What is secret of a Secret.
    pub secret: Option<SecretData>,
}

/// On a past version of a Secret whose data is not kept any more, since it was changed or removed later.
const SHREDDED: &str = "fleet.roadstead.dev/shredded";

impl Stored {
    /// A new object, to be [`crate::Tx::put`].
    #[must_use]
    pub fn new(kind: KindId, namespace: &str, name: &str, now: Timestamp, object: Value) -> Self {
        Self {
            uid: ResourceUid::random(),
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            generation: 1,
            resource_version: 0,
            created_at: now,
            deletion_timestamp: None,
            object,
            secret: None,
        }
    }

    /// The object as a typed value.
    ///
    /// # Errors
    /// Where it was stored by something that this version does not know.
    pub fn decode<T: roadstead_api::Typed>(&self) -> Result<T, StoreError> {
        T::from_object(&self.object).map_err(|error| StoreError::Corrupt {
            what: "read a stored object",
            why: format!("{self}: {error}"),
        })
    }

    /// How it is named as an applier, which it is to be.
    #[must_use]
    pub fn applier_ref(&self) -> ApplierRef {
        ApplierRef {
            kind: self.kind.get().kind.to_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        texts(&self.object["metadata"]["labels"])
    }

    /// The keys of what it refers to; none where that is nothing.
    pub(crate) fn refers_to(&self) -> Option<Vec<String>> {
        let references = self.kind.references(&self.object, &self.namespace);
        (!references.is_empty()).then(|| references.iter().map(Reference::key).collect())
    }

    /// The finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// Takes a finalizer off.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        let Some(metadata) = self.object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
            finalizers.retain(|present| present.as_str() != Some(finalizer));
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    }

    /// Puts a finalizer on, where it is not.
    pub fn add_finalizer(&mut self, finalizer: &str) {
        if self.finalizers().any(|present| present == finalizer) {
            return;
        }
        if let Some(list) =
            metadata_mut(&mut self.object).entry("finalizers").or_insert_with(|| json!([])).as_array_mut()
        {
            list.push(finalizer.into());
        }
    }

    /// Sets the status, as its typed value.
    ///
    /// # Errors
    /// Where the value has no JSON form.
    pub fn set_status<T: serde::Serialize>(&mut self, status: &T) -> Result<(), StoreError> {
        let status = serde_json::to_value(status).map_err(|error| StoreError::Corrupt {
            what: "write a status",
            why: format!("{self}: {error}"),
        })?;
        if let Some(object) = self.object.as_object_mut() {
            object.insert("status".to_owned(), status);
        }
        Ok(())
    }

    /// Writes the fields into `object.metadata`; no version, where it was not stored yet.
    pub fn write_metadata(&mut self) {
        let uid = self.uid.to_string();
        let times = (time(self.created_at), self.deletion_timestamp.map(time));
        let (version, generation) = (self.resource_version, self.generation);
        let counted = self.kind.get().status;
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        let metadata = metadata_mut(&mut self.object);
        metadata.insert("name".to_owned(), name.into());
        if namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), times.0.into());
        match times.1 {
            Some(at) => metadata.insert("deletionTimestamp".to_owned(), at.into()),
            None => metadata.remove("deletionTimestamp"),
        };
        if counted {
            metadata.insert("generation".to_owned(), generation.into());
        } else {
            metadata.remove("generation");
        }
        if version > 0 {
            metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        } else {
            metadata.remove("resourceVersion");
        }
    }

    /// As it lies in a jsonb column: the version has a column of its own, which is set later.
    pub(crate) fn column(&self) -> Value {
        let mut unversioned = self.clone();
        unversioned.resource_version = 0;
        unversioned.write_metadata();
        unversioned.object
    }

    /// Says in the object that it had data which is not kept.
    pub(crate) fn mark_shredded(&mut self) {
        let metadata = metadata_mut(&mut self.object);
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(SHREDDED.to_owned(), "true".into());
        }
    }

    /// Whether writing `new` in place of this would change nothing.
    pub(crate) fn is_same(&self, new: &Self) -> bool {
        self.generation == new.generation
            && self.deletion_timestamp == new.deletion_timestamp
            && self.secret == new.secret
            && self.column() == new.column()
    }

    pub(crate) fn sealed(&self, sealer: &Sealer) -> Result<Option<Vec<u8>>, StoreError> {
        self.secret
            .as_ref()
            .map(|secret| sealer.seal("seal a secret", self.uid.0.as_bytes(), &secret.to_json()))
            .transpose()
    }

    pub(crate) fn open(&mut self, sealer: &Sealer, sealed: Option<&[u8]>) -> Result<(), StoreError> {
        let Some(sealed) = sealed else { return Ok(()) };
        let plain = sealer.open("open a secret", self.uid.0.as_bytes(), sealed)?;
        let secret = SecretData::from_json(&plain)
            .map_err(|_| StoreError::Corrupt { what: "read a secret", why: self.to_string() })?;
        self.secret = Some(secret);
        Ok(())
    }

    /// What a row holds; none where that is of a kind that only a newer version knows.
    pub(crate) fn from_row(row: &PgRow, sealer: &Sealer) -> Result<Option<Self>, StoreError> {
        let what = "read a resource";
        let Some(kind) = Self::kind_of(row, what)? else { return Ok(None) };
        let mut stored = Self::bare(kind, row, what)?;
        let sealed: Option<Vec<u8>> = row.try_get("sealed").map_err(StoreError::query(what))?;
        stored.open(sealer, sealed.as_deref())?;
        Ok(Some(stored))
    }

    /// Of which kind a row is; none where only a newer version knows that.
    pub(crate) fn kind_of(row: &PgRow, what: &'static str) -> Result<Option<KindId>, StoreError> {
        let group: &str = row.try_get("api_group").map_err(StoreError::query(what))?;
        let kind: &str = row.try_get("kind").map_err(StoreError::query(what))?;
        let known = KindId::parse(group, kind);
        if known.is_none() {
            newer::tell(&format!("{kind}.{group}"));
        }
        Ok(known)
    }

    /// What a row of this kind holds, without what is secret.
    pub(crate) fn bare(kind: KindId, row: &PgRow, what: &'static str) -> Result<Self, StoreError> {
        let read = || -> Result<_, sqlx::Error> {
            let created_at: ::time::OffsetDateTime = row.try_get("created_at")?;
            let deletion_timestamp: Option<::time::OffsetDateTime> = row.try_get("deletion_timestamp")?;
            let stored = Self {
                uid: ResourceUid(row.try_get("uid")?),
                kind,
                namespace: row.try_get("namespace")?,
                name: row.try_get("name")?,
                generation: row.try_get("generation")?,
                resource_version: row.try_get("resource_version")?,
                created_at: Timestamp::UNIX_EPOCH,
                deletion_timestamp: None,
                object: row.try_get("object")?,
                secret: None,
            };
            Ok((stored, created_at, deletion_timestamp))
        };
        let (mut stored, created_at, deletion_timestamp) = read().map_err(StoreError::query(what))?;
        stored.created_at = from_sql(what, created_at)?;
        stored.deletion_timestamp = deletion_timestamp.map(|at| from_sql(what, at)).transpose()?;
        stored.write_metadata();
        Ok(stored)
    }
}

/// As messages name it: `Kustomization default/web`.
impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

pub(crate) fn texts(map: &Value) -> BTreeMap<String, String> {
    map.as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        // Just made one. The type system cannot know.
        _ => unreachable!("metadata is an object"),
    }
}

/// A time as objects have it.
pub(crate) fn time(at: Timestamp) -> String {
    roadstead_api::Time(at).to_string()
}
