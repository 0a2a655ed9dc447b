//! How much of what they change users may write into the log: that something was changed is always there, and what it was as far as
//! there is room.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Bytes of changes of one user in a minute.
const OF_ONE_USER: usize = 1 << 20;
/// Users that are told apart; all beyond are as one.
const MOST: usize = 1_024;

/// What is told of a change.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// Its fields, as they are stored.
    pub(crate) text: String,
    /// Which parts of the object they are of, for where there is no room for the fields.
    pub(crate) parts: String,
}

/// What was used of it in this minute.
#[derive(Default)]
pub(super) struct Allowance(Mutex<Used>);

#[derive(Default)]
struct Used {
    until: Timestamp,
    by: HashMap<String, usize>,
}

impl Allowance {
    /// Whether so many bytes more may be written for a user, which are then used.
    pub(super) fn take(&self, user: &str, bytes: usize, now: Timestamp) -> bool {
        // A panic while it is held leaves the counts whole.
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= used.until {
            used.by.clear();
            used.until = now.saturating_add(SignedDuration::from_mins(1)).unwrap_or(now);
        }
        // Appliers are users by their revision, too.
        let user = user
            .split_once('@')
            .filter(|(name, _)| name.starts_with("system:"))
            .map_or(user, |(name, _)| name);
        let user = if used.by.len() >= MOST && !used.by.contains_key(user) { "" } else { user };
        let own = used.by.entry(user.to_owned()).or_default();
        if own.saturating_add(bytes) > OF_ONE_USER {
            return false;
        }
        *own += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_changes_are_bounded_and_nobody_elses() {
        let (allowance, start) = (Allowance::default(), Timestamp::UNIX_EPOCH);
        let most = |user: &str, now| (0..10_000).filter(|_| allowance.take(user, 8_192, now)).count();
        assert_eq!(most("mallory", start), OF_ONE_USER / 8_192);
        assert!(allowance.take("alice", 8_192, start));
        assert_eq!(most("mallory", start + SignedDuration::from_secs(61)), OF_ONE_USER / 8_192);
        let applier = |n: usize| format!("system:roadstead:kustomization:apps:web@main/{n}");
        let now = start + SignedDuration::from_secs(61);
        let taken = (0..1_000).filter(|n| allowance.take(&applier(*n), 8_192, now)).count();
        assert_eq!(taken, OF_ONE_USER / 8_192);
        for user in 0..100_000 {
            allowance.take(&user.to_string(), 1, now);
        }
        assert!(allowance.0.lock().unwrap().by.len() <= MOST + 1);
    }
}
