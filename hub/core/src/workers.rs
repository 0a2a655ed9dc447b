//! What the hub's worker processes do.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use roadstead_budget::{MemoryBudget, PoolName};
use roadstead_worker::{Pool, Program, Registry, Reservation, Reserve, Settings, serve};

use crate::build::{BUILD_JOB, Builder};

/// The hidden first argument by which the hub's program becomes a worker.
pub const WORKER_ARGUMENT: &str = "worker-process";

/// Workers at once. Each has two fifths of what workers may have; the rest is for what this process holds of their input
/// and output.
const WORKERS: usize = 2;
/// More memory than this is more than any build takes that ends within its time.
const MOST: u64 = 2 << 30;

/// Is a worker, with the arguments behind [`WORKER_ARGUMENT`].
#[must_use]
pub fn be_a_worker(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut builder = Builder::default();
    let registry = Registry::default().with(BUILD_JOB, move |context, input| builder.job(context, &input));
    serve(arguments, registry)
}

/// The pool of workers. Together, with what this process holds for them, they stay within their share of `budget`.
///
/// # Errors
/// Where the system does not tell where this program lies.
pub fn workers(budget: &MemoryBudget) -> std::io::Result<Pool> {
    Ok(workers_of(Program::this("roadstead-hub", WORKER_ARGUMENT)?, budget))
}

/// As [`workers`], with a program that calls [`be_a_worker`].
#[must_use]
pub fn workers_of(program: Program, budget: &MemoryBudget) -> Pool {
    let share = budget.pool(PoolName::Workers).clone();
    let each = (share.size() / 5 * 2).min(MOST);
    let reserve: Reserve = Arc::new(move |bytes| {
        let share = share.clone();
        // Two of them always fit, so that none is refused.
        Box::pin(async move { Box::new(share.reserve(bytes).await.ok()) as Reservation })
    });
    let settings = Settings {
        workers: WORKERS,
        memory: each,
        // What is above is not worth keeping for the next job.
        recycle_above: each / 2,
        reserve: Some(reserve),
        ..Settings::default()
    };
    Pool::new(program, settings)
}
