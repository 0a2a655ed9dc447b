//! How often somebody may do something: some times at once, and then one time after the other.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Those that are remembered before those are forgotten that have been quiet.
const REMEMBERED: usize = 1024;
/// Those that are remembered at all. Beyond, whoever is the next to have all of it again is forgotten first.
const MOST: usize = 4 * REMEMBERED;

/// So many at once, and one more after each of these spans.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How many.
    pub at_once: u32,
    /// The span.
    pub then: Duration,
}

/// What each of them has left of a pace.
#[derive(Debug)]
pub struct Paces<K> {
    pace: Pace,
    left: Mutex<HashMap<K, Left>>,
}

#[derive(Debug, Clone, Copy)]
struct Left {
    /// When the whole of it is there again.
    full: Instant,
    /// What was not let through since something was.
    missed: u64,
}

impl<K: Copy + Eq + Hash> Paces<K> {
    /// With this pace for each.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, left: Mutex::default() }
    }

    /// Whether this one may; then how many were not let through since the last that was.
    pub fn next(&self, who: K) -> Option<u64> {
        let now = Instant::now();
        // Whole at any time: a panic elsewhere does not spoil it.
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED {
            all.retain(|_, left| left.full > now || left.missed > 0);
        }
        if all.len() >= MOST
            && !all.contains_key(&who)
            && let Some(quietest) = all.iter().min_by_key(|(_, left)| left.full).map(|(who, _)| *who)
        {
            all.remove(&quietest);
        }
        let left = all.entry(who).or_insert(Left { full: now, missed: 0 });
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
        let told: Vec<_> = (0..5).map(|_| paces.next(1)).collect();
        assert_eq!(told, [Some(0), Some(0), Some(0), None, None]);
        // Another one's are its own.
        assert_eq!(paces.next(2), Some(0));
        tokio::time::sleep(pace.then).await;
        assert_eq!([paces.next(1), paces.next(1)], [Some(2), None]);
        tokio::time::sleep(pace.then * 10).await;
        let told = (0..5).filter(|_| paces.next(1).is_some()).count();
        assert_eq!(told, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_come_so_many_are_remembered() {
        let paces = Paces::new(Pace { at_once: 1, then: Duration::from_secs(10) });
        for who in 0..3 * MOST {
            assert_eq!(paces.next(who), Some(0));
            assert_eq!(paces.next(who), None);
        }
        assert!(paces.left.lock().unwrap().len() <= MOST);
        // The newest has not been forgotten.
        assert_eq!(paces.next(3 * MOST - 1), None);
    }
}
