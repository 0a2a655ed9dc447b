//! The keys of decryption Secrets: those that they hold, and key services that they have credentials for.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_hub_store::Stored;
use roadstead_kms::{Allowed, Imported, Keys, KnownKeys, Network};
use roadstead_places::Places;
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use crate::HubOptions;
use crate::workers::fair_places;

/// How many appliers have data keys unwrapped at once, which namespaces share fairly. Each holds what its build's data keys are wrapped
/// as, some megabytes at most.
const PLACES: usize = 8;
/// How long key services are asked for the data keys of one build.
pub(super) const UNWRAPPING: Duration = Duration::from_secs(60);

/// The way to key services, and which of them may be asked.
pub(in super::super) struct KeyServices {
    network: Arc<Network>,
    allowed: Allowed,
    pub(super) places: Places,
    pub(super) known: Arc<KnownKeys>,
}

impl KeyServices {
    pub(in super::super) fn new(options: &HubOptions) -> Self {
        let proxies = Some(Arc::clone(&options.outbound.proxies));
        Self {
            network: Arc::new(Network::new(&options.outbound.policy, proxies)),
            allowed: options.key_services.clone(),
            places: fair_places(PLACES),
            known: Arc::default(),
        }
    }

    /// The keys of a Secret of the hub; or which of its entries is none, for a condition. It has no other credentials: nobody's files
    /// are opened by what is the hub's own.
    pub(super) fn keys(&self, secret: &Stored) -> Result<Keys, String> {
        let mut imported = Imported::default();
        let entries =
            secret.secret.iter().flat_map(|data| data.keys().map(move |name| (name, data.expose(name))));
        for (name, value) in entries {
            let bytes =
                value.and_then(|value| BASE64.decode(value).ok()).map(Zeroizing::new).unwrap_or_default();
            imported.add(name, &bytes).map_err(|error| {
                let Stored { namespace, name: of, .. } = secret;
                format!(
                    "failed to import '{name}' data from sops decryption Secret '{namespace}/{of}': {error}"
                )
            })?;
        }
        Ok(Keys::new(imported, self.allowed.clone(), Arc::clone(&self.network), Handle::current()))
    }
}
