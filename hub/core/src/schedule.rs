//! The schedule as the tasks see it: passes are claimed, made and released; one that ends the process that makes it is set aside.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{AnyApplier, AnySource, ConditionStatus, Reference};
use roadstead_hub_store::{Store, Stored};
use roadstead_model::{Claim, Digest, Due, Queue, Reason, ReplicaId, ResourceUid, Room};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::HubError;
use crate::clock::{Clock, MOST_APART};
use crate::context::Context;
use crate::delivery::reconcile::{set_ready, write_status};
use crate::objects::conditions::{self, READY};
use crate::objects::{events, status, triggers};
use crate::quarantine::{Quarantine, told};

/// A pass takes milliseconds, a fetch up to its timeout. A replica that dies is noticed long before.
const LEASE: Duration = Duration::from_secs(15 * 60);
/// So many passes in a row of which nothing came but the end of the process: others that were under way at the same time
/// are not to blame for it, so that one or two prove nothing.
const MOST_LOST: i32 = 3;

/// What is due.
pub struct Schedule {
    store: Store,
    clock: Arc<dyn Clock>,
    replica: ReplicaId,
    suspects: Arc<Semaphore>,
    quarantine: Arc<Quarantine>,
}

impl Schedule {
    pub(crate) fn new(context: &Context, quarantine: &Arc<Quarantine>) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            replica: context.replica,
            suspects: Arc::new(Semaphore::new(1)),
            quarantine: Arc::clone(quarantine),
        }
    }

    /// Claims passes that are due, as many as there is room for; of those that may have ended a replica ([`Claim::is_suspect`]) one at most, and
    /// none without a [`Self::place_for_suspects`].
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn claim_due(&self, queue: Queue, room: &Room) -> Result<Due, HubError> {
        Ok(self.store.claim_due(queue, self.replica, self.clock.now(), LEASE, room).await?)
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
        Ok(self.store.release(self.replica, claim, next, self.clock.now()).await?)
    }

    /// Whether this pass is not to be taken because those before it never came back; then, when the next pass is due.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn leave_alone(&self, queue: Queue, claim: Claim) -> Result<Option<Timestamp>, HubError> {
        if !claim.is_suspect() {
            return Ok(None);
        }
        let Some(stored) = self.store.get_by_uid(claim.uid).await? else { return Ok(None) };
        let inputs = self.inputs_of(queue, &stored).await?;
        if let Some(aside) = self.quarantine.find(inputs).await? {
            return Ok(Some(aside.until));
        }
        if claim.lost < MOST_LOST {
            return Ok(None);
        }
        let why = format!(
            "the hub's process crashed {MOST_LOST} times in a row while processing this object; see the logs of those \
             crashes"
        );
        let aside = self.quarantine.put(inputs, why).await?;
        self.tell_set_aside(claim.uid, &told(&aside)).await?;
        tracing::error!(
            ?queue,
            object = format!("{}/{}", stored.namespace, stored.name),
            until = %aside.until,
            "an object is set aside: the hub's process crashed while processing it"
        );
        Ok(Some(aside.until))
    }

    /// Gives a claim back without a pass: what counts against its object stays, so that one more lost pass is enough.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn release_untaken(&self, claim: Claim, next: Timestamp) -> Result<(), HubError> {
        let times = (next, self.clock.now());
        Ok(self.store.release_untaken(self.replica, claim, times, MOST_LOST - 1).await?)
    }

    /// Takes what is noted of passes and attempts in what is the future to be now: the clock was put back since, of this replica or of one that is gone. Says of how many objects
    /// that was.
    ///
    /// # Errors
    /// Where the database fails.
    pub(crate) async fn mend(&self) -> Result<u64, HubError> {
        let now = self.clock.now();
        Ok(self.store.mend_schedule(now, now + MOST_APART, LEASE).await?)
    }

    /// What changes when there is a reason to try again: the spec, the annotation that asks, what the source holds.
    async fn inputs_of(&self, queue: Queue, stored: &Stored) -> Result<Digest, HubError> {
        let artifacts = self.artifacts_of(stored).await?;
        let request = triggers::request(stored);
        let text = format!(
            "look\n{queue:?}\n{}\n{}\n{request:?}\n{artifacts:?}\n{}",
            stored.uid,
            stored.generation,
            stored.deletion_timestamp.is_some()
        );
        Ok(Digest::of(text.as_bytes()))
    }

    /// The digests of the artifacts that an applier deploys.
    async fn artifacts_of(&self, stored: &Stored) -> Result<Vec<String>, HubError> {
        let mut artifacts = Vec::new();
        if !stored.kind.is_applier() {
            return Ok(artifacts);
        }
        let references = stored.kind.references(&stored.object, &stored.namespace);
        for Reference { kind, namespace, name } in references.iter().filter(|one| one.kind.is_source()) {
            let Some(source) = self.store.get(*kind, namespace, name).await? else { continue };
            let status = source.decode::<AnySource>()?.status;
            artifacts
                .extend(status.and_then(|status| status.source.artifact).map(|artifact| artifact.digest));
        }
        Ok(artifacts)
    }

    async fn tell_set_aside(&self, uid: ResourceUid, message: &str) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(uid).await? else { return Ok(()) };
        match stored.kind {
            kind if kind.is_applier() => {
                let suspended = stored.decode::<AnyApplier>()?.spec.suspend;
                write_status(&mut tx, &mut stored, suspended, now, |status, generation| {
                    let reason = Reason::BuildFailed;
                    set_ready(status, ConditionStatus::False, reason, message, generation, now);
                })
                .await?;
            }
            kind if kind.is_source() => {
                let (ready, reason) = (ConditionStatus::False, crate::sources::failed(stored.kind));
                status::write::<AnySource>(&mut tx, &mut stored, now, |status, generation| {
                    let conditions = &mut status.source.conditions;
                    conditions::set(conditions, READY, ready, reason, message, generation, now);
                })
                .await?;
            }
            _ => events::note(&mut tx, &stored, "Warning", "SetAside", message, now).await?,
        }
        tx.commit().await?;
        Ok(())
    }
}
