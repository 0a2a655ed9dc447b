//! The issuers that Receivers name: they are asked for their public keys when somebody calls with a token of theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::SignedDuration;
use roadstead_model::chain;
use roadstead_oidc::Keys;
use roadstead_outbound::{Client, Purpose};
use tokio::sync::Semaphore;

use crate::HubOptions;
use crate::clock::Clock;
use crate::hooks::call::NotTaken;
use crate::publisher::{NoKeys, Publisher, Site};

/// So long keys are kept.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// So many are asked at once.
const AT_ONCE: usize = 4;
/// Issuers that are remembered.
const REMEMBERED: usize = 256;

/// Issuers, and what is known of them.
pub(super) struct Issuers {
    client: OnceLock<Result<Client, String>>,
    options: Arc<HubOptions>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, Arc<Publisher>>>,
    places: Arc<Semaphore>,
}

impl Issuers {
    pub(super) fn new(options: &Arc<HubOptions>, clock: &Arc<dyn Clock>) -> Self {
        Self {
            client: OnceLock::new(),
            options: Arc::clone(options),
            clock: Arc::clone(clock),
            known: Mutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The keys of an issuer, for a token that names one of them.
    pub(super) async fn keys(&self, issuer: &str, key: Option<&str>) -> Result<Arc<Keys>, NotTaken> {
        let failed = |error: &NoKeys| NotTaken::Issuer { issuer: issuer.to_owned(), why: error.to_string() };
        self.publisher(issuer).keys(key).await.map_err(|error| failed(&error))
    }

    /// Where it is asked. One beyond those that are remembered is asked for this call alone.
    fn publisher(&self, issuer: &str) -> Arc<Publisher> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(publisher) = known.get(issuer) {
            return Arc::clone(publisher);
        }
        let client = self.client.get_or_init(|| {
            let guard = self.options.outbound.guard(Purpose::Oidc);
            Client::new(guard, None).map_err(|error| chain(&error))
        });
        let site = Site {
            issuer: issuer.to_owned(),
            discovery_url: format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')),
            client: client.clone(),
            plain_http: self.options.outbound.plain_http_credentials,
            // Whoever calls is told, and whoever runs the hub has nothing to do with it.
            is_told: false,
            places: Arc::clone(&self.places),
        };
        let publisher = Publisher::new(site, &self.clock, KEPT, None);
        if known.len() >= REMEMBERED {
            known.retain(|_, publisher| !publisher.is_idle());
        }
        if known.len() < REMEMBERED {
            known.insert(issuer.to_owned(), Arc::clone(&publisher));
        }
        publisher
    }
}
