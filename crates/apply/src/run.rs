//! What every step of a run is given, and what it gives back.

use std::fmt;
use std::future::Future;

use roadstead_kstatus::Health;
use roadstead_model::{Action, ChangeSet, ObjectRef, ObjectResult, PendingDeletion, Stage, StageTiming};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// One thing that happened, told when it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The dry-run of an object went through; `action` is what applying it would do.
    Validated {
        /// The object.
        object: ObjectRef,
        /// `Created`, `Configured`, `Unchanged` or `Skipped`.
        action: Action,
    },
    /// An object was dealt with by the apply: it is as wanted now.
    Applied(ObjectResult),
    /// An object was dealt with by the prune: `Deleted` or `Skipped`.
    Pruned(ObjectResult),
    /// The health of an object that is waited for was seen for the first time, or changed.
    Health {
        /// The object.
        object: ObjectRef,
        /// Its health.
        health: Health,
    },
}

/// What takes the events; called from the task that runs the step, so it must not block.
pub type Sink<'a> = dyn FnMut(Event) + Send + 'a;

/// What a step of a run is given: until when, whether still, and whom to tell.
pub struct Run<'a> {
    /// When the step must have ended, retries and waits included.
    pub deadline: Instant,
    /// Cancels the step: nothing new is asked; writes under way still get their answer, so that what was done is known.
    pub cancel: CancellationToken,
    /// Is told what happens.
    pub events: &'a mut Sink<'a>,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl<'a> Run<'a> {
    /// A run until `deadline` that tells `events`.
    pub fn new(deadline: Instant, cancel: CancellationToken, events: &'a mut Sink<'a>) -> Self {
        Self { deadline, cancel, events }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        (self.events)(event);
    }

    /// `work`, unless the run is cancelled or over before it ends.
    pub(crate) async fn within<T>(
        &mut self,
        stage: Stage,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Error::Cancelled { stage }),
            done = timeout_at(self.deadline, work) => done.map_err(|_| Error::DeadlineExceeded { stage }),
        }
    }

    pub(crate) fn check(&self, stage: Stage) -> Result<(), Error> {
        if self.cancel.is_cancelled() {
            Err(Error::Cancelled { stage })
        } else if Instant::now() >= self.deadline {
            Err(Error::DeadlineExceeded { stage })
        } else {
            Ok(())
        }
    }
}

/// What a step did, also when it failed halfway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "an outcome may hold an error"]
pub struct Outcome {
    /// What was done, per object, in the order in which it was done.
    pub changes: ChangeSet,
    /// Which objects the owner owns from here on: what it owned before and still does, and what was (or may have been)
    /// written. Sorted; each once.
    pub inventory: Vec<ObjectRef>,
    /// Objects that would have had to be deleted, and were left as they are.
    pub held: Vec<PendingDeletion>,
    /// How long each stage took; only those that began.
    pub timings: Vec<StageTiming>,
    /// Why it did not go through.
    pub error: Option<Error>,
}

impl Outcome {
    /// What was done, or why it did not go through.
    ///
    /// # Errors
    /// The error of the outcome, where there is one.
    pub fn into_result(self) -> Result<Self, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    pub(crate) fn changed(&mut self, object: ObjectRef, action: Action) -> ObjectResult {
        let result = ObjectResult::new(object, action);
        self.changes.push(result.clone());
        result
    }

    /// Adds the time since `since` to `stage`.
    pub(crate) fn spent(&mut self, stage: Stage, since: Instant) {
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        match self.timings.iter_mut().find(|timing| timing.stage == stage) {
            Some(timing) => timing.micros = timing.micros.saturating_add(micros),
            None => self.timings.push(StageTiming { stage, micros }),
        }
    }
}
