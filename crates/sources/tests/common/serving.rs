//! What the servers of these tests have in common: HTTP, over TLS where they are to be.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use roadstead_test_gitserver::{Authority, install_crypto};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// An answer.
pub(crate) type Reply = Response<Full<Bytes>>;

/// Whom a server on this machine is trusted by, and what it shows; nothing without TLS.
pub(crate) fn authority(tls: bool) -> (Option<Authority>, Option<Arc<rustls::ServerConfig>>) {
    install_crypto();
    let authority = tls.then(|| Authority::new().unwrap());
    let config =
        authority.as_ref().map(|authority| authority.server_config(&["127.0.0.1".to_owned()]).unwrap());
    (authority, config)
}

/// Answers whoever connects, until the task is ended. `connected` is called for each connection.
pub(crate) fn listen<A, F>(
    listener: TcpListener,
    config: Option<Arc<rustls::ServerConfig>>,
    connected: impl Fn() + Send + 'static,
    answer: A,
) -> JoinHandle<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Reply, Infallible>> + Send + 'static,
{
    let acceptor = config.map(TlsAcceptor::from);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            connected();
            let (answer, acceptor) = (answer.clone(), acceptor.clone());
            tokio::spawn(async move {
                let service = service_fn(answer);
                let server = hyper::server::conn::http1::Builder::new();
                // Who is not trusted, or breaks off, is of no interest here.
                let _ = match acceptor {
                    None => server.serve_connection(TokioIo::new(stream), service).await,
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                        Err(_) => return,
                    },
                };
            });
        }
    })
}
