//! Which objects on the hub a Kustomization's build holds. Written ahead of the object, so that a crash orphans none.

use roadstead_api::KindId;
use roadstead_model::{KustomizationUid, ResourceUid};
use uuid::Uuid;

use crate::{Store, StoreError, Tx};

/// An object on the hub that a Kustomization owns.
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
}

impl Store {
    /// What a Kustomization owns on the hub.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn children(&self, parent: KustomizationUid) -> Result<Vec<Child>, StoreError> {
        let what = "read a Kustomization's children";
        let rows: Vec<(String, String, String, bool)> = sqlx::query_as(
            "SELECT kind, namespace, name, wanted FROM child WHERE parent = $1 ORDER BY kind, namespace, name",
        )
        .bind(parent.0)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.into_iter()
            .map(|(kind, namespace, name, wanted)| {
                let kind = KindId::child(&kind).ok_or_else(|| StoreError::Corrupt {
                    what,
                    why: format!("no kind '{kind}' goes to the hub"),
                })?;
                Ok(Child { kind, namespace, name, wanted })
            })
            .collect()
    }
}

impl Tx {
    /// Records that a Kustomization owns these, and of what else it owned that it is not wanted any more. Returns those that
    /// another Kustomization owns, with that one's name; then nothing may be written to them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn own_children(
        &mut self,
        parent: KustomizationUid,
        children: &[Child],
    ) -> Result<Vec<(String, String)>, StoreError> {
        let what = "write a Kustomization's children";
        let column = |of: fn(&Child) -> &str| children.iter().map(of).map(str::to_owned).collect::<Vec<_>>();
        let kinds = column(|child| child.kind.get().kind);
        let (namespaces, names) = (column(|child| &child.namespace), column(|child| &child.name));
        for sql in [
            "INSERT INTO child (kind, namespace, name, parent, wanted)
             SELECT kind, namespace, name, $4, true
             FROM unnest($1::text[], $2::text[], $3::text[]) AS new (kind, namespace, name)
             ORDER BY kind, namespace, name
             ON CONFLICT (kind, namespace, name) DO UPDATE SET wanted = true WHERE child.parent = $4",
            "UPDATE child SET wanted = false WHERE parent = $4 AND wanted
             AND (kind, namespace, name) NOT IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))",
        ] {
            let query = sqlx::query(sql).bind(&kinds).bind(&namespaces).bind(&names).bind(parent.0);
            query.execute(&mut *self.inner).await.map_err(StoreError::query(what))?;
        }
        sqlx::query_as(
            "SELECT child.kind || ' ' || child.namespace || '/' || child.name, owner.namespace || '/' || owner.name
             FROM child JOIN unnest($1::text[], $2::text[], $3::text[]) AS new (kind, namespace, name)
               USING (kind, namespace, name)
             JOIN resource owner ON owner.uid = child.parent WHERE child.parent <> $4 ORDER BY 1",
        )
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(parent.0)
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
        let found: Option<Uuid> =
            sqlx::query_scalar("SELECT parent FROM child WHERE kind = $1 AND namespace = $2 AND name = $3")
                .bind(kind.get().kind)
                .bind(namespace)
                .bind(name)
                .fetch_optional(&mut *self.inner)
                .await
                .map_err(StoreError::query("look up an object's parent"))?;
        Ok(found.map(ResourceUid))
    }
}
