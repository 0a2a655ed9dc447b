//! Resources: every Kubernetes-style object.
//!
//! A [`Tx`] locks what it reads, and takes the resource-version counter with its last statement, so that versions become
//! visible in their own order and no watcher can step over one.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use serde_json::{Map, Value, json};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};
use tokio_stream::StreamExt as _;
use uuid::Uuid;

use crate::changes::Change;
use crate::secret::SecretData;
use crate::time::to_sql;
use crate::{Sealer, Store, StoreError, Tx};

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

impl Stored {
    /// A new object, to be [`Tx::put`].
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

    /// The labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        texts(&self.object["metadata"]["labels"])
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

    /// Writes the fields into `object.metadata`.
    pub(crate) fn write_metadata(&mut self) {
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

    fn from_row(row: &PgRow, sealer: &Sealer) -> Result<Self, StoreError> {
        let mut stored = Self::bare(row).map_err(StoreError::query("read a resource"))??;
        let sealed: Option<Vec<u8>> = row.try_get("sealed").map_err(StoreError::query("read a resource"))?;
        stored.open(sealer, sealed.as_deref())?;
        Ok(stored)
    }

    pub(crate) fn bare(row: &PgRow) -> Result<Result<Self, StoreError>, sqlx::Error> {
        let from_sql = |at| crate::time::from_sql("read a resource", at);
        let (group, kind): (String, String) = (row.try_get("api_group")?, row.try_get("kind")?);
        let Some(kind) = KindId::parse(&group, &kind) else {
            let why = format!("{kind} of group `{group}` is no kind that this version knows");
            return Ok(Err(StoreError::Corrupt { what: "read a resource", why }));
        };
        let created_at: ::time::OffsetDateTime = row.try_get("created_at")?;
        let deletion_timestamp: Option<::time::OffsetDateTime> = row.try_get("deletion_timestamp")?;
        let (created_at, deletion_timestamp) =
            match (from_sql(created_at), deletion_timestamp.map(from_sql).transpose()) {
                (Ok(created_at), Ok(deletion_timestamp)) => (created_at, deletion_timestamp),
                (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
            };
        let mut stored = Self {
            uid: ResourceUid(row.try_get("uid")?),
            kind,
            namespace: row.try_get("namespace")?,
            name: row.try_get("name")?,
            generation: row.try_get("generation")?,
            resource_version: row.try_get("resource_version")?,
            created_at,
            deletion_timestamp,
            object: row.try_get("object")?,
            secret: None,
        };
        stored.write_metadata();
        Ok(Ok(stored))
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

fn time(at: Timestamp) -> String {
    roadstead_api::Time(at).to_string()
}

/// Which objects a list is of.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this namespace; empty for all.
    pub namespace: String,
    /// Of this name; empty for all.
    pub name: String,
    /// With all of these labels; checked by the database's containment operator.
    pub labels: BTreeMap<String, String>,
}

/// Where the change log stood when objects were listed.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// All changes up to here are in the list: a watch from here on continues it.
    pub version: i64,
    /// Changes up to here are forgotten.
    pub compacted: i64,
}

/// The condition for objects of a kind: of a namespace, unless it is empty, and behind a (namespace, name).
///
/// Only what is asked for stands in the statement: one plan for all of it, which Postgres makes after a few requests, would
/// read all objects of a kind for a page of one namespace. The order is that of bytes, whatever the database's locale says.
fn push_kind(query: &mut QueryBuilder<Postgres>, kind: KindId, namespace: &str, after: Option<(&str, &str)>) {
    query.push(" WHERE api_group = ").push_bind(kind.get().group());
    query.push(" AND kind = ").push_bind(kind.get().kind);
    if !namespace.is_empty() {
        query.push(" AND namespace COLLATE \"C\" = ").push_bind(namespace);
    }
    if let Some((namespace, name)) = after {
        query.push(" AND (namespace COLLATE \"C\", name COLLATE \"C\") > (").push_bind(namespace);
        query.push(", ").push_bind(name).push(")");
    }
}

const COLUMNS: &str = "uid, api_group, kind, namespace, name, generation, resource_version, created_at, \
                       deletion_timestamp, object, sealed";

impl Store {
    /// The object of that name.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get(&self, kind: KindId, namespace: &str, name: &str) -> Result<Option<Stored>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = $3 AND name = $4"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(kind.get().group())
            .bind(kind.get().kind)
            .bind(namespace)
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a resource"))?;
        row.map(|row| Stored::from_row(&row, &self.sealer)).transpose()
    }

    /// The object of that uid.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get_by_uid(&self, uid: ResourceUid) -> Result<Option<Stored>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM resource WHERE uid = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(uid.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a resource"))?;
        row.map(|row| Stored::from_row(&row, &self.sealer)).transpose()
    }

    /// Up to `limit` objects after the (namespace, name) of `after`, all from one moment; `each` is given one after the
    /// other as they are read, so that not all of them have to be in memory.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn list_each(
        &self,
        kind: KindId,
        filter: &Filter,
        after: Option<(&str, &str)>,
        limit: i64,
        mut each: impl FnMut(Stored) + Send,
    ) -> Result<Listed, StoreError> {
        let what = "list resources";
        // The counter and the rows come out of one statement, so out of one snapshot.
        let mut query = QueryBuilder::new(format!(
            "SELECT h.last_version, h.compacted, r.* FROM hub_state h LEFT JOIN LATERAL (SELECT {COLUMNS} FROM resource"
        ));
        push_kind(&mut query, kind, &filter.namespace, after);
        if !filter.name.is_empty() {
            query.push(" AND name COLLATE \"C\" = ").push_bind(&filter.name);
        }
        if !filter.labels.is_empty() {
            query.push(" AND object #> '{metadata,labels}' @> ").push_bind(json!(filter.labels));
        }
        query.push(" ORDER BY namespace COLLATE \"C\", name COLLATE \"C\" LIMIT ").push_bind(limit);
        query.push(") r ON true ORDER BY r.namespace COLLATE \"C\", r.name COLLATE \"C\"");
        let mut rows = query.build().fetch(&self.pool);
        let mut listed = Listed { version: 0, compacted: 0 };
        while let Some(row) = rows.next().await {
            let row = row.map_err(StoreError::query(what))?;
            listed.version = row.try_get("last_version").map_err(StoreError::query(what))?;
            listed.compacted = row.try_get("compacted").map_err(StoreError::query(what))?;
            let uid: Option<Uuid> = row.try_get("uid").map_err(StoreError::query(what))?;
            if uid.is_some() {
                each(Stored::from_row(&row, &self.sealer)?);
            }
        }
        Ok(listed)
    }

    /// Up to `limit` Events that last happened before then.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn old_events(&self, before: Timestamp, limit: i64) -> Result<Vec<ResourceUid>, StoreError> {
        // The times of an event are whatever its writer says, so texts; in the one form they are in their own order.
        let rows = sqlx::query(
            "SELECT uid FROM resource WHERE kind = 'Event' AND created_at < $1 AND \
             coalesce(object #>> '{series,lastObservedTime}', object ->> 'lastTimestamp', '') < $2 \
             ORDER BY created_at LIMIT $3",
        )
        .bind(to_sql(before))
        .bind(time(before))
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for old events"))?;
        let uids = rows.into_iter().map(|row| Ok(ResourceUid(row.try_get("uid")?)));
        uids.collect::<Result<_, sqlx::Error>>().map_err(StoreError::query("look for old events"))
    }

    /// How many objects there are after the (namespace, name) of `after`; `namespace` is empty for all.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn count_after(
        &self,
        kind: KindId,
        namespace: &str,
        after: (&str, &str),
    ) -> Result<i64, StoreError> {
        let mut query = QueryBuilder::new("SELECT count(*) FROM resource");
        push_kind(&mut query, kind, namespace, Some(after));
        let counted = query.build_query_scalar().fetch_one(&self.pool).await;
        counted.map_err(StoreError::query("count resources"))
    }
}

impl Tx {
    /// The object of that name, locked until the end of this unit of work.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Stored>, StoreError> {
        let row = self.select(kind, namespace, name, "FOR UPDATE").await?;
        self.loaded(row.as_ref())
    }

    /// The object of that name, protected from changes (not from reads) until the end of this unit of work: for a
    /// namespace, in which others create objects at the same time.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get_shared(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Stored>, StoreError> {
        let row = self.select(kind, namespace, name, "FOR SHARE").await?;
        row.map(|row| Stored::from_row(&row, &self.sealer)).transpose()
    }

    async fn select(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        lock: &'static str,
    ) -> Result<Option<PgRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = $3 AND name = $4 {lock}"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(kind.get().group())
            .bind(kind.get().kind)
            .bind(namespace)
            .bind(name)
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(StoreError::query("read a resource"))
    }

    /// The object of that uid, locked until the end of this unit of work.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get_by_uid(&mut self, uid: ResourceUid) -> Result<Option<Stored>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM resource WHERE uid = $1 FOR UPDATE");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(uid.0)
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(StoreError::query("read a resource"))?;
        self.loaded(row.as_ref())
    }

    /// All objects of a kind, not locked, as this unit of work sees them (its own changes too); `namespace` is empty
    /// for all.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn list(&mut self, kind: KindId, namespace: &str) -> Result<Vec<Stored>, StoreError> {
        let mut query = QueryBuilder::new(format!("SELECT {COLUMNS} FROM resource"));
        push_kind(&mut query, kind, namespace, None);
        query.push(" ORDER BY namespace COLLATE \"C\", name COLLATE \"C\"");
        let found = query.build().fetch_all(&mut *self.inner).await;
        let rows = found.map_err(StoreError::query("list resources"))?;
        rows.iter().map(|row| Stored::from_row(row, &self.sealer)).collect()
    }

    fn loaded(&mut self, row: Option<&PgRow>) -> Result<Option<Stored>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let stored = Stored::from_row(row, &self.sealer)?;
        // Keep the first look: it is what the change log compares with.
        if !self.changes.changed.contains_key(&stored.uid) {
            self.changes.loaded.insert(stored.uid, stored.clone());
        }
        Ok(Some(stored))
    }

    /// Writes an object: inserts it where its uid is new. Writing what is there already changes nothing and makes no
    /// event.
    ///
    /// # Errors
    /// [`StoreError::is_unique_violation`] where another object has that name. Where the database fails. After any
    /// error this unit of work can only be dropped.
    pub async fn put(&mut self, mut stored: Stored) -> Result<(), StoreError> {
        let uid = stored.uid;
        stored.write_metadata();
        if stored.resource_version == 0 && !self.changes.changed.contains_key(&uid) {
            self.insert(&stored).await?;
            self.changes.order.push(uid);
            self.changes.changed.insert(uid, Change { before: None, after: Some(stored) });
            return Ok(());
        }
        if !self.changes.loaded.contains_key(&uid) && !self.changes.changed.contains_key(&uid) {
            // The caller read it before this unit of work, or without a lock.
            self.get_by_uid(uid).await?;
        }
        let present = match self.changes.changed.get(&uid) {
            Some(change) => change.after.as_ref(),
            None => self.changes.loaded.get(&uid),
        };
        let Some(present) = present else {
            return Err(StoreError::Corrupt {
                what: "write a resource",
                why: format!("{stored} was removed"),
            });
        };
        if same(present, &stored) {
            return Ok(());
        }
        self.update(&stored).await?;
        match self.changes.changed.get_mut(&uid) {
            Some(change) => change.after = Some(stored),
            None => {
                let before = self.changes.loaded.remove(&uid);
                self.changes.order.push(uid);
                self.changes.changed.insert(uid, Change { before, after: Some(stored) });
            }
        }
        Ok(())
    }

    async fn insert(&mut self, stored: &Stored) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO resource (uid, api_group, kind, namespace, name, generation, resource_version, created_at, \
             deletion_timestamp, object, sealed) VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, $9, $10)",
        )
        .bind(stored.uid.0)
        .bind(stored.kind.get().group())
        .bind(stored.kind.get().kind)
        .bind(&stored.namespace)
        .bind(&stored.name)
        .bind(stored.generation)
        .bind(to_sql(stored.created_at))
        .bind(stored.deletion_timestamp.map(to_sql))
        .bind(stored.column())
        .bind(stored.sealed(&self.sealer)?)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("insert a resource"))?;
        Ok(())
    }

    async fn update(&mut self, stored: &Stored) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE resource SET generation = $2, deletion_timestamp = $3, object = $4, sealed = $5 WHERE uid = $1",
        )
        .bind(stored.uid.0)
        .bind(stored.generation)
        .bind(stored.deletion_timestamp.map(to_sql))
        .bind(stored.column())
        .bind(stored.sealed(&self.sealer)?)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("update a resource"))?;
        Ok(())
    }

    /// Removes an object's row, whatever its finalizers say; nothing where it is gone already.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn remove(&mut self, uid: ResourceUid) -> Result<(), StoreError> {
        if !self.changes.loaded.contains_key(&uid)
            && !self.changes.changed.contains_key(&uid)
            && self.get_by_uid(uid).await?.is_none()
        {
            return Ok(());
        }
        sqlx::query("DELETE FROM resource WHERE uid = $1")
            .bind(uid.0)
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("remove a resource"))?;
        match self.changes.changed.get_mut(&uid) {
            Some(change) => change.after = None,
            None => {
                let before = self.changes.loaded.remove(&uid);
                self.changes.order.push(uid);
                self.changes.changed.insert(uid, Change { before, after: None });
            }
        }
        Ok(())
    }
}

fn same(present: &Stored, new: &Stored) -> bool {
    present.generation == new.generation
        && present.deletion_timestamp == new.deletion_timestamp
        && present.secret == new.secret
        && present.column() == new.column()
}
