//! `roadstead-hub`: the control plane. This is where its parts are put together, and where it starts and ends.

mod args;
mod artifacts;
mod authentication;
mod clouds;
mod clusters;
mod database;
mod dev;
mod keyfile;
mod kubeconfig;
mod limits;
mod logging;
mod network;
mod otlp;
mod private_file;
mod rekey;
mod run;
mod unwrapping;
mod wrap;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser as _;
use roadstead_hub_core::{WORKER_ARGUMENT, be_a_worker};

fn main() -> ExitCode {
    // First of all: a worker limits itself while it has one thread, and reads nothing else.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == WORKER_ARGUMENT) {
        return be_a_worker(arguments);
    }
    let args = args::Args::parse();
    let format = if args.command.is_some() { args::LogFormat::Text } else { args.log_format };
    logging::start(format);
    let error = match start(args) {
        Ok(code) => return code,
        Err(error) => error,
    };
    // Once: people read a plain line, programs the log.
    if format == args::LogFormat::Text || std::io::stderr().is_terminal() {
        eprintln!("roadstead-hub: {error:#}");
    } else {
        tracing::error!(error = format!("{error:#}"), "the hub has failed");
    }
    ExitCode::FAILURE
}

fn start(args: args::Args) -> anyhow::Result<ExitCode> {
    // One provider for everything in the process that speaks TLS.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        anyhow::bail!("another TLS provider was installed before the hub's");
    }
    keep_memory_private();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = match &args.command {
        Some(args::Command::Rekey(args)) => runtime.block_on(rekey::run(args)),
        Some(args::Command::WrapKey(args)) => runtime.block_on(wrap::run(args)),
        None => runtime.block_on(run::run(args)).map(|()| ExitCode::SUCCESS),
    };
    // A blocking task that hangs (a Git server that trickles) does not hold the end up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    ended
}

/// Keeps other processes of this user, workers that broke out of their limits among them, from reading this one's memory and
/// environment; and what is in memory out of core dumps.
fn keep_memory_private() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "other processes of this user can read the hub's memory");
    }
}
