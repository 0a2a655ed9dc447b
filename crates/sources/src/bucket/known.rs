//! What is known of a bucket's server from earlier looks: how it let us in, and where the bucket is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::HeaderValue;
use roadstead_signing::AwsKeys;

/// What was given in exchange for credentials, and for how long.
#[derive(Clone)]
pub(super) enum Given {
    /// Keys of a session.
    Keys(AwsKeys),
    /// An `Authorization` header, marked as sensitive.
    Bearer(HeaderValue),
}

#[derive(Default)]
struct Kept {
    given: Option<(Given, Instant)>,
    region: Option<String>,
}

/// What is known of a bucket's server. Clones share it. To be forgotten where the spec or the credentials are others.
#[derive(Clone, Default)]
pub struct KnownBucket(Arc<Mutex<Kept>>);

impl KnownBucket {
    fn kept<T>(&self, with: impl FnOnce(&mut Kept) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn given(&self, now: Instant) -> Option<Given> {
        self.kept(|kept| {
            kept.given.take_if(|(_, until)| *until <= now);
            kept.given.as_ref().map(|(given, _)| given.clone())
        })
    }

    pub(super) fn keep(&self, given: Option<(Given, Instant)>) {
        self.kept(|kept| kept.given = given);
    }

    pub(super) fn region(&self) -> Option<String> {
        self.kept(|kept| kept.region.clone())
    }

    pub(super) fn is_in(&self, region: &str) {
        self.kept(|kept| kept.region = Some(region.to_owned()));
    }
}

impl std::fmt::Debug for KnownBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownBucket")
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Given, HeaderValue, KnownBucket};

    #[test]
    fn what_was_given_is_used_until_it_ends() {
        let (known, now) = (KnownBucket::default(), Instant::now());
        assert!(known.given(now).is_none());
        let until = now + Duration::from_secs(60);
        known.clone().keep(Some((Given::Bearer(HeaderValue::from_static("Bearer secret")), until)));
        assert!(known.given(now + Duration::from_secs(59)).is_some());
        assert!(known.given(until).is_none() && known.given(now).is_none());
        assert!(!format!("{known:?}").contains("secret"));
    }
}
