//! How much the API takes: the command line's options for it, and what the process needs for them.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use roadstead_budget::{FileShares, MemoryBudget, detect, show_size};
use roadstead_hub_api::ApiOptions;
use roadstead_hub_link::LinkOptions;
use roadstead_model::parse_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits of the API. What is beyond them waits for its turn, or is answered 429 with Retry-After.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory of the whole process, shared out to all that it does; what does not fit waits or is refused: 1073741824, 512Mi
    /// [default: the limit of the control group, else the machine's memory]
    #[arg(long, value_name = "BYTES", env = "ROADSTEAD_MEMORY_BUDGET", value_parser = budget)]
    memory_budget: Option<u64>,

    /// Connections at once with a good token, of which a user has a quarter; a new one beyond these takes the place of the one
    /// that has been idle for longest [default: as many as there is memory for (40 KiB each, out of 6 % of the budget), up to
    /// 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    max_connections: Option<u32>,

    /// Connections of agents at once; a new one beyond these is refused [default: as many as there is memory for (80 KiB
    /// each, out of 9 % of the budget), up to 4000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    max_agent_connections: Option<u32>,

    /// Seconds after which a connection without a request is closed
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    idle_timeout: u32,

    /// Requests that run at once; a user has three quarters of them at most, and users take turns
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_requests: u32,

    /// Changes of one user that run at once: whoever makes them all the time does not hold up reconciliations and other users
    /// [default: the number of processors, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_changes_per_user: Option<u32>,

    /// Requests of one user that wait for their turn; changes are counted separately
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
    /// The API's options; no more connections than there are open files and memory for.
    pub(crate) fn api(&self, files: FileShares, budget: &MemoryBudget) -> ApiOptions {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let options = ApiOptions::default();
        let wanted = self.max_connections.map(count);
        let most = wanted.unwrap_or(options.connections);
        let anonymous = options.anonymous.min(files.api / 4).max(1);
        // Where Receivers are called on a listener of their own, that has some too.
        let taken = anonymous + roadstead_hub_api::callers_within(budget);
        let room = files.api.saturating_sub(taken).max(1);
        bounded("the API's connections are bounded by its share of open files", wanted, room);
        let fit = roadstead_hub_api::connections_within(budget);
        bounded("the API's connections are bounded by their share of memory", wanted, fit);
        ApiOptions {
            connections: most.min(room).min(fit),
            anonymous,
            idle_timeout: Duration::from_secs(self.idle_timeout.into()),
            requests: count(self.max_requests),
            changes_per_user: self.max_changes_per_user.map_or(options.changes_per_user, count),
            waiting_per_user: count(self.max_waiting_requests_per_user),
            watches: count(self.max_watches),
            watches_per_user: count(self.max_watches_per_user),
            cors_origins: self.cors_origin.clone(),
            ..options
        }
    }
}

impl LimitArgs {
    /// The link's options; no more connections than there are open files and memory for, those included that have shown no
    /// certificate.
    pub(crate) fn link(&self, files: FileShares, budget: &MemoryBudget) -> LinkOptions {
        let options = LinkOptions::default();
        let wanted = self.max_agent_connections.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let most = wanted.unwrap_or(options.connections);
        let anonymous = options.anonymous.min(files.link / 4).max(1);
        let room = files.link.saturating_sub(anonymous).max(1);
        bounded("agents' connections are bounded by their share of open files", wanted, room);
        let fit = roadstead_hub_link::sessions_within(budget);
        bounded("agents' connections are bounded by their share of memory", wanted, fit);
        LinkOptions { connections: most.min(room).min(fit), anonymous, ..options }
    }
}

/// Says so where an operator gets fewer than were asked for.
fn bounded(why: &str, wanted: Option<usize>, connections: usize) {
    if let Some(wanted) = wanted.filter(|wanted| connections < *wanted) {
        tracing::warn!(wanted, connections, "{why}");
    }
}

/// A budget that can be shared out.
fn budget(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < MemoryBudget::LEAST {
        return Err(format!("must be at least {}", show_size(MemoryBudget::LEAST)));
    }
    Ok(bytes)
}

/// Shares the process's memory out but for what is set `aside`, and logs the shares.
pub(crate) fn share_memory(args: &LimitArgs, aside: u64) -> Arc<MemoryBudget> {
    let (bytes, origin) = detect::memory(args.memory_budget);
    let bytes = bytes.saturating_sub(aside);
    let budget = MemoryBudget::new(bytes);
    if bytes < budget.total() {
        tracing::warn!(
            limit = show_size(bytes),
            least = show_size(MemoryBudget::LEAST),
            "the memory limit is too small for a hub"
        );
    }
    let shares: Vec<String> =
        budget.pools().map(|pool| format!("{} {}", pool.name(), show_size(pool.size()))).collect();
    tracing::info!(
        total = show_size(budget.total()),
        %origin,
        shares = shares.join(", "),
        remainder = show_size(budget.remainder()),
        "memory budget"
    );
    Arc::new(budget)
}

/// Raises the limit of open files as far as the system allows (many give a thousand unless asked), and shares it out.
pub(crate) fn share_files() -> FileShares {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    // None means that there is no limit.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let shares = FileShares::of(files);
    tracing::info!(limit = files, api = shares.api, link = shares.link, rest = shares.rest, "open files");
    shares
}
