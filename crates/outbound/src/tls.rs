//! TLS on a connection that is open already: for protocols that begin in the clear and go on over TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::host::Host;
use crate::http::{ClientError, tls};
use crate::identity::ClientIdentity;
use crate::trust::Trust;

/// Whom to trust, and what to show, when a connection goes on over TLS.
#[derive(Clone)]
pub struct Tls(TlsConnector);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// With PEM of authorities to trust besides the system's, and a certificate for servers that ask for one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(ca: Option<&[u8]>, identity: Option<&ClientIdentity>) -> Result<Self, ClientError> {
        let config = tls(Trust::Besides(ca), identity)?;
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Goes on over TLS with who has to be this host.
    ///
    /// # Errors
    /// It is somebody else, or does not speak TLS.
    pub async fn secure<S>(&self, host: &Host, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match host {
            Host::Ip(address) => ServerName::from(*address),
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
        };
        self.0.connect(name, stream).await
    }
}
