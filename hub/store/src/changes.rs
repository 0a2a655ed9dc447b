//! What a unit of work changed, and the log of it that watches read.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_model::{ResourceUid, Topic};
use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use crate::feed::EventType;
use crate::stored::Stored;
use crate::time::to_sql;
use crate::{Sealer, StoreError, Tx};

/// Added to the statement that gives objects their versions where some of them still wait to be written.
const OBJECT_AS_WELL: &str = ", object = CASE WHEN change.waits THEN change.object ELSE resource.object END";

/// How an object changed within a [`Tx`].
pub(crate) struct Change {
    pub(crate) before: Option<Stored>,
    pub(crate) after: Option<Stored>,
}

/// What a [`Tx`] has locked and changed, by uid, in the order of the first change.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) loaded: BTreeMap<ResourceUid, Stored>,
    pub(crate) order: Vec<ResourceUid>,
    pub(crate) changed: BTreeMap<ResourceUid, Change>,
    /// Those that are not written yet.
    pub(crate) waiting: BTreeSet<ResourceUid>,
}

/// The versions that a commit gave to what it changed.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    versions: BTreeMap<ResourceUid, i64>,
}

impl Committed {
    /// The new version of an object; none where it did not change.
    #[must_use]
    pub fn version(&self, uid: ResourceUid) -> Option<i64> {
        self.versions.get(&uid).copied()
    }

    /// The newest of them; 0 where nothing changed.
    pub(crate) fn newest(&self) -> i64 {
        self.versions.values().copied().max().unwrap_or_default()
    }

    /// Writes the new version into an object that was put.
    pub fn stamp(&self, stored: &mut Stored) {
        if let Some(version) = self.version(stored.uid) {
            stored.resource_version = version;
        }
        stored.write_metadata();
    }
}

impl Tx {
    /// Gathers what the change log gets, and takes out of past versions what was secret and is no longer current.
    pub(crate) async fn gather_events(&mut self) -> Result<Events, StoreError> {
        let mut rows = Events::default();
        let changes = std::mem::take(&mut self.changes);
        for uid in &changes.order {
            let Some(change) = changes.changed.get(uid) else { continue };
            let (kind_of_event, stored) = match (&change.before, &change.after) {
                (None, None) => continue,
                (None, Some(after)) => (EventType::Added, after),
                (Some(_), Some(after)) => (EventType::Modified, after),
                (Some(before), None) => (EventType::Deleted, before),
            };
            rows.push(kind_of_event, stored, change, &self.sealer)?;
            rows.waits.push(changes.waiting.contains(uid));
        }
        self.shred(std::mem::take(&mut rows.shredded)).await?;
        Ok(rows)
    }

    /// Writes the change log. The last statement before the commit: it takes the counter's row.
    pub(crate) async fn write_events(&mut self, events: Events) -> Result<Committed, StoreError> {
        if events.is_empty() {
            return Ok(Committed::default());
        }
        let versions = events.write(&mut self.inner).await?;
        self.wake(Topic::Resources);
        Ok(Committed { versions })
    }
}

impl Tx {
    /// Takes what is secret out of the past versions of these Secrets, whose data changed or is gone: who took a kubeconfig out
    /// of a Secret, or rotated a password, does not want it to be read in the log for another hour.
    async fn shred(&mut self, uids: Vec<Uuid>) -> Result<(), StoreError> {
        if uids.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "UPDATE resource_event SET sealed = NULL, shredded = true WHERE uid = ANY($1) AND sealed IS NOT NULL",
        )
        .bind(uids)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("shred past versions of a secret"))?;
        Ok(())
    }
}

/// Rows of the change log, by column.
#[derive(Default)]
pub(crate) struct Events {
    kind_of_event: Vec<&'static str>,
    uid: Vec<Uuid>,
    api_group: Vec<&'static str>,
    kind: Vec<&'static str>,
    namespace: Vec<String>,
    name: Vec<String>,
    generation: Vec<i64>,
    created_at: Vec<time::OffsetDateTime>,
    deletion_timestamp: Vec<Option<time::OffsetDateTime>>,
    object: Vec<Value>,
    sealed: Vec<Option<Vec<u8>>>,
    labels_before: Vec<Option<Value>>,
    before_version: Vec<Option<i64>>,
    /// Whether each is still to be written.
    waits: Vec<bool>,
    /// Those whose past versions lose what is secret of them.
    shredded: Vec<Uuid>,
}

impl Events {
    pub(crate) fn is_empty(&self) -> bool {
        self.uid.is_empty()
    }

    fn push(
        &mut self,
        kind_of_event: EventType,
        stored: &Stored,
        change: &Change,
        sealer: &Sealer,
    ) -> Result<(), StoreError> {
        let before = change.before.as_ref();
        let secret = |stored: &Option<Stored>| stored.as_ref().and_then(|stored| stored.secret.clone());
        if before.is_some_and(|before| before.secret.is_some())
            && secret(&change.before) != secret(&change.after)
        {
            self.shredded.push(stored.uid.0);
        }
        self.kind_of_event.push(kind_of_event.as_str());
        self.uid.push(stored.uid.0);
        self.api_group.push(stored.kind.get().group());
        self.kind.push(stored.kind.get().kind);
        self.namespace.push(stored.namespace.clone());
        self.name.push(stored.name.clone());
        self.generation.push(stored.generation);
        self.created_at.push(to_sql(stored.created_at));
        self.deletion_timestamp.push(stored.deletion_timestamp.map(to_sql));
        self.object.push(stored.column());
        // The last word on a Secret that is gone is that it is.
        let gone = kind_of_event == EventType::Deleted;
        self.sealed.push(if gone { None } else { stored.sealed(sealer)? });
        self.labels_before.push(before.map(|before| json!(before.labels())));
        self.before_version.push(before.map(|before| before.resource_version));
        Ok(())
    }

    async fn write(
        self,
        connection: &mut sqlx::PgConnection,
    ) -> Result<BTreeMap<ResourceUid, i64>, StoreError> {
        let count = i64::try_from(self.uid.len()).unwrap_or(i64::MAX);
        let object = if self.waits.contains(&true) { OBJECT_AS_WELL } else { "" };
        let sql = format!(
            // With the LIMIT, a plan for any number of changes expects as few as most commits have, so that it is kept. The size is the
            // database's: a number may be far longer in its text than in ours.
            "WITH counter AS (UPDATE hub_state SET last_version = last_version + $1 \
                 RETURNING last_version - $1 AS base), \
             change AS (SELECT * FROM UNNEST($2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], \
                 $8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::jsonb[], $12::bytea[], $13::jsonb[], \
                 $14::bigint[], $15::boolean[]) WITH ORDINALITY AS c(type, uid, api_group, kind, namespace, name, generation, \
                 created_at, deletion_timestamp, object, sealed, labels_before, before_version, waits, ord) LIMIT $1), \
             stamped AS (UPDATE resource SET resource_version = counter.base + change.ord{object} FROM change, counter \
                 WHERE resource.uid = change.uid) \
             INSERT INTO resource_event (resource_version, type, uid, api_group, kind, namespace, name, generation, \
                 created_at, deletion_timestamp, object, sealed, labels_before, before_version, size) \
             SELECT counter.base + change.ord, type, uid, api_group, kind, namespace, name, generation, created_at, \
                 deletion_timestamp, object, sealed, labels_before, before_version, octet_length(object::text) \
                 FROM change, counter \
             RETURNING uid, resource_version"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(count)
            .bind(self.kind_of_event)
            .bind(self.uid)
            .bind(self.api_group)
            .bind(self.kind)
            .bind(self.namespace)
            .bind(self.name)
            .bind(self.generation)
            .bind(self.created_at)
            .bind(self.deletion_timestamp)
            .bind(self.object)
            .bind(self.sealed)
            .bind(self.labels_before)
            .bind(self.before_version)
            .bind(self.waits)
            .fetch_all(connection)
            .await
            .map_err(StoreError::query("write the change log"))?;
        rows.iter()
            .map(|row| Ok((ResourceUid(row.try_get("uid")?), row.try_get("resource_version")?)))
            .collect::<Result<_, sqlx::Error>>()
            .map_err(StoreError::query("read the new versions"))
    }
}
