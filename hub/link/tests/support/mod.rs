//! A hub's link on a real port over a fresh database, and agents made by hand, which hold a cluster's key and say what the
//! test wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use prost::Message as _;
use prost::bytes::Bytes;
use rcgen::{CertificateParams, KeyPair};
use roadstead_api::KindId;
use roadstead_hub_core::clusters::Enrolment;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::WriteOptions;
use roadstead_hub_core::{Address, Clock, Hub, HubOptions, SystemClock};
use roadstead_hub_link::LinkOptions;
use roadstead_hub_store::{AtRest, AttemptInputs, BuiltGroup, CachedBuild, Key, Sealer, Store};
use roadstead_model::{
    ApplierRef, ApplierUid, AttemptKind, Capabilities, ChangeSet, ClusterUid, Digest, DispatchKey,
    DispatchSpec, Generation, Group, KubeSystemUid, Purpose, StepKind,
};
use roadstead_proto::v1::link_client::LinkClient;
use roadstead_proto::v1::{AgentMessage, Heartbeat, Hello, HubMessage, agent_message, hub_message};
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Status, Streaming};

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A hub without tasks: nothing is planned but what the test makes.
pub(crate) struct Site {
    pub(crate) hub: Hub,
    pub(crate) store: Store,
    pub(crate) link: SocketAddr,
    who: Identity,
    _database: TestDatabase,
    _stop: DropGuard,
}

/// A clock that is off by so much.
struct Shifted(Duration);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp::now() - self.0
    }
}

/// What an agent has once it is enrolled.
pub(crate) struct Agent {
    pub(crate) cluster: ClusterUid,
    pub(crate) name: String,
    kube_system: KubeSystemUid,
    key: KeyPair,
    certificate: String,
}

/// A stream to the hub.
pub(crate) struct Session {
    to_hub: mpsc::Sender<AgentMessage>,
    from_hub: Streaming<HubMessage>,
    sent: u64,
    received: u64,
    pub(crate) acknowledged: u64,
}

/// Heartbeats so far apart that no test has to send any.
pub(crate) fn options() -> LinkOptions {
    LinkOptions { heartbeat: Duration::from_secs(30), ..LinkOptions::default() }
}

impl Site {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(options()).await
    }

    pub(crate) async fn with(link: LinkOptions) -> Result<Self> {
        // Another test of this process may have been faster.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 10).await?;
        let hub = Hub::open(store.clone(), Arc::new(SystemClock), HubOptions::default()).await?;
        hub.objects.bootstrap().await?;
        let identity = hub.pki().serving_identity(&["127.0.0.1".to_owned()], hub.now())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let (served, stopped) = (hub.clone(), stop.clone());
        tokio::spawn(
            async move { roadstead_hub_link::serve(served, listener, &identity, link, stopped).await },
        );
        let who = hub.identity.authenticate(&hub.identity.create_admin_token("for a test").await?.0).await?;
        Ok(Self { hub, store, link: address, who, _database: database, _stop: stop.drop_guard() })
    }

    async fn create(&self, kind: KindId, object: Value) -> Result<Value> {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let address = Address {
            kind,
            version: kind.get().storage_version(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        };
        let options = WriteOptions { manager: "test".to_owned(), ..WriteOptions::default() };
        Ok(self.hub.objects.create(&self.who, &address, object, options).await?.object)
    }

    pub(crate) async fn cluster(&self, name: &str) -> Result<Value> {
        let version = KindId::Cluster.get().storage_version();
        let address =
            Address { kind: KindId::Cluster, version, namespace: String::new(), name: name.to_owned() };
        Ok(self.hub.objects.get(&self.who, &address).await?)
    }

    /// A Cluster whose agent has joined.
    pub(crate) async fn joined(&self, name: &str) -> Result<Agent> {
        let object = json!({
            "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name } });
        self.create(KindId::Cluster, object).await?;
        enrol(&self.hub, name, KubeSystemUid::random()).await
    }

    /// As which another agent joins.
    pub(crate) async fn joined_anew(&self, agent: &Agent) -> Result<Agent> {
        enrol(&self.hub, &agent.name, agent.kube_system).await
    }

    /// A Cluster whose agent has a certificate that expires after `life`.
    pub(crate) async fn joined_for(&self, name: &str, life: Duration) -> Result<Agent> {
        let object = json!({
            "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name } });
        self.create(KindId::Cluster, object).await?;
        // Certificates live for a day; one that a hub of a day ago gave has that much less to live.
        let clock = Arc::new(Shifted(Duration::from_secs(24 * 3600) - life));
        let before = Hub::open(self.store.clone(), clock, HubOptions::default()).await?;
        enrol(&before, name, KubeSystemUid::random()).await
    }

    /// A dispatch that is open for `cluster`, of a Kustomization of this name, with these objects of kind ConfigMap.
    pub(crate) async fn dispatch(
        &self,
        cluster: ClusterUid,
        name: &str,
        maps: &[&str],
    ) -> Result<DispatchKey> {
        self.dispatch_of(cluster, name, maps, &build_of(name), AtRest::Plain).await
    }

    /// As [`Site::dispatch`], with one more group, of the same objects.
    pub(crate) async fn dispatch_two_groups(&self, cluster: ClusterUid, name: &str) -> Result<DispatchKey> {
        let made = self.dispatch(cluster, name, &["one"]).await?;
        let newest = self.store.newest_reconciliation(made.applier).await?.context("an attempt")?;
        let build = newest.inputs.build.context("a build")?;
        let mut spec = spec_of(name, build);
        spec.groups.push(Group { label: "second".to_owned(), ..Group::of(build) });
        spec.steps.push(StepKind::Apply { group: 1 }.into());
        let now = self.hub.now();
        let mut tx = self.store.begin().await?;
        let inputs = AttemptInputs { started: now, ..newest.inputs };
        let deadline = now + Duration::from_secs(600);
        let attempt = tx.open_reconciliation(&inputs, &spec, deadline, &ChangeSet::new()).await?;
        tx.commit().await?;
        Ok(DispatchKey { attempt, digest: Some(spec.digest()), ..made })
    }

    /// As [`Site::dispatch`], with this build.
    pub(crate) async fn dispatch_of(
        &self,
        cluster: ClusterUid,
        name: &str,
        maps: &[&str],
        build: &[u8],
        at_rest: AtRest,
    ) -> Result<DispatchKey> {
        let object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "none" },
                      "wait": name.starts_with("waits") } });
        let made = self.create(KindId::Kustomization, object).await?;
        let uid: ApplierUid = made["metadata"]["uid"].as_str().context("a uid")?.parse()?;
        let digest = Digest::of(build);
        self.store.put_blob(digest, build, at_rest, self.hub.now()).await?;
        let labels: Value =
            maps.iter().map(|map| json!({ "g": "", "k": "ConfigMap", "ns": "", "n": map })).collect();
        let now = self.hub.now();
        let groups =
            vec![BuiltGroup { label: String::new(), objects: digest, sealed: false, wrapped_keys: None }];
        let built = CachedBuild { groups, children: None };
        self.store
            .remember_build(digest, &built, &[labels.to_string().as_bytes()], maps.len(), None, now)
            .await?;
        let inputs = AttemptInputs {
            applier: uid,
            cluster: Some(cluster),
            generation: Generation(1),
            revision: None,
            artifact: None,
            build: Some(digest),
            request: None,
            kind: AttemptKind::Apply,
            trigger: None,
            rendered_by: Default::default(),
            started: now,
        };
        let spec = spec_of(name, digest);
        let deadline = now + Duration::from_secs(600);
        let mut tx = self.store.begin().await?;
        let attempt = tx.open_reconciliation(&inputs, &spec, deadline, &ChangeSet::new()).await?;
        tx.commit().await?;
        let epoch = self.store.epoch().await?;
        let digest = Some(spec.digest());
        Ok(DispatchKey { epoch, applier: uid, generation: Generation(1), attempt, digest })
    }

    pub(crate) async fn channel(&self, agent: &Agent) -> Result<Channel> {
        let identity = tonic::transport::Identity::from_pem(&agent.certificate, agent.key.serialize_pem());
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.hub.pki().server_ca_pem()))
            .identity(identity);
        let endpoint = Endpoint::from_shared(format!("https://{}", self.link))?.tls_config(tls)?;
        Ok(tokio::time::timeout(PATIENCE, endpoint.connect()).await.context("connect in time")??)
    }

    /// A session that the hub has welcomed.
    pub(crate) async fn session(&self, agent: &Agent) -> Result<Session> {
        Session::open(self.channel(agent).await?, agent).await
    }
}

async fn enrol(hub: &Hub, name: &str, kube_system: KubeSystemUid) -> Result<Agent> {
    let invitation = hub.enrolments.create_join_token(&Identity::hub(), name, None).await?;
    let key = KeyPair::generate()?;
    let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
    let uid = kube_system.to_string();
    let request = Enrolment {
        token: &invitation.token,
        csr_pem: &csr,
        kube_system_uid: &uid,
        origin: Default::default(),
    };
    let enrolled = hub.enrolments.enrol(&request).await?;
    Ok(Agent {
        cluster: enrolled.cluster,
        name: name.to_owned(),
        kube_system,
        key,
        certificate: enrolled.certificate_pem,
    })
}

/// A session whose bytes the test writes itself.
pub(crate) struct Raw {
    to_hub: mpsc::Sender<Result<http_body::Frame<Bytes>, Status>>,
    /// Resolves once the hub has answered the request's head, or has ended it.
    pub(crate) answer: tokio::task::JoinHandle<Result<()>>,
}

impl Raw {
    pub(crate) fn open(mut channel: Channel) -> Result<Self> {
        let (to_hub, frames) = mpsc::channel(64);
        let body = tonic::body::Body::new(http_body_util::StreamBody::new(ReceiverStream::new(frames)));
        let request = tonic::codegen::http::Request::post("/roadstead.link.v1.Link/Session")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body)?;
        let answer = tokio::spawn(async move {
            std::future::poll_fn(|context| tower::Service::poll_ready(&mut channel, context)).await?;
            let answer = tower::Service::call(&mut channel, request).await?;
            let mut body = answer.into_body();
            while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
                frame?;
            }
            Ok(())
        });
        Ok(Self { to_hub, answer })
    }

    /// Sends what a message of `length` bytes begins with, and nothing of the message.
    pub(crate) async fn announce(&self, length: u32) -> Result<()> {
        let mut header = vec![0];
        header.extend(length.to_be_bytes());
        self.to_hub.send(Ok(http_body::Frame::data(header.into()))).await.context("the stream is there")
    }

    pub(crate) async fn say(&self, message: &AgentMessage) -> Result<()> {
        self.announce(u32::try_from(message.encoded_len())?).await?;
        let frame = http_body::Frame::data(message.encode_to_vec().into());
        self.to_hub.send(Ok(frame)).await.context("the stream is there")
    }
}

/// The build that [`Site::dispatch`] dispatches.
pub(crate) fn build_of(name: &str) -> Vec<u8> {
    format!("build of {name}: {}", "x".repeat(700_000)).into_bytes()
}

/// What is dispatched of a Kustomization with this build.
pub(crate) fn spec_of(name: &str, build: Digest) -> DispatchSpec {
    DispatchSpec {
        applier: ApplierRef::kustomization("default", name),
        purpose: Purpose::Reconcile,
        full: false,
        drift: roadstead_model::DriftMode::Correct,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline: roadstead_model::Offline::default(),
        health: Vec::new(),
        guard: None,
        service_account: None,
        timeout: Duration::from_secs(600),
        groups: vec![Group::of(build)],
        steps: vec![StepKind::Apply { group: 0 }.into()],
        default_namespace: None,
    }
}

/// The first message of an agent of this version.
pub(crate) fn hello(agent: &Agent) -> AgentMessage {
    let hello = Hello {
        agent_version: "0.0.0-test".to_owned(),
        kube_system_uid: agent.kube_system.to_string(),
        kubernetes_version: "v1.35.0".to_owned(),
        capabilities: Capabilities::of_this_agent().names(),
        ..Hello::default()
    };
    AgentMessage { seq: 1, ack: 0, body: Some(agent_message::Body::Hello(hello)) }
}

impl Session {
    pub(crate) async fn open(channel: Channel, agent: &Agent) -> Result<Self> {
        Self::begin(channel, hello(agent)).await
    }

    /// A session that begins with this.
    pub(crate) async fn begin(channel: Channel, hello: AgentMessage) -> Result<Self> {
        let (to_hub, messages) = mpsc::channel(64);
        to_hub.try_send(hello)?;
        let mut client = LinkClient::new(channel);
        let opened = tokio::time::timeout(PATIENCE, client.session(ReceiverStream::new(messages))).await;
        let from_hub = opened.context("a stream in time")??.into_inner();
        let mut session = Self { to_hub, from_hub, sent: 1, received: 0, acknowledged: 0 };
        match session.next().await?? {
            hub_message::Body::Welcome(_) => Ok(session),
            other => bail!("{other:?} where a welcome was expected"),
        }
    }

    /// Sends a message, and gives its number.
    pub(crate) async fn send(&mut self, body: agent_message::Body) -> Result<u64> {
        self.sent += 1;
        let message = AgentMessage { seq: self.sent, ack: self.received, body: Some(body) };
        self.to_hub.send(message).await.context("the stream is there")?;
        Ok(self.sent)
    }

    async fn message(&mut self) -> Result<Result<HubMessage, Status>> {
        let message = tokio::time::timeout(PATIENCE, self.from_hub.message()).await;
        Ok(match message.context("a message in time")? {
            Ok(Some(message)) => {
                (self.received, self.acknowledged) = (message.seq, message.ack);
                Ok(message)
            }
            Ok(None) => Err(Status::ok("the stream ended")),
            Err(status) => Err(status),
        })
    }

    /// The next message that is not a heartbeat, or how the session ended.
    pub(crate) async fn next(&mut self) -> Result<Result<hub_message::Body, Status>> {
        loop {
            match self.message().await? {
                Ok(HubMessage { body: Some(hub_message::Body::Heartbeat(_)), .. }) => {}
                Ok(message) => return Ok(Ok(message.body.context("a body")?)),
                Err(status) => return Ok(Err(status)),
            }
        }
    }

    /// The next message of the kind that `of` takes; others are passed over.
    pub(crate) async fn expect<T>(&mut self, of: impl Fn(hub_message::Body) -> Option<T>) -> Result<T> {
        loop {
            let body = self.next().await?.map_err(|status| anyhow::anyhow!("the session ended: {status}"))?;
            if let Some(found) = of(body) {
                return Ok(found);
            }
        }
    }

    /// Waits until the hub has handled all that was sent, which has to be more than heartbeats.
    pub(crate) async fn handled(&mut self) -> Result<()> {
        let sent = self.sent;
        while self.acknowledged < sent {
            if let Err(status) = self.message().await? {
                bail!("the session ended: {status}");
            }
        }
        Ok(())
    }

    /// How the session ends.
    pub(crate) async fn ended(&mut self) -> Result<Status> {
        loop {
            if let Err(status) = self.next().await? {
                return Ok(status);
            }
        }
    }

    pub(crate) async fn heartbeat(&mut self) -> Result<()> {
        self.send(agent_message::Body::Heartbeat(Heartbeat {})).await?;
        Ok(())
    }
}
