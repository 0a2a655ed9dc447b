//! Checks remote resources of kustomizations. Namespaces share the places for it; a host that hangs holds up few of them.

use std::time::Duration;

use roadstead_hub_core::Hub;
use roadstead_places::{Limits, Places};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Checks at once.
const AT_ONCE: usize = 16;
/// Of these, so many may be at one host.
const PER_HOST: usize = 2;

/// Runs until `stop`; what is under way then is cut.
pub(crate) async fn run(hub: Hub, stop: CancellationToken) {
    let places = Places::new(Limits {
        total: AT_ONCE,
        per_group: PER_HOST,
        // A check has a time of its own, and what is cut would start over.
        patience: Duration::MAX,
        patience_over_share: Duration::MAX,
    });
    let mut under_way = JoinSet::new();
    loop {
        let check = tokio::select! {
            check = hub.remotes.next() => check,
            () = stop.cancelled() => break,
        };
        while under_way.try_join_next().is_some() {}
        let (hub, places, stop) = (hub.clone(), places.clone(), stop.clone());
        under_way.spawn(async move {
            let work = async {
                let _place = places.take(check.namespace(), &check.host()).await;
                hub.attempt("could not check a remote resource", hub.remotes.check(&check, &stop)).await
            };
            tokio::select! {
                _ = work => {}
                () = stop.cancelled() => {}
            }
        });
    }
    while under_way.join_next().await.is_some() {}
}
