//! Who refers to what: which objects a change elsewhere makes worth a pass.

use roadstead_api::{KindId, PipelineRole, Reference};
use roadstead_model::{Queue, Reason, ResourceUid};
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use crate::newer::known_kinds;
use crate::{Store, StoreError, Tx};

/// Whom a change of an object concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Whom {
    /// The appliers that refer to it: as their source, or as what they depend on.
    pub users: bool,
    /// The sources that refer to it, whose artifacts hold its artifact; and what else composes artifacts of it.
    pub sources: bool,
    /// The applier whose build holds it.
    pub parent: bool,
}

/// The same, looked up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Concerned {
    /// The appliers that refer to it.
    pub users: Vec<ResourceUid>,
    /// The sources that refer to it.
    pub sources: Vec<ResourceUid>,
    /// What is neither a source nor an applier and refers to it.
    pub others: Vec<ResourceUid>,
    /// The applier whose build holds it.
    pub parent: Option<ResourceUid>,
    /// The Alerts that count how far a revision of it has come, or tell incidents of the appliers that refer to it.
    pub alerts: Vec<ResourceUid>,
}

impl Tx {
    /// The objects of a role that refer to this one.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn users(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        by: PipelineRole,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let mut query = QueryBuilder::new("SELECT uid FROM resource WHERE refers_to @> ARRAY[");
        query.push_bind(key(kind, namespace, name)).push("] AND ");
        push_has_role(&mut query, by);
        let found = query.build_query_scalar().fetch_all(self.written().await?).await;
        uids(found, "look up who refers to an object")
    }

    /// The objects of one kind that refer to this one.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn users_of_kind(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        by: KindId,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar("SELECT uid FROM resource WHERE refers_to @> ARRAY[$1] AND kind = $2");
        let query = query.bind(key(kind, namespace, name)).bind(by.get().kind);
        uids(query.fetch_all(self.written().await?).await, "look up who refers to an object")
    }

    /// The sources that refer to a source which refers to this object: charts of a repository that has it as its Secret.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn sources_by_sources(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT DISTINCT other.uid FROM resource own
             JOIN resource other ON other.refers_to @> ARRAY[own.kind || '/' || own.namespace || '/' || own.name]
             WHERE own.refers_to @> ARRAY[$1] AND own.kind = ANY($2) AND other.kind = ANY($2)",
        );
        let found = query
            .bind(key(kind, namespace, name))
            .bind(kinds(PipelineRole::Source))
            .fetch_all(self.written().await?)
            .await;
        uids(found, "look up the sources of an object's sources")
    }

    /// The sources that name a service account which pulls with this Secret (`imagePullSecrets`).
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn sources_by_pull_secret(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT DISTINCT source.uid FROM resource account
             JOIN resource source ON source.refers_to @> ARRAY[account.kind || '/' || account.namespace || '/' || account.name]
             WHERE account.api_group = $1 AND account.kind = $2 AND account.namespace = $3
             AND account.object -> 'imagePullSecrets' @> jsonb_build_array(jsonb_build_object('name', $4::text))
             AND source.kind = ANY($5)",
        );
        let kind = KindId::ServiceAccount.get();
        let query = query.bind(kind.group()).bind(kind.kind).bind(namespace).bind(name);
        let found = query.bind(kinds(PipelineRole::Source)).fetch_all(self.written().await?).await;
        uids(found, "look up the sources whose service accounts pull with a Secret")
    }

    /// The charts of a namespace that lack charts which they depend on: another repository, or other credentials, may have them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn charts_without_dependencies(
        &mut self,
        namespace: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = $3
             AND object #> '{status,conditions}' @> jsonb_build_array(jsonb_build_object('reason', $4::text))",
        );
        let kind = KindId::HelmChart.get();
        let query = query.bind(kind.group()).bind(kind.kind).bind(namespace);
        let found = query.bind(Reason::DependencyBuildError.as_str()).fetch_all(self.written().await?).await;
        uids(found, "look up charts that lack what they depend on")
    }

    /// The appliers whose attempts were rendered by this object of the hub.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn rendered_by(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT DISTINCT applier FROM reconciliation WHERE rendered_by IS NOT NULL AND rendered_by ? $1",
        );
        let found = query.bind(key(kind, namespace, name)).fetch_all(self.written().await?).await;
        uids(found, "look up who was rendered by an object")
    }

    /// Those of `whom` that there are for this object.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn concerned(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        whom: Whom,
    ) -> Result<Concerned, StoreError> {
        let what = "look up whom an object concerns";
        let used = key(kind, namespace, name);
        // The statement has only the parts that are asked for: one statement for all of them would be planned each time.
        let (mut query, mut asked) = (QueryBuilder::<Postgres>::new(""), 0);
        let mut begin = |query: &mut QueryBuilder<Postgres>| {
            asked += 1;
            query.push(if asked > 1 { " UNION ALL " } else { "" });
        };
        if whom.users {
            begin(&mut query);
            query.push("SELECT uid, 0 FROM resource WHERE refers_to @> ARRAY[").push_bind(used.clone());
            push_has_role(query.push("] AND "), PipelineRole::Applier);
        }
        if whom.sources {
            begin(&mut query);
            query.push("SELECT uid, CASE WHEN kind = ANY(").push_bind(kinds(PipelineRole::Other));
            query.push(") THEN 3 ELSE 1 END FROM resource WHERE refers_to @> ARRAY[").push_bind(used.clone());
            query.push("] AND (kind = ANY(").push_bind(kinds(PipelineRole::Other));
            push_has_role(query.push(") OR "), PipelineRole::Source);
            query.push(
                ") UNION ALL (SELECT DISTINCT heard.alert, 4 FROM resource AS used \
                 JOIN alert_source AS heard ON heard.kind = used.kind AND heard.namespace IN (used.namespace, '*') \
                 AND heard.name IN (used.name, '*') \
                 JOIN resource AS alert ON alert.uid = heard.alert AND alert.object #> '{spec,group}' IS NOT NULL \
                 WHERE used.refers_to @> ARRAY[",
            );
            query.push_bind(used).push("] AND used.kind = ANY(");
            query.push_bind(kinds(PipelineRole::Applier)).push("))");
        }
        if whom.parent {
            begin(&mut query);
            query.push("SELECT parent, 2 FROM child WHERE kind = ").push_bind(kind.get().kind);
            query.push(" AND namespace = ").push_bind(namespace).push(" AND name = ").push_bind(name);
            query.push(" AND parent IS NOT NULL");
        }
        if asked == 0 {
            return Ok(Concerned::default());
        }
        // References never wait to be written.
        let found = query.build_query_as().fetch_all(&mut *self.inner).await;
        let rows: Vec<(Uuid, i32)> = found.map_err(StoreError::query(what))?;
        let mut concerned = Concerned::default();
        for (uid, role) in rows {
            match role {
                0 => concerned.users.push(ResourceUid(uid)),
                1 => concerned.sources.push(ResourceUid(uid)),
                3 => concerned.others.push(ResourceUid(uid)),
                4 => concerned.alerts.push(ResourceUid(uid)),
                _ => concerned.parent = Some(ResourceUid(uid)),
            }
        }
        Ok(concerned)
    }

    /// The appliers whose `spec.clusterRef` or `spec.kubeConfig` names this cluster, and those that own objects on it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn appliers_of_cluster(
        &mut self,
        uid: ResourceUid,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE kind = ANY($3) AND cluster_ref = $1
             UNION SELECT used.uid FROM resource used JOIN resource cluster USING (kubeconfig)
             WHERE cluster.uid = $2 AND used.kind = ANY($3)
             UNION SELECT DISTINCT applier FROM inventory WHERE cluster_uid = $2",
        );
        let query = query.bind(name).bind(uid.0).bind(kinds(PipelineRole::Applier));
        let found = query.fetch_all(self.written().await?).await;
        uids(found, "look up a cluster's appliers")
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
        let found = query.bind(namespace).bind(name).fetch_all(self.written().await?).await;
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
        let found = query.bind(namespace).bind(name).fetch_all(self.written().await?).await;
        uids(found, "look up a Secret's management clusters")
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

impl Store {
    /// Appliers whose `spec.kubeConfig.secretRef` names this Secret, the oldest first; a few of them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn users_of_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE kind = ANY($3) AND kubeconfig = $1 || '/' || $2
             ORDER BY created_at, uid LIMIT 20",
        );
        let query = query.bind(namespace).bind(name).bind(kinds(PipelineRole::Applier));
        uids(query.fetch_all(&self.pool).await, "look up who names a kubeconfig")
    }

    /// The names and URLs of the HelmRepositories of a namespace, by name; a thousand at most.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn helm_repositories(&self, namespace: &str) -> Result<Vec<(String, String)>, StoreError> {
        let query = sqlx::query_as(
            "SELECT name, object #>> '{spec,url}' FROM resource
             WHERE api_group = $1 AND kind = $2 AND namespace = $3 AND object #>> '{spec,url}' IS NOT NULL
             ORDER BY name LIMIT 1000",
        );
        let kind = KindId::HelmRepository.get();
        let found = query.bind(kind.group()).bind(kind.kind).bind(namespace).fetch_all(&self.pool).await;
        found.map_err(StoreError::query("look up the HelmRepositories of a namespace"))
    }

    /// Which charts are taken of a HelmRepository: each with its version, or range of versions, which is empty where none is said. A thousand
    /// at most.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn charts_of(
        &self,
        namespace: &str,
        repository: &str,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let used = key(KindId::HelmRepository, namespace, repository);
        let query = sqlx::query_as(
            "SELECT DISTINCT object #>> '{spec,chart}', coalesce(object #>> '{spec,version}', '') FROM resource
             WHERE refers_to @> ARRAY[$1] AND kind = $2 AND object #>> '{spec,chart}' IS NOT NULL LIMIT 1000",
        );
        let found = query.bind(used).bind(KindId::HelmChart.get().kind).fetch_all(&self.pool).await;
        found.map_err(StoreError::query("look up the charts of a HelmRepository"))
    }

    /// The Clusters that came on board by a kubeconfig for this address of an apiserver; two at most.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn clusters_at(&self, address: &str) -> Result<Vec<ResourceUid>, StoreError> {
        let query = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE kind = 'Cluster' AND object #>> '{status,kubeConfig,server}' = $1
             ORDER BY created_at, uid LIMIT 2",
        );
        uids(query.bind(address).fetch_all(&self.pool).await, "look up the clusters at an address")
    }
}

/// How `refers_to` says this object.
fn key(kind: KindId, namespace: &str, name: &str) -> String {
    Reference { kind, namespace: namespace.to_owned(), name: name.to_owned() }.key()
}

/// Whether a row of `resource` has this role. One of a kind that only a newer version knows has the role whose passes it is due for: that
/// version made it so.
fn push_has_role(query: &mut QueryBuilder<Postgres>, role: PipelineRole) {
    let queue = match role {
        PipelineRole::Applier => Queue::Applier,
        PipelineRole::Source => Queue::Source,
        // Of what is neither, only ArtifactGenerators refer to others for their passes.
        PipelineRole::Other => Queue::Generator,
    };
    query.push("(kind = ANY(").push_bind(kinds(role));
    query.push(") OR kind <> ALL(").push_bind(known_kinds());
    // As a value and not by EXISTS, which might be planned as a table of all that is scheduled.
    query.push(") AND (SELECT true FROM schedule AS due WHERE due.uid = resource.uid AND due.kind = ");
    query.push_bind(queue.as_str()).push("))");
}

/// The names of the kinds of a role, for a statement.
pub(crate) fn kinds(role: PipelineRole) -> Vec<&'static str> {
    KindId::of_role(role).map(|kind| kind.get().kind).collect()
}

fn uids(found: Result<Vec<Uuid>, sqlx::Error>, what: &'static str) -> Result<Vec<ResourceUid>, StoreError> {
    Ok(found.map_err(StoreError::query(what))?.into_iter().map(ResourceUid).collect())
}
