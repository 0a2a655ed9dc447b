//! The dashboard before a whole fleet: a real browser, a real hub, simulated agents. What is done in the browser is in
//! `web/scripts/figures.mjs`.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use roadstead_tests::gitserver::{GitServer, Options};
use roadstead_tests::{HubProcess, HubSetup, chromium, eventually};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::agent::{BROKEN, Counts, SimulatedAgent};
use super::{AT_ONCE, SERVER, connected, create, name, source};
use crate::api::Api;
use crate::figures::{Figure, Report};

/// Until all Kustomizations have been reconciled for the first time.
const PATIENCE: Duration = Duration::from_secs(1800);
/// One of so many clusters has a Kustomization that fails.
const ONE_FAILS: usize = 20;

/// What is behind the dashboard, and how long it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) clusters: usize,
    pub(crate) kustomizations_of_each: usize,
    /// How long the page's memory is watched.
    pub(crate) minutes: u32,
}

/// Sets the scene, and has the browser measure.
pub(crate) async fn measure(report: &mut Report, scene: Scene) -> Result<()> {
    let setup = HubSetup::new("bench-dashboard").await?;
    let hub = HubProcess::start(&setup).await?;
    let api = Api::of(hub.kubectl()).await?;
    let server = GitServer::start(Options::default()).await?;
    source(&api, &server).await?;
    let counts = Arc::new(Counts::default());
    let mut agents = tokio::task::JoinSet::new();
    let mut boarding = futures::stream::iter(0..scene.clusters)
        .map(|index| {
            let (api, name) = (&api, name(index));
            async move { SimulatedAgent::enrol(api, &name).await }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(agent) = boarding.try_next().await? {
        agents.spawn(agent.keep(Arc::clone(&counts)));
    }
    drop(boarding);
    connected(&counts, scene.clusters).await?;
    let all = scene.clusters * scene.kustomizations_of_each;
    futures::stream::iter(0..all)
        .map(|index| {
            let (cluster, number) =
                (index / scene.kustomizations_of_each, index % scene.kustomizations_of_each);
            let fails = number == 0 && cluster % ONE_FAILS == 0;
            let word = if fails { BROKEN } else { "app" };
            let (api, cluster) = (&api, name(cluster));
            async move { create(api, &format!("{word}-{number}-{cluster}"), &cluster).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    eventually("all were reconciled", PATIENCE, || async {
        let finished = counts.finished.load(Ordering::Relaxed);
        ensure!(finished >= all, "{finished} of {all}");
        Ok(())
    })
    .await?;
    eprintln!("  {} clusters and {all} Kustomizations are there", scene.clusters);
    browse(report, &api, hub.id(), scene).await
}

/// Runs the script; each line that it writes is a figure.
async fn browse(report: &mut Report, api: &Api, pid: u32, scene: Scene) -> Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    let probe = format!("{BROKEN}-0-{}", name(0));
    let mut script = tokio::process::Command::new("node")
        .current_dir(&web)
        .arg("scripts/figures.mjs")
        .env("FIGURES_HUB", api.server())
        .env("FIGURES_TOKEN", api.token().context("a token")?)
        .env("FIGURES_PID", pid.to_string())
        .env("FIGURES_CHROMIUM", chromium()?)
        .env("FIGURES_PROBE", probe)
        .env("FIGURES_CLUSTERS", scene.clusters.to_string())
        .env("FIGURES_KUSTOMIZATIONS_OF_EACH", scene.kustomizations_of_each.to_string())
        .env("FIGURES_MINUTES", scene.minutes.to_string())
        // The hub's certificate is of its own authority; what is measured is not who it is.
        .env("NODE_TLS_REJECT_UNAUTHORIZED", "0")
        .env("NODE_NO_WARNINGS", "1")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("run the browser by node")?;
    let mut lines = BufReader::new(script.stdout.take().context("what it writes")?).lines();
    while let Some(line) = lines.next_line().await? {
        report.add(SERVER, figure(&line).with_context(|| format!("read the figure {line:?}"))?);
    }
    let status = script.wait().await?;
    ensure!(status.success(), "web/scripts/figures.mjs failed ({status}): what it says is above");
    Ok(())
}

/// `{"name": …, "values": [[unit, number], …]}`.
fn figure(line: &str) -> Result<Figure> {
    #[derive(Deserialize)]
    struct Told {
        name: String,
        values: Vec<(String, f64)>,
    }
    let Told { name, values } = serde_json::from_str(line)?;
    Ok(Figure { name, values: values.into_iter().map(|(unit, value)| (unit.into(), value)).collect() })
}
