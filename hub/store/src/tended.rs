//! Appliers whose agent watches all that they applied and sees it stand.

use jiff::Timestamp;
use roadstead_model::{ApplierUid, ClusterUid, DispatchKey, SessionId};
use uuid::Uuid;

use crate::time::to_sql;
use crate::{StoreError, Tx};

/// Whether an agent tends an applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TendedState {
    /// It does.
    Now,
    /// It did until then: something does not stand, or cannot be watched any more.
    Until(Timestamp),
    /// It did until its session ended, then.
    UntilSessionEnded(Timestamp),
}

/// What an attempt was rendered by whose keys in its cluster have changed since. It names no object of the hub, so it is never as it was.
const CLUSTER_KEYS: &str = "cluster-keys";

impl Tx {
    /// Records what the agent of a cluster tends from now on, and what it does not any more. Gives those of the latter that it tended
    /// until now. Nothing is recorded where the session is not the cluster's newest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_tended(
        &mut self,
        cluster: ClusterUid,
        session: SessionId,
        begun: &[ApplierUid],
        ended: &[ApplierUid],
        now: Timestamp,
    ) -> Result<Vec<ApplierUid>, StoreError> {
        let uids = |appliers: &[ApplierUid]| appliers.iter().map(|applier| applier.0).collect::<Vec<_>>();
        // Only of those that were ever dispatched there. The OFFSET makes Postgres look each one up by its key, and with the subqueries, of whose
        // length it always expects the same, it keeps one plan.
        let ended: Vec<Uuid> = sqlx::query_scalar(
            "WITH session AS (SELECT FROM agent_session WHERE cluster_uid = $1 AND session = $2
                              AND disconnected_at IS NULL),
                  begun AS (INSERT INTO tended (applier, cluster_uid)
                            SELECT k.uid, $1 FROM resource k
                            WHERE k.uid = ANY (ARRAY(SELECT unnest($3::uuid[]))) AND EXISTS (SELECT FROM session)
                              AND EXISTS (SELECT FROM reconciliation r WHERE r.applier = k.uid AND r.cluster_uid = $1 OFFSET 0)
                            ON CONFLICT (applier) DO UPDATE SET cluster_uid = $1, until = NULL, forsaken = false)
             UPDATE tended SET until = $5, forsaken = false
             WHERE applier = ANY (ARRAY(SELECT unnest($4::uuid[]))) AND cluster_uid = $1 AND until IS NULL
               AND EXISTS (SELECT FROM session)
             RETURNING applier",
        )
        .bind(cluster.0)
        .bind(session.0)
        .bind(uids(begun))
        .bind(uids(ended))
        .bind(to_sql(now))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("record what an agent tends"))?;
        Ok(ended.into_iter().map(ApplierUid).collect())
    }

    /// Records that keys or variables of the cluster are others than those that an attempt was made with: from now on it counts as rendered by what has
    /// changed. False where that is known, where another attempt was made since, or where the session is not the cluster's newest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_keys_changed(
        &mut self,
        cluster: ClusterUid,
        session: SessionId,
        key: &DispatchKey,
    ) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "UPDATE reconciliation r SET rendered_by = coalesce(r.rendered_by, '{}') || jsonb_build_object($5::text, '')
             WHERE r.applier = $1 AND r.attempt = $2 AND r.cluster_uid = $3 AND r.finished_at IS NOT NULL
               AND NOT coalesce(r.rendered_by, '{}') ? $5
               AND NOT EXISTS (SELECT FROM reconciliation n WHERE n.applier = $1 AND n.attempt > $2)
               AND EXISTS (SELECT FROM agent_session WHERE cluster_uid = $3 AND session = $4 AND disconnected_at IS NULL)",
        )
        .bind(key.applier.0)
        .bind(key.attempt.0)
        .bind(cluster.0)
        .bind(session.0)
        .bind(CLUSTER_KEYS)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("record that keys of a cluster have changed"))?;
        Ok(noted.rows_affected() > 0)
    }

    /// The session of a cluster's agent has ended, or another one `begins`: it is not known to tend anything. An agent that comes back has
    /// a while to say what it tends, from when it came.
    pub(crate) async fn end_tending(
        &mut self,
        cluster: ClusterUid,
        now: Timestamp,
        begins: bool,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE tended SET until = $2, forsaken = true
             WHERE cluster_uid = $1 AND (until IS NULL OR ($3 AND forsaken))",
        )
        .bind(cluster.0)
        .bind(to_sql(now))
        .bind(begins)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("forget what an agent tended"))?;
        Ok(())
    }
}
