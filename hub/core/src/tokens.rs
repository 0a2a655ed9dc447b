//! Whom bearer tokens stand for, remembered for a moment, so that a client's every request does not ask the database; and
//! a bound on how many look-ups there are at once, so that whoever makes tokens up cannot take it from others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_store::{Store, StoreError, TokenHash};
use tokio::sync::Semaphore;

use crate::Identity;

/// For so long a token that was taken back, or whose account is gone, may still be taken.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(2);

/// Tokens that are remembered: more than there are users at one time.
const MOST: usize = 10_000;

/// Look-ups at once.
const LOOKUPS: usize = 4;

pub(crate) struct Tokens {
    known: Mutex<HashMap<TokenHash, Known>>,
    lookups: Semaphore,
}

#[derive(Clone)]
struct Known {
    /// None for a token that stands for nobody.
    identity: Option<Identity>,
    until: Timestamp,
}

impl Known {
    /// Also where the clock was set back.
    fn holds(&self, now: Timestamp) -> bool {
        now < self.until && self.until <= now + REMEMBERED
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Self { known: Mutex::default(), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl Tokens {
    /// Whom a token stands for; none where it is not known, or has expired.
    ///
    /// # Errors
    /// Where the database fails.
    pub(crate) async fn identity(
        &self,
        store: &Store,
        text: &str,
        now: Timestamp,
    ) -> Result<Option<Identity>, StoreError> {
        let Some(hash) = TokenHash::of(text) else { return Ok(None) };
        if let Some(identity) = self.remembered(&hash, now) {
            return Ok(identity);
        }
        // It is never closed.
        let _turn = self.lookups.acquire().await;
        // Another request with this token may have asked meanwhile.
        if let Some(identity) = self.remembered(&hash, now) {
            return Ok(identity);
        }
        let user = store.token_user(&hash, now).await?;
        let remembered = now + REMEMBERED;
        let until =
            user.as_ref().and_then(|user| user.expires_at).map_or(remembered, |end| end.min(remembered));
        let identity =
            user.map(|user| Identity { username: user.username, groups: user.groups, impersonator: None });
        self.remember(hash, Known { identity: identity.clone(), until }, now);
        Ok(identity)
    }

    fn remembered(&self, hash: &TokenHash, now: Timestamp) -> Option<Option<Identity>> {
        // A panic while it is held leaves the map whole.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|known| known.holds(now)).map(|known| known.identity.clone())
    }

    fn remember(&self, hash: TokenHash, one: Known, now: Timestamp) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, known| known.holds(now));
        }
        // Where strangers' tokens have filled it, nothing more is remembered until theirs are forgotten.
        if known.len() < MOST {
            known.insert(hash, one);
        }
    }
}
