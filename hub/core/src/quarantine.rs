//! What is set aside: inputs that ended a worker process; and, by [`crate::Schedule`], objects whose passes ended the hub's own
//! process.
//!
//! Either is not tried again until its input changes, it is asked for by annotation, or an hour has passed. It is written
//! to the database, so that replicas do not fail one after the other.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_plan::has_happened;
use roadstead_hub_store::{SetAside, Store};
use roadstead_model::Digest;
use roadstead_worker::{JobError, Limit};

use crate::HubError;
use crate::clock::Clock;
use crate::context::Context;

/// What is set aside is tried again after this.
const PERIOD: Duration = Duration::from_secs(3600);

/// What is set aside.
pub(crate) struct Quarantine {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Quarantine {
    pub(crate) fn new(context: &Context) -> Self {
        Self { store: context.store.clone(), clock: Arc::clone(&context.clock) }
    }

    /// Sets something aside.
    pub(crate) async fn put(&self, inputs: Digest, why: String) -> Result<SetAside, HubError> {
        let now = self.clock.now();
        let aside = SetAside { why, since: now, until: now + PERIOD };
        self.store.set_aside(inputs, &aside).await?;
        Ok(aside)
    }

    /// What is set aside now.
    pub(crate) async fn find(&self, inputs: Digest) -> Result<Option<SetAside>, HubError> {
        let now = self.clock.now();
        let aside = self.store.is_set_aside(inputs, now).await?;
        // Not for longer than that, where the clock was put back since.
        Ok(aside.filter(|aside| has_happened(aside.since, now)))
    }

    /// Sets aside what ended a worker, and gives the text for the condition.
    pub(crate) async fn put_aside(&self, inputs: Digest, why: String) -> Result<String, HubError> {
        Ok(told(&self.put(inputs, why).await?))
    }

    /// Why something is not tried now, where that is so.
    pub(crate) async fn why_set_aside(&self, inputs: Digest) -> Result<Option<String>, HubError> {
        Ok(self.find(inputs).await?.as_ref().map(told))
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
    format!("the build was stopped: {ended}; {advice}")
}

/// What a source says of which the reading ended its worker.
pub(crate) fn not_read(ended: &JobError) -> String {
    let advice = match ended {
        JobError::Limit(Limit::Memory(_) | Limit::Cpu(_) | Limit::FileSize(_)) => {
            "reduce the size of the source, or give the hub more memory (--memory-budget)"
        }
        _ => "see the hub's log",
    };
    format!("{ended}; {advice}")
}

/// What is said of something that is set aside.
pub(crate) fn told(aside: &SetAside) -> String {
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
