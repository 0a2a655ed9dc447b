//! Keys at hand and key services as one provider of data keys.

use std::fmt;
use std::sync::Arc;

use roadstead_sops::{DataKey, KeyError, KeyProvider, KeyRing, MasterKey};
use tokio::runtime::Handle;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::address::Allowed;
use crate::aws;
use crate::azure;
use crate::cache::Cache;
use crate::call::{Budget, Calls, Network};
use crate::credentials::Credentials;
use crate::entries::Imported;
use crate::error::ServiceError;
use crate::{gcp, huawei, vault};
use roadstead_outbound::Secret;

/// Keys at hand, and what asks key services with credentials. Tokens that services give out are kept as long as this is.
pub struct Keys {
    ring: KeyRing,
    credentials: Credentials,
    allowed: Allowed,
    network: Arc<Network>,
    runtime: Handle,
    aws: aws::Sessions,
    azure: Cache<Secret>,
    gcp: Cache<Secret>,
    vault: Cache<Secret>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("ring", &self.ring).field("credentials", &self.credentials).finish()
    }
}

impl Keys {
    /// These keys and credentials. Requests are made on the runtime, over the network, to addresses that are the providers' own or
    /// allowed.
    #[must_use]
    pub fn new(imported: Imported, allowed: Allowed, network: Arc<Network>, runtime: Handle) -> Self {
        Self {
            ring: imported.ring,
            credentials: imported.credentials,
            allowed,
            network,
            runtime,
            aws: aws::Sessions::default(),
            azure: Cache::default(),
            gcp: Cache::default(),
            vault: Cache::default(),
        }
    }

    /// The provider for one file: what a file may ask for is bounded, and its time begins now.
    ///
    /// Its questions are answered where they are asked, and block: it is for threads that may, such as those of
    /// `tokio::task::spawn_blocking`. Asked on a thread that drives a runtime, it panics as `Handle::block_on` does. The runtime has to be
    /// one of several threads, or be driven by another one, since it does the input and output.
    #[must_use]
    pub fn for_file(&self) -> FileKeys<'_> {
        FileKeys { keys: self, budget: Budget::new(None) }
    }

    /// The same, for one of several files that have so long together.
    #[must_use]
    pub fn for_file_until(&self, until: Instant) -> FileKeys<'_> {
        FileKeys { keys: self, budget: Budget::new(Some(until)) }
    }
}

/// What unwraps the keys of one file.
pub struct FileKeys<'k> {
    keys: &'k Keys,
    budget: Budget,
}

impl fmt::Debug for FileKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileKeys").field(self.keys).finish()
    }
}

impl KeyProvider for FileKeys<'_> {
    fn unwrap(&self, key: &MasterKey) -> Result<Option<DataKey>, KeyError> {
        if matches!(key, MasterKey::Age { .. } | MasterKey::Pgp { .. }) {
            return self.keys.ring.unwrap(key);
        }
        let bytes = self.keys.runtime.block_on(self.ask(key));
        let bytes = bytes.map_err(|error| KeyError::new(error.to_string()))?;
        Ok(bytes.map(DataKey::new))
    }
}

impl FileKeys<'_> {
    /// Asks the service that has the key; `None` where there are no credentials for it.
    async fn ask(&self, key: &MasterKey) -> Result<Option<Zeroizing<Vec<u8>>>, ServiceError> {
        let Keys { credentials, allowed, network, .. } = self.keys;
        let calls = || Calls::new(network, &self.budget);
        let asked = match key {
            MasterKey::AwsKms { arn, role, context, enc, .. } => {
                let Some(credential) = &credentials.aws else { return Ok(None) };
                let role = role.as_deref().filter(|role| !role.is_empty());
                let key = aws::Key { arn, role, context, enc };
                aws::unwrap(&key, credential, &self.keys.aws, allowed, &calls()?).await
            }
            MasterKey::GcpKms { resource_id, enc } => {
                let Some(credential) = &credentials.gcp else { return Ok(None) };
                gcp::unwrap(resource_id, enc, credential, &self.keys.gcp, allowed, &calls()?).await
            }
            MasterKey::AzureKeyVault { vault_url, name, version, enc } => {
                let Some(credential) = &credentials.azure else { return Ok(None) };
                let key = azure::Key { vault_url, name, version, enc };
                azure::unwrap(&key, credential, &self.keys.azure, allowed, &calls()?).await
            }
            MasterKey::Vault { address, engine_path, key_name, enc } => {
                let Some(credential) = &credentials.vault else { return Ok(None) };
                let key = vault::Key { address, engine_path, key_name, enc };
                vault::unwrap(&key, credential, &self.keys.vault, allowed, &calls()?).await
            }
            MasterKey::HuaweiKms { key_id, enc } => {
                let Some(credential) = &credentials.huawei else { return Ok(None) };
                huawei::unwrap(key_id, enc, credential, allowed, &calls()?).await
            }
            _ => return Ok(None),
        };
        asked.map(Some)
    }
}
