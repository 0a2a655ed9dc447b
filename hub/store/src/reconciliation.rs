//! Reconciliations: one row per attempt. An open one is what the link sends, again in each new session until its
//! result has been recorded.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_model::{
    Action, ApplierUid, Attempt, AttemptKind, ChangeSet, ClusterUid, Digest, DispatchSpec, Generation,
    HubEpoch, ObjectRef, ObjectResult, Queue, ReadObject, Reason, Revision, StepTiming, Topic, TraceContext,
    Trigger,
};
use sqlx::types::Json;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::blob::digest;
use crate::counted::Connections;
use crate::dispatched::{self, Dispatched};
use crate::time::{from_sql, to_sql};
use crate::together::Answers;
use crate::{Store, StoreError, Tx};

/// The verbs of the audit log that change an object, or have it reconciled.
const WRITES: [&str; 6] = ["create", "update", "patch", "delete", "deletecollection", "reconcile"];

/// Of so many attempts that somebody asked for it is told when they began.
const ASKED_FOR: i64 = 4;

/// Who wrote an applier last, by the audit log: the account, and who acted as it.
const WHO_CHANGED_IT: &str = "(SELECT a.username || CASE WHEN a.impersonator <> ''
                                                THEN ' (impersonated by ' || a.impersonator || ')' ELSE '' END
                               FROM resource r JOIN audit a USING (kind, namespace, name)
                               WHERE r.uid = $1 AND a.outcome = 'ok' AND a.verb = ANY($25)
                               ORDER BY a.id DESC LIMIT 1)";

/// Who confirmed the deletions that an applier held.
const WHO_CONFIRMED: &str = "(SELECT confirmed_by FROM held_deletion WHERE applier = $1)";

/// What an attempt reconciles: known when it begins, and never changed.
#[derive(Debug, Clone)]
pub struct AttemptInputs {
    /// Whose.
    pub applier: ApplierUid,
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
    /// What it is to do.
    pub kind: AttemptKind,
    /// What led to it; none of an attempt of an older version.
    pub trigger: Option<Trigger>,
    /// The objects of the hub that it was rendered by, by their keys (`Kind/namespace/name`), with the uid and the resource version that
    /// each had.
    pub rendered_by: BTreeMap<String, String>,
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
    pub timings: Vec<StepTiming>,
    /// The health of what was waited for, by object, as far as it was told.
    pub health: BTreeMap<String, String>,
}

/// An attempt as it stands.
#[derive(Debug, Clone)]
pub struct Reconciliation {
    /// Which one of the applier's.
    pub attempt: Attempt,
    /// What it reconciles.
    pub inputs: AttemptInputs,
    /// While it is open: when it is given up.
    pub deadline: Timestamp,
    /// When it ended, and with what reason.
    pub finished: Option<(Timestamp, Reason)>,
    /// When the cluster was last known to have what it applied: where nothing had to be sent, that is before it began.
    pub checked: Option<Timestamp>,
    /// The digest of what was dispatched; none where it failed before, or a version dispatched it that did not keep it.
    pub dispatch: Option<Digest>,
    /// It was made in an earlier epoch: something newer may have been applied since.
    pub is_past: bool,
    /// When those of its applier's attempts began that somebody asked for, by the spec or by a request: the newest ones, newest
    /// first, of those that are kept.
    pub asked_for: Vec<Timestamp>,
}

/// An attempt with all that is known of how it went.
#[derive(Debug, Clone)]
pub struct History {
    /// The attempt.
    pub reconciliation: Reconciliation,
    /// Who led to it, where somebody's change did.
    pub actor: Option<String>,
    /// Its message, once it has ended.
    pub message: String,
    /// What it did.
    pub change_set: ChangeSet,
    /// How long its stages took.
    pub timings: Vec<StepTiming>,
    /// The health of what was waited for, by object, as far as it was told.
    pub health: BTreeMap<String, String>,
}

/// An attempt that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// All that was done, on the hub and on the cluster.
    pub change_set: ChangeSet,
    /// How many passes over its applier were asked for until then.
    pub wanted: i64,
    /// What it was part of, where traces were made when it began.
    pub trace: Option<TraceContext>,
    /// Whether something of its applier is known to differ from what was applied.
    pub drifts: bool,
}

impl Tx {
    /// Records a dispatch, and what was done on the hub before it. An attempt of the same applier that is still open
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

    /// Records an attempt that sent nothing: the newest one before it, which went well, dispatched the same. None, and nothing
    /// recorded, where the newest one is another by now.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn record_unchanged(
        &mut self,
        inputs: &AttemptInputs,
        dispatch: Digest,
        message: &str,
    ) -> Result<Option<Attempt>, StoreError> {
        let attempt: Option<i64> = sqlx::query_scalar(
            "INSERT INTO reconciliation (applier, attempt, cluster_uid, epoch, generation, build_digest, revision, request,
                                         deletes, started_at, deadline, finished_at, reason, message, artifact_digest,
                                         rendered_by, dispatch_digest, checked_at, trigger, trace)
             SELECT $1, last.attempt + 1, $2, hub_state.epoch, $3, $4, $5, $6, false, $7, $7, $7, $8, $9, $10, $11,
                    last.dispatch_digest, coalesce(last.checked_at, last.finished_at), $13, $14
             FROM hub_state, (SELECT * FROM reconciliation WHERE applier = $1 ORDER BY attempt DESC LIMIT 1) last
             WHERE last.dispatch_digest = $12 AND last.reason = $8 AND last.cluster_uid = $2
             RETURNING attempt",
        )
        .bind(inputs.applier.0)
        .bind(inputs.cluster.map(|cluster| cluster.0))
        .bind(inputs.generation.0)
        .bind(inputs.build.map(|build| build.as_bytes().to_vec()))
        .bind(inputs.revision.as_ref().map(ToString::to_string))
        .bind(&inputs.request)
        .bind(to_sql(inputs.started))
        .bind(Reason::ReconciliationSucceeded.as_str())
        .bind(message)
        .bind(inputs.artifact.map(|artifact| artifact.as_bytes().to_vec()))
        .bind(Some(&inputs.rendered_by).filter(|by| !by.is_empty()).map(Json))
        .bind(dispatch.as_bytes().as_slice())
        .bind(inputs.trigger.map(Trigger::as_str))
        .bind(roadstead_trace::carry().map(|trace| trace.to_string()))
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query("record an attempt that changes nothing"))?;
        Ok(attempt.map(Attempt))
    }

    async fn insert_reconciliation(
        &mut self,
        inputs: &AttemptInputs,
        dispatch: Option<(&DispatchSpec, Timestamp)>,
        outcome: Option<&Outcome>,
        done: &ChangeSet,
    ) -> Result<Attempt, StoreError> {
        let what = "record a reconciliation";
        type Handed = Json<Vec<(String, String, String, String, String, String)>>;
        // What was handed over since the newest attempt stands in the change set of this one.
        let (epoch, attempt, taken_over): (i64, i64, Option<Handed>) = sqlx::query_as(
            "WITH superseded AS (
               UPDATE reconciliation SET finished_at = $2, reason = 'Progressing', message = 'superseded by a newer attempt'
               WHERE $3 AND applier = $1 AND finished_at IS NULL),
             awake AS (DELETE FROM resting WHERE $3 AND applier = $1),
             lost AS (DELETE FROM lost_attempt WHERE $3 AND applier = $1 AND cluster_uid = $4 RETURNING epoch, attempt)
             SELECT greatest(epoch, (SELECT epoch FROM lost)), 1 + greatest(newest, (SELECT attempt FROM lost)),
                    (SELECT jsonb_agg(jsonb_build_array(api_group, version, kind, namespace, name, handed_by)
                                      ORDER BY api_group, kind, namespace, name)
                     FROM inventory WHERE applier = $1 AND handed_after IS NOT NULL AND handed_after >= newest)
             FROM hub_state, (SELECT coalesce(max(attempt), 0) AS newest FROM reconciliation WHERE applier = $1) last",
        )
        .bind(inputs.applier.0)
        .bind(to_sql(inputs.started))
        .bind(dispatch.is_some())
        .bind(inputs.cluster.map(|cluster| cluster.0))
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let taken_over = taken_over.into_iter().flat_map(|Json(rows)| rows).map(
            |(group, version, kind, namespace, name, by)| ObjectResult {
                object: ObjectRef { group, version, kind, namespace, name },
                action: Action::TakenOver,
                other: Some(by),
            },
        );
        let done: ChangeSet = taken_over.chain(done.iter().cloned()).collect();
        let build = inputs.build.map(|build| build.as_bytes().to_vec());
        let mac = match (dispatch, inputs.cluster) {
            (Some((spec, _)), Some(cluster)) => {
                let stored = serde_json::to_value(spec)
                    .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?;
                let dispatched = Dispatched {
                    applier: inputs.applier.0,
                    attempt,
                    cluster_uid: cluster.0,
                    epoch,
                    generation: inputs.generation.0,
                    build_digest: build.clone(),
                    dispatch_format: dispatched::format_of(spec),
                    dispatch: stored,
                    mac: None,
                    trace: None,
                    started_at: None,
                };
                Some(self.sealer.sign(&dispatched.row()))
            }
            _ => None,
        };
        // The statement has only the part that is needed: one statement for all cases would be planned each time.
        let actor = match inputs.trigger {
            Some(trigger) if trigger.is_a_change() => WHO_CHANGED_IT,
            Some(Trigger::Confirmation) => WHO_CONFIRMED,
            _ => "NULL",
        };
        let sql = format!(
            "INSERT INTO reconciliation (applier, attempt, cluster_uid, epoch, generation, build_digest, revision,
                                         request, deletes, dispatch, started_at, deadline, finished_at, reason, message,
                                         artifact_digest, change_set, mac, dispatch_format, reads, rendered_by,
                                         dispatch_digest, trigger, trace, actor)
             VALUES ($1, $16, $2, $17, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $18, $19, $20, $21, $22, $23, $24,
                     {actor})"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(inputs.applier.0)
            .bind(inputs.cluster.map(|cluster| cluster.0))
            .bind(inputs.generation.0)
            .bind(build)
            .bind(inputs.revision.as_ref().map(ToString::to_string))
            .bind(&inputs.request)
            .bind(inputs.kind == AttemptKind::Delete)
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
            .bind(dispatch.map_or(dispatched::FORMAT, |(spec, _)| dispatched::format_of(spec)))
            .bind(inputs.kind == AttemptKind::Read)
            .bind(Some(&inputs.rendered_by).filter(|by| !by.is_empty()).map(Json))
            .bind(dispatch.map(|(spec, _)| spec.digest().as_bytes().to_vec()))
            .bind(inputs.trigger.map(Trigger::as_str))
            .bind(roadstead_trace::carry().map(|trace| trace.to_string()))
            .bind(&WRITES[..])
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        Ok(Attempt(attempt))
    }

    /// Records how an attempt ended; what was done on its cluster comes behind what was done on the hub before. None where the
    /// attempt was closed before (a late or a repeated result).
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn finish_reconciliation(
        &mut self,
        applier: ApplierUid,
        attempt: Attempt,
        cluster: ClusterUid,
        outcome: &Outcome,
        at: Timestamp,
    ) -> Result<Option<Closed>, StoreError> {
        let closed: Option<(Json<ChangeSet>, i64, Option<String>, bool)> = sqlx::query_as(
            "WITH unheld AS (DELETE FROM held_deletion WHERE applier = $1 AND $11)
             UPDATE reconciliation SET finished_at = $4, reason = $5, message = $6, timings = $8, health = $9,
                    change_set = coalesce(change_set, '[]') || $7
             WHERE applier = $1 AND attempt = $2 AND cluster_uid = $3 AND finished_at IS NULL
             RETURNING change_set, coalesce((SELECT wanted FROM schedule WHERE uid = $1 AND kind = $10), 0), trace,
                       EXISTS (SELECT FROM drift WHERE drift.applier = $1 AND ended_at IS NULL)",
        )
        .bind(applier.0)
        .bind(attempt.0)
        .bind(cluster.0)
        .bind(to_sql(at))
        .bind(outcome.reason.as_str())
        .bind(&outcome.message)
        .bind(Json(&outcome.change_set))
        .bind(Json(&outcome.timings))
        .bind(Some(&outcome.health).filter(|health| !health.is_empty()).map(Json))
        .bind(Queue::Applier.as_str())
        // What a person has confirmed is done.
        .bind(outcome.reason == Reason::ReconciliationSucceeded)
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query("close a reconciliation"))?;
        Ok(closed.map(|(Json(change_set), wanted, trace, drifts)| {
            let trace = trace.and_then(|trace| trace.parse().ok());
            Closed { change_set, wanted, trace, drifts }
        }))
    }

    /// Keeps what an attempt has read of its cluster, as JSON: sealed, since it may be secret.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn keep_facts(
        &mut self,
        applier: ApplierUid,
        attempt: Attempt,
        facts: &[ReadObject],
    ) -> Result<(), StoreError> {
        let what = "keep what was read of a cluster";
        let text =
            |fact: &ReadObject| fact.json.as_deref().map(|json| String::from_utf8_lossy(json).into_owned());
        let rows: Vec<(&ObjectRef, Option<String>)> =
            facts.iter().map(|fact| (&fact.object, text(fact))).collect();
        let plain = Zeroizing::new(
            serde_json::to_vec(&rows)
                .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?,
        );
        let sealed = self.sealer.seal(what, applier.0.as_bytes(), &plain)?;
        sqlx::query("UPDATE reconciliation SET facts = $3 WHERE applier = $1 AND attempt = $2")
            .bind(applier.0)
            .bind(attempt.0)
            .bind(sealed)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// Records what was done on the hub after the newest attempt of an applier had ended.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn add_changes(&mut self, applier: ApplierUid, changes: &ChangeSet) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE reconciliation SET change_set = coalesce(change_set, '[]') || $2 WHERE applier = $1
             AND attempt = (SELECT max(attempt) FROM reconciliation WHERE applier = $1)",
        )
        .bind(applier.0)
        .bind(Json(changes))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("add to a change set"))?;
        Ok(())
    }

    /// Forgets all attempts of an applier that is gone.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_reconciliations(&mut self, applier: ApplierUid) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM reconciliation WHERE applier = $1")
            .bind(applier.0)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("forget reconciliations"))?;
        self.wake(Topic::Dispatch);
        Ok(())
    }
}

#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    applier: Uuid,
    attempt: i64,
    cluster_uid: Option<Uuid>,
    generation: i64,
    revision: Option<String>,
    artifact_digest: Option<Vec<u8>>,
    pub(crate) build_digest: Option<Vec<u8>>,
    request: Option<String>,
    deletes: bool,
    reads: bool,
    rendered_by: Option<Json<BTreeMap<String, String>>>,
    started_at: ::time::OffsetDateTime,
    deadline: ::time::OffsetDateTime,
    finished_at: Option<::time::OffsetDateTime>,
    reason: Option<String>,
    checked_at: Option<::time::OffsetDateTime>,
    dispatch_digest: Option<Vec<u8>>,
    trigger: Option<String>,
    is_past: bool,
    /// Not read where a history is.
    #[sqlx(default)]
    asked_for: Vec<::time::OffsetDateTime>,
}

impl Row {
    pub(crate) fn read(self) -> Result<Reconciliation, StoreError> {
        let what = "read a reconciliation";
        let corrupt = |why: String| StoreError::Corrupt { what, why };
        let finished = match self.finished_at {
            None => None,
            Some(at) => {
                let text = self.reason.unwrap_or_default();
                // Of a newer version, perhaps: no such attempt succeeded.
                let reason = Reason::parse(&text).unwrap_or(Reason::ReconciliationFailed);
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
                applier: ApplierUid(self.applier),
                cluster: self.cluster_uid.map(ClusterUid),
                generation: Generation(self.generation),
                revision,
                artifact: digest(self.artifact_digest)?,
                build: digest(self.build_digest)?,
                request: self.request,
                kind: match (self.deletes, self.reads) {
                    (true, _) => AttemptKind::Delete,
                    (false, true) => AttemptKind::Read,
                    (false, false) => AttemptKind::Apply,
                },
                trigger: self.trigger.as_deref().and_then(Trigger::parse),
                rendered_by: self.rendered_by.map(|Json(by)| by).unwrap_or_default(),
                started: from_sql(what, self.started_at)?,
            },
            deadline: from_sql(what, self.deadline)?,
            checked: match self.checked_at {
                Some(at) => Some(from_sql(what, at)?),
                None => finished.map(|(at, _)| at),
            },
            dispatch: digest(self.dispatch_digest)?,
            is_past: self.is_past,
            asked_for: self
                .asked_for
                .into_iter()
                .map(|began| from_sql(what, began))
                .collect::<Result<_, _>>()?,
            finished,
        })
    }
}

/// The newest attempts of these appliers.
async fn newest_of(
    pool: &Connections,
    appliers: &[ApplierUid],
) -> Result<Answers<ApplierUid, Reconciliation>, StoreError> {
    // By the OFFSET each is looked up by its key, whatever the plan takes a join to cost.
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT newest.* FROM (SELECT * FROM unnest($1::uuid[]) LIMIT $4) AS asked (applier)
         CROSS JOIN LATERAL (
             SELECT applier, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, reads, rendered_by, started_at, deadline, finished_at, reason, checked_at, dispatch_digest, trigger,
                    is_past(applier, attempt, epoch) AS is_past,
                    ARRAY(SELECT before.started_at FROM reconciliation before
                          WHERE before.applier = asked.applier AND before.trigger = ANY($2) ORDER BY before.attempt DESC LIMIT $3)
                        AS asked_for
             FROM reconciliation WHERE reconciliation.applier = asked.applier ORDER BY attempt DESC LIMIT 1 OFFSET 0) AS newest",
    )
    .bind(appliers.iter().map(|applier| applier.0).collect::<Vec<_>>())
    .bind([Trigger::Spec, Trigger::Request].map(Trigger::as_str))
    .bind(ASKED_FOR)
    .bind(i64::try_from(appliers.len()).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .map_err(StoreError::query("read reconciliations"))?;
    Ok(rows.into_iter().map(|row| (ApplierUid(row.applier), row.read())).collect())
}

impl Store {
    /// The newest attempt of an applier; asked [together](crate::together) with those of others.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn newest_reconciliation(
        &self,
        applier: ApplierUid,
    ) -> Result<Option<Reconciliation>, StoreError> {
        let ask = |this: Self, appliers: Vec<_>| async move { newest_of(&this.pool, &appliers).await };
        self.together.newest.ask(&self.health, self, applier, ask).await
    }

    /// What the newest attempt of an applier has read of its cluster.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn facts(&self, applier: ApplierUid) -> Result<Vec<ReadObject>, StoreError> {
        let what = "look up what was read of a cluster";
        let sealed: Option<Option<Vec<u8>>> = sqlx::query_scalar(
            "SELECT facts FROM reconciliation WHERE applier = $1 ORDER BY attempt DESC LIMIT 1",
        )
        .bind(applier.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let Some(sealed) = sealed.flatten() else { return Ok(Vec::new()) };
        let plain = self.sealer.open(what, applier.0.as_bytes(), &sealed)?;
        let rows: Vec<(ObjectRef, Option<String>)> = serde_json::from_slice(&plain)
            .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?;
        Ok(rows
            .into_iter()
            .map(|(object, json)| ReadObject { object, json: json.map(String::into_bytes) })
            .collect())
    }

    /// One attempt of an applier.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn reconciliation(
        &self,
        applier: ApplierUid,
        attempt: Attempt,
    ) -> Result<Option<Reconciliation>, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT applier, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, reads, rendered_by, started_at, deadline, finished_at, reason, checked_at, dispatch_digest, trigger,
                    is_past(applier, attempt, epoch) AS is_past
             FROM reconciliation WHERE applier = $1 AND attempt = $2",
        )
        .bind(applier.0)
        .bind(attempt.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("read a reconciliation"))?;
        row.map(Row::read).transpose()
    }

    /// The newest attempts of an applier, or the newest before one of them, the newest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn history(
        &self,
        applier: ApplierUid,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<History>, StoreError> {
        #[derive(sqlx::FromRow)]
        struct Full {
            #[sqlx(flatten)]
            row: Row,
            message: Option<String>,
            change_set: Option<Json<ChangeSet>>,
            timings: Option<Json<Vec<StepTiming>>>,
            health: Option<Json<BTreeMap<String, String>>>,
            actor: Option<String>,
        }
        let rows: Vec<Full> = sqlx::query_as(
            "SELECT applier, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, reads, rendered_by, started_at, deadline, finished_at, reason, checked_at, dispatch_digest, message, change_set,
                    timings, health, trigger, actor, is_past(applier, attempt, epoch) AS is_past
             FROM reconciliation WHERE applier = $1 AND ($3::bigint IS NULL OR attempt < $3)
             ORDER BY attempt DESC LIMIT $2",
        )
        .bind(applier.0)
        .bind(limit)
        .bind(before)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("read the history of a Kustomization"))?;
        rows.into_iter()
            .map(|full| {
                Ok(History {
                    actor: full.actor,
                    reconciliation: full.row.read()?,
                    message: full.message.unwrap_or_default(),
                    change_set: full.change_set.map(|Json(set)| set).unwrap_or_default(),
                    timings: full.timings.map(|Json(timings)| timings).unwrap_or_default(),
                    health: full.health.map(|Json(health)| health).unwrap_or_default(),
                })
            })
            .collect()
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

    /// Keeps the newest `keep` finished attempts of each applier, and as many corrections by its agent; of these those that ended after
    /// `since`, the newest, and the newest that went well.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn trim_reconciliations(&self, keep: i64, since: Option<Timestamp>) -> Result<u64, StoreError> {
        let trimmed = sqlx::query(
            "DELETE FROM reconciliation r USING
               (SELECT applier, attempt, row_number() OVER (PARTITION BY applier, corrects ORDER BY attempt DESC) AS place,
                       row_number() OVER (PARTITION BY applier, corrects, reason = $3 ORDER BY attempt DESC) AS place_by_end
                FROM reconciliation) n
             WHERE (r.applier, r.attempt) = (n.applier, n.attempt) AND r.finished_at IS NOT NULL
               AND (n.place > $1 OR n.place > 1 AND r.finished_at < $2 AND NOT (n.place_by_end = 1 AND r.reason = $3))",
        )
        .bind(keep)
        .bind(since.map(to_sql))
        .bind(Reason::ReconciliationSucceeded.as_str())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("trim reconciliations"))?;
        Ok(trimmed.rows_affected())
    }
}
