//! Read models for people and their tools, beside the resource API: the fleet, and what reconciliations did.

mod artifacts;
mod changes;
mod deliveries;
pub(crate) mod diff;
mod drift;
pub(crate) mod fleet;
mod incidents;
mod lists;
mod metrics;
mod profiles;
mod reconciliations;
mod silences;
mod visible;

use std::sync::Arc;

use roadstead_api::KindId;
use roadstead_hub_store::{Store, Stored};
use tokio::sync::Semaphore;

use crate::HubError;
use crate::clock::Clock;
use crate::clusters::Sessions;
use crate::context::Context;
use crate::delivery::Builds;
use crate::identity::Identity;

pub use artifacts::{ArtifactHead, WhichArtifact};
pub use changes::{FleetChange, FleetWatch};
pub use deliveries::DeliveryItem;
pub use diff::{BuildDiff, DiffedBuild, DiffedField, DiffedObject};
pub use drift::{DriftField, DriftItem};
pub use fleet::{
    AttemptItem, ClusterItem, FleetPage, HealthCount, InventoryItem, MAX_ITEMS, MAX_NAMES, ReadyState,
};
pub use incidents::IncidentItem;
pub use lists::{ApplierItem, EventItem, ObjectName, SourceItem};
pub use metrics::{METRICS, METRICS_TYPE, Metrics};
pub use profiles::{CPU_PROFILE, Profiles};
pub use reconciliations::{ReconciliationView, Reconciliations, ReconciliationsOptions};
pub use silences::SilenceItem;

/// How many comparisons of builds a replica makes at once; others wait.
const COMPARISONS: usize = 1;

/// The fleet views.
pub struct Views {
    store: Store,
    clock: Arc<dyn Clock>,
    sessions: Arc<Sessions>,
    builds: Arc<Builds>,
    /// Places for comparisons of builds, which take a worker each.
    comparisons: Semaphore,
}

impl Views {
    pub(crate) fn new(context: &Context, sessions: &Arc<Sessions>, builds: &Arc<Builds>) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            sessions: Arc::clone(sessions),
            builds: Arc::clone(builds),
            comparisons: Semaphore::new(COMPARISONS),
        }
    }

    /// The applier of that kind, as its name says it, where `who` may read it.
    async fn applier(
        &self,
        who: &Identity,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Stored, HubError> {
        let kind = applier_kind(kind)?;
        who.authorize("get", kind.get(), "", namespace, name)?;
        let found = self.store.get(kind, namespace, name).await?;
        found.ok_or_else(|| HubError::NotFound { what: format!("{} \"{name}\"", kind.get().qualified()) })
    }
}

/// The kind of applier of that name; none where the name is empty.
///
/// # Errors
/// [`HubError::NotFound`] where no kind that deploys has the name.
fn known_applier_kind(name: &str) -> Result<Option<KindId>, HubError> {
    if name.is_empty() { Ok(None) } else { applier_kind(name).map(Some) }
}

fn applier_kind(name: &str) -> Result<KindId, HubError> {
    KindId::named(name)
        .filter(|kind| kind.is_applier())
        .ok_or_else(|| HubError::NotFound { what: format!("kind of applier \"{name}\"") })
}
