//! A hub for tests: real TLS on a real port, and nothing done but what the test says.

#![expect(dead_code, unreachable_pub, reason = "each test binary uses its own share of this")]

pub mod apiserver;
pub mod enrolment;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType, IsCa,
    KeyPair, KeyUsagePurpose,
};
use roadstead_agent::identity::{Identity, PrivateKey, check_certificate};
use roadstead_model::{
    ApplierRef, Capabilities, ClusterUid, Digest, DispatchSpec, Group, Purpose, Step, StepKind,
};
use roadstead_proto::v1::link_server::{Link, LinkServer};
use roadstead_proto::v1::{AgentMessage, Hello, HubMessage, Welcome, agent_message, hub_message};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// How long a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The span between heartbeats that the hub of tests asks for.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// The one TLS provider of the process, and its log, which a failed test shows.
pub fn set_up() {
    // Another test of this process may have been faster.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
}

/// A certificate authority.
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a CA"))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn server(&self) -> tonic::transport::Identity {
        let (certificate, key) = self.server_pem();
        tonic::transport::Identity::from_pem(certificate, key)
    }

    pub fn server_pem(&self) -> (String, String) {
        let params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names");
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("signed").pem(), key.serialize_pem())
    }

    /// A certificate for the request's key, with the cluster as its subject.
    pub fn sign(&self, csr: &str, cluster: ClusterUid) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(csr).expect("a request");
        request.params.distinguished_name.push(DnType::CommonName, cluster.to_string());
        request.signed_by(&self.0).expect("signed").pem()
    }
}

/// Both authorities of a hub.
pub struct Pki {
    pub servers: Ca,
    pub agents: Ca,
}

impl Pki {
    pub fn new() -> Self {
        set_up();
        Self { servers: Ca::new("servers"), agents: Ca::new("agents") }
    }

    /// What an agent of `cluster` has after enrolling.
    pub fn identity(&self, cluster: ClusterUid, link: SocketAddr) -> Identity {
        let key = PrivateKey::generate().expect("a key");
        let certificate = self.agents.sign(&key.csr().expect("a request"), cluster);
        let validity = check_certificate(&certificate, &key, cluster).expect("sound");
        Identity {
            key,
            certificate,
            ca: self.servers.pem(),
            link: link.to_string(),
            cluster_uid: cluster,
            cluster_name: "edge-1".to_owned(),
            token: Digest::of(b"token"),
            validity,
        }
    }
}

/// What the hub does with the next sessions.
#[derive(Debug, Clone)]
pub enum Policy {
    Take,
    Refuse(Status),
}

/// The hub's side of one session.
pub struct HubSession {
    pub from_agent: Streaming<AgentMessage>,
    pub to_agent: mpsc::Sender<Result<HubMessage, Status>>,
    seq: u64,
    pub heard: u64,
}

impl HubSession {
    /// Sends `body`, acknowledging everything heard so far but `unconfirmed` messages.
    pub async fn send_confirming(&mut self, body: Option<hub_message::Body>, ack: u64) {
        self.seq += 1;
        let message = HubMessage { seq: self.seq, ack, body };
        self.to_agent.send(Ok(message)).await.expect("the agent listens");
    }

    pub async fn send(&mut self, body: hub_message::Body) {
        self.send_confirming(Some(body), 0).await;
    }

    pub fn skip(&mut self) {
        self.seq += 1;
    }

    /// Resolves when the agent's next message is there, heartbeats included: it was welcomed.
    pub async fn hears(&mut self) {
        let message = timeout(PATIENCE, self.from_agent.message()).await.expect("in time");
        self.heard = message.expect("the stream is sound").expect("the agent talks").seq;
    }

    /// The next message but heartbeats.
    pub async fn next(&mut self) -> agent_message::Body {
        loop {
            let message = timeout(PATIENCE, self.from_agent.message()).await.expect("in time");
            let message = message.expect("the stream is sound").expect("the agent talks");
            assert_eq!(message.seq, self.heard + 1, "the agent left a gap");
            self.heard = message.seq;
            match message.body.expect("a body") {
                agent_message::Body::Heartbeat(_) => {}
                body => return body,
            }
        }
    }

    /// The next message but heartbeats and progress.
    pub async fn next_but_progress(&mut self) -> agent_message::Body {
        loop {
            match self.next().await {
                agent_message::Body::Progress(_) => {}
                body => return body,
            }
        }
    }

    /// Resolves when the agent has ended this session.
    pub async fn ended(&mut self) {
        let ended = async { while let Ok(Some(_)) = self.from_agent.message().await {} };
        timeout(PATIENCE, ended).await.expect("the agent ends the session");
    }
}

/// A hub.
pub struct Hub {
    pub address: SocketAddr,
    sessions: mpsc::Receiver<HubSession>,
    policy: Arc<Mutex<Policy>>,
    pub refusals: Arc<Mutex<usize>>,
}

struct Service {
    sessions: mpsc::Sender<HubSession>,
    policy: Arc<Mutex<Policy>>,
    refusals: Arc<Mutex<usize>>,
}

#[tonic::async_trait]
impl Link for Service {
    type SessionStream = ReceiverStream<Result<HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let policy = self.policy.lock().expect("no panic").clone();
        if let Policy::Refuse(status) = policy {
            *self.refusals.lock().expect("no panic") += 1;
            return Err(status);
        }
        let (to_agent, messages) = mpsc::channel(64);
        let session = HubSession { from_agent: request.into_inner(), to_agent, seq: 0, heard: 0 };
        self.sessions.send(session).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

impl Hub {
    pub async fn start(pki: &Pki) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (give, sessions) = mpsc::channel(16);
        let (policy, refusals) = (Arc::new(Mutex::new(Policy::Take)), Arc::default());
        let service =
            Service { sessions: give, policy: Arc::clone(&policy), refusals: Arc::clone(&refusals) };
        let tls = ServerTlsConfig::new()
            .identity(pki.servers.server())
            .client_ca_root(Certificate::from_pem(pki.agents.pem()));
        let server = Server::builder().tls_config(tls).expect("TLS").add_service(LinkServer::new(service));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { address, sessions, policy, refusals }
    }

    pub fn set(&self, policy: Policy) {
        *self.policy.lock().expect("no panic") = policy;
    }

    /// The next session with its hello, before any welcome.
    pub async fn greeted(&mut self) -> (HubSession, Hello) {
        let mut session = timeout(PATIENCE, self.sessions.recv()).await.expect("in time").expect("a session");
        match session.next().await {
            agent_message::Body::Hello(hello) => (session, hello),
            other => panic!("{other:?} where a hello was expected"),
        }
    }

    /// The next session, welcomed.
    pub async fn session(&mut self) -> (HubSession, Hello) {
        let (mut session, hello) = self.greeted().await;
        session.send(hub_message::Body::Welcome(welcome("edge-1"))).await;
        (session, hello)
    }

    /// Whether a session was opened and not taken yet.
    pub fn has_session(&mut self) -> bool {
        !self.sessions.is_empty()
    }
}

/// Of a Kustomization `team/web` whose only group is this build, with the agent's own rights.
pub fn spec(build: Digest, steps: Vec<StepKind>) -> DispatchSpec {
    DispatchSpec {
        applier: ApplierRef::kustomization("team", "web"),
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
        default_namespace: None,
        service_account: None,
        timeout: Duration::from_secs(30),
        groups: vec![Group::of(build)],
        steps: steps.into_iter().map(Step::from).collect(),
    }
}

pub fn welcome(cluster: &str) -> Welcome {
    Welcome {
        hub_version: "test".to_owned(),
        epoch: 1,
        cluster_name: cluster.to_owned(),
        session_id: uuid::Uuid::new_v4().to_string(),
        heartbeat_millis: u32::try_from(HEARTBEAT.as_millis()).expect("small"),
        capabilities: Capabilities::of_this_hub().names(),
        ..Welcome::default()
    }
}

/// What lies between agent and hub does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Open,
    /// Connections that are open hear nothing more and are not closed: as when a NAT forgot them.
    Stalled,
    /// Connections that are open are closed.
    Cut,
}

/// A wire that a test can cut.
pub struct Between {
    pub address: SocketAddr,
    wire: watch::Sender<Wire>,
}

impl Between {
    pub async fn start(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (wire, state) = watch::channel(Wire::Open);
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                tokio::spawn(carry(agent, hub, state.clone()));
            }
        });
        Self { address, wire }
    }

    /// What happens to the connections that are open now; new ones are carried.
    pub fn strike(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

async fn carry(mut agent: TcpStream, hub: SocketAddr, mut wire: watch::Receiver<Wire>) {
    let Ok(mut hub) = TcpStream::connect(hub).await else { return };
    wire.mark_unchanged();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut agent, &mut hub) => {}
        changed = wire.changed() => {
            let is_stalled = changed.is_ok() && *wire.borrow() == Wire::Stalled;
            if is_stalled {
                // Both sockets stay open, and nothing goes through, until the test is over.
                std::future::pending::<()>().await;
            }
        }
    }
}
