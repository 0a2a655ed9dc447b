//! `cargo xtask measure`: the figures of the README and of closing notes, by release builds.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cache;
use crate::devcluster::Devcluster;
use crate::phases::Phases;
use crate::process::Runner;
use crate::stand::{Purpose, sweep, with_servers};

/// Builds everything optimised, and measures push to applied and memory beside a bare loop (`tests/src/bin/measure.rs`), with servers that wait
/// for the disk.
pub(crate) fn run(root: &Path, runner: &Runner) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let mut phases = Phases::default();
    let cluster = phases.time(runner, "build the development cluster", || Devcluster::build(root, runner))?;
    sweep(runner, &cluster)?;
    phases.time(runner, "build programs", || {
        runner.run(cache::cargo().current_dir(root).args(["build", "--release", "--workspace", "--bins"]))
    })?;
    let bin_dir = cache::target(root)?.join("release");
    with_servers(runner, &cluster, &mut phases, Purpose::Figures, |servers, phases| {
        let mut command = Command::new(bin_dir.join("measure"));
        servers.tell(&mut command, &bin_dir);
        if !phases.time(runner, "measure", || runner.status(&mut command))?.success() {
            bail!("the measurement failed");
        }
        Ok(())
    })
}
