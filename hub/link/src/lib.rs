//! The hub's side of the link: a gRPC server that takes nobody without a certificate of the agents' CA.
//!
//! A session belongs to the cluster that is the certificate's subject, whatever its messages say. What is to be sent
//! lies in the database; a session takes it from there when it begins and whenever it is signalled, so a session, an
//! agent or a hub may go at any moment and the next session goes on.

mod builds;
mod convert;
mod listener;
mod meter;
mod numbers;
mod session;
mod switchboard;

use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::{MemoryBudget, Pool, PoolName};
use roadstead_hub_core::clusters::pki::ServingIdentity;
use roadstead_hub_core::readiness::LINK;
use roadstead_hub_core::{Hub, HubError};
use roadstead_listener::{Pace, Paces};
use roadstead_model::{ClusterUid, chain};
use roadstead_proto::limits::MAX_MESSAGE_BYTES;
use roadstead_proto::v1::link_server::{Link, LinkServer};
use roadstead_proto::v1::{AgentMessage, HubMessage};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tower::util::MapRequestLayer;

use listener::Peer;
use meter::{Meter, Receipts};
use switchboard::Switchboard;

/// An agent that comes back at once every time is told so, after it did for a minute: each session is written to the database and
/// to the log.
const SESSIONS: Pace = Pace { at_once: 30, then: Duration::from_secs(2) };
/// Lines of warning about what an agent says.
const WARNINGS: Pace = Pace { at_once: 10, then: Duration::from_secs(30) };

/// How the link behaves.
#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// Either side sends something at least this often; after three such spans of silence the link counts as cut.
    pub heartbeat: Duration,
    /// Connections of agents at once.
    pub connections: usize,
    /// Connections at once that have not shown a certificate yet; beyond these, the oldest is closed.
    pub anonymous: usize,
    /// So long may the TLS handshake take.
    pub handshake: Duration,
    /// A message that an agent has begun is there within this time, from when there is memory for it.
    pub whole: Duration,
    /// An agent that takes nothing of a build for so long is cut: the memory is needed for others.
    pub transfer: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(1),
            connections: 4_000,
            anonymous: 128,
            handshake: Duration::from_secs(10),
            whole: Duration::from_secs(30),
            transfer: Duration::from_secs(30),
        }
    }
}

/// How many agents there is memory for, each with a connection and a session.
#[must_use]
pub fn sessions_within(budget: &MemoryBudget) -> usize {
    let each = meter::CONNECTION + meter::SESSION;
    usize::try_from(budget.pool(PoolName::Sessions).size() / each).unwrap_or(usize::MAX)
}

/// Why the link's server ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The certificates are not usable.
    #[error("set up the TLS of the agents' link")]
    Tls(#[from] roadstead_listener::TlsError),
    /// The transport failed.
    #[error("serve the agents' link")]
    Transport(#[from] tonic::transport::Error),
}

/// Connections that wait for the transport to take them.
const READY: usize = 16;
/// Streams of one connection: a session, and the one that takes its place.
const STREAMS: u32 = 2;
/// What may be under way from an agent and not be read yet, of a stream and of a connection, in bytes.
const WINDOW: u32 = 128 * 1024;
/// Bytes of a request's headers.
const HEADERS: u32 = 16 * 1024;
/// Messages that are handled at once, of all agents: they leave connections to the database for others.
const TURNS: usize = 8;

/// Serves agents on `listener` until `stop`; then ends their sessions, so that they go to another replica.
///
/// # Errors
/// Where the transport fails, or the certificates are not usable.
pub async fn serve(
    hub: Hub,
    listener: TcpListener,
    identity: &ServingIdentity,
    options: LinkOptions,
    stop: CancellationToken,
) -> Result<(), LinkError> {
    let acceptor = listener::acceptor(&hub, identity)?;
    let board = Arc::new(Switchboard::default());
    let looking = Arc::clone(&board).run(hub.clone(), stop.clone());
    let (ready, incoming) = mpsc::channel(READY);
    let connections = listener::connections(&options, hub.budget());
    let accepting = listener::run(listener, acceptor, options, connections, ready, stop.clone());
    let sessions = hub.budget().pool(PoolName::Sessions).clone();
    let meter = Meter::new(hub.budget(), options.whole);
    let turns = Arc::new(Semaphore::new(TURNS));
    let running = hub.readiness.runs(LINK, "listener");
    let ending = stop.clone();
    let service = Service {
        hub,
        options,
        board,
        turns,
        sessions,
        begun: Paces::new(SESSIONS),
        warnings: Arc::new(Paces::new(WARNINGS)),
        stop: stop.clone(),
    };
    let service = LinkServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let serving = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_max_header_list_size(HEADERS)
        .layer(MapRequestLayer::new(move |request| metered(&meter, request)))
        .add_service(service)
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), stop.cancelled_owned());
    // All end with `stop`.
    let ((), (), served) = tokio::join!(looking, accepting, serving);
    if ending.is_cancelled() {
        running.stopped();
    }
    Ok(served?)
}

/// What comes without a peer's name is not metered, and gets no session for that.
fn metered(meter: &Arc<Meter>, request: http::Request<Body>) -> http::Request<Body> {
    match request.extensions().get::<Peer>().map(|peer| peer.identity.cluster) {
        Some(cluster) => meter.metered(request, cluster),
        None => request,
    }
}

struct Service {
    hub: Hub,
    options: LinkOptions,
    board: Arc<Switchboard>,
    turns: Arc<Semaphore>,
    sessions: Pool,
    /// How often a cluster's agent begins a session.
    begun: Paces<ClusterUid>,
    warnings: Arc<Paces<ClusterUid>>,
    stop: CancellationToken,
}

#[tonic::async_trait]
impl Link for Service {
    type SessionStream = ReceiverStream<Result<HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let Peer { identity, connection } =
            peer.ok_or_else(|| Status::unauthenticated("the link accepts only agents with a certificate"))?;
        let receipts = request.extensions().get::<Receipts>().cloned();
        let receipts = receipts.ok_or_else(|| Status::internal("the session is not metered"))?;
        if self.begun.next(identity.cluster).is_none() {
            return Err(Status::unavailable(
                "this cluster's agent starts sessions too often; try again later",
            ));
        }
        let reserved = self.sessions.try_reserve(meter::SESSION);
        let reserved = reserved.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let opening = session::Opening {
            hub: self.hub.clone(),
            board: Arc::clone(&self.board),
            identity,
            _under_way: connection.request(),
            _reserved: reserved,
            receipts,
            turns: Arc::clone(&self.turns),
            warnings: Arc::clone(&self.warnings),
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
