//! The keys of decryption Secrets: those that they hold, and key services that they have credentials for.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_hub_store::Stored;
use roadstead_kms::{Allowed, Credentials, Imported, Keys, KnownKeys, Network};
use roadstead_outbound::Purpose;
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
    /// Where Vaults take tokens of service accounts.
    pub(super) vault_login: Option<String>,
}

impl KeyServices {
    pub(in super::super) fn new(options: &HubOptions) -> Self {
        let proxies = Some(Arc::clone(&options.outbound.proxies));
        Self {
            network: Arc::new(Network::new(Purpose::Kms, &options.outbound.policy, proxies)),
            allowed: options.key_services.clone(),
            places: fair_places(PLACES),
            known: Arc::default(),
            vault_login: options.decryption_vault_login.clone(),
        }
    }

    /// The keys of a Secret of the hub, and of a service account for key services for which the Secret has nothing; or which entry of the
    /// Secret is none, for a condition. There are no other credentials: nobody's files are opened by what is the hub's own.
    pub(super) fn keys(&self, secret: Option<&Stored>, of_account: Credentials) -> Result<Keys, String> {
        let mut imported = Imported::default();
        let held = secret.and_then(|stored| Some((stored, stored.secret.as_ref()?)));
        let entries = held
            .iter()
            .flat_map(|(stored, data)| data.keys().map(move |name| (*stored, name, data.expose(name))));
        for (secret, name, value) in entries {
            let bytes =
                value.and_then(|value| BASE64.decode(value).ok()).map(Zeroizing::new).unwrap_or_default();
            imported.add(name, &bytes).map_err(|error| {
                let Stored { namespace, name: of, .. } = secret;
                format!(
                    "failed to import '{name}' data from sops decryption Secret '{namespace}/{of}': {error}"
                )
            })?;
        }
        imported.credentials = std::mem::take(&mut imported.credentials).or(of_account);
        Ok(Keys::new(imported, self.allowed.clone(), Arc::clone(&self.network), Handle::current()))
    }
}
