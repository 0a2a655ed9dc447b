//! One worker process, as the pool sees it: its job's conversation, and what it uses meanwhile.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::child::job_message;
use crate::error::{JobError, Limit};
use crate::frame::{self, Received, Tag};
use crate::pool::{Exchange, Job, Reservation};
use crate::process::Setup;
use crate::protect::Protections;
use crate::stderr::{self, Stderr};
use crate::usage;

/// So long may a worker take to be gone, once its pipe is closed, before it is killed.
const END: Duration = Duration::from_secs(5);
/// How often CPU time is looked at while a job runs.
const LOOK: Duration = Duration::from_millis(50);
/// The message that tells a result's size has so many bytes.
const SIZE: usize = 8;
/// Files and folders that a worker may have: more than reading a repository takes, and no more than are looked at quickly.
const SCRATCH_FILES: usize = 2_000;
/// So many affinities are remembered of a worker.
const REMEMBERED: usize = 8;

/// A worker process. It is killed when this is dropped, and its folder removed.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    pub(crate) pid: u32,
    stdin: ChildStdin,
    stdout: ChildStdout,
    pub(crate) stderr: Stderr,
    pub(crate) protections: Protections,
    pub(crate) jobs: u32,
    pub(crate) remembers: VecDeque<[u8; 32]>,
    setup: Setup,
    scratch: TempDir,
    scratch_size: u64,
    _reservation: Held,
}

struct Held(#[expect(dead_code, reason = "given back when dropped")] Option<Reservation>);

// It is moved with its worker and looked at by nobody: sharing gives no access to it.
impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

/// How a job's conversation went wrong.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The pipe: the worker is probably gone.
    Pipe(io::Error),
    /// What the worker sent.
    Protocol(String),
    /// A limit of a message.
    Limit(Limit),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            return Self::Protocol(error.to_string());
        }
        Self::Pipe(error)
    }
}

impl Worker {
    pub(crate) fn new(
        mut child: Child,
        scratch: TempDir,
        setup: Setup,
        scratch_size: u64,
        reservation: Option<Reservation>,
    ) -> Result<Self, JobError> {
        let gone = || JobError::Start("the process has no pipes".to_owned());
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (child.id(), child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(gone());
        };
        Ok(Self {
            child,
            pid,
            stdin,
            stdout,
            stderr: Stderr::follow(stderr),
            protections: Protections::none(),
            jobs: 0,
            remembers: VecDeque::new(),
            setup,
            scratch,
            scratch_size,
            _reservation: Held(reservation),
        })
    }

    pub(crate) async fn hello(&mut self) -> Result<(), Broken> {
        let odd = || Broken::Protocol("it did not say which protections are on".to_owned());
        match frame::receive(&mut self.stdout, |_| 64).await? {
            Received::Message(Tag::Hello, bytes) => {
                self.protections = Protections::decode(&bytes).ok_or_else(odd)?;
                Ok(())
            }
            _ => Err(odd()),
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn remember(&mut self, affinity: Option<[u8; 32]>) {
        let Some(affinity) = affinity else { return };
        self.remembers.retain(|known| *known != affinity);
        self.remembers.push_back(affinity);
        if self.remembers.len() > REMEMBERED {
            self.remembers.pop_front();
        }
    }

    pub(crate) async fn run(&mut self, job: &Job, exchange: &mut impl Exchange) -> Result<Vec<u8>, JobError> {
        let limits = &job.limits;
        let deadline = Instant::now() + limits.wall;
        let (pid, stderr) = (self.pid, self.stderr.clone());
        let disk = Disk { folder: self.scratch.path(), most: self.scratch_size };
        let outcome = tokio::select! {
            biased;
            outcome = converse(&mut self.stdin, &mut self.stdout, job, exchange) => outcome,
            // Also while an answer is waited for, which may take long. A worker does not end by itself in a job.
            _ = self.child.wait() => Err(Broken::Pipe(io::ErrorKind::UnexpectedEof.into())),
            limit = watch(pid, &stderr, limits.cpu, disk) => Err(Broken::Limit(limit)),
            () = tokio::time::sleep_until(deadline.into()) => Err(Broken::Limit(Limit::Wall(limits.wall))),
        };
        match outcome {
            Ok(result) => Ok(result),
            Err(broken) => Err(self.ended(broken).await),
        }
    }

    /// What it came to: kills the worker where it is still there, and tells why it has no result.
    pub(crate) async fn ended(&mut self, broken: Broken) -> JobError {
        let broken = match broken {
            Broken::Limit(limit) => {
                // To its end, so that its memory is free once it counts as such.
                let _ = self.child.kill().await;
                return JobError::Limit(limit);
            }
            Broken::Protocol(why) => {
                let _ = self.child.kill().await;
                return JobError::Protocol(why);
            }
            Broken::Pipe(error) => error,
        };
        let status = match tokio::time::timeout(END, self.child.wait()).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return JobError::Crashed(error.to_string()),
            Err(_) => {
                let _ = self.child.kill().await;
                return JobError::Protocol(format!("it closed its pipe and went on: {broken}"));
            }
        };
        self.stderr.end(END).await;
        crash(status, &self.stderr.text(), &self.setup)
    }
}

/// Why a worker ended that was told nothing of the kind.
fn crash(status: ExitStatus, stderr: &str, setup: &Setup) -> JobError {
    use std::os::unix::process::ExitStatusExt as _;
    // So says Rust's allocator before it aborts.
    if stderr.contains("memory allocation of ") {
        return JobError::Limit(Limit::Memory(setup.memory));
    }
    let signal = status.signal().and_then(rustix::process::Signal::from_named_raw);
    match signal {
        Some(rustix::process::Signal::XFSZ) => JobError::Limit(Limit::FileSize(setup.file_size)),
        Some(rustix::process::Signal::KILL) => JobError::Killed("SIGKILL".to_owned()),
        Some(rustix::process::Signal::TERM) => JobError::Killed("SIGTERM".to_owned()),
        _ if stderr.contains("has overflowed its stack") => {
            JobError::Crashed("its stack overflowed".to_owned())
        }
        // Of a panic, the place only: the message may quote what it was at.
        _ => JobError::Crashed(place_of_panic(stderr).unwrap_or_else(|| status.to_string())),
    }
}

fn place_of_panic(stderr: &str) -> Option<String> {
    let (_, rest) = stderr.split_once(" panicked at ")?;
    let place = rest.lines().next()?.trim_end_matches(':');
    Some(format!("a panic at {}", place.chars().take(200).collect::<String>()))
}

async fn converse(
    stdin: &mut ChildStdin,
    stdout: &mut ChildStdout,
    job: &Job,
    exchange: &mut impl Exchange,
) -> Result<Vec<u8>, Broken> {
    frame::send(stdin, Tag::Job, &job_message(job.kind, &job.input)).await?;
    // What it said that its result has, and for which there is room.
    let mut size = None;
    loop {
        let most = |tag| match tag {
            Tag::Size => SIZE,
            Tag::Done => size.unwrap_or(0),
            Tag::Ask => job.limits.question,
            _ => 0,
        };
        match frame::receive(stdout, most).await? {
            Received::Message(Tag::Size, bytes) if size.is_none() => {
                size = Some(make_room(&bytes, job.limits.output, exchange).await?);
            }
            Received::Message(Tag::Done, result) if size == Some(result.len()) => return Ok(result),
            Received::Message(Tag::Ask, question) => match exchange.answer(question).await {
                Ok(answer) => frame::send(stdin, Tag::Answer, &answer).await?,
                Err(why) => frame::send(stdin, Tag::Refusal, why.as_bytes()).await?,
            },
            Received::TooLarge(Tag::Ask) => return Err(Broken::Limit(Limit::Question(job.limits.question))),
            Received::Message(..) | Received::TooLarge(_) => {
                return Err(Broken::Protocol(
                    "it sent a message that is not allowed, or not at that time".to_owned(),
                ));
            }
        }
    }
}

/// Has room made for a result of the size that the worker tells, which is at most `most`; gives the size.
async fn make_room(told: &[u8], most: u64, exchange: &mut impl Exchange) -> Result<usize, Broken> {
    let odd = || Broken::Protocol("it did not say how large its result is".to_owned());
    let size = u64::from_le_bytes(told.try_into().map_err(|_| odd())?);
    let too_large = |most| Broken::Limit(Limit::Output(most));
    if size > most {
        return Err(too_large(most));
    }
    exchange.room(size).await.map_err(too_large)?;
    usize::try_from(size).map_err(|_| too_large(most))
}

/// A worker's files, and how many bytes they may have.
struct Disk<'a> {
    folder: &'a Path,
    most: u64,
}

/// Ends when the worker has used more CPU time since now than `most`, wrote too much to standard error, or has too much on
/// the disk.
async fn watch(pid: u32, stderr: &Stderr, most: Duration, disk: Disk<'_>) -> Limit {
    let before = usage::cpu(pid);
    loop {
        tokio::time::sleep(LOOK).await;
        if let (Some(before), Some(now)) = (before, usage::cpu(pid))
            && now.saturating_sub(before) > most
        {
            return Limit::Cpu(most);
        }
        if stderr.is_full() {
            return Limit::StandardError(stderr::MOST);
        }
        match usage::files(pid, disk.folder, SCRATCH_FILES) {
            Some(bytes) if bytes <= disk.most => {}
            Some(_) => return Limit::Scratch(disk.most),
            None => return Limit::ScratchFiles(SCRATCH_FILES),
        }
    }
}
