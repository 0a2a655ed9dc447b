//! TLS of a listener.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};

/// Why a listener has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The serving certificate, its key or the clients' authority cannot be read.
    #[error("read the serving certificate, its key, or the authority of clients")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The certificate and its key do not fit together, or the authority is not one.
    #[error("set the listener's TLS up")]
    Tls(#[source] Error),
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
    let verifier = clients.map(verifier).transpose()?;
    config(chain_pem, key_pem, verifier, protocols)
}

/// As [`server_config`], and clients are asked for a certificate. One that no authority vouches for ends no handshake: whoever has none that
/// is good may show who it is in another way. So what a client has shown is worth nothing before [`ClientAuthorities::vouch_for`].
///
/// # Errors
/// Where the PEM texts are not what they should be.
pub fn server_config_asking(
    chain_pem: &str,
    key_pem: &str,
    clients: &ClientAuthorities,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    config(chain_pem, key_pem, Some(Arc::new(Asking(Arc::clone(&clients.0)))), protocols)
}

/// Authorities that vouch for clients.
#[derive(Debug, Clone)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// From their certificates (PEM).
    ///
    /// # Errors
    /// Where it is none.
    pub fn read(pem: &str) -> Result<Self, TlsError> {
        verifier(pem).map(Self)
    }

    /// Whether one of them vouches for a client's chain, the client's own certificate first, at this time since 1970.
    #[must_use]
    pub fn vouch_for(&self, chain: &[CertificateDer<'_>], now: Duration) -> bool {
        let Some((own, others)) = chain.split_first() else { return false };
        self.0.verify_client_cert(own, others, UnixTime::since_unix_epoch(now)).is_ok()
    }
}

/// Asks for a certificate and takes any, of which the client has the key.
#[derive(Debug)]
struct Asking(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn verifier(authority: &str) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots.add(certificate).map_err(TlsError::Tls)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().map_err(TlsError::Clients)
}

fn config(
    chain_pem: &str,
    key_pem: &str,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let chain = certificates(chain_pem)?;
    let asked = clients.is_some();
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(TlsError::Pem)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsError::Tls)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Tls)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    if asked {
        // A session that is resumed is not asked for its certificate again, and one that expired would be taken.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(TlsError::Pem)
}
