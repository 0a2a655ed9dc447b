//! A hub with many agents: at rest, while each reports, and after a restart of the hub.

mod agent;
pub(crate) mod alerts;
pub(crate) mod dashboard;
pub(crate) mod fairness;
pub(crate) mod monorepo;
pub(crate) mod onboarding;
pub(crate) mod sources;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_tests::gitserver::{Commit, GitServer, Options, Repository};
use roadstead_tests::{HubProcess, HubSetup, eventually};
use serde_json::{Value, json};

use crate::api::Api;
use crate::figures::{Figure, Report};
use crate::memory::Processes;
use agent::{Counts, SimulatedAgent};

const SERVER: &str = "roadstead-hub";
const PATIENCE: Duration = Duration::from_secs(120);
const REPOSITORY: &str = "fleet";
/// Requests under way at once while a fleet is set up.
const AT_ONCE: usize = 16;

/// Measures fleets of these sizes, each growing out of the one before.
pub(crate) async fn measure(report: &mut Report, sizes: &[usize], rest: Duration) -> Result<()> {
    let setup = HubSetup::new("bench-fleet").await?;
    let mut hub = HubProcess::start(&setup).await?;
    let api = Api::of(hub.kubectl()).await?;
    let server = GitServer::start(Options::default()).await?;
    let repository = source(&api, &server).await?;

    let counts = Arc::new(Counts::default());
    let mut agents = tokio::task::JoinSet::new();
    let mut size = 0;
    for wanted in sizes {
        let new: Vec<SimulatedAgent> = futures::stream::iter(size..*wanted)
            .map(|index| on_board(&api, index))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for agent in new {
            agents.spawn(agent.keep(Arc::clone(&counts)));
        }
        size = *wanted;
        applied(&api, &counts, size).await?;
        let processes = Processes::hub(hub.id(), setup.database().url())?;

        let load = Load::begin(&processes)?;
        tokio::time::sleep(rest).await;
        let mut figure = load.end(&processes, &format!("{size} agents at rest"))?;
        figure.values.insert(0, ("MiB VmRSS of the hub".into(), processes.front_rss()?));
        report.add(SERVER, figure);

        commit(&repository, &format!("for {size}"))?;
        let (load, before) = (Load::begin(&processes)?, counts.finished.load(Ordering::Relaxed));
        fetch(&api, &size.to_string()).await?;
        applied(&api, &counts, size).await?;
        let took = load.began.elapsed().as_secs_f64();
        let mut figure = load.end(&processes, &format!("{size} agents, each reports once"))?;
        figure.values.insert(0, ("s until all are Ready".into(), took));
        figure.values.push(("MiB VmRSS of the hub".into(), processes.front_rss()?));
        ensure!(counts.finished.load(Ordering::Relaxed) - before >= size, "some did not report");
        report.add(SERVER, figure);
    }

    intervals(report, &setup, &hub, &api, &counts, size).await?;

    hub.kill9().await?;
    eventually("all sessions have ended", PATIENCE, || async {
        ensure!(counts.connected.load(Ordering::Relaxed) == 0);
        Ok(())
    })
    .await?;
    let hub = HubProcess::start(&setup).await?;
    let (began, processes) = (Instant::now(), Processes::hub(hub.id(), setup.database().url())?);
    let load = Load::begin(&processes)?;
    connected(&counts, size).await?;
    let mut figure = load.end(&processes, &format!("{size} agents after a restart of the hub"))?;
    figure.values.insert(0, ("s until all are connected".into(), began.elapsed().as_secs_f64()));
    figure.values.push(("MiB VmRSS of the hub".into(), processes.front_rss()?));
    report.add(SERVER, figure);
    Ok(())
}

/// Kustomizations of each cluster, all with this interval, in which nothing changes.
const OF_EACH: usize = 10;
const INTERVAL: Duration = Duration::from_secs(60);

/// Many Kustomizations of which none changes: what their intervals cost.
async fn intervals(
    report: &mut Report,
    setup: &HubSetup,
    hub: &HubProcess,
    api: &Api,
    counts: &Counts,
    clusters: usize,
) -> Result<()> {
    let all = (0..clusters).flat_map(|cluster| (0..OF_EACH).map(move |number| (cluster, number)));
    let began = Instant::now();
    futures::stream::iter(all)
        .map(|(cluster, number)| async move {
            let (name, interval) = (format!("every-{cluster}-{number}"), INTERVAL.as_secs());
            let suffix = format!("-{name}");
            let kustomization = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": name },
                "spec": { "interval": format!("{interval}s"), "path": "./app", "prune": true, "nameSuffix": suffix,
                    "clusterRef": { "name": self::name(cluster) },
                    "sourceRef": { "kind": "GitRepository", "name": REPOSITORY } } });
            api.ask(Method::POST, KUSTOMIZATIONS, "application/json", kustomization.to_string()).await.map(drop)
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |()| Ok(()))
        .await?;
    let count = clusters * OF_EACH;
    eventually("all have applied their first build", PATIENCE * 5, || async {
        let applied = counts.since("every-", began).len();
        ensure!(applied == count, "{applied} of {count}");
        Ok(())
    })
    .await?;
    let took = began.elapsed().as_secs_f64();
    let values = vec![("s until all are applied".into(), took)];
    report.add(SERVER, Figure { name: format!("{count} Kustomizations created"), values });
    // What was applied is recorded a moment later.
    tokio::time::sleep(INTERVAL / 2).await;
    let processes = Processes::hub(hub.id(), setup.database().url())?;
    let (load, wal) = (Load::begin(&processes)?, wal(setup).await?);
    let before = counts.finished.load(Ordering::Relaxed);
    tokio::time::sleep(INTERVAL * 2).await;
    let minutes = (INTERVAL * 2).as_secs_f64() / 60.0;
    let mut figure =
        load.end(&processes, &format!("{count} Kustomizations at an interval of 1 m, nothing changes"))?;
    figure.values.push(("MiB WAL a minute".into(), (self::wal(setup).await? - wal) / minutes / 1_048_576.0));
    let dispatched = counts.finished.load(Ordering::Relaxed) - before;
    figure.values.push(("dispatches a minute".into(), dispatched as f64 / minutes));
    figure.values.push(("MiB VmRSS of the hub".into(), processes.front_rss()?));
    report.add(SERVER, figure);
    Ok(())
}

/// Bytes that the server of a hub's database has written to its log.
async fn wal(setup: &HubSetup) -> Result<f64> {
    let query = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8";
    Ok(sqlx::query_scalar(query).fetch_one(&mut setup.database().connect().await?).await?)
}

fn name(index: usize) -> String {
    format!("edge-{index}")
}

/// A Cluster with its agent, and a Kustomization for it.
async fn on_board(api: &Api, index: usize) -> Result<SimulatedAgent> {
    let name = name(index);
    let agent = SimulatedAgent::enrol(api, &name).await?;
    create(api, &name, &name).await?;
    Ok(agent)
}

const KUSTOMIZATIONS: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations";

/// A Kustomization for a cluster. What it builds has its name, as simulated agents expect.
async fn create(api: &Api, name: &str, cluster: &str) -> Result<()> {
    let kustomization = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": name },
        "spec": { "interval": "1h", "path": "./app", "prune": true, "nameSuffix": format!("-{name}"), "clusterRef": { "name": cluster },
            "sourceRef": { "kind": "GitRepository", "name": REPOSITORY } } });
    api.ask(Method::POST, KUSTOMIZATIONS, "application/json", kustomization.to_string()).await.map(drop)
}

fn commit(repository: &Repository, value: &str) -> Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "settings", "namespace": "bench" }, "data": { "value": value } });
    repository.commit("main", value, &Commit::new().file("app/settings.yaml", object.to_string())).map(drop)
}

/// The repository that all Kustomizations are of, with its source on the hub.
async fn source(api: &Api, server: &GitServer) -> Result<Repository> {
    let repository = server.add_repository(REPOSITORY)?;
    commit(&repository, "first")?;
    trust(api, server).await?;
    git_source(api, server, REPOSITORY, Duration::from_secs(3600)).await?;
    Ok(repository)
}

/// A Secret of the hub that says which certificates a Git server has.
async fn trust(api: &Api, server: &GitServer) -> Result<()> {
    let ca = STANDARD.encode(server.ca_pem().context("a server over HTTPS")?);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": REPOSITORY }, "data": { "ca.crt": ca } });
    api.ask(Method::POST, "/api/v1/namespaces/default/secrets", "application/json", secret.to_string())
        .await
        .map(drop)
}

/// A source on the hub of a server's repository of this name.
async fn git_source(api: &Api, server: &GitServer, name: &str, interval: Duration) -> Result<()> {
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": name },
        "spec": { "url": server.url(name), "interval": format!("{}s", interval.as_secs()), "ref": { "branch": "main" },
            "secretRef": { "name": REPOSITORY } } });
    api.ask(Method::POST, SOURCES, "application/json", source.to_string()).await.map(drop)
}

const SOURCES: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories";

/// Asks for a look at the source, and waits for it.
async fn fetch(api: &Api, stamp: &str) -> Result<()> {
    let path = format!("{SOURCES}/{REPOSITORY}");
    let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": stamp } } });
    api.ask(Method::PATCH, &path, "application/merge-patch+json", patch.to_string()).await?;
    eventually("the source is fetched", PATIENCE, || async {
        ensure!(api.get(&path).await?["status"]["lastHandledReconcileAt"] == stamp);
        Ok(())
    })
    .await
}

async fn connected(counts: &Counts, size: usize) -> Result<()> {
    eventually("all agents are connected", PATIENCE, || async {
        let connected = counts.connected.load(Ordering::Relaxed);
        ensure!(connected == size, "{connected} of {size}");
        Ok(())
    })
    .await
}

/// Waits until every Kustomization has applied the source's revision.
async fn applied(api: &Api, counts: &Counts, size: usize) -> Result<()> {
    connected(counts, size).await?;
    eventually("all have applied the revision", PATIENCE, || async {
        let source = api.get(&format!("{SOURCES}/{REPOSITORY}")).await?;
        let revision = &source["status"]["artifact"]["revision"];
        let list = api.get(KUSTOMIZATIONS).await?;
        let has = |item: &&Value| revision.is_string() && &item["status"]["lastAppliedRevision"] == revision;
        let items = || list["items"].as_array().into_iter().flatten();
        let applied = items().filter(has).count();
        let late = items().find(|item| !has(item)).cloned().unwrap_or_default();
        // Asking costs the hub, too.
        tokio::time::sleep(Duration::from_millis(200)).await;
        ensure!(
            applied == size,
            "{applied} of {size} at {revision}; {} has {}",
            late["metadata"]["name"],
            late["status"]
        );
        Ok(())
    })
    .await
}

/// What the processor has done for the server since then.
struct Load {
    began: Instant,
    front: f64,
    back: f64,
}

impl Load {
    fn begin(processes: &Processes) -> Result<Self> {
        let (front, back) = processes.seconds()?;
        Ok(Self { began: Instant::now(), front, back })
    }

    fn end(self, processes: &Processes, name: &str) -> Result<Figure> {
        let (front, back) = processes.seconds()?;
        let (front, back, took) = (front - self.front, back - self.back, self.began.elapsed().as_secs_f64());
        let values = vec![
            ("CPU s of the hub".into(), front),
            ("CPU s of Postgres".into(), back),
            ("% of a core, both".into(), (front + back) / took * 100.0),
        ];
        Ok(Figure { name: name.to_owned(), values })
    }
}
