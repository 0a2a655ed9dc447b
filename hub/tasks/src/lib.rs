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
use roadstead_hub_core::readiness::CONTROLLERS;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use controllers::Controller;

/// Starts all loops. They end, with what they have begun, once `stop` is cancelled.
#[must_use]
pub fn start(hub: &Hub, stop: &CancellationToken) -> JoinSet<()> {
    let mut loops = Loops { hub, stop, all: JoinSet::new() };
    loops.controller(controllers::Appliers);
    loops.controller(controllers::Namespaces);
    loops.controller(controllers::KubeConfigs);
    loops.controller(controllers::Receivers);
    loops.controller(controllers::Generators);
    loops.controller(notify::Providers);
    loops.controller(notify::Alerts);
    loops.controller(onboard::Clusters);
    loops.controller(management::ManagementClusters::new(stop.clone()));
    loops.controller(fetch::Sources::new(stop.clone()));
    loops.lasting("notifications", notify::sort(hub.clone(), stop.clone()));
    loops.lasting("notification counts", notify::tally(hub.clone(), stop.clone()));
    loops.lasting("ends of incidents", notify::close(hub.clone(), stop.clone()));
    loops.lasting("remote resources", remotes::run(hub.clone(), stop.clone()));
    loops.lasting("roll-out of agents", housekeeping::roll_out(hub.clone(), stop.clone()));
    loops.lasting("heartbeat", housekeeping::heartbeat(hub.clone(), stop.clone()));
    loops.lasting("clock", housekeeping::watch_clock(hub.clone(), stop.clone()));
    loops.lasting("refusals", housekeeping::refusals(hub.clone(), stop.clone()));
    loops.lasting("head of the audit log", housekeeping::tell_head(hub.clone(), stop.clone()));
    loops.lasting("keys of issuers", housekeeping::refresh_issuers(hub.clone(), stop.clone()));
    loops.lasting("aggregated roles", housekeeping::aggregate_roles(hub.clone(), stop.clone()));
    loops.lasting("housekeeping", housekeeping::tidy(hub.clone(), stop.clone()));
    loops.lasting("artifact store", housekeeping::tend_artifact_store(hub.clone(), stop.clone()));
    let Loops { mut all, .. } = loops;
    all.spawn(housekeeping::tell_of_tolerated_sources(hub.clone(), stop.clone()));
    all.spawn(housekeeping::seal_audit(hub.clone(), stop.clone()));
    all
}

/// The loops that go on until the process ends: one that ends before is told of by the hub's probes.
struct Loops<'a> {
    hub: &'a Hub,
    stop: &'a CancellationToken,
    all: JoinSet<()>,
}

impl Loops<'_> {
    fn controller<C: Controller>(&mut self, controller: C) {
        let run = controllers::run(self.hub.clone(), self.stop.clone(), controller);
        self.lasting(C::QUEUE.as_str(), run);
    }

    fn lasting(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let (running, stop) = (self.hub.readiness.runs(CONTROLLERS, name), self.stop.clone());
        self.all.spawn(async move {
            run.await;
            if stop.is_cancelled() {
                running.stopped();
            }
        });
    }
}
