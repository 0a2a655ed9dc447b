//! Which objects on the hub a Kustomization's build holds. Written ahead of the object, so that a crash orphans none.

use roadstead_api::KindId;
use roadstead_model::{KustomizationUid, ResourceUid};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use crate::{Store, StoreError, Tx};

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
}

/// Whose children are written.
#[derive(Debug, Clone)]
pub struct Parent<'a> {
    /// The Kustomization.
    pub uid: KustomizationUid,
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
    /// The Kustomization that made it, if one did.
    pub made_by: Option<MadeBy>,
}

/// Which Kustomization made an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeBy {
    /// Its `namespace/name`.
    pub name: String,
    /// Its uid; none where it is gone.
    pub uid: Option<KustomizationUid>,
    /// It only keeps the object up to date: a person made it.
    pub kept: bool,
}

/// What a child has from those above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descent {
    /// The namespace that Git names; empty where it names none.
    pub git_namespace: String,
    /// `namespace/name` of the account that its parent had when it wrote it; empty for none.
    pub account: String,
    /// Those above it, its parent first; none where that is gone.
    pub ancestors: Vec<Ancestor>,
}

/// A Kustomization above another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.clusterRef`, `spec.kubeConfig`, `spec.serviceAccount`, `spec.serviceAccountName` and `spec.delegation` of it.
    pub spec: Value,
    /// The namespace that Git names for it, or that its annotation names; empty where neither does.
    pub git_namespace: String,
    /// `namespace/name` of the account of its own parent; empty for none.
    pub account: String,
}

impl Store {
    /// What a Kustomization owns on the hub.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn children(&self, parent: KustomizationUid) -> Result<Vec<Child>, StoreError> {
        let what = "read a Kustomization's children";
        let rows = sqlx::query(
            "SELECT kind, namespace, name, wanted, git_namespace, kept FROM child
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
                };
                Ok((row.try_get("kind")?, child))
            };
            let (kind, child) = read().map_err(StoreError::query(what))?;
            let kind = KindId::child(&kind).ok_or_else(|| StoreError::Corrupt {
                what,
                why: format!("no kind '{kind}' goes to the hub"),
            })?;
            children.push(Child { kind, ..child });
        }
        Ok(children)
    }

    /// What an object of a build has from those above it, at most `depth` of them; none where no Kustomization made it.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn descent(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
        depth: usize,
    ) -> Result<Option<Descent>, StoreError> {
        let what = "look up a child's parents";
        let rows = sqlx::query(AssertSqlSafe(format!(
            "WITH RECURSIVE up AS (
               SELECT git_namespace, account, parent, 1 AS depth FROM child
               WHERE kind = $1 AND namespace = $2 AND name = $3 AND {IS_MADE}
               UNION ALL
               SELECT child.git_namespace, child.account, child.parent, up.depth + 1
               FROM up JOIN resource ON resource.uid = up.parent
               JOIN child ON child.kind = 'Kustomization' AND child.namespace = resource.namespace
                 AND child.name = resource.name
               WHERE up.depth < $4 AND {IS_MADE}
             )
             SELECT up.git_namespace, up.account, parent.namespace, parent.name,
                    coalesce(parent.object #>> '{{metadata,annotations,fleet.roadstead.dev/git-namespace}}', '') AS annotated,
                    CASE WHEN parent.uid IS NOT NULL THEN jsonb_build_object(
                      'clusterRef', parent.object #> '{{spec,clusterRef}}',
                      'kubeConfig', parent.object #> '{{spec,kubeConfig}}',
                      'serviceAccount', parent.object #> '{{spec,serviceAccount}}',
                      'serviceAccountName', parent.object #> '{{spec,serviceAccountName}}',
                      'delegation', parent.object #> '{{spec,delegation}}') END AS spec
             FROM up LEFT JOIN resource parent ON parent.uid = up.parent ORDER BY up.depth"
        )))
        .bind(kind.get().kind)
        .bind(namespace)
        .bind(name)
        .bind(i32::try_from(depth).unwrap_or(i32::MAX))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let mut descent: Option<Descent> = None;
        for row in rows {
            let mut read = || -> Result<(), sqlx::Error> {
                let (git_namespace, account): (String, String) =
                    (row.try_get("git_namespace")?, row.try_get("account")?);
                let found = descent.get_or_insert_with(|| Descent {
                    git_namespace: git_namespace.clone(),
                    account: account.clone(),
                    ancestors: Vec::new(),
                });
                // A row says of the one above the row before it what that remembers of itself.
                if let Some(above) = found.ancestors.last_mut() {
                    (above.git_namespace, above.account) = (git_namespace, account);
                }
                if let Some(namespace) = row.try_get::<Option<String>, _>("namespace")? {
                    found.ancestors.push(Ancestor {
                        namespace,
                        name: row.try_get("name")?,
                        spec: row.try_get("spec")?,
                        git_namespace: row.try_get("annotated")?,
                        account: String::new(),
                    });
                }
                Ok(())
            };
            read().map_err(StoreError::query(what))?;
        }
        Ok(descent)
    }

    /// The namespaces that Git names for what comes from this Kustomization, by however many others.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn git_namespaces(&self, namespace: &str, name: &str) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(
            "WITH RECURSIVE down AS (
               SELECT child.* FROM resource root JOIN child ON child.parent = root.uid
               WHERE root.kind = 'Kustomization' AND root.namespace = $1 AND root.name = $2
               UNION
               SELECT child.* FROM down JOIN resource ON resource.kind = 'Kustomization' AND down.kind = resource.kind
                 AND resource.namespace = down.namespace AND resource.name = down.name
               JOIN child ON child.parent = resource.uid
             ) SELECT DISTINCT git_namespace FROM down WHERE git_namespace <> '' LIMIT 5000",
        )
        .bind(namespace)
        .bind(name)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up the namespaces of a Kustomization's children"))
    }

    /// The URLs for which a person used this Secret of a namespace: those of sources that no Kustomization made.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn urls_of_secret(&self, namespace: &str, secret: &str) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(
            "SELECT DISTINCT object #>> '{spec,url}' FROM resource
             WHERE kind = 'GitRepository' AND namespace = $1 AND object #>> '{spec,secretRef,name}' = $2
               AND object #>> '{spec,url}' IS NOT NULL
               AND NOT EXISTS (SELECT FROM child WHERE child.kind = resource.kind AND child.namespace = resource.namespace
                               AND child.name = resource.name AND NOT child.kept)",
        )
        .bind(namespace)
        .bind(secret)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up what a Secret is used for"))
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
}

/// Whether a Kustomization made what the row of `child` names, or a person had it take that over. One that a person made and that
/// is merely kept up to date has rights of its own.
const IS_MADE: &str = "(NOT child.kept OR child.kind = 'Kustomization' AND EXISTS (SELECT FROM resource own
    WHERE own.kind = child.kind AND own.namespace = child.namespace AND own.name = child.name
      AND own.object #> '{metadata,annotations,fleet.roadstead.dev/adopted-by}' IS NOT NULL))";

/// Kinds, namespaces and names of children, for `unnest`.
fn columns(children: &[Child]) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
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
        let (kinds, namespaces, names) = columns(children);
        let groups: Vec<&str> = children.iter().map(|child| child.kind.get().group()).collect();
        let rows = sqlx::query(
            "SELECT resource.uid, resource.object #>> '{metadata,annotations,fleet.roadstead.dev/adopted-by}' AS adopted_by,
                    child.origin, child.parent, child.kept
             FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
               AS new (api_group, kind, namespace, name, place)
             LEFT JOIN resource USING (api_group, kind, namespace, name)
             LEFT JOIN child ON child.kind = new.kind AND child.namespace = new.namespace AND child.name = new.name
             ORDER BY new.place",
        )
        .bind(&groups)
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .fetch_all(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        rows.iter()
            .map(|row| {
                let made_by = match row.try_get::<Option<String>, _>("origin")? {
                    None => None,
                    Some(name) => Some(MadeBy {
                        name,
                        uid: row.try_get::<Option<Uuid>, _>("parent")?.map(KustomizationUid),
                        kept: row.try_get("kept")?,
                    }),
                };
                Ok(Present {
                    uid: row.try_get::<Option<Uuid>, _>("uid")?.map(ResourceUid),
                    adopted_by: row.try_get("adopted_by")?,
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
        sqlx::query(
            "INSERT INTO child (kind, namespace, name, parent, wanted, git_namespace, kept, origin, account)
             SELECT kind, namespace, name, $4, true, git_namespace, kept, $7, $8
             FROM unnest($1::text[], $2::text[], $3::text[], $5::text[], $6::bool[])
               AS new (kind, namespace, name, git_namespace, kept)
             ORDER BY kind, namespace, name
             ON CONFLICT (kind, namespace, name) DO UPDATE SET wanted = true, parent = excluded.parent,
               git_namespace = excluded.git_namespace, origin = excluded.origin, account = excluded.account,
               kept = child.kept OR excluded.kept
             WHERE child.parent = $4 OR child.parent IS NULL",
        )
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.uid.0)
        .bind(&git_namespaces)
        .bind(&kept)
        .bind(parent.name)
        .bind(parent.account)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            "UPDATE child SET wanted = false WHERE parent = $4 AND wanted
             AND (kind, namespace, name) NOT IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))",
        )
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.uid.0)
        .execute(&mut *self.inner)
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
        .fetch_all(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))
    }

    /// Forgets a child that is gone, or is left alone from now on.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_child(&mut self, parent: KustomizationUid, child: &Child) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM child WHERE parent = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND NOT wanted")
            .bind(parent.0)
            .bind(child.kind.get().kind)
            .bind(&child.namespace)
            .bind(&child.name)
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("forget a child"))?;
        Ok(())
    }

    /// Forgets who made an object that is no more, unless that one is there to make it again; and, of a Kustomization that is no
    /// more, what it kept up to date or what is no more itself. What else it made stays known as what Git made.
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
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        if kind != KindId::Kustomization {
            return Ok(());
        }
        sqlx::query(
            "DELETE FROM child WHERE parent = $1 AND (kept OR NOT EXISTS (SELECT FROM resource
               WHERE resource.kind = child.kind AND resource.namespace = child.namespace AND resource.name = child.name))",
        )
        .bind(uid.0)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
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
               WHERE child.kind = 'Kustomization'
             ) SELECT uid FROM down WHERE uid <> $1 ORDER BY uid",
        )
        .bind(parent.0)
        .fetch_all(&mut *self.inner)
        .await
        .map_err(StoreError::query("look up what a Kustomization made"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }

    /// The Kustomization whose build holds this object.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn parent_of(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ResourceUid>, StoreError> {
        let found: Option<Option<Uuid>> =
            sqlx::query_scalar("SELECT parent FROM child WHERE kind = $1 AND namespace = $2 AND name = $3")
                .bind(kind.get().kind)
                .bind(namespace)
                .bind(name)
                .fetch_optional(&mut *self.inner)
                .await
                .map_err(StoreError::query("look up an object's parent"))?;
        Ok(found.flatten().map(ResourceUid))
    }
}
