//! What is set aside: inputs that ended a worker process, and objects whose passes ended the hub's own process.
//!
//! Either is not tried again until its input changes, it is asked for by annotation, or an hour has passed. It is written
//! to the database, so that replicas do not fail one after the other.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{ConditionStatus, GitRepository, GitRepositoryStatus, KindId, Kustomization};
use roadstead_hub_store::{Claim, Queue, SetAside, Stored};
use roadstead_model::{Digest, Reason, ResourceUid};
use roadstead_worker::{JobError, Limit};

use crate::conditions::{self, READY};
use crate::reconcile::{set_ready, write_status};
use crate::{Hub, HubError, events, managers, triggers};

/// What is set aside is tried again after this.
const PERIOD: Duration = Duration::from_secs(3600);
/// So many passes in a row of which nothing came but the end of the process: others that were under way at the same time
/// are not to blame for it, so that one or two prove nothing.
const MOST_LOST: i32 = 3;

impl Hub {
    /// Sets aside what ended a worker, and gives the text for the condition.
    pub(crate) async fn put_aside(&self, inputs: Digest, why: String) -> Result<String, HubError> {
        let now = self.now();
        let aside = SetAside { why, since: now, until: now + PERIOD };
        self.store.set_aside(inputs, &aside).await?;
        Ok(told(&aside))
    }

    /// Why something is not tried now, where that is so.
    pub(crate) async fn why_set_aside(&self, inputs: Digest) -> Result<Option<String>, HubError> {
        Ok(self.store.is_set_aside(inputs, self.now()).await?.as_ref().map(told))
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
        let now = self.now();
        if let Some(aside) = self.store.is_set_aside(inputs, now).await? {
            return Ok(Some(aside.until));
        }
        if claim.lost() < MOST_LOST {
            return Ok(None);
        }
        let why = format!(
            "the hub's process ended {MOST_LOST} times in a row while it worked on this object; see the logs of its last ends"
        );
        let aside = SetAside { why, since: now, until: now + PERIOD };
        self.store.set_aside(inputs, &aside).await?;
        self.tell_set_aside(claim.uid, &told(&aside)).await?;
        tracing::error!(
            ?queue,
            object = format!("{}/{}", stored.namespace, stored.name),
            until = %aside.until,
            "an object is set aside: the hub's process ended while it worked on it"
        );
        Ok(Some(aside.until))
    }

    /// Gives a claim back without a pass: what counts against its object stays, so that one more lost pass is enough.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn release_untaken(&self, claim: Claim, next: Timestamp) -> Result<(), HubError> {
        Ok(self.store.release_untaken(self.replica, claim, next, MOST_LOST - 1).await?)
    }

    /// What changes when there is a reason to try again: the spec, the annotation that asks, what the source holds.
    async fn inputs_of(&self, queue: Queue, stored: &Stored) -> Result<Digest, HubError> {
        let artifact = match stored.kind {
            KindId::Kustomization => self.artifact_of(stored).await?,
            _ => None,
        };
        let request = triggers::request(stored);
        let text = format!(
            "look\n{queue:?}\n{}\n{}\n{request:?}\n{artifact:?}\n{}",
            stored.uid,
            stored.generation,
            stored.deletion_timestamp.is_some()
        );
        Ok(Digest::of(text.as_bytes()))
    }

    async fn artifact_of(&self, stored: &Stored) -> Result<Option<String>, HubError> {
        let reference = stored.decode::<Kustomization>()?.spec.source_ref;
        let namespace = reference.namespace.as_deref().unwrap_or(&stored.namespace);
        let Some(source) = self.store.get(KindId::GitRepository, namespace, &reference.name).await? else {
            return Ok(None);
        };
        let status = source.decode::<GitRepository>()?.status;
        Ok(status.and_then(|status| status.artifact).map(|artifact| artifact.digest))
    }

    async fn tell_set_aside(&self, uid: ResourceUid, message: &str) -> Result<(), HubError> {
        let now = self.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(uid).await? else { return Ok(()) };
        match stored.kind {
            KindId::Kustomization => {
                let suspended = stored.decode::<Kustomization>()?.spec.suspend;
                write_status(&mut tx, &mut stored, suspended, now, |status, generation| {
                    let reason = Reason::BuildFailed;
                    set_ready(status, ConditionStatus::False, reason, message, generation, now);
                })
                .await?;
            }
            KindId::GitRepository => {
                let mut status: GitRepositoryStatus =
                    stored.decode::<GitRepository>()?.status.unwrap_or_default();
                let before = status.conditions.clone();
                let (ready, reason) = (ConditionStatus::False, Reason::GitOperationFailed);
                let generation = stored.generation;
                conditions::set(&mut status.conditions, READY, ready, reason, message, generation, now);
                managers::set_status(&mut stored, &status, now)?;
                tx.put(stored.clone()).await?;
                events::on_ready(&mut tx, &stored, &before, &status.conditions, now).await?;
            }
            _ => events::note(&mut tx, &stored, "Warning", "SetAside", message, now).await?,
        }
        tx.commit().await?;
        Ok(())
    }
}

/// What a Kustomization says whose build ended its worker.
pub(crate) fn not_built(ended: &JobError) -> String {
    let advice = match ended {
        JobError::Start(_) => {
            return "the hub could not start a worker process to build it; see the hub's log".to_owned();
        }
        JobError::Limit(Limit::Memory(_)) => {
            "split it into several Kustomizations, or give the hub more memory (--memory-budget)"
        }
        JobError::Limit(Limit::Cpu(_) | Limit::Wall(_) | Limit::Output(_)) => {
            "split it into several Kustomizations"
        }
        _ => "see the hub's log",
    };
    format!("the build was ended: {ended}; {advice}")
}

/// What a source says of which the reading ended its worker.
pub(crate) fn not_read(ended: &JobError) -> String {
    let advice = match ended {
        JobError::Limit(Limit::Memory(_) | Limit::Cpu(_) | Limit::FileSize(_)) => {
            "make what is fetched smaller, or give the hub more memory (--memory-budget)"
        }
        _ => "see the hub's log",
    };
    format!("{ended}; {advice}")
}

fn told(aside: &SetAside) -> String {
    // To the second: a message is read, and the same one for as long as this is so.
    let second = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
    format!(
        "{}. Set aside since {}: it is tried again when its input changes, when a reconciliation is requested by annotation, \
         and at {}",
        aside.why,
        second(aside.since),
        second(aside.until)
    )
}
