//! Many clusters, of which some hang, and a tenant who asks for more than a hub can do: what others wait for their commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_tests::gitserver::{GitServer, Options, Repository};
use roadstead_tests::{HubProcess, HubSetup, eventually};
use serde_json::json;
use tokio::task::JoinSet;

use super::agent::{Counts, SimulatedAgent};
use super::{AT_ONCE, Load, PATIENCE, REPOSITORY, SERVER, SOURCES, commit, create, source};
use crate::api::Api;
use crate::figures::{Figure, Report};
use crate::memory::Processes;

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Greed {
    /// Simulated clusters, and how many of them hang.
    pub(crate) clusters: usize,
    pub(crate) hanging: usize,
    /// Kustomizations of the tenant, on all clusters in turn.
    pub(crate) greedy: usize,
    /// Commits that are timed, alone and beside the tenant.
    pub(crate) rounds: usize,
    /// How many reconciliations the tenant asks for.
    pub(crate) asked_a_second: usize,
}

const HONEST: &str = "honest-";
const GREEDY: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/greedy/kustomizations";
/// Connections of the tenant, each with one request under way.
const CONNECTIONS: usize = 16;

/// Measures how long each honest Kustomization takes from the request to fetch its commit until its agent has applied it: alone, and
/// beside the tenant.
pub(crate) async fn measure(report: &mut Report, greed: Greed) -> Result<()> {
    let setup = HubSetup::new("bench-fair").await?;
    let hub = HubProcess::start(&setup).await?;
    let api = Api::of(hub.kubectl()).await?;
    let server = GitServer::start(Options::default()).await?;
    let repository = source(&api, &server).await?;
    let counts = Arc::new(Counts::default());
    let mut background = JoinSet::new();
    let agents: Vec<(usize, SimulatedAgent)> = futures::stream::iter(0..greed.clusters)
        .map(|index| {
            let api = &api;
            async move { SimulatedAgent::enrol(api, &super::name(index)).await.map(|agent| (index, agent)) }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    for (index, agent) in agents {
        let counts = Arc::clone(&counts);
        if index < greed.hanging {
            background.spawn(agent.hang(counts));
        } else {
            background.spawn(agent.keep(counts));
        }
    }
    super::connected(&counts, greed.clusters).await?;
    let site = Site { api, repository, counts, greed };
    for index in greed.hanging..greed.clusters {
        create(&site.api, &format!("{HONEST}{index}"), &super::name(index)).await?;
    }
    site.round("for all that was made").await?;

    let processes = Processes::hub(hub.id(), setup.database().url())?;
    site.rounds(report, &processes, "alone").await?;
    site.tenant(&server).await?;
    let asked = Arc::new(AtomicUsize::new(0));
    for first in 0..CONNECTIONS {
        background.spawn(asking(site.api.another()?, greed, first, Arc::clone(&asked)));
    }
    let began = Instant::now();
    site.rounds(report, &processes, "beside the tenant").await?;
    let rate = asked.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    let values = vec![("taken a second".into(), rate)];
    report.add(SERVER, Figure { name: "what the tenant asked for".to_owned(), values });
    Ok(())
}

struct Site {
    api: Api,
    repository: Repository,
    counts: Arc<Counts>,
    greed: Greed,
}

impl Site {
    async fn rounds(&self, report: &mut Report, processes: &Processes, name: &str) -> Result<()> {
        let load = Load::begin(processes)?;
        let mut took = Vec::new();
        for round in 0..self.greed.rounds {
            took.extend(self.round(&format!("{name} {round}")).await?);
        }
        report.add(SERVER, load.end(processes, &format!("commits {name}"))?);
        report.add(SERVER, Figure::latency(&format!("commit to applied, {name}"), took));
        Ok(())
    }

    /// A commit, until each honest Kustomization has applied it: how long each took.
    async fn round(&self, word: &str) -> Result<Vec<Duration>> {
        commit(&self.repository, word)?;
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": word } } });
        let path = format!("{SOURCES}/{REPOSITORY}");
        self.api.ask(Method::PATCH, &path, "application/merge-patch+json", patch.to_string()).await?;
        // The request itself waits in one queue with those of the tenant, who is the same user here.
        let began = Instant::now();
        eventually("all have applied the commit", PATIENCE, || async {
            let ends = self.counts.since(HONEST, began);
            ensure!(ends.len() == self.greed.clusters - self.greed.hanging, "{} have", ends.len());
            Ok(ends.into_iter().map(|end| end - began).collect())
        })
        .await
    }

    /// The tenant's Kustomizations, of a repository of its own.
    async fn tenant(&self, server: &GitServer) -> Result<()> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "greedy" } });
        self.api.ask(Method::POST, "/api/v1/namespaces", "application/json", namespace.to_string()).await?;
        let repository = server.add_repository("greedy")?;
        commit(&repository, "greedy")?;
        let secret = self.api.get(&format!("/api/v1/namespaces/default/secrets/{REPOSITORY}")).await?;
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "greedy" }, "data": secret["data"] });
        self.api
            .ask(Method::POST, "/api/v1/namespaces/greedy/secrets", "application/json", secret.to_string())
            .await?;
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "greedy" },
            "spec": { "url": server.url("greedy"), "interval": "1h", "ref": { "branch": "main" }, "secretRef": { "name": "greedy" } } });
        let sources = SOURCES.replace("default", "greedy");
        self.api.ask(Method::POST, &sources, "application/json", source.to_string()).await?;
        let all = (0..self.greed.greedy).map(|number| {
            let kustomization = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": format!("greedy-{number}") },
                "spec": { "interval": "1h", "path": "./app", "prune": true, "nameSuffix": format!("-greedy-{number}"),
                    "clusterRef": { "name": super::name(number % self.greed.clusters) },
                    "sourceRef": { "kind": "GitRepository", "name": "greedy" } } });
            self.api.ask(Method::POST, GREEDY, "application/json", kustomization.to_string())
        });
        futures::stream::iter(all).buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await
    }
}

/// Asks for the reconciliation of its share of the tenant's Kustomizations, again and again at its share of the pace.
async fn asking(api: Api, greed: Greed, first: usize, asked: Arc<AtomicUsize>) {
    let pace = Duration::from_secs_f64(CONNECTIONS as f64 / greed.asked_a_second as f64);
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for round in 0_u64.. {
        for number in (first..greed.greedy).step_by(CONNECTIONS) {
            ticks.tick().await;
            let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": format!("{round}") } } });
            let path = format!("{GREEDY}/greedy-{number}");
            let asking = api.ask(Method::PATCH, &path, "application/merge-patch+json", patch.to_string());
            // One that is refused for now counts as one that was not taken.
            if asking.await.is_ok() {
                asked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
