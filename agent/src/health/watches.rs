//! The watches that tell how what was waited for is: opened and ended as what is followed changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use roadstead_apply::Sight;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::Healths;
use crate::cluster::Cluster;
use crate::tend::Watch;

/// How many watches there are at once. What is not watched is looked at by its dispatches. Each may hold the largest event that there
/// can be, of a megabyte and a half.
const MAX_WATCHES: usize = 64;

/// How many of them there are for objects whose health nobody asks for.
const MAX_UNASKED: usize = 24;

/// How often it is looked whether other watches are wanted where nothing says so.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long it is waited for more that is to be watched.
const GATHER: Duration = Duration::from_millis(100);

/// Watches what is followed, for as long as it runs.
pub(crate) async fn keep<C: Cluster>(cluster: C, healths: Arc<Healths>) {
    let mut open: BTreeMap<Watch, AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        for object in healths.unknown_kinds(Instant::now()) {
            let (cluster, healths) = (cluster.clone(), Arc::clone(&healths));
            tasks.spawn(async move {
                let scope = cluster.scope_of(&object).await;
                if let Err(why) = &scope {
                    tracing::debug!(kind = object.kind, why, "how a kind is watched could not be found out");
                }
                healths.know_kind(&object, scope, Instant::now());
            });
        }
        let wanted = chosen(healths.wanted_watches(Instant::now()));
        open.retain(|watch, task| {
            let stays = wanted.chosen.contains(watch) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        if wanted.is_asked_left_out {
            tracing::warn!(
                "the health of some objects is looked at by their dispatches only: there would be more than \
                 {MAX_WATCHES} watches"
            );
        }
        healths.left_out(&wanted.left_out);
        for watch in wanted.chosen {
            let mut begin =
                |watch: &Watch| tasks.spawn(one(cluster.clone(), Arc::clone(&healths), watch.clone()));
            open.entry(watch.clone()).or_insert_with(|| begin(&watch));
        }
        tokio::select! {
            // Many dispatches may wait at about the same time.
            () = async { healths.watches.notified().await; sleep(GATHER).await } => {}
            Some(_) = tasks.join_next() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

/// Which watches there are.
#[derive(Debug, Default)]
struct Chosen {
    chosen: BTreeSet<Watch>,
    left_out: BTreeSet<Watch>,
    /// Some that are left out are asked for.
    is_asked_left_out: bool,
}

/// Those for which there is room, first what is asked for.
fn chosen(wanted: BTreeMap<Watch, bool>) -> Chosen {
    let mut all = Chosen::default();
    let (asked, unasked): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, is_asked)| *is_asked);
    let mut others = 0;
    for (watch, is_asked) in asked.into_iter().chain(unasked) {
        let has_room = all.chosen.len() < MAX_WATCHES && (is_asked || others < MAX_UNASKED);
        if has_room {
            others += usize::from(!is_asked);
            all.chosen.insert(watch);
        } else {
            all.is_asked_left_out |= is_asked;
            all.left_out.insert(watch);
        }
    }
    all
}

/// Watches until it is not allowed.
async fn one<C: Cluster>(cluster: C, healths: Arc<Healths>, watch: Watch) {
    let cluster = cluster.acting_as(watch.account.as_ref());
    let mut tell = |sight: Sight<Value>| healths.take(&watch, sight, Instant::now());
    let why = cluster.watch_whole(&watch.scope, &mut tell).await;
    let account = watch.account.as_ref().map(|account| format!("{}/{}", account.namespace, account.name));
    tracing::warn!(
        scope = %watch.scope, account, why,
        "health is looked at by dispatches only: what was applied cannot be watched"
    );
    healths.forbidden(&watch, Instant::now());
}
