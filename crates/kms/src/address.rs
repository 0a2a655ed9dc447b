//! Which addresses credentials may go to.
//!
//! A file in Git names the server that is to unwrap its key. Whoever writes files must not choose who gets to see a token by that: each address
//! that a file names is one that the credentials' holder or the operator has named too, or is the provider's own by its ending.

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
    pub(crate) fn join(&self, path: &str) -> Result<Url, ServiceError> {
        let base = self.0.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}{path}")).map_err(|_| ServiceError::Key("not a URL".to_owned()))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// Its host and port.
    #[must_use]
    pub fn endpoint(&self) -> Option<(Host, u16)> {
        let host = self.0.host_str().and_then(Host::parse)?;
        Some((host, self.0.port_or_known_default()?))
    }

    fn same(&self, other: &Self) -> bool {
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
pub(crate) fn fixed(text: &str) -> Result<Url, ServiceError> {
    Url::parse(text).map_err(|_| ServiceError::Key("not a URL".to_owned()))
}

/// Does it lead to this machine, whatever a name server says?
pub(crate) fn is_this_machine(url: &Url) -> bool {
    match url.host_str().and_then(Host::parse) {
        Some(Host::Ip(address)) => address.is_loopback(),
        Some(Host::Name(name)) => is_localhost(&name),
        None => false,
    }
}

pub(crate) fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Credentials go over TLS, unless they stay on this machine.
pub(crate) fn protected(url: &Url) -> Result<(), ServiceError> {
    if url.scheme() == "https" || is_this_machine(url) {
        return Ok(());
    }
    Err(ServiceError::InTheClear(Address(url.clone()).to_string()))
}

/// Addresses that the operator names, for all credentials. By default none: what is allowed then is the providers' own domains, and
/// where the holder of a Vault token says that it may go.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    addresses: Vec<Address>,
    this_machine: bool,
    /// Where AWS KMS is, instead of where the key's region says.
    pub aws_kms: Option<Address>,
    /// Where AWS STS is.
    pub aws_sts: Option<Address>,
    /// Where Google's KMS is.
    pub gcp_kms: Option<Address>,
    /// Where Google exchanges tokens of others.
    pub gcp_sts: Option<Address>,
    /// Where Google gives out tokens of service accounts to those who may act as them.
    pub gcp_iam: Option<Address>,
    /// Where Huawei's KMS is, by region.
    pub huawei_kms: Vec<(String, Address)>,
}

impl Allowed {
    /// Adds an address.
    pub fn add(&mut self, address: Address) {
        self.addresses.push(address);
    }

    /// Allows all of this machine: for a program that acts for whoever is on it. Nobody else's server is there.
    #[must_use]
    pub fn with_this_machine(mut self) -> Self {
        self.this_machine = true;
        self
    }

    /// May credentials go to this address, which a file names? `held` are those that the credentials' holder has named.
    pub(crate) fn check(&self, address: &Address, held: &[Address]) -> Result<(), ServiceError> {
        let named = self.addresses.iter().chain(held).any(|named| named.same(address));
        if named || self.this_machine && is_this_machine(&address.0) {
            return protected(&address.0);
        }
        Err(ServiceError::NotAllowed(address.to_string().chars().take(200).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn addresses_are_compared_whole() {
        let mut allowed = Allowed::default();
        allowed.add(address("https://vault.example:8200/"));
        for good in ["https://vault.example:8200", "https://VAULT.example.:8200/"] {
            assert_eq!(allowed.check(&address(good), &[]), Ok(()), "{good}");
        }
        for bad in [
            "https://vault.example",
            "https://vault.example:8201",
            "https://vault.example.evil.example:8200",
            "https://evil.example:8200/vault.example",
            "https://vault.example:8200/x",
            "https://127.0.0.1:8200",
        ] {
            let error = allowed.check(&address(bad), &[]).unwrap_err().to_string();
            assert!(error.contains("--allow-key-service") && error.contains(bad), "{error}");
        }
        assert_eq!(allowed.check(&address("https://b.example"), &[address("https://b.example/")]), Ok(()));
    }

    #[test]
    fn tokens_do_not_go_in_the_clear() {
        let mut allowed = Allowed::default();
        allowed.add(address("http://vault.example:8200"));
        allowed.add(address("http://127.0.0.1:8200"));
        let check = |text: &str| allowed.check(&address(text), &[]);
        assert!(matches!(check("http://vault.example:8200"), Err(ServiceError::InTheClear(_))));
        assert_eq!(check("http://127.1:8200"), Ok(()));
        let here = Allowed::default().with_this_machine();
        for good in ["http://localhost:1", "http://a.localhost:1", "http://[::1]:1", "https://127.0.0.9"] {
            assert_eq!(here.check(&address(good), &[]), Ok(()), "{good}");
        }
        for bad in ["http://localhost.example", "http://10.0.0.1", "http://0.0.0.0", "https://notlocalhost"] {
            assert!(here.check(&address(bad), &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_an_address() {
        for bad in ["", "vault", "ftp://x", "https://", "https://u:p@x", "https://x?y", "https://x#y", "//x"]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
