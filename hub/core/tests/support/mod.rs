//! The hub's use cases over a fresh database, without listeners and without loops: a test does each pass itself.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use roadstead_api::{
    Artifact, Condition, ConditionStatus, GitRepository, KindId, Kustomization, SourceStatus, Time,
    set_condition,
};
use roadstead_body::Patch;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::{DeleteOptions, WriteOptions};
use roadstead_hub_core::{Address, Hub, HubOptions, SystemClock, WORKER_ARGUMENT, Workers, workers_of};
use roadstead_hub_store::{AgentSession, AtRest, Key, Outcome, Sealer, Store, Stored};
use roadstead_model::{
    Capabilities, ClusterUid, Digest, KubeSystemUid, Reason, ReplicaId, ResourceUid, SessionId,
};
use roadstead_sources::{Entry, TreeBuilder, TreeLimits, pack};
use roadstead_tests::{TestDatabase, binary, eventually};
use roadstead_worker::Program;
use serde_json::{Value, json};

pub(crate) const FLUX: &str = "kustomize.toolkit.fluxcd.io/v1";
pub(crate) const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
pub(crate) const FLEET: &str = "fleet.roadstead.dev/v1alpha1";

/// A hub's use cases and what they are kept in.
pub(crate) struct Site {
    pub(crate) hub: Hub,
    pub(crate) store: Store,
    pub(crate) database: TestDatabase,
    pub(crate) workers: Workers,
    key: [u8; 32],
}

impl Site {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(HubOptions::default()).await
    }

    pub(crate) async fn with(options: HubOptions) -> Result<Self> {
        let database = TestDatabase::new().await?;
        // Builds are made by the real program's worker processes: this one is a test.
        let program = Program {
            path: binary("roadstead-hub")?,
            name: "roadstead-hub".into(),
            arguments: vec![WORKER_ARGUMENT.into()],
        };
        let workers = workers_of(program, &options.budget)?;
        let options = HubOptions { workers: Some(workers.clone()), ..options };
        let key = *Key::generate()?.expose();
        let store = Store::open(database.url(), Sealer::new(&Key::new(key))?, 8).await?;
        let hub = Hub::open(store.clone(), Arc::new(SystemClock), options).await?;
        hub.objects.bootstrap().await?;
        Ok(Self { hub, store, database, workers, key })
    }

    /// The same database once more, as another replica has it.
    pub(crate) async fn other_store(&self) -> Result<Store> {
        Ok(Store::open(self.database.url(), Sealer::new(&Key::new(self.key))?, 4).await?)
    }

    /// Gives its connections back.
    pub(crate) async fn close(&self) {
        self.hub.close().await;
    }

    /// Writes an object as an administrator does.
    pub(crate) async fn apply(&self, object: Value) -> Result<Value> {
        self.apply_as(&Identity::hub(), object).await
    }

    pub(crate) async fn apply_as(&self, who: &Identity, object: Value) -> Result<Value> {
        let address = address(&object)?;
        let options = WriteOptions { manager: "kubectl".to_owned(), ..WriteOptions::default() };
        Ok(self.hub.objects.apply(who, &address, object, true, options).await?.object)
    }

    /// Somebody who administers this namespace, and may use every Cluster.
    pub(crate) async fn member(&self, namespace: &str) -> Result<Identity> {
        let group = "rbac.authorization.k8s.io";
        let api_version = format!("{group}/v1");
        let user = format!("admin-of-{namespace}");
        let subjects = json!([{ "kind": "User", "apiGroup": group, "name": user }]);
        self.apply(json!({ "apiVersion": api_version, "kind": "ClusterRole", "metadata": { "name": "deployer" },
            "rules": [{ "apiGroups": ["fleet.roadstead.dev"], "resources": ["clusters"], "verbs": ["use"] }] }))
            .await?;
        self.apply(json!({ "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": { "name": user },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "deployer" }, "subjects": subjects }))
            .await?;
        self.apply(json!({ "apiVersion": api_version, "kind": "RoleBinding",
            "metadata": { "namespace": namespace, "name": "admin" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "admin" }, "subjects": subjects }))
            .await?;
        let who = self.hub.identity.somebody(&user, Vec::new()).await?;
        eventually("the rights are known", std::time::Duration::from_secs(10), async || {
            who.authorize("create", KindId::Kustomization.get(), "", namespace, "")?;
            Ok(who.authorize("use", KindId::Cluster.get(), "", "", "")?)
        })
        .await?;
        Ok(who)
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        self.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await?;
        Ok(())
    }

    /// A Cluster whose agent is connected, which `access` of the hub's namespaces may use.
    pub(crate) async fn cluster(&self, name: &str, access: Value) -> Result<ClusterUid> {
        let mut object =
            json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": name }, "spec": {} });
        if !access.is_null() {
            object["spec"]["access"] = access;
        }
        let made = self.apply(object).await?;
        let uid: ClusterUid = made["metadata"]["uid"].as_str().context("a uid")?.parse()?;
        self.connect(uid).await?;
        Ok(uid)
    }

    pub(crate) async fn connect(&self, uid: ClusterUid) -> Result<()> {
        let now = self.hub.now();
        let replica = ReplicaId::random();
        self.store.replica_seen(replica, now).await?;
        let mut tx = self.store.begin().await?;
        tx.identify_cluster(uid, KubeSystemUid::random(), now).await?;
        let session = AgentSession {
            session: SessionId::random(),
            replica,
            agent_version: "0".to_owned(),
            kubernetes_version: "v1.36.0".to_owned(),
            image: None,
            capabilities: Capabilities::of_this_agent(),
            connected: now,
            disconnected: None,
            unreachable: None,
        };
        tx.begin_session(uid, &session).await?;
        tx.commit().await?;
        Ok(())
    }

    /// A GitRepository that a person made and that has these files.
    pub(crate) async fn source(&self, namespace: &str, name: &str, files: &[(String, String)]) -> Result<()> {
        self.apply(git_repository(namespace, name, "https://git.example.com/fleet.git")).await?;
        self.fetched(namespace, name, files).await
    }

    /// Has the source hold these files, as if they had been fetched.
    pub(crate) async fn fetched(
        &self,
        namespace: &str,
        name: &str,
        files: &[(String, String)],
    ) -> Result<()> {
        let mut tree = TreeBuilder::new(TreeLimits::default());
        for (path, text) in files {
            tree.insert(path.clone(), Entry::File { bytes: text.clone().into_bytes(), executable: false })?;
        }
        let packed = pack(&tree.finish()?)?;
        let now = self.hub.now();
        self.store.put_blob(packed.digest, &packed.bytes, AtRest::Sealed, now).await?;
        let mut tx = self.store.begin().await?;
        let mut stored = tx.get(KindId::GitRepository, namespace, name).await?.context("the source")?;
        let status = ready_source(&stored, packed.digest, now)?;
        stored.set_status(&status)?;
        tx.put(stored).await?;
        tx.commit().await?;
        Ok(())
    }

    pub(crate) async fn stored(&self, kind: KindId, namespace: &str, name: &str) -> Result<Stored> {
        let found = self.store.get(kind, namespace, name).await?;
        found.with_context(|| format!("no {kind} {namespace}/{name}"))
    }

    /// An object as an administrator reads it.
    pub(crate) async fn get(&self, kind: KindId, namespace: &str, name: &str) -> Result<Value> {
        let version = kind.get().storage_version();
        let address = Address { kind, version, namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(self.hub.objects.get(&Identity::hub(), &address).await?)
    }

    pub(crate) async fn exists(&self, kind: KindId, namespace: &str, name: &str) -> Result<bool> {
        Ok(self.store.get(kind, namespace, name).await?.is_some())
    }

    pub(crate) async fn uid(&self, namespace: &str, name: &str) -> Result<ResourceUid> {
        Ok(self.stored(KindId::Kustomization, namespace, name).await?.uid)
    }

    /// Looks at a Kustomization, and gives the reason and message of its Ready condition.
    pub(crate) async fn process(&self, namespace: &str, name: &str) -> Result<(String, String)> {
        self.hub.delivery.process_applier(self.uid(namespace, name).await?).await?;
        self.ready(KindId::Kustomization, namespace, name).await
    }

    pub(crate) async fn ready(&self, kind: KindId, namespace: &str, name: &str) -> Result<(String, String)> {
        let stored = self.stored(kind, namespace, name).await?;
        let conditions = stored.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default().to_owned();
        Ok((text("reason"), text("message")))
    }

    /// Where the newest attempt of a Kustomization goes, and as whom: the cluster, and `namespace/name` of the account, which is
    /// empty where it is the agent itself.
    pub(crate) async fn dispatched(&self, namespace: &str, name: &str) -> Result<(ClusterUid, String)> {
        let uid = self.uid(namespace, name).await?;
        let mut connection = self.database.connect().await?;
        let (cluster, plan): (Option<sqlx::types::Uuid>, Option<sqlx::types::Json<Value>>) = sqlx::query_as(
            "SELECT cluster_uid, dispatch FROM reconciliation WHERE applier = $1 ORDER BY attempt DESC LIMIT 1",
        )
        .bind(uid.0)
        .fetch_one(&mut connection)
        .await
        .with_context(|| format!("an attempt of {namespace}/{name}"))?;
        let Some(sqlx::types::Json(plan)) = plan else {
            anyhow::bail!(
                "nothing was dispatched: {:?}",
                self.ready(KindId::Kustomization, namespace, name).await?
            );
        };
        let account = match plan["serviceAccount"].as_array() {
            Some(pair) => {
                format!("{}/{}", pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default())
            }
            None => String::new(),
        };
        Ok((ClusterUid(cluster.context("a cluster")?), account))
    }

    /// Has the open attempt of a Kustomization end well, and the Kustomization Ready, as if its agent had told so.
    pub(crate) async fn succeed(&self, namespace: &str, name: &str) -> Result<()> {
        let uid = self.uid(namespace, name).await?;
        let newest = self.store.newest_reconciliation(uid.into()).await?.context("an attempt")?;
        let now = self.hub.now();
        let outcome = Outcome {
            reason: Reason::ReconciliationSucceeded,
            message: String::new(),
            change_set: Vec::new(),
            timings: Vec::new(),
            health: std::collections::BTreeMap::new(),
        };
        let cluster = newest.inputs.cluster.context("a cluster")?;
        let mut tx = self.store.begin().await?;
        tx.finish_reconciliation(uid.into(), newest.attempt, cluster, &outcome, now).await?;
        let mut stored = tx.get_by_uid(uid).await?.context("the Kustomization")?;
        let mut status = stored.decode::<Kustomization>()?.status.unwrap_or_default();
        status.last_applied_revision = newest.inputs.revision.map(|revision| revision.to_string());
        set_condition(&mut status.conditions, ready(stored.generation, now));
        stored.set_status(&status)?;
        tx.put(stored).await?;
        tx.commit().await?;
        Ok(())
    }

    /// All objects of a kind.
    pub(crate) async fn all(&self, kind: KindId) -> Result<Vec<Stored>> {
        let mut tx = self.store.begin().await?;
        Ok(tx.list(kind, "").await?)
    }

    /// Annotates an object as a person does.
    pub(crate) async fn annotate(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
        key: &str,
        value: &str,
    ) -> Result<()> {
        let version = kind.get().storage_version();
        let address = Address { kind, version, namespace: namespace.to_owned(), name: name.to_owned() };
        let options = WriteOptions { manager: "kubectl-annotate".to_owned(), ..WriteOptions::default() };
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        self.hub.objects.patch(&Identity::hub(), &address, &patch, options).await?;
        Ok(())
    }

    /// Replaces an object as a person does who edits it.
    pub(crate) async fn replace(&self, object: Value) -> Result<()> {
        let address = address(&object)?;
        let options = WriteOptions { manager: "kubectl-edit".to_owned(), ..WriteOptions::default() };
        self.hub.objects.update(&Identity::hub(), &address, object, options).await?;
        Ok(())
    }

    /// Asks for a reconciliation at once.
    pub(crate) async fn ask(&self, namespace: &str, name: &str) -> Result<()> {
        let at = ResourceUid::random().to_string();
        let key = "reconcile.fluxcd.io/requestedAt";
        self.annotate(KindId::Kustomization, namespace, name, key, &at).await
    }

    /// Deletes an object as a person does.
    pub(crate) async fn delete(&self, kind: KindId, namespace: &str, name: &str) -> Result<()> {
        let version = kind.get().storage_version();
        let address = Address { kind, version, namespace: namespace.to_owned(), name: name.to_owned() };
        self.hub.objects.delete(&Identity::hub(), &address, &DeleteOptions::default()).await?;
        Ok(())
    }

    /// Fails unless nothing was ever dispatched for this Kustomization.
    pub(crate) async fn nothing_dispatched(&self, namespace: &str, name: &str) -> Result<()> {
        let Some(stored) = self.store.get(KindId::Kustomization, namespace, name).await? else {
            return Ok(());
        };
        let newest = self.store.newest_reconciliation(stored.uid.into()).await?;
        ensure!(newest.is_none(), "{namespace}/{name} was dispatched");
        Ok(())
    }
}

fn ready_source(stored: &Stored, digest: Digest, now: jiff::Timestamp) -> Result<SourceStatus> {
    let source: GitRepository = stored.decode()?;
    let mut status = source.status.unwrap_or_default().source;
    let commit = digest.hex();
    status.artifact = Some(Artifact {
        digest: digest.to_string(),
        path: String::new(),
        url: String::new(),
        revision: format!("main@sha1:{}", &commit[..40]),
        last_update_time: Time(now),
        size: None,
        metadata: std::collections::BTreeMap::new(),
    });
    set_condition(&mut status.conditions, ready(stored.generation, now));
    Ok(status)
}

fn ready(generation: i64, now: jiff::Timestamp) -> Condition {
    Condition {
        type_: "Ready".to_owned(),
        status: ConditionStatus::True,
        last_transition_time: Time(now),
        reason: "Succeeded".to_owned(),
        message: String::new(),
        observed_generation: Some(generation),
    }
}

pub(crate) fn git_repository(namespace: &str, name: &str, url: &str) -> Value {
    json!({
        "apiVersion": SOURCE, "kind": "GitRepository", "metadata": { "namespace": namespace, "name": name },
        "spec": { "url": url, "interval": "1m" },
    })
}

/// A Kustomization of the source `fleet`, with further fields of its spec.
pub(crate) fn kustomization(namespace: &str, name: &str, path: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": FLUX, "kind": "Kustomization", "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "interval": "10m", "prune": true, "path": path,
            "sourceRef": { "kind": "GitRepository", "name": "fleet" },
        },
    });
    if let Value::Object(fields) = more {
        for (key, value) in fields {
            object["spec"][key] = value;
        }
    }
    object
}

/// A file of a repository.
pub(crate) fn file(path: &str, objects: &[Value]) -> (String, String) {
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    (path.to_owned(), texts.join("\n---\n"))
}

pub(crate) fn config_map(namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": namespace, "name": name }, "data": { "a": "b" } })
}

pub(crate) fn address(object: &Value) -> Result<Address> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let kind = KindId::parse(group, &kind).with_context(|| format!("kind {kind}"))?;
    let version = kind.get().version(group, version).context("a version")?;
    let metadata = &object["metadata"];
    Ok(Address { kind, version, namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) })
}

/// Team a's Kustomization `app` on cluster `staging` as `restricted`, with these files in its repository; and cluster `prod`, to
/// which the team may deploy too.
pub(crate) async fn team_a(root: Value, files: &[(String, String)]) -> Result<Site> {
    team_a_with(HubOptions::default(), root, files).await
}

/// The same with a hub that has these options.
pub(crate) async fn team_a_with(
    options: HubOptions,
    root: Value,
    files: &[(String, String)],
) -> Result<Site> {
    let site = Site::with(options).await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
    }
    let access = json!([{ "namespace": "team-a", "agentRights": true }]);
    site.cluster("staging", access.clone()).await?;
    site.cluster("prod", access).await?;
    site.source("team-a", "fleet", files).await?;
    let mut spec = json!({ "clusterRef": { "name": "staging" }, "serviceAccountName": "restricted" });
    for (key, value) in root.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    site.apply(kustomization("team-a", "app", "./root", spec)).await?;
    Ok(site)
}

/// As Git has it, in the namespace where Flux lives.
pub(crate) fn child(name: &str, more: Value) -> Value {
    let mut object = kustomization("flux-system", name, "./web", more);
    object["spec"]["sourceRef"] = json!({ "kind": "GitRepository", "name": "fleet" });
    object
}

/// What [`child`] applies.
pub(crate) fn web() -> (String, String) {
    file("web/map.yaml", &[config_map("web", "web")])
}

/// Fails unless a pass over this Kustomization of team a is refused, in these words.
pub(crate) async fn is_denied(site: &Site, name: &str, parts: &[&str]) -> Result<()> {
    let (reason, message) = site.process("team-a", name).await?;
    ensure!(reason == "AccessDenied", "{reason}: {message}");
    for part in parts {
        ensure!(message.contains(part), "no `{part}` in: {message}");
    }
    // On record as any other refusal.
    let said: Vec<String> = sqlx::query_scalar(
        "SELECT detail FROM audit WHERE outcome = 'refused' AND verb = 'reconcile' AND namespace = 'team-a' AND name = $1
           AND username LIKE 'system:roadstead:kustomization:team-a:' || name || '@%'",
    )
    .bind(name)
    .fetch_all(&mut site.database.connect().await?)
    .await?;
    let is_said = |detail: &&String| message.starts_with(detail.trim_end_matches('…'));
    ensure!(said.iter().filter(is_said).count() == 1, "{message} is not on record once: {said:#?}");
    Ok(())
}
