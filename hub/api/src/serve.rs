//! The API's listener, and that of webhooks: TLS, bounded connections, a clean end.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use roadstead_hub_core::Hub;
use roadstead_hub_core::clusters::pki::ServingIdentity;
use roadstead_hub_core::identity::ClientCertificate;
use roadstead_listener::{
    ClientAuthorities, Connection, Connections, Patient, TlsError, accept, server_config,
    server_config_asking,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::{ApiOptions, connection, hook_router, router};

/// A connection that is to end may take so long to say so.
const FAREWELL: Duration = Duration::from_secs(5);
/// What a client's headers may take in memory, over HTTP/1.1 and over HTTP/2.
const HEADERS: usize = 32 * 1024;
/// Streams of one connection at once: clients that know this ask for the next one when one of them ends. Each may hold an
/// answer, so there are fewer than kube-apiserver has for clients without credentials (100).
const STREAMS: u32 = 32;
/// What a client may send over HTTP/2 before anybody reads it, on one stream and on the whole connection: the least that the
/// protocol allows. What is read is accounted for from then on.
const WINDOW: u32 = 65_535;
/// What waits on a stream until the client takes it.
const SEND_BUFFER: usize = 16 * 1024;
/// A connection that nobody has made himself known on is closed after so long without a request.
const ANONYMOUS_IDLE: Duration = Duration::from_secs(15);
/// By preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What all connections share.
struct Server {
    acceptor: TlsAcceptor,
    /// Who vouches for clients' certificates.
    clients: Option<ClientAuthorities>,
    hub: Hub,
    http: auto::Builder<TokioExecutor>,
    router: Router,
    options: ApiOptions,
    connections: Arc<Connections>,
    stop: CancellationToken,
}

/// From where a request comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Serves the API on `listener` until `stop`; then ends watches, lets requests finish, and returns.
///
/// # Errors
/// Where the certificate is not usable.
pub async fn serve(
    hub: Hub,
    listener: TcpListener,
    identity: &ServingIdentity,
    options: ApiOptions,
    stop: CancellationToken,
) -> Result<(), TlsError> {
    let connections = connection::connections(&options, hub.budget());
    let router = router(hub.clone(), options.clone(), stop.clone());
    let known = hub.clone();
    serve_on("API", listener, identity, (router, connections, known), options, stop).await
}

/// Serves nothing but the paths at which Receivers are called, on a `listener` of their own, until `stop`.
///
/// # Errors
/// Where the certificate is not usable.
pub async fn serve_hooks(
    hub: Hub,
    listener: TcpListener,
    identity: &ServingIdentity,
    options: ApiOptions,
    stop: CancellationToken,
) -> Result<(), TlsError> {
    let connections = connection::callers(hub.budget());
    let router = hook_router(&hub, &options);
    let options = ApiOptions { client_ca: None, ..options };
    serve_on("hooks", listener, identity, (router, connections, hub), options, stop).await
}

async fn serve_on(
    name: &'static str,
    listener: TcpListener,
    identity: &ServingIdentity,
    (router, connections, hub): (Router, Arc<Connections>, Hub),
    options: ApiOptions,
    stop: CancellationToken,
) -> Result<(), TlsError> {
    let clients = options.client_ca.as_ref().map(|ca| ClientAuthorities::read(&ca.pem)).transpose()?;
    let (chain, key) = (&identity.chain_pem, &identity.key_pem);
    let tls = match &clients {
        None => server_config(chain, key, None, &PROTOCOLS)?,
        Some(clients) => server_config_asking(chain, key, clients, &PROTOCOLS)?,
    };
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let http = protocol(&options);
    let server =
        Arc::new(Server { acceptor, clients, hub, http, router, options, connections, stop: stop.clone() });
    let tasks = TaskTracker::new();
    loop {
        let accepted = async {
            let (stream, peer) = accept(&listener, name).await;
            (stream, peer, server.connections.admit(peer.ip()).await)
        };
        let (stream, peer, registered) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => break,
        };
        let server = Arc::clone(&server);
        tasks.spawn(async move {
            tokio::select! {
                () = registered.connection().ended() => {}
                () = server.serve(stream, Peer(peer.ip()), registered.connection()) => {}
            }
            drop(registered);
        });
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// How HTTP is spoken.
fn protocol(options: &ApiOptions) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(options.header_timeout).max_buf_size(HEADERS);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS as u32)
        .keep_alive_interval(Some(options.write_timeout))
        .keep_alive_timeout(options.write_timeout);
    http
}

impl Server {
    /// The certificate that a client has shown, where one of the authorities vouches for it. Any other is as none.
    fn certificate(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<Arc<ClientCertificate>> {
        let (clients, chain) = (self.clients.as_ref()?, chain?);
        let now = Duration::try_from(self.hub.now().as_duration()).unwrap_or_default();
        if !clients.vouch_for(chain, now) {
            tracing::debug!("a client has a certificate that no authority vouches for at this time");
            return None;
        }
        let masters = self.options.client_ca.as_ref().is_some_and(|ca| ca.masters);
        match ClientCertificate::read(chain.first()?, masters) {
            Ok(certificate) => Some(Arc::new(certificate)),
            Err(error) => {
                tracing::warn!(%error, "a client's certificate stands for nobody");
                None
            }
        }
    }

    async fn serve(&self, stream: TcpStream, peer: Peer, connection: &Connection) {
        let stream = Patient::new(stream, self.options.write_timeout);
        // What a client sends wrong up to here is not an event for us: port scanners do it all day.
        let handshake = tokio::time::timeout(self.options.header_timeout, self.acceptor.accept(stream));
        let Ok(Ok(stream)) = handshake.await else { return };
        let known = connection.clone();
        let certificate = self.certificate(stream.get_ref().1.peer_certificates());
        let service = self.router.clone().map_request(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(known.clone());
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(Arc::clone(certificate));
            }
            request.extensions_mut().insert(peer);
            request.map(Body::new)
        });
        let service = TowerToHyperService::new(service);
        let mut served = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = self.stop.cancelled() => {
                // Requests that are under way finish; no new ones are taken.
                served.as_mut().graceful_shutdown();
                served.await
            }
            () = connection.stalled_for(self.options.write_timeout) => {
                tracing::debug!("a client does not read its answer");
                return;
            }
            () = connection.idle_for(self.options.idle_timeout, ANONYMOUS_IDLE) => {
                served.as_mut().graceful_shutdown();
                match tokio::time::timeout(FAREWELL, served).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = &*error as &dyn std::error::Error, "a connection ended");
        }
    }
}
