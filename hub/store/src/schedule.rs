//! What is due to be processed, and which replica processes it.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{Claim, Due, Queue, ReplicaId, ResourceUid, Room, Topic, TraceContext};
use uuid::Uuid;

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx, newer};

/// Passes that one unit of work asks for and whose spans are part of its trace. A source that a thousand appliers use makes no trace of ten
/// thousand spans: the others have its id in their log lines.
const MOST_TRACED: usize = 100;

/// A pass that is to be made.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Enqueued {
    uid: Uuid,
    queue: &'static str,
    /// As soon as the pace allows, not at once.
    paced: bool,
}

impl Tx {
    /// Makes these resources due at once.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn enqueue(&mut self, queue: Queue, uids: &[ResourceUid]) -> Result<(), StoreError> {
        self.enqueue_as(queue, uids, false);
        Ok(())
    }

    /// Makes this resource due because somebody asks for it: at once, or as soon as [`Store::pace`] allows.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn enqueue_paced(&mut self, queue: Queue, uid: ResourceUid) -> Result<(), StoreError> {
        self.enqueue_as(queue, &[uid], true);
        Ok(())
    }

    fn enqueue_as(&mut self, queue: Queue, uids: &[ResourceUid], paced: bool) {
        if uids.is_empty() {
            return;
        }
        // A resource that this very transaction creates is written at commit, so it is looked up there, not here.
        self.enqueued.extend(uids.iter().map(|uid| Enqueued { uid: uid.0, queue: queue.as_str(), paced }));
        self.wake(Topic::Due(queue));
    }

    pub(crate) async fn write_enqueued(&mut self) -> Result<(), StoreError> {
        let mut enqueued = std::mem::take(&mut self.enqueued);
        if enqueued.is_empty() {
            return Ok(());
        }
        // In one order everywhere, so that two transactions cannot wait for each other's rows. What is due at once, and paced
        // besides, is due at once.
        enqueued.sort_unstable();
        enqueued.dedup_by_key(|one| (one.uid, one.queue));
        let many = count(enqueued.len());
        let uids: Vec<Uuid> = enqueued.iter().map(|one| one.uid).collect();
        let kinds: Vec<&str> = enqueued.iter().map(|one| one.queue).collect();
        let paced: Vec<bool> = enqueued.iter().map(|one| one.paced).collect();
        let traces = traced(uids.len(), roadstead_trace::carry());
        // A pass under way may have looked before this transaction: another one follows it at once then, paced or not.
        // With the LIMIT, a plan for any number of passes expects few, so that it is kept.
        sqlx::query(
            "INSERT INTO schedule (uid, kind, namespace, due_at, paced_until, trace)
             SELECT asked.uid, asked.kind, resource.namespace, '-infinity', CASE WHEN asked.paced THEN '-infinity'::timestamptz END,
                    asked.trace
             FROM (SELECT * FROM unnest($1::uuid[], $2::text[], $3::boolean[], $4::text[]) LIMIT $5) AS asked (uid, kind, paced, trace)
             JOIN resource ON resource.uid = asked.uid
             ON CONFLICT (uid, kind) DO UPDATE
             SET due_at = CASE WHEN excluded.paced_until IS NOT NULL AND schedule.claimed_by IS NULL
                               THEN least(schedule.due_at, coalesce(schedule.paced_until, '-infinity')) ELSE '-infinity' END,
                 wanted = schedule.wanted + 1, trace = coalesce(excluded.trace, schedule.trace)",
        )
        .bind(uids)
        .bind(kinds)
        .bind(paced)
        .bind(traces)
        .bind(many)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("enqueue"))?;
        Ok(())
    }
}

/// What is due the longest, for [`Store::claim_due`]: the table `usual`. Of what a newer version only knows (`$10` are the kinds that
/// this one does), nothing: it stays due. That is asked for each row that would be claimed: of a join, a plan might read all objects.
const OLDEST: &str = "usual AS (SELECT uid, due_at, namespace FROM schedule
                                WHERE kind = $1 AND due_at <= $3 AND (claimed_until IS NULL OR claimed_until < $3) AND lost = 0
                                  AND coalesce((SELECT resource.kind = ANY ($10) FROM resource WHERE resource.uid = schedule.uid), true)
                                ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED)";

/// The same where a namespace has all the places that it may have (`$11`). What waits for it may be very much, so the oldest of each other
/// namespace are asked for, namespace by namespace; some more than there is room for, since other replicas may be about to take the same.
const OLDEST_OF_OTHERS: &str = "
    usual AS (SELECT uid, due_at, namespace FROM schedule
              WHERE kind = $1 AND uid IN (SELECT uid FROM others) AND (claimed_until IS NULL OR claimed_until < $3)
              ORDER BY due_at LIMIT $5 FOR UPDATE SKIP LOCKED),
    namespaces AS (
        (SELECT namespace FROM schedule WHERE kind = $1 AND lost = 0 ORDER BY namespace LIMIT 1)
        UNION ALL
        SELECT (SELECT namespace FROM schedule WHERE kind = $1 AND lost = 0 AND namespace > last.namespace
                ORDER BY namespace LIMIT 1)
        FROM namespaces AS last WHERE last.namespace IS NOT NULL),
    others AS (SELECT own.uid, own.due_at FROM namespaces CROSS JOIN LATERAL (
                   SELECT uid, due_at FROM schedule
                   WHERE kind = $1 AND schedule.namespace = namespaces.namespace AND due_at <= $3
                     AND (claimed_until IS NULL OR claimed_until < $3) AND lost = 0
                     AND coalesce((SELECT resource.kind = ANY ($10) FROM resource WHERE resource.uid = schedule.uid), true)
                   ORDER BY due_at LIMIT $5) AS own
               WHERE namespaces.namespace <> ALL ($11)
               ORDER BY own.due_at LIMIT $5 * 4)";

/// A claim, since when it was due where that is a time, its namespace and its trace; or when the next pass is due.
type ClaimRow = (Option<Uuid>, i64, i32, Option<::time::OffsetDateTime>, Option<String>, Option<String>);

/// The context of each of so many passes.
fn traced(passes: usize, trace: Option<TraceContext>) -> Vec<Option<String>> {
    let of = |place| trace.map(|trace| if place < MOST_TRACED { trace } else { trace.unsampled() });
    (0..passes).map(|place| of(place).map(|trace| trace.to_string())).collect()
}

fn count(places: usize) -> i64 {
    i64::try_from(places).unwrap_or(i64::MAX)
}

impl Store {
    /// Claims as many passes as there is room for, oldest first, for `lease`; and one besides of those that were lost before, where there
    /// is room for a suspect. A pass whose lease is over is slow, which says nothing of its object; those of replicas
    /// that are gone are freed, and counted, by [`Store::release_claims_of_dead_replicas`]. Passes over objects of kinds that only a newer
    /// version knows are left to its replicas.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn claim_due(
        &self,
        queue: Queue,
        replica: ReplicaId,
        now: Timestamp,
        lease: Duration,
        room: &Room,
    ) -> Result<Due, StoreError> {
        let what = "claim what is due";
        // One statement, since most loops find nothing most of the time. The next one in the index's own order: a `min`
        // would read all rows.
        let spent = room.spent();
        let usual = if spent.is_empty() { OLDEST } else { OLDEST_OF_OTHERS };
        let sql = format!(
            "WITH RECURSIVE
                  {usual},
                  ranked AS (SELECT uid, coalesce(held.places, 0)
                                         + row_number() OVER (PARTITION BY usual.namespace ORDER BY due_at) AS place
                             FROM usual LEFT JOIN unnest($7::text[], $8::bigint[]) AS held (namespace, places)
                               ON held.namespace = usual.namespace),
                  suspect AS (SELECT uid FROM schedule
                              WHERE kind = $1 AND due_at <= $3 AND (claimed_until IS NULL OR claimed_until < $3)
                                AND lost > 0
                                AND coalesce((SELECT resource.kind = ANY ($10) FROM resource WHERE resource.uid = schedule.uid), true)
                              ORDER BY due_at LIMIT $6 FOR UPDATE SKIP LOCKED),
                  claimed AS (UPDATE schedule SET claimed_by = $2, claimed_until = $4
                              WHERE kind = $1 AND uid IN (SELECT uid FROM ranked WHERE place <= $9
                                                          UNION ALL SELECT uid FROM suspect)
                              RETURNING uid, wanted, lost, CASE WHEN isfinite(due_at) THEN due_at END AS due_at, namespace,
                                        trace)
             SELECT uid, wanted, lost, due_at, namespace, trace FROM claimed
             UNION ALL
             (SELECT NULL, 0, 0, due_at, NULL, NULL FROM schedule
              WHERE kind = $1 AND due_at > $3 AND claimed_until IS NULL AND lost = 0 ORDER BY due_at LIMIT 1)"
        );
        let rows: Vec<ClaimRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(queue.as_str())
            .bind(replica.0)
            .bind(to_sql(now))
            .bind(to_sql(now + lease))
            .bind(count(room.free))
            .bind(i64::from(room.suspect && room.free > 0))
            .bind(room.held.keys().collect::<Vec<_>>())
            .bind(room.held.values().map(|places| count(*places)).collect::<Vec<_>>())
            .bind(count(room.of_one))
            .bind(newer::known_kinds())
            .bind(spent)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        let mut due = Due::default();
        for (uid, wanted, lost, at, namespace, trace) in rows {
            let at = at.map(|at| from_sql(what, at)).transpose()?;
            if let Some(uid) = uid {
                // Whatever stands there that is none: the pass is made all the same.
                let trace = trace.and_then(|trace| trace.parse().ok());
                due.claims.push(Claim { uid: ResourceUid(uid), queue, wanted, lost, trace });
                due.namespaces.push(namespace.unwrap_or_default());
                due.waited.extend(at.and_then(|since| Duration::try_from(now.duration_since(since)).ok()));
            } else {
                due.next = due.next.or(at);
            }
        }
        Ok(due)
    }

    /// Moves the next pass over a resource to `next`, where it is due at `from` or later, none is under way, and none was asked for
    /// since `wanted` of them were.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn move_next_pass(
        &self,
        queue: Queue,
        uid: ResourceUid,
        wanted: i64,
        from: Timestamp,
        next: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE schedule SET due_at = $4
             WHERE uid = $1 AND kind = $2 AND due_at >= $3 AND claimed_by IS NULL AND wanted = $5",
        )
        .bind(uid.0)
        .bind(queue.as_str())
        .bind(to_sql(from))
        .bind(to_sql(next))
        .bind(wanted)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("move the next pass"))?;
        Ok(())
    }

    /// Makes what somebody asks of a resource wait until then; other reasons for a pass do not wait.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn pace(&self, queue: Queue, uid: ResourceUid, until: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE schedule SET paced_until = $3 WHERE uid = $1 AND kind = $2")
            .bind(uid.0)
            .bind(queue.as_str())
            .bind(to_sql(until))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("pace what is asked for"))?;
        Ok(())
    }

    /// Gives a claim back. The next pass is at `next`, and then part of the claim's trace; or at once where one was asked for meanwhile.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn release(
        &self,
        replica: ReplicaId,
        claim: Claim,
        next: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.give_back(replica, claim, (next, now), 0).await
    }

    /// As [`Store::release`], of a pass that was not taken: from now on so many count as lost.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn release_untaken(
        &self,
        replica: ReplicaId,
        claim: Claim,
        (next, now): (Timestamp, Timestamp),
        lost: i32,
    ) -> Result<(), StoreError> {
        self.give_back(replica, claim, (next, now), lost).await
    }

    async fn give_back(
        &self,
        replica: ReplicaId,
        claim: Claim,
        (next, now): (Timestamp, Timestamp),
        lost: i32,
    ) -> Result<(), StoreError> {
        let again: Option<bool> = sqlx::query_scalar(
            "UPDATE schedule SET claimed_by = NULL, claimed_until = NULL, lost = $5, set_at = $8,
                    due_at = CASE WHEN wanted = $3 THEN $4::timestamptz ELSE '-infinity' END,
                    trace = CASE WHEN wanted = $3 THEN $7::text ELSE trace END
             WHERE uid = $1 AND kind = $6 AND claimed_by = $2 RETURNING wanted <> $3",
        )
        .bind(claim.uid.0)
        .bind(replica.0)
        .bind(claim.wanted)
        .bind(to_sql(next))
        .bind(lost)
        .bind(claim.queue.as_str())
        .bind(claim.trace.map(|trace| trace.to_string()))
        .bind(to_sql(now))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("release a claim"))?;
        if claim.is_suspect() {
            // Of those that are taken alone, the next one waits for this one's end, whichever loop's it is.
            self.wake_all_loops();
        } else if again == Some(true) {
            self.signals.send(Topic::Due(claim.queue));
        }
        Ok(())
    }

    fn wake_all_loops(&self) {
        Queue::ALL.into_iter().for_each(|queue| self.signals.send(Topic::Due(queue)));
    }

    /// Gives back what replicas claimed that are no more: the crash of one delays nothing for its lease's length.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn release_claims_of_dead_replicas(&self, alive_since: Timestamp) -> Result<u64, StoreError> {
        let freed = sqlx::query(
            "UPDATE schedule SET claimed_by = NULL, claimed_until = NULL, lost = lost + 1
             WHERE claimed_by IS NOT NULL
               AND claimed_by NOT IN (SELECT id FROM hub_replica WHERE last_seen >= $1)",
        )
        .bind(to_sql(alive_since))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("free the claims of dead replicas"))?
        .rows_affected();
        if freed > 0 {
            self.wake_all_loops();
        }
        Ok(freed)
    }

    /// Takes what is noted to have been later than `latest` to be now: the clock was put back since. Passes are due as long after now as they were to be after that,
    /// and claims last no longer than `lease` from now on; attempts that are under way have as much time as they had. Says of how many objects that was.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn mend_schedule(
        &self,
        now: Timestamp,
        latest: Timestamp,
        lease: Duration,
    ) -> Result<u64, StoreError> {
        let what = "mend when passes are due";
        let mended = sqlx::query(
            "UPDATE schedule SET due_at = CASE WHEN set_at > $2 AND isfinite(due_at) THEN $1::timestamptz + (due_at - set_at) ELSE due_at END,
                    paced_until = CASE WHEN set_at > $2 AND isfinite(paced_until) THEN $1::timestamptz + (paced_until - set_at)
                                       ELSE paced_until END,
                    claimed_until = least(claimed_until, $3), set_at = least(set_at, $1)
             WHERE set_at > $2 OR claimed_until > $4",
        )
        .bind(to_sql(now))
        .bind(to_sql(latest))
        .bind(to_sql(now + lease))
        .bind(to_sql(latest + lease))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query(what))?
        .rows_affected();
        let moved = sqlx::query(
            "UPDATE reconciliation SET started_at = $1, deadline = $1::timestamptz + (deadline - started_at)
             WHERE finished_at IS NULL AND started_at > $2",
        )
        .bind(to_sql(now))
        .bind(to_sql(latest))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query(what))?
        .rows_affected();
        if mended > 0 {
            self.wake_all_loops();
        }
        Ok(mended.max(moved))
    }

    /// What time it is for the database, which is the same for all replicas.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let what = "ask the database for the time";
        let now = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&self.pool).await;
        from_sql(what, now.map_err(StoreError::query(what))?)
    }

    /// Says that this replica is alive, and which keys it has. Others that are said to have been alive later than within a minute from now are taken to be so now: the clock
    /// was put back, and those of them that are gone would be alive for as long.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn replica_seen(&self, replica: ReplicaId, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query(
            "WITH mended AS (UPDATE hub_replica SET last_seen = $2 WHERE id <> $1 AND last_seen > $2::timestamptz + interval '1 minute')
             INSERT INTO hub_replica (id, started, last_seen, keys, keys_at) VALUES ($1, $2, $2, $3, clock_timestamp())
             ON CONFLICT (id) DO UPDATE SET last_seen = $2, keys = $3, keys_at =
                 CASE WHEN hub_replica.keys IS DISTINCT FROM $3 THEN clock_timestamp() ELSE hub_replica.keys_at END",
        )
        .bind(replica.0)
        .bind(to_sql(now))
        .bind(self.key_ids().iter().map(ToString::to_string).collect::<Vec<_>>())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("record that this replica is alive"))?;
        Ok(())
    }

    /// Says that this replica goes away: what it claimed is free, and its agents' sessions are over.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn replica_gone(&self, replica: ReplicaId) -> Result<(), StoreError> {
        // Passes that took too long for its end are not lost.
        sqlx::query("UPDATE schedule SET claimed_by = NULL, claimed_until = NULL WHERE claimed_by = $1")
            .bind(replica.0)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("give back what this replica claimed"))?;
        sqlx::query("DELETE FROM hub_replica WHERE id = $1")
            .bind(replica.0)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("record that this replica is gone"))?;
        Ok(())
    }

    /// Forgets replicas that were last seen before `before`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_dead_replicas(&self, before: Timestamp) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM hub_replica WHERE last_seen < $1")
            .bind(to_sql(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget dead replicas"))?;
        Ok(())
    }
}
