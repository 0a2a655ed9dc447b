//! The two ways in which the demo's clusters come on board.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::daemon::Daemon;
use super::kubectl::Kubectl;
use super::place::{Place, write_private};
use super::{Edge, READY, said};
use crate::process::Runner;

/// Gets a join file and starts the agent with it. An agent that was here before knows itself by what it keeps in its
/// cluster, and leaves the token unused.
pub(super) fn by_token(
    runner: &Runner,
    place: &Place,
    bin: &Path,
    edge: &Edge,
    cluster: &Kubectl,
) -> Result<()> {
    let daemon = Daemon::new(place.folder(), &format!("agent-{}", edge.name));
    let join = place.join_file(edge.name);
    if daemon.running().is_none() {
        let mut command = Command::new(bin.join("roadstead"));
        command
            .args(["cluster", "join", edge.name, "--secret-only"])
            .env("KUBECONFIG", place.admin_kubeconfig());
        let manifest =
            runner.capture(&mut command).with_context(|| format!("get a join token for {}", edge.name))?;
        write_private(&join, &manifest)?;
    }
    let mut command = Command::new(bin.join("roadstead-agent"));
    command.arg("--join").arg(&join).arg("--kubeconfig").arg(cluster.kubeconfig());
    said(runner, &format!("the agent of {}", edge.name), daemon.start(&mut command)?);
    Ok(())
}

/// Creates the Secret that Cluster API would write, waits until the hub has installed the agent, and starts that one: with
/// the credentials and the join Secret that were installed, since clusters of the demo's own run no containers.
pub(super) fn by_kubeconfig(
    runner: &Runner,
    place: &Place,
    bin: &Path,
    hub: &Kubectl,
    edge: &Edge,
    cluster: &Kubectl,
) -> Result<()> {
    let daemon = Daemon::new(place.folder(), &format!("agent-{}", edge.name));
    if daemon.running().is_none() {
        let kubeconfig =
            cluster.quiet(runner, &["config", "view", "--raw", "--minify", "--flatten", "-o", "yaml"])?;
        let indented: String = kubeconfig.lines().map(|line| format!("    {line}\n")).collect();
        let name = edge.name;
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}-kubeconfig\n  namespace: apps\n  labels:\n    \
             stage: production\n    cluster.x-k8s.io/cluster-name: {name}\ntype: cluster.x-k8s.io/secret\nstringData:\n  \
             value: |\n{indented}"
        );
        hub.apply_text(runner, place, "kubeconfig", &secret)?;
        runner.until(&format!("Cluster {name} to be made"), READY, || {
            hub.quiet(runner, &["get", "cluster.fleet.roadstead.dev", name]).map(drop)
        })?;
        let timeout = format!("--timeout={}s", READY.as_secs());
        let cluster_name = format!("cluster.fleet.roadstead.dev/{name}");
        hub.run(runner, &["wait", &cluster_name, "--for=condition=Installed", &timeout])?;
        write_private(&place.installed_kubeconfig(name), &installed(runner, cluster)?)?;
    }
    let mut command = Command::new(bin.join("roadstead-agent"));
    command.arg("--kubeconfig").arg(place.installed_kubeconfig(edge.name));
    said(runner, &format!("the agent of {}", edge.name), daemon.start(&mut command)?);
    Ok(())
}

/// A kubeconfig with the credentials of the ServiceAccount that the hub has installed.
fn installed(runner: &Runner, cluster: &Kubectl) -> Result<String> {
    let token = ["-n", "roadstead-system", "create", "token", "roadstead-agent", "--duration=720h"];
    let token = cluster.quiet(runner, &token)?;
    let text = cluster.quiet(runner, &["config", "view", "--raw", "--minify", "--flatten", "-o", "json"])?;
    let mut config: serde_json::Value = serde_json::from_str(&text).context("read a kubeconfig")?;
    config["users"][0]["user"] = serde_json::json!({ "token": token.trim() });
    Ok(config.to_string())
}
