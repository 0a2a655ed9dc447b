//! Sources: passes over them, the fetching, and what their conditions say.

pub(crate) mod fetch;
pub(crate) mod notes;
pub(crate) mod pass;

use std::sync::Arc;

use roadstead_hub_store::Store;
use roadstead_places::Places;

use crate::HubOptions;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::AccessRules;
use crate::quarantine::Quarantine;
use crate::workers::fair_places;
use fetch::KnownServers;

pub use pass::{FetchJob, FetchPlan};

/// Sources, and what is fetched of them.
pub struct Sources {
    store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    access: Arc<AccessRules>,
    quarantine: Arc<Quarantine>,
    /// For the workers that read what servers sent.
    read_places: Places,
    known_servers: KnownServers,
}

impl Sources {
    pub(crate) fn new(context: &Context, access: &Arc<AccessRules>, quarantine: &Arc<Quarantine>) -> Self {
        let readers =
            context.options.workers.as_ref().map_or(1, |workers| workers.readers.settings().workers);
        let known_servers = KnownServers::new(&context.options.budget);
        let read_places = fair_places(readers);
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            access: Arc::clone(access),
            quarantine: Arc::clone(quarantine),
            read_places,
            known_servers,
        }
    }
}
