//! One repository of many overlays: what a commit costs that changes one of them, one that changes none, and one that changes all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_tests::gitserver::{Commit, GitServer, Options};
use roadstead_tests::{HubProcess, HubSetup, eventually};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::agent::{Counts, SimulatedAgent};
use super::{AT_ONCE, KUSTOMIZATIONS, Load, PATIENCE, REPOSITORY, SERVER, SOURCES, fetch};
use crate::api::Api;
use crate::figures::{Figure, Report};
use crate::memory::Processes;

/// Simulated clusters that share the overlays.
const CLUSTERS: usize = 10;

/// Measures commits to a repository of so many overlays, each with a Kustomization of its own.
pub(crate) async fn measure(report: &mut Report, overlays: usize) -> Result<()> {
    let setup = HubSetup::new("bench-mono").await?;
    let hub = HubProcess::start(&setup).await?;
    let api = Api::of(hub.kubectl()).await?;
    let server = GitServer::start(Options::default()).await?;
    let repository = super::source(&api, &server).await?;
    repository.commit("main", "overlays", &files(overlays, "first", "first"))?;
    let counts = Arc::new(Counts::default());
    let mut agents = JoinSet::new();
    for cluster in 0..CLUSTERS {
        let agent = SimulatedAgent::enrol(&api, &super::name(cluster)).await?;
        agents.spawn(agent.keep(Arc::clone(&counts)));
    }
    super::connected(&counts, CLUSTERS).await?;
    fetch(&api, "overlays").await?;
    futures::stream::iter(0..overlays)
        .map(|overlay| {
            let kustomization = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": format!("overlay-{overlay}") },
                "spec": { "interval": "1h", "path": format!("./overlays/{overlay}"), "prune": true,
                    "clusterRef": { "name": super::name(overlay % CLUSTERS) },
                    "sourceRef": { "kind": "GitRepository", "name": REPOSITORY } } });
            api.ask(Method::POST, KUSTOMIZATIONS, "application/json", kustomization.to_string())
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await?;
    applied(&api, overlays).await?;

    let processes = Processes::hub(hub.id(), setup.database().url())?;
    for (name, files) in [
        ("a file that no overlay reads", files(overlays, "first", "first").file("README.md", "changed")),
        ("one overlay", files(overlays, "first", "second")),
        ("the base of all", files(overlays, "second", "second")),
    ] {
        let (load, before) = (Load::begin(&processes)?, counts.finished.load(Ordering::Relaxed));
        repository.commit("main", name, &files)?;
        let began = Instant::now();
        fetch(&api, name).await?;
        applied(&api, overlays).await?;
        let took = began.elapsed().as_secs_f64();
        let mut figure = load.end(&processes, &format!("{overlays} overlays, a commit to {name}"))?;
        figure.values.insert(0, ("s until all are Ready".into(), took));
        let dispatched = counts.finished.load(Ordering::Relaxed) - before;
        figure.values.push(("dispatches".into(), dispatched as f64));
        report.add(SERVER, figure);
    }
    let values = vec![("MiB VmRSS of the hub".into(), processes.front_rss()?)];
    report.add(SERVER, Figure { name: format!("{overlays} overlays"), values });
    Ok(())
}

/// A base, and overlays of it, of which the first may say something else.
fn files(overlays: usize, base: &str, first: &str) -> Commit {
    let map = |name: &str, value: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "bench" },
            "data": { "value": value, "text": "some settings that an application reads at its start" } })
        .to_string()
    };
    let files = Commit::new()
        .file("base/kustomization.yaml", "resources: [base.yaml]\n")
        .file("base/base.yaml", map("base", base))
        .file("README.md", "About the overlays.\n");
    (0..overlays).fold(files, |files, overlay| {
        let folder = format!("overlays/{overlay}");
        let kustomization = format!("resources: [../../base, own.yaml]\nnameSuffix: '-overlay-{overlay}'\ncommonLabels: {{app: '{overlay}'}}\n");
        let value = if overlay == 0 { first } else { "first" };
        files
            .file(&format!("{folder}/kustomization.yaml"), kustomization)
            .file(&format!("{folder}/own.yaml"), map("settings", value))
    })
}

/// Waits until every Kustomization has applied the source's revision.
async fn applied(api: &Api, overlays: usize) -> Result<()> {
    eventually("all have applied the revision", PATIENCE * 10, || async {
        let source = api.get(&format!("{SOURCES}/{REPOSITORY}")).await?;
        let revision = &source["status"]["artifact"]["revision"];
        let list = api.get(KUSTOMIZATIONS).await?;
        let has = |item: &&Value| revision.is_string() && &item["status"]["lastAppliedRevision"] == revision;
        let applied = list["items"].as_array().into_iter().flatten().filter(has).count();
        // Asking costs the hub, too.
        tokio::time::sleep(Duration::from_millis(500)).await;
        ensure!(applied == overlays, "{applied} of {overlays}");
        Ok(())
    })
    .await
}
