//! `cargo xtask test`: sets up what tests need, runs every test, and takes all of it down again.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cache;
use crate::devcluster::Devcluster;
use crate::foreign;
use crate::landed;
use crate::phases::Phases;
use crate::process::Runner;
use crate::program;
use crate::repeat::{Load, Report, timed, watched};
use crate::stand::{Purpose, Servers, sweep, with_servers};
use crate::web;

/// Runs every test, `repeat` times; `cargo_args` go to `cargo test`, in place of `--workspace` where they name packages.
pub(crate) fn run(
    root: &Path,
    runner: &Runner,
    go: bool,
    repeat: usize,
    cargo_args: &[String],
) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let mut phases = Phases::default();
    let cluster = phases.time(runner, "build the development cluster", || Devcluster::build(root, runner))?;
    let foreign = foreign::install(root, runner, &mut phases)?;
    sweep(runner, &cluster)?;

    let selection = selection(cargo_args);
    phases.time(runner, "build the dashboard", || web::build(root, runner))?;
    phases.time(runner, "build programs", || runner.run(&mut cache::build_programs(root)))?;
    phases.time(runner, "build tests", || {
        let mut command = cache::cargo();
        command.current_dir(root).arg("test").args(&selection.build).arg("--no-run");
        runner.run(&mut command)
    })?;
    let landed =
        phases.time(runner, "build the agent of the last landed version", || landed::agent(root, runner))?;
    let suite = || -> Result<Vec<String>> {
        let mut phases = Phases::default();
        let mut failed = Vec::new();
        with_servers(runner, &cluster, &mut phases, Purpose::Tests, |servers, phases| {
            let mut cargo = cache::cargo();
            cargo.envs(foreign.iter().cloned()).env("ROADSTEAD_TEST_LANDED_AGENT", &landed);
            failed = run_tests(root, runner, servers, phases, cargo, &selection, go)?;
            Ok(())
        })?;
        Ok(failed)
    };
    phases.print();
    if repeat <= 1 {
        let failed = suite()?;
        if !failed.is_empty() {
            bail!("{} failed", failed.join(", "));
        }
        return Ok(());
    }
    let mut report = Report::default();
    for number in 0..repeat {
        let loaded = Report::is_loaded(number);
        let beside = if loaded { ", beside load on all cores" } else { "" };
        runner.say(&format!("run {} of {repeat}{beside}", number + 1));
        let load = loaded.then(Load::start);
        let (took, failed) = timed(suite);
        drop(load);
        runner.check_before_more()?;
        // A stand that does not come up is a failure of that run, and the others go on.
        let failed = failed.unwrap_or_else(|error| vec![format!("the run itself: {error:#}")]);
        report.add(loaded, took, failed);
        eprint!("{}", report.text());
    }
    match report.failures() {
        0 => Ok(()),
        failed => bail!("{failed} of {repeat} runs failed"),
    }
}

/// What cargo is told: to build the tests, and to run them.
struct Selection {
    build: Vec<String>,
    run: Vec<String>,
    /// Only some packages or test programs are meant.
    narrowed: bool,
}

fn selection(cargo_args: &[String]) -> Selection {
    // What follows a `--` is for the test programs, and no option of the build.
    let options = cargo_args.iter().position(|arg| arg == "--").unwrap_or(cargo_args.len());
    let says = |what: &[&str]| {
        cargo_args[..options].iter().any(|arg| what.iter().any(|option| arg.starts_with(option)))
    };
    let some_packages = says(&["-p", "--package"]);
    let narrowed = some_packages || says(&["--test", "--lib", "--bin", "--doc"]);
    let mut build = if some_packages { Vec::new() } else { vec!["--workspace".to_owned()] };
    build.extend_from_slice(&cargo_args[..options]);
    let mut run = build.clone();
    run.push("--no-fail-fast".to_owned());
    run.extend_from_slice(&cargo_args[options..]);
    Selection { build, run, narrowed }
}

fn run_tests(
    root: &Path,
    runner: &Runner,
    servers: &Servers,
    phases: &mut Phases,
    mut cargo: Command,
    selection: &Selection,
    go: bool,
) -> Result<Vec<String>> {
    let programs = cache::target(root)?.join("debug");
    cargo.current_dir(root).arg("test").args(program::option(&programs)?).args(&selection.run);
    servers.tell(&mut cargo, &programs);
    let (rust, mut failed) =
        phases.time(runner, "run Rust tests", || watched(runner, &mut cargo, &mut std::io::stdout()))?;
    if !rust.success() && failed.is_empty() {
        failed.push("cargo test".to_owned());
    }
    if !selection.narrowed && !phases.time(runner, "run the dashboard's tests", || web::test(root, runner))? {
        failed.push("the dashboard's tests".to_owned());
    }
    if go {
        // As build.sh sets them, so that both use the same build cache.
        let mut command = Command::new("go");
        command.current_dir(root.join("tests/devcluster")).args(["test", "./..."]);
        command.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local");
        command.env("GOFLAGS", "-trimpath -buildvcs=false -mod=readonly");
        if !phases.time(runner, "run Go tests", || runner.status(&mut command))?.success() {
            failed.push("go test".to_owned());
        }
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(args: &[&str]) -> (String, String) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let selection = selection(&args);
        (selection.build.join(" "), selection.run.join(" "))
    }

    #[test]
    fn chooses_packages_and_passes_filters_on() {
        assert_eq!(split(&[]), ("--workspace".to_owned(), "--workspace --no-fail-fast".to_owned()));
        assert_eq!(
            split(&["-p", "roadstead-tests", "--", "kill"]),
            ("-p roadstead-tests".to_owned(), "-p roadstead-tests --no-fail-fast -- kill".to_owned())
        );
        assert_eq!(split(&["--", "-p"]).1, "--workspace --no-fail-fast -- -p");
        // With the whole workspace's features, so that nothing is built again for it.
        assert_eq!(split(&["--test", "soak"]).1, "--workspace --test soak --no-fail-fast");
        let narrowed =
            |args: &[&str]| selection(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).narrowed;
        assert!(narrowed(&["-p", "x"]) && narrowed(&["--test", "soak"]) && !narrowed(&["--", "--test"]));
    }
}
