//! Dispatches as their rows have them: what the link sends, again in each new session until its result has been recorded.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{
    ApplierRef, ApplierUid, Attempt, ClusterUid, Digest, DispatchKey, DispatchSpec, DriftMode, Generation,
    Group, HubEpoch, ObjectRef, OnImmutable, Purpose, Queue, Reason, ServiceAccount, SessionId, Step,
    StepKind, Topic, TraceContext,
};
use serde::Deserialize;
use serde_json::Value;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{AssertSqlSafe, Postgres};
use uuid::Uuid;

use crate::blob::{BlobHead, digest};
use crate::inventory::Columns;
use crate::mac::Row as SignedRow;
use crate::reconciliation::{Reconciliation, Row};
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx, newer};

/// The newest form of stored dispatches that this version reads. A row of a newer form is passed over: it waits for a replica that
/// reads it.
pub(crate) const FORMAT: i16 = 8;

/// The form of versions that told of changes on the hub alone.
const HANDOVER_FORMAT: i16 = 7;

/// The form of versions that took over from Flux what they built, and nothing more.
const DRIFT_FORMAT: i16 = 6;

/// The form of versions that corrected all drift.
const CORRECTING_FORMAT: i16 = 5;

/// The form of versions that took nothing over from Flux.
const DECRYPTING_FORMAT: i16 = 4;

/// The form of versions that did not decrypt.
const PLAIN_FORMAT: i16 = 3;

/// The form of versions that knew of groups, and of nothing that was added to them since.
const GROUPS_FORMAT: i16 = 2;

/// The form of versions that knew of one build only.
const FIRST_FORMAT: i16 = 1;

/// The oldest form that says all of a dispatch: replicas of the version before read as much as they can.
pub(crate) fn format_of(spec: &DispatchSpec) -> i16 {
    if spec.is_of_groups_only() {
        GROUPS_FORMAT
    } else if spec.cluster_events {
        FORMAT
    } else if spec.hands_over_with_flux() {
        HANDOVER_FORMAT
    } else if spec.says_more_of_drift() {
        DRIFT_FORMAT
    } else if spec.adopts() {
        CORRECTING_FORMAT
    } else if spec.decrypts() {
        DECRYPTING_FORMAT
    } else {
        PLAIN_FORMAT
    }
}

/// Open reconciliations that a session has not been sent.
#[derive(Debug)]
pub struct TakenToSend {
    /// Those that were taken.
    pub dispatches: Vec<ToSend>,
    /// Whether there may be more of them.
    pub more: bool,
}

/// An open reconciliation for the link.
#[derive(Debug, Clone)]
pub struct ToSend {
    /// The hub's epoch.
    pub epoch: HubEpoch,
    /// Whose it is.
    pub applier: ApplierUid,
    /// The generation of its spec.
    pub generation: Generation,
    /// Which attempt it is.
    pub attempt: Attempt,
    /// What it consists of.
    pub spec: DispatchSpec,
    /// When the attempt began.
    pub started: Timestamp,
    /// What the attempt is part of, where traces were made when it began.
    pub trace: Option<TraceContext>,
}

impl ToSend {
    /// What makes it that dispatch, for an agent that takes groups or for one of the first version.
    #[must_use]
    pub fn key(&self, takes_groups: bool) -> DispatchKey {
        let Self { epoch, applier, generation, attempt, ref spec, .. } = *self;
        let digest = if takes_groups { Some(spec.digest()) } else { first_digest(spec) };
        DispatchKey { epoch, applier, generation, attempt, digest }
    }
}

/// By what agents of the first version know a dispatch: its only build.
fn first_digest(spec: &DispatchSpec) -> Option<Digest> {
    spec.groups.first().map(|group| group.objects)
}

/// An attempt that is open, with what was dispatched.
#[derive(Debug, Clone)]
pub struct OpenAttempt {
    /// The attempt.
    pub reconciliation: Reconciliation,
    /// What was dispatched.
    pub spec: DispatchSpec,
    /// Whether the session that asks is its cluster's newest.
    pub is_current: bool,
    /// Whether its applier has [children](Store::children).
    pub has_children: bool,
    /// What the attempt is part of, where traces were made when it began.
    pub trace: Option<TraceContext>,
}

/// A dispatch as its row has it.
#[derive(sqlx::FromRow)]
pub(crate) struct Dispatched {
    pub(crate) applier: Uuid,
    pub(crate) attempt: i64,
    pub(crate) cluster_uid: Uuid,
    pub(crate) epoch: i64,
    pub(crate) generation: i64,
    pub(crate) build_digest: Option<Vec<u8>>,
    pub(crate) dispatch_format: i16,
    pub(crate) dispatch: Value,
    pub(crate) mac: Option<Vec<u8>>,
    /// Not signed: it decides nothing.
    #[sqlx(default)]
    pub(crate) trace: Option<String>,
    #[sqlx(default)]
    pub(crate) started_at: Option<::time::OffsetDateTime>,
}

impl Dispatched {
    /// What of it is signed: all that an agent is told.
    pub(crate) fn row(&self) -> SignedRow {
        let row = SignedRow::of("reconciliation")
            .bytes(self.applier.as_bytes())
            .number(self.attempt)
            .bytes(self.cluster_uid.as_bytes())
            .number(self.epoch)
            .number(self.generation)
            .optional(self.build_digest.as_deref(), SignedRow::bytes)
            .json(&self.dispatch);
        // Rows of the first form were signed before there was another.
        if self.dispatch_format == FIRST_FORMAT { row } else { row.number(self.dispatch_format.into()) }
    }

    fn into_sent(self, what: &'static str) -> Result<ToSend, StoreError> {
        Ok(ToSend {
            epoch: HubEpoch(self.epoch),
            applier: ApplierUid(self.applier),
            generation: Generation(self.generation),
            attempt: Attempt(self.attempt),
            spec: read(what, self.dispatch, self.dispatch_format, self.build_digest.as_deref())?,
            started: self.started_at.map_or(Ok(Timestamp::UNIX_EPOCH), |at| from_sql(what, at))?,
            trace: self.trace.and_then(|trace| trace.parse().ok()),
        })
    }
}

/// Reads a stored dispatch.
fn read(
    what: &'static str,
    stored: Value,
    format: i16,
    build: Option<&[u8]>,
) -> Result<DispatchSpec, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::Corrupt { what, why: error.to_string() };
    if format != FIRST_FORMAT {
        return serde_json::from_value(stored).map_err(corrupt);
    }
    let first: First = serde_json::from_value(stored).map_err(corrupt)?;
    Ok(first.spec(build.map(|build| digest(what, build)).transpose()?))
}

/// A dispatch in the first form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct First {
    namespace: String,
    name: String,
    default_namespace: Option<String>,
    service_account: Option<ServiceAccount>,
    timeout_millis: u64,
    steps: Vec<FirstStep>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum FirstStep {
    Apply { force: bool },
    Prune,
    Wait { objects: Vec<ObjectRef>, all: bool },
    Delete,
}

impl First {
    fn spec(self, build: Option<Digest>) -> DispatchSpec {
        let force = self.steps.iter().any(|step| matches!(step, FirstStep::Apply { force: true }));
        let on_immutable = if force { OnImmutable::Recreate } else { OnImmutable::Fail };
        let group = |build| Group { on_immutable, ..Group::of(build) };
        let step = |step| match step {
            FirstStep::Apply { .. } => StepKind::Apply { group: 0 },
            FirstStep::Prune => StepKind::Prune,
            FirstStep::Wait { objects, all } => {
                StepKind::Wait { objects, groups: if all { vec![0] } else { Vec::new() } }
            }
            FirstStep::Delete => StepKind::Delete,
        };
        DispatchSpec {
            applier: ApplierRef::kustomization(&self.namespace, &self.name),
            purpose: Purpose::Reconcile,
            full: false,
            drift: DriftMode::Correct,
            observe: false,
            cluster_events: false,
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
            offline: roadstead_model::Offline::default(),
            health: Vec::new(),
            guard: None,
            default_namespace: self.default_namespace,
            service_account: self.service_account,
            timeout: Duration::from_millis(self.timeout_millis),
            groups: build.map(group).into_iter().collect(),
            steps: self.steps.into_iter().map(|first| Step::from(step(first))).collect(),
        }
    }
}

/// A dispatch that is open, and what its key is held against.
#[derive(sqlx::FromRow)]
struct OpenRow {
    build_digest: Option<Vec<u8>>,
    dispatch_format: i16,
    dispatch: Value,
}

impl OpenRow {
    /// What was dispatched, where the key's digest is its.
    fn of(self, what: &'static str, key: &DispatchKey) -> Result<Option<DispatchSpec>, StoreError> {
        let spec = read(what, self.dispatch, self.dispatch_format, self.build_digest.as_deref())?;
        // By the build alone a dispatch is known to an agent of the first version, which is sent nothing that such an agent cannot do. From
        // another one it would say that the rest was not read.
        let is_first = || spec.steps.iter().all(|step| spec.needs(step).is_empty());
        let is_its = key.digest == Some(spec.digest()) || key.digest == first_digest(&spec) && is_first();
        Ok(is_its.then_some(spec))
    }
}

/// An attempt that is open, with all of the key but its digest. The parameters are those of [`of_key`].
const OPEN: &str = "applier = $1 AND attempt = $2 AND cluster_uid = $3 AND epoch = $4 AND generation = $5
    AND finished_at IS NULL AND dispatch IS NOT NULL AND dispatch_format <= $7 AND coalesce(dispatch ->> 'kind' = ANY ($8), true)";

/// Whether the session is the cluster's newest.
const IS_CURRENT: &str = "EXISTS (SELECT FROM agent_session s WHERE s.cluster_uid = $3 AND s.session = $6)";

/// Binds `$1` to `$8` of a query with [`OPEN`] or [`IS_CURRENT`].
fn of_key<'q, O>(
    query: QueryAs<'q, Postgres, O, PgArguments>,
    key: &DispatchKey,
    cluster: ClusterUid,
    session: SessionId,
) -> QueryAs<'q, Postgres, O, PgArguments> {
    query
        .bind(key.applier.0)
        .bind(key.attempt.0)
        .bind(cluster.0)
        .bind(key.epoch.0)
        .bind(key.generation.0)
        .bind(session.0)
        .bind(FORMAT)
        .bind(newer::known_kinds())
}

impl Tx {
    /// The dispatch of this attempt, where it is open for `cluster`, all of the key is its, and `session` is the cluster's
    /// newest; it then stays open until this unit of work ends.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hold_open_attempt(
        &mut self,
        key: &DispatchKey,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<Option<DispatchSpec>, StoreError> {
        let what = "look for an open reconciliation";
        let sql = format!(
            "SELECT build_digest, dispatch_format, dispatch FROM reconciliation WHERE {OPEN} AND {IS_CURRENT} FOR UPDATE"
        );
        let query = sqlx::query_as::<_, OpenRow>(AssertSqlSafe(sql));
        let open = of_key(query, key, cluster, session)
            .fetch_optional(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        open.map_or(Ok(None), |open| open.of(what, key))
    }
}

impl Store {
    /// The attempt of this key with what was dispatched, where it is open for `cluster` and all of the key is its.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn open_attempt(
        &self,
        key: &DispatchKey,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<Option<OpenAttempt>, StoreError> {
        #[derive(sqlx::FromRow)]
        struct Found {
            #[sqlx(flatten)]
            row: Row,
            is_current: bool,
            has_children: bool,
            dispatch_format: i16,
            dispatch: Value,
            trace: Option<String>,
        }
        let what = "look for an open reconciliation";
        let sql = format!(
            "SELECT applier, attempt, cluster_uid, generation, revision, artifact_digest, build_digest, request,
                    deletes, reads, rendered_by, started_at, deadline, finished_at, reason, checked_at, dispatch_digest, trigger, dispatch_format,
                    dispatch, trace, false AS is_past, {IS_CURRENT} AS is_current,
                    EXISTS (SELECT FROM child WHERE parent = $1) AS has_children
             FROM reconciliation WHERE {OPEN}"
        );
        let query = sqlx::query_as::<_, Found>(AssertSqlSafe(sql));
        let found = of_key(query, key, cluster, session)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        let Some(Found { row, is_current, has_children, dispatch_format, dispatch, trace }) = found else {
            return Ok(None);
        };
        let build_digest = row.build_digest.clone();
        let Some(spec) = OpenRow { build_digest, dispatch_format, dispatch }.of(what, key)? else {
            return Ok(None);
        };
        let trace = trace.and_then(|trace| trace.parse().ok());
        Ok(Some(OpenAttempt { reconciliation: row.read()?, spec, is_current, has_children, trace }))
    }

    /// Whether this attempt is open as [`Tx::hold_open_attempt`] has it, and its applier owns all of these objects on the cluster: then
    /// there is nothing to [announce](Tx::announce), as with most updates.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_announced(
        &self,
        key: &DispatchKey,
        cluster: ClusterUid,
        session: SessionId,
        objects: &[ObjectRef],
    ) -> Result<bool, StoreError> {
        let what = "look for what an applier owns";
        let columns = Columns::of(objects);
        let sql = format!(
            "SELECT build_digest, dispatch_format, dispatch FROM reconciliation
             WHERE {OPEN} AND {IS_CURRENT}
               AND NOT EXISTS (SELECT * FROM unnest($9::text[], $10::text[], $11::text[], $12::text[])
                               EXCEPT SELECT api_group, kind, namespace, name FROM inventory
                                      WHERE inventory.cluster_uid = $3 AND inventory.applier = $1)"
        );
        let query = sqlx::query_as::<_, OpenRow>(AssertSqlSafe(sql));
        let open = of_key(query, key, cluster, session)
            .bind(&columns.groups)
            .bind(&columns.kinds)
            .bind(&columns.namespaces)
            .bind(&columns.names)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        Ok(open.map_or(Ok(None), |open| open.of(what, key))?.is_some())
    }

    /// Moves the deadlines of dispatches for which an agent had no time at once, where they are open for `cluster` and `session` is
    /// its newest. Each is told with when it began; `None` where it still waits. A dispatch begins at most `max_wait` after it was
    /// planned, and is given up `grace` after its timeout.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn move_deadlines(
        &self,
        cluster: ClusterUid,
        session: SessionId,
        told: &[(&DispatchKey, Option<Timestamp>)],
        max_wait: Duration,
        grace: Duration,
    ) -> Result<(), StoreError> {
        let numbers =
            |number: fn(&DispatchKey) -> i64| told.iter().map(|(key, _)| number(key)).collect::<Vec<_>>();
        // A pass that is planned for later than the deadline would miss it.
        sqlx::query(
            "WITH told AS (SELECT * FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
                           AS t (applier, attempt, epoch, generation, began)),
                  moved AS (UPDATE reconciliation r
                            SET deadline = CASE WHEN t.began IS NULL THEN r.started_at + make_interval(secs => $8)
                                ELSE least(t.began, r.started_at + make_interval(secs => $8)) + make_interval(secs => $9)
                                     + make_interval(secs => (r.dispatch ->> 'timeoutMillis')::float8 / 1000) END
                            FROM told t
                            WHERE (r.applier, r.attempt, r.epoch, r.generation)
                                  = (t.applier, t.attempt, t.epoch, t.generation)
                              AND r.cluster_uid = $1 AND r.finished_at IS NULL AND r.dispatch_format <= $10
                              AND r.dispatch ->> 'timeoutMillis' IS NOT NULL
                              AND EXISTS (SELECT FROM agent_session s WHERE s.cluster_uid = $1 AND s.session = $2)
                            RETURNING r.applier, r.deadline)
             UPDATE schedule SET due_at = moved.deadline FROM moved
             WHERE schedule.uid = moved.applier AND schedule.kind = $11 AND schedule.due_at > moved.deadline",
        )
        .bind(cluster.0)
        .bind(session.0)
        .bind(told.iter().map(|(key, _)| key.applier.0).collect::<Vec<_>>())
        .bind(numbers(|key| key.attempt.0))
        .bind(numbers(|key| key.epoch.0))
        .bind(numbers(|key| key.generation.0))
        .bind(told.iter().map(|(_, began)| began.map(to_sql)).collect::<Vec<_>>())
        .bind(max_wait.as_secs_f64())
        .bind(grace.as_secs_f64())
        .bind(FORMAT)
        .bind(Queue::Applier.as_str())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("move deadlines of dispatches"))?;
        Ok(())
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
                           WHERE r.cluster_uid = $2 AND r.finished_at IS NULL
                             AND (r.build_digest = $1
                                  OR r.dispatch -> 'groups' @> jsonb_build_array(jsonb_build_object(
                                         'objects', 'sha256:' || encode($1, 'hex')))))
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

    /// The applier of a dispatch that is open for `cluster` and has this build.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn applier_of_build(
        &self,
        cluster: ClusterUid,
        build: Digest,
    ) -> Result<Option<ApplierUid>, StoreError> {
        let found: Option<Uuid> = sqlx::query_scalar(
            "SELECT applier FROM reconciliation
             WHERE cluster_uid = $1 AND finished_at IS NULL
               AND dispatch -> 'groups' @> jsonb_build_array(jsonb_build_object('objects', $2::text))
             ORDER BY started_at LIMIT 1",
        )
        .bind(cluster.0)
        .bind(build.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look for the applier of a build"))?;
        Ok(found.map(ApplierUid))
    }

    /// Takes the open reconciliations of `cluster` that were not yet sent in `session`, and marks them as sent in it. Those
    /// that no hub with this key dispatched are closed instead, and reconciled again; those of a newer form, or of appliers of a newer
    /// kind, wait for a replica that reads them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_to_send(
        &self,
        cluster: ClusterUid,
        session: SessionId,
        limit: i64,
    ) -> Result<TakenToSend, StoreError> {
        let what = "take dispatches to send";
        let rows: Vec<Dispatched> = sqlx::query_as(
            "UPDATE reconciliation SET sent_in = $2
             WHERE (applier, attempt) IN
                   (SELECT applier, attempt FROM reconciliation
                    WHERE cluster_uid = $1 AND finished_at IS NULL AND sent_in IS DISTINCT FROM $2
                          AND dispatch_format <= $4 AND coalesce(dispatch ->> 'kind' = ANY ($5), true)
                    ORDER BY started_at LIMIT $3 FOR UPDATE)
             RETURNING applier, attempt, cluster_uid, epoch, generation, build_digest, dispatch_format,
                       dispatch, mac, trace, started_at",
        )
        .bind(cluster.0)
        .bind(session.0)
        .bind(limit)
        .bind(FORMAT)
        .bind(newer::known_kinds())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let more = i64::try_from(rows.len()).is_ok_and(|taken| taken >= limit);
        let (signed, forged): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|sent| self.sealer.is_signed(what, &sent.row(), sent.mac.as_deref()));
        for sent in forged {
            self.close_forged(&sent).await?;
        }
        let dispatches = signed.into_iter().map(|sent| sent.into_sent(what)).collect::<Result<_, _>>()?;
        Ok(TakenToSend { dispatches, more })
    }

    async fn close_forged(&self, sent: &Dispatched) -> Result<(), StoreError> {
        sqlx::query(
            "WITH closed AS (UPDATE reconciliation SET finished_at = now(), reason = $3, message = $4
                 WHERE applier = $1 AND attempt = $2 AND finished_at IS NULL RETURNING applier)
             UPDATE schedule SET due_at = '-infinity', wanted = wanted + 1 FROM closed 
             WHERE uid = closed.applier AND kind = $5",
        )
        .bind(sent.applier)
        .bind(sent.attempt)
        .bind(Reason::ReconciliationFailed.as_str())
        .bind("the dispatch in the database was not written by a hub with this key: it was not sent")
        .bind(Queue::Applier.as_str())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("close a dispatch that is not the hub's"))?;
        self.signals.send(Topic::Due(Queue::Applier));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_older_hub_would_leave_out_waits_for_one_that_knows_it() {
        let of = |change: fn(&mut DispatchSpec)| {
            let mut spec = DispatchSpec {
                applier: ApplierRef::kustomization("team-a", "app"),
                purpose: Purpose::Reconcile,
                full: false,
                drift: DriftMode::Correct,
                observe: false,
                cluster_events: false,
                warnings: Vec::new(),
                decrypted_with: Vec::new(),
                offline: roadstead_model::Offline::default(),
                health: Vec::new(),
                guard: None,
                default_namespace: None,
                service_account: None,
                timeout: Duration::from_secs(90),
                groups: vec![Group::of(Digest::of(b"build"))],
                steps: vec![StepKind::Apply { group: 0 }.into()],
            };
            change(&mut spec);
            format_of(&spec)
        };
        assert_eq!(of(|_| ()), GROUPS_FORMAT);
        assert_eq!(of(|spec| spec.groups[0].substitute = Some(Default::default())), PLAIN_FORMAT);
        assert_eq!(of(|spec| spec.groups[0].decrypt = Some(Default::default())), DECRYPTING_FORMAT);
        assert_eq!(of(|spec| spec.groups[0].sealed = true), DECRYPTING_FORMAT);
        assert_eq!(of(|spec| spec.groups[0].adopt_flux = true), CORRECTING_FORMAT);
        assert_eq!(of(|spec| spec.drift = DriftMode::Report), DRIFT_FORMAT);
        assert_eq!(of(|spec| spec.offline.keep_secrets = true), DRIFT_FORMAT);
        assert_eq!(of(|spec| spec.groups[0].adopt_managers.push("helm".to_owned())), HANDOVER_FORMAT);
        assert_eq!(of(|spec| spec.steps = vec![StepKind::GiveBack.into()]), HANDOVER_FORMAT);
        assert_eq!(of(|spec| spec.cluster_events = true), FORMAT);
    }

    #[test]
    fn the_first_form_is_read() {
        let object =
            json!({ "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "a", "name": "b" });
        let stored = json!({
            "namespace": "team-a",
            "name": "app",
            "serviceAccount": ["apps", "deployer"],
            "timeoutMillis": 90_000,
            "steps": [
                { "apply": { "force": true } },
                "prune",
                { "wait": { "objects": [object], "all": true } },
                { "wait": { "objects": [], "all": false } },
                "delete",
            ],
        });
        let build = Digest::of(b"build");
        let spec = read("read", stored, FIRST_FORMAT, Some(build.as_bytes())).unwrap();
        let group = Group { on_immutable: OnImmutable::Recreate, ..Group::of(build) };
        let object: ObjectRef = serde_json::from_value(object).unwrap();
        let steps = [
            StepKind::Apply { group: 0 },
            StepKind::Prune,
            StepKind::Wait { objects: vec![object], groups: vec![0] },
            StepKind::Wait { objects: vec![], groups: vec![] },
            StepKind::Delete,
        ];
        let read_as = DispatchSpec {
            applier: ApplierRef::kustomization("team-a", "app"),
            purpose: Purpose::Reconcile,
            full: false,
            drift: DriftMode::Correct,
            observe: false,
            cluster_events: false,
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
            offline: roadstead_model::Offline::default(),
            health: Vec::new(),
            guard: None,
            default_namespace: None,
            service_account: Some(("apps".to_owned(), "deployer".to_owned()).into()),
            timeout: Duration::from_secs(90),
            groups: vec![group],
            steps: steps.map(Step::from).into(),
        };
        assert_eq!(spec, read_as);
        let deletes = json!({ "namespace": "a", "name": "b", "serviceAccount": null, "timeoutMillis": 1, "steps": ["delete"] });
        let spec = read("read", deletes, FIRST_FORMAT, None).unwrap();
        assert!(spec.groups.is_empty() && spec.service_account.is_none());
    }
}
