//! Tokens of versions that made such without an end: they were given one, and until then their uses are counted and told.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::metrics::counter::Counter;

use crate::HubError;
use crate::identity::Authenticator;
use crate::identity::issuers::Told;
use crate::identity::tokens::OldToken;
use crate::meters::Meters;

/// After an upgrade they go on for so long.
const GRACE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Their uses since the start of the process.
pub(super) struct OldTokenUses {
    count: Counter,
    told: Mutex<Told>,
}

impl OldTokenUses {
    pub(super) fn new(meters: &Meters) -> Self {
        Self { count: meters.old_tokens(), told: Mutex::default() }
    }

    /// Counts one. Of many in a minute only some are told.
    pub(super) fn count(&self, token: &OldToken, username: &str, now: Timestamp) {
        let uses = self.count.inc().saturating_add(1);
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).tell(now);
        if let Some(untold) = told {
            let until = token.until.map(|until| until.to_string()).unwrap_or_default();
            tracing::warn!(
                token = %token.id,
                username,
                until,
                uses,
                untold,
                "a token of a version that made tokens without an end is used: create another one with `roadstead token create`, and \
                 revoke this one with `roadstead token revoke`"
            );
        }
    }

    pub(super) fn uses(&self) -> u64 {
        self.count.get()
    }
}

impl Authenticator {
    /// Gives tokens that have no end one in 30 days. To be done at start: where it was done before, there are none left.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn end_endless_tokens(&self) -> Result<(), HubError> {
        let until = self.clock.now() + GRACE;
        let tokens = self.store.end_endless_tokens(until).await?;
        if tokens > 0 {
            tracing::warn!(
                tokens,
                %until,
                "tokens that an older version made without an end are taken until then: see `roadstead token list`, create new ones with \
                 `roadstead token create`, and revoke the old ones with `roadstead token revoke`"
            );
        }
        Ok(())
    }
}
