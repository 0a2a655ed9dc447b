//! The hub's side of the link: a gRPC server that takes nobody without a certificate of the agents' CA.
//!
//! A session belongs to the cluster that is the certificate's subject, whatever its messages say. What is to be sent
//! lies in the database; a session takes it from there when it begins and whenever it is signalled, so a session, an
//! agent or a hub may go at any moment and the next session goes on.

mod convert;
mod numbers;
mod session;
mod switchboard;

use std::sync::Arc;
use std::time::Duration;

use roadstead_hub_core::pki::ServingIdentity;
use roadstead_hub_core::{Hub, HubError};
use roadstead_model::chain;
use roadstead_proto::limits::MAX_MESSAGE_BYTES;
use roadstead_proto::v1::link_server::{Link, LinkServer};
use roadstead_proto::v1::{AgentMessage, HubMessage};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use switchboard::Switchboard;

/// How the link behaves.
#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// Either side sends something at least this often; after three such spans of silence the link counts as cut.
    pub heartbeat: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(1) }
    }
}

/// Why the link's server ended.
#[derive(Debug, thiserror::Error)]
#[error("serve the agents' link")]
pub struct LinkError(#[from] tonic::transport::Error);

/// Serves agents on `listener` until `stop`; then ends their sessions, so that they go to another replica.
///
/// # Errors
/// Where the listener fails, or the certificates are not usable.
pub async fn serve(
    hub: Hub,
    listener: TcpListener,
    identity: &ServingIdentity,
    options: LinkOptions,
    stop: CancellationToken,
) -> Result<(), LinkError> {
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&identity.chain_pem, identity.key_pem.as_bytes()))
        .client_ca_root(Certificate::from_pem(hub.pki().agent_ca_pem()));
    let board = Arc::new(Switchboard::default());
    let looking = Arc::clone(&board).run(hub.clone(), stop.clone());
    let service = LinkServer::new(Service { hub, options, board, stop: stop.clone() })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let serving = Server::builder()
        .tls_config(tls)?
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        // One stream is all that an agent needs.
        .concurrency_limit_per_connection(4)
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled_owned());
    // Both end with `stop`.
    let ((), served) = tokio::join!(looking, serving);
    Ok(served?)
}

struct Service {
    hub: Hub,
    options: LinkOptions,
    board: Arc<Switchboard>,
    stop: CancellationToken,
}

#[tonic::async_trait]
impl Link for Service {
    type SessionStream = ReceiverStream<Result<HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let certificates = request.peer_certs().unwrap_or_default();
        let leaf = certificates
            .first()
            .ok_or_else(|| Status::unauthenticated("the link takes agents with a certificate only"))?;
        let identity =
            roadstead_hub_core::pki::read_agent_certificate(leaf).map_err(|error| status(&error))?;
        let opening = session::Opening {
            hub: self.hub.clone(),
            board: Arc::clone(&self.board),
            identity,
            incoming: request.into_inner(),
            options: self.options,
        };
        Ok(Response::new(session::start(opening, self.stop.clone())))
    }
}

/// The one place where a domain error becomes a gRPC status. What is the hub's own stays in its log.
fn status(error: &HubError) -> Status {
    let text = error.to_string();
    match error {
        HubError::Unauthenticated(_) => Status::unauthenticated(text),
        HubError::Forbidden(_) => Status::permission_denied(text),
        HubError::NotFound { .. } | HubError::Gone(_) => Status::not_found(text),
        HubError::AlreadyExists { .. } | HubError::Conflict { .. } | HubError::ApplyConflict { .. } => {
            Status::aborted(text)
        }
        HubError::Invalid { .. } | HubError::BadRequest(_) => Status::invalid_argument(text),
        error => {
            // An outage of the database has its own line in the log.
            if error.outage().is_none() {
                tracing::error!(error = chain(error), "an agent's session failed");
            }
            Status::unavailable("the hub cannot serve this session now; try again")
        }
    }
}
