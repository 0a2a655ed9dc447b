//! Carries out dispatches: one at a time for each applier, side by side across appliers, whether or not the
//! hub can be heard.

mod correct;
mod finish;
mod flux;
mod follow;
mod guarding;
mod hooks;
mod kept;
mod policed;
mod reads;
mod slot;
mod told;
mod turn;
mod work;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roadstead_model::{
    Action, ApplierUid, Attempt, Dispatch, DispatchKey, DispatchSpec, HubEpoch, ObjectRef, ObjectResult,
    Position, Purpose, Stage, Step, StepKind,
};
use roadstead_places::{Limits, Places};
use roadstead_proto::limits::MAX_SEEN;
use roadstead_proto::{Failure, Finished};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use slot::{Known, Verdict};

use crate::builds::{Builds, Kept};
use crate::cluster::Cluster;
use crate::health::{self, Healths};
use crate::inputs::{self, Inputs};
use crate::keep::{Keep, may_be_kept};
use crate::keys::KeyServices;
use crate::memory::BuildMemory;
use crate::metrics::Load;
use crate::outbox::Outbox;
use crate::tend::{Due, LastApplied, Tended, watches};
use correct::Written;
use work::{Unlisted, Work};

/// How many appliers one agent takes.
const MAX_KUSTOMIZATIONS: usize = 20_000;

/// How long it takes until the hub is told that an applier is tended, or is not any more.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// After a correction, what is kept to watch by is made again after so long: all of an applier's objects are in it.
const KEEP_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Why a dispatch is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// A newer one was seen.
    #[error("attempt {given} in epoch {epoch} is not newer than what was seen of this Kustomization: {seen}")]
    Stale {
        /// Its attempt.
        given: Attempt,
        /// Its epoch.
        epoch: HubEpoch,
        /// What was seen.
        seen: String,
    },
    /// More appliers than an agent takes.
    #[error("this agent has {MAX_KUSTOMIZATIONS} Kustomizations already")]
    Full,
    /// The agent goes down.
    #[error("the agent is shutting down")]
    Stopping,
}

impl NotTaken {
    /// The word for `Refused.what`.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Full => "kustomizations",
            Self::Stopping => "stopping",
        }
    }
}

/// The dispatches of one agent. Cheap to clone.
pub struct Runner<C> {
    inner: Arc<Inner<C>>,
}

impl<C> Clone for Runner<C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<C> {
    cluster: C,
    outbox: Arc<Outbox>,
    builds: Builds,
    slots: Mutex<HashMap<ApplierUid, Slot>>,
    places: Places,
    tended: Arc<Tended>,
    healths: Arc<Healths>,
    keys: Arc<KeyServices>,
    keep: Arc<Keep>,
    inputs: Arc<Inputs>,
    /// Of these appliers what is kept to watch by is made again in a while.
    kept_again: Mutex<HashSet<ApplierUid>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Slot {
    /// The newest that was seen.
    seen: Option<DispatchKey>,
    running: Option<(DispatchKey, CancellationToken)>,
    queued: Option<Dispatch>,
    /// Told again where the hub asks for the same once more.
    finished: Option<Finished>,
    /// Of that, what was read is not kept: there may be as many as there are slots.
    forgotten: bool,
    /// What the last dispatch of an earlier epoch left: the hub's database was restored, and it may not know of it.
    left: Vec<ObjectRef>,
    /// Held by whoever writes for the applier: a dispatch, or a correction.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl Slot {
    fn known(&self) -> Known<'_> {
        Known {
            seen: self.seen.as_ref().map(DispatchKey::fence),
            running: self.running.as_ref().map(|(key, _)| key),
            queued: self.queued.as_ref().map(|dispatch| &dispatch.key),
            finished: self.finished.as_ref().map(|finished| &finished.key),
            begins_again: self.forgotten
                || self.finished.as_ref().is_some_and(|finished| {
                    finished.failure.as_ref().is_some_and(|failure| failure.cancelled)
                }),
        }
    }
}

impl<C: Cluster> Runner<C> {
    /// A runner over `cluster` that tells `outbox`.
    #[must_use]
    pub fn new(cluster: C, outbox: Arc<Outbox>) -> Self {
        Self::with(cluster, outbox, KeyServices::default(), Arc::default(), BuildMemory::default())
    }

    /// The same, with the key services that it may ask, where what was applied is kept, and the memory that builds have.
    #[must_use]
    pub(crate) fn with(
        cluster: C,
        outbox: Arc<Outbox>,
        keys: KeyServices,
        keep: Arc<Keep>,
        memory: BuildMemory,
    ) -> Self {
        Self::with_limits(cluster, outbox, turn::LIMITS, keys, keep, memory)
    }

    /// The same, with other limits of how many dispatches are worked on at once.
    fn with_limits(
        cluster: C,
        outbox: Arc<Outbox>,
        limits: Limits,
        keys: KeyServices,
        keep: Arc<Keep>,
        memory: BuildMemory,
    ) -> Self {
        let builds = Builds::new(outbox.clone(), memory);
        let (slots, stop, tasks) = (Mutex::default(), CancellationToken::new(), TaskTracker::new());
        let (places, tended, healths) = (Places::new(limits), Arc::default(), Arc::default());
        let keys = Arc::new(keys);
        let kept_again = Mutex::default();
        let inner = Inner {
            cluster,
            outbox,
            builds,
            slots,
            places,
            tended,
            healths,
            keys,
            keep,
            inputs: Arc::default(),
            kept_again,
            stop,
            tasks,
        };
        Self { inner: Arc::new(inner) }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<ApplierUid, Slot>> {
        self.inner.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to tell the hub.
    #[must_use]
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.inner.outbox
    }

    /// What there is to do at the moment.
    pub(crate) fn load(&self) -> Load {
        let (running, queued) = {
            let slots = self.slots();
            let count = |is: fn(&Slot) -> bool| slots.values().filter(|slot| is(slot)).count();
            (count(|slot| slot.running.is_some()), count(|slot| slot.queued.is_some()))
        };
        let (appliers, objects, watched) = self.inner.tended.counts();
        Load { running, waiting: queued + self.inner.outbox.waiting(), appliers, objects, watched }
    }

    /// The builds that this agent has and waits for.
    #[must_use]
    pub fn builds(&self) -> &Builds {
        &self.inner.builds
    }

    /// Watches what was applied, corrects what others change and tells how what was waited for is, until the runner stops.
    pub async fn tend(&self) {
        let Inner { cluster, outbox, tended, healths, inputs, stop, tasks, .. } = &*self.inner;
        let correct = async {
            loop {
                let due = tended.next().await;
                tasks.spawn(self.clone().correct(due));
            }
        };
        let tell = async {
            loop {
                tokio::select! {
                    () = tended.changed() => {}
                    () = healths.changed() => {}
                }
                // What happens one after the other is told at once, and what passes is not told at all.
                tokio::time::sleep(TELL_EVERY).await;
                let asks = |applier| tended.awaits_health(applier);
                outbox.tend(healths.fine_among(tended.settled(), asks));
            }
        };
        let report = async {
            loop {
                outbox.report(healths.next().await);
            }
        };
        let report_drift = async {
            loop {
                outbox.report_drift(tended.next_drift().await);
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tell => {}
            () = report => {}
            () = report_drift => {}
            () = watches::keep(cluster.clone(), Arc::clone(tended)) => {}
            () = health::watches::keep(cluster.clone(), Arc::clone(healths)) => {}
            () = inputs::keep(cluster.clone(), Arc::clone(inputs), Arc::clone(outbox)) => {}
            () = correct => {}
        }
    }

    /// Whether the hub of this session knows of corrections. Without one that does, nothing is corrected between dispatches: it could
    /// not say for which appliers that is not wanted.
    pub fn allow_corrections(&self, is_allowed: bool) {
        self.inner.tended.allow(is_allowed);
    }

    /// A session with a hub has begun, or has ended.
    pub fn hub_is_there(&self, is_there: bool) {
        self.inner.tended.hub_is_there(is_there, Instant::now());
    }

    /// What was applied and cannot be watched, and as which account: with why.
    pub(crate) fn unwatched(&self) -> BTreeMap<(String, Option<String>), String> {
        self.inner.tended.unwatched()
    }

    /// Whether the hub of this session can be told how what was waited for is since.
    pub fn allow_health(&self, is_allowed: bool) {
        self.inner.healths.allow(is_allowed);
    }

    /// Nothing of this applier is to be corrected before its next dispatch. How it is, is told as before where `health_goes_on`.
    pub fn rest(&self, applier: ApplierUid, health_goes_on: bool) {
        self.inner.tended.rest(applier);
        if !health_goes_on {
            self.inner.healths.rest(applier);
        }
        self.inner.keep.forget(applier);
        self.inner.inputs.forget(applier);
        self.inner.outbox.keys_rest(applier);
    }

    /// Nothing is to be corrected before it is dispatched again.
    pub fn rest_all(&self) {
        self.inner.tended.rest_all();
        self.inner.healths.rest_all();
        self.inner.keep.forget_all();
        self.inner.inputs.forget_all();
    }

    /// Takes a dispatch: starts it, ignores a repetition, tells the end of one that is done once more.
    ///
    /// # Errors
    /// [`NotTaken`], for the hub to know.
    pub fn dispatch(&self, dispatch: Dispatch) -> Result<Verdict, NotTaken> {
        if self.inner.stop.is_cancelled() {
            return Err(NotTaken::Stopping);
        }
        let mut slots = self.slots();
        let uid = dispatch.key.applier;
        if slots.len() >= MAX_KUSTOMIZATIONS && !slots.contains_key(&uid) {
            return Err(NotTaken::Full);
        }
        let slot = slots.entry(uid).or_default();
        let verdict = slot.known().judge(&dispatch.key);
        if slot.seen.as_ref().is_some_and(|seen| seen.epoch < dispatch.key.epoch)
            && let Some(finished) = &slot.finished
        {
            slot.left.clone_from(&finished.inventory);
        }
        match verdict {
            Verdict::Start => {
                slot.seen = Some(dispatch.key.clone());
                slot.finished = None;
                slot.forgotten = false;
                let cancel = self.inner.stop.child_token();
                slot.running = Some((dispatch.key.clone(), cancel.clone()));
                self.inner.tasks.spawn(self.clone().run(dispatch, cancel));
            }
            Verdict::Supersede => {
                slot.seen = Some(dispatch.key.clone());
                slot.queued = Some(dispatch);
                if let Some((_, cancel)) = &slot.running {
                    cancel.cancel();
                }
            }
            Verdict::UnderWay => {}
            Verdict::Done => {
                if let Some(finished) = slot.finished.clone() {
                    self.inner.outbox.finish(finished);
                }
            }
            Verdict::Stale => {
                let Attempt(given) = dispatch.key.attempt;
                let seen = slot.seen.as_ref();
                let seen = seen
                    .map(|DispatchKey { epoch, attempt, .. }| format!("attempt {attempt} in epoch {epoch}"));
                return Err(NotTaken::Stale {
                    given: Attempt(given),
                    epoch: dispatch.key.epoch,
                    seen: seen.unwrap_or_default(),
                });
            }
        }
        Ok(verdict)
    }

    /// Ends a dispatch at the next safe place; its end is told. One that is not known, or done, is left alone.
    pub fn cancel(&self, key: &DispatchKey) {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&key.applier) else { return };
        if let Some((running, cancel)) = &slot.running
            && running == key
        {
            cancel.cancel();
        }
        if let Some(queued) = slot.queued.take_if(|queued| queued.key == *key) {
            let finished = never_began(queued);
            slot.finished = Some(finished.clone());
            self.inner.outbox.finish(finished);
        }
    }

    /// What is under way, and what has ended without the hub's confirmation.
    #[must_use]
    pub fn unfinished(&self) -> Vec<DispatchKey> {
        let mut keys = self.inner.outbox.unconfirmed();
        for slot in self.slots().values() {
            let known = slot.known();
            keys.extend(known.queued.or(known.running).cloned());
        }
        keys
    }

    /// The newest dispatch that was seen of each applier, without its digest; of very many appliers those that were dispatched most often.
    #[must_use]
    pub fn seen(&self) -> Vec<DispatchKey> {
        let slots = self.slots();
        let seen = slots.values().filter_map(|slot| slot.seen.as_ref());
        let mut seen: Vec<DispatchKey> =
            seen.map(|seen| DispatchKey { digest: None, ..seen.clone() }).collect();
        drop(slots);
        seen.sort_by_key(|seen| std::cmp::Reverse(seen.fence()));
        seen.truncate(MAX_SEEN);
        seen
    }

    /// Takes nothing more and ends what is under way at the next safe place, without telling its end: the hub will
    /// dispatch it again to whoever comes next. Waits for that, but no longer than `patience`.
    pub async fn stop(&self, patience: Duration) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(patience, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!("dispatches were still under way when the agent had to end");
        }
    }

    fn work(&self) -> Work<'_, C> {
        let Inner { cluster, outbox, builds, places, tended, healths, keys, keep, inputs, .. } = &*self.inner;
        Work { outbox, builds, cluster, places, tended, healths, keys, keep, inputs }
    }

    /// What is owned that the hub does not know, as this is the first dispatch since its database was restored. That is told once: where the
    /// hub does not take it, the next attempt goes without.
    fn lost(&self, dispatch: &Dispatch) -> Vec<ObjectRef> {
        let mut left = match self.slots().get_mut(&dispatch.key.applier) {
            Some(slot) => std::mem::take(&mut slot.left),
            None => Vec::new(),
        };
        if !left.is_empty() {
            let known: HashSet<&ObjectRef> = dispatch.inventory.iter().collect();
            left.retain(|object| !known.contains(object));
        }
        left
    }

    /// What is to be pruned that is not in a dispatch's inventory.
    fn unlisted(&self, dispatch: &Dispatch) -> Unlisted {
        let applier = dispatch.key.applier;
        let (lost, returned) = (self.lost(dispatch), self.inner.tended.returned(applier));
        if returned.is_empty() {
            return Unlisted { lost, returned };
        }
        // Another applier may have come to own it since the backup, and may rest by now.
        let slots = self.slots();
        let ended = slots.iter().filter(|(other, _)| **other != applier);
        let ended = ended.filter_map(|(_, slot)| slot.finished.as_ref()).flat_map(|ended| &ended.inventory);
        let owned: HashSet<&ObjectRef> = ended.chain(&dispatch.inventory).chain(&lost).collect();
        let (others, returned): (Vec<_>, Vec<_>) =
            returned.into_iter().partition(|object| owned.contains(object));
        drop(slots);
        self.inner.tended.forget_returned(applier, &others.into_iter().collect());
        Unlisted { lost, returned }
    }

    /// The lock that a dispatch and a correction of an applier take turns by.
    fn writing(&self, applier: ApplierUid) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.slots().entry(applier).or_default().writing)
    }

    /// Corrects what is due of one applier, unless a dispatch comes first.
    async fn correct(self, due: Due) {
        let Inner { outbox, places, tended, stop, .. } = &*self.inner;
        let writing = self.writing(due.applier);
        let namespace = &due.last.dispatch.spec.applier.namespace;
        let turn = async { (writing.lock().await, places.take(namespace, "").await) };
        let _turn = tokio::select! {
            biased;
            () = due.cancel.cancelled() => return,
            () = stop.cancelled() => return,
            turn = turn => turn,
        };
        let (Written { began, corrections }, came) = self.work().correct(&due).await;
        for correction in corrections {
            outbox.correct(correction, began);
        }
        let has_written = !came.written.is_empty();
        tended.corrected(due.applier, came, &due.cancel, Instant::now());
        if has_written && !may_be_kept(&due.last.dispatch) && !due.cancel.is_cancelled() {
            self.keep_watched(&due);
        }
    }

    /// Objects were written, and stand otherwise than it is kept: that is kept in a while, together with what is corrected until then.
    fn keep_watched(&self, due: &Due) {
        if !self.inner.kept_again.lock().unwrap_or_else(PoisonError::into_inner).insert(due.applier) {
            return;
        }
        let (runner, last) = (self.clone(), Arc::clone(&due.last));
        self.inner.tasks.spawn(async move {
            let Inner { kept_again, stop, .. } = &*runner.inner;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(KEEP_AGAIN_AFTER) => {}
            }
            let applier = last.dispatch.key.applier;
            kept_again.lock().unwrap_or_else(PoisonError::into_inner).remove(&applier);
            let inventory = {
                let slots = runner.slots();
                let finished = slots.get(&applier).and_then(|slot| slot.finished.as_ref());
                finished.map(|finished| (finished.inventory.clone(), finished.failure.is_none()))
            };
            let Some((inventory, is_well)) = inventory else { return };
            let runner = runner.clone();
            // What has been dispatched since is kept by its own end.
            let kept = tokio::task::spawn_blocking(move || runner.keep(&last.dispatch, &inventory, is_well));
            if let Err(error) = kept.await {
                tracing::error!(%error, "what was corrected could not be kept");
            }
        });
    }

    /// What is needed to correct what a dispatch has applied; none where it did not apply all, or did more than apply.
    fn last_applied(&self, dispatch: &Dispatch, finished: &Finished) -> Option<LastApplied> {
        let DispatchSpec { steps, groups, purpose, .. } = &dispatch.spec;
        let applied =
            steps.iter().rposition(|step| matches!(step.kind, StepKind::Apply { .. } | StepKind::Prune))?;
        let only_applies = |step: &Step| {
            matches!(
                step.kind,
                StepKind::Apply { .. }
                    | StepKind::AdoptInventory { .. }
                    | StepKind::Prune
                    | StepKind::Wait { .. }
            )
        };
        let is_applied = finished.failure.as_ref().is_none_or(|failure| {
            !failure.cancelled && failure.position.step.is_some_and(|failed| failed > applied)
        });
        if !is_applied || *purpose != Purpose::Reconcile || !steps.iter().all(only_applies) {
            return None;
        }
        let builds: Option<Vec<Kept>> =
            groups.iter().map(|group| self.inner.builds.keep(group.objects)).collect();
        let Some(builds) = builds else {
            tracing::debug!(applier = %dispatch.spec.applier, "its builds are too large to be kept: what others change is corrected by dispatches only");
            return None;
        };
        // What is corrected later does not belong to what led to the dispatch.
        let kept = Dispatch { inventory: Vec::new(), trace: None, ..dispatch.clone() };
        Some(LastApplied::new(kept, builds))
    }

    /// Carries out a dispatch, and the one that came meanwhile, until none is left.
    async fn run(self, mut dispatch: Dispatch, mut cancel: CancellationToken) {
        let inner = &*self.inner;
        loop {
            let uid = dispatch.key.applier;
            inner.tended.begin(uid, dispatch.spec.service_account.as_ref(), Instant::now());
            inner.healths.begin(uid);
            let writing = self.writing(uid);
            let holding = writing.lock().await;
            let unlisted = self.unlisted(&dispatch);
            let (work, trace) = (self.work(), dispatch.trace);
            let carried_out = work.carry_out(&dispatch, &unlisted, cancel);
            let (finished, observed) = roadstead_trace::within(trace, carried_out).await;
            inner.tended.forget_returned(uid, &settled(&dispatch, &unlisted.returned, &finished));
            let last = self.last_applied(&dispatch, &finished);
            let kept = last.is_some().then(|| (finished.inventory.clone(), finished.failure.is_none()));
            inner.tended.end(uid, &finished.inventory, last, Instant::now());
            inner.tended.observed(uid, observed, Instant::now());
            inner.healths.end(&finished.key, finished.failure.is_none());
            drop(holding);
            let is_stopping = inner.stop.is_cancelled();
            let mut slots = self.slots();
            let slot = slots.entry(uid).or_default();
            slot.running = None;
            if is_stopping {
                return;
            }
            slot.forgotten = !finished.reads.is_empty();
            slot.finished = Some(Finished { reads: Vec::new(), ..finished.clone() });
            inner.outbox.finish(finished);
            if let Some((inventory, is_well)) = kept {
                let (runner, dispatch) = (self.clone(), dispatch.clone());
                // Compressing takes a while.
                inner.tasks.spawn_blocking(move || runner.keep(&dispatch, &inventory, is_well));
            }
            let Some(next) = slot.queued.take() else { return };
            slot.finished = None;
            slot.forgotten = false;
            cancel = inner.stop.child_token();
            slot.running = Some((next.key.clone(), cancel.clone()));
            dispatch = next;
        }
    }
}

/// What had come back with a backup of etcd, and is not to be pruned any more: it was, or is to stay, or the dispatch prunes nothing.
fn settled(dispatch: &Dispatch, returned: &[ObjectRef], finished: &Finished) -> HashSet<ObjectRef> {
    let prunes = |step: &Step| matches!(step.kind, StepKind::Prune | StepKind::Delete);
    if finished.failure.is_none() && !dispatch.spec.steps.iter().any(prunes) {
        return returned.iter().cloned().collect();
    }
    let was_pruned = |result: &&ObjectResult| matches!(result.action, Action::Deleted | Action::Skipped);
    let results: HashSet<&ObjectRef> =
        finished.change_set.iter().filter(was_pruned).map(|result| &result.object).collect();
    returned.iter().filter(|object| results.contains(object)).cloned().collect()
}

/// The end of a dispatch that was cancelled before it began.
fn never_began(dispatch: Dispatch) -> Finished {
    let failure = Failure {
        position: Position { step: None, stage: Stage::Finish },
        message: "cancelled before it began".to_owned(),
        object: None,
        cancelled: true,
    };
    Finished {
        key: dispatch.key,
        failure: Some(failure),
        change_set: Vec::new(),
        inventory: dispatch.inventory,
        timings: Vec::new(),
        reads: Vec::new(),
        found: Vec::new(),
        held: Vec::new(),
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
