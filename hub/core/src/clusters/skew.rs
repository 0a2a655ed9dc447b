//! What is said where the clocks of agents, replicas and the database differ.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use roadstead_api::{ClusterStatus, ConditionStatus};
use roadstead_model::Reason;

use crate::clusters::Sessions;
use crate::objects::conditions;

/// The type of the condition that is there, and False, while an agent's clock and the hub's differ.
const CLOCK: &str = "ClockInSync";

/// Seconds by which an agent's clock may differ from the hub's.
const TOLERATED_OF_AGENTS: i64 = 60;

/// Seconds by which a replica's clock may differ from the database's.
const TOLERATED_OF_REPLICAS: u64 = 30;

impl Sessions {
    /// Says so where this replica's clock is off; once, and when that is over.
    pub(crate) fn warn_of_the_clock(&self, database: Timestamp) {
        let apart = self.clock.now().as_second().saturating_sub(database.as_second());
        let is_off = apart.unsigned_abs() > TOLERATED_OF_REPLICAS;
        if self.clock_is_off.swap(is_off, Ordering::Relaxed) == is_off {
            return;
        }
        if is_off {
            tracing::warn!(
                seconds_ahead = apart,
                "this replica's clock and the database's differ: synchronize both with NTP. Tokens and certificates are \
                 checked against the replica's clock"
            );
        } else {
            tracing::info!("this replica's clock and the database's agree again");
        }
    }
}

/// Says whether an agent's clock is right, where that is or was not so.
pub(crate) fn note_skew(
    status: &mut ClusterStatus,
    agent: Option<Timestamp>,
    name: &str,
    generation: i64,
    now: Timestamp,
) {
    match agent.and_then(|agent| skew(now, agent)) {
        None => status.conditions.retain(|condition| condition.type_ != CLOCK),
        Some(message) => {
            tracing::warn!(cluster = name, message, "the agent's clock and the hub's differ");
            let (is, reason) = (ConditionStatus::False, Reason::ClockSkewed);
            conditions::set(&mut status.conditions, CLOCK, is, reason, &message, generation, now);
        }
    }
}

/// What is wrong with an agent's clock, where it is far enough from the hub's.
fn skew(hub: Timestamp, agent: Timestamp) -> Option<String> {
    let seconds = agent.as_second().saturating_sub(hub.as_second());
    let (apart, which) = (seconds.unsigned_abs(), if seconds < 0 { "behind" } else { "ahead of" });
    (seconds.abs() > TOLERATED_OF_AGENTS).then(|| {
        format!(
            "the clock of the agent's node is {apart} s {which} the hub's: synchronize both with NTP. Either clock is used \
             to check certificates and to write logs"
        )
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::skew;

    #[test]
    fn clocks_that_differ() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        assert_eq!(skew(at(0), at(60)), None);
        assert!(skew(at(0), at(3600)).is_some_and(|why| why.contains("3600 s ahead of the hub's")));
        assert!(skew(at(3600), at(0)).is_some_and(|why| why.contains("3600 s behind the hub's")));
    }
}
