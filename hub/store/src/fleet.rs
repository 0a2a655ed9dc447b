//! What spans clusters: the SQL behind the fleet views.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::PipelineRole;
use roadstead_model::{
    ApplierRef, AttemptFilter, ChangeSet, ClusterUid, InventoryFilter, InventoryKey, ObjectRef, Trigger,
    Visible,
};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::references::kinds;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError};

/// An object that an applier owns on a cluster.
#[derive(Debug, Clone)]
pub struct OwnedObject {
    /// The Cluster's name; empty where the Cluster is gone.
    pub cluster: String,
    /// The object.
    pub object: ObjectRef,
    /// The applier that owns it; none where that is gone.
    pub applier: Option<ApplierRef>,
    /// Announced, and not yet seen applied.
    pub intended: bool,
    /// Its labels, as they were applied last.
    pub labels: BTreeMap<String, String>,
    /// Its health as it was told last, as `InProgress: Available: 1/2`; none where it was applied and not waited for.
    pub health: Option<String>,
    /// Where it stands.
    pub key: InventoryKey,
}

/// How many objects of the hub are in the same state.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct HealthCount {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for Clusters.
    pub namespace: String,
    /// The Cluster that they are for, by name; empty for sources.
    pub cluster: String,
    /// The Ready condition's status; empty where it was not processed yet.
    pub ready: String,
    /// Its reason.
    pub reason: String,
    /// Whether they are suspended.
    pub suspended: bool,
    /// How many.
    pub count: i64,
    /// Since when the first of them is so.
    pub since: Option<String>,
}

/// An attempt at reconciling, of whichever applier.
#[derive(Debug, Clone)]
pub struct FleetAttempt {
    /// The applier.
    pub applier: ApplierRef,
    /// The Cluster's name; empty where there was none or it is gone.
    pub cluster: String,
    /// Which attempt.
    pub attempt: i64,
    /// What led to it; none of one that an older version made.
    pub trigger: Option<Trigger>,
    /// Who led to it, where somebody's change did.
    pub actor: Option<String>,
    /// The source's revision.
    pub revision: Option<String>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// How it ended.
    pub reason: Option<String>,
    /// The same for people.
    pub message: String,
    /// What it did.
    pub change_set: ChangeSet,
}

/// When a cluster's agent came last, and when it went, if it is gone.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionTimes {
    /// When its newest session began.
    pub connected: Timestamp,
    /// When that ended.
    pub disconnected: Option<Timestamp>,
}

impl Store {
    /// Up to `limit` owned objects behind `after`; of appliers that are visible, where it is said which are.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn search_inventory(
        &self,
        filter: &InventoryFilter,
        visible: Option<&Visible>,
        after: Option<&InventoryKey>,
        limit: i64,
    ) -> Result<Vec<OwnedObject>, StoreError> {
        let what = "search the inventory";
        let first = InventoryKey(Uuid::nil(), String::new(), String::new(), String::new(), String::new());
        let after = after.unwrap_or(&first);
        let rows = sqlx::query(
            "SELECT found.*, CASE WHEN found.unseen THEN 'Unknown: not seen since its cluster was last reached' \
             ELSE coalesce(told.health, CASE WHEN ended.reason IS DISTINCT FROM 'ReconciliationSucceeded' \
             THEN 'Unknown' WHEN waits THEN 'Current' END) END AS health FROM ( \
             SELECT i.cluster_uid, i.api_group, i.version, i.kind, i.namespace, i.name, i.intended, i.labels, \
             i.applier, coalesce(c.name, '') AS cluster, k.kind AS owner_kind, k.namespace AS owner_namespace, \
             k.name AS owner, k.object #>> '{spec,wait}' = 'true' AS waits, is_unseen(k.object, lost.since) AS unseen \
             FROM inventory i LEFT JOIN resource c ON c.uid = i.cluster_uid LEFT JOIN resource k ON k.uid = i.applier \
             LEFT JOIN lost_cluster lost ON lost.uid = i.cluster_uid \
             WHERE (i.cluster_uid, i.api_group, i.kind, i.namespace, i.name) > ($1, $2, $3, $4, $5) \
             AND ($6 = '' OR c.name = $6) AND ($7 = '' OR i.kind = $7) AND ($8 = '' OR i.namespace = $8) \
             AND ($9 = '' OR strpos(i.name, $9) > 0) AND ($10 = '' OR k.namespace = $10) AND ($11 = '' OR k.name = $11) \
             AND i.labels @> $13 AND i.labels ?& $14 AND ($15 = '' OR k.kind = $15) \
             AND ($16::text[] IS NULL OR k.kind = ANY ($16) \
             OR k.kind || '/' || k.namespace IN (SELECT unnest($17::text[]))) \
             ORDER BY i.cluster_uid, i.api_group, i.kind, i.namespace, i.name LIMIT $12) found \
             LEFT JOIN LATERAL (SELECT r.health ->> concat_ws('/', found.kind, nullif(found.namespace, ''), found.name) \
             AS health FROM reconciliation r WHERE r.applier = found.applier AND r.health IS NOT NULL \
             ORDER BY r.attempt DESC LIMIT 1) told ON true \
             LEFT JOIN LATERAL (SELECT r.reason FROM reconciliation r WHERE r.applier = found.applier \
             AND r.finished_at IS NOT NULL ORDER BY r.attempt DESC LIMIT 1) ended ON true \
             ORDER BY cluster_uid, api_group, kind, namespace, name",
        )
        .bind(after.0)
        .bind(&after.1)
        .bind(&after.2)
        .bind(&after.3)
        .bind(&after.4)
        .bind(&filter.cluster)
        .bind(&filter.kind)
        .bind(&filter.namespace)
        .bind(&filter.name)
        .bind(&filter.applier_namespace)
        .bind(&filter.applier)
        .bind(limit)
        .bind(Json(&filter.labels))
        .bind(&filter.label_keys)
        .bind(&filter.applier_kind)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.iter().map(owned).collect::<Result<_, _>>().map_err(StoreError::query(what))
    }

    /// How many appliers, sources and Clusters are in which state, by namespace and cluster; of those that are visible, where it is
    /// said which are. An applier that names a kubeconfig is for the Cluster that came on board by it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn health_counts(&self, visible: Option<&Visible>) -> Result<Vec<HealthCount>, StoreError> {
        sqlx::query_as(
            "SELECT kind, namespace, cluster, coalesce(ready ->> 'status', '') AS ready, \
             coalesce(ready ->> 'reason', '') AS reason, suspended, count(*) AS count, \
             min(ready ->> 'lastTransitionTime') AS since \
             FROM (SELECT r.kind, r.namespace, CASE WHEN r.kind = 'Cluster' THEN r.name ELSE \
                   coalesce(c.name, r.cluster_ref, '') END AS cluster, r.suspended, \
                   shown_ready(r.ready, r.object, lost.since) AS ready \
                   FROM resource r LEFT JOIN resource c \
                   ON r.kind = ANY ($1) AND c.kind = 'Cluster' AND c.kubeconfig = r.kubeconfig \
                   LEFT JOIN lost_cluster lost ON r.kind = ANY ($1) AND lost.name = coalesce(c.name, r.cluster_ref) \
                   WHERE (r.kind = 'Cluster' OR r.kind = ANY ($1) OR r.kind = ANY ($2)) \
                   AND ($3::text[] IS NULL OR r.kind = ANY ($3) OR r.kind || '/' || r.namespace IN (SELECT unnest($4::text[])) \
                        OR (r.kind = 'Cluster' AND r.name IN (SELECT unnest($5::text[]))))) states \
             GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6",
        )
        .bind(kinds(PipelineRole::Applier))
        .bind(kinds(PipelineRole::Source))
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .bind(visible.map(|visible| visible.clusters.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("count what is Ready"))
    }

    /// The same of the appliers for these Clusters.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn health_counts_of(
        &self,
        clusters: &[String],
        visible: Option<&Visible>,
    ) -> Result<Vec<HealthCount>, StoreError> {
        sqlx::query_as(
            "SELECT kind, namespace, cluster, coalesce(ready ->> 'status', '') AS ready, \
             coalesce(ready ->> 'reason', '') AS reason, suspended, count(*) AS count, \
             min(ready ->> 'lastTransitionTime') AS since \
             FROM (SELECT r.kind, r.namespace, r.cluster_ref AS cluster, r.suspended, \
                   shown_ready(r.ready, r.object, lost.since) AS ready \
                   FROM resource r LEFT JOIN lost_cluster lost ON lost.name = r.cluster_ref \
                   WHERE r.kind = ANY ($2) AND r.cluster_ref = ANY ($1) AND r.kubeconfig IS NULL \
                   AND ($3::text[] IS NULL OR r.kind = ANY ($3) OR r.kind || '/' || r.namespace IN (SELECT unnest($4::text[]))) \
                   UNION ALL \
                   SELECT r.kind, r.namespace, c.name, r.suspended, shown_ready(r.ready, r.object, lost.since) \
                   FROM resource c JOIN resource r ON r.kubeconfig = c.kubeconfig \
                   LEFT JOIN lost_cluster lost ON lost.uid = c.uid \
                   WHERE c.kind = 'Cluster' AND c.name = ANY ($1) AND r.kind = ANY ($2) \
                   AND ($3::text[] IS NULL OR r.kind = ANY ($3) OR r.kind || '/' || r.namespace IN (SELECT unnest($4::text[])))) states \
             GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6",
        )
        .bind(clusters)
        .bind(kinds(PipelineRole::Applier))
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("count what is Ready on some clusters"))
    }

    /// How many objects each cluster has of ours: all clusters, or these; of appliers that are visible, where it is said which are.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn object_counts(
        &self,
        of: Option<&[Uuid]>,
        visible: Option<&Visible>,
    ) -> Result<Vec<(ClusterUid, i64)>, StoreError> {
        let rows: Vec<(Uuid, i64)> = sqlx::query_as(
            "SELECT cluster_uid, count(*) FROM inventory i WHERE ($1::uuid[] IS NULL OR cluster_uid = ANY ($1)) \
             AND ($2::text[] IS NULL OR EXISTS (SELECT FROM resource k WHERE k.uid = i.applier AND (k.kind = ANY ($2) \
                  OR k.kind || '/' || k.namespace IN (SELECT unnest($3::text[]))))) GROUP BY cluster_uid",
        )
        .bind(of)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("count what clusters have"))?;
        Ok(rows.into_iter().map(|(cluster, count)| (ClusterUid(cluster), count)).collect())
    }

    /// When agents were connected: of all clusters, or of these.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn connections(
        &self,
        of: Option<&[Uuid]>,
    ) -> Result<Vec<(ClusterUid, ConnectionTimes)>, StoreError> {
        let what = "look when agents were connected";
        let rows: Vec<(Uuid, OffsetDateTime, Option<OffsetDateTime>)> = sqlx::query_as(
            "SELECT cluster_uid, connected_at, disconnected_at FROM agent_session \
             WHERE $1::uuid[] IS NULL OR cluster_uid = ANY ($1)",
        )
        .bind(of)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.into_iter()
            .map(|(cluster, connected, disconnected)| {
                let connected = from_sql(what, connected)?;
                let disconnected = disconnected.map(|at| from_sql(what, at)).transpose()?;
                Ok((ClusterUid(cluster), ConnectionTimes { connected, disconnected }))
            })
            .collect()
    }

    /// Up to `limit` attempts, the newest first; of appliers that are visible, where it is said which are.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn attempts(
        &self,
        filter: &AttemptFilter,
        visible: Option<&Visible>,
        limit: i64,
    ) -> Result<Vec<FleetAttempt>, StoreError> {
        let what = "look for reconciliations";
        // Drift: the same build went to the same cluster, and yet something was written.
        let rows = sqlx::query(
            "SELECT k.kind, k.namespace, k.name, coalesce(c.name, '') AS cluster, r.attempt, r.revision, r.trigger, r.actor, r.started_at, \
             r.finished_at, r.reason, coalesce(r.message, '') AS message, r.change_set \
             FROM reconciliation r JOIN resource k ON k.uid = r.applier \
             LEFT JOIN resource c ON c.uid = r.cluster_uid \
             WHERE ($1 = '' OR k.namespace = $1) AND ($2 = '' OR c.name = $2) \
             AND ($7 = '' OR k.kind = $7) AND ($8 = '' OR k.name = $8) \
             AND ($9::text[] IS NULL OR k.kind = ANY ($9) \
             OR k.kind || '/' || k.namespace IN (SELECT unnest($10::text[]))) \
             AND (NOT $3 OR (r.finished_at IS NOT NULL AND r.reason <> 'ReconciliationSucceeded')) \
             AND ($4::timestamptz IS NULL OR r.started_at < $4) \
             AND (NOT $5 OR (r.finished_at IS NOT NULL AND NOT r.deletes AND NOT r.reads AND \
                  jsonb_path_exists(r.change_set, '$[*] ? (@.action == \"created\" || @.action == \"configured\" || \
                                    @.action == \"recreated\" || @.action == \"adopted\")') AND \
                  (r.corrects OR EXISTS (SELECT FROM reconciliation b WHERE b.applier = r.applier AND b.attempt = \
                          (SELECT max(attempt) FROM reconciliation m WHERE m.applier = r.applier \
                           AND m.attempt < r.attempt AND m.reason = 'ReconciliationSucceeded') \
                          AND b.build_digest = r.build_digest AND b.cluster_uid = r.cluster_uid AND NOT b.deletes AND NOT b.reads)))) \
             ORDER BY r.started_at DESC, r.applier, r.attempt DESC LIMIT $6",
        )
        .bind(&filter.applier_namespace)
        .bind(&filter.cluster)
        .bind(filter.failed)
        .bind(filter.before.map(to_sql))
        .bind(filter.drift)
        .bind(limit)
        .bind(&filter.applier_kind)
        .bind(&filter.applier)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.iter().map(|row| attempt(row, what)).collect()
    }
}

fn owned(row: &PgRow) -> Result<OwnedObject, sqlx::Error> {
    let object = ObjectRef {
        group: row.try_get("api_group")?,
        version: row.try_get("version")?,
        kind: row.try_get("kind")?,
        namespace: row.try_get("namespace")?,
        name: row.try_get("name")?,
    };
    let key = InventoryKey(
        row.try_get("cluster_uid")?,
        object.group.clone(),
        object.kind.clone(),
        object.namespace.clone(),
        object.name.clone(),
    );
    let owner: Option<String> = row.try_get("owner_kind")?;
    let applier = owner.map(|kind| -> Result<_, sqlx::Error> {
        Ok(ApplierRef { kind, namespace: row.try_get("owner_namespace")?, name: row.try_get("owner")? })
    });
    Ok(OwnedObject {
        cluster: row.try_get("cluster")?,
        applier: applier.transpose()?,
        intended: row.try_get("intended")?,
        labels: row.try_get::<Json<_>, _>("labels")?.0,
        health: row.try_get("health")?,
        object,
        key,
    })
}

fn attempt(row: &PgRow, what: &'static str) -> Result<FleetAttempt, StoreError> {
    let failed = StoreError::query(what);
    let read = || -> Result<_, sqlx::Error> {
        let started: OffsetDateTime = row.try_get("started_at")?;
        let finished: Option<OffsetDateTime> = row.try_get("finished_at")?;
        let change_set: Option<Json<ChangeSet>> = row.try_get("change_set")?;
        let attempt = FleetAttempt {
            applier: ApplierRef {
                kind: row.try_get("kind")?,
                namespace: row.try_get("namespace")?,
                name: row.try_get("name")?,
            },
            cluster: row.try_get("cluster")?,
            attempt: row.try_get("attempt")?,
            trigger: row.try_get::<Option<String>, _>("trigger")?.as_deref().and_then(Trigger::parse),
            actor: row.try_get("actor")?,
            revision: row.try_get("revision")?,
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            reason: row.try_get("reason")?,
            message: row.try_get("message")?,
            change_set: change_set.map(|Json(set)| set).unwrap_or_default(),
        };
        Ok((attempt, started, finished))
    };
    let (attempt, started, finished) = read().map_err(failed)?;
    Ok(FleetAttempt {
        started: from_sql(what, started)?,
        finished: finished.map(|at| from_sql(what, at)).transpose()?,
        ..attempt
    })
}
