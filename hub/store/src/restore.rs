//! A database that is another one than before: a backup was put back, or a standby was promoted that lacked the newest transactions.
//!
//! Each connection is asked which database it leads to before it is used. Where that is not the one that is recorded, a new epoch
//! begins, in one transaction, whichever replica notices first: whatever was under way is over, sources have to be looked at
//! and agents have to connect again, before anything is planned by what the database says. Watches go on where it has all that a
//! replica knew of the old one, as after a failover that lost nothing; else its versions are those of another history.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use roadstead_api::{KindId, PipelineRole};
use roadstead_model::{
    ApplierUid, Attempt, ClusterUid, Generation, HubEpoch, Reason, ResourceUid, Topic, chain,
};
use sqlx::{Connection as _, PgConnection, PgPool};
use uuid::Uuid;

use crate::feed::forget;
use crate::{Store, StoreError, Tx};

/// Held by whoever begins an epoch.
const LOCK: i64 = 0x726f_6164_6570_6f63;

/// The newest version that this replica knows of. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Newest(Arc<AtomicI64>);

impl Newest {
    /// This version was seen.
    pub(crate) fn saw(&self, version: i64) {
        self.0.fetch_max(version, Ordering::SeqCst);
    }

    fn get(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Which database is recorded, and which one it is. A server that was restored to a point in time, or promoted, has another timeline; one
/// that was filled from a dump has another system identifier, or the same and another database or table.
const IDENTITY: &str = "SELECT identity, last_version, concat_ws('/', (SELECT system_identifier FROM pg_control_system()), \
                        left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), \
                        (SELECT oid FROM pg_database WHERE datname = current_database()), 'hub_state'::regclass::oid) \
                        FROM hub_state";

/// What an agent has seen of an applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenAttempt {
    /// The applier.
    pub applier: ApplierUid,
    /// The epoch of the newest attempt.
    pub epoch: HubEpoch,
    /// The newest attempt.
    pub attempt: Attempt,
    /// The generation that it was made of.
    pub generation: Generation,
}

/// An attempt that a cluster's agent has seen and this database does not know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAttempt {
    /// The generation of the applier that it was made of.
    pub generation: Generation,
    /// The generation that the applier had in this database when that was noticed.
    pub found_generation: Generation,
    /// The reconciliation that was asked for by then.
    pub found_request: Option<String>,
}

impl Store {
    /// Begins a new epoch: what was known from before is not trusted. To be called where a backup of the database was put in its place
    /// and [the hub cannot notice it](self). Versions of the old history are told apart from those of the new one, and watches from
    /// them are refused.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn begin_epoch(&self) -> Result<(), StoreError> {
        let what = "begin an epoch";
        let mut connection = self.pool.acquire().await.map_err(StoreError::query(what))?;
        begin_epoch(&mut connection, &Cause::Said).await?;
        drop(connection);
        self.signals.send(Topic::Resources);
        Ok(())
    }

    /// Whether nobody has looked at this source since the epoch began.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn is_unseen(&self, source: ResourceUid) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM unseen_source WHERE uid = $1)")
            .bind(source.0)
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("look whether a source was looked at"))
    }

    /// A source of this generation was looked at. Gives whether it was not before since the epoch began.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn source_is_seen(&self, source: ResourceUid, generation: i64) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "DELETE FROM unseen_source u USING resource r WHERE u.uid = $1 AND r.uid = u.uid AND r.generation = $2",
        )
        .bind(source.0)
        .bind(generation)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("record that a source was looked at"))?;
        Ok(done.rows_affected() > 0)
    }

    /// A parent has just said what its children are to be: what was lost of them need not be waited for. Gives those of which that was so.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn accept_children(&self, parent: ApplierUid) -> Result<Vec<ResourceUid>, StoreError> {
        let accepted: Vec<Uuid> = sqlx::query_scalar(
            "UPDATE lost_attempt l SET generation = 0 FROM child c
             WHERE c.parent = $1 AND c.wanted AND l.applier = c.object AND l.generation > 0 RETURNING l.applier",
        )
        .bind(parent.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("accept the specs of children"))?;
        Ok(accepted.into_iter().map(ResourceUid).collect())
    }

    /// The attempt that was lost of an applier on a cluster.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn lost_attempt(
        &self,
        applier: ApplierUid,
        cluster: ClusterUid,
    ) -> Result<Option<LostAttempt>, StoreError> {
        let lost: Option<(i64, i64, Option<String>)> = sqlx::query_as(
            "SELECT generation, found_generation, found_request FROM lost_attempt WHERE applier = $1 AND cluster_uid = $2",
        )
        .bind(applier.0)
        .bind(cluster.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look up a lost attempt"))?;
        Ok(lost.map(|(generation, found, found_request)| LostAttempt {
            generation: Generation(generation),
            found_generation: Generation(found),
            found_request,
        }))
    }
}

impl Tx {
    /// Takes in what a cluster's agent has seen: an attempt that is newer than all that this database knows of its applier was lost. Gives the
    /// appliers that this database does not know. `requests` are the annotations by which a reconciliation is asked for.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_seen_attempts(
        &mut self,
        cluster: ClusterUid,
        seen: &[SeenAttempt],
        requests: &[&str],
    ) -> Result<Vec<ApplierUid>, StoreError> {
        let appliers: Vec<Uuid> = seen.iter().map(|seen| seen.applier.0).collect();
        let numbers = |of: fn(&SeenAttempt) -> i64| seen.iter().map(of).collect::<Vec<i64>>();
        let unknown: Vec<Uuid> = sqlx::query_scalar(
            "WITH seen AS (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
                                    AS t (applier, epoch, attempt, generation)),
             lost AS (
                 INSERT INTO lost_attempt (applier, cluster_uid, epoch, attempt, generation, found_generation, found_request)
                 SELECT r.uid, $5, seen.epoch, seen.attempt, seen.generation, r.generation,
                        (SELECT string_agg(asked.value, ' ' ORDER BY key.place)
                         FROM unnest($6::text[]) WITH ORDINALITY AS key (name, place),
                              LATERAL (SELECT r.object #>> ARRAY['metadata', 'annotations', key.name]) AS asked (value)
                         WHERE asked.value <> '')
                 FROM seen JOIN resource r ON r.uid = seen.applier
                 LEFT JOIN LATERAL (SELECT epoch, attempt FROM reconciliation WHERE applier = r.uid
                                    ORDER BY attempt DESC LIMIT 1) last ON true
                 WHERE (seen.epoch, seen.attempt) > (coalesce(last.epoch, 0), coalesce(last.attempt, 0))
                 ON CONFLICT (applier, cluster_uid) DO UPDATE
                     SET epoch = excluded.epoch, attempt = excluded.attempt, generation = excluded.generation
                     WHERE (lost_attempt.epoch, lost_attempt.attempt) < (excluded.epoch, excluded.attempt))
             SELECT applier FROM seen WHERE NOT EXISTS (SELECT FROM resource WHERE uid = seen.applier)",
        )
        .bind(appliers)
        .bind(numbers(|seen| seen.epoch.0))
        .bind(numbers(|seen| seen.attempt.0))
        .bind(numbers(|seen| seen.generation.0))
        .bind(cluster.0)
        .bind(requests)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("take in what an agent has seen"))?;
        Ok(unknown.into_iter().map(ApplierUid).collect())
    }
}

impl Tx {
    /// Whether this attempt is the first since the database was restored, but for those that failed.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_first_since_restore(
        &mut self,
        applier: ApplierUid,
        attempt: Attempt,
    ) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM reconciliation p WHERE p.applier = $1 AND p.epoch < this.epoch)
                    AND NOT EXISTS (SELECT FROM reconciliation p WHERE p.applier = $1 AND p.attempt < $2
                                    AND p.epoch >= this.epoch AND p.reason = $3)
             FROM reconciliation this WHERE this.applier = $1 AND this.attempt = $2",
        )
        .bind(applier.0)
        .bind(attempt.0)
        .bind(Reason::ReconciliationSucceeded.as_str())
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("look whether an attempt is the first since a restore"))
    }
}

/// Before a connection is used: where it leads to another database than the recorded one, or to one that lacks versions which this replica
/// knows, a new epoch begins. Gives whether the database says which one it is.
///
/// # Errors
/// Where the database fails; the connection is not to be used then.
pub(crate) async fn check(connection: &mut PgConnection, newest: &Newest) -> Result<bool, sqlx::Error> {
    // First: what is committed in between is newer.
    let known = newest.get();
    let asked: Result<(Option<String>, i64, String), sqlx::Error> =
        sqlx::query_as(IDENTITY).fetch_one(&mut *connection).await;
    let (recorded, last, is) = match asked {
        Ok(found) => found,
        // Of an older schema or none yet; a standby, on which nothing can be done; a server that does not tell.
        Err(sqlx::Error::Database(error)) => {
            tracing::debug!(%error, "the database does not say which one it is");
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let is_other = recorded.as_ref().is_some_and(|recorded| *recorded != is);
    if recorded.is_none() {
        let record = "UPDATE hub_state SET identity = $1 WHERE identity IS NULL";
        sqlx::query(record).bind(&is).execute(&mut *connection).await?;
    }
    if is_other || last < known {
        let cause = Cause::Noticed { identity: &is, known };
        let begun = begin_epoch(connection, &cause).await;
        match begun.map_err(|error| sqlx::Error::Protocol(chain(&error)))? {
            Begun::Nothing => {}
            Begun::SameHistory => tracing::info!(
                "the database is another one than before, and has all that this replica knew: sources are looked at again and agents \
                 are asked what they have seen before anything is applied"
            ),
            Begun::OtherHistory => tracing::warn!(
                "the database is another one than before (a backup was put back, or a standby was promoted): sources are looked \
                 at again and agents are asked what they have seen before anything is applied"
            ),
        }
    }
    Ok(true)
}

/// Records which database this is, once the schema has a place for it.
pub(crate) async fn record(pool: &PgPool, newest: &Newest) -> Result<(), StoreError> {
    let what = "record which database this is";
    let mut connection = pool.acquire().await.map_err(StoreError::query(what))?;
    if !check(&mut connection, newest).await.map_err(StoreError::query(what))? {
        tracing::warn!(
            "the database does not say which one it is (pg_control_system and pg_walfile_name), so that a restore of it is not noticed: \
             start the hub with --restored after one"
        );
    }
    Ok(())
}

/// Why an epoch begins.
enum Cause<'a> {
    /// Somebody says so.
    Said,
    /// The database is this one, and should have all up to this version.
    Noticed { identity: &'a str, known: i64 },
}

/// What came of it.
#[derive(PartialEq, Eq)]
enum Begun {
    /// Another replica has begun it.
    Nothing,
    /// All versions that were known are those of this database too.
    SameHistory,
    /// Versions from before may be others here.
    OtherHistory,
}

/// Begins an epoch, unless another replica has done so.
async fn begin_epoch(connection: &mut PgConnection, cause: &Cause<'_>) -> Result<Begun, StoreError> {
    let what = "begin an epoch";
    let mut tx = connection.begin().await.map_err(StoreError::query(what))?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
    let (recorded, last): (Option<String>, i64) =
        sqlx::query_as("SELECT identity, last_version FROM hub_state")
            .fetch_one(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
    let (identity, has_all) = match cause {
        Cause::Said => (None, false),
        Cause::Noticed { identity, known } => {
            // A process that has just started knows nothing, and what others know it cannot tell.
            let has_all = *known > 0 && last >= *known;
            if recorded.as_deref() == Some(*identity) && last >= *known {
                return Ok(Begun::Nothing);
            }
            (Some(*identity), has_all)
        }
    };
    if !has_all {
        // First, as nobody else writes yet: of what the log holds only the last of each object is needed.
        forget(&mut tx, i64::MAX).await?;
    }
    distrust(&mut tx, identity, has_all).await?;
    tx.commit().await.map_err(StoreError::query(what))?;
    Ok(if has_all { Begun::SameHistory } else { Begun::OtherHistory })
}

/// What the database says is not to be relied on before it was looked at again.
async fn distrust(tx: &mut PgConnection, identity: Option<&str>, has_all: bool) -> Result<(), StoreError> {
    let sources: Vec<&str> = KindId::of_role(PipelineRole::Source).map(|kind| kind.get().kind).collect();
    let over = "the database was restored while this was under way";
    sqlx::query(
        "WITH unseen AS (
             INSERT INTO unseen_source SELECT uid FROM resource WHERE kind = ANY($1) AND deletion_timestamp IS NULL
             ON CONFLICT DO NOTHING),
         closed AS (
             UPDATE reconciliation SET finished_at = now(), reason = $2, message = $3 WHERE finished_at IS NULL),
         cut AS (
             UPDATE agent_session SET session = gen_random_uuid(), disconnected_at = coalesce(disconnected_at, now())),
         due AS (
             UPDATE schedule SET due_at = '-infinity', wanted = wanted + 1)
         UPDATE hub_state SET epoch = epoch + 1, identity = coalesce($4, identity),
                              last_version = CASE WHEN $5 THEN last_version ELSE (epoch + 1) << 40 END,
                              compacted = CASE WHEN $5 THEN compacted ELSE (epoch + 1) << 40 END",
    )
    .bind(sources)
    .bind(Reason::Progressing.as_str())
    .bind(over)
    .bind(identity)
    .bind(has_all)
    .execute(tx)
    .await
    .map_err(StoreError::query("begin an epoch"))?;
    Ok(())
}
