//! The API's listener: TLS, bounded connections, a clean end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use roadstead_hub_core::Hub;
use roadstead_hub_core::pki::ServingIdentity;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::router;

/// A client that needs longer for its handshake is cut.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client that needs longer for its headers is cut.
const HEADERS: Duration = Duration::from_secs(10);
/// More connections than this wait.
const CONNECTIONS: usize = 10_000;
/// When accepting fails (too many open files, say), it is not tried again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Why the API is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The serving certificate or its key cannot be read.
    #[error("read the API's serving certificate")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The certificate and its key do not fit together.
    #[error("take the API's serving certificate")]
    Tls(#[source] rustls::Error),
}

/// Serves the API on `listener` until `stop`; then ends watches, lets requests finish, and returns.
///
/// # Errors
/// Where the certificate is not usable.
pub async fn serve(
    hub: Hub,
    listener: TcpListener,
    identity: &ServingIdentity,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let acceptor = TlsAcceptor::from(Arc::new(tls(identity)?));
    let service = TowerToHyperService::new(router(hub, stop.clone()));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(250).keep_alive_interval(Some(HEADERS));
    let server = Arc::new(server);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, slot)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (acceptor, server, service) = (acceptor.clone(), Arc::clone(&server), service.clone());
        let stop = stop.clone();
        connections.spawn(async move {
            // What a client sends wrong up to here is no event for us: port scanners do it all day.
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                return;
            };
            let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    // Requests that are under way finish; no new ones are taken.
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(error = &*error as &dyn std::error::Error, "a connection ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Latency is what counts here. Without it, things work too.
            let _ = stream.set_nodelay(true);
            Some((stream, slot))
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the API's listener accepted nothing");
            None
        }
    }
}

fn tls(identity: &ServingIdentity) -> Result<rustls::ServerConfig, ServeError> {
    let chain = CertificateDer::pem_slice_iter(identity.chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(ServeError::Pem)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(ServeError::Pem)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ServeError::Tls)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(ServeError::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
