//! Numbers of the whole hub, as monitoring asks for them.

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use uuid::Uuid;

use crate::time::to_sql;
use crate::{Store, StoreError};

/// Versions of agents that are told apart; a fleet has a few.
const MOST_VERSIONS: i64 = 50;

/// What is due in a queue.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct QueueDepth {
    /// The queue, as the database has it.
    pub queue: String,
    /// Passes that are due, and that no replica makes yet.
    pub due: i64,
    /// Passes that are being made.
    pub claimed: i64,
    /// For how long the oldest of those that are due has been so, in seconds.
    pub oldest: f64,
}

/// What waits to be sent by Alerts.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub struct WaitingDeliveries {
    /// How many.
    pub count: i64,
    /// For how long the oldest of them has waited, in seconds.
    pub oldest: f64,
}

/// An object of the pipeline, as far as monitoring shows it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ObjectInfo {
    /// Its API group.
    pub api_group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Cluster that it is for; empty where none is named.
    pub cluster: String,
    /// The status of its Ready condition.
    pub ready: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// The revision that it has applied or fetched; empty where there is none.
    pub revision: String,
    /// The name of its source; empty where none is named.
    pub source: String,
}

impl Store {
    /// What is due in each queue that has anything.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>, StoreError> {
        sqlx::query_as(
            "SELECT kind AS queue, count(*) FILTER (WHERE due_at <= $1 AND claimed_by IS NULL) AS due,
                    count(claimed_by) AS claimed,
                    coalesce(extract(epoch FROM $1::timestamptz - min(due_at) FILTER (WHERE due_at <= $1 AND claimed_by IS NULL
                                                                         AND isfinite(due_at))), 0)::float8 AS oldest
             FROM schedule GROUP BY kind",
        )
        .bind(to_sql(now))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("count what is due"))
    }

    /// How many agents are connected, by their version.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn agents_by_version(&self) -> Result<Vec<(String, i64)>, StoreError> {
        sqlx::query_as(
            "SELECT left(agent_version, 64), count(*) FROM agent_session WHERE disconnected_at IS NULL
             GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT $1",
        )
        .bind(MOST_VERSIONS)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("count the agents"))
    }

    /// What Alerts have still to send, and what is still to be sent for those that are gone.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn deliveries_that_wait(&self, now: Timestamp) -> Result<WaitingDeliveries, StoreError> {
        sqlx::query_as(
            "SELECT count(*) AS count, coalesce(extract(epoch FROM $1::timestamptz - min(made_at)), 0)::float8 AS oldest
             FROM (SELECT made_at FROM delivery WHERE state = 'waiting'
                   UNION ALL SELECT coalesce(since, $1) FROM incident_closing) AS waiting",
        )
        .bind(to_sql(now))
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("count what Alerts have to send"))
    }

    /// How many incidents go on.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn open_incidents(&self) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM incident WHERE ended_at IS NULL AND well_since IS NULL")
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("count incidents"))
    }

    /// How many entries of the audit log are in no batch yet, up to `limit`.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn unsealed_entries(&self, limit: i64) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM (SELECT FROM audit WHERE batch IS NULL LIMIT $1) waiting")
            .bind(limit)
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("count what of the audit log is not sealed"))
    }

    /// Up to `limit` objects of these kinds, in an order that stays.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn object_infos(&self, of: &[KindId], limit: i64) -> Result<Vec<ObjectInfo>, StoreError> {
        sqlx::query_as(
            "SELECT found.* FROM unnest($1::text[], $2::text[]) AS wanted (api_group, kind) CROSS JOIN LATERAL (
                 SELECT r.api_group, r.kind, r.namespace, r.name, coalesce(c.name, r.cluster_ref, '') AS cluster,
                        coalesce(shown_ready(r.ready, r.object, lost.since) ->> 'status', 'Unknown') AS ready, r.suspended,
                        coalesce(r.object #>> '{status,lastAppliedRevision}', r.object #>> '{status,artifact,revision}', '')
                            AS revision,
                        coalesce(r.object #>> '{spec,sourceRef,name}', '') AS source
                 FROM resource r LEFT JOIN resource c ON c.kind = 'Cluster' AND c.kubeconfig = r.kubeconfig
                 LEFT JOIN lost_cluster lost ON lost.name = coalesce(c.name, r.cluster_ref)
                 WHERE r.api_group = wanted.api_group AND r.kind = wanted.kind
                 ORDER BY r.namespace COLLATE \"C\", r.name COLLATE \"C\" LIMIT $3) found
             LIMIT $3",
        )
        .bind(of.iter().map(|kind| kind.get().group()).collect::<Vec<_>>())
        .bind(of.iter().map(|kind| kind.get().kind).collect::<Vec<_>>())
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list objects for monitoring"))
    }

    /// How many objects of these kinds there are, up to `limit`.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn object_count(&self, of: &[KindId], limit: i64) -> Result<i64, StoreError> {
        sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT FROM unnest($1::text[], $2::text[]) AS wanted (api_group, kind)
                                   JOIN resource r ON r.api_group = wanted.api_group AND r.kind = wanted.kind LIMIT $3) found",
        )
        .bind(of.iter().map(|kind| kind.get().group()).collect::<Vec<_>>())
        .bind(of.iter().map(|kind| kind.get().kind).collect::<Vec<_>>())
        .bind(limit)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("count objects for monitoring"))
    }

    /// Kind, namespace and name of those of these objects that exist.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn names_of(
        &self,
        objects: &[ResourceUid],
    ) -> Result<Vec<(ResourceUid, [String; 3])>, StoreError> {
        let rows: Vec<(Uuid, String, String, String)> = sqlx::query_as(
            "SELECT uid, kind, namespace, name FROM resource WHERE uid = ANY ($1) ORDER BY uid",
        )
        .bind(objects.iter().map(|uid| uid.0).collect::<Vec<_>>())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("name objects for monitoring"))?;
        let read = |(uid, kind, namespace, name)| (ResourceUid(uid), [kind, namespace, name]);
        Ok(rows.into_iter().map(read).collect())
    }

    /// Connections to the database: those that are open, and those of them that nobody uses.
    #[must_use]
    pub fn database_connections(&self) -> [(&'static str, u32, usize); 2] {
        [
            ("reads", self.pool.size(), self.pool.num_idle()),
            ("writes", self.units.size(), self.units.num_idle()),
        ]
    }
}
