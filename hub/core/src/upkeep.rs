//! The schedule as the tasks see it, and the housekeeping that keeps tables small.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use crate::{Claim, Due, Hub, HubError, Queue};

/// How often housekeeping runs.
pub const UPKEEP_PERIOD: Duration = Duration::from_secs(60);
/// A pass takes milliseconds, a fetch up to its timeout. A replica that dies is noticed long before.
const LEASE: Duration = Duration::from_secs(15 * 60);
/// Attempts that are kept of each Kustomization.
const KEPT_ATTEMPTS: i64 = 20;
/// Artifacts and builds that nothing uses are kept this long, for a way back.
const KEPT_BLOBS: Duration = Duration::from_secs(24 * 3600);
/// Events are kept this long after they last happened.
const KEPT_EVENTS: Duration = Duration::from_secs(3600);
/// Changes that a watch can still ask for: all of the last hour, and the newest of these however old.
const KEPT_CHANGES: Duration = Duration::from_secs(3600);
const KEPT_CHANGES_AT_LEAST: i64 = 10_000;

impl Hub {
    /// Claims passes that are due; of those that may have ended a replica ([`Claim::is_suspect`]) one at most, and none
    /// without a [`Hub::place_for_suspects`].
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn claim_due(&self, queue: Queue, limit: usize, suspect: bool) -> Result<Due, HubError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let suspect = suspect && limit > 0;
        Ok(self.store.claim_due(queue, self.replica, self.now(), LEASE, limit, suspect).await?)
    }

    /// The one place in this process for a pass that may end it. Were there two of them at once, none would be known to be
    /// the one.
    #[must_use]
    pub fn place_for_suspects(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.suspects).try_acquire_owned().ok()
    }

    /// Gives a claim back; the next pass is at `next` at the latest.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn release_claim(&self, claim: Claim, next: Timestamp) -> Result<(), HubError> {
        Ok(self.store.release(self.replica, claim, next).await?)
    }

    /// Drops what nobody needs any more.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tidy(&self) -> Result<(), HubError> {
        self.store.trim_reconciliations(KEPT_ATTEMPTS).await?;
        self.store.forget_set_aside(self.now()).await?;
        self.store.drop_expired_tokens(self.now()).await?;
        self.drop_old_events(self.now() - KEPT_EVENTS).await?;
        self.store.drop_unused_blobs(self.now() - KEPT_BLOBS).await?;
        self.compact_changes(KEPT_CHANGES, KEPT_CHANGES_AT_LEAST).await?;
        self.tend_audit().await?;
        Ok(())
    }
}
