//! The pool: workers, one job each at a time.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::error::JobError;
use crate::process::{Program, Setup, Starter};
use crate::protect::Protections;
use crate::usage;
use crate::worker::Worker;

/// So long may a worker take from its start until it is ready. A busy machine is slow at starting programs.
const START: Duration = Duration::from_secs(60);

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
    /// Most bytes of all files in a worker's scratch folder, and of those that it removed and still has open. Looked at
    /// while a job runs, so that a quick worker passes it by what it writes within a look.
    pub scratch_size: u64,
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
            scratch_size: 1 << 30,
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
    pub output: u64,
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

    /// Waits until there is room for a result of so many bytes, of which none is read before. Where there never is, how many
    /// there can be.
    fn room(&mut self, bytes: u64) -> impl Future<Output = Result<(), u64>> + Send {
        let _ = bytes;
        std::future::ready(Ok(()))
    }
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
    /// The last one that was to be started could not.
    cannot_start: AtomicBool,
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
            cannot_start: AtomicBool::new(false),
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

    /// Whether the last worker that was to be started could not.
    #[must_use]
    pub fn cannot_start(&self) -> bool {
        self.0.cannot_start.load(Ordering::Relaxed)
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
            let Some(mut worker) = found else {
                let started = self.start().await;
                self.0.cannot_start.store(started.is_err(), Ordering::Relaxed);
                return started;
            };
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
        let mut worker = Worker::new(child, scratch, setup, settings.scratch_size, reservation)?;
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
