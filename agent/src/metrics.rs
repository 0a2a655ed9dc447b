//! What an agent counts of its own work, for the Prometheus of its cluster: `--metrics-listen`. No label names an object.

mod apiserver;
mod serve;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use roadstead_meters::{Label, Process, QUICK, SLOW, StatusClass, Table, Times, label, signed};
use roadstead_model::{Stage, StepTiming};
use roadstead_proto::Finished;

pub(crate) use apiserver::CountRequests;
use apiserver::Verb;
pub(crate) use serve::serve;

/// The counts of one agent. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meters(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    process: Process,
    requests: Table<Verb, StatusClass, Counter>,
    requests_took: Table<Verb, (), Times>,
    dispatches: Table<Ended, (), Counter>,
    stages: Table<OfStage, (), Times>,
    corrections: Counter,
    relayed: Table<Told, (), Counter>,
    attempts: Counter,
    sessions: Counter,
    connected: Gauge,
    load: Mutex<Option<Look>>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            process: Process::this(),
            requests: Table::default(),
            requests_took: Table::of(|| Times::new(QUICK)),
            dispatches: Table::default(),
            stages: Table::of(|| Times::new(SLOW)),
            corrections: Counter::default(),
            relayed: Table::default(),
            attempts: Counter::default(),
            sessions: Counter::default(),
            connected: Gauge::default(),
            load: Mutex::default(),
        }
    }
}

/// Tells what an agent has to do at the moment.
struct Look(Box<dyn Fn() -> Load + Send>);

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Look")
    }
}

/// What an agent has to do at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Dispatches that it has taken and not ended.
    pub(crate) running: usize,
    /// Those that have waited for their turn for more than a moment, and those that wait for the end of the one before.
    pub(crate) waiting: usize,
    /// Appliers that it has applied something for.
    pub(crate) appliers: usize,
    /// The objects that these own.
    pub(crate) objects: usize,
    /// Those of them that it watches.
    pub(crate) watched: usize,
}

label! {
    /// How a dispatch ended.
    enum Ended of "result" {
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

label! {
    /// What became of an event that one of Flux's controllers told.
    pub(crate) enum Told of "result" {
        Taken = "taken",
        Refused = "refused",
    }
}

/// A stage of a dispatch.
#[derive(Debug, Clone, Copy)]
struct OfStage(Stage);

impl Label for OfStage {
    const NAME: &'static str = "stage";
    const VALUES: &'static [&'static str] = &[
        Stage::Finish.as_str(),
        Stage::Validate.as_str(),
        Stage::Apply.as_str(),
        Stage::Prune.as_str(),
        Stage::Wait.as_str(),
    ];

    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

impl Meters {
    /// A dispatch has ended.
    pub(crate) fn finished(&self, finished: &Finished) {
        let ended = match &finished.failure {
            None => Ended::Succeeded,
            Some(failure) if failure.cancelled => Ended::Cancelled,
            Some(_) => Ended::Failed,
        };
        self.0.dispatches.at(ended, ()).inc();
        for (stage, took) in StepTiming::by_stage(&finished.timings) {
            self.0.stages.at(OfStage(stage), ()).observe(took);
        }
    }

    /// What others had changed was corrected.
    pub(crate) fn corrected(&self) {
        self.0.corrections.inc();
    }

    /// One of Flux's controllers has told an event.
    pub(crate) fn told(&self, told: Told) {
        self.0.relayed.at(told, ()).inc();
    }

    /// A session with the hub is tried.
    pub(crate) fn connects(&self) {
        self.0.attempts.inc();
    }

    /// A session has begun, or is over.
    pub(crate) fn connected(&self, is_connected: bool) {
        if is_connected {
            self.0.sessions.inc();
        }
        self.0.connected.set(is_connected.into());
    }

    /// From now on `look` tells what there is to do; nobody does where it is none.
    pub(crate) fn look_by(&self, look: Option<Box<dyn Fn() -> Load + Send>>) {
        *self.0.load.lock().unwrap_or_else(PoisonError::into_inner) = look.map(Look);
    }

    /// All of it, as Prometheus reads it.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        self.0.process.register(&mut registry);
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: crate::VERSION }).set(1);
        registry.register("roadstead_agent_build_info", "The version of this agent", build);
        self.register_load(&mut registry);
        self.register_work(&mut registry);
        roadstead_meters::text(&registry)
    }

    fn register_load(&self, registry: &mut Registry) {
        let load = {
            let look = self.0.load.lock().unwrap_or_else(PoisonError::into_inner);
            look.as_ref().map(|look| look.0()).unwrap_or_default()
        };
        for (name, help, count) in [
            ("roadstead_agent_dispatches_running", "Dispatches that the agent has taken", load.running),
            (
                "roadstead_agent_dispatches_waiting",
                "Those that wait for their turn, or for the one before",
                load.waiting,
            ),
            (
                "roadstead_agent_appliers",
                "Kustomizations that the agent has applied something for",
                load.appliers,
            ),
            ("roadstead_agent_objects", "Objects that these own", load.objects),
            ("roadstead_agent_objects_watched", "Those whose changes the agent sees", load.watched),
        ] {
            let gauge = Gauge::<i64>::default();
            gauge.set(signed(count));
            registry.register(name, help, gauge);
        }
    }

    fn register_work(&self, registry: &mut Registry) {
        let Counts { requests, requests_took, dispatches, stages, .. } = &*self.0;
        registry.register(
            "roadstead_agent_apiserver_requests",
            "Requests to the cluster's apiserver, by what they do and how they were answered",
            requests.clone(),
        );
        registry.register_with_unit(
            "roadstead_agent_apiserver_request_duration",
            "How long it took until the answers began",
            Unit::Seconds,
            requests_took.clone(),
        );
        registry.register(
            "roadstead_agent_dispatches",
            "Dispatches that have ended, and how",
            dispatches.clone(),
        );
        registry.register_with_unit(
            "roadstead_agent_stage_duration",
            "How long the stages of dispatches took",
            Unit::Seconds,
            stages.clone(),
        );
        registry.register(
            "roadstead_agent_corrections",
            "Corrections of what others had changed",
            self.0.corrections.clone(),
        );
        registry.register(
            "roadstead_agent_flux_events",
            "Events reported by Flux's controllers, and whether they were accepted",
            self.0.relayed.clone(),
        );
        registry.register(
            "roadstead_agent_link_attempts",
            "Sessions with the hub that were tried",
            self.0.attempts.clone(),
        );
        registry.register(
            "roadstead_agent_link_sessions",
            "Sessions with the hub that have begun",
            self.0.sessions.clone(),
        );
        registry.register(
            "roadstead_agent_link_connected",
            "1 while there is a session with the hub",
            self.0.connected.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_the_names_of_their_index() {
        let names = Stage::ALL.map(|stage| OfStage::VALUES[OfStage(stage).index()]);
        assert_eq!(names, Stage::ALL.map(Stage::as_str));
    }

    /// What is shipped for monitoring asks for what there is.
    #[test]
    fn rules_and_dashboard_name_what_is_served() {
        let text = Meters::default().text().unwrap();
        let mut count = 0;
        for file in ["rules.yaml", "dashboard.json"] {
            let shipped = format!("{}/../deploy/monitoring/{file}", env!("CARGO_MANIFEST_DIR"));
            let shipped = std::fs::read_to_string(shipped).unwrap();
            let words = shipped.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in words.filter(|word| word.starts_with("roadstead_agent_")) {
                let ends = ["_bucket", "_count", "_sum", "_total"];
                let family = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
                assert!(text.contains(&format!("# TYPE {family} ")), "{file} asks for {name}");
                count += 1;
            }
        }
        assert!(count >= 4, "{count}");
    }

    #[test]
    fn what_there_is_to_do_is_looked_up_when_it_is_read() {
        let meters = Meters::default();
        let has = |line: &str| meters.text().unwrap().lines().any(|is| is == line);
        assert!(has("roadstead_agent_objects 0"));
        meters.look_by(Some(Box::new(|| Load { objects: 7, ..Load::default() })));
        assert!(has("roadstead_agent_objects 7"));
        meters.look_by(None);
        assert!(has("roadstead_agent_objects 0"));
        meters.connected(true);
        meters.connected(false);
        assert!(has("roadstead_agent_link_connected 0") && has("roadstead_agent_link_sessions_total 1"));
    }
}
