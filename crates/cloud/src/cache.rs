//! Tokens that services gave out, kept until shortly before they expire.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A token is not used when it has less time left than this.
const MARGIN: Duration = Duration::from_secs(60);
/// How long one counts that does not say when it expires.
pub const UNSAID: Duration = Duration::from_secs(300);
/// Tokens of one kind, where nothing else is said: files choose roles and regions.
const MOST: usize = 64;

/// Tokens by what they are for.
pub struct Cache<T> {
    most: usize,
    kept: Mutex<HashMap<String, (T, Instant)>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self::of(MOST)
    }
}

impl<T> Cache<T> {
    /// Of so many tokens at most.
    #[must_use]
    pub fn of(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }
}

impl<T: Clone> Cache<T> {
    /// One that is still of use.
    pub fn get(&self, name: &str) -> Option<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        kept.retain(|_, (_, until)| *until > now);
        kept.get(name).map(|(token, _)| token.clone())
    }

    /// Forgets all, for one of them was refused.
    pub fn clear(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps one that lasts so long: for four fifths of that, and not in its last minute.
    pub fn put(&self, name: String, token: T, lasts: Duration) {
        /// Nobody gives out longer ones, and clocks cannot be asked for any time.
        const LONGEST: Duration = Duration::from_secs(24 * 3600);
        let lasts = lasts.min(LONGEST);
        let used = (lasts * 4 / 5).min(lasts.saturating_sub(MARGIN));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        kept.retain(|_, (_, until)| *until > now);
        if !used.is_zero() && (kept.len() < self.most || kept.contains_key(&name)) {
            kept.insert(name, (token, now + used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_kept_for_four_fifths_of_their_life() {
        let cache = Cache::default();
        let until =
            |name: &str| cache.kept.lock().unwrap().get(name).map(|(_, until)| *until - Instant::now());
        cache.put("hour".into(), 1, Duration::from_secs(3600));
        cache.put("minutes".into(), 1, Duration::from_secs(120));
        assert!(until("hour").is_some_and(|left| (2870..=2880).contains(&left.as_secs())));
        assert!(until("minutes").is_some_and(|left| (50..=60).contains(&left.as_secs())));
    }

    #[test]
    fn tokens_are_kept_until_shortly_before_they_expire() {
        let cache = Cache::default();
        cache.put("long".into(), 1, Duration::from_secs(3600));
        cache.put("forever".into(), 2, Duration::MAX);
        cache.put("short".into(), 3, Duration::from_secs(59));
        assert_eq!((cache.get("long"), cache.get("forever"), cache.get("short")), (Some(1), Some(2), None));
        for index in 0..100 {
            cache.put(index.to_string(), 0, Duration::from_secs(3600));
        }
        assert!(cache.kept.lock().is_ok_and(|kept| kept.len() == MOST));
    }
}
