//! What an agent does not do, and why: an operator of its cluster has paused it, it is not allowed to watch what it applied, or it could
//! not go on with it after a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_model::chain;
use roadstead_proto::limits::MAX_UNWATCHED;
use roadstead_proto::{AgentState, Unwatched};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::home::Home;
use crate::runner::Runner;

/// How often it is looked. A pause is in force at once, whatever is told of it here.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks for as long as it runs.
pub(crate) async fn watch<C: Cluster>(home: Home, runner: Runner<C>, told: watch::Sender<AgentState>) {
    let mut is_paused = false;
    loop {
        // Where it cannot be read, it is what it was: the policy that is read before anything is done says why.
        match timeout(PATIENCE, home.is_paused()).await {
            Ok(Ok(paused)) => is_paused = paused,
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "cannot tell whether the agent is paused");
            }
            Err(_) => {
                tracing::debug!("cannot tell whether the agent is paused: the apiserver does not answer");
            }
        }
        let state = state(is_paused, runner.unwatched(), runner.going_on());
        told.send_if_modified(|before| {
            let changed = *before != state;
            before.clone_from(&state);
            changed
        });
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is not watched, by kind, namespace and account, each with why; the first of it are named. And how many appliers go on after a
/// restart without a hub: corrected, and only watched.
fn state(
    paused: bool,
    unwatched: BTreeMap<(String, Option<String>), String>,
    (corrected, watched): (usize, usize),
) -> AgentState {
    let total = unwatched.len();
    let named = unwatched.into_iter().take(MAX_UNWATCHED);
    let unwatched = named.map(|((what, account), why)| Unwatched { what, account, why }).collect();
    AgentState { paused, unwatched, total, corrected, watched }
}
