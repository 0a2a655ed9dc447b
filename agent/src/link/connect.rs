//! Opening a session: TLS with both sides' certificates, Hello, Welcome.

use std::error::Error as StdError;
use std::time::Duration;

use roadstead_model::chain;
use roadstead_proto::limits::{MAX_MESSAGE_BYTES, bounded};
use roadstead_proto::v1::link_client::LinkClient;
use roadstead_proto::v1::{AgentMessage, Hello, HubMessage, Welcome, agent_message, hub_message};
use rustls::AlertDescription;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status, Streaming};

use super::End;
use super::frame::Counts;
use crate::enrol::{UNTIMELY, with_the_time};
use crate::identity::Identity;
use crate::proxy::Proxy;

/// How long the TCP and TLS handshakes may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the hub may take to welcome.
const WELCOME: Duration = Duration::from_secs(10);

/// Messages that wait for the transport. Few: what waits longer is gathered in the outbox.
const BUFFERED: usize = 16;

/// A session that the hub welcomed.
pub(super) struct Opened {
    pub(super) to_hub: mpsc::Sender<AgentMessage>,
    pub(super) from_hub: Streaming<HubMessage>,
    pub(super) counts: Counts,
}

/// Connects, says hello and waits for the welcome.
pub(super) async fn open(identity: &Identity, hello: Hello) -> Result<(Opened, Welcome), End> {
    let channel = dial(identity).await?;
    let (to_hub, messages) = mpsc::channel(BUFFERED);
    let mut counts = Counts::default();
    let (seq, ack) = counts.stamp();
    let body = Some(agent_message::Body::Hello(hello));
    let unsent = |_| End::Closed("before the session began".to_owned());
    to_hub.try_send(AgentMessage { seq, ack, body }).map_err(unsent)?;
    let mut client = LinkClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let greet = async {
        let mut from_hub = client
            .session(ReceiverStream::new(messages))
            .await
            .map_err(|status| ended(&status))?
            .into_inner();
        let first = from_hub.message().await.map_err(|status| ended(&status))?;
        let first = first.ok_or_else(|| End::Closed("without sending a Welcome".to_owned()))?;
        counts.receive(first.seq, first.ack).map_err(|error| End::Protocol(error.to_string()))?;
        match first.body {
            Some(hub_message::Body::Welcome(welcome)) => Ok((from_hub, welcome)),
            Some(hub_message::Body::Refused(refused)) => Err(End::Refused(bounded(&refused.message))),
            _ => Err(End::Protocol("the first message is not a welcome".to_owned())),
        }
    };
    let greeted = tokio::time::timeout(WELCOME, greet).await;
    let (from_hub, welcome) = greeted.map_err(|_| End::Silent(WELCOME))??;
    // Names decide whose objects are meant: a hub that takes this agent for another cluster's gets nothing.
    if welcome.cluster_name != identity.cluster_name {
        let why = format!("it calls this agent's cluster `{}`", bounded(&welcome.cluster_name));
        return Err(End::Protocol(format!(
            "{why}, but the certificate is for cluster `{}`",
            identity.cluster_name
        )));
    }
    Ok((Opened { to_hub, from_hub, counts }, welcome))
}

async fn dial(identity: &Identity) -> Result<Channel, End> {
    let unreachable = |error: &(dyn StdError + 'static)| End::Unreachable {
        hub: identity.link.clone(),
        why: advised(chain(error)),
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&identity.ca))
        .identity(tonic::transport::Identity::from_pem(&identity.certificate, identity.key.expose()));
    let endpoint = Endpoint::from_shared(format!("https://{}", identity.link))
        .and_then(|endpoint| endpoint.tls_config(tls))
        .map_err(|error| unreachable(&error))?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    let proxy = Proxy::to(endpoint.uri()).map_err(|error| unreachable(&error))?;
    let connecting = async {
        match proxy {
            None => endpoint.connect().await,
            Some(proxy) => endpoint.connect_with_connector(proxy.tunnel(CONNECT)).await,
        }
    };
    // `connect_timeout` bounds the TCP handshake only.
    match tokio::time::timeout(CONNECT, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) if is_refusal(&error) => Err(End::Refused(chain(&error))),
        Ok(Err(error)) => Err(unreachable(&error)),
        Err(_) => Err(End::Unreachable {
            hub: identity.link.clone(),
            why: format!("no connection within {CONNECT:?}"),
        }),
    }
}

/// `why`, with what to do about it where the hub's own certificate is what is wrong.
fn advised(why: String) -> String {
    let is_clock = why.contains(UNTIMELY);
    let why = with_the_time(why);
    if is_clock || !why.contains("invalid peer certificate") {
        return why;
    }
    format!(
        "{why}; the server at that address is not the hub that this agent joined. If the hub was replaced, apply a new \
         join manifest from it"
    )
}

/// What a gRPC status means for the session.
pub(super) fn ended(status: &Status) -> End {
    let cause = status.source().map(|cause| format!(": {}", chain(cause))).unwrap_or_default();
    let why = bounded(&format!("{} ({:?}){cause}", status.message(), status.code()));
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => End::Refused(bounded(status.message())),
        Code::OutOfRange | Code::ResourceExhausted => End::Protocol(why),
        _ if is_refusal(status) => {
            End::Refused(format!("it rejected the certificate in the TLS handshake{cause}"))
        }
        _ => End::Closed(why),
    }
}

/// The alerts by which TLS says that a certificate is not taken.
const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::BadCertificate,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRequired,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
    AlertDescription::DecryptError,
];

/// Whether the hub's TLS did not take our certificate, which we hear as an alert some time after the handshake. The
/// layers between keep no more of rustls's error than its text, so that is what is compared.
fn is_refusal(error: &(dyn StdError + 'static)) -> bool {
    let refusals = REFUSALS.map(|alert| rustls::Error::AlertReceived(alert).to_string());
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if refusals.iter().any(|refusal| text.ends_with(refusal)) {
            return true;
        }
        next = error.source();
    }
    false
}
