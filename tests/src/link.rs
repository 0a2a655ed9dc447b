//! An agent's key, and sessions under it that say what a test wants: also what the real agent never says.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use roadstead_proto::v1::{
    AgentMessage, Hello, HubMessage, agent_message, hub_message, link_client::LinkClient,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

const CONNECT: Duration = Duration::from_secs(10);

/// A cluster's key and certificate, and no cluster.
#[derive(Debug, Clone)]
pub struct EnrolledAgent {
    endpoint: Endpoint,
    kube_system: String,
}

impl EnrolledAgent {
    /// Enrols with a join Secret at the hub `server`, which `http` trusts, as the agent of the cluster whose `kube-system`
    /// has this uid.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn join(http: &reqwest::Client, server: &str, join: &Value, kube_system: &str) -> Result<Self> {
        let text = |key: &str| -> Result<String> {
            let value = join["data"][key].as_str().with_context(|| format!("a join Secret has '{key}'"))?;
            Ok(String::from_utf8(STANDARD.decode(value)?)?)
        };
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(&key)?.pem()?;
        let request = json!({ "token": text("token")?, "csr": csr, "kubeSystemUid": kube_system });
        let request = http.post(format!("{server}/fleet/v1/enrol")).json(&request);
        let answer = request.send().await.context("enrol")?;
        let status = answer.status();
        let enrolled: Value = answer.json().await.context("read the answer to an enrolment")?;
        ensure!(status.is_success(), "enrol: {status}: {enrolled}");
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

    /// A session on a connection of its own, which the hub has welcomed.
    ///
    /// # Errors
    /// When there is none in time, or the hub refuses it.
    pub async fn session(&self) -> Result<AgentSession> {
        let channel = tokio::time::timeout(CONNECT, self.endpoint.connect()).await??;
        let (to_hub, messages) = mpsc::channel(16);
        let hello = Hello {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            kube_system_uid: self.kube_system.clone(),
            kubernetes_version: "v1.35.0".to_owned(),
            capabilities: vec!["groups".to_owned()],
            ..Hello::default()
        };
        let hello = AgentMessage { seq: 1, ack: 0, body: Some(agent_message::Body::Hello(hello)) };
        to_hub.send(hello).await.context("the session has ended")?;
        let mut client = LinkClient::new(channel);
        let from_hub = client.session(ReceiverStream::new(messages)).await?.into_inner();
        let mut session = AgentSession { to_hub, from_hub, sent: 1, received: 0 };
        match session.hear().await? {
            Some(hub_message::Body::Welcome(_)) => Ok(session),
            other => bail!("{other:?} where a welcome was expected"),
        }
    }
}

/// A session with the hub.
#[derive(Debug)]
pub struct AgentSession {
    to_hub: mpsc::Sender<AgentMessage>,
    from_hub: Streaming<HubMessage>,
    sent: u64,
    received: u64,
}

impl AgentSession {
    /// Sends a message.
    ///
    /// # Errors
    /// When the session has ended.
    pub async fn say(&mut self, body: agent_message::Body) -> Result<()> {
        self.sent += 1;
        let message = AgentMessage { seq: self.sent, ack: self.received, body: Some(body) };
        self.to_hub.send(message).await.context("the session has ended")
    }

    /// The hub's next message; none of a kind that this program does not know. Nothing is lost where it is not waited for.
    ///
    /// # Errors
    /// How the session ended.
    pub async fn hear(&mut self) -> Result<Option<hub_message::Body>> {
        let message = self.from_hub.message().await?.context("the session has ended")?;
        self.received = message.seq;
        Ok(message.body)
    }
}
