//! What this process counts as it does it, for monitoring: one [`Meters`], held by whoever does something that is counted.

mod labels;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use roadstead_api::{KindId, PipelineRole};
use roadstead_hub_store::RelayedCount;
use roadstead_meters::{Open, QUICK, SLOW, StatusClass, Table, Times, Traced};
use roadstead_model::{Queue, ResourceUid, StepTiming};
use roadstead_sources::{Failed, Outcome};

pub(crate) use labels::{Build, Delivered, OfQueue, StreamKind};
pub use labels::{Direction, RequestVerb, SessionEnd};
use labels::{OfFetch, OfKind, OfStage, Relayed};

/// Objects of which it is counted how long they take: each is eleven lines.
pub(crate) const MOST_TIMED: usize = 2_000;

/// What is counted as it happens. One for the whole process.
pub struct Meters {
    passes: Family<OfQueue, Times, Slow>,
    failures: Family<OfQueue, Counter>,
    waits: Family<OfQueue, Times, Slow>,
    stages: Family<OfStage, Traced, Slow>,
    builds: Table<Build, (), Counter>,
    fetches: Family<OfFetch, Counter>,
    fetched: Family<OfKind, Counter>,
    sessions: Gauge,
    sessions_begun: Counter,
    sessions_ended: Table<SessionEnd, (), Counter>,
    messages: Table<Direction, (), Counter>,
    message_bytes: Table<Direction, (), Counter>,
    requests: Table<RequestVerb, StatusClass, Counter>,
    requests_took: Table<RequestVerb, (), Times>,
    requests_open: Gauge,
    watches: Gauge,
    audit_lost: Table<StreamKind, (), Counter>,
    old_tokens: Counter,
    relayed: Table<Relayed, (), Counter>,
    delivered: Table<Delivered, (), Counter>,
    /// How long reconciliations took. By uid, so that what is gone is gone from here, too.
    objects: Mutex<BTreeMap<ResourceUid, Times>>,
}

impl Default for Meters {
    fn default() -> Self {
        let failures = Family::<OfQueue, Counter>::default();
        // A rate is known from the first failure on where there was a zero before it.
        for queue in Queue::ALL {
            let _ = failures.get_or_create(&OfQueue { queue: queue.as_str() });
        }
        let waits = Family::<OfQueue, Times, Slow>::new_with_constructor(Slow);
        for queue in Queue::ALL {
            let _ = waits.get_or_create(&OfQueue { queue: queue.as_str() });
        }
        let stages = Family::<OfStage, Traced, Slow>::new_with_constructor(Slow);
        let fetches = Family::<OfFetch, Counter>::default();
        for kind in KindId::of_role(PipelineRole::Source).map(|kind| kind.get().kind) {
            let _ = stages.get_or_create(&OfStage { kind, stage: "fetch" });
            for result in ["unchanged", "fetched", "failed"] {
                let _ = fetches.get_or_create(&OfFetch { kind, result });
            }
        }
        Self {
            passes: Family::new_with_constructor(Slow),
            failures,
            waits,
            stages,
            builds: Table::default(),
            fetches,
            fetched: Family::default(),
            sessions: Gauge::default(),
            sessions_begun: Counter::default(),
            sessions_ended: Table::default(),
            messages: Table::default(),
            message_bytes: Table::default(),
            requests: Table::default(),
            requests_took: Table::of(|| Times::new(QUICK)),
            requests_open: Gauge::default(),
            watches: Gauge::default(),
            audit_lost: Table::default(),
            old_tokens: Counter::default(),
            relayed: Table::default(),
            delivered: Table::default(),
            objects: Mutex::default(),
        }
    }
}

impl Meters {
    /// A pass over an object of a queue took so long.
    pub(crate) fn passed(&self, queue: Queue, uid: ResourceUid, took: Duration, failed: bool) {
        let of = OfQueue { queue: queue.as_str() };
        self.passes.get_or_create(&of).observe(took);
        if failed {
            self.failures.get_or_create(&of).inc();
        }
        // Of an applier a pass is the beginning only, and other queues are of no pipeline.
        if matches!(queue, Queue::Source | Queue::Generator) {
            self.reconciled(uid, took);
        }
    }

    /// A reconciliation of an object took so long, whoever took part in it.
    pub(crate) fn reconciled(&self, uid: ResourceUid, took: Duration) {
        let mut objects = self.objects();
        if objects.len() < MOST_TIMED || objects.contains_key(&uid) {
            objects.entry(uid).or_insert_with(|| Times::new(SLOW)).observe(took);
        }
    }

    /// A pass was due for so long before it began.
    pub(crate) fn waited(&self, queue: Queue, waited: &[Duration]) {
        if waited.is_empty() {
            return;
        }
        let times = self.waits.get_or_create(&OfQueue { queue: queue.as_str() });
        waited.iter().for_each(|one| times.observe(*one));
    }

    /// A stage of what is done for an object of a kind took so long.
    pub(crate) fn stage(&self, of: KindId, stage: &'static str, took: Duration) {
        self.stages.get_or_create(&OfStage { kind: of.get().kind, stage }).observe(took, trace());
    }

    /// The stages of an attempt that took so long in all, as its agent told them: none takes longer than the whole. What they leave is the
    /// time on its way to the agent and back, and in the agent's queue.
    pub(crate) fn dispatched(&self, of: KindId, timings: &[StepTiming], took: Duration) {
        let mut rest = took;
        for (stage, lasted) in StepTiming::by_stage(timings) {
            let lasted = lasted.min(took);
            rest = rest.saturating_sub(lasted);
            self.stage(of, stage.as_str(), lasted);
        }
        self.stage(of, "dispatch", rest);
    }

    /// Somebody asked for a build.
    pub(crate) fn build(&self, result: Build) {
        self.builds.at(result, ()).inc();
    }

    /// A fetch of a source of a kind ended after so long.
    pub(crate) fn fetch(&self, of: KindId, outcome: &Result<Outcome, Failed>, took: Duration) {
        let kind = of.get().kind;
        let result = match outcome {
            Ok(Outcome::Unchanged(_)) => "unchanged",
            Ok(Outcome::Fetched(fetched)) => {
                let bytes = u64::try_from(fetched.artifact.bytes.len()).unwrap_or(u64::MAX);
                self.fetched.get_or_create(&OfKind { kind }).inc_by(bytes);
                "fetched"
            }
            Err(_) => "failed",
        };
        self.fetches.get_or_create(&OfFetch { kind, result }).inc();
        // The trace of one that found nothing new is kept nowhere.
        let trace = if result == "unchanged" { None } else { trace() };
        self.stages.get_or_create(&OfStage { kind, stage: "fetch" }).observe(took, trace);
    }

    /// An agent's session has begun; it is open while this is held.
    #[must_use]
    pub fn session_begins(&self) -> Open {
        self.sessions_begun.inc();
        Open::one(&self.sessions)
    }

    /// An agent's session has ended.
    pub fn session_ends(&self, why: SessionEnd) {
        self.sessions_ended.at(why, ()).inc();
    }

    /// A message of so many bytes went over the link.
    pub fn message(&self, direction: Direction, bytes: usize) {
        self.messages.at(direction, ()).inc();
        self.message_bytes.at(direction, ()).inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// A request to the API has begun; it goes on while this is held.
    #[must_use]
    pub fn request_begins(&self) -> Open {
        Open::one(&self.requests_open)
    }

    /// A request to the API was answered after so long.
    pub fn request(&self, verb: RequestVerb, status: u16, took: Duration) {
        self.requests.at(verb, StatusClass::of(Some(status))).inc();
        self.requests_took.at(verb, ()).observe(took);
    }

    /// A watch has begun; it goes on while this is held.
    #[must_use]
    pub fn watch_begins(&self) -> Open {
        Open::one(&self.watches)
    }

    /// Events of clusters' Flux that somebody listens to.
    pub(crate) fn relayed(&self, count: RelayedCount) {
        let RelayedCount { heard, left_out } = count;
        self.relayed.at(Relayed::Kept, ()).inc_by(heard - left_out);
        self.relayed.at(Relayed::LeftOut, ()).inc_by(left_out);
    }

    /// Events were sent, or not.
    pub(crate) fn delivered(&self, result: Delivered, count: u64) {
        self.delivered.at(result, ()).inc_by(count);
    }

    /// Uses of tokens that an older version made without an end.
    pub(crate) fn old_tokens(&self) -> Counter {
        self.old_tokens.clone()
    }

    /// Counts the lines of the audit log that a stream lost.
    pub(crate) fn audit_lost(&self, stream: StreamKind) -> Counter {
        self.audit_lost.at(stream, ()).clone()
    }

    /// Adds all but what is told by object.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.register_passes(registry);
        self.register_link(registry);
        registry.register(
            "roadstead_api_requests",
            "Requests to the API of this replica, by what they do and how they were answered",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "roadstead_api_request_duration",
            "How long it took until the answers began",
            Unit::Seconds,
            self.requests_took.clone(),
        );
        registry.register(
            "roadstead_api_requests_open",
            "Requests that are not answered yet",
            self.requests_open.clone(),
        );
        registry.register("roadstead_watches_open", "Watches of this replica", self.watches.clone());
        registry.register(
            "roadstead_audit_stream_lost",
            "Lines of the audit log that a stream of this replica could not take",
            self.audit_lost.clone(),
        );
        registry.register(
            "roadstead_old_token_uses",
            "Uses of tokens that an older version made without an end, at this replica",
            self.old_tokens.clone(),
        );
        registry.register(
            "roadstead_delivery_attempts",
            "Attempts to send events to Providers, and events that were given up, by what came of them, at this replica",
            self.delivered.clone(),
        );
        registry.register(
            "roadstead_relayed_events",
            "Events reported by Flux in clusters to which an Alert listens, by what became of them, at this replica",
            self.relayed.clone(),
        );
    }

    fn register_passes(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "roadstead_pass_duration",
            "How long passes over objects of a queue took at this replica",
            Unit::Seconds,
            self.passes.clone(),
        );
        registry.register(
            "roadstead_pass_failures",
            "Passes over objects of a queue that failed for a reason of the hub's own, at this replica",
            self.failures.clone(),
        );
        registry.register_with_unit(
            "roadstead_queue_wait",
            "For how long passes of a queue that this replica took up had been due by their interval or retry",
            Unit::Seconds,
            self.waits.clone(),
        );
        registry.register_with_unit(
            "roadstead_stage_duration",
            "How long the stages of a reconciliation took: fetch and build here, the others as agents tell them",
            Unit::Seconds,
            self.stages.clone(),
        );
        registry.register(
            "roadstead_builds",
            "Builds that were asked for at this replica, and whether they were made or found",
            self.builds.clone(),
        );
        registry.register(
            "roadstead_fetches",
            "Fetches of sources at this replica, and how they ended",
            self.fetches.clone(),
        );
        registry.register_with_unit(
            "roadstead_fetched",
            "Size of the artifacts that were fetched",
            Unit::Bytes,
            self.fetched.clone(),
        );
    }

    fn register_link(&self, registry: &mut Registry) {
        registry.register(
            "roadstead_sessions_open",
            "Sessions of agents at this replica",
            self.sessions.clone(),
        );
        registry.register(
            "roadstead_sessions",
            "Sessions that agents have begun",
            self.sessions_begun.clone(),
        );
        registry.register(
            "roadstead_sessions_ended",
            "Sessions that have ended, and why",
            self.sessions_ended.clone(),
        );
        registry.register("roadstead_link_messages", "Messages from and to agents", self.messages.clone());
        registry.register_with_unit(
            "roadstead_link",
            "Size of the messages from and to agents",
            Unit::Bytes,
            self.message_bytes.clone(),
        );
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, BTreeMap<ResourceUid, Times>> {
        // Nothing under the lock can panic half-way through a change.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The trace of the work at hand, where its spans are sent.
fn trace() -> Option<String> {
    let context = roadstead_trace::current().filter(|context| context.sampled && roadstead_trace::is_on())?;
    Some(context.trace.to_string())
}

/// Histograms of what may take minutes.
#[derive(Debug, Clone, Default)]
struct Slow;

impl MetricConstructor<Times> for Slow {
    fn new_metric(&self) -> Times {
        Times::new(SLOW)
    }
}

impl MetricConstructor<Traced> for Slow {
    fn new_metric(&self) -> Traced {
        Traced::new(SLOW)
    }
}

#[cfg(test)]
mod tests {
    use roadstead_model::Stage;

    use super::*;

    fn timing(stage: Stage, micros: u64) -> StepTiming {
        StepTiming { step: Some(0), label: None, stage, micros }
    }

    #[test]
    fn what_an_agent_says_of_its_stages_stays_within_the_attempt() {
        let meters = Meters::default();
        let timings = [
            timing(Stage::Apply, 1_000_000),
            timing(Stage::Apply, 500_000),
            timing(Stage::Wait, u64::MAX),
            timing(Stage::Wait, u64::MAX),
        ];
        meters.dispatched(KindId::Kustomization, &timings[..2], Duration::from_secs(4));
        meters.dispatched(KindId::Kustomization, &timings, Duration::from_secs(10));
        let mut registry = Registry::default();
        meters.register(&mut registry);
        let text = roadstead_meters::text(&registry).unwrap();
        let of = |what: &str, stage: &str| {
            let series = format!(
                "roadstead_stage_duration_seconds_{what}{{kind=\"Kustomization\",stage=\"{stage}\"}} "
            );
            text.lines().find_map(|line| line.strip_prefix(&*series).map(str::to_owned))
        };
        assert_eq!(of("sum", "apply").as_deref(), Some("3.0"));
        assert_eq!(of("sum", "wait").as_deref(), Some("10.0"));
        // Of the first 2.5 s; the second says that it took no time.
        assert_eq!(of("sum", "dispatch").as_deref(), Some("2.5"));
        assert_eq!(of("count", "dispatch").as_deref(), Some("2"));
        // What did not happen is not told.
        assert_eq!(of("count", "prune"), None);
    }
}
