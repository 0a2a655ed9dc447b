//! Tokens that services gave out, kept until shortly before they expire.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A token is not used when it has less time left than this.
const MARGIN: Duration = Duration::from_secs(60);
/// How long one counts that does not say when it expires.
pub(crate) const UNSAID: Duration = Duration::from_secs(300);
/// Tokens of one kind: files choose roles and regions.
const MOST: usize = 64;

/// Tokens by what they are for.
pub(crate) struct Cache<T>(Mutex<HashMap<String, (T, Instant)>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Cache<T> {
    pub(crate) fn get(&self, name: &str) -> Option<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        kept.retain(|_, (_, until)| *until > now + MARGIN);
        kept.get(name).map(|(token, _)| token.clone())
    }

    /// Forgets all, for one of them was refused.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn put(&self, name: String, token: T, lasts: Duration) {
        /// Nobody gives out longer ones, and clocks cannot be asked for any time.
        const LONGEST: Duration = Duration::from_secs(24 * 3600);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST {
            kept.insert(name, (token, Instant::now() + lasts.min(LONGEST)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(cache.0.lock().is_ok_and(|kept| kept.len() == MOST));
    }
}
