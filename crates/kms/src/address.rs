//! Which addresses credentials may go to.
//!
//! A file in Git names the server that is to unwrap its key. Whoever writes files must not choose who gets to see a token by that: each address
//! that a file names is one that the credentials' holder or the operator has named too, or is the provider's own by its ending.

pub(crate) use roadstead_cloud::TokenServices;
pub(crate) use roadstead_cloud::address::{is_this_machine, protected};
pub use roadstead_cloud::{Address, BadAddress};

use crate::error::ServiceError;

/// Addresses that the operator names, for all credentials. By default none: what is allowed then is the providers' own domains, and
/// where the holder of a Vault token says that it may go.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    addresses: Vec<Address>,
    this_machine: bool,
    /// Where AWS KMS is, instead of where the key's region says.
    pub aws_kms: Option<Address>,
    /// Where Google's KMS is.
    pub gcp_kms: Option<Address>,
    /// Where credentials are exchanged for others.
    pub token_services: TokenServices,
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
        if named || self.this_machine && is_this_machine(address.url()) {
            return protected(address.url());
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
}
