//! Which objects an applier owns on a cluster. Written ahead of the first write to the cluster, so that neither a
//! crash nor a cut link orphans anything.

use std::collections::HashMap;

use ::time::OffsetDateTime;
use roadstead_model::{ApplierUid, Attempt, ClusterUid, Digest, ObjectRef};
use uuid::Uuid;

use crate::counted::Connections;
use crate::time::from_sql;
use crate::together::Answers;
use crate::{Store, StoreError, TendedState, Tx};

/// An object that another applier owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contested {
    /// The object.
    pub object: ObjectRef,
    /// Who owns it.
    pub owner: ApplierUid,
}

/// Object references as columns, for `unnest`.
#[derive(Default)]
pub(crate) struct Columns {
    pub(crate) groups: Vec<String>,
    pub(crate) versions: Vec<String>,
    pub(crate) kinds: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) names: Vec<String>,
}

impl Columns {
    pub(crate) fn of(objects: &[ObjectRef]) -> Self {
        // Sorted and once each: one statement cannot touch a row twice, and rows are locked in one order everywhere.
        let mut objects: Vec<&ObjectRef> = objects.iter().collect();
        objects.sort_unstable();
        objects.dedup();
        let mut columns = Self::default();
        for object in objects {
            columns.groups.push(object.group.clone());
            columns.versions.push(object.version.clone());
            columns.kinds.push(object.kind.clone());
            columns.namespaces.push(object.namespace.clone());
            columns.names.push(object.name.clone());
        }
        columns
    }
}

pub(crate) type Row = (String, String, String, String, String);

pub(crate) fn object((group, version, kind, namespace, name): Row) -> ObjectRef {
    ObjectRef { group, version, kind, namespace, name }
}

/// Where an applier owns something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    /// The clusters, and whether the hub still knows each.
    pub clusters: Vec<(ClusterUid, bool)>,
    /// It has [children](Store::children).
    pub on_hub: bool,
    /// The cluster whose agent tends it, or did.
    pub tended: Option<(ClusterUid, TendedState)>,
    /// Something was handed over to it since its newest attempt was opened.
    pub handed: bool,
}

impl Tx {
    /// Records that `applier` is about to own `objects`. Where others own some of them, nothing is recorded and
    /// they are returned.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn announce(
        &mut self,
        cluster: ClusterUid,
        applier: ApplierUid,
        objects: &[ObjectRef],
    ) -> Result<Vec<Contested>, StoreError> {
        let columns = Columns::of(objects);
        let contested: Vec<(String, String, String, String, String, Uuid)> = sqlx::query_as(
            "SELECT i.api_group, i.version, i.kind, i.namespace, i.name, i.applier
             FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]) AS o (api_group, kind, namespace, name)
             JOIN inventory i USING (api_group, kind, namespace, name)
             WHERE i.cluster_uid = $1 AND i.applier <> $2 ORDER BY 1, 3, 4, 5",
        )
        .bind(cluster.0)
        .bind(applier.0)
        .bind(&columns.groups)
        .bind(&columns.kinds)
        .bind(&columns.namespaces)
        .bind(&columns.names)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("look for other owners"))?;
        if !contested.is_empty() {
            return Ok(contested
                .into_iter()
                .map(|(group, version, kind, namespace, name, owner)| Contested {
                    object: object((group, version, kind, namespace, name)),
                    owner: ApplierUid(owner),
                })
                .collect());
        }
        // Two appliers that announce the same new object at once: the second one's insert waits for the first
        // one's commit and then fails on the primary key, and the caller tries again and is told who owns it.
        sqlx::query(
            "INSERT INTO inventory (cluster_uid, api_group, kind, namespace, name, version, applier, intended)
             SELECT $1, api_group, kind, namespace, name, version, $2, true
             FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
                  AS o (api_group, version, kind, namespace, name)
             WHERE NOT EXISTS (SELECT FROM inventory i WHERE i.cluster_uid = $1 AND i.applier = $2
                               AND (i.api_group, i.kind, i.namespace, i.name)
                                   = (o.api_group, o.kind, o.namespace, o.name))",
        )
        .bind(cluster.0)
        .bind(applier.0)
        .bind(&columns.groups)
        .bind(&columns.versions)
        .bind(&columns.kinds)
        .bind(&columns.namespaces)
        .bind(&columns.names)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("write the intended inventory"))?;
        Ok(Vec::new())
    }

    /// Those of `objects` that are neither in one of the builds, as they are remembered, nor owned by `applier` on `cluster`
    /// already; at most ten. Where variables are `substituted` in the builds, an object counts as one of theirs whose kind has a name or
    /// namespace with an expression there: what comes of it is known to the agent only. Where the build names no namespace, an object may be in `default_namespace` or in none; an object
    /// of a kind without namespaces is in none, whatever the build says.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn outside_build(
        &mut self,
        cluster: ClusterUid,
        applier: ApplierUid,
        builds: impl Iterator<Item = Digest>,
        substituted: bool,
        default_namespace: &str,
        objects: &[ObjectRef],
    ) -> Result<Vec<ObjectRef>, StoreError> {
        let columns = Columns::of(objects);
        let builds: Vec<Vec<u8>> = builds.map(|build| build.as_bytes().to_vec()).collect();
        // Set operations, which stay linear: the planner knows nothing of how many objects a build has.
        let rows: Vec<(String, String, String, String)> = sqlx::query_as(
            "WITH later AS MATERIALIZED (SELECT * FROM built_later($3) WHERE $9)
             , outside AS (
                 (SELECT * FROM unnest($5::text[], $6::text[], $7::text[], $8::text[]) AS o (g, k, ns, n) LIMIT $10)
                 EXCEPT (SELECT * FROM built_objects($3, $4)
                         UNION ALL SELECT api_group, kind, namespace, name FROM inventory
                                   WHERE cluster_uid = $1 AND applier = $2))
             SELECT g, k, ns, n FROM outside o
             WHERE NOT EXISTS (SELECT FROM later l WHERE l.any_kind OR (l.g, l.k) = (o.g, o.k))
             LIMIT 10",
        )
        .bind(cluster.0)
        .bind(applier.0)
        .bind(builds)
        .bind(default_namespace)
        .bind(&columns.groups)
        .bind(&columns.kinds)
        .bind(&columns.namespaces)
        .bind(&columns.names)
        .bind(substituted)
        .bind(i64::try_from(objects.len()).unwrap_or(i64::MAX))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("hold an intended inventory against its build"))?;
        let outside = |(group, kind, namespace, name)| object((group, String::new(), kind, namespace, name));
        Ok(rows.into_iter().map(outside).collect())
    }

    /// Settles what `applier` owns on `cluster` after an `attempt`: of what was announced, `owned` stays and the
    /// rest goes. What was never announced is not taken; what was handed over since the attempt was opened stays for the next one. What
    /// stays gets the labels that `written` have for it: the builds of which something was written.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn settle(
        &mut self,
        cluster: ClusterUid,
        applier: ApplierUid,
        attempt: Attempt,
        owned: &[ObjectRef],
        written: &[Digest],
    ) -> Result<(), StoreError> {
        let columns = Columns::of(owned);
        // Where a build names no namespace, the agent has chosen one. Both are looked up, not joined: the planner knows nothing of how many
        // objects there are, and a nested loop over 5,000 of each takes ten seconds.
        sqlx::query(
            "WITH owned AS (SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[])
                            AS o (api_group, kind, namespace, name)),
                  built AS (SELECT jsonb_object_agg(jsonb_build_array(coalesce(o.g, ''), o.k, coalesce(o.ns, ''), o.n)::text,
                                                    coalesce(o.l, '{}')) AS labels
                            FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text, l jsonb)
                            WHERE b.build_digest = ANY($8)),
                  kept AS (UPDATE inventory i SET intended = false, handed_by = NULL, handed_after = NULL,
                               labels = coalesce((SELECT labels FROM built) -> jsonb_build_array(i.api_group, i.kind, i.namespace, i.name)::text,
                                                 (SELECT labels FROM built) -> jsonb_build_array(i.api_group, i.kind, '', i.name)::text,
                                                 i.labels)
                           WHERE i.cluster_uid = $1 AND i.applier = $2 AND (i.handed_after IS NULL OR i.handed_after < $7)
                             AND ((i.api_group, i.kind, i.namespace, i.name) IN (SELECT * FROM owned)) IS TRUE
                             AND (i.intended OR i.labels <>
                                  coalesce((SELECT labels FROM built) -> jsonb_build_array(i.api_group, i.kind, i.namespace, i.name)::text,
                                           (SELECT labels FROM built) -> jsonb_build_array(i.api_group, i.kind, '', i.name)::text,
                                           i.labels)))
             DELETE FROM inventory i
             WHERE i.cluster_uid = $1 AND i.applier = $2 AND (i.handed_after IS NULL OR i.handed_after < $7)
               AND (i.api_group, i.kind, i.namespace, i.name) NOT IN (SELECT * FROM owned)",
        )
        .bind(cluster.0)
        .bind(applier.0)
        .bind(&columns.groups)
        .bind(&columns.kinds)
        .bind(&columns.namespaces)
        .bind(&columns.names)
        .bind(attempt.0)
        .bind(written.iter().map(|build| build.as_bytes().to_vec()).collect::<Vec<_>>())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("settle the inventory"))?;
        Ok(())
    }

    /// Forgets what `applier` owns anywhere: its objects stay where they are.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn orphan(&mut self, applier: ApplierUid) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM inventory WHERE applier = $1")
            .bind(applier.0)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("forget an inventory"))?;
        Ok(())
    }

    /// Forgets what is owned on `cluster` by anyone: it was abandoned.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn abandon_cluster(&mut self, cluster: ClusterUid) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM inventory WHERE cluster_uid = $1")
            .bind(cluster.0)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("forget a cluster's inventory"))?;
        Ok(())
    }
}

impl Store {
    /// The appliers that own something on `cluster`, intended or applied.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn appliers_with_inventory(&self, cluster: ClusterUid) -> Result<Vec<ApplierUid>, StoreError> {
        let owners: Vec<Uuid> = sqlx::query_scalar(
            "SELECT DISTINCT applier FROM inventory WHERE cluster_uid = $1 ORDER BY applier",
        )
        .bind(cluster.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up who owns something on a cluster"))?;
        Ok(owners.into_iter().map(ApplierUid).collect())
    }

    /// What `applier` owns on `cluster`, intended or applied.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn inventory(
        &self,
        cluster: ClusterUid,
        applier: ApplierUid,
    ) -> Result<Vec<ObjectRef>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT api_group, version, kind, namespace, name FROM inventory
             WHERE cluster_uid = $1 AND applier = $2 ORDER BY api_group, kind, namespace, name",
        )
        .bind(cluster.0)
        .bind(applier.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("read an inventory"))?;
        Ok(rows.into_iter().map(object).collect())
    }

    /// What of the API groups of kinds that go to the hub `applier` owns on a cluster all the same; asked [together](crate::together)
    /// with what others own.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn inventory_of_children(
        &self,
        applier: ApplierUid,
        cluster: ClusterUid,
    ) -> Result<Vec<ObjectRef>, StoreError> {
        let ask = |this: Self, owners: Vec<_>| async move { children_of(&this.pool, &owners).await };
        let owner = (applier, cluster);
        Ok(self.together.children.ask(&self.health, self, owner, ask).await?.unwrap_or_default())
    }

    /// Where `applier` owns something; asked [together](crate::together) with what others own.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn holdings(&self, applier: ApplierUid) -> Result<Holdings, StoreError> {
        let ask = |this: Self, appliers: Vec<_>| async move { holdings_of(&this.pool, &appliers).await };
        Ok(self.together.holdings.ask(&self.health, self, applier, ask).await?.unwrap_or_default())
    }
}

/// What of the API groups of kinds that go to the hub these appliers own on these clusters.
async fn children_of(
    pool: &Connections,
    owners: &[(ApplierUid, ClusterUid)],
) -> Result<Answers<(ApplierUid, ClusterUid), Vec<ObjectRef>>, StoreError> {
    type Owned = (Uuid, Uuid, String, String, String, String, String);
    let (appliers, clusters): (Vec<Uuid>, Vec<Uuid>) =
        owners.iter().map(|(applier, cluster)| (applier.0, cluster.0)).unzip();
    let mut groups: Vec<&str> =
        roadstead_api::KINDS.iter().filter(|kind| kind.id.is_child()).map(|kind| kind.group()).collect();
    groups.dedup();
    // By the OFFSET each inventory is looked up by its key, whatever the plan takes a join to cost.
    let rows: Vec<Owned> = sqlx::query_as(
        "SELECT asked.applier, asked.cluster, owned.*
         FROM (SELECT * FROM unnest($1::uuid[], $2::uuid[]) LIMIT $4) AS asked (applier, cluster)
         CROSS JOIN LATERAL (
             SELECT api_group, version, kind, namespace, name FROM inventory
             WHERE inventory.applier = asked.applier AND cluster_uid = asked.cluster AND api_group = ANY($3) OFFSET 0) AS owned",
    )
    .bind(appliers)
    .bind(clusters)
    .bind(groups)
    .bind(i64::try_from(owners.len()).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .map_err(StoreError::query("read inventories"))?;
    let mut owned: HashMap<_, Vec<ObjectRef>> = HashMap::new();
    for (applier, cluster, group, version, kind, namespace, name) in rows {
        let objects = owned.entry((ApplierUid(applier), ClusterUid(cluster))).or_default();
        objects.push(object((group, version, kind, namespace, name)));
    }
    Ok(owned.into_iter().map(|(owner, objects)| (owner, Ok(objects))).collect())
}

/// Where these appliers own something.
async fn holdings_of(
    pool: &Connections,
    appliers: &[ApplierUid],
) -> Result<Answers<ApplierUid, Holdings>, StoreError> {
    type Row = (Uuid, Vec<Uuid>, Vec<bool>, bool, Option<Uuid>, Option<OffsetDateTime>, Option<bool>, bool);
    let what = "look up where appliers own something";
    // By the OFFSET each is looked up by its key, whatever the plan takes a join to cost.
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT asked.applier, owned.*
         FROM (SELECT * FROM unnest($1::uuid[]) LIMIT $2) AS asked (applier)
         CROSS JOIN LATERAL (
             SELECT coalesce(array_agg(i.cluster_uid ORDER BY i.cluster_uid), '{}'),
                    coalesce(array_agg(r.uid IS NOT NULL ORDER BY i.cluster_uid), '{}'),
                    EXISTS (SELECT FROM child WHERE parent = asked.applier),
                    (SELECT cluster_uid FROM tended WHERE applier = asked.applier),
                    (SELECT until FROM tended WHERE applier = asked.applier),
                    (SELECT forsaken FROM tended WHERE applier = asked.applier),
                    EXISTS (SELECT FROM inventory WHERE applier = asked.applier AND handed_after IS NOT NULL
                            AND handed_after >= coalesce((SELECT max(attempt) FROM reconciliation
                                                          WHERE applier = asked.applier), 0))
             FROM (SELECT DISTINCT cluster_uid FROM inventory WHERE applier = asked.applier) i
             LEFT JOIN resource r ON r.uid = i.cluster_uid OFFSET 0) AS owned",
    )
    .bind(appliers.iter().map(|applier| applier.0).collect::<Vec<_>>())
    .bind(i64::try_from(appliers.len()).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .map_err(StoreError::query(what))?;
    let read = |(applier, clusters, known, on_hub, tended_on, until, session_ended, handed): Row| {
        let clusters = clusters.into_iter().map(ClusterUid).zip(known).collect();
        let until = until.map(|until| from_sql(what, until)).transpose();
        let holdings = until.map(|until| {
            let state = match (until, session_ended) {
                (None, _) => TendedState::Now,
                (Some(until), Some(true)) => TendedState::UntilSessionEnded(until),
                (Some(until), _) => TendedState::Until(until),
            };
            let tended = tended_on.map(|cluster| (ClusterUid(cluster), state));
            Holdings { clusters, on_hub, tended, handed }
        });
        (ApplierUid(applier), holdings)
    };
    Ok(rows.into_iter().map(read).collect())
}
