//! Fetching a source. This process has the network and the credentials, and keeps what servers send without looking at it;
//! reading it is a worker process's, which has neither and is begun only when an answer is there. So a server that takes
//! its time holds no worker.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use roadstead_budget::MemoryBudget;
use roadstead_model::{Digest, ResourceUid, Revision};
use roadstead_sources::bucket::{BucketLimits, KnownBucket};
use roadstead_sources::generate::GenerateLimits;
use roadstead_sources::git::KnownServer;
use roadstead_sources::helm::{HelmLimits, KnownIndex, normalised};
use roadstead_sources::oci::{KnownRegistry, OciLimits};
use roadstead_sources::{Desk, Ended, Engine, Line, MOST_QUESTION, Room};
use roadstead_sources::{Failed, GitLimits, Outcome, Source, read};
use roadstead_worker::{Context, Exchange, Job, JobError, JobLimits};
use tokio_util::sync::CancellationToken;

use crate::HubError;
use crate::quarantine::not_read;
use crate::sources::Sources;
use crate::sources::pass::FetchJob;
use crate::workers::Workers;

/// The kind of the job that reads what a server sent.
pub(crate) const FETCH_JOB: &str = "fetch";

/// CPU time of one reading: of 512 MiB of pack, and of packing what is in it.
const CPU: Duration = Duration::from_secs(60);
/// The fetch's own time is shorter.
const WALL: Duration = Duration::from_secs(660);
/// Bytes of a reader's reply: a request to a server, or a hundred notes.
const REPLY: u64 = 1 << 20;
/// What indexing a pack takes of memory for each object, and then some.
const PER_OBJECT: u64 = 256;
/// What an index takes of memory for each version of a chart.
const PER_VERSION: u64 = 512;
/// An artifact is in memory as such and sealed.
const COPIES: u64 = 2;

/// Servers' advertisements may take this part of the process's memory.
const PART: u64 = 256;

/// The servers of sources, as this process last found them.
#[derive(Debug)]
pub(crate) struct KnownServers {
    most: usize,
    of: Mutex<HashMap<ResourceUid, (Asking, Known)>>,
    /// Indexes of Helm repositories.
    indexes: Mutex<HashMap<IndexKey, KnownIndex>>,
}

/// Namespace, URL and the versions of the Secrets.
type IndexKey = (String, String, Vec<i64>);

/// A source's generation, and the versions of its Secrets: with another one it is perhaps another server, or another client to it.
type Asking = (i64, Vec<i64>);

/// A server of a source. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) git: KnownServer,
    pub(crate) registry: KnownRegistry,
    pub(crate) bucket: KnownBucket,
    pub(crate) index: KnownIndex,
}

impl KnownServers {
    pub(crate) fn new(budget: &MemoryBudget) -> Self {
        let most = budget.total() / PART / KnownServer::MOST as u64;
        Self {
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            of: Mutex::default(),
            indexes: Mutex::default(),
        }
    }

    /// The index at a URL, for all who ask for it in a namespace with these versions of their Secrets.
    pub(crate) fn index(&self, namespace: &str, url: &str, secrets: &[i64]) -> KnownIndex {
        let url = normalised(url).unwrap_or_default();
        let key = (namespace.to_owned(), url, secrets.to_vec());
        let mut all = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= self.most && !all.contains_key(&key) {
            // It costs one more request for each.
            all.clear();
        }
        all.entry(key).or_default().clone()
    }

    /// The server of a source with this spec and these versions of its Secrets.
    pub(crate) fn of(&self, uid: ResourceUid, asking: Asking) -> Known {
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= self.most && !all.contains_key(&uid) {
            // It costs one more request for each.
            all.clear();
        }
        let entry = all.entry(uid).or_default();
        if entry.0 != asking {
            *entry = (asking, Known::default());
        }
        entry.1.clone()
    }
}

/// Does the job.
pub(crate) fn fetch_job(context: &mut Context, order: &[u8]) -> Vec<u8> {
    let way = context.line();
    let line = Line::new(move |question| {
        let mut answer = Vec::new();
        way.ask(question)?.read_to_end(&mut answer)?;
        Ok(answer)
    });
    // It is not told to stop: it is killed.
    read(order, context.scratch(), &line, &AtomicBool::new(false))
}

impl Sources {
    /// Fetches: the artifact of what the source's reference points to now.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the source is for [`Self::record_fetch`].
    pub async fn fetch(
        &self,
        job: &FetchJob,
        cancel: &CancellationToken,
    ) -> Result<Result<Outcome, Failed>, HubError> {
        let (uid, generation) = job.identity();
        let what = Subject {
            namespace: job.namespace(),
            name: format!("{uid}\n{generation}"),
            is_asked_for: job.is_asked_for(),
        };
        let began = Instant::now();
        let outcome = self.fetch_as(what, job.source.as_ref(), job.known(), cancel).await?;
        self.meters.fetch(job.seen.kind, &outcome, began.elapsed());
        Ok(outcome)
    }

    /// Fetches something for which what servers send is read by this hub's workers.
    pub(crate) async fn fetch_as(
        &self,
        what: Subject<'_>,
        source: &dyn Source,
        known: Option<&Revision>,
        cancel: &CancellationToken,
    ) -> Result<Result<Outcome, Failed>, HubError> {
        let readers = self.readers(what)?;
        let outcome = source.fetch(known, &readers, cancel).await;
        readers.finish().map(|()| outcome)
    }

    /// The workers of this hub that read what others sent, for this subject.
    pub(crate) fn readers<'a>(&'a self, what: Subject<'a>) -> Result<Readers<'a>, HubError> {
        Ok(Readers { sources: self, what, workers: self.workers()?, failure: Mutex::default() })
    }

    pub(crate) fn workers(&self) -> Result<&Workers, HubError> {
        let none = || HubError::Internal("this process was set up without worker processes".to_owned());
        self.options.workers.as_ref().ok_or_else(none)
    }
}

/// For whom something is fetched.
pub(crate) struct Subject<'a> {
    /// Namespaces share the readers.
    pub(crate) namespace: &'a str,
    /// What is fetched: what ends a reader is set aside by it.
    pub(crate) name: String,
    /// Whether somebody asked for it, so that it is read whatever came of it before.
    pub(crate) is_asked_for: bool,
}

/// What a source may have, so that the workers of this hub can read it.
pub(crate) fn limits(workers: &Workers, mut limits: GitLimits) -> GitLimits {
    let memory = workers.readers.settings().memory;
    // An object may be made of another one.
    limits.object_bytes = limits.object_bytes.min(memory / 2);
    limits.objects = limits.objects.min(u32::try_from(memory / PER_OBJECT).unwrap_or(u32::MAX));
    limits.artifact_bytes = limits.artifact_bytes.min(workers.artifacts.size() / COPIES);
    limits
}

/// The same of an OCI repository, whose layer's files are read one by one.
pub(crate) fn oci_limits(workers: &Workers, mut limits: OciLimits) -> OciLimits {
    limits.tree.file_bytes = limits.tree.file_bytes.min(workers.readers.settings().memory / 2);
    limits.artifact_bytes = limits.artifact_bytes.min(workers.artifacts.size() / COPIES);
    limits
}

/// The same of a bucket, whose objects are read one by one.
pub(crate) fn bucket_limits(workers: &Workers, mut limits: BucketLimits) -> BucketLimits {
    limits.tree.file_bytes = limits.tree.file_bytes.min(workers.readers.settings().memory / 2);
    limits.index_bytes = limits.index_bytes.min(workers.artifacts.size() / COPIES);
    limits.artifact_bytes = limits.artifact_bytes.min(workers.artifacts.size() / COPIES);
    limits
}

/// The same of Helm's repositories and charts, whose files are read one by one.
pub(crate) fn helm_limits(workers: &Workers, mut limits: HelmLimits) -> HelmLimits {
    let memory = workers.readers.settings().memory;
    let most = workers.artifacts.size() / COPIES;
    limits.index_artifact_bytes = limits.index_artifact_bytes.min(most);
    limits.chart_bytes = limits.chart_bytes.min(most);
    limits.source.file_bytes = limits.source.file_bytes.min(memory / 2);
    // A version of a chart is some hundred bytes while an index is read.
    limits.versions = limits.versions.min(usize::try_from(memory / PER_VERSION).unwrap_or(usize::MAX));
    limits.values_memory = limits.values_memory.min(usize::try_from(memory / 2).unwrap_or(usize::MAX));
    limits
}

/// The same of artifacts that are composed.
pub(crate) fn generate_limits(workers: &Workers, most_bytes: u64) -> GenerateLimits {
    let mut limits = GenerateLimits::default();
    limits.tree.file_bytes = limits.tree.file_bytes.min(workers.readers.settings().memory / 4);
    limits.tree.total_bytes = limits.tree.total_bytes.min(most_bytes);
    limits.artifact_bytes = limits.artifact_bytes.min(workers.artifacts.size() / COPIES);
    limits
}

/// Where room for a source's artifact is reserved.
pub(crate) fn room(workers: &Workers) -> Room {
    Room { pool: workers.artifacts.clone(), copies: COPIES }
}

/// Has worker processes read what the servers of one source sent.
pub(crate) struct Readers<'a> {
    sources: &'a Sources,
    what: Subject<'a>,
    workers: &'a Workers,
    /// What is the hub's own fault.
    failure: Mutex<Option<HubError>>,
}

impl Readers<'_> {
    /// What was the hub's own fault.
    pub(crate) fn finish(self) -> Result<(), HubError> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// What it is that is read. Nobody knows what a server sends, but it is the same as long as the commit is; and what it
    /// sends before it has named one, as long as the source is.
    fn inputs(&self, about: &str) -> Digest {
        Digest::of(format!("fetch\n{}\n{about}", self.what.name).as_bytes())
    }

    fn failed(&self, failure: HubError) -> Ended {
        let why = failure.to_string();
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        Ended { why, transient: true }
    }
}

#[async_trait]
impl Engine for Readers<'_> {
    async fn admit(&self, about: &str) -> Result<(), Ended> {
        if self.what.is_asked_for {
            return Ok(());
        }
        match self.sources.quarantine.why_set_aside(self.inputs(about)).await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(Ended { why, transient: false }),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    async fn run(&self, about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
        let namespace = self.what.namespace;
        let _place = self.sources.read_places.take(namespace, namespace).await;
        let limits = JobLimits { cpu: CPU, wall: WALL, output: REPLY, question: MOST_QUESTION };
        let job = Job { kind: FETCH_JOB, input: order, affinity: None, limits };
        let mut outcome = self.run_once(job.clone(), desk).await;
        if matches!(outcome, Err(JobError::Killed(_))) {
            // Not of its doing, as far as one can tell.
            outcome = self.run_once(job, desk).await;
        }
        let ended = match outcome {
            Ok(reply) => {
                if self.what.is_asked_for {
                    let forgotten = self.sources.store.take_back(self.inputs(about)).await;
                    forgotten.map_err(|failure| self.failed(failure.into()))?;
                }
                return Ok(reply);
            }
            Err(ended) => ended,
        };
        if !ended.is_of_the_job() {
            return Err(Ended { why: not_read(&ended), transient: true });
        }
        let told = self.sources.quarantine.put_aside(self.inputs(about), not_read(&ended)).await;
        let why = told.map_err(|failure| self.failed(failure))?;
        Err(Ended { why, transient: false })
    }
}

impl Readers<'_> {
    async fn run_once(&self, job: Job, desk: &mut Desk) -> Result<Vec<u8>, JobError> {
        desk.begin();
        self.workers.readers.run(job, &mut Answers(desk)).await
    }
}

struct Answers<'a>(&'a mut Desk);

impl Exchange for Answers<'_> {
    async fn answer(&mut self, question: Vec<u8>) -> Result<Bytes, String> {
        self.0.answer(&question).await
    }
}
