//! Why a job has no result.

use std::fmt;
use std::time::Duration;

/// Why a job has no result. The worker that was at it is gone.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// No worker could be started: nothing is known of the job.
    #[error("start a worker process: {0}")]
    Start(String),
    /// The job passed a limit.
    #[error("{0}")]
    Limit(Limit),
    /// The worker ended by itself in the middle of the job.
    #[error("the worker process crashed: {0}")]
    Crashed(String),
    /// Something other than the pool killed the worker: the system when memory is short, or a person.
    #[error(
        "the worker process was killed by {0}, from outside the job: memory may be short on this machine"
    )]
    Killed(String),
    /// The worker sent something that it should not have.
    #[error("the worker process broke the protocol: {0}")]
    Protocol(String),
}

impl JobError {
    /// Whether the job's own bytes brought it about, as far as can be told: the same job would probably end the same way.
    #[must_use]
    pub fn is_of_the_job(&self) -> bool {
        match self {
            Self::Start(_) | Self::Killed(_) => false,
            // A machine that has other work can make any job late.
            Self::Limit(limit) => !matches!(limit, Limit::Wall(_)),
            Self::Crashed(_) | Self::Protocol(_) => true,
        }
    }
}

/// A limit that a job passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory of the worker, in bytes.
    Memory(u64),
    /// CPU time of the job.
    Cpu(Duration),
    /// Wall-clock time of the job.
    Wall(Duration),
    /// Bytes of the job's result.
    Output(u64),
    /// Bytes of one question of the job.
    Question(usize),
    /// Bytes written to standard error.
    StandardError(usize),
    /// Bytes of one file in its scratch folder.
    FileSize(u64),
    /// Bytes of all its files together.
    Scratch(u64),
    /// Files and folders in its scratch folder.
    ScratchFiles(usize),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => write!(f, "it needs more than {} MiB of memory", bytes >> 20),
            Self::Cpu(time) => write!(f, "it needs more than {} s of CPU time", seconds(*time)),
            Self::Wall(time) => write!(f, "it was not finished within {} s", seconds(*time)),
            Self::Output(bytes) => write!(f, "its result has more than {bytes} bytes"),
            Self::Question(bytes) => write!(f, "it asked for something with more than {bytes} bytes"),
            Self::StandardError(bytes) => {
                write!(f, "it wrote more than {bytes} bytes to standard error")
            }
            Self::FileSize(bytes) => write!(f, "it wrote a file of more than {} MiB", bytes >> 20),
            Self::Scratch(bytes) => write!(f, "it wrote files of more than {} MiB in all", bytes >> 20),
            Self::ScratchFiles(count) => write!(f, "it made more than {count} files and folders"),
        }
    }
}

fn seconds(time: Duration) -> String {
    if time.subsec_millis() == 0 { time.as_secs().to_string() } else { format!("{:.1}", time.as_secs_f64()) }
}
