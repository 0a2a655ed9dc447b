//! The watches that tell how what was applied stands: opened and ended as what is tended changes.

use std::sync::Arc;

use roadstead_apply::Sight;
use tokio::time::Instant;

use super::{Tended, Watch};
use crate::cluster::Cluster;
use crate::watching::OpenWatches;

/// How many watches there are at once. What is not watched is looked at by its dispatches. Each may hold the largest event that there
/// can be, of a megabyte and a half.
const MAX_WATCHES: usize = 128;

/// Watches what is tended, for as long as it runs.
pub(crate) async fn keep<C: Cluster>(cluster: C, tended: Arc<Tended>) {
    let mut open = OpenWatches::default();
    loop {
        let wanted = tended.wanted_watches(Instant::now());
        let watching = |watch| one(cluster.clone(), Arc::clone(&tended), watch);
        if open.set(wanted, MAX_WATCHES, watching) {
            tracing::warn!(
                "not everything that was applied is watched: there would be more than {MAX_WATCHES} watches"
            );
        }
        open.rest(&tended.watches).await;
    }
}

/// Watches until it is not allowed.
async fn one<C: Cluster>(cluster: C, tended: Arc<Tended>, watch: Watch) {
    let cluster = cluster.acting_as(watch.account.as_ref());
    let mut tell = |sight: Sight| tended.take(&watch, sight, Instant::now());
    let why = cluster.watch_owned(&watch.scope, &mut tell).await;
    tracing::warn!(
        scope = %watch.scope, account = watch.account_name(), why = why.as_str(),
        "changes made by others are not seen before the next reconciliation: they cannot be watched"
    );
    tended.forbidden(&watch, why, Instant::now());
    tended.watches.notify_one();
}
