//! `spec.pin`: an applier that stays at a revision while its source moves on. Where the hub does not have that revision, the applier's
//! pass asks for it, and the source's pass fetches it.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{AnySource, ConditionStatus, Reference};
use roadstead_hub_plan::{Source, has_happened};
use roadstead_hub_store::{KeptArtifact, Stored};
use roadstead_model::{Queue, ResourceUid, Revision};

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::seen::SeenApplier;
use crate::delivery::situation::shown;
use crate::objects::conditions;

/// A revision that could not be fetched is tried again after this, or after the applier's own retry interval, where that is shorter.
const AGAIN: Duration = Duration::from_secs(60);

/// A source at a revision that is to be fetched.
pub(crate) struct WantedRevision {
    source: ResourceUid,
    revision: Revision,
    /// When it could not be fetched, where that was tried.
    failed: Option<Timestamp>,
}

impl Delivery {
    /// What a source had at a revision, and what is to be fetched where it is not stored.
    pub(super) async fn pinned(
        &self,
        reference: &Reference,
        source: &Stored,
        pin: &str,
    ) -> Result<(Source, Option<WantedRevision>), HubError> {
        let asked = format!("revision {pin} of {}, which spec.pin names,", shown(reference));
        let none = |why: &str| Source::Unusable(format!("{asked} is not available: {why}"));
        let Ok(revision) = pin.parse::<Revision>() else { return Ok((none("it is not a revision"), None)) };
        let failed = match self.store.kept_artifact(source.uid, &revision, self.clock.now()).await? {
            Some(KeptArtifact::Stored(digest)) => return Ok((Source::Artifact { revision, digest }, None)),
            Some(KeptArtifact::Failed(why, at)) => Some((why, at)),
            Some(KeptArtifact::Wanted) | None => None,
        };
        let AnySource { spec, status, .. } = source.decode()?;
        let status = status.unwrap_or_default().source;
        let fails =
            conditions::ready(&status.conditions).filter(|ready| ready.status == ConditionStatus::False);
        let found = match (&failed, fails) {
            (Some((why, _)), _) => none(why),
            (None, _) if spec.suspend => none("the source is suspended; resume it to have it fetched"),
            (None, Some(fails)) => none(&fails.message),
            (None, None) => Source::Fetching(format!("{asked} is being fetched")),
        };
        let wanted = WantedRevision { source: source.uid, revision, failed: failed.map(|(_, at)| at) };
        Ok((found, (!spec.suspend).then_some(wanted)))
    }

    /// Has a revision fetched. One that could not be fetched is tried again after a while, or when somebody asks for a
    /// reconciliation.
    pub(super) async fn want(
        &self,
        seen: &SeenApplier,
        wanted: &WantedRevision,
        now: Timestamp,
    ) -> Result<(), HubError> {
        let request = &seen.situation.request;
        let asked = request.is_some() && *request != seen.status().last_handled_reconcile_at;
        let wait = seen.situation.retry_interval.min(AGAIN);
        // A clock that was put back holds nothing up.
        let again = |at: Timestamp| asked || now >= at + wait || !has_happened(at, now);
        if !wanted.failed.is_none_or(again) {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        if tx.want_artifact(wanted.source, &wanted.revision, now).await? {
            tx.enqueue(Queue::Source, &[wanted.source]).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
