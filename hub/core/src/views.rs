//! Read models for people and their tools, beside the resource API: the fleet, and what reconciliations did.

pub(crate) mod fleet;
mod lists;
mod reconciliations;

use std::sync::Arc;

use roadstead_hub_store::Store;

use crate::clusters::Sessions;
use crate::context::Context;

pub use fleet::{
    AttemptItem, ClusterItem, FleetChange, FleetPage, FleetWatch, HealthCount, InventoryItem, MAX_ITEMS,
    MAX_NAMES, NamespacedName, ReadyState,
};
pub use lists::{EventItem, KustomizationItem, ObjectName};
pub use reconciliations::{ReconciliationView, Reconciliations, ReconciliationsOptions};

/// The fleet views.
pub struct Views {
    store: Store,
    sessions: Arc<Sessions>,
}

impl Views {
    pub(crate) fn new(context: &Context, sessions: &Arc<Sessions>) -> Self {
        Self { store: context.store.clone(), sessions: Arc::clone(sessions) }
    }
}
