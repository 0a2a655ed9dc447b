//! A hub that was taken over, with all its keys, against an agent whose cluster has a policy: the agent's own process, a hub
//! that says what the test wants, and an apiserver that would allow everything and tells what it was asked. What is refused
//! is refused by the agent alone.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and fails")]

mod support;

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use roadstead_model::{
    ApplierUid, Attempt, Digest, Dispatch, DispatchKey, DispatchSpec, Generation, HubEpoch, ObjectRef,
    OnImmutable, StepKind,
};
use roadstead_proto::v1::{self, agent_message::Body as Said, hub_message::Body as Say};
use serde_json::{Map, Value, json};
use support::apiserver::Apiserver;
use support::enrolment::Enrolment;
use support::{Hub, HubSession, Pki, spec};
use tokio::process::{Child, Command};

const HOME: &str = "roadstead-system";
const IMAGE: &str = "registry.example/roadstead-agent:0.1.0";
const POLICY: &str = "/api/v1/namespaces/roadstead-system/configmaps/roadstead-agent-policy";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/roadstead-system/deployments/roadstead-agent";
const LOCKED: &str = "preset: locked\nserviceAccounts: {allowed: ['apps/*']}\n";

/// An agent in its cluster, and the session that the hub has with it.
struct World {
    api: Apiserver,
    session: HubSession,
    agent: Child,
    log: std::path::PathBuf,
    attempt: i64,
    uid: ApplierUid,
    _hub: Hub,
    _enrolment: Enrolment,
    folder: tempfile::TempDir,
}

/// What came of a dispatch.
struct End {
    failure: String,
    inventory: usize,
    writes: Vec<String>,
}

impl End {
    fn refused_by(&self, rule: &str) {
        let wanted = format!("rule `{rule}`");
        assert!(self.failure.contains(&wanted), "not refused by {wanted}: {}", self.failure);
        assert_eq!(self.writes, Vec::<String>::new(), "refused by {rule}, and written nevertheless");
    }

    fn went_through(&self) {
        assert_eq!(self.failure, "");
    }
}

fn config_map(policy: &str, confirmed: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "roadstead-agent-policy", "namespace": HOME},
        "data": {"policy.yaml": policy, "confirmed": confirmed}})
}

impl World {
    async fn new(policy: Option<&str>) -> Self {
        let api = Apiserver::start().await;
        for name in ["kube-system", HOME] {
            let labels = json!({"app.kubernetes.io/part-of": "roadstead"});
            let uid = uuid::Uuid::new_v4().to_string();
            api.put(
                &format!("/api/v1/namespaces/{name}"),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": uid, "labels": labels}}),
            );
        }
        if let Some(policy) = policy {
            api.put(POLICY, config_map(policy, ""));
        }
        let spec = json!({"containers": [{"name": "agent", "image": IMAGE}]});
        api.put(
            "/api/v1/namespaces/roadstead-system/pods/agent-0",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent-0", "namespace": HOME}, "spec": spec}),
        );
        api.put(
            DEPLOYMENT,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "roadstead-agent", "namespace": HOME},
                "spec": {"replicas": 1, "selector": {}, "template": {"spec": spec}}}),
        );
        let pki = Arc::new(Pki::new());
        let mut hub = Hub::start(&pki).await;
        let enrolment = Enrolment::start(pki.clone(), "a-token", hub.address).await;
        let folder = tempfile::tempdir().expect("a folder");
        let (kubeconfig, join) = (folder.path().join("kubeconfig"), folder.path().join("join.json"));
        std::fs::write(&kubeconfig, api.kubeconfig().to_string()).expect("written");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "fleet.roadstead.dev/join",
            "metadata": {"name": "roadstead-join", "namespace": HOME},
            "stringData": {"hub": format!("https://{}", enrolment.address), "link": hub.address.to_string(),
                "ca.crt": pki.servers.pem(), "token": "a-token", "cluster": "edge-1"},
        });
        std::fs::write(&join, secret.to_string()).expect("written");
        let log = folder.path().join("log");
        let agent = Command::new(env!("CARGO_BIN_EXE_roadstead-agent"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--join")
            .arg(&join)
            .env("ROADSTEAD_POD_NAME", "agent-0")
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a file"))
            .kill_on_drop(true)
            .spawn()
            .expect("the agent starts");
        let (session, hello) = hub.session().await;
        assert_eq!(hello.image, IMAGE);
        api.writes();
        let uid = ApplierUid::random();
        Self { api, session, agent, log, attempt: 0, uid, _hub: hub, _enrolment: enrolment, folder }
    }

    /// Kills the agent and starts it again; the hub has a new session.
    async fn restart(&mut self) {
        self.agent.kill().await.expect("killed");
        let log = std::fs::File::options().append(true).open(&self.log).expect("a file");
        self.agent = Command::new(env!("CARGO_BIN_EXE_roadstead-agent"))
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .env("ROADSTEAD_POD_NAME", "agent-0")
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the agent starts");
        self.session = self._hub.session().await.0;
        self.api.writes();
    }

    fn policy(&self, policy: &str, confirmed: &str) {
        self.api.put(POLICY, config_map(policy, confirmed));
    }

    /// Dispatches `steps` as `account`, with this build and this inventory, up to the end.
    async fn dispatch(
        &mut self,
        account: Option<(&str, &str)>,
        steps: Vec<StepKind>,
        build: &[Value],
        inventory: Vec<ObjectRef>,
    ) -> End {
        self.attempt += 1;
        let json = Value::from(build.to_vec()).to_string().into_bytes();
        let account = account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()).into());
        let mut spec = DispatchSpec {
            default_namespace: Some("apps".to_owned()),
            service_account: account,
            ..spec(Digest::of(&json), steps)
        };
        spec.groups[0].on_immutable = OnImmutable::Recreate;
        let key = DispatchKey {
            epoch: HubEpoch(1),
            applier: self.uid,
            generation: Generation(1),
            attempt: Attempt(self.attempt),
            digest: Some(spec.digest()),
        };
        let dispatch =
            Dispatch { key, spec, inventory, given: Vec::new(), data_keys: Vec::new(), trace: None };
        self.session.send(Say::Dispatch(dispatch.into())).await;
        loop {
            match self.session.next_but_progress().await {
                Said::BuildRequest(_) => self.session.send(Say::BuildChunk(chunk(&json))).await,
                Said::InventoryIntent(intent) => {
                    let ack = v1::InventoryAck { key: intent.key, owned_by_another: vec![] };
                    self.session.send(Say::InventoryAck(ack)).await;
                }
                Said::Finished(finished) => {
                    let failure = finished.failure.map(|failure| failure.message).unwrap_or_default();
                    let (inventory, writes) = (finished.inventory.len(), self.api.writes());
                    return End { failure, inventory, writes };
                }
                other => panic!("{other:?} where an end was expected"),
            }
        }
    }

    async fn apply(&mut self, object: Value) -> End {
        let steps = vec![StepKind::Apply { group: 0 }, StepKind::Prune];
        self.dispatch(Some(("apps", "deployer")), steps, &[object], vec![]).await
    }

    async fn delete(&mut self, inventory: Vec<ObjectRef>) -> End {
        self.dispatch(Some(("apps", "deployer")), vec![StepKind::Delete], &[], inventory).await
    }

    /// Tells the agent to run an image; gives its report.
    async fn upgrade(&mut self, image: &str, signatures: Vec<v1::ImageSignature>) -> v1::UpgradeReport {
        let order = v1::Upgrade { image: image.to_owned(), timeout_millis: 60_000, signatures };
        self.session.send(Say::Upgrade(order)).await;
        match self.session.next_but_progress().await {
            Said::UpgradeReport(report) => report,
            other => panic!("{other:?} where a report was expected"),
        }
    }

    async fn remove(&mut self) -> String {
        self.session.send(Say::Remove(v1::Remove {})).await;
        match self.session.next_but_progress().await {
            Said::RemovalReport(report) => report.error,
            other => panic!("{other:?} where a report was expected"),
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn chunk(json: &[u8]) -> v1::BuildChunk {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(json).expect("in memory");
    let data = encoder.finish().expect("in memory");
    v1::BuildChunk {
        digest: Digest::of(json).to_string(),
        total_bytes: data.len() as u64,
        offset: 0,
        data,
        last: true,
        error: String::new(),
    }
}

fn object(api_version: &str, kind: &str, namespace: Option<&str>, more: Value) -> Value {
    let mut object = more;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = "x".into();
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn reference(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn workload(spec: Value) -> Value {
    let template = Map::from_iter([("spec".to_owned(), spec)]);
    json!({"spec": {"selector": {}, "template": template}})
}

/// The `managedFields` of what an agent has applied.
fn ours() -> Value {
    json!([{"manager": "roadstead", "operation": "Apply"}])
}

#[tokio::test]
async fn a_taken_over_hub_cannot_step_outside_a_locked_policy() {
    let mut world = World::new(Some(LOCKED)).await;
    let fine =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}});
    let end = world.apply(fine.clone()).await;
    end.went_through();
    assert_eq!(
        end.writes,
        ["PATCH /api/v1/namespaces/apps/configmaps/x as system:serviceaccount:apps:deployer"]
    );

    // As whom: the agent itself, an account of its namespace, one that is not allowed.
    let steps = || vec![StepKind::Apply { group: 0 }];
    world
        .dispatch(None, steps(), std::slice::from_ref(&fine), vec![])
        .await
        .refused_by("serviceAccounts.required");
    for (namespace, name) in [(HOME, "roadstead-agent"), ("kube-system", "generic-garbage-collector")] {
        let account = Some((namespace, name));
        let end = world.dispatch(account, steps(), std::slice::from_ref(&fine), vec![]).await;
        end.refused_by("serviceAccounts.allowed");
    }

    // The policy itself, the agent's credentials, a workload beside the agent: by name, and by default namespace.
    for (api_version, kind, more) in [
        ("v1", "ConfigMap", json!({"data": {"policy.yaml": "preset: open"}})),
        ("v1", "Secret", json!({})),
        (
            "apps/v1",
            "Deployment",
            workload(json!({"serviceAccountName": "roadstead-agent", "containers": []})),
        ),
        ("v1", "ServiceAccount", json!({})),
    ] {
        let end = world.apply(object(api_version, kind, Some(HOME), more)).await;
        end.refused_by("manageAgentNamespace");
    }
    // They are as if a Kustomization had applied them, which it deletes again.
    world
        .api
        .put("/api/v1/namespaces/apps/serviceaccounts/deployer", json!({"metadata": {"name": "deployer"}}));
    for (path, victim) in [
        ("/api/v1/namespaces/roadstead-system".to_owned(), reference("Namespace", "", HOME)),
        (POLICY.to_owned(), reference("ConfigMap", HOME, "roadstead-agent-policy")),
    ] {
        let mut live = world.api.get(&path).expect("there");
        live["metadata"]["labels"] = json!({"fleet.roadstead.dev/owner": world.uid.to_string()});
        live["metadata"]["managedFields"] = ours();
        world.api.put(&path, live);
        world.delete(vec![victim]).await.refused_by("manageAgentNamespace");
    }

    // Detours: what grants rights, what the apiserver runs or asks, operators that act on the hub's behalf.
    for (api_version, kind, namespace) in [
        ("rbac.authorization.k8s.io/v1", "RoleBinding", Some("apps")),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", None),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", None),
        ("apiregistration.k8s.io/v1", "APIService", None),
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", Some("apps")),
    ] {
        world.apply(object(api_version, kind, namespace, json!({}))).await.refused_by("kinds");
    }
    world.apply(object("v1", "ConfigMap", Some("kube-system"), json!({}))).await.refused_by("namespaces");

    // Workloads that reach the node, and so the agent's files: whole, and as a part of what is there.
    for spec in [
        json!({"containers": [{"name": "a", "image": "a", "securityContext": {"privileged": true}}]}),
        json!({"volumes": [{"name": "a", "hostPath": {"path": "/var/lib/kubelet"}}], "containers": []}),
        json!({"hostNetwork": true}),
    ] {
        let end = world.apply(object("apps/v1", "DaemonSet", Some("apps"), workload(spec))).await;
        end.refused_by("privilegedWorkloads");
    }
    world.agent.kill().await.expect("killed");
}

#[tokio::test]
async fn an_account_that_may_reach_the_agents_namespace_is_used_neither_directly_nor_by_a_workload() {
    let mut world = World::new(Some(LOCKED)).await;
    let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    world.api.allow("apps:admin", all);
    let fine = object("v1", "ConfigMap", Some("apps"), json!({}));
    let steps = vec![StepKind::Apply { group: 0 }];
    let end = world.dispatch(Some(("apps", "admin")), steps, &[fine], vec![]).await;
    end.refused_by("serviceAccounts.checkRights");
    assert!(
        end.failure.contains("apps/admin has rights in the agent's namespace (* *.*)"),
        "{}",
        end.failure
    );

    let pod = json!({"serviceAccountName": "admin", "containers": [{"name": "a", "image": "a"}]});
    let job = json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}});
    let token = json!({"type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "admin"}}});
    for (api_version, kind, more) in [
        ("v1", "Pod", json!({"spec": pod})),
        ("apps/v1", "Deployment", workload(pod.clone())),
        ("batch/v1", "CronJob", job),
        ("v1", "Secret", token),
    ] {
        let end = world.apply(object(api_version, kind, Some("apps"), more)).await;
        end.refused_by("serviceAccounts.checkRights");
    }
    let pod = json!({"spec": {"containers": [{"name": "a", "image": "a"}]}});
    world.apply(object("v1", "Pod", Some("apps"), pod)).await.went_through();
}

#[tokio::test]
async fn deletions_are_counted_by_the_agent_also_across_its_restart() {
    let policy = format!("{LOCKED}deletions: {{perHour: 3}}\n");
    let mut world = World::new(Some(&policy)).await;
    let owner = world.uid.to_string();
    let maps: Vec<ObjectRef> =
        (0..5).map(|at| reference("ConfigMap", "apps", &format!("map-{at}"))).collect();
    let path = |name: &str| format!("/api/v1/namespaces/apps/configmaps/{name}");
    for map in &maps {
        let labels = json!({"fleet.roadstead.dev/owner": owner});
        let metadata = json!({"name": map.name, "labels": labels, "managedFields": ours()});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        world.api.put(&path(&map.name), object);
    }
    world
        .api
        .put("/api/v1/namespaces/apps/serviceaccounts/deployer", json!({"metadata": {"name": "deployer"}}));
    let end = world.delete(maps[..2].to_vec()).await;
    end.went_through();
    assert_eq!(end.writes.len(), 2, "{:?}", end.writes);

    world.restart().await;
    let end = world.delete(maps[2..].to_vec()).await;
    assert!(end.failure.contains("rule `deletions.perHour`"), "{}", end.failure);
    assert!(end.failure.contains("3 deletions within the last hour"), "{}", end.failure);
    assert_eq!((end.writes.len(), end.inventory), (1, 2), "{:?}", end.writes);
    let left: Vec<&ObjectRef> = maps.iter().filter(|map| world.api.get(&path(&map.name)).is_some()).collect();
    assert_eq!(left.len(), 2);

    // Confirmed in the cluster, by name.
    world.policy(&policy, &format!("delete core/ConfigMap apps/{}", left[0].name));
    world.delete(vec![left[0].clone()]).await.went_through();
    assert!(world.api.get(&path(&left[0].name)).is_none());
    assert!(world.api.get(&path(&left[1].name)).is_some());
}

#[tokio::test]
async fn what_may_go_at_once_is_the_clusters_word_whatever_the_hub_says_is_confirmed() {
    let policy = format!("{LOCKED}deletions: {{atOnce: {{maxDeletions: 2}}}}\n");
    let mut world = World::new(Some(&policy)).await;
    let owner = world.uid.to_string();
    let maps: Vec<ObjectRef> =
        (0..4).map(|at| reference("ConfigMap", "apps", &format!("map-{at}"))).collect();
    let path = |name: &str| format!("/api/v1/namespaces/apps/configmaps/{name}");
    for map in &maps {
        let labels = json!({"fleet.roadstead.dev/owner": owner});
        let metadata = json!({"name": map.name, "uid": map.name, "labels": labels, "managedFields": ours()});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        world.api.put(&path(&map.name), object);
    }
    world
        .api
        .put("/api/v1/namespaces/apps/serviceaccounts/deployer", json!({"metadata": {"name": "deployer"}}));
    // The hub leaves its guard out.
    let end = world.delete(maps.clone()).await;
    assert!(end.failure.contains("rule `deletions.atOnce`"), "{}", end.failure);
    assert_eq!((end.writes.len(), end.inventory), (0, 4), "{:?}", end.writes);
    let line = end.failure.split("add the line `").nth(1).and_then(|rest| rest.split('`').next());
    let line = line.expect("the refusal names the line").to_owned();
    world.policy(&policy, &line);
    let end = world.delete(maps[..3].to_vec()).await;
    assert!(end.failure.contains("rule `deletions.atOnce`"), "others were confirmed: {}", end.failure);
    world.delete(maps.clone()).await.went_through();
    assert!(maps.iter().all(|map| world.api.get(&path(&map.name)).is_none()));
}

#[tokio::test]
async fn what_is_confirmed_in_the_cluster_is_done_and_nothing_else_under_its_name() {
    let mut world = World::new(Some(LOCKED)).await;
    let role = |verb: &str| {
        object("rbac.authorization.k8s.io/v1", "Role", Some("apps"), json!({"rules": [{"verbs": [verb]}]}))
    };
    let end = world.apply(role("get")).await;
    end.refused_by("kinds");
    let line = end.failure.split("add the line `").nth(1).and_then(|rest| rest.split('`').next());
    let line = line.expect("the refusal names the line").to_owned();
    world.policy(LOCKED, &line);
    world.apply(role("get")).await.went_through();
    world.apply(role("*")).await.refused_by("kinds");
}

#[tokio::test]
async fn a_malformed_policy_refuses_everything_and_says_so() {
    let mut world = World::new(Some("preset: loked")).await;
    let fine = object("v1", "ConfigMap", Some("apps"), json!({}));
    for account in [None, Some(("apps", "deployer"))] {
        let steps = vec![StepKind::Apply { group: 0 }];
        let end = world.dispatch(account, steps, std::slice::from_ref(&fine), vec![]).await;
        assert!(end.failure.contains("is malformed, so everything is refused"), "{}", end.failure);
        assert_eq!(end.writes, Vec::<String>::new());
    }
    assert!(world.remove().await.contains("malformed"));
    let report = world.upgrade("registry.example/roadstead-agent:9", vec![]).await;
    assert_eq!(report.state(), v1::UpgradeState::Refused);
    assert!(report.message.contains("malformed"), "{}", report.message);
    assert!(world.said().contains("refuses everything"), "{}", world.said());
    // Mended, it works without a restart.
    world.policy("preset: open", "");
    world.apply(fine).await.went_through();
}

#[tokio::test]
async fn without_a_policy_the_hub_is_obeyed_but_for_the_agents_own_namespace() {
    let mut world = World::new(None).await;
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", None, json!({}));
    let end = world.dispatch(None, vec![StepKind::Apply { group: 0 }], &[role], vec![]).await;
    end.went_through();
    assert_eq!(end.writes.len(), 1);
    // The apiserver's audit log shows who it was.
    let agent = concat!("roadstead-agent/", env!("CARGO_PKG_VERSION"));
    assert_eq!(world.api.user_agents().into_iter().collect::<Vec<_>>(), [agent]);
    let targets = world.api.targets();
    assert!(targets.len() > 3 && targets.iter().all(|target| !target.ends_with('?')), "{targets:?}");
    let own = object("v1", "ConfigMap", Some(HOME), json!({}));
    world.apply(own.clone()).await.refused_by("manageAgentNamespace");
    world.policy("preset: open\nmanageAgentNamespace: true", "");
    world.apply(own).await.went_through();
}

/// What an image's signer has.
fn sign(key: &EcdsaKeyPair, digest: &str, version: &str) -> v1::ImageSignature {
    let payload = json!({
        "critical": {"identity": {"docker-reference": "registry.example/roadstead-agent"},
            "image": {"docker-manifest-digest": digest}, "type": "cosign container image signature"},
        "optional": {"version": version},
    });
    let payload = payload.to_string().into_bytes();
    let signature = key.sign(&SystemRandom::new(), &payload).expect("signed").as_ref().to_vec();
    v1::ImageSignature { payload, signature }
}

#[tokio::test]
async fn no_order_changes_the_agents_image_or_removes_it_against_the_policy() {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    let mut der = STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE").expect("base64");
    der.pop();
    der.extend_from_slice(key.public_key().as_ref());
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n    {}\n    -----END PUBLIC KEY-----", STANDARD.encode(der));
    let mut world = World::new(Some(&format!("{LOCKED}upgrades:\n  publicKey: |\n    {pem}\n"))).await;
    let hubs_own = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    let (new, old) = (format!("sha256:{}", "ab".repeat(32)), format!("sha256:{}", "cd".repeat(32)));
    let image = |repository: &str, digest: &str| format!("{repository}@{digest}");
    let own = "registry.example/roadstead-agent";
    for (image, signature, rule) in [
        (image("evil.example/agent", &new), sign(&key, &new, "9.0.0"), "upgrades.repository"),
        (format!("{own}:9.0.0"), sign(&key, &new, "9.0.0"), "upgrades.digest"),
        (image(own, &old), sign(&key, &new, "9.0.0"), "upgrades.publicKey"),
        (image(own, &new), sign(&hubs_own, &new, "9.0.0"), "upgrades.publicKey"),
        (image(&format!("{own}:9.0.0"), &old), sign(&key, &old, "0.0.9"), "upgrades.downgrade"),
    ] {
        let report = world.upgrade(&image, vec![signature]).await;
        assert_eq!(report.state(), v1::UpgradeState::Refused, "{image}: {}", report.message);
        assert!(report.message.contains(&format!("rule `{rule}`")), "{image}: {}", report.message);
    }
    let deployed = |world: &World| {
        let deployment = world.api.get(DEPLOYMENT).expect("a Deployment");
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(deployed(&world), IMAGE);
    let refused = world.remove().await;
    assert!(refused.contains("rule `removal`"), "{refused}");
    assert!(world.api.get("/api/v1/namespaces/roadstead-system").is_some());
    assert_eq!(world.api.writes(), Vec::<String>::new());

    let good = image(own, &new);
    let report = world.upgrade(&good, vec![sign(&hubs_own, &new, "9.0.0"), sign(&key, &new, "9.0.0")]).await;
    assert_eq!(report.state(), v1::UpgradeState::UnderWay, "{}", report.message);
    assert_eq!(deployed(&world), good);
}
