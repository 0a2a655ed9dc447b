//! How often an agent may do what leaves traces: each session is written to the database and to the log, and so are lines of
//! warning about what an agent says.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use roadstead_model::ClusterUid;
use tokio::time::Instant;

/// Clusters that are remembered before those are forgotten that have been quiet.
const REMEMBERED: usize = 1024;

/// So many at once, and one more after each of these spans.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) at_once: u32,
    pub(crate) then: Duration,
}

/// An agent that comes back at once every time is told so, after it did for a minute.
pub(crate) const SESSIONS: Pace = Pace { at_once: 30, then: Duration::from_secs(2) };
/// Lines of warning.
pub(crate) const WARNINGS: Pace = Pace { at_once: 10, then: Duration::from_secs(30) };

/// What each cluster has left of a pace.
#[derive(Debug)]
pub(crate) struct Paces {
    pace: Pace,
    clusters: Mutex<HashMap<ClusterUid, Left>>,
}

#[derive(Debug, Clone, Copy)]
struct Left {
    /// When the whole of it is there again.
    full: Instant,
    /// What was not let through since something was.
    missed: u64,
}

impl Paces {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, clusters: Mutex::default() }
    }

    /// Whether this one may be; then how many were not let through since the last that was.
    pub(crate) fn next(&self, cluster: ClusterUid) -> Option<u64> {
        let now = Instant::now();
        // Whole at any time: a panic elsewhere does not spoil it.
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if clusters.len() >= REMEMBERED {
            clusters.retain(|_, left| left.full > now || left.missed > 0);
        }
        let left = clusters.entry(cluster).or_insert(Left { full: now, missed: 0 });
        let full = left.full.max(now) + self.pace.then;
        if full > now + self.pace.then * self.pace.at_once {
            left.missed += 1;
            return None;
        }
        left.full = full;
        Some(std::mem::take(&mut left.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_at_once_and_then_one_after_the_other() {
        let pace = Pace { at_once: 3, then: Duration::from_secs(10) };
        let paces = Paces::new(pace);
        let cluster = |number| ClusterUid(uuid::Uuid::from_u128(number));
        let told: Vec<_> = (0..5).map(|_| paces.next(cluster(1))).collect();
        assert_eq!(told, [Some(0), Some(0), Some(0), None, None]);
        // Another one's are its own.
        assert_eq!(paces.next(cluster(2)), Some(0));
        tokio::time::sleep(pace.then).await;
        assert_eq!([paces.next(cluster(1)), paces.next(cluster(1))], [Some(2), None]);
        tokio::time::sleep(pace.then * 10).await;
        let told = (0..5).filter(|_| paces.next(cluster(1)).is_some()).count();
        assert_eq!(told, 3);
    }
}
