//! Objects that one applier does not build any more, and another one does: who these are, and that one owns what the other did.

use roadstead_api::annotated::TAKES_OVER;
use roadstead_api::{PipelineRole, Reference};
use roadstead_model::{ApplierUid, AttemptKind, ClusterUid, Digest, ObjectRef, ResourceUid};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryScalar;
use sqlx::types::Json;
use uuid::Uuid;

use crate::inventory::{Columns, Contested, Row, object};
use crate::references::kinds;
use crate::{Child, Parent, Store, StoreError, Tx};

/// No more objects than this go by one question.
const MOST_OBJECTS: i64 = 20_000;
/// No more appliers than this are looked at for one that objects could go to.
const MOST_HEIRS: i64 = 1_000;

/// The objects that builds hold, as they are remembered, and the namespace that those have which name none.
#[derive(Debug, Clone)]
pub struct BuiltObjects<'a> {
    /// The builds.
    pub builds: &'a [Digest],
    /// Variables are substituted in them: an object whose name or namespace has an expression is known to the agent only.
    pub substituted: bool,
    /// Where the build names no namespace.
    pub default_namespace: &'a str,
}

impl BuiltObjects<'_> {
    fn digests(&self) -> Vec<Vec<u8>> {
        self.builds.iter().map(|build| build.as_bytes().to_vec()).collect()
    }
}

/// The objects of builds `$1`, by group, kind, namespace and name: those without a namespace also in the namespace `$2`. Then, as
/// `named`, the kinds of which a name is not known before variables are substituted, where they are (`$3`).
const BUILT: &str = "built AS (SELECT coalesce(o.g, '') AS g, o.k, coalesce(o.ns, '') AS ns, o.n
                FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text)
                WHERE b.build_digest = ANY($1)),
      anywhere AS (SELECT g, k, ns, n FROM built
                   UNION SELECT g, k, '', n FROM built
                   UNION SELECT g, k, $2, n FROM built WHERE ns = ''),
      named AS (SELECT DISTINCT g, k FROM built WHERE $3 AND (n LIKE '%$%' OR ns LIKE '%$%'))";

/// An applier that is looked at for what goes to it.
#[derive(Debug, Clone, Copy)]
pub struct Leaving<'a> {
    /// Who owns the objects.
    pub applier: ApplierUid,
    /// Its namespace on the hub.
    pub namespace: &'a str,
    /// The Kustomization from which it has its rights: its namespace and name.
    pub root: (&'a str, &'a str),
    /// Only appliers that deploy from this source, but for those that name it as the one that they take over from.
    pub source: Option<&'a Reference>,
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
    leaving: &Leaving<'_>,
) -> QueryScalar<'q, Postgres, O, PgArguments> {
    query
        .bind(leaving.applier.0)
        .bind(leaving.namespace.to_owned())
        .bind(leaving.root.0.to_owned())
        .bind(leaving.root.1.to_owned())
        .bind(kinds(PipelineRole::Applier))
        .bind(leaving.source.map(Reference::key))
        .bind(TAKES_OVER)
        .bind(kinds(PipelineRole::Source))
        .bind(MOST_HEIRS)
}

impl Store {
    /// What of these builds others own on `cluster`, and what `applier` owns there that they do not hold.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn moves(
        &self,
        cluster: ClusterUid,
        applier: ApplierUid,
        of: &BuiltObjects<'_>,
    ) -> Result<(Vec<Contested>, Vec<ObjectRef>), StoreError> {
        let sql = format!(
            "WITH {BUILT}
             (SELECT i.api_group, i.version, i.kind, i.namespace, i.name, i.applier FROM inventory i
              WHERE i.cluster_uid = $4 AND i.applier = $5
                AND (i.api_group, i.kind, i.namespace, i.name) NOT IN (SELECT g, k, ns, n FROM anywhere)
                AND (i.api_group, i.kind) NOT IN (SELECT g, k FROM named)
              LIMIT $6)
             UNION ALL
             (SELECT i.api_group, i.version, i.kind, i.namespace, i.name, i.applier
              FROM anywhere a JOIN inventory i ON i.cluster_uid = $4
                AND (i.api_group, i.kind, i.namespace, i.name) = (a.g, a.k, a.ns, a.n)
              WHERE i.applier <> $5 LIMIT $6)
             ORDER BY 6, 1, 3, 4, 5"
        );
        let rows: Vec<(String, String, String, String, String, Uuid)> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(of.digests())
                .bind(of.default_namespace)
                .bind(of.substituted)
                .bind(cluster.0)
                .bind(applier.0)
                .bind(MOST_OBJECTS)
                .fetch_all(&self.pool)
                .await
                .map_err(StoreError::query("look for objects that change their owners"))?;
        let (mut contested, mut left_out) = (Vec::new(), Vec::new());
        for (group, version, kind, namespace, name, owner) in rows {
            let object = object((group, version, kind, namespace, name));
            if owner == applier.0 {
                left_out.push(object);
            } else {
                contested.push(Contested { object, owner: ApplierUid(owner) });
            }
        }
        Ok((contested, left_out))
    }

    /// Those of `objects` that these builds hold.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn held_by_builds(
        &self,
        of: &BuiltObjects<'_>,
        objects: &[ObjectRef],
    ) -> Result<Vec<ObjectRef>, StoreError> {
        let columns = Columns::of(objects);
        let sql = format!(
            "WITH {BUILT}
             SELECT o.g, o.v, o.k, o.ns, o.n
             FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) AS o (g, v, k, ns, n)
             WHERE (o.g, o.k, o.ns, o.n) IN (SELECT g, k, ns, n FROM anywhere)"
        );
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(of.digests())
            .bind(of.default_namespace)
            .bind(of.substituted)
            .bind(&columns.groups)
            .bind(&columns.versions)
            .bind(&columns.kinds)
            .bind(&columns.namespaces)
            .bind(&columns.names)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("look for objects in builds"))?;
        Ok(rows.into_iter().map(object).collect())
    }

    /// The appliers to which `objects` may go, by namespace and name: those of the same namespace or the same root that are neither
    /// suspended nor being deleted, and those that name this one. Of them, those whose newest attempt has one of the objects in its build, or is not at what is
    /// wanted by now.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn heirs(
        &self,
        leaving: &Leaving<'_>,
        objects: &[ObjectRef],
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let columns = Columns::of(objects);
        let sql = format!(
            "WITH RECURSIVE {RELATED}, wanted AS (SELECT * FROM unnest($10::text[], $11::text[], $12::text[], $13::text[]) AS o (g, k, ns, n))
             SELECT r.uid FROM related r
             WHERE is_behind
                OR EXISTS (SELECT FROM build_labels b, jsonb_to_recordset(b.objects) AS o (g text, k text, ns text, n text)
                           JOIN wanted w ON w.g = coalesce(o.g, '') AND w.k = o.k AND w.n = o.n
                           WHERE b.build_digest IN (
                               SELECT r.build_digest UNION ALL
                               SELECT decode(substring(built.one ->> 'objects' FROM 8), 'hex')
                               FROM jsonb_array_elements(r.groups) AS built (one)))
             ORDER BY r.namespace, r.name LIMIT $9"
        );
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql));
        let rows: Vec<Uuid> = related_to(query, leaving)
            .bind(&columns.groups)
            .bind(&columns.kinds)
            .bind(&columns.namespaces)
            .bind(&columns.names)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("look for appliers that objects may go to"))?;
        Ok(rows.into_iter().map(ResourceUid).collect())
    }

    /// The appliers to which children may go, as [`heirs`](Self::heirs): those that have some already, or are not at what is wanted by now.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn parents_to_be(&self, leaving: &Leaving<'_>) -> Result<Vec<ResourceUid>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE {RELATED} SELECT r.uid FROM related r
             WHERE is_behind OR failed OR EXISTS (SELECT FROM child WHERE child.parent = r.uid)
             ORDER BY r.namespace, r.name LIMIT $9"
        );
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql));
        let rows: Vec<Uuid> = related_to(query, leaving)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("look for appliers that children may go to"))?;
        Ok(rows.into_iter().map(ResourceUid).collect())
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
        let (kinds_of, namespaces, names) = crate::child::columns(children);
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

    /// What the open attempt of an applier does: its kind, and the builds that it applies. None where none is open.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn under_way(
        &self,
        applier: ApplierUid,
    ) -> Result<Option<(AttemptKind, Vec<Digest>)>, StoreError> {
        let what = "look for an open reconciliation";
        type Found = (bool, bool, Option<Json<Vec<Built>>>);
        let row: Option<Found> = sqlx::query_as(
            "SELECT deletes, reads, dispatch -> 'groups' FROM reconciliation WHERE applier = $1 AND finished_at IS NULL",
        )
        .bind(applier.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        Ok(row.map(|(deletes, reads, groups)| {
            let kind = match (deletes, reads) {
                (true, _) => AttemptKind::Delete,
                (false, true) => AttemptKind::Read,
                (false, false) => AttemptKind::Apply,
            };
            let groups = groups.map(|Json(groups)| groups).unwrap_or_default();
            (kind, groups.into_iter().map(|group| group.objects).collect())
        }))
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
}

#[derive(serde::Deserialize)]
struct Built {
    objects: Digest,
}

impl Tx {
    /// Has `to` own those of `children` that `from` made. Gives those that went. Both are to be locked.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hand_children_over(
        &mut self,
        from: ApplierUid,
        to: &Parent<'_>,
        children: &[Child],
    ) -> Result<Vec<Child>, StoreError> {
        let mut went = Vec::with_capacity(children.len());
        for child in children {
            let updated = sqlx::query(
                "UPDATE child SET parent = $5, origin = $6, account = $7, wanted = true
                 WHERE parent = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND NOT kept AND object = $8",
            )
            .bind(from.0)
            .bind(child.kind.get().kind)
            .bind(&child.namespace)
            .bind(&child.name)
            .bind(to.uid.0)
            .bind(to.name)
            .bind(to.account)
            .bind(child.object.map(|uid| uid.0))
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("hand children over"))?;
            if updated.rows_affected() == 1 {
                went.push(child.clone());
            }
        }
        Ok(went)
    }

    /// Has `to` own what `from` owns of `objects` on `cluster`; `from` is named `by` there. Gives what went. Both are to be locked.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hand_over(
        &mut self,
        cluster: ClusterUid,
        (from, by): (ApplierUid, &str),
        to: ApplierUid,
        objects: &[ObjectRef],
    ) -> Result<Vec<ObjectRef>, StoreError> {
        let columns = Columns::of(objects);
        let rows: Vec<Row> = sqlx::query_as(
            "UPDATE inventory i SET applier = $3, intended = true, handed_by = $4,
                    handed_after = coalesce((SELECT max(attempt) FROM reconciliation WHERE applier = $3), 0)
             FROM unnest($5::text[], $6::text[], $7::text[], $8::text[]) AS o (api_group, kind, namespace, name)
             WHERE i.cluster_uid = $1 AND i.applier = $2
               AND (i.api_group, i.kind, i.namespace, i.name) = (o.api_group, o.kind, o.namespace, o.name)
             RETURNING i.api_group, i.version, i.kind, i.namespace, i.name",
        )
        .bind(cluster.0)
        .bind(from.0)
        .bind(to.0)
        .bind(by)
        .bind(&columns.groups)
        .bind(&columns.kinds)
        .bind(&columns.namespaces)
        .bind(&columns.names)
        .fetch_all(&mut *self.inner)
        .await
        .map_err(StoreError::query("hand objects over"))?;
        Ok(rows.into_iter().map(object).collect())
    }
}
