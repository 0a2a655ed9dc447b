//! Which objects on the hub a Kustomization's build holds. Written ahead of the object, so that a crash orphans none.

use roadstead_api::{KindId, PipelineRole, Reference};
use roadstead_model::{ApplierUid, ResourceUid};
use sqlx::Row as _;
use uuid::Uuid;

use crate::references::kinds;
use crate::{Store, StoreError, Stored, Tx, newer};

/// An object on the hub that a Kustomization owns, or keeps up to date.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The newest build that was begun with holds it.
    pub wanted: bool,
    /// The namespace that Git names; empty where it names none.
    pub git_namespace: String,
    /// A person made it: it is never deleted by leaving it out of Git.
    pub kept: bool,
    /// A person had the Kustomization take it over.
    pub adopted: bool,
    /// The object that the Kustomization made, or took over; none until there is one. Another one of the name is not its own.
    pub object: Option<ResourceUid>,
}

/// Whose children are written.
#[derive(Debug, Clone)]
pub struct Parent<'a> {
    /// The Kustomization.
    pub uid: ApplierUid,
    /// Its `namespace/name`.
    pub name: &'a str,
    /// `namespace/name` of the service account that it acts as; empty for none.
    pub account: &'a str,
}

/// What is known of an object of a build before it is written.
#[derive(Debug, Clone)]
pub struct Present {
    /// Its uid, where it exists.
    pub uid: Option<ResourceUid>,
    /// `fleet.roadstead.dev/adopted-by` of it.
    pub adopted_by: Option<String>,
    /// `fleet.roadstead.dev/git-namespace` of it.
    pub git_namespace: Option<String>,
    /// The sources that it deploys from, where it deploys.
    pub sources: Vec<Reference>,
    /// The Kustomization that made it, or keeps it up to date, if one does; where there is no object, the one that is about to.
    pub made_by: Option<MadeBy>,
}

/// Which Kustomization made an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeBy {
    /// Its `namespace/name`.
    pub name: String,
    /// Its uid; none where it is gone.
    pub uid: Option<ApplierUid>,
    /// It only keeps the object up to date: a person made it.
    pub kept: bool,
    /// A person had it take the object over, now or before.
    pub adopted: bool,
}

impl Store {
    /// What a Kustomization owns on the hub.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn children(&self, parent: ApplierUid) -> Result<Vec<Child>, StoreError> {
        let what = "read a Kustomization's children";
        let rows = sqlx::query(
            "SELECT kind, namespace, name, wanted, git_namespace, kept, adopted, object FROM child
             WHERE parent = $1 ORDER BY kind, namespace, name",
        )
        .bind(parent.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let mut children = Vec::with_capacity(rows.len());
        for row in rows {
            let read = || -> Result<(String, Child), sqlx::Error> {
                let child = Child {
                    kind: KindId::Kustomization,
                    namespace: row.try_get("namespace")?,
                    name: row.try_get("name")?,
                    wanted: row.try_get("wanted")?,
                    git_namespace: row.try_get("git_namespace")?,
                    kept: row.try_get("kept")?,
                    adopted: row.try_get("adopted")?,
                    object: row.try_get::<Option<Uuid>, _>("object")?.map(ResourceUid),
                };
                Ok((row.try_get("kind")?, child))
            };
            let (kind, child) = read().map_err(StoreError::query(what))?;
            // What a newer version had go to the hub is its business.
            let Some(kind) = KindId::child(&kind) else {
                newer::tell(&kind);
                continue;
            };
            children.push(Child { kind, ..child });
        }
        Ok(children)
    }

    /// The namespaces that Git names for what comes from this Kustomization, by however many others.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn git_namespaces(&self, namespace: &str, name: &str) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(
            "WITH RECURSIVE down AS (
               SELECT child.* FROM resource root JOIN child ON child.parent = root.uid
               WHERE root.kind = ANY($3) AND root.namespace = $1 AND root.name = $2
               UNION
               SELECT child.* FROM down JOIN resource ON resource.kind = ANY($3) AND down.kind = resource.kind
                 AND resource.namespace = down.namespace AND resource.name = down.name
               JOIN child ON child.parent = resource.uid
             ) SELECT DISTINCT git_namespace FROM down WHERE git_namespace <> '' LIMIT 5000",
        )
        .bind(namespace)
        .bind(name)
        .bind(kinds(PipelineRole::Applier))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up the namespaces of a Kustomization's children"))
    }

    /// The namespaces of the hub that deployed to a cluster before there was `spec.access`.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn access_before(&self, cluster: ResourceUid) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar("SELECT namespace FROM cluster_access_before WHERE cluster_uid = $1")
            .bind(cluster.0)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("look up who deployed to a cluster"))
    }

    /// Clusters without `spec.access`, each with the namespaces of the hub that deployed there before there was such a thing; in order.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn clusters_with_access_before(&self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        sqlx::query_as(
            "SELECT cluster.name, array_agg(before.namespace ORDER BY before.namespace)
             FROM cluster_access_before before JOIN resource cluster ON cluster.uid = before.cluster_uid
             WHERE cluster.object #> '{spec,access}' IS NULL
             GROUP BY cluster.name ORDER BY cluster.name LIMIT 5000",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up who deployed to clusters"))
    }
}

/// Kinds, namespaces and names of children, for `unnest`.
pub(crate) fn columns(children: &[Child]) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
    let kinds = children.iter().map(|child| child.kind.get().kind).collect();
    let namespaces = children.iter().map(|child| child.namespace.as_str()).collect();
    (kinds, namespaces, children.iter().map(|child| child.name.as_str()).collect())
}

impl Tx {
    /// What is known of these, in their order.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn present_children(&mut self, children: &[Child]) -> Result<Vec<Present>, StoreError> {
        let what = "look up a Kustomization's children";
        let (kinds_of, namespaces, names) = columns(children);
        let groups: Vec<&str> = children.iter().map(|child| child.kind.get().group()).collect();
        let rows = sqlx::query(
            "SELECT resource.uid, resource.object #>> '{metadata,annotations,fleet.roadstead.dev/adopted-by}' AS adopted_by,
                    resource.object #>> '{metadata,annotations,fleet.roadstead.dev/git-namespace}' AS git_namespace,
                    CASE WHEN resource.kind = ANY($5) THEN resource.refers_to END AS refers_to,
                    child.origin, child.parent, child.kept, child.adopted
             FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
               AS new (api_group, kind, namespace, name, place)
             LEFT JOIN resource USING (api_group, kind, namespace, name)
             LEFT JOIN child ON child.kind = new.kind AND child.namespace = new.namespace AND child.name = new.name
               AND (resource.uid IS NULL OR child.object = resource.uid)
             ORDER BY new.place",
        )
        .bind(&groups)
        .bind(&kinds_of)
        .bind(&namespaces)
        .bind(&names)
        .bind(kinds(PipelineRole::Applier))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        rows.iter()
            .map(|row| {
                let made_by = match row.try_get::<Option<String>, _>("origin")? {
                    None => None,
                    Some(name) => Some(MadeBy {
                        name,
                        uid: row.try_get::<Option<Uuid>, _>("parent")?.map(ApplierUid),
                        kept: row.try_get("kept")?,
                        adopted: row.try_get("adopted")?,
                    }),
                };
                Ok(Present {
                    uid: row.try_get::<Option<Uuid>, _>("uid")?.map(ResourceUid),
                    adopted_by: row.try_get("adopted_by")?,
                    git_namespace: row.try_get("git_namespace")?,
                    sources: row
                        .try_get::<Option<Vec<String>>, _>("refers_to")?
                        .iter()
                        .flatten()
                        .filter_map(|key| Reference::from_key(key))
                        .filter(|reference| reference.kind.is_source())
                        .collect(),
                    made_by,
                })
            })
            .collect::<Result<_, sqlx::Error>>()
            .map_err(StoreError::query(what))
    }

    /// Records that a Kustomization owns these, and of what else it owned that it is not wanted any more. Returns those that
    /// another Kustomization owns, with that one's name; then nothing may be written to them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn own_children(
        &mut self,
        parent: &Parent<'_>,
        children: &[Child],
    ) -> Result<Vec<(String, String)>, StoreError> {
        let what = "write a Kustomization's children";
        let (kinds, namespaces, names) = columns(children);
        let git_namespaces: Vec<&str> = children.iter().map(|child| child.git_namespace.as_str()).collect();
        let kept: Vec<bool> = children.iter().map(|child| child.kept).collect();
        let objects: Vec<Option<Uuid>> = children.iter().map(|child| child.object.map(|uid| uid.0)).collect();
        let adopted: Vec<bool> = children.iter().map(|child| child.adopted).collect();
        // A row that is about another object than the one that is there says nothing of that one. And a person may have
        // another Kustomization take over what this one keeps up to date.
        sqlx::query(
            "INSERT INTO child (kind, namespace, name, parent, wanted, git_namespace, kept, origin, account, object, adopted,
                                handing_over)
             SELECT kind, namespace, name, $4, true, git_namespace, kept, $7, $8, object, adopted, object IS NOT NULL
             FROM unnest($1::text[], $2::text[], $3::text[], $5::text[], $6::bool[], $9::uuid[], $10::bool[])
               AS new (kind, namespace, name, git_namespace, kept, object, adopted)
             ORDER BY kind, namespace, name
             ON CONFLICT (kind, namespace, name) DO UPDATE SET wanted = true, parent = excluded.parent,
               git_namespace = excluded.git_namespace, origin = excluded.origin, account = excluded.account,
               object = coalesce(excluded.object, child.object),
               kept = excluded.kept OR child.kept AND child.object IS NOT DISTINCT FROM coalesce(excluded.object, child.object),
               adopted = excluded.adopted
                 OR child.adopted AND child.object IS NOT DISTINCT FROM coalesce(excluded.object, child.object),
               handing_over = excluded.object IS NOT NULL AND (child.handing_over OR child.parent IS DISTINCT FROM $4
                 OR child.object IS DISTINCT FROM excluded.object OR excluded.adopted AND NOT child.adopted)
             WHERE child.parent = $4 OR child.parent IS NULL OR excluded.object <> child.object
               OR excluded.object IS NOT NULL AND child.object IS NULL OR excluded.adopted AND child.kept",
        )
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.uid.0)
        .bind(&git_namespaces)
        .bind(&kept)
        .bind(parent.name)
        .bind(parent.account)
        .bind(&objects)
        .bind(&adopted)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            "UPDATE child SET wanted = false WHERE parent = $4 AND wanted
             AND (kind, namespace, name) NOT IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
             -- A newer version may have more kinds go to the hub than this one, which does not find them in the build.
             AND kind = ANY($5)",
        )
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.uid.0)
        .bind(newer::known_kinds())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        // What a person made may be kept up to date by several.
        sqlx::query_as(
            "SELECT child.kind || ' ' || child.namespace || '/' || child.name, owner.namespace || '/' || owner.name
             FROM child JOIN unnest($1::text[], $2::text[], $3::text[]) AS new (kind, namespace, name)
               USING (kind, namespace, name)
             JOIN resource owner ON owner.uid = child.parent WHERE child.parent <> $4 AND NOT child.kept ORDER BY 1",
        )
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.uid.0)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))
    }

    /// Records that a Kustomization makes an object, in the unit of work that makes it: of what it is about to own.
    /// False where it is not about to own any of that name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_made(&mut self, parent: ApplierUid, made: &Stored) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "UPDATE child SET object = $5, kept = false, adopted = false, handing_over = false
             WHERE parent = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND wanted",
        )
        .bind(parent.0)
        .bind(made.kind.get().kind)
        .bind(&made.namespace)
        .bind(&made.name)
        .bind(made.uid.0)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note who makes an object"))?;
        Ok(noted.rows_affected() == 1)
    }

    /// Forgets a child that is gone, or is left alone from now on. Of what it took over it stays known what it was given.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_child(&mut self, parent: ApplierUid, child: &Child) -> Result<(), StoreError> {
        let what = "forget a child";
        for forget in [
            "UPDATE child SET parent = NULL
             WHERE parent = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND NOT wanted AND adopted",
            "DELETE FROM child WHERE parent = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND NOT wanted",
        ] {
            sqlx::query(forget)
                .bind(parent.0)
                .bind(child.kind.get().kind)
                .bind(&child.namespace)
                .bind(&child.name)
                .execute(self.written().await?)
                .await
                .map_err(StoreError::query(what))?;
        }
        Ok(())
    }

    /// Forgets who made an object that is no more, unless that one is there to make it again; and, of a Kustomization that is no
    /// more, what it kept up to date or what is no more itself. What else it made, or took over, stays known as what Git wrote.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_maker(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        uid: ResourceUid,
    ) -> Result<(), StoreError> {
        let what = "forget who made an object";
        sqlx::query(
            "DELETE FROM child WHERE kind = $1 AND namespace = $2 AND name = $3 AND (parent IS NULL OR kept)",
        )
        .bind(kind.get().kind)
        .bind(namespace)
        .bind(name)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        if !kind.is_applier() {
            return Ok(());
        }
        sqlx::query(
            "DELETE FROM child WHERE parent = $1
               AND (kept AND NOT adopted OR NOT EXISTS (SELECT FROM resource WHERE resource.uid = child.object))",
        )
        .bind(uid.0)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// The appliers of these names (`namespace/name`) that are there.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn appliers_named(&mut self, names: &[&str]) -> Result<Vec<ResourceUid>, StoreError> {
        let (namespaces, names): (Vec<&str>, Vec<&str>) =
            names.iter().filter_map(|name| name.split_once('/')).unzip();
        let found: Vec<Uuid> = sqlx::query_scalar(
            "SELECT uid FROM resource JOIN unnest($1::text[], $2::text[]) AS named (namespace, name) USING (namespace, name)
             WHERE kind = ANY($3)",
        )
        .bind(&namespaces)
        .bind(&names)
        .bind(kinds(PipelineRole::Applier))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("look up appliers by their names"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }

    /// The Kustomizations that this one made, and those that they made.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn descendants(&mut self, parent: ResourceUid) -> Result<Vec<ResourceUid>, StoreError> {
        let found: Vec<Uuid> = sqlx::query_scalar(
            "WITH RECURSIVE down (uid) AS (
               SELECT $1::uuid UNION SELECT resource.uid FROM down JOIN child ON child.parent = down.uid
               JOIN resource ON resource.kind = child.kind AND resource.namespace = child.namespace
                 AND resource.name = child.name
               WHERE child.kind = ANY($2)
             ) SELECT uid FROM down WHERE uid <> $1 ORDER BY uid",
        )
        .bind(parent.0)
        .bind(kinds(PipelineRole::Applier))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("look up what a Kustomization made"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }
}
