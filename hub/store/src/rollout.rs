//! Rollouts: how far commits have come, counted over the appliers that an Alert hears of, and what it told of that.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::{Reason, ResourceUid};
use serde::Serialize;
use serde_json::Value;
use sqlx::types::Json;

use crate::news::MOST_WAITING;
use crate::time::{from_sql, to_sql};
use crate::{LabelsByName, Store, StoreError, Tx};

/// Groups of appliers of one source on one cluster that are read at most, of some 200 bytes each.
const MOST_GROUPS: i64 = 50_000;
/// What has not come to an end, though it says that it is not ready.
const WAITING: [Reason; 2] = [Reason::Progressing, Reason::DependencyNotReady];

/// Kustomizations by the revision of their source and by cluster. Those that are suspended, pinned, or going away follow no commit; nor do those
/// of a source that is not Git's, unless that says which commit it comes of.
const COUNT: &str =
    "WITH wanted AS MATERIALIZED (
         SELECT name, labels, namespaces, clusters
         FROM jsonb_to_recordset($1::jsonb) AS wanted (name text, labels jsonb, namespaces jsonb, clusters jsonb)),
     follower AS MATERIALIZED (
         SELECT name, namespace, object, generation, ready, attempted,
                coalesce(cluster_ref, (SELECT named.name FROM resource AS named
                                       WHERE named.kind = 'Cluster' AND named.kubeconfig = resource.kubeconfig
                                       LIMIT 1)) AS cluster,
                (SELECT one FROM unnest(refers_to) AS one WHERE split_part(one, '/', 1) = ANY($4) LIMIT 1) AS reference
         FROM resource
         WHERE api_group = $2 AND kind = $3 AND NOT suspended AND NOT pinned AND deletion_timestamp IS NULL
           AND ($8::text[] IS NULL OR namespace COLLATE \"C\" = ANY($8))),
     applier AS MATERIALIZED (
         SELECT attempted, ready ->> 'status' AS ready, ready ->> 'reason' AS reason, cluster, reference,
                coalesce((ready ->> 'observedGeneration')::bigint, generation) = generation AS is_current
         FROM follower AS one
         WHERE EXISTS (SELECT FROM wanted
                       WHERE wanted.name IN (one.name, '*') AND (wanted.namespaces IS NULL OR wanted.namespaces ? one.namespace)
                         AND (wanted.clusters IS NULL OR wanted.clusters ? one.cluster)
                         AND CASE WHEN wanted.labels = '{}' THEN true
                             ELSE coalesce(one.object #> '{metadata,labels}' @> wanted.labels, false) END)),
     source AS MATERIALIZED (
         SELECT reference, object #>> '{status,artifact,revision}' AS revision,
                object #>> '{status,artifact,metadata,org.opencontainers.image.revision}' AS origin
         FROM (SELECT DISTINCT reference FROM applier WHERE reference IS NOT NULL) AS named
         JOIN resource ON api_group = $5 AND kind = split_part(reference, '/', 1)
                      AND namespace = split_part(reference, '/', 2) AND name = split_part(reference, '/', 3))
     SELECT revision, origin, cluster, count(*) AS total,
            count(*) FILTER (WHERE is_current AND attempted = revision AND ready = 'True') AS ready,
            count(*) FILTER (WHERE is_current AND attempted = revision AND ready = 'False' AND reason <> ALL($6)) AS failed
     FROM applier JOIN source USING (reference)
     WHERE revision IS NOT NULL AND (origin IS NOT NULL OR starts_with(reference, 'GitRepository/'))
     GROUP BY revision, origin, cluster LIMIT $7";

type Moment = ::time::OffsetDateTime;

/// Kustomizations that are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountedSource {
    /// Of this name; `*` for all.
    pub name: String,
    /// With these labels.
    pub labels: BTreeMap<String, String>,
    /// In these namespaces; none for all.
    pub namespaces: Option<Vec<String>>,
    /// On these clusters; none for all, and for what is on none.
    pub clusters: Option<Vec<String>>,
}

/// Kustomizations of one revision on one cluster, counted.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct CountedAppliers {
    /// Their source's revision.
    pub revision: String,
    /// The commit that it comes of, where the source says one.
    pub origin: Option<String>,
    /// The cluster; none where they are on none that has a name.
    pub cluster: Option<String>,
    /// How many there are.
    pub total: i64,
    /// Those that are ready at that revision.
    pub ready: i64,
    /// Those that failed at it.
    pub failed: i64,
}

/// What was told of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRollout {
    /// The commit, in hex.
    pub commit: String,
    /// The environment.
    pub environment: String,
    /// The revision, as the source has it.
    pub revision: String,
    /// What was said.
    pub verdict: String,
    /// Whether clusters were counted.
    pub of_clusters: bool,
    /// How many there were.
    pub total: i64,
    /// Those that were ready.
    pub ready: i64,
    /// Those that had failed.
    pub failed: i64,
    /// When that was.
    pub told_at: Timestamp,
    /// How many messages there were.
    pub messages: i64,
}

type Row = (String, String, String, String, bool, i64, i64, i64, Moment, i64);

impl Store {
    /// When an Alert's appliers were last counted.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn rollouts_counted_at(&self, alert: ResourceUid) -> Result<Option<Timestamp>, StoreError> {
        let what = "read when appliers were counted";
        let found: Option<Moment> =
            sqlx::query_scalar("SELECT counted_at FROM rollout_count WHERE alert = $1")
                .bind(alert.0)
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query(what))?;
        found.map(|at| from_sql(what, at)).transpose()
    }

    /// Whether an Alert has told that a rollout is under way, and not how it ended.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn has_pending_rollouts(&self, alert: ResourceUid) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM rollout WHERE alert = $1 AND verdict = 'pending')")
            .bind(alert.0)
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("look for rollouts"))
    }

    /// The first objects of a kind without namespaces, by their names, each with those of the given labels that it has.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn all_labels(
        &self,
        kind: KindId,
        keys: &[String],
        most: i64,
    ) -> Result<LabelsByName, StoreError> {
        let rows: Vec<(String, Json<BTreeMap<String, String>>)> = sqlx::query_as(
            "SELECT name, CASE WHEN cardinality($3::text[]) = 0 THEN '{}' ELSE
                        coalesce((SELECT jsonb_object_agg(key, value)
                                  FROM jsonb_each_text(coalesce(object #> '{metadata,labels}', '{}'))
                                  WHERE key = ANY($3)), '{}') END
             FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = '' ORDER BY name LIMIT $4",
        )
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .bind(keys)
        .bind(most)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("read the labels of all objects of a kind"))?;
        Ok(rows.into_iter().map(|(name, Json(labels))| (name, labels)).collect())
    }

    /// The names of the first objects of a kind in a namespace.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn names_in(
        &self,
        kind: KindId,
        namespace: &str,
        most: i64,
    ) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(
            "SELECT name FROM resource WHERE api_group = $1 AND kind = $2 AND namespace COLLATE \"C\" = $3
             ORDER BY name COLLATE \"C\" LIMIT $4",
        )
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .bind(namespace)
        .bind(most)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list the names of a namespace"))
    }
}

impl Tx {
    /// Counts Kustomizations, each once, by the revision that their source has and the cluster that they are on. Those that are suspended, pinned
    /// to a revision, or going away are not counted: they follow no commit.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn count_appliers(
        &mut self,
        sources: &[CountedSource],
    ) -> Result<Vec<CountedAppliers>, StoreError> {
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        // Where it is known, what lies elsewhere is not even looked at.
        let namespaces =
            sources.iter().map(|source| source.namespaces.as_deref()).collect::<Option<Vec<_>>>();
        let namespaces = namespaces.map(|all| all.concat());
        // To compile it takes longer than all else.
        sqlx::query("SET LOCAL jit = off")
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("count appliers by revision"))?;
        let (applier, source) = (KindId::Kustomization.get(), KindId::GitRepository.get());
        let kinds: Vec<&str> =
            KindId::of_role(roadstead_api::PipelineRole::Source).map(|kind| kind.get().kind).collect();
        sqlx::query_as(COUNT)
            .bind(Json(sources))
            .bind(applier.group())
            .bind(applier.kind)
            .bind(kinds)
            .bind(source.group())
            .bind(WAITING.map(Reason::as_str).to_vec())
            .bind(MOST_GROUPS)
            .bind(namespaces)
            .fetch_all(self.written().await?)
            .await
            .map_err(StoreError::query("count appliers by revision"))
    }

    /// Notes that an Alert's appliers were counted.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn rollouts_counted(&mut self, alert: ResourceUid, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO rollout_count (alert, counted_at) VALUES ($1, $2)
             ON CONFLICT (alert) DO UPDATE SET counted_at = excluded.counted_at",
        )
        .bind(alert.0)
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note that appliers were counted"))?;
        Ok(())
    }

    /// What an Alert told of these commits, and of all rollouts of which it told that they are under way.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn told_rollouts(
        &mut self,
        alert: ResourceUid,
        commits: &[&str],
    ) -> Result<Vec<StoredRollout>, StoreError> {
        let what = "read what was told of rollouts";
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT commit, environment, revision, verdict, of_clusters, total, ready, failed, told_at, messages FROM rollout
             WHERE alert = $1 AND (verdict = 'pending' OR commit = ANY($2))",
        )
        .bind(alert.0)
        .bind(commits)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let read = |row: Row| {
            let (
                commit,
                environment,
                revision,
                verdict,
                of_clusters,
                total,
                ready,
                failed,
                told_at,
                messages,
            ) = row;
            Ok(StoredRollout {
                commit,
                environment,
                revision,
                verdict,
                of_clusters,
                total,
                ready,
                failed,
                told_at: from_sql(what, told_at)?,
                messages,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Adds the status of a rollout to what its Alert sends, in the place of an earlier one that has not arrived, and notes what it says; false
    /// where as much waits as may, and nothing is noted. What was tried is due again when that was.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn tell_rollout(
        &mut self,
        alert: ResourceUid,
        rollout: &StoredRollout,
        event: &Value,
        key: &[u8; 32],
    ) -> Result<bool, StoreError> {
        let told = sqlx::query(
            "WITH outdated AS (DELETE FROM delivery WHERE alert = $1 AND key = $12 AND state = 'waiting' AND began_at IS NULL
                               RETURNING attempts, due_at, error),
                  room AS (SELECT EXISTS (SELECT FROM outdated)
                                  OR (SELECT count(*) FROM (SELECT FROM delivery WHERE alert = $1
                                                            AND state = 'waiting' LIMIT $13) AS waiting) < $13 AS is_there),
                  told AS (INSERT INTO rollout (alert, commit, environment, revision, verdict, of_clusters, total, ready, failed, told_at)
                           SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM room WHERE is_there
                           ON CONFLICT (alert, commit, environment) DO UPDATE SET revision = excluded.revision,
                               verdict = excluded.verdict, of_clusters = excluded.of_clusters, total = excluded.total,
                               ready = excluded.ready, failed = excluded.failed, told_at = excluded.told_at,
                               messages = rollout.messages + 1)
             INSERT INTO delivery (alert, news, key, event, made_at, attempts, due_at, error)
             SELECT $1, -nextval('incident_message'), $12, $11, $10, coalesce((SELECT max(attempts) FROM outdated), 0),
                    coalesce((SELECT max(due_at) FROM outdated), '-infinity'),
                    coalesce((SELECT max(error) FROM outdated), '')
             FROM room WHERE is_there",
        )
        .bind(alert.0)
        .bind(&rollout.commit)
        .bind(&rollout.environment)
        .bind(&rollout.revision)
        .bind(&rollout.verdict)
        .bind(rollout.of_clusters)
        .bind(rollout.total)
        .bind(rollout.ready)
        .bind(rollout.failed)
        .bind(to_sql(rollout.told_at))
        .bind(event)
        .bind(key.as_slice())
        .bind(MOST_WAITING)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("tell a rollout"))?;
        Ok(told.rows_affected() > 0)
    }
}
