//! From an artifact to a cluster: passes over appliers, builds, what of a build goes to the hub, dispatches to agents and
//! what came of them.

pub(crate) mod applier;
mod appliers;
pub(crate) mod build;
pub(crate) mod children;
mod corrections;
mod decryption;
mod dependencies;
mod drift;
mod handover;
mod health;
mod history;
mod holds;
mod pins;
mod placing;
pub(crate) mod reconcile;
mod remotes;
mod render;
mod restored;
pub(crate) mod results;
pub(crate) mod seen;
mod situation;
mod traces;
mod transfer;
mod unverified;
mod variables;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use roadstead_hub_plan::Turns;
use roadstead_hub_store::Store;
use roadstead_model::Guard;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::clusters::Sessions;
use crate::context::Context;
use crate::identity::{AccessRules, Authenticator};
use crate::meters::Meters;
use crate::objects::Objects;
use crate::remotes::Remotes;

pub use build::Builds;
pub use corrections::{AgentCorrection, CorrectedObject};
pub use decryption::SopsMac;
pub use drift::DriftReport;
pub use health::{HealthReport, HealthState};
pub use results::{DispatchFailure, DispatchResult};
pub use transfer::BuildReader;

/// How many appliers have what goes to the hub decrypted and its variables substituted at once.
const FINISHING: usize = 2;

/// What brings an applier's objects to its cluster.
pub struct Delivery {
    store: Store,
    clock: Arc<dyn Clock>,
    access: Arc<AccessRules>,
    objects: Arc<Objects>,
    sessions: Arc<Sessions>,
    builds: Arc<Builds>,
    remotes: Arc<Remotes>,
    lenient_substitutions: bool,
    sops_mac: SopsMac,
    account_identities: bool,
    identity: Arc<Authenticator>,
    full_interval: Duration,
    guard: Option<Guard>,
    meters: Arc<Meters>,
    key_services: decryption::KeyServices,
    /// For what is asked for at this replica.
    turns: Mutex<Turns>,
    /// Places for the finishing of what goes to the hub: each may take tens of megabytes.
    finishing: Semaphore,
}

impl Delivery {
    pub(crate) fn new(
        context: &Context,
        identity: &Arc<Authenticator>,
        access: &Arc<AccessRules>,
        objects: &Arc<Objects>,
        sessions: &Arc<Sessions>,
        builds: &Arc<Builds>,
        remotes: &Arc<Remotes>,
    ) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            access: Arc::clone(access),
            objects: Arc::clone(objects),
            sessions: Arc::clone(sessions),
            builds: Arc::clone(builds),
            remotes: Arc::clone(remotes),
            lenient_substitutions: context.options.lenient_substitutions,
            sops_mac: context.options.sops_mac,
            account_identities: context.options.object_level_workload_identity,
            identity: Arc::clone(identity),
            full_interval: context.options.full_reconcile_interval,
            guard: context.options.guard.clone(),
            meters: Arc::clone(&context.meters),
            key_services: decryption::KeyServices::new(&context.options),
            turns: Mutex::default(),
            finishing: Semaphore::new(FINISHING),
        }
    }
}
