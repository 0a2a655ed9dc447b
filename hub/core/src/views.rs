//! Read models for people and their tools, beside the resource API: the fleet, and what reconciliations did.

pub(crate) mod fleet;
mod lists;
mod reconciliations;

use std::sync::Arc;

use roadstead_api::KindId;
use roadstead_hub_store::Store;

use crate::HubError;
use crate::clusters::Sessions;
use crate::context::Context;
use crate::delivery::diff::applier_kind;

pub use fleet::{
    AttemptItem, ClusterItem, FleetChange, FleetPage, FleetWatch, HealthCount, InventoryItem, MAX_ITEMS,
    MAX_NAMES, ReadyState,
};
pub use lists::{ApplierItem, EventItem, ObjectName};
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

/// The kind of applier of that name; none where the name is empty.
///
/// # Errors
/// [`HubError::NotFound`] where no kind that deploys has the name.
fn known_applier_kind(name: &str) -> Result<Option<KindId>, HubError> {
    if name.is_empty() { Ok(None) } else { applier_kind(name).map(Some) }
}
