//! Connections of agents, from the socket to the transport: TLS handshakes side by side and within a deadline, a bounded
//! number of connections, few of one cluster. What comes out of here has shown a certificate of the agents' CA.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use roadstead_budget::{MemoryBudget, PoolName};
use roadstead_hub_core::clusters::pki::{AgentIdentity, read_agent_certificate};
use roadstead_listener::{Bounds, Connection, Connections, Cost, Costs, Full, Patient, Registered, accept};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::{LinkOptions, meter};

/// Connections of one cluster: an agent, the one that takes its place, and a spare for a link that was cut unnoticed.
const PER_CLUSTER: usize = 3;
/// A connection on which there is no session for so long is closed.
const IDLE: Duration = Duration::from_secs(15);
/// A write to an agent may stand still for so long.
const WRITE: Duration = Duration::from_secs(30);

/// What a connection takes on which nobody has shown a certificate: its TLS state and buffers. An estimate.
const ANONYMOUS: u64 = 24 * 1024;
/// So long an agent has for its handshake before its connection may have to go for another: a few round trips over a long way.
const GRACE: Duration = Duration::from_millis(500);

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// What its certificate says.
    pub(crate) identity: AgentIdentity,
    /// The connection.
    pub(crate) connection: Connection,
}

/// An agent's connection.
pub(crate) struct AgentStream {
    stream: TlsStream<Patient<TcpStream>>,
    peer: Peer,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Its place among the connections.
    _registered: Registered,
}

/// The books of agents' connections.
pub(crate) fn connections(options: &LinkOptions, budget: &MemoryBudget) -> Arc<Connections> {
    let bounds = Bounds {
        known: options.connections,
        anonymous: options.anonymous,
        per_party: PER_CLUSTER,
        full: Full::EndOldest,
        grace: GRACE,
    };
    let cost = |name, bytes| Cost { pool: budget.pool(name).clone(), bytes };
    let costs = Costs {
        anonymous: cost(PoolName::Handshakes, ANONYMOUS),
        known: cost(PoolName::Sessions, meter::CONNECTION),
    };
    Connections::new(bounds, costs)
}

/// Takes connections until `stop`, and passes those on that have shown a certificate.
pub(crate) async fn run(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    options: LinkOptions,
    connections: Arc<Connections>,
    ready: mpsc::Sender<io::Result<AgentStream>>,
    stop: CancellationToken,
) {
    loop {
        let accepted = async {
            let (stream, peer) = accept(&listener, "link").await;
            (stream, connections.admit(peer.ip()).await)
        };
        let (stream, registered) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => return,
        };
        let (acceptor, ready, stop) = (acceptor.clone(), ready.clone(), stop.clone());
        tokio::spawn(async move {
            let connection = registered.connection().clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection.ended() => {}
                () = pass_on(stream, registered, acceptor, options.handshake, ready) => {}
            }
        });
    }
}

async fn pass_on(
    stream: TcpStream,
    registered: Registered,
    acceptor: TlsAcceptor,
    deadline: Duration,
    ready: mpsc::Sender<io::Result<AgentStream>>,
) {
    // What is wrong up to here is not an event for us: port scanners do it all day.
    let handshake = tokio::time::timeout(deadline, acceptor.accept(Patient::new(stream, WRITE)));
    let Ok(Ok(stream)) = handshake.await else { return };
    let connection = registered.connection().clone();
    let Some(leaf) = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()) else { return };
    let Ok(identity) = read_agent_certificate(leaf) else { return };
    if let Err(refused) = connection.known(identity.cluster.0.as_u128()).await {
        tracing::warn!(cluster = %identity.cluster, why = %refused, "an agent was rejected");
        return;
    }
    let watched = connection.clone();
    tokio::spawn(async move {
        // Whichever way the connection ends, it is told so.
        tokio::select! {
            () = watched.ended() => {}
            () = watched.idle_for(IDLE, IDLE) => watched.end(),
        }
    });
    let ended = Box::pin(connection.end_token().cancelled_owned());
    let peer = Peer { identity, connection };
    // Where nobody takes it, the listener is closing.
    let _ = ready.send(Ok(AgentStream { stream, peer, ended, _registered: registered })).await;
}

/// TLS by which the hub and agents know each other.
pub(crate) fn acceptor(
    hub: &roadstead_hub_core::Hub,
    identity: &roadstead_hub_core::clusters::pki::ServingIdentity,
) -> Result<TlsAcceptor, roadstead_listener::TlsError> {
    let agents = Some(hub.pki().agent_ca_pem());
    let config = roadstead_listener::server_config(&identity.chain_pem, &identity.key_pem, agents, &[b"h2"])?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl AgentStream {
    /// Fails once the connection is to end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.ended.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for AgentStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
