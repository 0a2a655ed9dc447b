//! What agents correct by themselves between dispatches, and the appliers for which they are not to.

use jiff::Timestamp;
use roadstead_model::{
    ApplierUid, Attempt, ChangeSet, ClusterUid, DispatchKey, Reason, SessionId, StepTiming, Topic, Trigger,
};
use sqlx::types::Json;
use uuid::Uuid;

use crate::time::to_sql;
use crate::{Store, StoreError, Tx};

/// How many objects the change set of one attempt has that is added to.
const MAX_CHANGES: i32 = 1_000;

/// What an agent corrected.
#[derive(Debug, Clone)]
pub struct RecordedCorrection<'a> {
    /// The dispatch that applied what was corrected.
    pub key: &'a DispatchKey,
    /// On which cluster.
    pub cluster: ClusterUid,
    /// What was done.
    pub changes: &'a ChangeSet,
    /// For people.
    pub message: &'a str,
    /// How long it took.
    pub timings: &'a [StepTiming],
    /// When it began, which may be long before it is told.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
}

impl Tx {
    /// Records what was corrected as an attempt of its own, or adds it to the newest one where that is such a one and ended a moment
    /// before. None, and nothing recorded, where the newest attempt did not apply what was corrected, or is still open.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn record_correction(
        &mut self,
        correction: &RecordedCorrection<'_>,
    ) -> Result<Option<Attempt>, StoreError> {
        let RecordedCorrection { key, cluster, changes, message, timings, began, ended } = correction;
        let attempt: Option<i64> = sqlx::query_scalar(
            "WITH last AS (SELECT * FROM reconciliation WHERE applier = $1 ORDER BY attempt DESC LIMIT 1),
                  fits AS (SELECT * FROM last
                           WHERE cluster_uid = $2 AND reason = $3 AND NOT deletes AND NOT reads
                                 AND (attempt = $4 OR dispatch_digest = $5)),
                  added AS (UPDATE reconciliation r
                            SET change_set = coalesce(r.change_set, '[]') || $6, message = $7, finished_at = greatest(r.finished_at, $9)
                            FROM fits
                            WHERE r.applier = fits.applier AND r.attempt = fits.attempt AND r.corrects
                                  AND r.finished_at > $8::timestamptz - interval '10 seconds'
                                  AND jsonb_array_length(coalesce(r.change_set, '[]')) < $11
                            RETURNING r.attempt),
                  new AS (INSERT INTO reconciliation (applier, attempt, cluster_uid, epoch, generation, build_digest, revision,
                                                      deletes, started_at, deadline, finished_at, reason, message, artifact_digest,
                                                      rendered_by, dispatch_digest, checked_at, change_set, timings, corrects,
                                                      request, trigger)
                          SELECT $1, attempt + 1, cluster_uid, epoch, generation, build_digest, revision, false, $8, $8, $9, $3,
                                 $7, artifact_digest, rendered_by, dispatch_digest, coalesce(checked_at, finished_at), $6, $10,
                                 true, request, $12
                          FROM fits WHERE NOT EXISTS (SELECT FROM added)
                          RETURNING attempt)
             SELECT attempt FROM added UNION ALL SELECT attempt FROM new",
        )
        .bind(key.applier.0)
        .bind(cluster.0)
        .bind(Reason::ReconciliationSucceeded.as_str())
        .bind(key.attempt.0)
        .bind(key.digest.map(|digest| digest.as_bytes().to_vec()))
        .bind(Json(changes))
        .bind(message)
        .bind(to_sql(*began))
        .bind(to_sql(*ended))
        .bind(Json(timings))
        .bind(MAX_CHANGES)
        .bind(Trigger::Drift.as_str())
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query("record a correction"))?;
        Ok(attempt.map(Attempt))
    }

    /// Has nothing of an applier corrected on a cluster before its next dispatch; how healthy it is, is told as before where
    /// `health_goes_on`. False where that was known.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn rest(
        &mut self,
        applier: ApplierUid,
        cluster: ClusterUid,
        health_goes_on: bool,
    ) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "INSERT INTO resting (applier, cluster_uid, health_goes_on) VALUES ($1, $2, $3)
             ON CONFLICT (applier) DO UPDATE SET cluster_uid = $2, since = now(), sent_in = NULL, health_goes_on = $3
             WHERE resting.cluster_uid <> $2 OR resting.health_goes_on <> $3",
        )
        .bind(applier.0)
        .bind(cluster.0)
        .bind(health_goes_on)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("have an applier rest"))?;
        let is_new = noted.rows_affected() > 0;
        if is_new {
            self.wake(Topic::Dispatch);
        }
        Ok(is_new)
    }
}

impl Store {
    /// The appliers that rest of which this session's agent was not told yet, each with whether it goes on telling their health. From
    /// now on it counts as told.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_resting(
        &self,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<Vec<(ApplierUid, bool)>, StoreError> {
        let appliers: Vec<(Uuid, bool)> = sqlx::query_as(
            "UPDATE resting SET sent_in = $2 WHERE cluster_uid = $1 AND sent_in IS DISTINCT FROM $2
             RETURNING applier, health_goes_on",
        )
        .bind(cluster.0)
        .bind(session.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for appliers that rest"))?;
        Ok(appliers.into_iter().map(|(applier, health)| (ApplierUid(applier), health)).collect())
    }

    /// Forgets appliers that are gone, once their cluster is gone too, or its agent was told a while ago and is still connected.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_resting(&self) -> Result<u64, StoreError> {
        let forgotten = sqlx::query(
            "DELETE FROM resting r
             WHERE NOT EXISTS (SELECT FROM resource k WHERE k.uid = r.applier)
               AND (NOT EXISTS (SELECT FROM resource c WHERE c.uid = r.cluster_uid)
                    OR (r.since < now() - interval '1 hour'
                        AND EXISTS (SELECT FROM agent_session s WHERE s.cluster_uid = r.cluster_uid
                                    AND s.session = r.sent_in AND s.disconnected_at IS NULL)))",
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("forget appliers that rested"))?;
        Ok(forgotten.rows_affected())
    }
}
