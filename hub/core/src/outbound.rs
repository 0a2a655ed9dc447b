//! The hub's way out to addresses that its users chose.

use std::sync::Arc;

use roadstead_outbound::{Guard, Policy, Proxies, Purpose};

/// What the operator lets users have the hub connect to.
#[derive(Debug, Clone)]
pub struct Outbound {
    /// Which addresses.
    pub policy: Arc<Policy>,
    /// By which proxies.
    pub proxies: Arc<Proxies>,
    /// Whether credentials of sources may be sent over plain HTTP.
    pub plain_http_credentials: bool,
}

impl Default for Outbound {
    /// The public internet, without proxies.
    fn default() -> Self {
        Self { policy: Arc::default(), proxies: Arc::new(Proxies::none()), plain_http_credentials: false }
    }
}

impl Outbound {
    /// The way out for a purpose.
    #[must_use]
    pub fn guard(&self, purpose: Purpose) -> Guard {
        Guard::new(Arc::clone(&self.policy), purpose).with_proxies(Arc::clone(&self.proxies))
    }
}
