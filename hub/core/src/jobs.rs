//! What the worker processes of this program can do: each kind of job is registered here, and nowhere else.

use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;

use roadstead_worker::{Registry, serve};

use crate::delivery::build::{BUILD_JOB, Builder, INDEX_JOB};
use crate::sources::fetch::{FETCH_JOB, fetch_job};
use crate::views::diff::{DIFF_JOB, diff_job};

/// The hidden first argument by which the hub's program becomes a worker.
pub const WORKER_ARGUMENT: &str = "worker-process";

/// Is a worker, with the arguments behind [`WORKER_ARGUMENT`].
#[must_use]
pub fn be_a_worker(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // One job at a time: the trees that it keeps are the same for both.
    let builder = Rc::new(RefCell::new(Builder::default()));
    let indexer = Rc::clone(&builder);
    let registry = Registry::default()
        .with(BUILD_JOB, move |context, input| builder.borrow_mut().job(context, &input))
        .with(INDEX_JOB, move |context, input| indexer.borrow_mut().index_job(context, &input))
        .with(DIFF_JOB, |context, input| diff_job(context, &input))
        .with(FETCH_JOB, |context, input| fetch_job(context, &input));
    serve(arguments, registry)
}
