//! Fetches sources. Namespaces share the places for it; one server that hangs holds up its own sources and no others.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_core::sources::{FetchJob, FetchPlan};
use roadstead_hub_core::{Hub, HubError};
use roadstead_model::{Queue, ResourceUid, Topic, chain};
use roadstead_places::{Limits, Place, Places};
use roadstead_sources::{Failed, FetchError, Outcome};
use roadstead_trace::Span;
use tokio_util::sync::CancellationToken;

use crate::controllers::Controller;

/// Fetches at once.
const AT_ONCE: usize = 32;
/// Of these, so many may be at one host, whatever its ports.
const PER_HOST: usize = 8;
/// While somebody waits for its place a fetch may go on for so long; and for less where its namespace has more than its
/// share. A default timeout is shorter than either.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_OVER_SHARE: Duration = Duration::from_secs(60);
/// A source that finds no place is processed again after this, and the later, the more of its namespace wait.
const BUSY: Duration = Duration::from_secs(1);
const WAITING_PER_BUSY: usize = 32;
const LONGEST_BUSY: u32 = 10;
/// Whether a source is still wanted is asked when something changes on the hub, at most so often, and on a timer.
const BETWEEN_CHECKS: Duration = Duration::from_secs(1);
const LONGEST_WITHOUT_CHECK: Duration = Duration::from_secs(10);

/// Fetches sources.
pub(crate) struct Sources {
    stop: CancellationToken,
    places: Places,
}

/// How a fetch ended.
enum End {
    Done(Result<Result<Outcome, Failed>, HubError>),
    /// The source was deleted or has another spec.
    NotWanted,
    /// Others wait for its place.
    GaveWay(Duration),
}

impl Sources {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        let places = Places::new(Limits {
            total: AT_ONCE,
            per_group: PER_HOST,
            patience: PATIENCE,
            patience_over_share: PATIENCE_OVER_SHARE,
        });
        Self { stop, places }
    }

    async fn fetch(&self, hub: &Hub, job: &FetchJob, place: &Place) -> End {
        let began = tokio::time::Instant::now();
        // Dropped, a fetch is cut.
        tokio::select! {
            outcome = hub.sources.fetch(job, &self.stop) => End::Done(outcome),
            () = not_wanted(hub, job) => End::NotWanted,
            () = place.asked_to_leave() => End::GaveWay(began.elapsed()),
        }
    }
}

/// Resolves once the source is gone or has another spec.
async fn not_wanted(hub: &Hub, job: &FetchJob) {
    let mut changes = hub.signals().subscribe(Topic::Resources);
    loop {
        tokio::time::sleep(BETWEEN_CHECKS).await;
        match hub.sources.wants_fetch(job).await {
            Ok(true) => {}
            Ok(false) => return,
            // The fetch goes on; what comes of it is not recorded for another spec.
            Err(error) => {
                tracing::debug!(error = chain(&error), "could not read a source while it is fetched");
            }
        }
        // A signal that was lost costs the timer's time.
        let _ = tokio::time::timeout(LONGEST_WITHOUT_CHECK, changes.changed()).await;
        changes.mark_unchanged();
    }
}

impl Controller for Sources {
    const QUEUE: Queue = Queue::Source;
    // More than there are places, so that those who find none do not keep others from being asked.
    const CONCURRENCY: usize = 2 * AT_ONCE;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let job = match hub.sources.plan_fetch(uid).await? {
            FetchPlan::Nothing(next) => return Ok(next),
            FetchPlan::Fetch(job) => job,
        };
        let Some(place) = self.places.try_take(job.namespace(), &job.host()) else {
            let waiting = self.places.waiting(job.namespace()) / WAITING_PER_BUSY;
            roadstead_trace::unfinished();
            let later = u32::try_from(1 + waiting).unwrap_or(LONGEST_BUSY).min(LONGEST_BUSY);
            return Ok(hub.now() + BUSY * later);
        };
        let mut span = Span::start("fetch");
        job.tell(|key, value| {
            span.set(key, value);
            roadstead_trace::describe(key, value);
        });
        let end = self.fetch(hub, &job, &place).await;
        drop(place);
        let (result, failed) = match &end {
            End::Done(Ok(Ok(Outcome::Fetched(fetched)))) => {
                span.set("revision", fetched.revision.to_string());
                ("fetched", false)
            }
            End::Done(Ok(Ok(Outcome::Unchanged(_)))) => ("unchanged", false),
            End::Done(_) => ("failed", true),
            End::NotWanted => ("not wanted", false),
            End::GaveWay(_) => ("gave way", false),
        };
        span.result(result, failed);
        span.end();
        if self.stop.is_cancelled() {
            // Another replica, or the next start, fetches it.
            return Ok(hub.now());
        }
        match end {
            End::Done(outcome) => hub.sources.record_fetch(&job, outcome?).await,
            End::NotWanted => Ok(hub.now()),
            End::GaveWay(held) => {
                let url = job.source.shown_url();
                hub.sources.record_fetch(&job, Err(FetchError::GaveWay { url, held }.into())).await
            }
        }
    }
}
