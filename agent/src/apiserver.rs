//! Whether the cluster's apiserver answers this agent: what cannot be seen must not be taken for healthy.

use std::time::Duration;

use roadstead_model::chain;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::home::Home;

/// How often it is asked, how soon it is asked again where it did not answer, and how long an answer may take.
const ASK_EVERY: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);
/// How long after the first unanswered question it is reported: the hub must know within fifteen seconds, and a shorter outage is not
/// worth a report.
const TOLERATED: Duration = Duration::from_secs(6);

/// Asks for as long as it runs, and reports why there is no answer while that is so.
pub(crate) async fn watch(home: Home, told: watch::Sender<Option<String>>) {
    let mut silent_since = None;
    loop {
        let asked = Instant::now();
        let answer = tokio::time::timeout(PATIENCE, home.is_ready()).await;
        let failure = match answer {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        if failure.is_none() {
            silent_since = None;
        } else {
            silent_since.get_or_insert(asked);
        }
        if silent_since.is_none_or(|since| since.elapsed() >= TOLERATED) {
            told.send_if_modified(|before| {
                // Why it does not answer may change with each question; that it does not is told once.
                let changed = before.is_some() != failure.is_some();
                if changed {
                    match &failure {
                        Some(why) => tracing::warn!(why, "the apiserver does not answer"),
                        None => tracing::info!("the apiserver answers again"),
                    }
                    before.clone_from(&failure);
                }
                changed
            });
        }
        tokio::time::sleep(if silent_since.is_none() { ASK_EVERY } else { ASK_AGAIN }).await;
    }
}
