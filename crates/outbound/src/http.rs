//! The way out for HTTP clients: a connector for hyper, and a client over it.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::{Connected, Connection as HyperConnection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tower::Service;

use crate::connect::{ConnectError, Guard};
use crate::host::Authority;
use crate::identity::ClientIdentity;
use crate::policy::{Detail, Refusal};
use crate::proxy::Proxies;
use crate::trust::{self, Trust};
use crate::wire::Wire;

type BoxError = Box<dyn Error + Send + Sync>;
type Opening<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// The longest head of an answer, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// Opens connections for hyper's clients, each by the guard.
#[derive(Clone, Debug)]
pub struct Connector {
    guard: Guard,
    veil: Veil,
}

/// Whether what happens on a connection is to be kept from whoever chose the address: set while one to an address that is
/// not public is being opened, and lifted once a server has answered there in the protocol that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Veil(Arc<AtomicBool>);

impl Veil {
    /// Whether it is to be kept from them.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Draws or lifts it: for those who speak another protocol than HTTP on a connection of their own.
    pub fn set(&self, drawn: bool) {
        self.0.store(drawn, Ordering::Relaxed);
    }
}

impl Connector {
    /// By this guard.
    #[must_use]
    pub fn new(guard: Guard) -> Self {
        Self { guard, veil: Veil::default() }
    }

    /// What may be told of its connections.
    #[must_use]
    pub fn veil(&self) -> Veil {
        self.veil.clone()
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Opening<Stream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { guard, veil } = self.clone();
        Box::pin(async move {
            let to = Authority::of_uri(&uri).ok_or("the URL has no host or port to connect to")?;
            veil.set(false);
            let connection = guard.connect_telling(&to, |detail| veil.set(detail == Detail::Coarse)).await?;
            Ok(Stream { io: TokioIo::new(connection.stream), to_http_proxy: connection.to_http_proxy })
        })
    }
}

/// A connection, as hyper takes it.
#[derive(Debug)]
pub struct Stream {
    io: TokioIo<Wire>,
    to_http_proxy: bool,
}

impl HyperConnection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.to_http_proxy)
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Lifts the veil once TLS is up: a server that is trusted is the one that was meant.
#[derive(Clone)]
struct Trusted {
    inner: HttpsConnector<Connector>,
    veil: Veil,
}

impl Service<Uri> for Trusted {
    type Response = <HttpsConnector<Connector> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Opening<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let secure = uri.scheme_str() == Some("https");
        let (opening, veil) = (self.inner.call(uri), self.veil.clone());
        Box::pin(async move {
            let stream = opening.await?;
            if secure {
                veil.set(false);
            }
            Ok(stream)
        })
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The authorities that were given cannot be used.
    #[error("{0}")]
    Authority(String),
    /// The client's certificate or its key cannot be used.
    #[error("the client certificate: {0}")]
    Identity(String),
    /// This process is not set up for TLS.
    #[error("set TLS up: {0}")]
    Tls(String),
}

/// Sends requests, one server's authority trusted besides the system's. Follows no redirect by itself: that is for the
/// caller, with a [`crate::Trail`], who knows what its protocol allows.
#[derive(Clone)]
pub struct Client {
    inner: HyperClient<Trusted, Full<Bytes>>,
    veil: Veil,
    proxies: Option<Arc<Proxies>>,
}

impl Client {
    /// A client that opens its connections by this guard; `ca` is PEM of authorities to trust besides the system's, for a proxy that a
    /// user chose too ([`Guard::trusting`]).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(guard: Guard, ca: Option<&[u8]>) -> Result<Self, ClientError> {
        Self::as_someone(guard, ca, None)
    }

    /// As [`Client::new`]; shows servers that ask for one a certificate, and proxies none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn as_someone(
        guard: Guard,
        ca: Option<&[u8]>,
        identity: Option<&ClientIdentity>,
    ) -> Result<Self, ClientError> {
        Self::for_many(guard, ca, identity, 1)
    }

    /// As [`Client::new`], where no authorities are trusted but these, as PEM.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn trusting_only(guard: Guard, ca: &[u8]) -> Result<Self, ClientError> {
        Ok(Self::over(guard.trusting(Some(ca)), tls(Trust::Only(ca), None)?, 1))
    }

    /// As [`Client::as_someone`]; keeps so many connections to each server for the next requests.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn for_many(
        guard: Guard,
        ca: Option<&[u8]>,
        identity: Option<&ClientIdentity>,
        idle: usize,
    ) -> Result<Self, ClientError> {
        Ok(Self::over(guard.trusting(ca), tls(Trust::Besides(ca), identity)?, idle))
    }

    fn over(guard: Guard, tls: rustls::ClientConfig, idle: usize) -> Self {
        let proxies = guard.proxies();
        let connector = Connector::new(guard);
        let veil = connector.veil();
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(connector);
        let inner = HyperClient::builder(TokioExecutor::new())
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(Duration::from_secs(30))
            .http1_max_buf_size(MAX_HEAD)
            .http2_max_header_list_size(MAX_HEAD as u32)
            .build(Trusted { inner: https, veil: veil.clone() });
        Self { inner, veil, proxies }
    }

    /// Sends a request, and gives the head of its answer and the body as it comes. The caller bounds the time, and the
    /// bytes that it reads.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        if request.uri().scheme_str() == Some("http")
            && let Some(proxies) = &self.proxies
            && let Some(to) = Authority::of_uri(request.uri())
            && let Some(auth) = proxies.authorization(&to)
        {
            request.headers_mut().insert(http::header::PROXY_AUTHORIZATION, auth);
        }
        match self.inner.request(request).await {
            Ok(response) => {
                self.veil.set(false);
                Ok(response)
            }
            Err(error) => {
                let refusal = refusal(&error).cloned();
                Err(SendError { refusal, veiled: self.veil.is_drawn(), source: Box::new(error) })
            }
        }
    }

    /// What may be told of its connections.
    #[must_use]
    pub fn veil(&self) -> Veil {
        self.veil.clone()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("send the request")]
pub struct SendError {
    /// That the address is not allowed, where that is why.
    pub refusal: Option<Refusal>,
    /// Whether what happened is not for whoever chose the address: it would tell them what listens there.
    pub veiled: bool,
    /// What happened, for the operator.
    pub source: BoxError,
}

/// The refusal behind an error, if that is what it is.
#[must_use]
pub fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refusal> {
    let mut next: Option<&'a (dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return Some(refusal);
        }
        if let Some(ConnectError::Refused(refusal)) = error.downcast_ref::<ConnectError>() {
            return Some(refusal);
        }
        // An io::Error does not count what it wraps as its source.
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// The value of a header that holds credentials, marked so that it is not printed.
///
/// # Errors
/// Where it has characters that no header has.
pub fn secret_header(text: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) fn tls(
    trust: Trust<'_>,
    identity: Option<&ClientIdentity>,
) -> Result<rustls::ClientConfig, ClientError> {
    let provider = rustls::crypto::CryptoProvider::get_default()
        .ok_or_else(|| ClientError::Tls("no TLS provider is installed in this process".to_owned()))?;
    let verifier = trust::verifier(provider, trust)?;
    let versions = rustls::ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Tls(error.to_string()))?;
    let verified = versions.dangerous().with_custom_certificate_verifier(verifier);
    match identity {
        None => Ok(verified.with_no_client_auth()),
        Some(identity) => {
            let (chain, key) = identity.parse()?;
            let config = verified.with_client_auth_cert(chain, key);
            config.map_err(|error| ClientError::Identity(error.to_string()))
        }
    }
}
