//! The watches that tell how what was waited for is: opened and ended as what is followed changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roadstead_apply::Sight;
use serde_json::Value;
use tokio::time::Instant;

use super::Healths;
use crate::cluster::Cluster;
use crate::tend::Watch;
use crate::watching::OpenWatches;

/// How many watches there are at once. What is not watched is looked at by its dispatches. Each may hold the largest event that there
/// can be, of a megabyte and a half.
const MAX_WATCHES: usize = 64;

/// How many of them there are for objects whose health nobody asks for.
const MAX_UNASKED: usize = 24;

/// Watches what is followed, for as long as it runs.
pub(crate) async fn keep<C: Cluster>(cluster: C, healths: Arc<Healths>) {
    let mut open = OpenWatches::default();
    loop {
        for object in healths.unknown_kinds(Instant::now()) {
            let (cluster, healths) = (cluster.clone(), Arc::clone(&healths));
            open.beside(async move {
                let scope = cluster.scope_of(&object).await;
                if let Err(why) = &scope {
                    tracing::debug!(kind = object.kind, why, "how a kind is watched could not be found out");
                }
                healths.know_kind(&object, scope, Instant::now());
            });
        }
        let Chosen { chosen, left_out, is_asked_left_out } = chosen(healths.wanted_watches(Instant::now()));
        if is_asked_left_out {
            tracing::warn!(
                "the health of some objects is looked at by their dispatches only: there would be more than \
                 {MAX_WATCHES} watches"
            );
        }
        healths.left_out(&left_out);
        // So many are chosen at most.
        open.set(chosen, MAX_WATCHES, |watch| one(cluster.clone(), Arc::clone(&healths), watch));
        open.rest(&healths.watches).await;
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
    tracing::warn!(
        scope = %watch.scope, account = watch.account_name(), why,
        "health is looked at by dispatches only: what was applied cannot be watched"
    );
    healths.forbidden(&watch, Instant::now());
}
