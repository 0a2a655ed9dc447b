//! What the worker processes of this program can do: each kind of job is registered here, and nowhere else.

use std::ffi::OsString;
use std::process::ExitCode;

use roadstead_worker::{Registry, serve};

use crate::delivery::build::{BUILD_JOB, Builder};
use crate::sources::fetch::{FETCH_JOB, fetch_job};
use crate::views::diff::{DIFF_JOB, diff_job};

/// The hidden first argument by which the hub's program becomes a worker.
pub const WORKER_ARGUMENT: &str = "worker-process";

/// Is a worker, with the arguments behind [`WORKER_ARGUMENT`].
#[must_use]
pub fn be_a_worker(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut builder = Builder::default();
    let registry = Registry::default()
        .with(BUILD_JOB, move |context, input| builder.job(context, &input))
        .with(DIFF_JOB, |context, input| diff_job(context, &input))
        .with(FETCH_JOB, |context, input| fetch_job(context, &input));
    serve(arguments, registry)
}
