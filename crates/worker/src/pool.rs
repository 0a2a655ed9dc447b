//! The pool: workers, one job each at a time.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Semaphore;

use crate::child::job_message;
use crate::error::{JobError, Limit};
use crate::frame::{self, Received, Tag};
use crate::process::{Program, Setup, Starter};
use crate::protect::Protections;
use crate::usage;

/// So long may a worker take from its start until it is ready. A busy machine is slow at starting programs.
const START: Duration = Duration::from_secs(60);
/// So long may a worker take to be gone, once its pipe is closed, before it is killed.
const END: Duration = Duration::from_secs(5);
/// How often CPU time is looked at while a job runs.
const LOOK: Duration = Duration::from_millis(50);
/// What is read of a worker's standard error, and what is kept of that.
const STDERR_MOST: usize = 1 << 20;
const STDERR_KEPT: usize = 4 << 10;
/// So many affinities are remembered of a worker.
const REMEMBERED: usize = 8;

/// What is held while a worker lives: a place in the process's budget.
pub type Reservation = Box<dyn Send>;
/// Reserves so many bytes of memory for a worker, waiting where there is no room.
pub type Reserve = Arc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = Reservation> + Send>> + Send + Sync>;

/// How a pool is set up.
#[derive(Clone)]
pub struct Settings {
    /// Workers at once.
    pub workers: usize,
    /// Most bytes of memory of one worker.
    pub memory: u64,
    /// Most bytes of files in its scratch folder that one worker has mapped, which the system can take out of memory.
    pub mapped: u64,
    /// Most open files of one worker.
    pub files: u64,
    /// Most bytes of one file in a worker's scratch folder.
    pub file_size: u64,
    /// A worker that has more bytes than this in memory for itself after a job is replaced.
    pub recycle_above: u64,
    /// A worker is replaced after so many jobs.
    pub jobs_per_worker: u32,
    /// Where scratch folders are made; the system's place for such if `None`.
    pub scratch: Option<PathBuf>,
    /// Folders that workers may read: for development only.
    pub readable: Vec<PathBuf>,
    /// Asked before a worker is started.
    pub reserve: Option<Reserve>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 2,
            memory: 200 << 20,
            mapped: 0,
            files: 64,
            file_size: 512 << 20,
            recycle_above: 96 << 20,
            jobs_per_worker: 1_000,
            scratch: None,
            readable: Vec::new(),
            reserve: None,
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("workers", &self.workers)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// A job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its kind, by which the worker knows what to do.
    pub kind: &'static str,
    /// What the worker is given.
    pub input: Vec<u8>,
    /// What a worker may have kept of an earlier job with the same affinity: that one is preferred.
    pub affinity: Option<[u8; 32]>,
    /// Its limits, besides the worker's memory.
    pub limits: JobLimits,
}

/// Limits of one job.
#[derive(Debug, Clone)]
pub struct JobLimits {
    /// CPU time.
    pub cpu: Duration,
    /// Wall-clock time, answers to its questions included.
    pub wall: Duration,
    /// Bytes of its result.
    pub output: usize,
    /// Bytes of one of its questions.
    pub question: usize,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(60),
            wall: Duration::from_secs(300),
            output: 64 << 20,
            question: 64 << 10,
        }
    }
}

/// Answers the questions of one job.
pub trait Exchange: Send {
    /// The answer, or why there is none: a text for the worker.
    fn answer(&mut self, question: Vec<u8>) -> impl Future<Output = Result<Bytes, String>> + Send;
}

/// For jobs that ask nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoExchange;

impl Exchange for NoExchange {
    async fn answer(&mut self, _question: Vec<u8>) -> Result<Bytes, String> {
        Err("this job may ask nothing".to_owned())
    }
}

/// Runs jobs in worker processes. Cheap to clone; the workers end with the last clone.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: Program,
    settings: Settings,
    places: Semaphore,
    /// Workers without a job, the one that had one last at the end.
    idle: Mutex<Vec<Worker>>,
    starter: OnceLock<Starter>,
    started: AtomicUsize,
}

impl Pool {
    /// A pool without workers; they are started when there are jobs.
    #[must_use]
    pub fn new(program: Program, settings: Settings) -> Self {
        Self(Arc::new(Inner {
            program,
            places: Semaphore::new(settings.workers.max(1)),
            settings,
            idle: Mutex::default(),
            starter: OnceLock::new(),
            started: AtomicUsize::new(0),
        }))
    }

    /// Starts a worker where there is none, and tells which protections are on: to be said when the program starts.
    ///
    /// # Errors
    /// [`JobError::Start`].
    pub async fn protections(&self) -> Result<Protections, JobError> {
        let _place = self.place().await?;
        let worker = self.worker(None).await?;
        let protections = worker.protections;
        self.keep(worker);
        Ok(protections)
    }

    /// How many workers were started until now.
    #[must_use]
    pub fn started(&self) -> usize {
        self.0.started.load(Ordering::Relaxed)
    }

    /// How the pool was set up.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Does a job: waits for a worker, gives it the job, answers its questions, and gives its result. Where this is dropped
    /// before, the worker is killed.
    ///
    /// # Errors
    /// A [`JobError`]. The worker is gone then, and the pool goes on with others.
    pub async fn run(&self, job: Job, exchange: &mut impl Exchange) -> Result<Vec<u8>, JobError> {
        let _place = self.place().await?;
        let mut worker = self.worker(job.affinity).await?;
        let result = worker.run(&job, exchange).await;
        match &result {
            Ok(_) => {
                worker.remember(job.affinity);
                self.keep(worker);
            }
            Err(error) => {
                tracing::warn!(kind = job.kind, error = error.to_string(), "a worker process is replaced");
            }
        }
        result
    }

    async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, JobError> {
        self.0.places.acquire().await.map_err(|error| JobError::Start(error.to_string()))
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        // The list is whole at any time: a panic elsewhere does not spoil it.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker: the one that knows what the job is about, else the one that has been idle for longest, else a new one.
    async fn worker(&self, affinity: Option<[u8; 32]>) -> Result<Worker, JobError> {
        loop {
            let found = {
                let mut idle = self.idle();
                let knows = affinity
                    .and_then(|affinity| idle.iter().position(|worker| worker.remembers.contains(&affinity)));
                match knows {
                    Some(index) => Some(idle.remove(index)),
                    None if idle.is_empty() => None,
                    None => Some(idle.remove(0)),
                }
            };
            let Some(mut worker) = found else { return self.start().await };
            // One that was killed while it had nothing to do harms nobody.
            if worker.is_alive() {
                return Ok(worker);
            }
        }
    }

    fn keep(&self, mut worker: Worker) {
        let settings = &self.0.settings;
        worker.jobs += 1;
        let large = usage::resident(worker.pid).is_some_and(|bytes| bytes > settings.recycle_above);
        if worker.jobs < settings.jobs_per_worker && !large {
            self.idle().push(worker);
        }
    }

    async fn start(&self) -> Result<Worker, JobError> {
        let settings = &self.0.settings;
        let reservation = match &settings.reserve {
            Some(reserve) => Some(reserve(settings.memory).await),
            None => None,
        };
        let failed = |error: &dyn std::fmt::Display| JobError::Start(error.to_string());
        let scratch = scratch(settings).map_err(|error| failed(&error))?;
        let setup = Setup {
            memory: settings.memory,
            mapped: settings.mapped,
            files: settings.files,
            file_size: settings.file_size,
            scratch: scratch.path().to_owned(),
            readable: settings.readable.clone(),
        };
        let starter = self.starter().map_err(|error| failed(&error))?;
        let child = starter.start(setup.clone()).await.map_err(|error| failed(&error))?;
        self.0.started.fetch_add(1, Ordering::Relaxed);
        let mut worker = Worker::new(child, scratch, setup, reservation)?;
        match tokio::time::timeout(START, worker.hello()).await {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(error)) => {
                let error = worker.ended(error).await;
                Err(JobError::Start(format!("{error}: {}", worker.stderr.text())))
            }
            Err(_) => Err(JobError::Start(format!("it was not ready after {} s", START.as_secs()))),
        }
    }

    fn starter(&self) -> io::Result<Starter> {
        if let Some(starter) = self.0.starter.get() {
            return Ok(starter.clone());
        }
        let starter = Starter::new(self.0.program.clone())?;
        Ok(self.0.starter.get_or_init(|| starter).clone())
    }
}

fn scratch(settings: &Settings) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("roadstead-worker-");
    match &settings.scratch {
        Some(place) => builder.tempdir_in(place),
        None => builder.tempdir(),
    }
}

/// A worker process. It is killed when this is dropped, and its folder removed.
#[derive(Debug)]
struct Worker {
    child: Child,
    pid: u32,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: Stderr,
    protections: Protections,
    jobs: u32,
    remembers: VecDeque<[u8; 32]>,
    setup: Setup,
    _scratch: TempDir,
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
enum Broken {
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
    fn new(
        mut child: Child,
        scratch: TempDir,
        setup: Setup,
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
            _scratch: scratch,
            _reservation: Held(reservation),
        })
    }

    async fn hello(&mut self) -> Result<(), Broken> {
        let odd = || Broken::Protocol("it did not say which protections are on".to_owned());
        match frame::receive(&mut self.stdout, |_| 64).await? {
            Received::Message(Tag::Hello, bytes) => {
                self.protections = Protections::decode(&bytes).ok_or_else(odd)?;
                Ok(())
            }
            _ => Err(odd()),
        }
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn remember(&mut self, affinity: Option<[u8; 32]>) {
        let Some(affinity) = affinity else { return };
        self.remembers.retain(|known| *known != affinity);
        self.remembers.push_back(affinity);
        if self.remembers.len() > REMEMBERED {
            self.remembers.pop_front();
        }
    }

    async fn run(&mut self, job: &Job, exchange: &mut impl Exchange) -> Result<Vec<u8>, JobError> {
        let limits = &job.limits;
        let deadline = Instant::now() + limits.wall;
        let (pid, stderr) = (self.pid, self.stderr.clone());
        let outcome = tokio::select! {
            biased;
            outcome = converse(&mut self.stdin, &mut self.stdout, job, exchange) => outcome,
            // Also while an answer is waited for, which may take long. A worker does not end by itself in a job.
            _ = self.child.wait() => Err(Broken::Pipe(io::ErrorKind::UnexpectedEof.into())),
            limit = watch(pid, &stderr, limits.cpu) => Err(Broken::Limit(limit)),
            () = tokio::time::sleep_until(deadline.into()) => Err(Broken::Limit(Limit::Wall(limits.wall))),
        };
        match outcome {
            Ok(result) => Ok(result),
            Err(broken) => Err(self.ended(broken).await),
        }
    }

    /// What it came to: kills the worker where it is still there, and tells why it has no result.
    async fn ended(&mut self, broken: Broken) -> JobError {
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
        self.stderr.end().await;
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
    let most = |tag| match tag {
        Tag::Done => job.limits.output,
        Tag::Ask => job.limits.question,
        _ => 0,
    };
    loop {
        match frame::receive(stdout, most).await? {
            Received::Message(Tag::Done, result) => return Ok(result),
            Received::Message(Tag::Ask, question) => match exchange.answer(question).await {
                Ok(answer) => frame::send(stdin, Tag::Answer, &answer).await?,
                Err(why) => frame::send(stdin, Tag::Refusal, why.as_bytes()).await?,
            },
            Received::TooLarge(Tag::Done) => return Err(Broken::Limit(Limit::Output(job.limits.output))),
            Received::TooLarge(Tag::Ask) => return Err(Broken::Limit(Limit::Question(job.limits.question))),
            Received::Message(..) | Received::TooLarge(_) => {
                return Err(Broken::Protocol("it sent what only it is sent".to_owned()));
            }
        }
    }
}

/// Ends when the worker has used more CPU time since now than `most`, or wrote too much to standard error.
async fn watch(pid: u32, stderr: &Stderr, most: Duration) -> Limit {
    let before = usage::cpu(pid);
    loop {
        tokio::time::sleep(LOOK).await;
        if let (Some(before), Some(now)) = (before, usage::cpu(pid))
            && now.saturating_sub(before) > most
        {
            return Limit::Cpu(most);
        }
        if stderr.is_full() {
            return Limit::StandardError(STDERR_MOST);
        }
    }
}

/// What a worker writes to standard error, read as it comes so that it never waits, and bounded.
#[derive(Debug, Clone)]
struct Stderr(Arc<Mutex<Tail>>);

#[derive(Debug, Default)]
struct Tail {
    kept: VecDeque<u8>,
    read: usize,
    ended: bool,
}

impl Stderr {
    fn follow(mut from: ChildStderr) -> Self {
        let stderr = Self(Arc::default());
        let follower = stderr.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            loop {
                let count = from.read(&mut buffer).await.unwrap_or(0);
                let mut tail = follower.lock();
                if count == 0 || tail.read > STDERR_MOST {
                    tail.ended = true;
                    return;
                }
                tail.read += count;
                tail.kept.extend(&buffer[..count]);
                let excess = tail.kept.len().saturating_sub(STDERR_KEPT);
                tail.kept.drain(..excess);
            }
        });
        stderr
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.lock().read > STDERR_MOST
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.lock().kept.make_contiguous()).trim().to_owned()
    }

    /// Waits until all is read that was written, for a moment.
    async fn end(&self) {
        let deadline = Instant::now() + END;
        while !self.lock().ended && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
