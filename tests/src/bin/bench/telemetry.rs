//! What traces and metrics cost: processor time of a reconciliation with and without a collector, on fleets that do the same in turns;
//! and of a scrape.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reqwest::Method;
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::sink::Sink;
use roadstead_tests::{Fleet, HubSetup, TestNamespace, eventually, kustomization};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::Api;
use crate::figures::{Figure, Report};
use crate::memory;

const PATIENCE: Duration = Duration::from_secs(120);
/// Objects of each Kustomization.
const OBJECTS: usize = 4;
/// Until what a round leaves behind is done: spans and statuses are sent in batches.
const AFTER: Duration = Duration::from_secs(2);
/// As often as Prometheus scrapes where nothing else is said.
const SCRAPED_EVERY: Duration = Duration::from_secs(15);

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    /// Kustomizations that one commit changes; of one source at most 100 are traced.
    pub(crate) kustomizations: usize,
    /// Commits of each fleet.
    pub(crate) rounds: usize,
    /// Scrapes, one after the other.
    pub(crate) scrapes: usize,
}

/// Measures all of it: fleets without a collector, with a tenth of all traces, and with all of them.
pub(crate) async fn measure(report: &mut Report, plan: Rounds) -> Result<()> {
    let collector = Sink::start().await?;
    let mut scenes = Vec::new();
    for (name, sample) in [("no traces", None), ("a tenth traced", Some("0.1")), ("all traced", Some("1"))] {
        scenes.push(Scene::new(name, sample, &collector, plan.kustomizations).await?);
    }
    // The first round of each is not counted. Each is as often the first, the second and the last of a round.
    let count = scenes.len();
    for round in 0..=plan.rounds {
        for turn in 0..count {
            let scene = &mut scenes[(round + turn) % count];
            let used = scene.round(round).await?;
            if round > 0 {
                scene.used.push(used);
            }
        }
    }
    ensure!(!collector.posts().is_empty(), "the collector got nothing");
    for scene in &scenes {
        let (more, error) = beside(&scene.used, &scenes[0].used);
        let values = vec![
            ("ms CPU of the hub".into(), scene.each(|used| used.hub)),
            ("ms CPU of the agent".into(), scene.each(|used| used.agent)),
            ("% beside no traces".into(), more),
            ("% standard error of it".into(), error),
        ];
        let name = format!("a reconciliation of {OBJECTS} objects, {}", scene.name);
        report.add("roadstead-hub", Figure { name, values });
    }
    scenes[0].scrapes(report, plan.scrapes).await
}

/// Seconds of processor time.
#[derive(Debug, Clone, Copy)]
struct Used {
    hub: f64,
    agent: f64,
}

impl Used {
    fn sum(self) -> f64 {
        self.hub + self.agent
    }
}

/// By how much these rounds took more than those, in percent, and the standard error of that: they were made in turns, so each is
/// compared with the one that was made beside it.
fn beside(these: &[Used], those: &[Used]) -> (f64, f64) {
    let more: Vec<f64> =
        these.iter().zip(those).map(|(this, that)| (this.sum() / that.sum() - 1.0) * 100.0).collect();
    let count = more.len() as f64;
    let mean = more.iter().sum::<f64>() / count;
    let variance = more.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// A fleet whose Kustomizations are changed by each commit.
struct Scene {
    name: &'static str,
    fleet: Fleet,
    namespace: TestNamespace,
    repository: Repository,
    kustomizations: usize,
    used: Vec<Used>,
}

impl Scene {
    async fn new(name: &'static str, sample: Option<&str>, collector: &Sink, count: usize) -> Result<Self> {
        let mut setup = HubSetup::new("bench-telemetry").await?;
        if let Some(sample) = sample {
            setup = setup
                .arg(&format!("--otlp-endpoint={}", collector.url))
                .arg(&format!("--trace-sample={sample}"))
                .arg("--allow-network=notify=127.0.0.1/32");
        }
        let fleet = Fleet::start_on(setup).await?;
        let namespace = fleet.cluster.namespace("bench").await?;
        let repository = fleet.repository("app", &files(namespace.name(), count, "seed")).await?;
        let all: Vec<String> = (0..count)
            .map(|index| {
                kustomization(&format!("app-{index}"), "app", &format!("./k{index}"), &["interval: 1h"])
            })
            .collect();
        fleet.apply(&all.join("\n---\n")).await?;
        Ok(Self { name, fleet, namespace, repository, kustomizations: count, used: Vec::new() })
    }

    /// Changes everything, and says what that took.
    async fn round(&mut self, round: usize) -> Result<Used> {
        let value = format!("round {round}");
        let files = files(self.namespace.name(), self.kustomizations, &value);
        let commit = self.repository.commit("main", &value, &files)?;
        let before = self.seconds()?;
        self.fleet.request("gitrepository/app").await?;
        self.settle(&commit).await?;
        sleep(AFTER).await;
        let after = self.seconds()?;
        Ok(Used { hub: after.hub - before.hub, agent: after.agent - before.agent })
    }

    async fn settle(&self, commit: &str) -> Result<()> {
        let api = Api::of(self.fleet.kubectl()).await?;
        let revision = json!(format!("main@sha1:{commit}"));
        eventually("all have applied the commit", PATIENCE, || async {
            // Seldom, and the same for each: this is asked of the hub, too.
            sleep(Duration::from_millis(500)).await;
            let list = api.get("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations").await?;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let is_applied = |item: &&Value| item["status"]["lastAppliedRevision"] == revision;
            let applied = items.iter().filter(is_applied).count();
            ensure!(applied == self.kustomizations, "{applied} of {}", self.kustomizations);
            Ok(())
        })
        .await
    }

    fn seconds(&self) -> Result<Used> {
        let hub = memory::seconds_with_children(self.fleet.hub.id())?;
        Ok(Used { hub, agent: memory::seconds_with_children(self.fleet.agent.id())? })
    }

    /// Milliseconds of one reconciliation, in the mean.
    fn each(&self, part: fn(&Used) -> f64) -> f64 {
        let all: f64 = self.used.iter().map(part).sum();
        all * 1e3 / (self.used.len() * self.kustomizations) as f64
    }

    /// What it takes to tell all metrics, and how much that is in a minute.
    async fn scrapes(&self, report: &mut Report, count: usize) -> Result<()> {
        let api = Api::of(self.fleet.kubectl()).await?;
        let (before, began) = (self.seconds()?, Instant::now());
        let mut bytes = 0;
        for _ in 0..count {
            let answer = api.request(Method::GET, "/metrics").send().await?.error_for_status()?;
            bytes = answer.bytes().await?.len();
        }
        let took = began.elapsed().as_secs_f64();
        let each = (self.seconds()?.hub - before.hub) / count as f64;
        ensure!(bytes > 0, "there are no metrics");
        let values = vec![
            ("ms".into(), took / count as f64 * 1e3),
            ("ms CPU of the hub".into(), each * 1e3),
            ("KiB".into(), bytes as f64 / 1024.0),
            ("ms CPU a minute, one scrape each 15 s".into(), each * 1e3 * 60.0 / SCRAPED_EVERY.as_secs_f64()),
        ];
        let name = format!("a scrape of the hub, {} Kustomizations", self.kustomizations);
        report.add("roadstead-hub", Figure { name, values });
        Ok(())
    }
}

fn files(namespace: &str, count: usize, value: &str) -> Commit {
    (0..count).fold(Commit::new(), |commit, index| {
        let map = |object: usize| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("map-{index}-{object}"), "namespace": namespace },
                "data": { "value": value, "text": "some settings that an application reads at its start" } })
            .to_string()
        };
        commit.file(&format!("k{index}/maps.yaml"), (0..OBJECTS).map(map).collect::<Vec<_>>().join("\n---\n"))
    })
}
