//! Lists of objects of the hub that span kinds and namespaces: the SQL behind the fleet views of appliers, sources and Events.

use roadstead_api::{KindId, PipelineRole};
use roadstead_model::{ApplierFilter, EventFilter, EventKey, ListKey, ResourceUid, SourceFilter, Visible};
use serde_json::Value;
use uuid::Uuid;

use crate::references::kinds;
use crate::{Store, StoreError};

/// An applier, as far as lists show it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ApplierRow {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Cluster that it is for; empty where none is named.
    pub cluster: String,
    /// Its labels.
    pub labels: Value,
    /// Its sources, each as a key of [`roadstead_api::Reference`].
    pub sources: Vec<String>,
    /// Its path in the source; empty where its kind has none.
    pub path: String,
    /// The revision that was applied last.
    pub revision: String,
    /// The revision to which it is pinned; empty where it follows its source.
    pub pinned: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Its Ready condition.
    pub ready: Option<Value>,
}

/// A source, as far as lists show it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SourceRow {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Value,
    /// Where it is fetched from; empty where nothing says so.
    pub address: String,
    /// The revision that it has; empty where there is none.
    pub revision: String,
    /// When it had that first; empty where there is none.
    pub fetched: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Its Ready condition.
    pub ready: Option<Value>,
}

impl Store {
    /// Up to `limit` appliers of these kinds behind `after`, as far as lists show them: by namespace, name and kind. Only what is
    /// visible, where it is said what is.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn applier_rows(
        &self,
        of: &[KindId],
        filter: &ApplierFilter,
        visible: Option<&Visible>,
        after: Option<&ListKey>,
        limit: i64,
    ) -> Result<Vec<ApplierRow>, StoreError> {
        let first = ListKey(String::new(), String::new(), String::new());
        let after = after.unwrap_or(&first);
        // Each kind is read in its own order, which the index for lists has, and no further than a page: what comes of all is
        // then put in one order.
        sqlx::query_as(
            "SELECT found.* FROM unnest($1::text[], $2::text[]) AS wanted (api_group, kind) CROSS JOIN LATERAL ( \
             SELECT r.kind, r.namespace, r.name, coalesce(c.name, r.cluster_ref, '') AS cluster, \
             coalesce(r.object #> '{metadata,labels}', '{}') AS labels, \
             ARRAY(SELECT used FROM unnest(r.refers_to) AS used WHERE split_part(used, '/', 1) = ANY ($3)) AS sources, \
             coalesce(r.object #>> '{spec,path}', '') AS path, \
             coalesce(r.object #>> '{status,lastAppliedRevision}', '') AS revision, \
             coalesce(r.object #>> '{spec,pin,revision}', \
             r.object #>> '{metadata,annotations,fleet.roadstead.dev/pin}', '') AS pinned, r.suspended, \
             shown_ready(r.ready, r.object, lost.since) AS ready \
             FROM resource r LEFT JOIN resource c ON c.kind = 'Cluster' AND c.kubeconfig = r.kubeconfig \
             LEFT JOIN lost_cluster lost ON lost.name = coalesce(c.name, r.cluster_ref) \
             WHERE r.api_group = wanted.api_group AND r.kind = wanted.kind \
             AND (r.namespace COLLATE \"C\", r.name COLLATE \"C\") >= ($4, $5) \
             AND ((r.namespace, r.name) <> ($4, $5) OR r.kind COLLATE \"C\" > $6) \
             AND ($7 = '' OR coalesce(c.name, r.cluster_ref, '') = $7) AND ($8 = '' OR r.namespace = $8) \
             AND ($9 = '' OR strpos(r.name, $9) > 0) \
             AND (($10 = '' AND $11 = '' AND $12 = '') OR EXISTS (SELECT FROM unnest(r.refers_to) AS used \
                  WHERE split_part(used, '/', 1) = ANY ($3) AND ($10 = '' OR split_part(used, '/', 1) = $10) \
                  AND ($11 = '' OR split_part(used, '/', 2) = $11) AND ($12 = '' OR split_part(used, '/', 3) = $12))) \
             AND ($13 = '' OR CASE WHEN r.suspended THEN 'Suspended' ELSE coalesce(shown_ready(r.ready, r.object, lost.since) ->> 'status', 'Unknown') END = $13) \
             AND ($15::text[] IS NULL OR r.kind = ANY ($15) \
             OR r.kind || '/' || r.namespace IN (SELECT unnest($16::text[]))) \
             ORDER BY r.namespace COLLATE \"C\", r.name COLLATE \"C\" LIMIT $14) found \
             ORDER BY found.namespace COLLATE \"C\", found.name COLLATE \"C\", found.kind COLLATE \"C\" LIMIT $14",
        )
        .bind(of.iter().map(|kind| kind.get().group()).collect::<Vec<_>>())
        .bind(of.iter().map(|kind| kind.get().kind).collect::<Vec<_>>())
        .bind(kinds(PipelineRole::Source))
        .bind(&after.0)
        .bind(&after.1)
        .bind(&after.2)
        .bind(&filter.cluster)
        .bind(&filter.namespace)
        .bind(&filter.name)
        .bind(&filter.source_kind)
        .bind(&filter.source_namespace)
        .bind(&filter.source_name)
        .bind(&filter.state)
        .bind(limit)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for appliers"))
    }

    /// Up to `limit` sources of some kinds behind `after`, by namespace, name and kind; those that are visible, where it is said which
    /// are.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn source_rows(
        &self,
        of: &[KindId],
        filter: &SourceFilter,
        visible: Option<&Visible>,
        after: Option<&ListKey>,
        limit: i64,
    ) -> Result<Vec<SourceRow>, StoreError> {
        let first = ListKey(String::new(), String::new(), String::new());
        let after = after.unwrap_or(&first);
        // As in `applier_rows`: each kind in the order of the index for lists, no further than a page.
        sqlx::query_as(
            "SELECT found.* FROM unnest($1::text[], $2::text[]) AS wanted (api_group, kind) CROSS JOIN LATERAL ( \
             SELECT r.kind, r.namespace, r.name, coalesce(r.object #> '{metadata,labels}', '{}') AS labels, \
             coalesce(r.object #>> '{spec,url}', rtrim(r.object #>> '{spec,endpoint}', '/') || '/' \
                      || coalesce(r.object #>> '{spec,bucketName}', ''), '') AS address, \
             coalesce(r.object #>> '{status,artifact,revision}', '') AS revision, \
             coalesce(r.object #>> '{status,artifact,lastUpdateTime}', '') AS fetched, r.suspended, r.ready \
             FROM resource r WHERE r.api_group = wanted.api_group AND r.kind = wanted.kind \
             AND (r.namespace COLLATE \"C\", r.name COLLATE \"C\") >= ($3, $4) \
             AND ((r.namespace, r.name) <> ($3, $4) OR r.kind COLLATE \"C\" > $5) \
             AND ($6 = '' OR r.namespace = $6) AND ($7 = '' OR strpos(r.name, $7) > 0) \
             AND ($8 = '' OR CASE WHEN r.suspended THEN 'Suspended' ELSE coalesce(r.ready ->> 'status', 'Unknown') END = $8) \
             AND ($10::text[] IS NULL OR r.kind = ANY ($10) \
             OR r.kind || '/' || r.namespace IN (SELECT unnest($11::text[]))) \
             ORDER BY r.namespace COLLATE \"C\", r.name COLLATE \"C\" LIMIT $9) found \
             ORDER BY found.namespace COLLATE \"C\", found.name COLLATE \"C\", found.kind COLLATE \"C\" LIMIT $9",
        )
        .bind(of.iter().map(|kind| kind.get().group()).collect::<Vec<_>>())
        .bind(of.iter().map(|kind| kind.get().kind).collect::<Vec<_>>())
        .bind(&after.0)
        .bind(&after.1)
        .bind(&after.2)
        .bind(&filter.namespace)
        .bind(&filter.name)
        .bind(&filter.state)
        .bind(limit)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for sources"))
    }

    /// Up to `limit` Events behind `after`, those that last happened last first, as they are stored; those that are visible, where it
    /// is said which are. Among them, with `cluster`, what Flux's controllers reported in clusters: in these, where it is said in which.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn latest_events(
        &self,
        filter: &EventFilter,
        visible: Option<&Visible>,
        clusters: Option<&[String]>,
        after: Option<&EventKey>,
        limit: i64,
    ) -> Result<Vec<(ResourceUid, Value)>, StoreError> {
        let rows: Vec<(Uuid, Value, Option<String>)> = sqlx::query_as(
            "WITH own AS (SELECT uid, object, last_seen FROM resource WHERE kind = 'Event' AND $11 = '' \
             AND ($7::text[] IS NULL OR kind = ANY ($7) OR kind || '/' || namespace IN (SELECT unnest($8::text[]))) \
             AND ($1 = '' OR object #>> '{involvedObject,kind}' = $1) \
             AND ($2 = '' OR coalesce(object #>> '{involvedObject,namespace}', '') = $2) \
             AND ($3 = '' OR strpos(object #>> '{involvedObject,name}', $3) > 0) AND ($4 = '' OR object ->> 'type' = $4) \
             AND ($5 = '' OR last_seen < $5) AND ($9::uuid IS NULL OR (last_seen, uid) < ($10, $9)) \
             ORDER BY last_seen DESC, uid DESC LIMIT $6), \
             told AS (SELECT uid, jsonb_build_object('type', type, 'reason', reason, 'message', message, 'count', count, 'cluster', cluster, \
                     'firstTimestamp', first_seen, 'lastTimestamp', last_seen, 'involvedObject', \
                     jsonb_build_object('kind', kind, 'namespace', namespace, 'name', name)) AS object, last_seen \
              FROM relayed_event WHERE $11 IN ('', cluster) AND ($12::text[] IS NULL OR cluster = ANY ($12)) \
             AND $1 IN ('', kind) AND $2 IN ('', namespace) AND ($3 = '' OR strpos(name, $3) > 0) AND $4 IN ('', type) \
             AND ($5 = '' OR last_seen < $5) AND ($9::uuid IS NULL OR (last_seen, uid) < ($10, $9)) \
             ORDER BY last_seen DESC, uid DESC LIMIT $6) \
             SELECT * FROM own UNION ALL SELECT * FROM told ORDER BY last_seen DESC, uid DESC LIMIT $6",
        )
        .bind(&filter.kind)
        .bind(&filter.namespace)
        .bind(&filter.name)
        .bind(&filter.type_)
        .bind(filter.before.map(|at| format!("{at:.0}")).unwrap_or_default())
        .bind(limit)
        .bind(visible.map(|visible| visible.kinds.as_slice()))
        .bind(visible.map(|visible| visible.places.as_slice()))
        .bind(after.map(|after| after.1.0))
        .bind(after.map(|after| after.0.as_str()))
        .bind(&filter.cluster)
        .bind(clusters)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for events"))?;
        Ok(rows.into_iter().map(|(uid, event, _)| (ResourceUid(uid), event)).collect())
    }
}
