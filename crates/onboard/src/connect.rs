//! The connection: to checked addresses only, with the kubeconfig's credentials and no other of this machine's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Response, Uri};
use http_body_util::Limited;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use roadstead_kubeconfig::{Access, Credentials};
use roadstead_outbound::{Connector, Guard, ProxyServer, Refusal, Veil};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use crate::OnboardError;

/// The largest answer, in bytes: what is asked for is small.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// A client that can reach the kubeconfig's server and nothing else, and what may be told of its connections.
pub(crate) fn client(access: &Access, guard: &Guard) -> Result<(Client, Veil), OnboardError> {
    let config = config(access)?;
    let guard = match &access.proxy {
        None => guard.clone(),
        Some(proxy) => {
            let proxy = ProxyServer::of_url(proxy).ok_or_else(|| {
                OnboardError::Unusable(
                    "`proxy-url` is neither an http nor an https URL; others are not supported".to_owned(),
                )
            })?;
            guard.clone().through(proxy).trusting(access.authority.as_ref().map(String::as_bytes))
        }
    };
    let connector = Connector::new(guard);
    let veil = connector.veil();
    let unusable = |error: kube::Error| OnboardError::Unusable(roadstead_model::chain(&error));
    let https = config.rustls_https_connector_with_connector(connector).map_err(unusable)?;
    let client = HttpClient::builder(TokioExecutor::new()).build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|answer: Response<_>| answer.map(|body| Limited::new(body, MAX_ANSWER)));
    Ok((Client::new(service, "default"), veil))
}

fn config(access: &Access) -> Result<Config, OnboardError> {
    let mut config = Config::new(uri(access.server.as_str())?);
    config.accept_invalid_certs = access.skip_verification;
    config.tls_server_name.clone_from(&access.tls_server_name);
    if let Some(pem) = &access.authority {
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let authorities = authorities.map_err(|_| {
            OnboardError::Unusable(
                "`certificate-authority-data` is not a PEM bundle of certificates".to_owned(),
            )
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
    url.parse().map_err(|_| OnboardError::Unusable("its address is not a URI".to_owned()))
}

/// The refusal behind an error, if that is what it is.
pub(crate) fn refusal(error: &kube::Error) -> Option<Refusal> {
    roadstead_outbound::refusal(error).cloned()
}
