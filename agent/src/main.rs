//! `roadstead-agent`: arguments, logs, signals; the rest is the library's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use roadstead_agent::app::{AgentError, Settings, run};
use roadstead_agent::enrol::EnrolError;
use roadstead_agent::ready;
use roadstead_model::parse_size;
use roadstead_outbound::Rule;
use roadstead_trace::WithTraceId;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// The exit code of an agent that the hub refuses to enrol: its token is wrong, used or expired.
const REFUSED: u8 = 3;

#[derive(Parser)]
#[command(version, about = "Keeps this cluster in the state that its Roadstead hub asks for")]
#[command(
    after_help = "Exit codes: 0 ended by a signal, 1 failed, 2 wrong usage, 3 the hub refused to enrol this agent."
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The join manifest that the hub gave (a Secret, YAML or JSON); without it, the Secret `roadstead-join` in the
    /// agent's namespace. Needed only for the first start
    #[arg(long, value_name = "FILE")]
    join: Option<PathBuf>,
    /// How to reach the cluster; without it, as a pod in it
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// The namespace for the agent's own Secrets and Lease; made if it is not there
    #[arg(long, default_value = "roadstead-system")]
    namespace: String,
    /// A file that is there, and fresh, while the agent has a session with the hub; for `roadstead-agent ready`
    #[arg(long, value_name = "PATH", global = true)]
    ready_file: Option<PathBuf>,
    /// Read no policy (ConfigMap roadstead-agent-policy in the agent's namespace): do whatever the hub says
    #[arg(long)]
    no_policy: bool,
    /// A network or host, beside the public internet, in which key services of SOPS may be asked (repeatable), with the credentials of
    /// decryption Secrets of this cluster: kms=10.20.0.0/16
    #[arg(
        long = "allow-network",
        value_name = "[PURPOSE=]CIDR|HOST[:PORT]",
        env = "ROADSTEAD_ALLOW_NETWORK",
        value_delimiter = ','
    )]
    networks: Vec<Rule>,
    /// Serve the agent's own metrics (OpenMetrics, at /metrics) on this address, by HTTP without TLS: 0.0.0.0:7445. Off by default; they
    /// name no object of the cluster
    #[arg(long, value_name = "ADDR", env = "ROADSTEAD_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,
    /// Accept events from Flux's controllers in the cluster on this address (HTTP without TLS), and relay them to the hub: 0.0.0.0:7446.
    /// Off by default
    #[arg(long, value_name = "ADDR", env = "ROADSTEAD_EVENTS_LISTEN", requires = "events_token_file")]
    events_listen: Option<SocketAddr>,
    /// The file with the token that Flux's controllers must send, as the password in --events-addr=http://flux:TOKEN@HOST:PORT/. It is
    /// read again for each event
    #[arg(long, value_name = "PATH", env = "ROADSTEAD_EVENTS_TOKEN_FILE")]
    events_token_file: Option<PathBuf>,
    /// Memory of the whole process: large builds wait for each other, and one that can never fit is refused: 1073741824, 512Mi
    /// [default: the limit of the control group, else the machine's memory]
    #[arg(long, value_name = "BYTES", env = "ROADSTEAD_MEMORY_BUDGET", value_parser = parse_size)]
    memory_budget: Option<u64>,
    /// How log lines look; what is logged is said by RUST_LOG
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Tell by the exit code whether the agent with the same --ready-file has a session with the hub: for a probe
    Ready,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::Ready) = args.command {
        return is_ready(args.ready_file.as_deref());
    }
    start_logging(args.log_format);
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            match error.downcast_ref() {
                Some(AgentError::Enrol(EnrolError::Refused { .. })) => ExitCode::from(REFUSED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            // Colours are for people, and their codes in a file for nobody.
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines.with_ansi(ansi).map_event_format(|lines| WithTraceId::text(lines.with_ansi(ansi))).init();
        }
        LogFormat::Json => {
            lines.json().map_event_format(|lines| WithTraceId::json(lines.flatten_event(true))).init();
        }
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider is installed already"))?;
    // Two workers: a large build that is parsed on one of them never holds up the other's heartbeats.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let token = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("shutting down");
            token.cancel();
        });
        let settings = Settings {
            join: args.join,
            kubeconfig: args.kubeconfig,
            namespace: args.namespace,
            ready_file: args.ready_file,
            no_policy: args.no_policy,
            networks: args.networks,
            metrics: args.metrics_listen,
            events: args.events_listen.zip(args.events_token_file),
            memory: args.memory_budget,
        };
        Ok(run(settings, stop).await?)
    })
}

fn is_ready(file: Option<&std::path::Path>) -> ExitCode {
    let ready = file.map_or(Err("give the agent's ready file with --ready-file".to_owned()), ready::check);
    match ready {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("roadstead-agent: {why}");
            ExitCode::FAILURE
        }
    }
}
