//! A simulated agent: real certificates, real TLS, the real protocol, and no cluster. What it is told to apply it says to
//! have applied, but for Kustomizations named [`BROKEN`]: those never get healthy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use reqwest::Method;
use roadstead_proto::v1::{
    Action, AgentMessage, BuildRequest, DispatchKey, Failure, Finished, Heartbeat, Hello, HubMessage,
    InventoryIntent, ObjectRef, ObjectResult, Stage, agent_message, hub_message, link_client::LinkClient,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::api::Api;

/// As the real agent's.
const HEARTBEAT: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);
/// How the names of Kustomizations begin that fail. What they say tells when it was sent, in milliseconds since 1970.
pub(crate) const BROKEN: &str = "broken";

/// What all agents of a fleet have done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Those that are connected now.
    pub(crate) connected: AtomicUsize,
    /// Dispatches that were carried out.
    pub(crate) finished: AtomicUsize,
}

/// Counted as connected, until it is dropped.
struct Connected<'a>(&'a Counts);

impl<'a> Connected<'a> {
    fn new(counts: &'a Counts) -> Self {
        counts.connected.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A simulated agent that is on board.
pub(crate) struct SimulatedAgent {
    endpoint: Endpoint,
    kube_system: String,
}

impl SimulatedAgent {
    /// Creates a Cluster and enrols as its agent.
    pub(crate) async fn enrol(hub: &Api, name: &str) -> Result<Self> {
        let clusters = "/apis/fleet.roadstead.dev/v1alpha1/clusters";
        let cluster = json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
            "spec": { "access": [{ "namespace": "*", "agentRights": true }] } });
        hub.ask(Method::POST, clusters, "application/json", cluster.to_string()).await?;
        let join = hub.post(&format!("{clusters}/{name}/jointoken"), &json!({})).await?;
        Self::join(hub, &join, &uuid::Uuid::new_v4().to_string()).await
    }

    /// Enrols with a join Secret, as the agent of the cluster whose `kube-system` has this uid.
    pub(crate) async fn join(hub: &Api, join: &Value, kube_system: &str) -> Result<Self> {
        let text = |key: &str| -> Result<String> {
            let value = join["data"][key].as_str().context("a join Secret")?;
            Ok(String::from_utf8(base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value)?)?)
        };
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(&key)?.pem()?;
        let request = json!({ "token": text("token")?, "csr": csr, "kubeSystemUid": kube_system });
        let enrolled = hub.post("/fleet/v1/enrol", &request).await?;
        let certificate = enrolled["certificate"].as_str().context("a certificate")?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(text("ca.crt")?))
            .identity(Identity::from_pem(certificate, key.serialize_pem()));
        let endpoint = Endpoint::from_shared(format!("https://{}", text("link")?))?
            .tls_config(tls)?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true);
        Ok(Self { endpoint, kube_system: kube_system.to_owned() })
    }

    /// Keeps sessions, one after the other, for ever.
    pub(crate) async fn keep(self, counts: Arc<Counts>) {
        loop {
            // A hub that is away is what some figures are about.
            let _ = self.session(&counts).await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn session(&self, counts: &Counts) -> Result<()> {
        let channel = tokio::time::timeout(CONNECT, self.endpoint.connect()).await??;
        let (sender, messages) = mpsc::channel(16);
        let mut outgoing = Outgoing { sender, sent: 0, received: 0 };
        let mut under_way = BTreeMap::new();
        let hello = Hello {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            kube_system_uid: self.kube_system.clone(),
            kubernetes_version: "v1.35.0".to_owned(),
            ..Hello::default()
        };
        outgoing.say(agent_message::Body::Hello(hello)).await?;
        let mut client = LinkClient::new(channel);
        let mut incoming = client.session(ReceiverStream::new(messages)).await?.into_inner();
        let first = incoming.message().await?.context("a welcome")?;
        let Some(hub_message::Body::Welcome(_)) = &first.body else { bail!("no welcome") };
        outgoing.received = first.seq;
        let _connected = Connected::new(counts);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                _ = heartbeat.tick() => outgoing.say(agent_message::Body::Heartbeat(Heartbeat {})).await?,
                message = incoming.message() => match message {
                    Ok(Some(message)) => hear(message, &mut outgoing, &mut under_way, counts).await?,
                    ended => return Ok(ended.map(drop)?),
                },
            }
        }
    }
}

/// Answers the hub. `under_way` has the name of each Kustomization that was dispatched, by its uid.
async fn hear(
    message: HubMessage,
    outgoing: &mut Outgoing,
    under_way: &mut BTreeMap<String, String>,
    counts: &Counts,
) -> Result<()> {
    outgoing.received = message.seq;
    match message.body {
        Some(hub_message::Body::Dispatch(dispatch)) => {
            let key = dispatch.key.context("a dispatch has a key")?;
            // As an agent that does not have the build yet.
            let digest = key.build_digest.clone();
            outgoing.say(agent_message::Body::BuildRequest(BuildRequest { digest })).await?;
            let objects = vec![object(&dispatch.name)];
            under_way.insert(key.kustomization_uid.clone(), dispatch.name);
            let intent = InventoryIntent { key: Some(key), objects };
            outgoing.say(agent_message::Body::InventoryIntent(intent)).await
        }
        Some(hub_message::Body::InventoryAck(ack)) => {
            let key = ack.key.context("an acknowledgement has a key")?;
            let name = under_way.remove(&key.kustomization_uid).context("it was dispatched")?;
            outgoing.say(agent_message::Body::Finished(finished(key, &name)?)).await?;
            counts.finished.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What each Kustomization's build is taken to hold.
fn object(name: &str) -> ObjectRef {
    ObjectRef {
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "bench".to_owned(),
        name: name.to_owned(),
        ..ObjectRef::default()
    }
}

fn finished(key: DispatchKey, name: &str) -> Result<Finished> {
    let failure = if name.starts_with(BROKEN) {
        let sent = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let message = format!("timed out waiting for: ConfigMap/bench/{name}; sent at {sent}");
        Some(Failure { stage: Stage::Wait.into(), message, ..Failure::default() })
    } else {
        None
    };
    let object = object(name);
    let result = ObjectResult { object: Some(object.clone()), action: Action::Configured.into() };
    Ok(Finished {
        key: Some(key),
        failure,
        change_set: vec![result],
        inventory: vec![object],
        ..Finished::default()
    })
}

struct Outgoing {
    sender: mpsc::Sender<AgentMessage>,
    sent: u64,
    received: u64,
}

impl Outgoing {
    async fn say(&mut self, body: agent_message::Body) -> Result<()> {
        self.sent += 1;
        let message = AgentMessage { seq: self.sent, ack: self.received, body: Some(body) };
        self.sender.send(message).await.context("the session has ended")
    }
}
