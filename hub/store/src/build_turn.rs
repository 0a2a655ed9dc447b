//! Turns of builds, in namespaces whose quota bounds how many run at once: those that run, each on a replica, and those that wait, in
//! the order in which they came. What takes a turn and what ends one hold a lock of the namespace, so that nobody begins to wait unseen.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{Queue, ReplicaId, ResourceUid};
use uuid::Uuid;

use crate::time::to_sql;
use crate::{Store, StoreError, Tx};

/// Of the two numbers of a lock: these locks are told by it from others of this form.
const LOCK: i32 = 0x7475_726e;
/// Quotas of one namespace that are looked at, in the order of their names.
pub(crate) const MOST_QUOTAS: i64 = 100;
/// When a turn ends, so many of those that wait are woken: the first may need none any more.
const WOKEN: i64 = 2;
/// When more may be free, at most so many.
const MOST_WOKEN: i64 = 1_000;

/// Begins a turn; the place of the one who waited is free.
const TAKE: &str = "WITH over AS (DELETE FROM build_turn
                                  WHERE namespace = $2 AND until < $6 OR applier = $3 AND replica IS NULL)
    INSERT INTO build_turn (id, namespace, applier, replica, until) VALUES ($1, $2, $3, $4, $5)";
/// Begins to wait, or goes on: whoever has waited keeps its place, unless it came too late.
const WAIT: &str =
    "INSERT INTO build_turn (id, namespace, applier, replica, until) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (applier) WHERE replica IS NULL DO UPDATE
    SET namespace = $2, until = $5,
        number = CASE WHEN build_turn.until < $6 THEN excluded.number ELSE build_turn.number END";

/// How many builds of a namespace may run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildQuota {
    /// The name of the ResourceQuota that says so.
    pub name: String,
    /// What it says.
    pub limit: i64,
}

impl BuildQuota {
    /// The lowest of those that are noted as `name=limit`. What is not a number binds nobody: it was refused when it was written.
    pub(crate) fn lowest(noted: &[String]) -> Option<Self> {
        let quotas = noted.iter().filter_map(|noted| {
            let (name, limit) = noted.split_once('=')?;
            Some(Self { name: name.to_owned(), limit: limit.parse().ok()? })
        });
        quotas.min_by_key(|quota| quota.limit)
    }
}

/// Who asks for a turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnOf<'a> {
    /// The applier whose build it is.
    pub applier: ResourceUid,
    /// Its namespace.
    pub namespace: &'a str,
    /// Where it would be built.
    pub replica: ReplicaId,
}

/// What became of asking for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildTurn {
    /// It may build until it [ends](Store::end_build_turn) the turn of this id.
    Runs(Uuid),
    /// It waits, behind so many others.
    Waits(i64),
}

impl Store {
    /// Takes a turn in a namespace where `limit` builds may run at once, or a place among those that wait; that is kept for `kept`, and
    /// a turn for `lease`, where nobody asks again or ends it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_build_turn(
        &self,
        of: TurnOf<'_>,
        limit: i64,
        now: Timestamp,
        lease: Duration,
        kept: impl FnOnce(i64) -> Duration,
    ) -> Result<BuildTurn, StoreError> {
        let what = "take a turn to build";
        let mut tx = self.begin().await?;
        tx.lock_build_turns(of.namespace).await?;
        let (running, before): (i64, i64) = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE turn.replica IS NOT NULL),
                    count(*) FILTER (WHERE turn.replica IS NULL AND turn.applier <> $2
                                     AND (own.id IS NULL OR turn.number < own.number))
             FROM build_turn turn
             LEFT JOIN build_turn own ON own.applier = $2 AND own.replica IS NULL AND own.until >= $3
             WHERE turn.namespace = $1 AND turn.until >= $3",
        )
        .bind(of.namespace)
        .bind(of.applier.0)
        .bind(to_sql(now))
        .fetch_one(tx.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let id = Uuid::new_v4();
        let runs = running + before < limit;
        sqlx::query(if runs { TAKE } else { WAIT })
            .bind(id)
            .bind(of.namespace)
            .bind(of.applier.0)
            .bind(runs.then_some(of.replica.0))
            .bind(to_sql(now + if runs { lease } else { kept(before) }))
            .bind(to_sql(now))
            .execute(tx.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        tx.commit().await?;
        Ok(if runs { BuildTurn::Runs(id) } else { BuildTurn::Waits(before) })
    }

    /// Ends a turn, or what waits for one of an applier; the next ones are due at once.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_build_turn(
        &self,
        namespace: &str,
        turn: Option<Uuid>,
        waits: Option<ResourceUid>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        tx.lock_build_turns(namespace).await?;
        sqlx::query("DELETE FROM build_turn WHERE id = $1 OR applier = $2 AND replica IS NULL")
            .bind(turn)
            .bind(waits.map(|applier| applier.0))
            .execute(tx.written().await?)
            .await
            .map_err(StoreError::query("end a turn to build"))?;
        tx.wake_waiting(namespace, WOKEN).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Ends the turns of replicas that are no more; who waits in those namespaces is due at once.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_build_turns_of_dead_replicas(&self, alive_since: Timestamp) -> Result<(), StoreError> {
        let what = "end the turns of dead replicas";
        let over: Vec<String> = sqlx::query_scalar(
            "DELETE FROM build_turn WHERE replica IS NOT NULL
               AND replica NOT IN (SELECT id FROM hub_replica WHERE last_seen >= $1) RETURNING namespace",
        )
        .bind(to_sql(alive_since))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        if over.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        for namespace in over.into_iter().collect::<BTreeSet<_>>() {
            tx.wake_waiting(&namespace, MOST_WOKEN).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Has turns count no longer than `lease` from now on, and places in the line no longer than `kept`, where that would be after `later` besides: the clock was put
    /// back.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn mend_build_turns(
        &self,
        now: Timestamp,
        (lease, kept): (Duration, Duration),
        later: Duration,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE build_turn SET until = CASE WHEN replica IS NULL THEN $2 ELSE $1 END
             WHERE until > CASE WHEN replica IS NULL THEN $2::timestamptz ELSE $1::timestamptz END + make_interval(secs => $3)",
        )
        .bind(to_sql(now + lease))
        .bind(to_sql(now + kept))
        .bind(later.as_secs_f64())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("mend until when turns to build count"))?;
        Ok(())
    }

    /// How many builds of a namespace have a turn.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn running_builds(&self, namespace: &str, now: Timestamp) -> Result<i64, StoreError> {
        sqlx::query_scalar(
            "SELECT count(*) FROM build_turn WHERE namespace = $1 AND replica IS NOT NULL AND until >= $2",
        )
        .bind(namespace)
        .bind(to_sql(now))
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("count the builds that run"))
    }

    /// Drops what was left behind by accident.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_build_turns(&self, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM build_turn WHERE until < $1")
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget turns to build"))?;
        Ok(())
    }
}

impl Tx {
    /// Has those that wait for a turn in a namespace be due at once: its quota is another one.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn wake_waiting_builds(&mut self, namespace: &str) -> Result<(), StoreError> {
        self.wake_waiting(namespace, MOST_WOKEN).await
    }

    async fn wake_waiting(&mut self, namespace: &str, most: i64) -> Result<(), StoreError> {
        // Those whose place is not kept any more, too: a pass too many does no harm.
        let waiting: Vec<Uuid> = sqlx::query_scalar(
            "SELECT applier FROM build_turn WHERE namespace = $1 AND replica IS NULL ORDER BY number LIMIT $2",
        )
        .bind(namespace)
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("look up who waits for a turn to build"))?;
        self.enqueue(Queue::Applier, &uids(waiting)).await
    }

    async fn lock_build_turns(&mut self, namespace: &str) -> Result<(), StoreError> {
        sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext($2))")
            .bind(LOCK)
            .bind(namespace)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("lock a namespace's turns to build"))?;
        Ok(())
    }
}

fn uids(found: Vec<Uuid>) -> Vec<ResourceUid> {
    found.into_iter().map(ResourceUid).collect()
}

#[cfg(test)]
mod tests {
    use super::BuildQuota;

    #[test]
    fn the_lowest_quota_counts() {
        let lowest = |noted: &[&str]| {
            let noted: Vec<String> = noted.iter().map(|one| (*one).to_owned()).collect();
            BuildQuota::lowest(&noted).map(|quota| (quota.name, quota.limit))
        };
        assert_eq!(lowest(&["a=4", "b=2", "c=10"]), Some(("b".to_owned(), 2)));
        assert_eq!(lowest(&["a=many", "b=0"]), Some(("b".to_owned(), 0)));
        assert_eq!(lowest(&["a"]), None);
        assert_eq!(lowest(&[]), None);
    }
}
