//! Fetches sources. One host that hangs holds up its own sources and no others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use roadstead_hub_core::{FetchPlan, Hub, HubError, Look};
use roadstead_model::ResourceUid;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::looks::Looker;

/// Of all fetches, so many may be at one host; the others stay free for other hosts.
const PER_HOST: usize = 8;
/// A source whose host is busy is looked at again after this.
const BUSY: Duration = Duration::from_secs(1);

/// Fetches sources.
pub(crate) struct Sources {
    stop: CancellationToken,
    busy: Arc<Mutex<HashMap<String, usize>>>,
}

impl Sources {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, busy: Arc::default() }
    }

    /// A place at `host`; given back on drop.
    fn place(&self, host: String) -> Option<Place> {
        // A count is whole at any time: a panic elsewhere does not spoil it.
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let count = busy.entry(host.clone()).or_default();
        if *count >= PER_HOST {
            return None;
        }
        *count += 1;
        Some(Place { busy: Arc::clone(&self.busy), host })
    }
}

struct Place {
    busy: Arc<Mutex<HashMap<String, usize>>>,
    host: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = busy.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.host);
            }
        }
    }
}

impl Looker for Sources {
    const LOOK: Look = Look::Source;
    const CONCURRENCY: usize = 32;

    async fn look(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let job = match hub.plan_fetch(uid).await? {
            FetchPlan::Nothing(next) => return Ok(next),
            FetchPlan::Fetch(job) => job,
        };
        let Some(_place) = self.place(job.host()) else { return Ok(hub.now() + BUSY) };
        let outcome = roadstead_sources::fetch(job.request.clone(), &self.stop).await;
        if self.stop.is_cancelled() {
            // Another replica, or the next start, fetches it.
            return Ok(hub.now());
        }
        hub.record_fetch(&job, outcome).await
    }
}
