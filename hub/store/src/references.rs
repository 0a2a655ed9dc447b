//! Who refers to what: which objects a change elsewhere makes worth a pass.

use roadstead_model::ResourceUid;
use uuid::Uuid;

use crate::{Store, StoreError, Tx};

impl Tx {
    /// The Kustomizations whose `spec.sourceRef` is this source.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn kustomizations_of_source(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource
             WHERE kind = 'Kustomization' AND object #>> '{spec,sourceRef,kind}' = $1
               AND object #>> '{spec,sourceRef,name}' = $2
               AND coalesce(object #>> '{spec,sourceRef,namespace}', namespace) = $3",
        );
        let found = query.bind(kind).bind(name).bind(namespace).fetch_all(&mut *self.inner).await;
        uids(found, "look up a source's Kustomizations")
    }

    /// The Kustomizations whose `spec.clusterRef` or `spec.kubeConfig` names this cluster, and those that own objects on it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn kustomizations_of_cluster(
        &mut self,
        uid: ResourceUid,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE kind = 'Kustomization' AND cluster_ref = $1
             UNION SELECT used.uid FROM resource used JOIN resource cluster USING (kubeconfig)
             WHERE cluster.uid = $2 AND used.kind = 'Kustomization'
             UNION SELECT DISTINCT kustomization FROM inventory WHERE cluster_uid = $2",
        );
        let found = query.bind(name).bind(uid.0).fetch_all(&mut *self.inner).await;
        uids(found, "look up a cluster's Kustomizations")
    }

    /// The Clusters whose `spec.kubeConfig.secretRef` names this Secret.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn clusters_of_secret(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(CLUSTERS_OF_SECRET);
        let found = query.bind(namespace).bind(name).fetch_all(&mut *self.inner).await;
        uids(found, "look up a Secret's clusters")
    }

    /// The ManagementClusters whose `spec.kubeConfig.secretRef` names this Secret.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn management_clusters_of_secret(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE kind = 'ManagementCluster' AND kubeconfig = $1 || '/' || $2",
        );
        let found = query.bind(namespace).bind(name).fetch_all(&mut *self.inner).await;
        uids(found, "look up a Secret's management clusters")
    }

    /// The Kustomizations whose `spec.dependsOn` names this one.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn dependents(&mut self, namespace: &str, name: &str) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource
             WHERE kind = 'Kustomization' AND object #> '{spec,dependsOn}' IS NOT NULL
               -- This is what the index answers; what follows tells namespaces apart.
               AND object #> '{spec,dependsOn}' @> jsonb_build_array(jsonb_build_object('name', $1::text))
               AND EXISTS (SELECT FROM jsonb_array_elements(object #> '{spec,dependsOn}') AS dependency
                           WHERE dependency ->> 'name' = $1
                             AND coalesce(dependency ->> 'namespace', resource.namespace) = $2)",
        );
        let found = query.bind(name).bind(namespace).fetch_all(&mut *self.inner).await;
        uids(found, "look up dependents")
    }

    /// The sources of `namespace` whose `spec.secretRef` names this Secret.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn sources_of_secret(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource
             WHERE kind = 'GitRepository' AND namespace = $1 AND object #>> '{spec,secretRef,name}' = $2",
        );
        let found = query.bind(namespace).bind(name).fetch_all(&mut *self.inner).await;
        uids(found, "look up a Secret's sources")
    }
}

const CLUSTERS_OF_SECRET: &str = "SELECT uid FROM resource
    WHERE kind = 'Cluster' AND kubeconfig = $1 || '/' || $2
    ORDER BY created_at, uid";

impl Store {
    /// The Clusters whose `spec.kubeConfig.secretRef` names this Secret, the oldest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn clusters_of_secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(CLUSTERS_OF_SECRET);
        uids(query.bind(namespace).bind(name).fetch_all(&self.pool).await, "look up a Secret's clusters")
    }
}

fn uids(found: Result<Vec<Uuid>, sqlx::Error>, what: &'static str) -> Result<Vec<ResourceUid>, StoreError> {
    Ok(found.map_err(StoreError::query(what))?.into_iter().map(ResourceUid).collect())
}
