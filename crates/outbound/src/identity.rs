//! The certificate that a client shows to servers that ask for one.

use roadstead_model::Secret;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::http::ClientError;

/// The longest text with certificates, in bytes.
const MOST: usize = 1 << 20;

/// A certificate and its key, in PEM: `tls.crt` and `tls.key` of a Secret.
#[derive(Debug, Clone)]
pub struct ClientIdentity {
    /// The certificate, and after it those between it and its authority.
    pub certificates: Vec<u8>,
    /// The private key.
    pub key: Secret,
}

impl ClientIdentity {
    pub(crate) fn parse(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ClientError> {
        let wrong = |why: &str| ClientError::Identity(why.to_owned());
        if self.certificates.len() > MOST {
            return Err(wrong("tls.crt is longer than 1 MiB"));
        }
        let chain = CertificateDer::pem_slice_iter(&self.certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| wrong("tls.crt is not PEM"))?;
        if chain.is_empty() {
            return Err(wrong("tls.crt holds no certificate in PEM"));
        }
        // Exposed to be parsed; what is wrong with it is not told, since that could show some of it.
        let key = PrivateKeyDer::from_pem_slice(self.key.expose().as_bytes());
        Ok((chain, key.map_err(|_| wrong("tls.key holds no private key in PEM"))?))
    }
}
