//! From artifacts to a build, which is what an applier renders: identical inputs are rendered once, however many ask. The rendering
//! itself, and all reading of the artifacts' bytes, is a worker process's.

mod job;
mod places;
mod reads;
mod sealed;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use roadstead_budget::Reservation;
use roadstead_hub_store::{AtRest, BuiltGroup, CachedBuild, FoundBuild, ReadOfBuild, Store};
use roadstead_model::{Digest, Reason, ResourceUid};
use roadstead_trace::Span;
use roadstead_worker::{Exchange, Job, JobError, JobLimits};

use crate::clock::Clock;
use crate::context::Context;
use crate::delivery::applier::{Applier, Need, applier};
use crate::meters::{Build, Meters};
use crate::quarantine::{Quarantine, not_built};
use crate::workers::Workers;
use crate::{HubError, HubOptions};
pub(crate) use job::ARTIFACT as BLOB;
pub(crate) use job::Builder;
pub(crate) use job::Order;
use job::{Made, Rendered};
pub(crate) use places::BuildPlaces;
pub(crate) use reads::INDEX_JOB;
use reads::{Indexes, WhatWasRead};
use sealed::SealedBuilds;
use turns::{HeldTurn, Turns, Wait};

/// The kind of the job that builds.
pub(crate) const BUILD_JOB: &str = job::KIND;

/// CPU time of one build, unpacking included. The largest of kustomize's public cases take a second.
pub(super) const CPU: Duration = Duration::from_secs(60);
/// So long may a build take, on a machine that has other work.
const WALL: Duration = Duration::from_secs(600);

/// Builds that this replica is at, by their inputs: whoever asks for the same waits for the first, and finds it stored.
#[derive(Default)]
pub(crate) struct BuildsUnderWay(Mutex<HashMap<Digest, Weak<Turn>>>);

type Turn = tokio::sync::Mutex<()>;

impl BuildsUnderWay {
    fn of(&self, inputs: Digest) -> Arc<Turn> {
        // The map is whole at any time: a panic elsewhere does not spoil it.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = held.get(&inputs).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        held.insert(inputs, Arc::downgrade(&turn));
        turn
    }
}

/// Whom a build is made for.
#[derive(Clone, Copy)]
pub(crate) struct For<'a> {
    /// The applier.
    pub(crate) applier: ResourceUid,
    /// Its namespace.
    pub(crate) namespace: &'a str,
    /// Somebody asked for it: it is tried although it is set aside.
    pub(crate) asked: bool,
}

/// What became of a build.
pub(crate) enum BuildOutcome {
    /// It is stored.
    Built(CachedBuild),
    /// The render goes on once it has these too.
    Needs(Vec<Need>),
    /// What is wrong with the source or the applier, for its condition.
    Failed(String),
    /// The source does not have what is to be built; why, for the applier's condition.
    NotInSource(String),
    /// Others are before it: it is to be asked for again after this.
    Busy(Duration),
    /// As many builds of its namespace run as a quota allows: after how long it is to be asked for again, and why it waits, for the
    /// applier's condition.
    Waits(Duration, String),
}

/// What came of a worker's render. The errors, from the outside in: what ended the worker, what is wrong with the sources or the applier.
type Worked = Result<Result<Made, String>, JobError>;

/// A build whose artifact is not to be had is tried again after this.
const MISSING_RETRY: Duration = Duration::from_secs(5);
/// What a build takes of this process's memory, for each byte of its result: as it came, and as it is stored.
const COPIES: u64 = 2;

/// Gives a worker its artifacts' bytes, and holds room for its result.
struct Artifacts<'a> {
    store: &'a Store,
    /// Where room for both is reserved, for one after the other.
    room: &'a roadstead_budget::Pool,
    /// Held until the result is stored.
    result: Option<Reservation>,
    /// Those that it may have.
    digests: &'a [Digest],
    /// Why it could not, where that is the hub's own fault.
    failure: Option<HubError>,
    /// Why it could not where that may pass: they are lost, or where they are does not answer.
    missing: Option<String>,
}

impl Exchange for Artifacts<'_> {
    async fn answer(&mut self, question: Vec<u8>) -> Result<Bytes, String> {
        let asked = question.strip_prefix(job::ARTIFACT);
        let Some(digest) = self.digests.iter().find(|digest| asked == Some(digest.as_bytes())) else {
            return Err("there is nothing else to ask for".to_owned());
        };
        let read = self.read(*digest).await;
        let failed = "the artifact could not be read";
        match read {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(Unread::TooLarge(why))) => Err(why),
            Ok(Err(Unread::Gone)) => {
                let why = format!("artifact {digest} is no longer stored; the source is fetched again");
                self.missing = Some(why.clone());
                Err(why)
            }
            Err(HubError::Unavailable(why)) => {
                self.missing = Some(format!("artifact {digest} cannot be read now: {why}"));
                Err(failed.to_owned())
            }
            Err(failure) => {
                self.failure = Some(failure);
                Err(failed.to_owned())
            }
        }
    }

    async fn room(&mut self, bytes: u64) -> Result<(), u64> {
        // That of an earlier try.
        self.result = None;
        let room = self.room.reserve(bytes.saturating_mul(COPIES)).await;
        self.result = Some(room.map_err(|_| self.room.size() / COPIES)?);
        Ok(())
    }
}

impl Artifacts<'_> {
    async fn read(&self, digest: Digest) -> Result<Result<Bytes, Unread>, HubError> {
        let Some(size) = self.store.blob_size(digest).await? else { return Ok(Err(Unread::Gone)) };
        let room = match self.room.reserve(size).await {
            Ok(room) => room,
            Err(error) => {
                let why = format!("artifact {digest} is too large for this hub: {error}");
                return Ok(Err(Unread::TooLarge(why)));
            }
        };
        let Some(bytes) = self.store.blob(digest).await? else { return Ok(Err(Unread::Gone)) };
        Ok(Ok(Bytes::from_owner(Reserved { bytes, _room: room })))
    }
}

/// Why an artifact was not read.
enum Unread {
    /// It is not stored, or not any more.
    Gone,
    /// It does not fit into this process; why.
    TooLarge(String),
}

/// Bytes, and the room that is reserved for them while somebody holds them.
struct Reserved {
    bytes: Vec<u8>,
    _room: Reservation,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Builds: made once, stored, and sent to agents.
pub struct Builds {
    pub(super) store: Store,
    clock: Arc<dyn Clock>,
    pub(super) options: Arc<HubOptions>,
    quarantine: Arc<Quarantine>,
    under_way: BuildsUnderWay,
    places: BuildPlaces,
    turns: Turns,
    sealed: SealedBuilds,
    indexes: Indexes,
    meters: Arc<Meters>,
}

impl Builds {
    pub(crate) fn new(context: &Context, quarantine: &Arc<Quarantine>) -> Self {
        let builders =
            context.options.workers.as_ref().map_or(1, |workers| workers.builders.settings().workers);
        let (under_way, places) = (BuildsUnderWay::default(), BuildPlaces::new(builders));
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            quarantine: Arc::clone(quarantine),
            under_way,
            places,
            turns: Turns {
                store: context.store.clone(),
                clock: Arc::clone(&context.clock),
                replica: context.replica,
            },
            sealed: SealedBuilds::default(),
            indexes: Indexes::new(context.options.budget.total()),
            meters: Arc::clone(&context.meters),
        }
    }

    /// Has turns that builds take count no longer than they would if they began now: the clock may have been put back.
    ///
    /// # Errors
    /// Where the database fails.
    pub(crate) async fn mend_turns(&self) -> Result<(), HubError> {
        self.turns.mend().await
    }

    /// The build that an applier orders. Where a quota asks for a `turn`, one is taken, which serves for all that the applier orders until it
    /// is dropped: a render in several rounds would else wait again after each.
    pub(crate) async fn build(
        &self,
        whom: For<'_>,
        order: &Order,
        turn: &mut Option<HeldTurn>,
    ) -> Result<BuildOutcome, HubError> {
        let (mut span, mut made, mut waited) = (Span::start("build"), Build::Cached, false);
        let outcome = self.build_or_find(whom, order, turn, (&mut made, &mut waited)).await;
        let (result, failed) = match &outcome {
            Ok(BuildOutcome::Built(_)) => ("built", false),
            Ok(BuildOutcome::Needs(_)) => ("needs more", false),
            Ok(BuildOutcome::Busy(_)) => ("waits for a place", false),
            Ok(BuildOutcome::Waits(..)) => ("waits for its turn", false),
            Ok(BuildOutcome::Failed(_)) | Err(_) => (Reason::BuildFailed.as_str(), true),
            Ok(BuildOutcome::NotInSource(_)) => (Reason::ArtifactFailed.as_str(), true),
        };
        span.set("cached", made == Build::Cached);
        span.result(result, failed);
        span.end();
        let outcome = outcome?;
        if waited && !matches!(outcome, BuildOutcome::Busy(_) | BuildOutcome::Waits(..)) {
            // It needs no turn any more, and nobody is to wait behind it.
            self.turns.leave(whom).await?;
        }
        self.meters.build(match &outcome {
            BuildOutcome::Built(_) => made,
            BuildOutcome::Needs(_) => Build::Incomplete,
            BuildOutcome::Failed(_) | BuildOutcome::NotInSource(_) => Build::Failed,
            BuildOutcome::Busy(_) => Build::Busy,
            BuildOutcome::Waits(..) => Build::Waits,
        });
        Ok(outcome)
    }

    /// The same; says where a worker was at it, and where the applier waited for its turn and has not had it.
    async fn build_or_find(
        &self,
        whom: For<'_>,
        order: &Order,
        its_turn: &mut Option<HeldTurn>,
        (made, waited): (&mut Build, &mut bool),
    ) -> Result<BuildOutcome, HubError> {
        let For { namespace, asked, .. } = whom;
        let inputs = order.key().map_err(|error| unserializable(&error))?;
        let mut found = self.at_hand(inputs, whom).await?;
        *waited = found.waits;
        if let Some(build) = found.build {
            return Ok(BuildOutcome::Built(build));
        }
        let _inside = match self.places.enter(namespace).await {
            Ok(place) => place,
            Err(later) => return Ok(BuildOutcome::Busy(later)),
        };
        let turn = self.under_way.of(inputs);
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = turn.lock().await;
                // Another was at it, and it is stored, unless that failed.
                found = self.at_hand(inputs, whom).await?;
                if let Some(build) = found.build {
                    return Ok(BuildOutcome::Built(build));
                }
                turn
            }
        };
        let recipe = order.recipe_key().map_err(|error| unserializable(&error))?;
        if let Some(build) = self.by_what_it_read(whom, order, recipe, inputs).await? {
            return Ok(BuildOutcome::Built(build));
        }
        if !asked && let Some(why) = self.quarantine.why_set_aside(inputs).await? {
            return Ok(BuildOutcome::Failed(why));
        }
        if let Some(quota) = found.quota.as_ref().filter(|_| its_turn.is_none()) {
            match self.turns.take(whom, quota).await? {
                Ok(taken) => *its_turn = Some(taken),
                Err(Wait { later, why }) => return Ok(BuildOutcome::Waits(later, why)),
            }
            *waited = false;
        }
        tracing::debug!(kind = %order.kind, namespace, "building in a worker");
        let (outcome, _room) = match self.work(namespace, order).await? {
            Ok(worked) => worked,
            // Its applier's condition says it, and the next pass comes when the artifact may be back.
            Err(missing) => return Ok(BuildOutcome::Waits(MISSING_RETRY, missing)),
        };
        *made = Build::Made;
        match outcome {
            Ok(Ok(Made::Needs(needs))) => Ok(BuildOutcome::Needs(needs)),
            Ok(Ok(Made::NotInSource(why))) => Ok(BuildOutcome::NotInSource(why)),
            Ok(Ok(Made::Rendered(rendered))) => {
                let sealed = order.salt.is_some();
                self.keep_build(inputs, recipe, rendered, sealed, asked).await.map(BuildOutcome::Built)
            }
            Ok(Err(why)) => Ok(BuildOutcome::Failed(why)),
            Err(ended) if ended.is_of_the_job() => {
                Ok(BuildOutcome::Failed(self.quarantine.put_aside(inputs, not_built(&ended)).await?))
            }
            Err(ended) => Ok(BuildOutcome::Failed(not_built(&ended))),
        }
    }

    /// Builds in a worker, once there is a place for this namespace; with what comes of it is the memory that is set aside for it. Or says
    /// which artifact is not to be had now.
    async fn work(
        &self,
        namespace: &str,
        order: &Order,
    ) -> Result<Result<(Worked, Option<Reservation>), String>, HubError> {
        let workers = self.workers()?;
        let blobs = order.blobs();
        let mut exchange = Artifacts {
            store: &self.store,
            room: &workers.artifacts,
            result: None,
            digests: &blobs,
            failure: None,
            missing: None,
        };
        let _at_work = self.places.worker(namespace).await;
        let began = Instant::now();
        let outcome = self.build_in_a_worker(workers, order, &mut exchange).await?;
        self.meters.stage(order.kind, "build", began.elapsed());
        Ok(match exchange.missing {
            Some(missing) => Err(missing),
            None => Ok((outcome, exchange.result)),
        })
    }

    /// A build that was made before, of a sealed one all is in this replica's memory; and what else is to be known by who has to build.
    async fn at_hand(&self, inputs: Digest, whom: For<'_>) -> Result<FoundBuild, HubError> {
        let of = (whom.namespace, whom.applier);
        let FoundBuild { build, quota, waits } = self.store.find_build(inputs, of, self.clock.now()).await?;
        let is_there = |group: &BuiltGroup| !group.sealed || self.sealed.get(group.objects).is_some();
        let build = build.filter(|build| build.groups.iter().all(is_there));
        Ok(FoundBuild { build, quota, waits })
    }

    /// A group of a sealed build, packed; none where this replica does not have it, or not any more.
    pub(super) fn sealed(&self, group: Digest) -> Option<Bytes> {
        self.sealed.get(group)
    }

    /// What of its inputs somebody should look at. Only inputs that the hub decrypted have any, and what is made of those is in memory for as
    /// long as it counts as built.
    pub(super) fn warnings(&self, build: &CachedBuild) -> Vec<String> {
        let mut sealed = build.groups.iter().filter(|group| group.sealed);
        sealed.find_map(|group| self.sealed.warnings(group.objects)).unwrap_or_default()
    }

    /// Whether a sealed build may be made again: one that was tried a moment ago may not.
    pub(super) fn may_make_again(&self, group: Digest) -> bool {
        self.sealed.may_make(group, Instant::now())
    }

    async fn keep_build(
        &self,
        inputs: Digest,
        recipe: Digest,
        rendered: Rendered,
        sealed: bool,
        asked: bool,
    ) -> Result<CachedBuild, HubError> {
        let Rendered { groups, children, reads, warnings } = rendered;
        let now = self.clock.now();
        let (mut cached, mut labels) = (Vec::with_capacity(groups.len()), Vec::with_capacity(groups.len()));
        let mut objects = 0;
        for group in groups {
            if sealed {
                self.store.put_name(group.digest, now).await?;
                self.sealed.put(group.digest, group.packed, warnings.clone());
            } else {
                let at_rest = if group.secret { AtRest::Sealed } else { AtRest::Plain };
                self.store.put_blob(group.digest, &group.packed, at_rest, now).await?;
            }
            labels.push(group.labels);
            objects += group.objects;
            let wrapped_keys = group.wrapped_keys.map(Vec::from);
            cached.push(BuiltGroup { label: group.label, objects: group.digest, sealed, wrapped_keys });
        }
        let build = CachedBuild { groups: cached, children: children.map(Vec::from) };
        let labels: Vec<&[u8]> = labels.iter().map(AsRef::as_ref).collect();
        let read = reads.as_ref().map(|WhatWasRead { answers, packed }| ReadOfBuild {
            recipe,
            answers: *answers,
            reads: packed,
        });
        self.store.remember_build(inputs, &build, &labels, objects, read.as_ref(), now).await?;
        if asked {
            self.store.take_back(inputs).await?;
        }
        Ok(build)
    }

    /// Has a worker render.
    async fn build_in_a_worker(
        &self,
        workers: &Workers,
        order: &Order,
        exchange: &mut Artifacts<'_>,
    ) -> Result<Worked, HubError> {
        let cpu = applier(order.kind).map_or(CPU, Applier::longest_render);
        let job = Job {
            kind: job::KIND,
            input: serde_json::to_vec(order).map_err(|error| unserializable(&error))?,
            affinity: order.artifacts.first().map(|artifact| *artifact.as_bytes()),
            limits: JobLimits { cpu, wall: WALL, output: job::MAX_BYTES as u64, ..JobLimits::default() },
        };
        let mut outcome = workers.builders.run(job.clone(), exchange).await;
        if matches!(outcome, Err(JobError::Killed(_))) {
            // Not of its doing, as far as one can tell.
            outcome = workers.builders.run(job, exchange).await;
        }
        if let Some(failure) = exchange.failure.take() {
            return Err(failure);
        }
        let answer = match outcome {
            Ok(answer) => answer,
            Err(ended) => {
                if let JobError::Start(why) = &ended {
                    tracing::error!(kind = %order.kind, why, "no worker process could be started for a build");
                }
                return Ok(Err(ended));
            }
        };
        match job::decode(answer.into()) {
            Ok(made) => Ok(Ok(made)),
            Err(what) => Ok(Err(JobError::Protocol(format!("it answered with something else: {what}")))),
        }
    }

    /// Has a worker do a job that asks for these blobs; with its answer comes the memory that is set aside for it. The errors, from the
    /// outside in: the hub's own, what ended the worker.
    pub(crate) async fn run_on_blobs(
        &self,
        job: Job,
        blobs: &[Digest],
    ) -> Result<Result<(Vec<u8>, Option<Reservation>), JobError>, HubError> {
        let workers = self.workers()?;
        let mut exchange = Artifacts {
            store: &self.store,
            room: &workers.artifacts,
            result: None,
            digests: blobs,
            failure: None,
            missing: None,
        };
        let outcome = workers.builders.run(job, &mut exchange).await;
        match exchange.failure {
            Some(failure) => Err(failure),
            None => Ok(outcome.map(|answer| (answer, exchange.result))),
        }
    }

    fn workers(&self) -> Result<&Workers, HubError> {
        let none = || HubError::Internal("this process was set up without worker processes".to_owned());
        self.options.workers.as_ref().ok_or_else(none)
    }
}

fn unserializable(error: &serde_json::Error) -> HubError {
    HubError::Internal(format!("a render job cannot be serialized: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_inputs_share_a_turn_while_one_is_at_it() {
        let under_way = BuildsUnderWay::default();
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let first = under_way.of(one);
        assert!(Arc::ptr_eq(&first, &under_way.of(one)));
        assert!(!Arc::ptr_eq(&first, &under_way.of(other)));
        let held = first.try_lock().expect("nobody has it");
        assert!(under_way.of(one).try_lock().is_err());
        drop(held);
        drop(first);
        assert!(under_way.of(one).try_lock().is_ok());
        // What nobody is at is forgotten.
        under_way.of(other);
        assert_eq!(under_way.0.lock().expect("no panic").len(), 1);
    }
}
