//! `cargo xtask deny`: cargo-deny over the rules in `deny.toml`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::Runner;
use crate::tool;

/// Pinned: a newer one may know other rules.
const VERSION: &str = "0.20.2";

/// How long the database of advisories may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

/// Installs cargo-deny into the cache the first time, and runs it. Advisories are checked where their database can be had:
/// it comes from outside, which a build must not depend on.
pub(crate) fn run(root: &Path, runner: &Runner) -> Result<()> {
    let program = tool::installed(runner, "cargo-deny", VERSION)?;
    let mut deny = Command::new(&program);
    deny.current_dir(root).args(["--workspace", "--locked", "check", "bans", "licenses", "sources"]);
    runner.run(&mut deny)?;
    advisories(root, runner, &program)
}

/// Checks for advisories; where their database cannot be had, says that it did not.
fn advisories(root: &Path, runner: &Runner, program: &Path) -> Result<()> {
    let mut fetch = Command::new(program);
    fetch.current_dir(root).args(["--workspace", "--locked", "fetch", "db"]).stdin(Stdio::null());
    // Without a terminal Git asks nobody for a password.
    fetch.env("GIT_TERMINAL_PROMPT", "0");
    if let Err(why) = ends_well(&mut fetch) {
        runner.say(&format!("ADVISORIES WERE NOT CHECKED: their database could not be had ({why:#})"));
        return Ok(());
    }
    let mut check = Command::new(program);
    check.current_dir(root).args(["--workspace", "--locked", "check", "--disable-fetch", "advisories"]);
    runner.run(&mut check)
}

/// Runs a program that may hang, since a network is behind it.
fn ends_well(command: &mut Command) -> Result<()> {
    let mut child = command.spawn().context("start it")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().context("wait for it")? {
            return if status.success() { Ok(()) } else { bail!("{status}") };
        }
        if Instant::now() >= deadline {
            child.kill().context("end it")?;
            child.wait().context("wait for its end")?;
            bail!("it took more than {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(POLL);
    }
}
