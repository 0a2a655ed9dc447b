//! Objects that differ, or differed, from what was applied: one row for as long as an object goes on differing, and one for what was
//! corrected. What an object differs in within ten minutes is one row, however often it is corrected.

use jiff::Timestamp;
use roadstead_model::{
    ApplierRef, ApplierUid, ClusterUid, Digest, DriftFilter, DriftedObject, FieldDrift, ObjectRef, Reason,
    Visible,
};
use serde::Serialize;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;

use crate::inventory::Columns;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// An object that was corrected.
#[derive(Debug, Clone, Copy)]
pub struct CorrectedDrift<'a> {
    /// The object.
    pub object: &'a ObjectRef,
    /// It had been deleted.
    pub missing: bool,
    /// Who had changed it.
    pub managers: &'a [String],
    /// Where it differed.
    pub fields: &'a [FieldDrift],
}

/// A row, for views.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetDrift {
    /// The Cluster's name; empty where it is gone.
    pub cluster: String,
    /// The applier.
    pub applier: ApplierRef,
    /// The object.
    pub object: ObjectRef,
    /// Why it goes on, or went on; none where it was corrected at once.
    pub state: Option<String>,
    /// It is not, or was not, on the cluster.
    pub missing: bool,
    /// Who changed it, as far as that is known.
    pub managers: Vec<String>,
    /// Where it differs.
    pub fields: Vec<FieldDrift>,
    /// Why it cannot be corrected.
    pub message: String,
    /// How often it was corrected.
    pub corrections: i32,
    /// When it was first told.
    pub first_seen: Timestamp,
    /// When it was last told.
    pub last_seen: Timestamp,
    /// When it was over; none while it goes on.
    pub ended: Option<Timestamp>,
}

/// An object that is told of, as the statements take it.
#[derive(Serialize)]
struct Told<'a> {
    /// Its place in the list.
    n: usize,
    #[serde(flatten)]
    object: &'a ObjectRef,
    missing: bool,
    managers: &'a [String],
    fields: &'a [FieldDrift],
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    message: &'a str,
    corrections: u32,
}

impl<'a> Told<'a> {
    fn corrected((n, corrected): (usize, &'a CorrectedDrift<'a>)) -> Self {
        let CorrectedDrift { object, missing, managers, fields } = *corrected;
        Self { n, object, missing, managers, fields, state: None, message: "", corrections: 1 }
    }

    fn drifted((n, drifted): (usize, &'a DriftedObject)) -> Self {
        let DriftedObject { object, state, missing, managers, fields, corrected, message } = drifted;
        let (missing, state, corrections) = (*missing, Some(state.as_str()), *corrected);
        Self { n, object, missing, managers, fields, state, message, corrections }
    }
}

impl Tx {
    /// Notes that objects were corrected, each once in the list: with what goes on of one, or was corrected of it a while ago.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_corrected(
        &mut self,
        applier: ApplierUid,
        cluster: ClusterUid,
        corrected: &[CorrectedDrift<'_>],
        began: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let told: Vec<Told<'_>> = corrected.iter().enumerate().map(Told::corrected).collect();
        // What is contended goes on, whether it was corrected once more or not.
        sqlx::query(
            "WITH told AS (
                 SELECT * FROM jsonb_to_recordset($3) AS t (\"group\" text, version text, kind text, namespace text, name text,
                                                           missing boolean, managers text[], fields jsonb)),
             last AS (
                 SELECT t.*, (SELECT d.id FROM drift d
                              WHERE d.applier = $1 AND d.cluster_uid = $2 AND d.api_group = t.\"group\" AND d.kind = t.kind
                                    AND d.namespace = t.namespace AND d.name = t.name
                                    AND (d.ended_at IS NULL OR d.last_seen > $4::timestamptz - interval '10 minutes')
                              ORDER BY d.ended_at IS NULL DESC, d.last_seen DESC LIMIT 1) AS id
                 FROM told t),
             again AS (
                 UPDATE drift d SET corrections = d.corrections + 1, managers = last.managers, fields = last.fields,
                     missing = last.missing, last_seen = $5,
                     ended_at = CASE WHEN d.state = 'contended' AND d.ended_at IS NULL THEN NULL ELSE $5::timestamptz END
                 FROM last WHERE d.id = last.id)
             INSERT INTO drift (applier, cluster_uid, api_group, version, kind, namespace, name, missing, managers, fields,
                                corrections, first_seen, last_seen, ended_at)
             SELECT $1, $2, \"group\", version, kind, namespace, name, missing, managers, fields, 1, $4, $5, $5
             FROM last WHERE id IS NULL",
        )
        .bind(applier.0)
        .bind(cluster.0)
        .bind(Json(told))
        .bind(to_sql(began))
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note what was corrected"))?;
        Ok(())
    }

    /// Notes that objects go on differing, each once in the list. Gives the places of those of which that is news: they did not before,
    /// or for another reason.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_drifted(
        &mut self,
        applier: ApplierUid,
        cluster: ClusterUid,
        drifted: &[&DriftedObject],
        now: Timestamp,
    ) -> Result<Vec<usize>, StoreError> {
        let told: Vec<Told<'_>> = drifted.iter().copied().enumerate().map(Told::drifted).collect();
        let news: Vec<i64> = sqlx::query_scalar(
            "WITH told AS (
                 SELECT * FROM jsonb_to_recordset($3) AS t (n bigint, \"group\" text, version text, kind text, namespace text,
                     name text, state text, missing boolean, managers text[], fields jsonb, message text, corrections bigint)),
             last AS (
                 SELECT t.*, l.id, l.was FROM told t LEFT JOIN LATERAL (
                     SELECT d.id, CASE WHEN d.ended_at IS NULL THEN d.state END AS was FROM drift d
                     WHERE d.applier = $1 AND d.cluster_uid = $2 AND d.api_group = t.\"group\" AND d.kind = t.kind
                           AND d.namespace = t.namespace AND d.name = t.name
                           AND (d.ended_at IS NULL
                                OR t.state = 'contended' AND d.last_seen > $4::timestamptz - interval '10 minutes')
                     ORDER BY d.ended_at IS NULL DESC, d.last_seen DESC LIMIT 1) l ON true),
             again AS (
                 UPDATE drift d SET state = last.state, missing = last.missing, managers = last.managers, fields = last.fields,
                     message = last.message, corrections = greatest(d.corrections, least(last.corrections, 2147483647)::integer),
                     last_seen = $4, ended_at = NULL
                 FROM last WHERE d.id = last.id),
             first AS (
                 INSERT INTO drift (applier, cluster_uid, api_group, version, kind, namespace, name, state, missing, managers,
                                    fields, message, corrections, first_seen, last_seen)
                 SELECT $1, $2, \"group\", version, kind, namespace, name, state, missing, managers, fields, message,
                        least(corrections, 2147483647)::integer, $4, $4
                 FROM last WHERE id IS NULL)
             SELECT n FROM last WHERE was IS DISTINCT FROM state ORDER BY n",
        )
        .bind(applier.0)
        .bind(cluster.0)
        .bind(Json(told))
        .bind(to_sql(now))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("note what has drifted"))?;
        Ok(news.into_iter().filter_map(|n| usize::try_from(n).ok()).collect())
    }

    /// What went on differing of an applier is over, but for these objects. True where any was.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn settle_drift(
        &mut self,
        applier: ApplierUid,
        goes_on: &[ObjectRef],
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let Columns { groups, kinds, namespaces, names, .. } = Columns::of(goes_on);
        let ended = sqlx::query(
            "UPDATE drift SET ended_at = $2 WHERE applier = $1 AND ended_at IS NULL
             AND (api_group, kind, namespace, name) NOT IN
                 (SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]))",
        )
        .bind(applier.0)
        .bind(to_sql(now))
        .bind(groups)
        .bind(kinds)
        .bind(namespaces)
        .bind(names)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("settle what has drifted"))?;
        Ok(ended.rows_affected() > 0)
    }
}

impl Store {
    /// Whether the cluster has had all of this dispatch applied, and nothing was begun to be applied since that is not done: what differs
    /// there was changed by others.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn was_applied(
        &self,
        applier: ApplierUid,
        cluster: ClusterUid,
        dispatch: &Digest,
    ) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (
                 SELECT FROM reconciliation r
                 WHERE applier = $1 AND cluster_uid = $2 AND dispatch_digest = $3 AND reason IN ($4, $5)
                       AND NOT deletes AND NOT reads AND epoch >= (SELECT epoch FROM hub_state)
                       AND NOT EXISTS (
                           SELECT FROM reconciliation n
                           WHERE n.applier = $1 AND n.attempt > r.attempt
                                 AND (n.dispatch_digest <> $3
                                      OR n.dispatch_digest = $3 AND n.reason NOT IN ($4, $5)
                                         AND NOT coalesce((n.dispatch ->> 'observe')::boolean, false))))",
        )
        .bind(applier.0)
        .bind(cluster.0)
        .bind(dispatch.as_bytes().as_slice())
        .bind(Reason::ReconciliationSucceeded.as_str())
        .bind(Reason::HealthCheckFailed.as_str())
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look whether a dispatch was applied before"))
    }

    /// Objects that differ or differed, on the whole fleet, the latest first; of appliers that are visible, where it is said which
    /// are.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn drift(
        &self,
        filter: &DriftFilter,
        visible: Option<&Visible>,
        limit: i64,
    ) -> Result<Vec<FleetDrift>, StoreError> {
        let what = "look for drift";
        let rows = sqlx::query(
            "SELECT coalesce(c.name, '') AS cluster, k.kind AS applier_kind, k.namespace AS applier_namespace, k.name AS applier,
                    d.api_group, d.version, d.kind, d.namespace, d.name, d.state, d.missing, d.managers, d.fields, d.message,
                    d.corrections, d.first_seen, d.last_seen, d.ended_at
             FROM drift d JOIN resource k ON k.uid = d.applier LEFT JOIN resource c ON c.uid = d.cluster_uid
             WHERE ($1 = '' OR c.name = $1) AND ($2 = '' OR k.kind = $2) AND ($3 = '' OR k.namespace = $3)
                   AND ($4 = '' OR k.name = $4) AND (NOT $5 OR d.ended_at IS NULL)
                   AND ($6::timestamptz IS NULL OR d.last_seen < $6)
                   AND ($8::text[] IS NULL OR k.kind = ANY ($8)
                        OR k.kind || '/' || k.namespace IN (SELECT unnest($9::text[])))
             ORDER BY d.last_seen DESC, d.id DESC LIMIT $7",
        )
        .bind(&filter.cluster)
        .bind(&filter.applier_kind)
        .bind(&filter.applier_namespace)
        .bind(&filter.applier)
        .bind(filter.ongoing)
        .bind(filter.before.map(to_sql))
        .bind(limit)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.iter().map(|row| read(row, what)).collect()
    }

    /// Forgets of each applier what is over, but for the newest `keep`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn trim_drift(&self, keep: i64) -> Result<u64, StoreError> {
        let trimmed = sqlx::query(
            "DELETE FROM drift d USING
               (SELECT id, row_number() OVER (PARTITION BY applier ORDER BY last_seen DESC, id DESC) AS place
                FROM drift WHERE ended_at IS NOT NULL) n
             WHERE d.id = n.id AND n.place > $1",
        )
        .bind(keep)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("trim what has drifted"))?;
        Ok(trimmed.rows_affected())
    }
}

fn read(row: &PgRow, what: &'static str) -> Result<FleetDrift, StoreError> {
    let drift = read_columns(row).map_err(StoreError::query(what))?;
    let at = |column| -> Result<Timestamp, StoreError> {
        from_sql(what, row.try_get::<OffsetDateTime, _>(column).map_err(StoreError::query(what))?)
    };
    let ended: Option<OffsetDateTime> = row.try_get("ended_at").map_err(StoreError::query(what))?;
    Ok(FleetDrift {
        first_seen: at("first_seen")?,
        last_seen: at("last_seen")?,
        ended: ended.map(|ended| from_sql(what, ended)).transpose()?,
        ..drift
    })
}

/// All but the times.
fn read_columns(row: &PgRow) -> Result<FleetDrift, sqlx::Error> {
    Ok(FleetDrift {
        cluster: row.try_get("cluster")?,
        applier: ApplierRef {
            kind: row.try_get("applier_kind")?,
            namespace: row.try_get("applier_namespace")?,
            name: row.try_get("applier")?,
        },
        object: ObjectRef {
            group: row.try_get("api_group")?,
            version: row.try_get("version")?,
            kind: row.try_get("kind")?,
            namespace: row.try_get("namespace")?,
            name: row.try_get("name")?,
        },
        state: row.try_get("state")?,
        missing: row.try_get("missing")?,
        managers: row.try_get("managers")?,
        fields: row.try_get::<Json<Vec<FieldDrift>>, _>("fields")?.0,
        message: row.try_get("message")?,
        corrections: row.try_get("corrections")?,
        first_seen: Timestamp::UNIX_EPOCH,
        last_seen: Timestamp::UNIX_EPOCH,
        ended: None,
    })
}
