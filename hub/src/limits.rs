//! How much the API takes: the command line's options for it, and what the process needs for them.

use std::time::Duration;

use clap::Args;
use roadstead_hub_api::ApiOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files besides the API's connections: the database's, agents' links, logs, what fetches use.
const OTHER_FILES: u64 = 1000;

/// Limits of the API. What is beyond them waits for its turn, or is answered 429 with Retry-After.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits of the API")]
pub(crate) struct LimitArgs {
    /// Connections at once; a new one beyond these takes the place of the one that has been idle for longest
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    max_connections: u32,

    /// Seconds after which a connection without a request is closed
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    idle_timeout: u32,

    /// Requests that run at once; a user has three quarters of them at most, and users take turns
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_requests: u32,

    /// Requests of one user that wait for their turn
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    max_waiting_requests_per_user: u32,

    /// Watches at once
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_watches: u32,

    /// Watches of one user at once
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_watches_per_user: u32,

    /// An origin of web pages of which browsers may let scripts read answers, as https://dashboard.example, or * for all;
    /// may be given several times [default: none]
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
}

impl LimitArgs {
    pub(crate) fn api(&self) -> ApiOptions {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        ApiOptions {
            connections: count(self.max_connections),
            idle_timeout: Duration::from_secs(self.idle_timeout.into()),
            requests: count(self.max_requests),
            waiting_per_user: count(self.max_waiting_requests_per_user),
            watches: count(self.max_watches),
            watches_per_user: count(self.max_watches_per_user),
            cors_origins: self.cors_origin.clone(),
            ..ApiOptions::default()
        }
    }
}

/// Takes as many open files as the system gives: many systems give a thousand unless asked.
pub(crate) fn raise_open_files(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    if let Some(files) = getrlimit(Resource::Nofile).current.filter(|files| *files < wanted) {
        tracing::warn!(files, wanted, "fewer files may be open than the API's connections may need");
    }
}
