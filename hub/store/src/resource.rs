//! The table of resources: every Kubernetes-style object.
//!
//! A [`Tx`] locks what it reads, and takes the resource-version counter with its last statement, so that versions become
//! visible in their own order and no watcher can step over one.

use std::collections::BTreeMap;
use std::hash::Hash;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use serde_json::json;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};
use tokio_stream::{Stream, StreamExt as _};
use uuid::Uuid;

use crate::changes::Change;
use crate::counted::Work;
use crate::stored::{Stored, time};
use crate::time::to_sql;
use crate::together::{Answers, Named};
use crate::{Store, StoreError, Tx, newer};

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

/// Which part of a list is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part<'a> {
    /// At which version; now where none. What existed at a version is known as long as [`Listed`] says so.
    pub at: Option<i64>,
    /// Behind this (namespace, name).
    pub after: Option<(&'a str, &'a str)>,
}

/// Where the change log stood when objects were listed.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// The last version that was given out: of this one are the objects, where none was asked for.
    pub version: i64,
    /// Changes up to here are forgotten.
    pub compacted: i64,
}

impl Listed {
    /// Whether what existed at a version is known, and all that changed since.
    #[must_use]
    pub fn knows(&self, version: i64) -> bool {
        (self.compacted..=self.version).contains(&version)
    }
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

/// The rows of a part of a list, in its order.
///
/// Those of a past moment are the objects that have not changed since, and of each that has, what its first change since
/// then found.
fn push_part(query: &mut QueryBuilder<Postgres>, kind: KindId, filter: &Filter, part: Part<'_>, limit: i64) {
    let push_filter = |query: &mut QueryBuilder<Postgres>| {
        push_kind(query, kind, &filter.namespace, part.after);
        if !filter.name.is_empty() {
            query.push(" AND name COLLATE \"C\" = ").push_bind(filter.name.clone());
        }
    };
    let push_labels = |query: &mut QueryBuilder<Postgres>| {
        if !filter.labels.is_empty() {
            query.push(" AND object #> '{metadata,labels}' @> ").push_bind(json!(filter.labels));
        }
    };
    let push_order = |query: &mut QueryBuilder<Postgres>| {
        query.push(" ORDER BY namespace COLLATE \"C\", name COLLATE \"C\" LIMIT ").push_bind(limit);
    };
    let Some(at) = part.at else {
        query.push("SELECT ").push(COLUMNS).push(", false AS shredded FROM resource");
        push_filter(query);
        push_labels(query);
        return push_order(query);
    };
    query.push("SELECT * FROM ((SELECT ").push(COLUMNS).push(", false AS shredded FROM resource");
    push_filter(query);
    push_labels(query);
    query.push(" AND resource_version <= ").push_bind(at);
    push_order(query);
    query.push(") UNION ALL (SELECT found.* FROM (SELECT before_version FROM resource_event");
    push_filter(query);
    query.push(" AND resource_version > ").push_bind(at);
    query.push(" AND before_version <= ").push_bind(at);
    // By the OFFSET each is looked up by its key, whatever Postgres takes a join to cost while it has no statistics yet.
    query.push(") later CROSS JOIN LATERAL (SELECT ").push(COLUMNS);
    query.push(
        ", shredded FROM resource_event WHERE resource_version = later.before_version OFFSET 0) found WHERE true",
    );
    push_labels(query);
    query.push(")) past");
    push_order(query);
}

/// Selects the object of a name. Two indexes begin with these columns, and from the namespace on they differ in collation: compared in
/// both, either of them finds the row. Compared in one, a plan that a connection has kept since the table was small may use the other
/// index by its first two columns, and read all objects of the kind until the table is analyzed.
const NAMED: &str = "api_group = $1 AND kind = $2 AND namespace = $3 AND name = $4 \
                     AND namespace COLLATE \"C\" = $3 AND name COLLATE \"C\" = $4";

const COLUMNS: &str = "uid, api_group, kind, namespace, name, generation, resource_version, created_at, \
                       deletion_timestamp, object, sealed";

/// Holds objects that are to be changed. Rows of other tables that refer to one may come meanwhile: who writes these need not wait for
/// whoever changes its status, and the other way round. Removing an object waits for both.
const HOLD: &str = " FOR NO KEY UPDATE";

/// How many objects of these kinds a namespace has.
async fn count_in(
    connection: impl sqlx::PgExecutor<'_>,
    kinds: &[KindId],
    namespace: &str,
) -> Result<i64, StoreError> {
    let mut count = QueryBuilder::<Postgres>::new("SELECT 0");
    for kind in kinds {
        // Each by the index of its kind.
        count.push(" + (SELECT count(*) FROM resource");
        push_kind(&mut count, *kind, namespace, None);
        count.push(")");
    }
    let found = count.build_query_scalar::<i64>().fetch_one(connection).await;
    found.map_err(StoreError::query("count a namespace's objects"))
}

impl Store {
    /// How many objects of these kinds a namespace has.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn count_in(&self, kinds: &[KindId], namespace: &str) -> Result<i64, StoreError> {
        count_in(&self.pool, kinds, namespace).await
    }

    /// The object of that name, for a pass: [together](crate::together) with what other passes ask for.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get_for_pass(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Stored>, StoreError> {
        let ask = |this: Self, named| async move { this.all_named(named).await };
        let named = (kind, namespace.to_owned(), name.to_owned());
        self.together.named.ask(&self.health, self, named, ask).await
    }

    async fn all_named(&self, named: Vec<Named>) -> Result<Answers<Named, Stored>, StoreError> {
        let of = |part: fn(&Named) -> &str| named.iter().map(part).collect::<Vec<_>>();
        // By the OFFSET each is looked up by its key, as `NAMED` does for one.
        let sql = format!(
            "SELECT place, {COLUMNS}
             FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY LIMIT $5)
                  AS asked (g, k, ns, n, place)
             CROSS JOIN LATERAL (SELECT * FROM resource
                 WHERE api_group = asked.g AND kind = asked.k AND namespace = asked.ns AND name = asked.n
                   AND namespace COLLATE \"C\" = asked.ns AND name COLLATE \"C\" = asked.n OFFSET 0) AS found"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(of(|(kind, ..)| kind.get().group()))
            .bind(of(|(kind, ..)| kind.get().kind))
            .bind(of(|(_, namespace, _)| namespace))
            .bind(of(|(_, _, name)| name))
            .bind(i64::try_from(named.len()).unwrap_or(i64::MAX))
            .fetch(&self.pool);
        let question = |row: &PgRow| {
            let place = usize::try_from(row.try_get::<i64, _>("place")?).ok();
            Ok(place.and_then(|place| named.get(place.checked_sub(1)?)).cloned())
        };
        self.answers(rows, question).await
    }

    /// The object of that uid, for a pass: [together](crate::together) with what other passes ask for.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get_by_uid_for_pass(&self, uid: ResourceUid) -> Result<Option<Stored>, StoreError> {
        let ask = |this: Self, uids: Vec<ResourceUid>| async move {
            let sql = format!("SELECT {COLUMNS} FROM resource WHERE uid = ANY($1)");
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(uids.iter().map(|uid| uid.0).collect::<Vec<_>>())
                .fetch(&this.pool);
            this.answers(rows, |row| Ok(Some(ResourceUid(row.try_get("uid")?)))).await
        };
        self.together.objects.ask(&self.health, self, uid, ask).await
    }

    /// The objects of these rows by what they were asked for. One row after the other, so that not all of them are in memory besides.
    async fn answers<Q: Eq + Hash>(
        &self,
        mut rows: impl Stream<Item = Result<PgRow, sqlx::Error>> + Unpin,
        question: impl Fn(&PgRow) -> Result<Option<Q>, sqlx::Error>,
    ) -> Result<Answers<Q, Stored>, StoreError> {
        let what = "read resources";
        let mut answers = Answers::new();
        while let Some(row) = rows.next().await {
            let row = row.map_err(StoreError::query(what))?;
            let Some(question) = question(&row).map_err(StoreError::query(what))? else { continue };
            // One that cannot be read fails nobody who asked for another one.
            if let Some(answer) = Stored::from_row(&row, &self.sealer).transpose() {
                answers.insert(question, answer);
            }
        }
        Ok(answers)
    }

    /// The object of that name.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get(&self, kind: KindId, namespace: &str, name: &str) -> Result<Option<Stored>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM resource WHERE {NAMED}");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(kind.get().group())
            .bind(kind.get().kind)
            .bind(namespace)
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a resource"))?;
        row.map_or(Ok(None), |row| Stored::from_row(&row, &self.sealer))
    }

    /// The first names of the objects of a kind in a namespace, sorted.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn names(&self, kind: KindId, namespace: &str, limit: i64) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(
            "SELECT name FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = $3 ORDER BY name LIMIT $4",
        )
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .bind(namespace)
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list the names of objects"))
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
        row.map_or(Ok(None), |row| Stored::from_row(&row, &self.sealer))
    }

    /// Up to `limit` objects of a list, by namespace and name, all from one moment; `each` is given one after the other as
    /// they are read, so that not all of them have to be in memory.
    ///
    /// They are to be thrown away where the [`Listed`] that is returned does not know the version that was asked for.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn list_each(
        &self,
        kind: KindId,
        filter: &Filter,
        part: Part<'_>,
        limit: i64,
        mut each: impl FnMut(Stored) + Send,
    ) -> Result<Listed, StoreError> {
        let what = "list resources";
        // The counter and the rows come out of one statement, so out of one snapshot.
        let mut query =
            QueryBuilder::new("SELECT h.last_version, h.compacted, r.* FROM hub_state h LEFT JOIN LATERAL (");
        push_part(&mut query, kind, filter, part, limit);
        query.push(") r ON true ORDER BY r.namespace COLLATE \"C\", r.name COLLATE \"C\"");
        let mut rows = query.build().fetch(&self.pool);
        let mut listed = Listed { version: 0, compacted: 0 };
        while let Some(row) = rows.next().await {
            let row = row.map_err(StoreError::query(what))?;
            listed.version = row.try_get("last_version").map_err(StoreError::query(what))?;
            listed.compacted = row.try_get("compacted").map_err(StoreError::query(what))?;
            let uid: Option<Uuid> = row.try_get("uid").map_err(StoreError::query(what))?;
            if uid.is_none() {
                continue;
            }
            let Some(mut stored) = Stored::from_row(&row, &self.sealer)? else { continue };
            if row.try_get("shredded").map_err(StoreError::query(what))? {
                stored.mark_shredded();
            }
            each(stored);
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
             coalesce(object #>> '{series,lastObservedTime}', last_seen, '') < $2 \
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

    /// How many objects there are now after the (namespace, name) of `after`; `namespace` is empty for all. Of a past moment
    /// it is an estimate, which is all that `remainingItemCount` promises.
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

/// What [`Tx::hold_namespace`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldNamespace {
    /// It is there and stays.
    Open,
    /// It is being deleted: nothing new may come into it.
    Terminating,
    /// There is none of that name.
    Absent,
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
        let row = self.select(kind, namespace, name, HOLD).await?;
        self.loaded(row.as_ref())
    }

    /// Keeps a namespace as it is (others may read it, and hold it too) until the end of this unit of work, which puts something
    /// into it.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn hold_namespace(&mut self, name: &str) -> Result<HeldNamespace, StoreError> {
        if self.held_namespaces.contains(name) {
            return Ok(HeldNamespace::Open);
        }
        // What would be written of events costs no statement of its own while no Alert listens to any.
        let sql = format!(
            "SELECT {COLUMNS}, EXISTS (SELECT FROM alert_source) AS is_listened_to
             FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = '' AND name = $3 FOR SHARE"
        );
        let kind = KindId::Namespace.get();
        let found = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(kind.group())
            .bind(kind.kind)
            .bind(name)
            // Namespaces never wait to be written.
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(StoreError::query("hold a namespace"))?;
        let Some(row) = found else { return Ok(HeldNamespace::Absent) };
        self.is_listened_to =
            row.try_get("is_listened_to").map_err(StoreError::query("look whether an Alert listens"))?;
        let is_going = |namespace: Stored| namespace.deletion_timestamp.is_some();
        if Stored::from_row(&row, &self.sealer)?.is_some_and(is_going) {
            return Ok(HeldNamespace::Terminating);
        }
        self.held_namespaces.insert(name.to_owned());
        Ok(HeldNamespace::Open)
    }

    async fn select(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        lock: &'static str,
    ) -> Result<Option<PgRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM resource WHERE {NAMED} {lock}");
        let is_it = |put: &Stored| put.kind == kind && put.namespace == namespace && put.name == name;
        let waiting = self.changes.waiting.iter().filter_map(|uid| self.changes.changed.get(uid));
        let waits = waiting.filter_map(|change| change.after.as_ref()).any(is_it);
        let connection = if waits { self.written().await? } else { &mut self.inner };
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(kind.get().group())
            .bind(kind.get().kind)
            .bind(namespace)
            .bind(name)
            .fetch_optional(connection)
            .await
            .map_err(StoreError::query("read a resource"))
    }

    /// The object of that uid, locked until the end of this unit of work.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn get_by_uid(&mut self, uid: ResourceUid) -> Result<Option<Stored>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM resource WHERE uid = $1{HOLD}");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(uid.0)
            .fetch_optional(self.written_if_waiting(uid).await?)
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
        self.listed(kind, namespace, "").await
    }

    /// The same, locked one after the other.
    ///
    /// # Errors
    /// Where the database or the key fails.
    pub async fn list_locked(&mut self, kind: KindId, namespace: &str) -> Result<Vec<Stored>, StoreError> {
        self.listed(kind, namespace, HOLD).await
    }

    async fn listed(
        &mut self,
        kind: KindId,
        namespace: &str,
        lock: &'static str,
    ) -> Result<Vec<Stored>, StoreError> {
        let mut query = QueryBuilder::new(format!("SELECT {COLUMNS} FROM resource"));
        push_kind(&mut query, kind, namespace, None);
        query.push(" ORDER BY namespace COLLATE \"C\", name COLLATE \"C\"").push(lock);
        let found = query.build().fetch_all(self.written().await?).await;
        let rows = found.map_err(StoreError::query("list resources"))?;
        rows.iter().filter_map(|row| Stored::from_row(row, &self.sealer).transpose()).collect()
    }

    /// How many objects of these kinds a namespace has.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn count_in(&mut self, kinds: &[KindId], namespace: &str) -> Result<i64, StoreError> {
        count_in(self.written().await?, kinds, namespace).await
    }

    /// Whether a namespace has objects of kinds that only a newer version knows.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn has_newer_kinds(&mut self, namespace: &str) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM resource WHERE namespace = $1 AND kind <> ALL ($2))")
            .bind(namespace)
            .bind(newer::known_kinds())
            .fetch_one(self.written().await?)
            .await
            .map_err(StoreError::query("look for objects of newer kinds"))
    }

    fn loaded(&mut self, row: Option<&PgRow>) -> Result<Option<Stored>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let Some(stored) = Stored::from_row(row, &self.sealer)? else { return Ok(None) };
        // This unit of work may be about to change it.
        if stored.kind == KindId::Namespace {
            self.held_namespaces.remove(&stored.name);
        }
        // Keep the first version that was read: it is what the change log compares with.
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
            self.insert(&stored, "").await?;
            self.inserted(stored);
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
        if present.is_same(&stored) {
            return Ok(());
        }
        if Self::can_wait(present, &stored) {
            self.changes.waiting.insert(uid);
        } else {
            self.changes.waiting.remove(&uid);
            self.update(&stored).await?;
        }
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

    /// Inserts an object that is new; false where there is one of that name, also one that another unit of work is about to commit. One
    /// statement, where [`Self::get`] and [`Self::put`] would be two.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn put_new(&mut self, mut stored: Stored) -> Result<bool, StoreError> {
        stored.write_metadata();
        let is_new =
            self.insert(&stored, " ON CONFLICT (api_group, kind, namespace, name) DO NOTHING").await?;
        if is_new {
            self.inserted(stored);
        }
        Ok(is_new)
    }

    fn inserted(&mut self, stored: Stored) {
        self.changes.order.push(stored.uid);
        self.changes.changed.insert(stored.uid, Change { before: None, after: Some(stored) });
    }

    async fn insert(&mut self, stored: &Stored, on_conflict: &'static str) -> Result<bool, StoreError> {
        let sql = format!(
            "INSERT INTO resource (uid, api_group, kind, namespace, name, generation, resource_version, created_at, \
             deletion_timestamp, object, sealed, refers_to) VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, $9, $10, $11)\
             {on_conflict}"
        );
        let inserted = sqlx::query(sqlx::AssertSqlSafe(sql))
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
            .bind(stored.refers_to())
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("insert a resource"))?;
        Ok(inserted.rows_affected() > 0)
    }

    /// The connection, once everything that was put and [waits](Self::can_wait) has been written. For each statement that may read what objects
    /// hold.
    pub(crate) async fn written(&mut self) -> Result<&mut Work, StoreError> {
        for uid in std::mem::take(&mut self.changes.waiting) {
            let after = self.changes.changed.get(&uid).and_then(|change| change.after.clone());
            if let Some(stored) = after {
                self.update(&stored).await?;
            }
        }
        Ok(&mut self.inner)
    }

    /// The same for a statement that reads this object alone: others may go on waiting.
    async fn written_if_waiting(&mut self, uid: ResourceUid) -> Result<&mut Work, StoreError> {
        if self.changes.waiting.contains(&uid) { self.written().await } else { Ok(&mut self.inner) }
    }

    /// Whether an object can wait for the commit, where the statement that gives it its version writes it, too: nothing changes by which objects
    /// are looked up. This is so for every status.
    fn can_wait(before: &Stored, after: &Stored) -> bool {
        before.kind != KindId::Namespace
            && before.generation == after.generation
            && before.deletion_timestamp == after.deletion_timestamp
            && before.secret == after.secret
            && before.refers_to() == after.refers_to()
    }

    async fn update(&mut self, stored: &Stored) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE resource SET generation = $2, deletion_timestamp = $3, object = $4, sealed = $5, refers_to = $6 \
             WHERE uid = $1",
        )
        .bind(stored.uid.0)
        .bind(stored.generation)
        .bind(stored.deletion_timestamp.map(to_sql))
        .bind(stored.column())
        .bind(stored.sealed(&self.sealer)?)
        .bind(stored.refers_to())
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
        self.changes.waiting.remove(&uid);
        sqlx::query("DELETE FROM resource WHERE uid = $1")
            .bind(uid.0)
            .execute(self.written().await?)
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
