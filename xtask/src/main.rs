//! The workspace's own chores: what `make` and CI call. `cargo xtask help` lists them.

mod bench;
mod cache;
mod demo;
mod deny;
mod devcluster;
mod foreign;
mod fuzz;
mod generate;
mod images;
mod landed;
mod measure;
mod phases;
mod process;
mod program;
mod repeat;
mod rooms;
mod sbom;
mod stand;
mod test;
mod threats;
mod tool;
mod web;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use process::Runner;

#[derive(Parser)]
#[command(about = "Chores of the Roadstead workspace")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Make the files that are generated and checked in
    Generate {
        /// Compare with what is checked in, and write nothing there
        #[arg(long)]
        check: bool,
    },
    /// Check which room imports which
    Rooms,
    /// Build the dashboard, where its sources have changed
    Web {
        /// Check its format, types, lints and size besides
        #[arg(long)]
        check: bool,
    },
    /// Check licences, sources and doubled versions of all dependencies
    Deny,
    /// Start a Postgres and two clusters, run every test, and take all of it down again
    Test {
        /// Leave out the tests of tests/devcluster, which are Go's
        #[arg(long)]
        no_go: bool,
        /// Run the suite so many times over one build, every second time beside load on all cores, and tell which tests
        /// failed how often
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
        repeat: u16,
        /// Passed on to `cargo test` in place of `--workspace`: `-p NAME`, or `-- FILTER`
        #[arg(last = true)]
        cargo_args: Vec<String>,
    },
    /// Keep a Postgres and two clusters for tests that are run by hand
    Stand {
        #[command(subcommand)]
        what: Kept,
    },
    /// Start a test program: for cargo
    #[command(hide = true)]
    TestProgram {
        /// Its file
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Fuzz every decoder, with coverage, memory and time for each byte of input; report executions and findings
    Fuzz {
        /// Seconds for each target
        #[arg(long, default_value_t = 600)]
        seconds: u32,
        /// Only targets whose names contain this
        #[arg(long)]
        only: Option<String>,
    },
    /// Check that docs/threat-model.md names tests that exist
    Threats,
    /// Check that nothing under version control has a word that was retired
    Words,
    /// Write a bill of materials (CycloneDX) of each program into target/sbom
    Sbom,
    /// Build for release, and measure time from push to applied, and memory
    Measure,
    /// Build for release, and measure the hub's API beside kube-apiserver, and the pipeline
    Bench {
        /// Debug builds and little load: to try the bench itself
        #[arg(long)]
        quick: bool,
        /// One part of it; the dashboard's takes over an hour and that of alerts a quarter of one, so these are measured only when they are asked for
        #[arg(long, value_parser = bench::PARTS)]
        only: Option<String>,
    },
    /// Start the demo: two clusters, hub, agents, a Git server, a webapp; then push a change and show it arrive
    Demo {
        /// Two contexts of your kubeconfig, whose clusters take the place of the demo's own: "staging production"
        #[arg(long)]
        contexts: Option<String>,
    },
    /// Build the static programs of the images, and run them in roots that hold nothing else (as root)
    Images {
        /// Optimised, as they are published
        #[arg(long)]
        release: bool,
    },
    /// End everything that the demo started and remove its state
    CleanDemo,
}

#[derive(Subcommand)]
enum Kept {
    /// Build what tests need and start the servers; those that run stay
    Up,
    /// Print the variables that tests find them by, for a shell: eval "$(cargo xtask stand env)"
    Env,
    /// End the servers and remove what they hold
    Down,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().context("xtask lies in the workspace's folder")?;
    match Args::parse().chore {
        Chore::Generate { check } => generate::run(root, &Runner::new()?, check),
        Chore::Rooms => rooms::run(root),
        Chore::Web { check: false } => web::build(root, &Runner::new()?),
        Chore::Web { check: true } => web::check(root, &Runner::new()?),
        Chore::Deny => deny::run(root, &Runner::new()?),
        Chore::Test { no_go, repeat, cargo_args } => {
            test::run(root, &Runner::new()?, !no_go, repeat.into(), &cargo_args)
        }
        Chore::Stand { what: Kept::Up } => stand::kept::up(root, &Runner::new()?),
        Chore::Stand { what: Kept::Env } => stand::kept::env(),
        Chore::Stand { what: Kept::Down } => stand::kept::down(root, &Runner::new()?),
        Chore::TestProgram { program, arguments } => match program::run(&program, &arguments)? {},
        Chore::Fuzz { seconds, only } => fuzz::run(root, &Runner::new()?, seconds, only.as_deref()),
        Chore::Threats => threats::run(root),
        Chore::Words => words::run(root, &Runner::new()?),
        Chore::Sbom => sbom::run(root, &Runner::new()?),
        Chore::Measure => measure::run(root, &Runner::new()?),
        Chore::Bench { quick, only } => bench::run(root, &Runner::new()?, quick, only.as_deref()),
        Chore::Demo { contexts } => demo::up(root, &Runner::new()?, contexts.as_deref()),
        Chore::Images { release } => images::run(root, &Runner::new()?, release),
        Chore::CleanDemo => demo::clean(root, &Runner::new()?),
    }
}
