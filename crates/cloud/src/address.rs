//! Addresses of services that credentials are for.

use std::fmt;

use roadstead_outbound::{Authority, Host};
use url::Url;

use crate::error::ServiceError;

/// The address of a key service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(Url);

/// Not an address of a key service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the address of a key service: want https://HOST[:PORT]")]
pub struct BadAddress {
    text: String,
}

impl Address {
    /// Reads `https://HOST[:PORT][/PATH]`; `http://` may be written for this machine.
    ///
    /// # Errors
    /// It is something else, or has credentials, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        /// In bytes.
        const LONGEST: usize = 2048;
        let bad = || BadAddress { text: text.chars().take(200).collect() };
        if text.len() > LONGEST {
            return Err(bad());
        }
        let url = Url::parse(text.trim()).map_err(|_| bad())?;
        let plain = url.username().is_empty() && url.password().is_none();
        let whole = url.query().is_none() && url.fragment().is_none();
        // Written out, its characters may have become more.
        let whole = whole && url.as_str().len() <= LONGEST;
        let http = matches!(url.scheme(), "http" | "https");
        if !(plain && whole && http && Authority::of_url(&url).is_some()) {
            return Err(bad());
        }
        Ok(Self(url))
    }

    /// A URL below this address.
    ///
    /// # Errors
    /// If that is not a valid URL.
    pub fn join(&self, path: &str) -> Result<Url, ServiceError> {
        let base = self.0.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}{path}")).map_err(|_| ServiceError::Key("not a URL".to_owned()))
    }

    /// As a URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// Its host and port.
    #[must_use]
    pub fn endpoint(&self) -> Option<(Host, u16)> {
        let host = self.0.host_str().and_then(Host::parse)?;
        Some((host, self.0.port_or_known_default()?))
    }

    /// Whether both are the same, however they are written.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
        self.0.scheme() == other.0.scheme()
            && Authority::of_url(&self.0) == Authority::of_url(&other.0)
            && path(&self.0) == path(&other.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

/// A URL that is not a user's.
///
/// # Errors
/// If it is not a valid URL.
pub fn fixed(text: &str) -> Result<Url, ServiceError> {
    Url::parse(text).map_err(|_| ServiceError::Key("not a URL".to_owned()))
}

/// Whether it leads to this machine, whatever a name server says.
#[must_use]
pub fn is_this_machine(url: &Url) -> bool {
    match url.host_str().and_then(Host::parse) {
        Some(Host::Ip(address)) => address.is_loopback(),
        Some(Host::Name(name)) => is_localhost(&name),
        None => false,
    }
}

/// Whether it is `localhost`, or a name below it.
#[must_use]
pub fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Credentials go over TLS, unless they stay on this machine.
///
/// # Errors
/// If they would be sent in the clear.
pub fn protected(url: &Url) -> Result<(), ServiceError> {
    if url.scheme() == "https" || is_this_machine(url) {
        return Ok(());
    }
    Err(ServiceError::InTheClear(Address(url.clone()).to_string()))
}

/// Where token services are, instead of where their clouds have them. By default none is said.
#[derive(Debug, Clone, Default)]
pub struct TokenServices {
    /// Where AWS STS is.
    pub aws_sts: Option<Address>,
    /// Where the API of AWS's registries is.
    pub aws_ecr: Option<Address>,
    /// The region where an address says none.
    pub aws_region: Option<String>,
    /// Who gives out Azure's tokens to those who show a token of another issuer.
    pub azure_authority: Option<Address>,
    /// Where Google exchanges tokens of others.
    pub gcp_sts: Option<Address>,
    /// Where Google gives out tokens of service accounts to those who may act as them.
    pub gcp_iam: Option<Address>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_an_address() {
        for bad in ["", "vault", "ftp://x", "https://", "https://u:p@x", "https://x?y", "https://x#y", "//x"]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
