//! The housekeeping that keeps tables small.

use std::time::Duration;

use crate::{Hub, HubError, KeptArtifacts, KeptAttempts};

/// How often housekeeping runs.
pub const UPKEEP_PERIOD: Duration = Duration::from_secs(60);
/// An artifact that was superseded is perhaps being built of for this long: longer than any build takes.
const IN_USE: Duration = Duration::from_secs(15 * 60);
/// Builds that nothing uses are kept this long, for a way back.
const KEPT_BLOBS: Duration = Duration::from_secs(24 * 3600);
/// What remote resources held is kept this long after its last check.
const KEPT_REMOTES: Duration = Duration::from_secs(7 * 24 * 3600);
/// Events are kept this long after they last happened.
const KEPT_EVENTS: Duration = Duration::from_secs(3600);
/// Changes that a watch can still ask for: all of the last hour, and the newest of these however old.
const KEPT_CHANGES: Duration = Duration::from_secs(3600);
const KEPT_CHANGES_AT_LEAST: i64 = 10_000;

/// Deliveries are kept this long after they ended, and of each Alert so many.
const KEPT_DELIVERIES: Duration = Duration::from_secs(7 * 24 * 3600);
const KEPT_DELIVERIES_OF_ONE: i64 = 1_000;

/// Corrected objects that are kept of each applier.
const KEPT_DRIFT: i64 = 100;

impl Hub {
    /// Drops what nobody needs any more.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tidy(&self) -> Result<(), HubError> {
        let KeptAttempts { most, age } = self.context.options.kept_attempts;
        let since = age.map(|age| self.now() - age);
        // First: whatever else cannot be tidied keeps no entry from being dropped for its age.
        self.audit.tend().await?;
        self.context.store.trim_reconciliations(i64::from(most), since).await?;
        self.context.store.trim_drift(KEPT_DRIFT).await?;
        self.context.store.forget_resting().await?;
        self.context.store.forget_set_aside(self.now()).await?;
        self.context.store.forget_build_turns(self.now()).await?;
        self.context.store.drop_expired_tokens(self.now()).await?;
        self.sign_in.drop_ended().await?;
        self.identity.tend_account_keys().await?;
        self.context.store.drop_old_requests(self.now() - KEPT_BLOBS).await?;
        self.objects.drop_old_events(self.now() - KEPT_EVENTS).await?;
        self.context.store.forget_remote_resources(self.now() - KEPT_REMOTES).await?;
        self.context.store.trim_deliveries(self.now() - KEPT_DELIVERIES, KEPT_DELIVERIES_OF_ONE).await?;
        let KeptArtifacts { most, age } = self.context.options.kept_artifacts;
        // No sooner than who was about to build of one has done so.
        let artifacts = self.now() - age.max(IN_USE);
        self.context.store.drop_unused_blobs(self.now() - KEPT_BLOBS, artifacts).await?;
        self.context.store.trim_artifacts(i64::from(most), self.now() - IN_USE).await?;
        self.objects.compact_changes(KEPT_CHANGES, KEPT_CHANGES_AT_LEAST).await?;
        Ok(())
    }

    /// Takes what is noted in what is the future to be now: the clock was put back since, of this replica or of one that is gone, and would hold up passes by as much. Says whether
    /// there was anything.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn mend_clock(&self) -> Result<bool, HubError> {
        let objects = self.schedule.mend().await?;
        self.builds.mend_turns().await?;
        if objects > 0 {
            tracing::warn!(
                objects,
                "the clock was set back: passes that were planned by the later time are planned again from now on"
            );
        }
        Ok(objects > 0)
    }

    /// Sees whether the object store with the artifacts works, and removes from it what nobody needs. Apart from [`Self::tidy`], which a store
    /// that is slow must not hold up.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tend_artifact_store(&self) -> Result<(), HubError> {
        Box::pin(self.context.store.sweep_artifacts(self.now())).await?;
        Ok(())
    }
}
