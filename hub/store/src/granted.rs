//! References to other namespaces for which whoever wrote them had the right: kept with the object, so that they go on when that person
//! has left.

use roadstead_api::{KindId, Reference};
use roadstead_model::ResourceUid;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Store, StoreError, Tx};

impl Store {
    /// Whether one of these references is granted to the object of that name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_reference_granted(
        &self,
        from: (KindId, &str, &str),
        references: &[Reference],
    ) -> Result<bool, StoreError> {
        let keys: Vec<String> = references.iter().map(Reference::key).collect();
        let found = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM granted_reference granted JOIN resource own ON own.uid = granted.uid
             WHERE own.api_group = $1 AND own.kind = $2 AND own.namespace = $3 AND own.name = $4
               AND granted.reference = ANY($5))",
        );
        let found = found.bind(from.0.get().group()).bind(from.0.get().kind).bind(from.1).bind(from.2);
        let found = found.bind(keys).fetch_one(&self.pool).await;
        found.map_err(StoreError::query("look up a granted reference"))
    }

    /// Whether any reference to this namespace is granted to the object of that name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_namespace_granted(
        &self,
        from: (KindId, &str, &str),
        namespace: &str,
    ) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM granted_reference granted JOIN resource own ON own.uid = granted.uid
             WHERE own.api_group = $1 AND own.kind = $2 AND own.namespace = $3 AND own.name = $4
               AND split_part(granted.reference, '/', 2) = $5)",
        );
        let found = found.bind(from.0.get().group()).bind(from.0.get().kind).bind(from.1).bind(from.2);
        let found = found.bind(namespace).fetch_one(&self.pool).await;
        found.map_err(StoreError::query("look up a namespace's granted references"))
    }

    /// The specs of the first ReferenceGrants of a namespace, by their names, that are for objects of a kind in another namespace.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn reference_grants(
        &self,
        from: (KindId, &str),
        namespace: &str,
        most: i64,
    ) -> Result<Vec<Value>, StoreError> {
        let named =
            json!([{ "group": from.0.get().group(), "kind": from.0.get().kind, "namespace": from.1 }]);
        let found = sqlx::query_scalar(
            "SELECT object -> 'spec' FROM resource
             WHERE api_group = $1 AND kind = $2 AND namespace COLLATE \"C\" = $3 AND object #> '{spec,from}' @> $4
             ORDER BY name COLLATE \"C\" LIMIT $5",
        );
        let kind = KindId::ReferenceGrant.get();
        let found = found.bind(kind.group()).bind(kind.kind).bind(namespace).bind(named).bind(most);
        found.fetch_all(&self.pool).await.map_err(StoreError::query("look up a namespace's ReferenceGrants"))
    }
}

impl Tx {
    /// The references that are granted to an object.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn granted_references(&mut self, uid: ResourceUid) -> Result<Vec<Reference>, StoreError> {
        let found = sqlx::query_scalar("SELECT reference FROM granted_reference WHERE uid = $1");
        let found: Result<Vec<String>, _> = found.bind(uid.0).fetch_all(self.written().await?).await;
        let found = found.map_err(StoreError::query("read granted references"))?;
        Ok(found.iter().filter_map(|key| Reference::from_key(key)).collect())
    }

    /// Grants an object, which is stored, these references and no others.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn grant_references(
        &mut self,
        uid: ResourceUid,
        references: &[Reference],
    ) -> Result<(), StoreError> {
        let keys: Vec<String> = references.iter().map(Reference::key).collect();
        let what = "grant references";
        sqlx::query("DELETE FROM granted_reference WHERE uid = $1 AND reference <> ALL($2)")
            .bind(uid.0)
            .bind(&keys)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        sqlx::query(
            "INSERT INTO granted_reference (uid, reference) SELECT $1, key FROM unnest($2::text[]) AS wanted (key)
             ON CONFLICT DO NOTHING",
        )
        .bind(uid.0)
        .bind(&keys)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// The objects of a kind in these namespaces that refer to something in another one; of Receivers and Alerts all, whose objects are no
    /// references that are followed.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn referring_to_namespace(
        &mut self,
        kind: KindId,
        from: &[&str],
        to: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE api_group = $1 AND kind = $2 AND namespace COLLATE \"C\" = ANY($3)
             AND (kind IN ('Receiver', 'Alert')
               OR EXISTS (SELECT 1 FROM unnest(refers_to) AS used (key) WHERE split_part(used.key, '/', 2) = $4))",
        );
        let found = found.bind(kind.get().group()).bind(kind.get().kind).bind(from).bind(to);
        let found: Result<Vec<Uuid>, _> = found.fetch_all(self.written().await?).await;
        let found = found.map_err(StoreError::query("look up who refers to a namespace"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }
}
