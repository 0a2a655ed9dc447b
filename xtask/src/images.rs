//! `cargo xtask images`: the static programs of `deploy/Dockerfile`, and a test that they run in images.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::devcluster::Devcluster;
use crate::phases::Phases;
use crate::process::Runner;
use crate::stand::{Purpose, sweep, with_servers};

/// As in the Dockerfile.
const FLAGS: &str = "-C target-feature=+crt-static";
const PROGRAMS: [(&str, &str); 3] =
    [("roadstead-hub", "roadstead-hub"), ("roadstead-agent", "roadstead-agent"), ("roadstead", "roadstead")];
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds them into `target/images`, where the Dockerfile finds them with `--build-arg BINARIES=prebuilt`, and runs
/// `tests/tests/images.rs`.
pub(crate) fn run(root: &Path, runner: &Runner, release: bool) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let mut phases = Phases::default();
    let target = cache::target(root)?;
    let images = target.join("images");
    phases.time(runner, "build static programs", || build(root, runner, &target, &images, release))?;
    let cluster = phases.time(runner, "build the development cluster", || Devcluster::build(root, runner))?;
    sweep(runner, &cluster)?;
    phases.time(runner, "build programs", || runner.run(&mut cache::build_programs(root)))?;
    with_servers(runner, &cluster, &mut phases, Purpose::Tests, |servers, phases| {
        let mut command = cache::cargo();
        command.current_dir(root).args(["test", "--workspace", "--test", "images", "--", "--ignored"]);
        command.env("ROADSTEAD_TEST_IMAGES", &images);
        servers.tell(&mut command, &target.join("debug"));
        if !phases.time(runner, "run in images", || runner.status(&mut command))?.success() {
            bail!("what is in the images does not run there");
        }
        Ok(())
    })
}

fn build(root: &Path, runner: &Runner, target: &Path, images: &Path, release: bool) -> Result<()> {
    let version = Command::new("rustc").arg("-vV").output().context("ask rustc for its host")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut command = cache::cargo();
    command.current_dir(root).env("RUSTFLAGS", FLAGS).args(["build", "--bins", "--target", host]);
    for (package, _) in PROGRAMS {
        command.args(["-p", package]);
    }
    let profile = if release { "release" } else { "debug" };
    if release {
        command.arg("--release");
    }
    runner.run(&mut command)?;
    std::fs::create_dir_all(images).context("make the folder for images")?;
    let mut split = Command::new(root.join("deploy/split-debug.sh"));
    split.arg(images);
    split.args(PROGRAMS.map(|(_, program)| target.join(host).join(profile).join(program)));
    runner.run(&mut split).context("take the debug information out of the programs")?;
    std::fs::copy(AUTHORITIES, images.join("ca-certificates.crt"))
        .with_context(|| format!("copy {AUTHORITIES}; the package ca-certificates brings it"))?;
    Ok(())
}
