//! Background loops of the hub. Each takes no input, is idempotent, and runs on a timer and on a signal; so it does not
//! matter which replica runs it, how often, or whether the last run was cut short.

mod controllers;
mod fetch;
mod housekeeping;
mod management;
mod notify;
mod onboard;
mod remotes;

use roadstead_hub_core::Hub;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Starts all loops. They end, with what they have begun, once `stop` is cancelled.
#[must_use]
pub fn start(hub: &Hub, stop: &CancellationToken) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    loops.spawn(controllers::run(hub.clone(), stop.clone(), controllers::Appliers));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), controllers::Namespaces));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), controllers::KubeConfigs));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), controllers::Receivers));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), controllers::Generators));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), notify::Providers));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), notify::Alerts));
    loops.spawn(notify::sort(hub.clone(), stop.clone()));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), onboard::Clusters));
    let management = management::ManagementClusters::new(stop.clone());
    loops.spawn(controllers::run(hub.clone(), stop.clone(), management));
    loops.spawn(controllers::run(hub.clone(), stop.clone(), fetch::Sources::new(stop.clone())));
    loops.spawn(remotes::run(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::tell_of_tolerated_sources(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::roll_out(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::heartbeat(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::refusals(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::seal_audit(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::tell_head(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::refresh_issuers(hub.clone(), stop.clone()));
    loops.spawn(housekeeping::tidy(hub.clone(), stop.clone()));
    loops
}
