//! What all parts of the hub are made of: each takes from it what it needs.

use std::sync::Arc;

use roadstead_github_app::Tokens;
use roadstead_hub_store::Store;
use roadstead_model::ReplicaId;

use crate::HubOptions;
use crate::clock::Clock;
use crate::meters::Meters;

/// The database, the time, this process, and how the operator set it up.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) replica: ReplicaId,
    pub(crate) options: Arc<HubOptions>,
    pub(crate) meters: Arc<Meters>,
    /// Of GitHub Apps.
    pub(crate) app_tokens: Tokens,
}
