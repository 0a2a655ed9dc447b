//! What agents tell of health after a dispatch has ended: which attempt that concerns, and what becomes of it there.

use roadstead_model::{Attempt, ClusterUid, DispatchKey, ObjectRef, Reason};
use sqlx::types::Json;

use crate::{StoreError, Tx};

/// The attempt that a report of health is about: the newest one that has to do with its cluster.
#[derive(Debug, Clone)]
pub struct ReportedAttempt {
    /// Which it is: also a later one that applied just the same.
    pub attempt: Attempt,
    /// It is the very attempt of the report, and open.
    pub is_open: bool,
    /// It went well.
    pub has_succeeded: bool,
    /// The source's revision.
    pub revision: String,
}

/// The health of an object, as it is told.
#[derive(Debug, Clone)]
pub struct ReportedHealth<'a> {
    /// The object.
    pub object: &'a ObjectRef,
    /// For people, as `InProgress: Available: 1/2`.
    pub health: String,
    /// It is named by the applier, and may be one that it does not own.
    pub is_named: bool,
}

#[derive(sqlx::FromRow)]
struct Row {
    attempt: i64,
    epoch: i64,
    is_its_cluster: bool,
    applies: bool,
    is_open: bool,
    reason: Option<String>,
    revision: Option<String>,
    dispatch_digest: Option<Vec<u8>>,
}

impl Tx {
    /// The attempt that a report about this dispatch concerns. None where something newer was sent since, or another cluster's
    /// agent tells: what it says is of no consequence. Attempts that failed before anything was sent changed nothing on the cluster.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn reported_attempt(
        &mut self,
        key: &DispatchKey,
        cluster: ClusterUid,
    ) -> Result<Option<ReportedAttempt>, StoreError> {
        let newest: Option<Row> = sqlx::query_as(
            "SELECT attempt, epoch, coalesce(cluster_uid = $2, false) AS is_its_cluster, NOT deletes AND NOT reads AS applies,
                    finished_at IS NULL AS is_open, reason, revision, dispatch_digest
             FROM reconciliation WHERE applier = $1 AND dispatch_digest IS NOT NULL ORDER BY attempt DESC LIMIT 1",
        )
        .bind(key.applier.0)
        .bind(cluster.0)
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query("look which attempt health is told of"))?;
        let Some(newest) = newest.filter(|newest| newest.applies && newest.is_its_cluster) else {
            return Ok(None);
        };
        let is_it = newest.attempt == key.attempt.0 && newest.epoch == key.epoch.0;
        let digest = key.digest.map(|digest| digest.as_bytes().to_vec());
        let is_the_same = !newest.is_open && digest.is_some() && digest == newest.dispatch_digest;
        if !is_it && !is_the_same {
            return Ok(None);
        }
        Ok(Some(ReportedAttempt {
            attempt: Attempt(newest.attempt),
            is_open: newest.is_open,
            has_succeeded: newest.reason.as_deref() == Some(Reason::ReconciliationSucceeded.as_str()),
            revision: newest.revision.unwrap_or_default(),
        }))
    }

    /// Notes with an attempt how objects are, for views: those that its applier owns on the cluster, or names.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_health(
        &mut self,
        key: &DispatchKey,
        cluster: ClusterUid,
        attempt: Attempt,
        told: &[ReportedHealth<'_>],
    ) -> Result<(), StoreError> {
        let texts =
            |text: fn(&ObjectRef) -> &String| told.iter().map(|one| text(one.object)).collect::<Vec<_>>();
        let names: Vec<String> = told.iter().map(|one| one.object.to_string()).collect();
        let healths: Vec<&str> = told.iter().map(|one| one.health.as_str()).collect();
        let named: Vec<bool> = told.iter().map(|one| one.is_named).collect();
        sqlx::query(
            "WITH told AS (SELECT jsonb_object_agg(t.shown, t.health) AS health
                           FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::boolean[])
                                AS t (shown, api_group, kind, namespace, name, health, named)
                           WHERE t.named OR EXISTS (SELECT FROM inventory i
                                 WHERE (i.cluster_uid, i.api_group, i.kind, i.namespace, i.name)
                                       = ($2, t.api_group, t.kind, t.namespace, t.name) AND i.applier = $1))
             UPDATE reconciliation r
             SET health = coalesce(r.health, (SELECT b.health FROM reconciliation b WHERE b.applier = $1 AND b.health IS NOT NULL
                                              ORDER BY b.attempt DESC LIMIT 1), $11) || told.health
             FROM told WHERE r.applier = $1 AND r.attempt = $3 AND told.health IS NOT NULL",
        )
        .bind(key.applier.0)
        .bind(cluster.0)
        .bind(attempt.0)
        .bind(names)
        .bind(texts(|object| &object.group))
        .bind(texts(|object| &object.kind))
        .bind(texts(|object| &object.namespace))
        .bind(texts(|object| &object.name))
        .bind(healths)
        .bind(named)
        .bind(Json(serde_json::json!({})))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note health with an attempt"))?;
        Ok(())
    }
}
