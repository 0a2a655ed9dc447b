//! Jobs on untrusted bytes, in confined child processes of the program's own binary.
//!
//! A job is bytes in, bytes out and limits. The program registers what it can do by kind ([`Registry`]) and becomes a
//! worker when it is started as one ([`serve`]); a [`Pool`] starts such processes, gives them jobs one at a time, and
//! knows nothing of what is in them. While at a job, a worker may ask the process that runs it for bytes ([`Context::ask`],
//! answered by an [`Exchange`]): it has no other way to anything outside.
//!
//! A worker limits itself before it reads the first byte of a job ([`Protections`]): memory, open files, size of files, no
//! core dump, no new privileges, an allowlist of system calls without sockets, processes and signals (seccomp), and no file
//! but those of its own scratch folder (Landlock). Its environment is empty, and the pipes are its only open files.
//! CPU and wall-clock time are counted by the pool, job by job.
//!
//! Whatever happens to a worker (it passes a limit, crashes, hangs, floods its pipe, or is killed) is a [`JobError`] of the
//! job that it was at, and of no other.

mod child;
mod error;
mod frame;
mod pool;
mod process;
mod protect;
mod stderr;
#[cfg(target_os = "linux")]
mod syscalls;
mod usage;
mod worker;

pub use child::{Answer, Context, Line, Registry, serve};
pub use error::{JobError, Limit};
pub use pool::{Exchange, Job, JobLimits, NoExchange, Pool, Reservation, Reserve, Settings};
pub use process::Program;
pub use protect::{FileAccess, Protections};
