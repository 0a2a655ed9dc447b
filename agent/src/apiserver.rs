//! Whether the cluster's apiserver answers this agent: what cannot be seen must not be taken for healthy.

use std::time::Duration;

use roadstead_model::chain;
use tokio::sync::watch;

use crate::home::Home;

/// How often it is asked, how soon again where it did not answer, and how long it may take to answer.
const ASK_EVERY: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(4);
/// Questions in a row that are not answered until it is said: the hub is to know within fifteen seconds, and a connection that
/// was cut once is nothing to tell.
const MISSED: u32 = 2;

/// Asks for as long as it runs, and tells why there is no answer, while that is so.
pub(crate) async fn watch(home: Home, told: watch::Sender<Option<String>>) {
    let mut missed = 0;
    loop {
        let answer = tokio::time::timeout(PATIENCE, home.is_ready()).await;
        let failure = match answer {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        missed = if failure.is_none() { 0 } else { missed + 1 };
        if failure.is_none() || missed >= MISSED {
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
        tokio::time::sleep(if missed == 0 { ASK_EVERY } else { ASK_AGAIN }).await;
    }
}
