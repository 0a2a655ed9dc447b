//! Reconciliations: one row per attempt. An open one is what the link sends, again in each new session until its
//! result has been recorded.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_model::{
    Attempt, ChangeSet, ClusterUid, Digest, DispatchSpec, Generation, HubEpoch, KustomizationUid, Queue,
    Reason, Revision, SessionId, StageTiming, Topic,
};
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::blob::{BlobHead, digest};
use crate::mac::Row as SignedRow;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// What an attempt reconciles: known when it begins, and never changed.
#[derive(Debug, Clone)]
pub struct AttemptInputs {
    /// Whose.
    pub kustomization: KustomizationUid,
    /// On which cluster; none where it failed before one was chosen.
    pub cluster: Option<ClusterUid>,
    /// The spec's generation.
    pub generation: Generation,
    /// The source's revision.
    pub revision: Option<Revision>,
    /// The source's artifact.
    pub artifact: Option<Digest>,
    /// The build, where there is one.
    pub build: Option<Digest>,
    /// The value of the reconcile annotation that it answers.
    pub request: Option<String>,
    /// It deletes and applies nothing.
    pub deletes: bool,
    /// When it began.
    pub started: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// `ReconciliationSucceeded`, or why not.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// What it did.
    pub change_set: ChangeSet,
    /// How long its stages took.
    pub timings: Vec<StageTiming>,
    /// The health of what was waited for, by object, as far as it was told.
    pub health: BTreeMap<String, String>,
}

/// An attempt as it stands.
#[derive(Debug, Clone)]
pub struct Reconciliation {
    /// Which one of the Kustomization's.
    pub attempt: Attempt,
    /// What it reconciles.
    pub inputs: AttemptInputs,
    /// While it is open: when it is given up.
    pub deadline: Timestamp,
    /// When it ended, and with what reason.
    pub finished: Option<(Timestamp, Reason)>,
}

/// An attempt with all that is known of how it went.
#[derive(Debug, Clone)]
pub struct History {
    /// The attempt.
    pub reconciliation: Reconciliation,
    /// Its message, once it has ended.
    pub message: String,
    /// What it did.
    pub change_set: ChangeSet,
    /// How long its stages took.
    pub timings: Vec<StageTiming>,
    /// The health of what was waited for, by object, as far as it was told.
    pub health: BTreeMap<String, String>,
}

/// An open reconciliation for the link.
#[derive(Debug, Clone)]
pub struct ToSend {
    /// What makes it that dispatch.
    pub key: roadstead_model::DispatchKey,
    /// The cluster.
    pub cluster: ClusterUid,
    /// What it consists of.
    pub spec: DispatchSpec,
}

/// A dispatch as its row has it.
#[derive(sqlx::FromRow)]
pub(crate) struct Dispatched {
    pub(crate) kustomization: Uuid,
    attempt: i64,
    cluster_uid: Uuid,
    epoch: i64,
    generation: i64,
    build_digest: Option<Vec<u8>>,
    dispatch: Value,
    mac: Option<Vec<u8>>,
}

impl Dispatched {
    /// What of it is signed: all that an agent is told.
    pub(crate) fn row(&self) -> SignedRow {
        SignedRow::of("reconciliation")
            .bytes(self.kustomization.as_bytes())
            .number(self.attempt)
            .bytes(self.cluster_uid.as_bytes())
            .number(self.epoch)
            .number(self.generation)
            .optional(self.build_digest.as_deref(), SignedRow::bytes)
            .json(&self.dispatch)
    }

    fn into_sent(self, what: &'static str) -> Result<ToSend, StoreError> {
        let spec = serde_json::from_value(self.dispatch)
            .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?;
        let key = roadstead_model::DispatchKey {
            epoch: HubEpoch(self.epoch),
            kustomization: KustomizationUid(self.kustomization),
            generation: Generation(self.generation),
            attempt: Attempt(self.attempt),
            build: self.build_digest.map(|bytes| digest(what, &bytes)).transpose()?,
        };
        Ok(ToSend { key, cluster: ClusterUid(self.cluster_uid), spec })
    }
}

impl Tx {
    /// Records a dispatch, and what was done on the hub before it. An attempt of the same Kustomization that is still open
    /// is closed: this one supersedes it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn open_reconciliation(
        &mut self,
        inputs: &AttemptInputs,
        spec: &DispatchSpec,
        deadline: Timestamp,
        done: &ChangeSet,
    ) -> Result<Attempt, StoreError> {
        sqlx::query(
            "UPDATE reconciliation SET finished_at = $2, reason = 'Progressing', message = 'superseded by a newer attempt'
             WHERE kustomization = $1 AND finished_at IS NULL",
        )
        .bind(inputs.kustomization.0)
        .bind(to_sql(inputs.started))
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("supersede a reconciliation"))?;
        self.wake(Topic::Dispatch);
        self.insert_reconciliation(inputs, Some((spec, deadline)), None, done).await
    }

    /// Records an attempt that ended in the hub, before anything was dispatched. An open one stays as it is.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn record_failed_reconciliation(
        &mut self,
        inputs: &AttemptInputs,
        outcome: &Outcome,
    ) -> Result<Attempt, StoreError> {
        self.insert_reconciliation(inputs, None, Some(outcome), &outcome.change_set).await
    }

    async fn insert_reconciliation(
        &mut self,
        inputs: &AttemptInputs,
        dispatch: Option<(&DispatchSpec, Timestamp)>,
        outcome: Option<&Outcome>,
        done: &ChangeSet,
    ) -> Result<Attempt, StoreError> {
        let what = "record a reconciliation";
        let (epoch, attempt): (i64, i64) = sqlx::query_as(
            "SELECT epoch, 1 + coalesce((SELECT max(attempt) FROM reconciliation WHERE kustomization = $1), 0)
             FROM hub_state",
        )
        .bind(inputs.kustomization.0)
        .fetch_one(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        let build = inputs.build.map(|build| build.as_bytes().to_vec());
        let mac = match (dispatch, inputs.cluster) {
            (Some((spec, _)), Some(cluster)) => {
                let stored = serde_json::to_value(spec)
                    .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?;
                let dispatched = Dispatched {
                    kustomization: inputs.kustomization.0,
                    attempt,
                    cluster_uid: cluster.0,
                    epoch,
                    generation: inputs.generation.0,
                    build_digest: build.clone(),
                    dispatch: stored,
                    mac: None,
                };
                Some(self.sealer.sign(&dispatched.row()))
            }
            _ => None,
        };
        sqlx::query(
            "INSERT INTO reconciliation (kustomization, attempt, cluster_uid, epoch, generation, build_digest, revision,
                                         request, deletes, dispatch, started_at, deadline, finished_at, reason, message,
                                         artifact_digest, change_set, mac)
             VALUES ($1, $16, $2, $17, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $18)",
        )
        .bind(inputs.kustomization.0)
        .bind(inputs.cluster.map(|cluster| cluster.0))
        .bind(inputs.generation.0)
        .bind(build)
        .bind(inputs.revision.as_ref().map(ToString::to_string))
        .bind(&inputs.request)
        .bind(inputs.deletes)
        .bind(dispatch.map(|(spec, _)| Json(spec)))
        .bind(to_sql(inputs.started))
        .bind(to_sql(dispatch.map_or(inputs.started, |(_, deadline)| deadline)))
        .bind(outcome.map(|_| to_sql(inputs.started)))
        .bind(outcome.map(|outcome| outcome.reason.as_str()))
        .bind(outcome.map(|outcome| outcome.message.as_str()))
        .bind(inputs.artifact.map(|artifact| artifact.as_bytes().to_vec()))
        .bind(Some(done).filter(|done| !done.is_empty()).map(Json))
        .bind(attempt)
        .bind(epoch)
        .bind(mac)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        Ok(Attempt(attempt))
    }

    /// The dispatch of this attempt, where it is open for `cluster`, all of the key is its, and `session` is the cluster's
    /// newest; it then stays open until this unit of work ends.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hold_open_attempt(
        &mut self,
        key: &roadstead_model::DispatchKey,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<Option<DispatchSpec>, StoreError> {
        let open: Option<Json<DispatchSpec>> = sqlx::query_scalar(
            "SELECT dispatch FROM reconciliation
             WHERE kustomization = $1 AND attempt = $2 AND cluster_uid = $3 AND epoch = $4 AND generation = $5
                   AND build_digest IS NOT DISTINCT FROM $6 AND finished_at IS NULL AND dispatch IS NOT NULL
                   AND EXISTS (SELECT FROM agent_session s WHERE s.cluster_uid = $3 AND s.session = $7)
             FOR UPDATE",
        )
        .bind(key.kustomization.0)
        .bind(key.attempt.0)
        .bind(cluster.0)
        .bind(key.epoch.0)
        .bind(key.generation.0)
        .bind(key.build.map(|build| build.as_bytes().to_vec()))
        .bind(session.0)
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(StoreError::query("look for an open reconciliation"))?;
        Ok(open.map(|Json(spec)| spec))
    }

    /// Records how an attempt ended; what was done on its cluster comes behind what was done on the hub before. Returns all
    /// of that; none where the attempt was closed before (a late or a repeated result).
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn finish_reconciliation(
        &mut self,
        kustomization: KustomizationUid,
        attempt: Attempt,
        cluster: ClusterUid,
        outcome: &Outcome,
        at: Timestamp,
    ) -> Result<Option<ChangeSet>, StoreError> {
        let closed: Option<Json<ChangeSet>> = sqlx::query_scalar(
            "UPDATE reconciliation SET finished_at = $4, reason = $5, message = $6, timings = $8, health = $9,
                    change_set = coalesce(change_set, '[]') || $7
             WHERE kustomization = $1 AND attempt = $2 AND cluster_uid = $3 AND finished_at IS NULL RETURNING change_set",
        )
        .bind(kustomization.0)
        .bind(attempt.0)
        .bind(cluster.0)
        .bind(to_sql(at))
        .bind(outcome.reason.as_str())
        .bind(&outcome.message)
        .bind(Json(&outcome.change_set))
        .bind(Json(&outcome.timings))
        .bind(Some(&outcome.health).filter(|health| !health.is_empty()).map(Json))
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(StoreError::query("close a reconciliation"))?;
        Ok(closed.map(|Json(change_set)| change_set))
    }

    /// Records what was done on the hub after the newest attempt of a Kustomization had ended.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn add_changes(
        &mut self,
        kustomization: KustomizationUid,
        changes: &ChangeSet,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE reconciliation SET change_set = coalesce(change_set, '[]') || $2 WHERE kustomization = $1
             AND attempt = (SELECT max(attempt) FROM reconciliation WHERE kustomization = $1)",
        )
        .bind(kustomization.0)
        .bind(Json(changes))
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("add to a change set"))?;
        Ok(())
    }

    /// Forgets all attempts of a Kustomization that is gone.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_reconciliations(
        &mut self,
        kustomization: KustomizationUid,
    ) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM reconciliation WHERE kustomization = $1")
            .bind(kustomization.0)
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("forget reconciliations"))?;
        self.wake(Topic::Dispatch);
        Ok(())
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    kustomization: Uuid,
    attempt: i64,
    cluster_uid: Option<Uuid>,
    generation: i64,
    revision: Option<String>,
    artifact_digest: Option<Vec<u8>>,
    build_digest: Option<Vec<u8>>,
    request: Option<String>,
    deletes: bool,
    started_at: ::time::OffsetDateTime,
    deadline: ::time::OffsetDateTime,
    finished_at: Option<::time::OffsetDateTime>,
    reason: Option<String>,
}

impl Row {
    fn read(self) -> Result<Reconciliation, StoreError> {
        let what = "read a reconciliation";
        let corrupt = |why: String| StoreError::Corrupt { what, why };
        let finished = match self.finished_at {
            None => None,
            Some(at) => {
                let text = self.reason.unwrap_or_default();
                let reason = Reason::parse(&text).ok_or_else(|| corrupt(format!("no reason: {text}")))?;
                Some((from_sql(what, at)?, reason))
            }
        };
        let revision = self
            .revision
            .map(|text| {
                text.parse().map_err(|error: roadstead_model::RevisionError| corrupt(error.to_string()))
            })
            .transpose()?;
        let digest = |bytes: Option<Vec<u8>>| bytes.map(|bytes| digest(what, &bytes)).transpose();
        Ok(Reconciliation {
            attempt: Attempt(self.attempt),
            inputs: AttemptInputs {
                kustomization: KustomizationUid(self.kustomization),
                cluster: self.cluster_uid.map(ClusterUid),
                generation: Generation(self.generation),
                revision,
                artifact: digest(self.artifact_digest)?,
                build: digest(self.build_digest)?,
                request: self.request,
                deletes: self.deletes,
                started: from_sql(what, self.started_at)?,
            },
            deadline: from_sql(what, self.deadline)?,
            finished,
        })
    }
}

impl Store {
    /// The newest attempt of a Kustomization.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn newest_reconciliation(
        &self,
        kustomization: KustomizationUid,
    ) -> Result<Option<Reconciliation>, StoreError> {
        self.read_reconciliation(kustomization, None).await
    }

    /// One attempt of a Kustomization.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn reconciliation(
        &self,
        kustomization: KustomizationUid,
        attempt: Attempt,
    ) -> Result<Option<Reconciliation>, StoreError> {
        self.read_reconciliation(kustomization, Some(attempt)).await
    }

    /// The attempt of this key, where it is open for `cluster` and all of the key is its.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn open_attempt(
        &self,
        key: &roadstead_model::DispatchKey,
        cluster: ClusterUid,
    ) -> Result<Option<Reconciliation>, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT kustomization, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, started_at, deadline, finished_at, reason
             FROM reconciliation
             WHERE kustomization = $1 AND attempt = $2 AND cluster_uid = $3 AND epoch = $4 AND generation = $5
                   AND build_digest IS NOT DISTINCT FROM $6 AND finished_at IS NULL",
        )
        .bind(key.kustomization.0)
        .bind(key.attempt.0)
        .bind(cluster.0)
        .bind(key.epoch.0)
        .bind(key.generation.0)
        .bind(key.build.map(|build| build.as_bytes().to_vec()))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look for an open reconciliation"))?;
        row.map(Row::read).transpose()
    }

    /// How a build is stored, where a dispatch that is open for `cluster` has it and `session` is the cluster's newest; and
    /// all of it, where it is stored as it is and has at most `small` bytes.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn open_build(
        &self,
        cluster: ClusterUid,
        session: SessionId,
        build: Digest,
        small: usize,
    ) -> Result<Option<(BlobHead, Option<Vec<u8>>)>, StoreError> {
        let row: Option<(i64, bool, Option<Vec<u8>>)> = sqlx::query_as(
            "SELECT b.size, b.sealed,
                    CASE WHEN NOT b.sealed AND b.size <= $4
                         THEN (SELECT data FROM blob_chunk c WHERE c.digest = b.digest AND c.part = 0) END
             FROM blob b
             WHERE b.digest = $1
               AND EXISTS (SELECT FROM reconciliation r
                           WHERE r.cluster_uid = $2 AND r.build_digest = $1 AND r.finished_at IS NULL)
               AND EXISTS (SELECT FROM agent_session s WHERE s.cluster_uid = $2 AND s.session = $3)",
        )
        .bind(build.as_bytes().as_slice())
        .bind(cluster.0)
        .bind(session.0)
        .bind(i64::try_from(small.min(Self::BLOB_PART)).unwrap_or(0))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look for a dispatch's build"))?;
        Ok(row.map(|(bytes, sealed, data)| {
            (BlobHead { bytes: usize::try_from(bytes).unwrap_or(usize::MAX), sealed }, data)
        }))
    }

    async fn read_reconciliation(
        &self,
        kustomization: KustomizationUid,
        attempt: Option<Attempt>,
    ) -> Result<Option<Reconciliation>, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT kustomization, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, started_at, deadline, finished_at, reason
             FROM reconciliation WHERE kustomization = $1 AND ($2::bigint IS NULL OR attempt = $2)
             ORDER BY attempt DESC LIMIT 1",
        )
        .bind(kustomization.0)
        .bind(attempt.map(|attempt| attempt.0))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("read a reconciliation"))?;
        row.map(Row::read).transpose()
    }

    /// The newest attempts of a Kustomization, the newest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn history(
        &self,
        kustomization: KustomizationUid,
        limit: i64,
    ) -> Result<Vec<History>, StoreError> {
        #[derive(sqlx::FromRow)]
        struct Full {
            #[sqlx(flatten)]
            row: Row,
            message: Option<String>,
            change_set: Option<Json<ChangeSet>>,
            timings: Option<Json<Vec<StageTiming>>>,
            health: Option<Json<BTreeMap<String, String>>>,
        }
        let rows: Vec<Full> = sqlx::query_as(
            "SELECT kustomization, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, started_at, deadline, finished_at, reason, message, change_set, timings, health
             FROM reconciliation WHERE kustomization = $1 ORDER BY attempt DESC LIMIT $2",
        )
        .bind(kustomization.0)
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("read the history of a Kustomization"))?;
        rows.into_iter()
            .map(|full| {
                Ok(History {
                    reconciliation: full.row.read()?,
                    message: full.message.unwrap_or_default(),
                    change_set: full.change_set.map(|Json(set)| set).unwrap_or_default(),
                    timings: full.timings.map(|Json(timings)| timings).unwrap_or_default(),
                    health: full.health.map(|Json(health)| health).unwrap_or_default(),
                })
            })
            .collect()
    }

    /// Takes the open reconciliations of `cluster` that were not yet sent in `session`, and marks them as sent in it. Those
    /// that no hub with this key dispatched are closed instead, and reconciled again.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_to_send(
        &self,
        cluster: ClusterUid,
        session: SessionId,
        limit: i64,
    ) -> Result<Vec<ToSend>, StoreError> {
        let what = "take dispatches to send";
        let rows: Vec<Dispatched> = sqlx::query_as(
            "UPDATE reconciliation SET sent_in = $2
             WHERE (kustomization, attempt) IN
                   (SELECT kustomization, attempt FROM reconciliation
                    WHERE cluster_uid = $1 AND finished_at IS NULL AND sent_in IS DISTINCT FROM $2
                    ORDER BY started_at LIMIT $3 FOR UPDATE)
             RETURNING kustomization, attempt, cluster_uid, epoch, generation, build_digest, dispatch, mac",
        )
        .bind(cluster.0)
        .bind(session.0)
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let (signed, forged): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|sent| self.sealer.is_signed(what, &sent.row(), sent.mac.as_deref()));
        for sent in forged {
            self.close_forged(&sent).await?;
        }
        signed.into_iter().map(|sent| sent.into_sent(what)).collect()
    }

    async fn close_forged(&self, sent: &Dispatched) -> Result<(), StoreError> {
        sqlx::query(
            "WITH closed AS (UPDATE reconciliation SET finished_at = now(), reason = $3, message = $4
                 WHERE kustomization = $1 AND attempt = $2 AND finished_at IS NULL RETURNING kustomization)
             UPDATE schedule SET due_at = '-infinity', wanted = wanted + 1 FROM closed 
             WHERE uid = closed.kustomization AND kind = $5",
        )
        .bind(sent.kustomization)
        .bind(sent.attempt)
        .bind(Reason::ReconciliationFailed.as_str())
        .bind("the dispatch in the database was not written by a hub with this key: it was not sent")
        .bind(Queue::Kustomization.as_str())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("close a dispatch that is not the hub's"))?;
        self.signals.send(Topic::Due(Queue::Kustomization));
        Ok(())
    }

    /// The hub's epoch.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn epoch(&self) -> Result<HubEpoch, StoreError> {
        sqlx::query_scalar("SELECT epoch FROM hub_state")
            .fetch_one(&self.pool)
            .await
            .map(HubEpoch)
            .map_err(StoreError::query("read the hub's epoch"))
    }

    /// Keeps the newest `keep` finished attempts of each Kustomization.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn trim_reconciliations(&self, keep: i64) -> Result<u64, StoreError> {
        let trimmed = sqlx::query(
            "DELETE FROM reconciliation r USING
               (SELECT kustomization, max(attempt) AS newest FROM reconciliation GROUP BY kustomization) n
             WHERE r.kustomization = n.kustomization AND r.attempt <= n.newest - $1 AND r.finished_at IS NOT NULL",
        )
        .bind(keep)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("trim reconciliations"))?;
        Ok(trimmed.rows_affected())
    }
}
