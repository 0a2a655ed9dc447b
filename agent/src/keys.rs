//! Keys of the cluster: what a decryption Secret there holds, and the key services that it has credentials for.

use std::sync::Arc;

use roadstead_kms::{Allowed, Imported, Keys, KnownKeys, Network};
use roadstead_outbound::{Policy, Proxies, Purpose, Rule};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

/// The entries of a Secret. They are wiped when they go.
pub(crate) type Entries = Vec<(String, Zeroizing<Vec<u8>>)>;

/// The way to key services.
#[derive(Debug)]
pub struct KeyServices {
    network: Arc<Network>,
    pub(crate) known: Arc<KnownKeys>,
}

impl Default for KeyServices {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl KeyServices {
    /// Those of the public internet, and of these networks.
    #[must_use]
    pub fn new(networks: Vec<Rule>) -> Self {
        let (policy, proxies) = (Arc::new(Policy::new(networks)), Arc::new(Proxies::from_env()));
        Self { network: Arc::new(Network::new(Purpose::Kms, &policy, Some(proxies))), known: Arc::default() }
    }

    /// The keys of a Secret; or which of its entries is none, for a condition. It has no other credentials than those in there, and a
    /// Vault is asked only where the Secret itself says.
    pub(crate) fn keys(&self, entries: &Entries, secret: &str, runtime: Handle) -> Result<Keys, String> {
        let mut imported = Imported::default();
        for (name, bytes) in entries {
            imported.add(name, bytes).map_err(|error| {
                format!("failed to import '{name}' data from sops decryption Secret '{secret}': {error}")
            })?;
        }
        Ok(Keys::new(imported, Allowed::default(), Arc::clone(&self.network), runtime))
    }
}
