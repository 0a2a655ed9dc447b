//! The user's own clusters in the demo's place, by two contexts of their kubeconfig.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::EDGES;
use super::kubectl::{self, Kubectl};
use super::place::{Place, write_private};
use crate::process::Runner;

/// Takes each context out of the user's kubeconfig, with its credentials inline.
pub(super) fn take(runner: &Runner, place: &Place, contexts: &str) -> Result<Vec<Kubectl>> {
    let names: Vec<&str> = contexts.split_whitespace().collect();
    let [_, _] = names[..] else {
        bail!(
            "CONTEXTS names {} contexts, and the demo wants two: CONTEXTS=\"staging production\"",
            names.len()
        );
    };
    let program = kubectl::installed()?;
    let mut clusters = Vec::new();
    for (edge, name) in EDGES.iter().zip(&names) {
        runner.say(&format!("{} is the cluster of context {name}", edge.name));
        let mut command = Command::new(&program);
        command.args(["config", "view", "--raw", "--minify", "--flatten", "--context", name, "-o", "yaml"]);
        let text = runner.capture(&mut command).with_context(|| format!("take context {name}"))?;
        let path = place.context_kubeconfig(edge.name);
        write_private(&path, &text)?;
        let cluster = Kubectl::new(program.clone(), place, path);
        cluster.run(runner, &["version"]).with_context(|| format!("reach the cluster of context {name}"))?;
        clusters.push(cluster);
    }
    Ok(clusters)
}

/// Removes what the demo has put into the user's clusters.
pub(super) fn leave(runner: &Runner, place: &Place) -> Result<()> {
    for edge in &EDGES {
        let path = place.context_kubeconfig(edge.name);
        if !path.exists() {
            continue;
        }
        runner.say(&format!("removing what the demo has put into {}", edge.name));
        let cluster = Kubectl::new(kubectl::installed()?, place, path.clone());
        let delete = ["delete", "--ignore-not-found", "--wait=false"];
        cluster.run(runner, &[&delete[..], &["namespace", edge.app, "roadstead-system"]].concat())?;
        let roles = ["clusterrole,clusterrolebinding", "roadstead-agent", "roadstead-agent-cluster-admin"];
        cluster.run(runner, &[&delete[..], &roles].concat())?;
        std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}
