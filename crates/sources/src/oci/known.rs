//! How a registry last let us in: with it a look at what has not changed is one request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::HeaderValue;

/// What an `Authorization` header may be used for, and how long.
#[derive(Clone)]
pub(super) struct Pass {
    /// Marked as sensitive; none where the registry wants none.
    pub(super) header: HeaderValue,
    /// None for a password.
    pub(super) until: Option<Instant>,
}

/// What is known of a registry by one source's credentials. Clones share it. To be forgotten where the URL or the credentials
/// are others.
#[derive(Clone, Default)]
pub struct KnownRegistry(Arc<Mutex<Option<Pass>>>);

impl KnownRegistry {
    pub(super) fn pass(&self, now: Instant) -> Option<HeaderValue> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_some_and(|pass| pass.until.is_some_and(|until| until <= now)) {
            *kept = None;
        }
        kept.as_ref().map(|pass| pass.header.clone())
    }

    pub(super) fn keep(&self, pass: Option<Pass>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pass;
    }
}

impl std::fmt::Debug for KnownRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownRegistry")
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{HeaderValue, KnownRegistry, Pass};

    #[test]
    fn a_pass_is_used_until_it_ends() {
        let (registry, now) = (KnownRegistry::default(), Instant::now());
        assert!(registry.pass(now).is_none());
        let until = Some(now + Duration::from_secs(60));
        registry.clone().keep(Some(Pass { header: HeaderValue::from_static("Bearer x"), until }));
        assert!(registry.pass(now + Duration::from_secs(59)).is_some());
        assert!(registry.pass(now + Duration::from_secs(60)).is_none());
        assert!(!format!("{registry:?}").contains('x'));
    }
}
