//! `cargo xtask demo`: from nothing to a commit that becomes objects in two real clusters, one on board by a token, one by
//! its kubeconfig.
//!
//! Each step finds out whether its work is done already, so the command can be stopped at any point and given again;
//! what runs is used. `cargo xtask clean-demo` ends and removes all of it.

mod board;
mod contexts;
mod daemon;
mod git;
mod kubectl;
mod place;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use roadstead_devpostgres::PrivatePostgres;

use crate::cache;
use crate::devcluster::Devcluster;
use crate::process::Runner;
use crate::web;
use daemon::{Daemon, Started};
use kubectl::Kubectl;
use place::{Place, Ports};

/// The clusters: their names on the hub, the devclusters that they are, and what the webapp is called there.
const EDGES: [Edge; 2] = [
    Edge { name: "edge-1", devcluster: "roadstead-demo-1", app: "webapp-staging" },
    Edge { name: "edge-2", devcluster: "roadstead-demo-2", app: "webapp-production" },
];

struct Edge {
    name: &'static str,
    devcluster: &'static str,
    /// The Kustomization on the hub, and the namespace on the cluster.
    app: &'static str,
}

const READY: Duration = Duration::from_secs(120);

/// Starts everything, shows a change arrive, and leaves it running. On clusters of its own, or on those of two contexts
/// of the user's kubeconfig.
pub(crate) fn up(root: &Path, runner: &Runner, contexts: Option<&str>) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let place = Place::make()?;
    web::build(root, runner)?;
    runner.say("building hub, agent, command line and Git server");
    let bin = build(root, runner)?;

    let clusters = match contexts {
        Some(contexts) => contexts::take(runner, &place, contexts)?,
        None => own_clusters(root, runner, &place)?,
    };
    let kubectl = clusters[0].program().to_owned();
    let ports = place.ports()?;
    start_hub(runner, &place, &bin, &ports, contexts.is_some())?;
    let hub = Kubectl::new(kubectl, &place, place.admin_kubeconfig());
    wait_for_hub(runner, &place, &hub)?;
    start_git(root, runner, &place, &bin, &ports)?;

    hub.run(runner, &["apply", "-f", &fleet(root, "clusters.yaml")])?;
    let [by_token, by_kubeconfig] = &EDGES;
    runner.say(&format!("bringing {} on board by a token", by_token.name));
    board::by_token(runner, &place, &bin, by_token, &clusters[0])?;
    runner.say(&format!("bringing {} on board by its kubeconfig", by_kubeconfig.name));
    board::by_kubeconfig(runner, &place, &bin, &hub, by_kubeconfig, &clusters[1])?;
    wait(runner, &hub, &["clusters.fleet.roadstead.dev", EDGES[0].name, EDGES[1].name])?;

    runner.say("applying the GitRepository, its Secret and one Kustomization for each cluster");
    hub.apply_text(runner, &place, "secret", &git::secret(&place)?)?;
    let webapp = std::fs::read_to_string(fleet(root, "webapp.yaml")).context("read the demo's manifests")?;
    hub.apply_text(runner, &place, "webapp", &webapp.replace("GIT_URL", &git::url(&ports)))?;
    wait(runner, &hub, &["-n", "apps", "kustomization", EDGES[0].app, EDGES[1].app])?;
    hub.run(runner, &["-n", "apps", "get", "gitrepository,kustomization"])?;
    show(runner, &clusters)?;

    change(runner, &place, &ports, &hub, &clusters)?;
    show(runner, &clusters)?;
    place.print_next(&hub, &clusters);
    Ok(())
}

/// Ends and removes everything; goes on after a failure, and fails at the end.
pub(crate) fn clean(root: &Path, runner: &Runner) -> Result<()> {
    runner.begin_cleanup();
    let mut failures = Vec::new();
    let mut attempt = |result: Result<()>| {
        if let Err(error) = result {
            eprintln!("error: {error:#}");
            failures.push(error);
        }
    };
    if let Some(place) = Place::existing()? {
        attempt(contexts::leave(runner, &place));
    }
    let names: Vec<String> = EDGES.iter().map(|edge| edge.devcluster.to_owned()).collect();
    let clusters = cache::folder("clusters")?;
    if let Some(place) = Place::existing()? {
        for daemon in Daemon::recorded(place.folder())? {
            runner.say(&format!("ending {}", daemon.name()));
            attempt(daemon.stop());
        }
        // Where the hub was killed, its Postgres is still there.
        attempt(match PrivatePostgres::find(&place.hub_state().join("postgres")) {
            Ok(Some(server)) => server.stop().map_err(Into::into),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        });
    }
    if names.iter().any(|name| clusters.join(name).exists()) {
        runner.say("removing the clusters");
        attempt(Devcluster::build(root, runner).and_then(|devcluster| devcluster.down(runner, &names)));
    }
    // What could not be ended is still recorded there.
    if !failures.is_empty() {
        bail!("{} parts of the demo could not be removed; try again", failures.len());
    }
    if let Some(place) = Place::existing()? {
        place.remove()?;
    }
    runner.say("nothing of the demo is left");
    Ok(())
}

/// Builds the programs, by the profile that `PROFILE` names (`dev` unless set), and gives their folder.
fn build(root: &Path, runner: &Runner) -> Result<std::path::PathBuf> {
    let target = cache::target(root)?;
    match std::env::var("PROFILE").as_deref() {
        Err(_) | Ok("" | "dev") => {
            runner.run(&mut cache::build_programs(root))?;
            Ok(target.join("debug"))
        }
        Ok(profile) => {
            let command = ["build", "--workspace", "--bins", "--profile", profile];
            runner.run(cache::cargo().current_dir(root).args(command))?;
            Ok(target.join(profile))
        }
    }
}

fn fleet(root: &Path, name: &str) -> String {
    root.join("tests/demo/fleet").join(name).to_string_lossy().into_owned()
}

fn own_clusters(root: &Path, runner: &Runner, place: &Place) -> Result<Vec<Kubectl>> {
    runner.say("building the development cluster (minutes the first time, then nothing)");
    let devcluster = Devcluster::build(root, runner)?;
    runner.say("starting two clusters");
    let up = |edge: &Edge| {
        let kubeconfig = devcluster.up(runner, edge.devcluster, &[])?;
        Ok(Kubectl::new(devcluster.kubectl(), place, kubeconfig))
    };
    EDGES.iter().map(up).collect()
}

/// `anywhere`: the user's clusters may be in any network.
fn start_hub(runner: &Runner, place: &Place, bin: &Path, ports: &Ports, anywhere: bool) -> Result<()> {
    let daemon = Daemon::new(place.folder(), "hub");
    let mut command = Command::new(bin.join("roadstead-hub"));
    command.arg("--dev").arg("--state-dir").arg(place.hub_state());
    command.arg("--listen").arg(format!("127.0.0.1:{}", ports.api));
    command.arg("--link-listen").arg(format!("127.0.0.1:{}", ports.link));
    command.args(["--log-format", "text"]);
    let networks: &[&str] = if anywhere { &["0.0.0.0/0", "::/0"] } else { &["127.0.0.0/8"] };
    command.args(networks.iter().map(|network| format!("--allow-network=clusters={network}")));
    ports.check_free(daemon.running().is_some(), &[ports.api, ports.link])?;
    said(runner, "hub", daemon.start(&mut command)?);
    Ok(())
}

fn said(runner: &Runner, what: &str, started: Started) {
    match started {
        Started::Now => runner.say(&format!("started {what}")),
        Started::Before => runner.say(&format!("{what} runs already")),
    }
}

fn wait_for_hub(runner: &Runner, place: &Place, hub: &Kubectl) -> Result<()> {
    let daemon = Daemon::new(place.folder(), "hub");
    let begin = Instant::now();
    runner.until("the hub to be ready", READY, || {
        // A hub that has ended will not become ready: no use to wait.
        if daemon.running().is_none() {
            return Ok(false);
        }
        hub.quiet(runner, &["get", "--raw", "/readyz"]).map(|_| true)
    })?;
    daemon.check()?;
    runner.say(&format!("the hub serves, after {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

fn start_git(root: &Path, runner: &Runner, place: &Place, bin: &Path, ports: &Ports) -> Result<()> {
    let daemon = Daemon::new(place.folder(), "gitserver");
    ports.check_free(daemon.running().is_some(), &[ports.git])?;
    let started = daemon.start(&mut git::server(root, place, bin, ports)?)?;
    runner.until("the Git server to listen", READY, || {
        if daemon.running().is_some() && place::is_free(ports.git) {
            bail!("nothing listens on port {}{}", ports.git, daemon.tail());
        }
        Ok(())
    })?;
    daemon.check()?;
    said(runner, "Git server", started);
    Ok(())
}

/// `kubectl wait` for Ready; where it does not come, everything that explains it is shown.
fn wait(runner: &Runner, hub: &Kubectl, what: &[&str]) -> Result<()> {
    let timeout = format!("--timeout={}s", READY.as_secs());
    let mut args = vec!["wait", "--for=condition=Ready", &timeout];
    args.extend(what);
    let begin = Instant::now();
    if let Err(error) = hub.run(runner, &args) {
        for args in [
            ["get", "clusters.fleet.roadstead.dev", "-A", "-o", "wide"],
            ["get", "gitrepository,kustomization", "-A", "-o", "wide"],
        ] {
            let _ = hub.run(runner, &args);
        }
        return Err(error).context("the logs are in the demo's folder, under logs");
    }
    runner.say(&format!("ready, after {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

fn show(runner: &Runner, clusters: &[Kubectl]) -> Result<()> {
    for (edge, cluster) in EDGES.iter().zip(clusters) {
        eprintln!("--- {}", edge.name);
        cluster.run(runner, &["-n", edge.app, "get", "deployment,service,configmap", "-o", "wide"])?;
    }
    Ok(())
}

/// Pushes a commit, asks for a reconciliation and waits until both clusters run it.
fn change(runner: &Runner, place: &Place, ports: &Ports, hub: &Kubectl, clusters: &[Kubectl]) -> Result<()> {
    let (tag, commit) = git::push_change(runner, place, ports)?;
    let pushed = Instant::now();
    runner.say(&format!("pushed {commit}: image webapp:{tag} and a new greeting"));
    let stamp = format!("reconcile.fluxcd.io/requestedAt={tag}-{commit}");
    hub.run(runner, &["-n", "apps", "annotate", "--overwrite", "gitrepository/webapp", &stamp])?;
    for (edge, cluster) in EDGES.iter().zip(clusters) {
        let args = ["-n", edge.app, "get", "deployment/webapp", "-o"];
        let path =
            "jsonpath={.spec.template.spec.containers[0].image} {.status.updatedReplicas}/{.spec.replicas}";
        runner.until(&format!("the change in {}", edge.name), READY, || {
            let seen = cluster.quiet(runner, &[args.as_slice(), &[path]].concat())?;
            let (image, replicas) = seen.split_once(' ').context("two values were asked for")?;
            let rolled_out = replicas.split_once('/').is_some_and(|(updated, wanted)| updated == wanted);
            if image != format!("webapp:{tag}") || !rolled_out {
                bail!("it runs {image} in {replicas} replicas");
            }
            Ok(())
        })?;
        let seconds = pushed.elapsed().as_secs_f64();
        runner.say(&format!("{} runs the change, {seconds:.1} s after the push", edge.name));
    }
    wait(runner, hub, &["-n", "apps", "kustomization", EDGES[0].app, EDGES[1].app])?;
    hub.run(runner, &["-n", "apps", "get", "kustomization"])
}
