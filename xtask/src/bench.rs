//! `cargo xtask bench`: the hub's API beside kube-apiserver, by release builds and with servers that wait for the disk.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cache;
use crate::devcluster::Devcluster;
use crate::foreign::install_for_bench;
use crate::phases::Phases;
use crate::process::Runner;
use crate::stand::{Purpose, sweep, with_servers};
use crate::web;

/// Its parts, which `tests/src/bin/bench` names alike.
pub(crate) const PARTS: [&str; 13] = [
    "api",
    "rights",
    "fleet",
    "onboarding",
    "fairness",
    "alerts",
    "monorepo",
    "sources",
    "pipeline",
    "requests",
    "secrets",
    "telemetry",
    "dashboard",
];

/// Builds hub and bench optimised (`quick`: as they are for tests, and with little load, to try the bench itself), and
/// measures both servers (`tests/src/bin/bench`). The figures lie in `target/bench.json` afterwards.
pub(crate) fn run(root: &Path, runner: &Runner, quick: bool, only: Option<&str>) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let mut phases = Phases::default();
    let cluster = phases.time(runner, "build the development cluster", || Devcluster::build(root, runner))?;
    sweep(runner, &cluster)?;
    phases.time(runner, "build the dashboard", || web::build(root, runner))?;
    let foreign = install_for_bench(root, runner, &mut phases, only)?;
    phases.time(runner, "build programs", || {
        if quick {
            return runner.run(&mut cache::build_programs(root));
        }
        let mut command = cache::cargo();
        command.current_dir(root).args(["build", "--workspace", "--release"]);
        command.args(["--bin", "roadstead-hub", "--bin", "roadstead-agent", "--bin", "bench"]);
        runner.run(&mut command)
    })?;
    let target = cache::target(root)?;
    let bin_dir = target.join(if quick { "debug" } else { "release" });
    with_servers(runner, &cluster, &mut phases, Purpose::Figures, |servers, phases| {
        let kubeconfig = servers.first_kubeconfig().context("a cluster was started")?;
        let mut command = Command::new(bin_dir.join("bench"));
        servers.tell(&mut command, &bin_dir);
        command.env("ROADSTEAD_BENCH_CLUSTER", kubeconfig.parent().context("it lies in a folder")?);
        command.env("ROADSTEAD_BENCH_OUT", target.join("bench.json"));
        command.envs(foreign);
        if quick {
            command.env("ROADSTEAD_BENCH_QUICK", "1");
        }
        command.env("ROADSTEAD_BENCH_ONLY", only.unwrap_or_default());
        if !phases.time(runner, "measure", || runner.status(&mut command))?.success() {
            bail!("the measurement failed");
        }
        Ok(())
    })
}
