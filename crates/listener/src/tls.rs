//! TLS of a listener.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// Why a listener has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The serving certificate, its key or the clients' authority cannot be read.
    #[error("read the serving certificate, its key, or the authority of clients")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The certificate and its key do not fit together, or the authority is not one.
    #[error("set the listener's TLS up")]
    Tls(#[source] rustls::Error),
    /// The authority of clients is not one.
    #[error("take the authority of clients")]
    Clients(#[source] VerifierBuilderError),
}

/// TLS 1.2 and 1.3 with this chain and key (PEM), and these protocols by preference. With `clients`, the PEM of an
/// authority, nobody is taken without a certificate of it.
///
/// # Errors
/// Where the PEM texts are not what they should be.
pub fn server_config(
    chain_pem: &str,
    key_pem: &str,
    clients: Option<&str>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let chain = certificates(chain_pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(TlsError::Pem)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Tls)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(authority)? {
                roots.add(certificate).map_err(TlsError::Tls)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Clients)?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Tls)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    if clients.is_some() {
        // A session that is resumed is not asked for its certificate again, and one that expired would be taken.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(TlsError::Pem)
}
