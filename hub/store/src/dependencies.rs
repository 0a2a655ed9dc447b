//! What appliers wait for: `spec.dependsOn`, asked for in sets, so that what a question costs is bounded by its limits
//! and not by what users write.

use roadstead_api::KindId;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _};

use crate::{Store, StoreError};

/// What a dependent has to know of an applier that it waits for.
#[derive(Debug, Clone)]
pub struct DependencyRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `status.conditions`; null where there are none.
    pub conditions: Value,
    /// `status.lastAppliedRevision`.
    pub last_applied_revision: Option<String>,
    /// Whether it is pinned to a revision of its source.
    pub pinned: bool,
    /// The keys of what it refers to.
    pub refers_to: Vec<String>,
}

/// An applier that is reached along `spec.dependsOn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedDependency {
    /// Its namespace and name.
    pub name: (String, String),
    /// The positions, in the list of all that are reached, of those that it depends on itself.
    pub next: Vec<usize>,
}

/// How far [`Store::reached_dependencies`] goes.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Appliers that are visited.
    pub appliers: usize,
    /// One with more entries than this in `spec.dependsOn` is not followed: it is refused itself.
    pub entries: usize,
}

impl Store {
    /// What is known of these appliers of a kind, by (namespace, name); those that do not exist are left out.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn dependencies(
        &self,
        kind: KindId,
        names: &[(String, String)],
    ) -> Result<Vec<DependencyRow>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let what = "look up dependencies";
        let (namespaces, names) = columns(names);
        // By the OFFSET each is looked up by its key.
        let rows = sqlx::query(
            "SELECT found.* FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS wanted (namespace, name)) wanted
             CROSS JOIN LATERAL (
               SELECT namespace, name, generation, deletion_timestamp IS NOT NULL AS deleting,
                      coalesce(object #> '{status,conditions}', 'null') AS conditions,
                      object #>> '{status,lastAppliedRevision}' AS last_applied_revision,
                      coalesce(object #> '{spec,pin}', object #> '{metadata,annotations,fleet.roadstead.dev/pin}') IS NOT NULL AS pinned,
                      coalesce(refers_to, '{}') AS refers_to
               FROM resource
               WHERE api_group = $3 AND kind = $4
                 AND namespace = wanted.namespace AND name = wanted.name OFFSET 0) found",
        )
        .bind(&namespaces)
        .bind(&names)
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.iter()
            .map(|row| {
                Ok(DependencyRow {
                    namespace: row.try_get("namespace")?,
                    name: row.try_get("name")?,
                    generation: row.try_get("generation")?,
                    deleting: row.try_get("deleting")?,
                    conditions: row.try_get("conditions")?,
                    last_applied_revision: row.try_get("last_applied_revision")?,
                    pinned: row.try_get("pinned")?,
                    refers_to: row.try_get("refers_to")?,
                })
            })
            .collect::<Result<_, sqlx::Error>>()
            .map_err(StoreError::query(what))
    }

    /// All appliers of a kind that are reached from `first` along `spec.dependsOn`, if `start` is one of them: then, and only
    /// then, there is a cycle through `start`. One question, whatever the graph.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn reached_dependencies(
        &self,
        kind: KindId,
        start: &(String, String),
        first: &[(String, String)],
        reach: Reach,
    ) -> Result<Vec<ReachedDependency>, StoreError> {
        if first.is_empty() {
            return Ok(Vec::new());
        }
        let what = "follow dependencies";
        let (namespaces, names) = columns(first);
        let rows: Vec<(String, String, Vec<i64>)> = sqlx::query_as(AssertSqlSafe(format!(
            "WITH RECURSIVE reached (namespace, name) AS (
               SELECT * FROM unnest($1::text[], $2::text[])
               UNION SELECT next.namespace, next.name FROM reached {NEXT}
             ), bounded AS MATERIALIZED (SELECT * FROM reached LIMIT $3),
             numbered AS MATERIALIZED (SELECT *, row_number() OVER () - 1 AS position FROM bounded)
             SELECT reached.namespace, reached.name, ARRAY(
               SELECT other.position FROM (SELECT 1) one {NEXT} JOIN numbered other USING (namespace, name))
             FROM numbered reached
             WHERE EXISTS (SELECT FROM numbered WHERE namespace = $5 AND name = $6)
             ORDER BY position"
        )))
        .bind(&namespaces)
        .bind(&names)
        .bind(i64::try_from(reach.appliers).unwrap_or(i64::MAX))
        .bind(i32::try_from(reach.entries).unwrap_or(i32::MAX))
        .bind(&start.0)
        .bind(&start.1)
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        Ok(rows
            .into_iter()
            .map(|(namespace, name, next)| ReachedDependency {
                name: (namespace, name),
                next: next.into_iter().filter_map(|position| usize::try_from(position).ok()).collect(),
            })
            .collect())
    }
}

/// What the applier of the row `reached` depends on, as the rows `next`. The OFFSET has it looked up by its key.
const NEXT: &str = "CROSS JOIN LATERAL (
    SELECT coalesce(dependency ->> 'namespace', reached.namespace) AS namespace, dependency ->> 'name' AS name
    FROM resource CROSS JOIN LATERAL jsonb_array_elements(object #> '{spec,dependsOn}') AS dependency
    WHERE resource.api_group = $7 AND resource.kind = $8
      AND resource.namespace = reached.namespace AND resource.name = reached.name
      AND coalesce(dependency ->> 'kind', $8) = $8
      AND jsonb_array_length(object #> '{spec,dependsOn}') <= $4
    OFFSET 0) next";

fn columns(names: &[(String, String)]) -> (Vec<&str>, Vec<&str>) {
    names.iter().map(|(namespace, name)| (namespace.as_str(), name.as_str())).unzip()
}
