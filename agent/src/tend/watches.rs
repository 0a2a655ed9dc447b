//! The watches that tell how what was applied stands: opened and ended as what is tended changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use roadstead_apply::Sight;
use tokio::task::AbortHandle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Tended, Watch};
use crate::cluster::Cluster;

/// How many watches there are at once. What is not watched is looked at by its dispatches. Each may hold the largest event that there
/// can be, of a megabyte and a half.
const MAX_WATCHES: usize = 128;

/// How often it is looked whether other watches are wanted where nothing says so.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long it is waited for more that is to be watched.
const GATHER: Duration = Duration::from_millis(100);

/// Watches what is tended, for as long as it runs.
pub(crate) async fn keep<C: Cluster>(cluster: C, tended: Arc<Tended>) {
    let mut open: BTreeMap<Watch, AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let wanted = tended.wanted_watches(Instant::now());
        open.retain(|watch, task| {
            let stays = wanted.contains(watch) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        for watch in wanted {
            if open.len() >= MAX_WATCHES {
                tracing::warn!(
                    "not everything that was applied is watched: there would be more than {MAX_WATCHES} watches"
                );
                break;
            }
            let mut begin =
                |watch: &Watch| tasks.spawn(one(cluster.clone(), Arc::clone(&tended), watch.clone()));
            open.entry(watch.clone()).or_insert_with(|| begin(&watch));
        }
        tokio::select! {
            // Many dispatches may end at about the same time.
            () = async { tended.watches.notified().await; sleep(GATHER).await } => {}
            Some(_) = tasks.join_next() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

/// Watches until it is not allowed.
async fn one<C: Cluster>(cluster: C, tended: Arc<Tended>, watch: Watch) {
    let cluster = cluster.acting_as(watch.account.as_ref());
    let mut tell = |sight: Sight| tended.take(&watch, sight, Instant::now());
    let why = cluster.watch_owned(&watch.scope, &mut tell).await;
    let account = watch.account.as_ref().map(|account| format!("{}/{}", account.namespace, account.name));
    tracing::warn!(
        scope = %watch.scope, account, why = why.as_str(),
        "changes made by others are not seen before the next reconciliation: they cannot be watched"
    );
    tended.forbidden(&watch, why, Instant::now());
    tended.watches.notify_one();
}
