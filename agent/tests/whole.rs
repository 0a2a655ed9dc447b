//! The agent's own process against a real apiserver, with a hub that does what the test says.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and fails")]

mod support;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use roadstead_model::{ApplierUid, Attempt, Digest, Dispatch, DispatchKey, Generation, HubEpoch, StepKind};
use roadstead_proto::v1::{self, agent_message::Body as Said, hub_message::Body as Say};
use support::enrolment::Enrolment;
use support::{Hub, HubSession, PATIENCE, Pki, spec};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

const TOKEN: &str = "a-word-that-no-log-may-show";

/// A hub, its enrolment, and a namespace of its own in a real cluster.
struct World {
    hub: Hub,
    enrolment: Enrolment,
    client: kube::Client,
    kubeconfig: PathBuf,
    namespace: String,
    /// Where the agent applies: its own namespace it does not touch.
    place: String,
    folder: tempfile::TempDir,
    ca: String,
}

impl World {
    async fn new() -> Self {
        let kubeconfig = std::env::var_os("ROADSTEAD_TEST_KUBECONFIG_1").expect(
            "ROADSTEAD_TEST_KUBECONFIG_1 names no cluster: run these tests through `cargo xtask test`",
        );
        let pki = Arc::new(Pki::new());
        let hub = Hub::start(&pki).await;
        let enrolment = Enrolment::start(pki.clone(), TOKEN, hub.address).await;
        let read = Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .expect("a cluster");
        let client = kube::Client::try_from(config).expect("a client");
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (namespace, place) = (format!("agent-{id}"), format!("place-{id}"));
        let metadata = ObjectMeta { name: Some(place.clone()), ..ObjectMeta::default() };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let made = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &made).await.expect("a namespace");
        Self {
            hub,
            enrolment,
            client,
            kubeconfig: kubeconfig.into(),
            namespace,
            place,
            folder: tempfile::tempdir().expect("a folder"),
            ca: pki.servers.pem(),
        }
    }

    fn join(&self, token: &str) -> PathBuf {
        let path = self.folder.path().join(format!("join-{}.json", token.len()));
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "fleet.roadstead.dev/join",
            "metadata": {"name": "roadstead-join", "namespace": self.namespace},
            "stringData": {
                "hub": format!("https://{}", self.enrolment.address), "link": self.hub.address.to_string(),
                "ca.crt": self.ca, "token": token, "cluster": "edge-1",
            },
        });
        std::fs::write(&path, secret.to_string()).expect("written");
        path
    }

    /// Starts the agent's process; what it says goes to `name`.
    fn start(&self, name: &str, join: Option<&str>) -> Process {
        let log = self.folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_roadstead-agent"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--namespace").arg(&self.namespace);
        if let Some(token) = join {
            command.arg("--join").arg(self.join(token));
        }
        let file = std::fs::File::create(&log).expect("a file");
        let child =
            command.stdin(Stdio::null()).stderr(file).kill_on_drop(true).spawn().expect("the agent starts");
        Process { child, log }
    }

    async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in [&self.namespace, &self.place] {
            namespaces.delete(name, &DeleteParams::background()).await.expect("the namespace goes");
        }
    }

    async fn holder(&self) -> String {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let lease = leases.get("roadstead-agent").await.expect("a Lease");
        lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }
}

struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    async fn says(&self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(what) {
            assert!(Instant::now() < deadline, "the agent never said `{what}`, but:\n{}", self.said());
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }

    async fn terminate(&mut self) -> i32 {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill runs");
        assert!(sent.success());
        self.exit_code().await
    }

    async fn exit_code(&mut self) -> i32 {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("the agent ends").expect("waited for");
        status.code().unwrap_or_else(|| panic!("ended by a signal; it said:\n{}", self.said()))
    }
}

struct Work {
    json: Vec<u8>,
    uid: ApplierUid,
}

impl Work {
    fn new(namespace: &str, value: &str) -> Self {
        let object = serde_json::json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": namespace},
            "data": {"key": value},
        }]);
        Self { json: object.to_string().into_bytes(), uid: ApplierUid::random() }
    }

    fn dispatch(&self) -> v1::Dispatch {
        let steps = vec![
            StepKind::Apply { group: 0 },
            StepKind::Prune,
            StepKind::Wait { objects: vec![], groups: vec![0] },
        ];
        let spec = spec(Digest::of(&self.json), steps);
        let key = DispatchKey {
            epoch: HubEpoch(1),
            applier: self.uid,
            generation: Generation(1),
            attempt: Attempt(1),
            digest: Some(spec.digest()),
        };
        Dispatch { key, spec, inventory: vec![], given: vec![], data_keys: vec![], trace: None }.into()
    }

    fn chunk(&self) -> v1::BuildChunk {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.json).expect("in memory");
        let data = encoder.finish().expect("in memory");
        v1::BuildChunk {
            digest: Digest::of(&self.json).to_string(),
            total_bytes: data.len() as u64,
            offset: 0,
            data,
            last: true,
            error: String::new(),
        }
    }

    /// Dispatches it and gives the build, up to the agent's intent.
    async fn to_the_intent(&self, session: &mut HubSession) -> v1::InventoryIntent {
        session.send(Say::Dispatch(self.dispatch())).await;
        loop {
            match session.next_but_progress().await {
                Said::BuildRequest(_) => session.send(Say::BuildChunk(self.chunk())).await,
                Said::InventoryIntent(intent) => return intent,
                other => panic!("{other:?} where an intent was expected"),
            }
        }
    }
}

#[tokio::test]
async fn enrols_applies_and_after_a_kill_picks_up_where_it_was() {
    let mut world = World::new().await;
    let mut first = world.start("first", Some(TOKEN));
    let (mut session, hello) = world.hub.session().await;
    let request = world.enrolment.requests.lock().expect("no panic")[0].clone();
    assert_eq!(request["kubeSystemUid"], hello.kube_system_uid.as_str());
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let kept =
        secrets.get("roadstead-agent-identity").await.expect("the identity is kept").data.expect("data");
    assert_eq!(kept["cluster-uid"].0, world.enrolment.cluster.to_string().into_bytes());

    let work = Work::new(&world.place, "one");
    let intent = work.to_the_intent(&mut session).await;
    assert_eq!(intent.objects.len(), 1);
    first.kill().await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.place);
    assert!(maps.get_opt("settings").await.expect("asked").is_none(), "written before the hub knew");

    let began = Instant::now();
    let mut second = world.start("second", None);
    let (mut session, hello) = world.hub.session().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "a new session only after {took:?}:\n{}", second.said());
    assert!(hello.running.is_empty());
    let intent = work.to_the_intent(&mut session).await;
    session.send(Say::InventoryAck(v1::InventoryAck { key: intent.key, owned_by_another: vec![] })).await;
    let mut stages = Vec::new();
    let finished = loop {
        match session.next().await {
            Said::Progress(progress) => stages.push(progress.stage()),
            Said::Finished(finished) => break finished,
            other => panic!("{other:?} where an end was expected"),
        }
    };
    assert_eq!(finished.failure, None, "{}", second.said());
    assert!(stages.contains(&v1::Stage::Wait), "{stages:?}");
    assert_eq!(finished.change_set[0].action(), v1::Action::Created);
    let map = maps.get("settings").await.expect("it is there");
    assert_eq!(map.data.expect("data")["key"], "one");

    assert_eq!(second.terminate().await, 0, "{}", second.said());
    assert_eq!(world.holder().await, "", "the Lease was not released");
    for said in [first.said(), second.said()] {
        assert!(!said.contains(TOKEN) && !said.contains("PRIVATE"), "a secret in the log:\n{said}");
    }
    assert_eq!(world.enrolment.requests.lock().expect("no panic").len(), 1, "it enrolled twice");
    world.end().await;
}

#[tokio::test]
async fn a_token_that_the_hub_refuses_ends_the_process_with_its_reason() {
    let mut world = World::new().await;
    let mut agent = world.start("refused", Some("wrong"));
    assert_eq!(agent.exit_code().await, 3, "{}", agent.said());
    let said = agent.said();
    assert!(said.contains("refused to enrol this agent as cluster `edge-1` (401)"), "{said}");
    assert!(said.contains("the token is not known, used or expired"), "{said}");
    assert!(!world.hub.has_session());
    world.end().await;
}

#[tokio::test]
async fn the_newest_process_works_and_the_one_before_it_stands_by_until_that_ends() {
    let mut world = World::new().await;
    let mut first = world.start("first", Some(TOKEN));
    let (first_session, _) = world.hub.session().await;
    let mut second = world.start("second", None);
    let (mut second_session, _) = world.hub.session().await;
    // The hub keeps the newest session.
    drop(first_session);
    first.says("another agent took over").await;
    first.says("standing by").await;
    assert!(!world.hub.has_session(), "the first agent came back at once");

    assert_eq!(second.terminate().await, 0, "{}", second.said());
    second_session.ended().await;
    let (_session, _) = world.hub.session().await;
    assert_eq!(first.terminate().await, 0, "{}", first.said());
    world.end().await;
}
