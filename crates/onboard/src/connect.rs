//! The connection: to checked addresses only, with the kubeconfig's credentials and no other of this machine's.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Response, Uri};
use http_body_util::Limited;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use roadstead_kubeconfig::{Access, Allowed, Credentials, Refusal};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::OnboardError;

const CONNECT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes: what is asked for is small.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// A client that can reach the kubeconfig's server and nothing else.
pub(crate) fn client(access: &Access, allowed: &Allowed) -> Result<Client, OnboardError> {
    let config = config(access)?;
    let mut http = HttpConnector::new_with_resolver(Resolver(Arc::new(allowed.clone())));
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    let Some(proxy) = &access.proxy else { return over(&config, http) };
    if proxy.scheme() != "http" {
        return Err(OnboardError::Unusable("`proxy-url` is no http URL, and no others are taken".to_owned()));
    }
    over(&config, Tunnel::new(uri(proxy.as_str())?, http))
}

fn over<C>(config: &Config, connector: C) -> Result<Client, OnboardError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection
        + hyper::rt::Read
        + hyper::rt::Write
        + Send
        + Unpin
        + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let unusable = |error: kube::Error| OnboardError::Unusable(roadstead_model::chain(&error));
    let https = config.rustls_https_connector_with_connector(connector).map_err(unusable)?;
    let client = HttpClient::builder(TokioExecutor::new()).build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|answer: Response<_>| answer.map(|body| Limited::new(body, MAX_ANSWER)));
    Ok(Client::new(service, "default"))
}

fn config(access: &Access) -> Result<Config, OnboardError> {
    let mut config = Config::new(uri(access.server.as_str())?);
    config.accept_invalid_certs = access.skip_verification;
    config.tls_server_name.clone_from(&access.tls_server_name);
    if let Some(pem) = &access.authority {
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let authorities = authorities.map_err(|_| {
            OnboardError::Unusable("`certificate-authority-data` is no PEM of certificates".to_owned())
        })?;
        config.root_cert = Some(authorities.into_iter().map(|der| der.to_vec()).collect());
    }
    match &access.credentials {
        Credentials::Certificate { certificate, key } => {
            config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
            config.auth_info.client_key_data = Some(STANDARD.encode(key.expose()).into());
        }
        Credentials::Token(token) => config.auth_info.token = Some(token.expose().to_owned().into()),
    }
    Ok(config)
}

fn uri(url: &str) -> Result<Uri, OnboardError> {
    url.parse().map_err(|_| OnboardError::Unusable("its address is no URI".to_owned()))
}

/// Resolves names by the system, and gives out only what may be connected to.
#[derive(Clone)]
struct Resolver(Arc<Allowed>);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ResolveError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolveError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allowed = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(ResolveError::Lookup)?;
            let mut refused = None;
            let mut passed = Vec::new();
            for address in found {
                match allowed.check_address(address.ip()) {
                    Ok(()) => passed.push(address),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            match refused {
                Some(refusal) if passed.is_empty() => Err(ResolveError::Refused(refusal)),
                _ => Ok(passed.into_iter()),
            }
        })
    }
}

/// Why a name leads nowhere.
#[derive(Debug)]
enum ResolveError {
    Lookup(std::io::Error),
    Refused(Refusal),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(_) => f.write_str("look the server's name up"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lookup(error) => Some(error),
            Self::Refused(_) => None,
        }
    }
}

/// The refusal behind an error, if that is what it is.
pub(crate) fn refusal(error: &kube::Error) -> Option<Refusal> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(ResolveError::Refused(refusal)) = error.downcast_ref() {
            return Some(refusal.clone());
        }
        source = error.source();
    }
    None
}
