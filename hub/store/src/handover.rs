//! Objects that one applier does not build any more and another one does: who these appliers are, and that one of them owns what the
//! other did.

use roadstead_api::annotated::TAKES_OVER;
use roadstead_api::{PipelineRole, Reference};
use roadstead_model::{ApplierUid, ClusterUid, Digest, ObjectRef, ResourceUid};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryScalar;
use uuid::Uuid;

use crate::child::columns;
use crate::inventory::{Row, object};
use crate::references::kinds;
use crate::{Child, Parent, Store, StoreError, Tx};

/// No more appliers than this are looked at for one that objects could go to.
const MOST_APPLIERS: i64 = 1_000;

/// What an applier builds, and how to find its objects in the inventory of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct BuiltObjects<'a> {
    /// The builds.
    pub builds: &'a [Digest],
    /// Variables are substituted in them: an object whose name has an expression is known to the agent only.
    pub substituted: bool,
    /// Where the build names no namespace.
    pub default_namespace: &'a str,
}

impl BuiltObjects<'_> {
    fn digests(&self) -> Vec<Vec<u8>> {
        self.builds.iter().map(|build| build.as_bytes().to_vec()).collect()
    }
}

/// An applier that lets objects go on one cluster.
#[derive(Debug, Clone, Copy)]
pub struct OldOwner<'a> {
    /// The applier.
    pub applier: ApplierUid,
    /// The cluster.
    pub cluster: ClusterUid,
    /// What it builds now: it lets go what is not in it. None: everything.
    pub built: Option<BuiltObjects<'a>>,
}

impl OldOwner<'_> {
    fn digests(&self) -> Option<Vec<Vec<u8>>> {
        self.built.map(|built| built.digests())
    }

    fn default_namespace(&self) -> &str {
        self.built.map_or("", |built| built.default_namespace)
    }

    fn is_substituted(&self) -> bool {
        self.built.is_some_and(|built| built.substituted)
    }
}

/// To whom things of an applier may go.
#[derive(Debug, Clone, Copy)]
pub struct Relatives<'a> {
    /// Whose.
    pub of: ApplierUid,
    /// Its namespace on the hub.
    pub namespace: &'a str,
    /// The Kustomization from which it has its rights: its namespace and name.
    pub root: (&'a str, &'a str),
    /// Only appliers that deploy from this source, but for those whose annotation names appliers that they take over from.
    pub source: Option<&'a Reference>,
}

/// What is to change owners before a build is dispatched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    /// Who owns what the build holds.
    pub owners: Vec<ApplierUid>,
    /// The applier itself owns something that the build does not hold.
    pub leaves: bool,
}

/// The appliers that things of `$1` may go to, as `related`: whether each of them `is_behind` what is wanted, whether its newest attempt failed,
/// and what that built. `$2` to `$8` say who they may be, as [`related_to`] binds them.
const RELATED: &str = "down AS (
      SELECT uid FROM resource WHERE kind = ANY($5) AND namespace = $3 AND name = $4
      UNION
      SELECT own.uid FROM down JOIN child ON child.parent = down.uid
      JOIN resource own ON own.uid = child.object AND own.kind = ANY($5)
    ), known AS (
      SELECT uid FROM resource
      WHERE kind = ANY($5) AND namespace = $2 AND ($6::text IS NULL OR refers_to @> ARRAY[$6])
      UNION SELECT uid FROM down JOIN resource USING (uid) WHERE $6::text IS NULL OR refers_to @> ARRAY[$6]
      UNION SELECT uid FROM resource WHERE kind = ANY($5) AND object #> '{metadata,annotations}' ? $7
    ), related AS (
      SELECT r.uid, r.namespace, r.name, last.build_digest, last.groups,
             last.reason IS DISTINCT FROM 'ReconciliationSucceeded' AS failed,
             last.generation IS DISTINCT FROM r.generation OR last.build_digest IS NULL
               OR NOT EXISTS (SELECT FROM unnest(r.refers_to) AS used (key)
                              JOIN resource s ON s.kind = split_part(used.key, '/', 1) AND s.kind = ANY($8)
                                AND s.namespace = split_part(used.key, '/', 2) AND s.name = split_part(used.key, '/', 3)
                              WHERE s.object #>> '{status,artifact,digest}'
                                    = 'sha256:' || encode(last.artifact_digest, 'hex')) AS is_behind
      FROM known JOIN resource r USING (uid)
      LEFT JOIN LATERAL (SELECT generation, artifact_digest, build_digest, reason, dispatch -> 'groups' AS groups
                         FROM reconciliation WHERE applier = r.uid ORDER BY attempt DESC LIMIT 1) last ON true
      WHERE r.uid <> $1 AND r.deletion_timestamp IS NULL AND coalesce(r.object #>> '{spec,suspend}', 'false') <> 'true'
    )";

/// Binds `$1` to `$9` of a query that begins with [`RELATED`].
fn related_to<'q, O>(
    query: QueryScalar<'q, Postgres, O, PgArguments>,
    relatives: &Relatives<'_>,
) -> QueryScalar<'q, Postgres, O, PgArguments> {
    query
        .bind(relatives.of.0)
        .bind(relatives.namespace.to_owned())
        .bind(relatives.root.0.to_owned())
        .bind(relatives.root.1.to_owned())
        .bind(kinds(PipelineRole::Applier))
        .bind(relatives.source.map(Reference::key))
        .bind(TAKES_OVER)
        .bind(kinds(PipelineRole::Source))
        .bind(MOST_APPLIERS)
}

impl Store {
    /// What is to change owners on `cluster` before `applier` has this applied.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn moves(
        &self,
        cluster: ClusterUid,
        applier: ApplierUid,
        built: &BuiltObjects<'_>,
    ) -> Result<Moves, StoreError> {
        let what = "look for objects that change their owners";
        if self.owns_just(cluster, applier, built).await.map_err(StoreError::query(what))? {
            return Ok(Moves::default());
        }
        let (owners, leaves): (Vec<Uuid>, bool) = sqlx::query_as(
            "SELECT ARRAY(SELECT DISTINCT i.applier FROM built_objects($1, $2) b JOIN inventory i ON i.cluster_uid = $4
                            AND (i.api_group, i.kind, i.namespace, i.name) = (b.g, b.k, b.ns, b.n)
                          WHERE i.applier <> $5 ORDER BY 1),
                    EXISTS (SELECT FROM left_out($5, $4, $1, $2, $3))",
        )
        .bind(built.digests())
        .bind(built.default_namespace)
        .bind(built.substituted)
        .bind(cluster.0)
        .bind(applier.0)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        Ok(Moves { owners: owners.into_iter().map(ApplierUid).collect(), leaves })
    }

    /// Whether `applier` owns on `cluster` what is built, and nothing else: as after most commits, so that there is nothing more to ask. An
    /// object has one owner, and in one cluster its kind has namespaces or has none.
    async fn owns_just(
        &self,
        cluster: ClusterUid,
        applier: ApplierUid,
        built: &BuiltObjects<'_>,
    ) -> Result<bool, sqlx::Error> {
        // Looked up in hash tables: the planner knows nothing of how many there are, and might look at each for each of them.
        sqlx::query_scalar(
            "WITH owned AS MATERIALIZED (
                 SELECT api_group, kind, namespace, name FROM inventory WHERE applier = $4 AND cluster_uid = $3),
             built AS MATERIALIZED (
                 SELECT coalesce(o.g, '') AS g, o.k, coalesce(o.ns, '') AS ns, o.n
                 FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text)
                 WHERE b.build_digest = ANY($1))
             SELECT NOT EXISTS (
                        SELECT FROM owned WHERE ((api_group, kind, namespace, name) IN (
                            SELECT g, k, place, n
                            FROM built, LATERAL (VALUES (ns), (''), (coalesce(nullif(ns, ''), $2))) AS places (place))) IS NOT TRUE)
                AND NOT EXISTS (
                        SELECT FROM built WHERE ((g, k, ns, n) IN (SELECT * FROM owned) OR (g, k, '', n) IN (SELECT * FROM owned)
                                                 OR (g, k, coalesce(nullif(ns, ''), $2), n) IN (SELECT * FROM owned)) IS NOT TRUE)",
        )
        .bind(built.digests())
        .bind(built.default_namespace)
        .bind(cluster.0)
        .bind(applier.0)
        .fetch_one(&self.pool)
        .await
    }

    /// The appliers to which what an owner lets go may go, by namespace and name: its relatives that are neither suspended nor being deleted.
    /// Of them those whose newest attempt has one of the objects in its build, or is not at what is wanted by now.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn possible_owners(
        &self,
        relatives: &Relatives<'_>,
        old: &OldOwner<'_>,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE {RELATED}, wanted AS MATERIALIZED (SELECT * FROM left_out($1, $10, $11, $12, $13))
             SELECT r.uid FROM related r
             WHERE is_behind
                OR EXISTS (SELECT FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, n text)
                           WHERE ((coalesce(o.g, ''), o.k, o.n) IN (SELECT g, k, n FROM wanted)) IS TRUE AND b.build_digest IN (
                               SELECT r.build_digest UNION ALL
                               SELECT decode(substring(one ->> 'objects' FROM 8), 'hex')
                               FROM jsonb_array_elements(r.groups) AS built (one)))
             ORDER BY r.namespace, r.name LIMIT $9"
        );
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql));
        let rows: Vec<Uuid> = related_to(query, relatives)
            .bind(old.cluster.0)
            .bind(old.digests())
            .bind(old.default_namespace())
            .bind(old.is_substituted())
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("look for appliers that objects may go to"))?;
        Ok(rows.into_iter().map(ResourceUid).collect())
    }

    /// The appliers to which children may go, in the same way: those that have some already, or are not at what is wanted by now.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn possible_parents(&self, relatives: &Relatives<'_>) -> Result<Vec<ResourceUid>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE {RELATED} SELECT r.uid FROM related r
             WHERE is_behind OR failed OR EXISTS (SELECT FROM child WHERE child.parent = r.uid)
             ORDER BY r.namespace, r.name LIMIT $9"
        );
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql));
        let rows: Vec<Uuid> = related_to(query, relatives)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("look for appliers that children may go to"))?;
        Ok(rows.into_iter().map(ResourceUid).collect())
    }

    /// Whether the old owner's open attempt deletes, or may delete, what would go to somebody who builds this.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn deletes_what_moves(
        &self,
        old: &OldOwner<'_>,
        new: &BuiltObjects<'_>,
    ) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "WITH open AS (SELECT deletes, ARRAY(SELECT decode(substring(one ->> 'objects' FROM 8), 'hex')
                                                 FROM jsonb_array_elements(dispatch -> 'groups') AS built (one)) AS builds,
                                  coalesce(dispatch ->> 'defaultNamespace', $8) AS default_namespace
                           FROM reconciliation WHERE applier = $1 AND finished_at IS NULL AND NOT reads),
                  kept AS MATERIALIZED (SELECT b.* FROM open, built_objects(open.builds, open.default_namespace) b
                                        WHERE NOT open.deletes),
                  moves AS (SELECT * FROM left_out($1, $2, $3, $4, $5) INTERSECT SELECT * FROM built_objects($6, $7))
             SELECT EXISTS (SELECT FROM open) AND EXISTS (SELECT * FROM moves EXCEPT SELECT * FROM kept)",
        )
        .bind(old.applier.0)
        .bind(old.cluster.0)
        .bind(old.digests())
        .bind(old.default_namespace())
        .bind(old.is_substituted())
        .bind(new.digests())
        .bind(new.default_namespace)
        .bind(roadstead_model::DEFAULT_NAMESPACE)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look for deletions that are under way"))
    }

    /// Whether a Kustomization made this applier, prunes, and does not build it any more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_dropped(&self, applier: ApplierUid) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM child JOIN resource parent ON parent.uid = child.parent
                            WHERE child.object = $1 AND NOT child.wanted AND NOT child.kept
                              AND coalesce(parent.object #>> '{spec,prune}', 'false') = 'true')",
        )
        .bind(applier.0)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look up whether a child left its build"))
    }

    /// Those of `children` that another applier made, with that one.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn contested_children(
        &self,
        parent: ApplierUid,
        children: &[Child],
    ) -> Result<Vec<(ApplierUid, Child)>, StoreError> {
        let (kinds_of, namespaces, names) = columns(children);
        let rows: Vec<(i64, Uuid, Uuid)> = sqlx::query_as(
            "SELECT new.at, child.parent, child.object
             FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS new (kind, namespace, name, at)
             JOIN child USING (kind, namespace, name) JOIN resource own ON own.uid = child.object
             WHERE child.parent <> $4 AND NOT child.kept ORDER BY 1",
        )
        .bind(&kinds_of)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for children that others have"))?;
        let of = |(at, owner, object): (i64, Uuid, Uuid)| {
            let child = children.get(usize::try_from(at).ok()?.checked_sub(1)?)?;
            Some((ApplierUid(owner), Child { object: Some(ResourceUid(object)), ..child.clone() }))
        };
        Ok(rows.into_iter().filter_map(of).collect())
    }
}

impl Tx {
    /// Has `to`, which builds `new`, own what the old owner lets go of that; `by` is the old owner's name there. Gives what moved. Both appliers
    /// are to be locked.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hand_over(
        &mut self,
        old: &OldOwner<'_>,
        by: &str,
        to: ApplierUid,
        new: &BuiltObjects<'_>,
    ) -> Result<Vec<ObjectRef>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "UPDATE inventory i SET applier = $8, intended = true, handed_by = $9,
                    handed_after = coalesce((SELECT max(attempt) FROM reconciliation WHERE applier = $8), 0)
             WHERE i.cluster_uid = $2 AND i.applier = $1
               AND ((i.api_group, i.kind, i.namespace, i.name) IN (
                        SELECT * FROM left_out($1, $2, $3, $4, $5) INTERSECT SELECT * FROM built_objects($6, $7))) IS TRUE
             RETURNING i.api_group, i.version, i.kind, i.namespace, i.name",
        )
        .bind(old.applier.0)
        .bind(old.cluster.0)
        .bind(old.digests())
        .bind(old.default_namespace())
        .bind(old.is_substituted())
        .bind(new.digests())
        .bind(new.default_namespace)
        .bind(to.0)
        .bind(by)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("hand objects over"))?;
        let mut moved: Vec<ObjectRef> = rows.into_iter().map(object).collect();
        moved.sort_unstable();
        Ok(moved)
    }

    /// Has `to` own those of `children` that `from` made. Gives those that moved. Both are to be locked.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hand_children_over(
        &mut self,
        from: ApplierUid,
        to: &Parent<'_>,
        children: &[Child],
    ) -> Result<Vec<Child>, StoreError> {
        let objects: Vec<Uuid> = children.iter().filter_map(|child| child.object).map(|uid| uid.0).collect();
        let moved: Vec<Uuid> = sqlx::query_scalar(
            "UPDATE child SET parent = $2, origin = $3, account = $4, wanted = true
             WHERE parent = $1 AND NOT kept AND object = ANY($5) RETURNING object",
        )
        .bind(from.0)
        .bind(to.uid.0)
        .bind(to.name)
        .bind(to.account)
        .bind(objects)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("hand children over"))?;
        let is_moved = |child: &&Child| child.object.is_some_and(|uid| moved.contains(&uid.0));
        Ok(children.iter().filter(is_moved).cloned().collect())
    }
}
