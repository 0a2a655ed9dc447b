//! What this agent has applied, how watches tell that it stands, and what is to be corrected.
//!
//! Pure of I/O: the runner tells when a dispatch begins and ends, [`watches`] tell what they see, and whoever waits for
//! [`Tended::next`] is given what to correct. An applier is tended from the end of a dispatch that applied all of its groups until
//! the next one begins, or the hub says that it [rests](Tended::rest).

mod book;
mod drift;
mod entry;
mod last;
mod state;
#[cfg(test)]
mod tests;
pub(crate) mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roadstead_apply::{Applied, AsApplied, Footprint, Scope, Sight};
use roadstead_model::{ApplierUid, Digest, DriftMode, ObjectRef, Offline, OfflinePolicy, ServiceAccount};
use roadstead_proto::DriftReport;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::until::until;
use crate::watching::FORBIDDEN_FOR;
pub(crate) use book::Book;
use drift::Drifts;
pub(crate) use drift::{CorrectionOutcome, Drift, bytes_of};
use entry::{Entry, From};
pub(crate) use last::LastApplied;
use state::{State, Status, Tending, watch_for};

/// How many objects are kept in mind; those of further appliers are looked at by their dispatches only.
const MAX_OBJECTS: usize = 50_000;

/// How many bytes the dispatches have that are kept to correct by, without their builds: mostly variables, of which each applier has a
/// copy. Further appliers are not tended.
const MAX_KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Once in so long a dispatch asks about every object, whatever watches tell: a net below them.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 3600);

/// After a dispatch a watch may still have to tell what it did.
const SETTLE: Duration = Duration::from_secs(1);

/// What is watched, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Watch {
    /// None: as the agent itself.
    pub(crate) account: Option<ServiceAccount>,
    pub(crate) scope: Arc<Scope>,
}

impl Watch {
    /// `NAMESPACE/NAME` of the account, for the log.
    pub(crate) fn account_name(&self) -> Option<String> {
        self.account.as_ref().map(|account| format!("{}/{}", account.namespace, account.name))
    }
}

/// How an object stood as it was applied, for an agent that is started after this one. Nothing of its content is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watched {
    pub(crate) object: ObjectRef,
    scope: Scope,
    footprint: Footprint,
    /// Others have fields of it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_shared: bool,
}

/// Objects that are to be corrected.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) applier: ApplierUid,
    pub(crate) last: Arc<LastApplied>,
    /// With who has written to each, as far as that is known.
    pub(crate) objects: BTreeMap<ObjectRef, BTreeSet<String>>,
    /// What differs is only reported.
    pub(crate) observes: bool,
    /// Ends the correction: a dispatch has come.
    pub(crate) cancel: CancellationToken,
}

/// All that is tended.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    state: Mutex<State>,
    /// Something is to be corrected, or will be.
    suspected: Notify,
    /// Other watches are wanted.
    watches: Notify,
    /// Something was seen, or done.
    changed: Notify,
    /// Other objects differ than before.
    drifted: Notify,
}

impl Tended {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the hub knows of corrections. Without a session, the last hub's word counts.
    pub(crate) fn allow(&self, is_allowed: bool) {
        let mut state = self.state();
        (state.is_allowed, state.is_told) = (is_allowed, true);
        drop(state);
        self.suspected.notify_one();
        self.watches.notify_one();
    }

    /// No hub has been heard yet: what was kept goes on as it was, since the hub of then knew of corrections.
    pub(crate) fn allow_without_hub(&self) {
        if !self.state().is_told {
            self.allow(true);
            self.hub_is_there(false, Instant::now());
        }
    }

    /// A session with a hub has begun, or has ended. What was only reported for want of one is corrected now.
    pub(crate) fn hub_is_there(&self, is_there: bool, now: Instant) {
        let mut state = self.state();
        state.alone_since = if is_there { None } else { Some(state.alone_since.unwrap_or(now)) };
        if is_there {
            for tending in state.appliers.values_mut() {
                // What is only watched was told as it is, and cannot be corrected now either.
                let corrects = |last: &Arc<LastApplied>| {
                    last.dispatch.spec.drift == DriftMode::Correct && !last.is_only_watched
                };
                if tending.last.as_ref().is_some_and(corrects) {
                    tending.correct_reported(now + SETTLE);
                }
            }
        }
        drop(state);
        self.suspected.notify_one();
    }

    /// What an agent before this one has applied is tended from now on. Nothing is known of how its objects stand: all of them are looked
    /// at, at `due`, but for those that another applier owns, too.
    pub(crate) fn resume(
        &self,
        last: LastApplied,
        inventory: &[ObjectRef],
        shared: &HashSet<ObjectRef>,
        now: Instant,
        due: Instant,
    ) {
        let applier = last.dispatch.key.applier;
        self.begin(applier, last.dispatch.spec.service_account.as_ref(), now);
        self.end(applier, inventory, Some(last), now);
        let mut state = self.state();
        let Some(tending) = state.appliers.get_mut(&applier) else { return };
        // A Job that is gone may have run to its end.
        let looked_at = inventory
            .iter()
            .filter(|object| !shared.contains(object))
            .filter(|object| (object.group.as_str(), object.kind.as_str()) != ("batch", "Job"));
        looked_at.for_each(|object| tending.suspect(object, Vec::new(), due));
        drop(state);
        self.suspected.notify_one();
    }

    /// The same, where nothing is left to correct by: what differs from how it stood is noticed, but for what another applier owns, too.
    pub(crate) fn resume_watched(
        &self,
        last: LastApplied,
        inventory: &[ObjectRef],
        watched: Vec<Watched>,
        shared: &HashSet<ObjectRef>,
        now: Instant,
    ) {
        let applier = last.dispatch.key.applier;
        self.begin(applier, last.dispatch.spec.service_account.as_ref(), now);
        let mut state = self.state();
        let State { appliers, owners, statuses, .. } = &mut *state;
        if let Some(tending) = appliers.get_mut(&applier) {
            for Watched { object, scope, footprint, is_shared } in watched {
                if shared.contains(&object) || owners.len() >= MAX_OBJECTS {
                    continue;
                }
                let watch = watch_for(tending.account.as_ref(), &scope, statuses);
                owners.insert(object.clone(), applier);
                tending.objects.insert(object, Entry::restored(watch, footprint, is_shared));
            }
        }
        drop(state);
        self.end(applier, inventory, Some(last), now);
    }

    /// How many appliers there are, how many objects these own, and how many of those are watched.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let state = self.state();
        let owned = state.appliers.values().map(|tending| tending.owned).sum();
        let entries = state.appliers.values().flat_map(|tending| tending.objects.values());
        (state.appliers.len(), owned, entries.filter(|entry| entry.watch.is_some()).count())
    }

    /// How the objects of an applier stood as they were applied, as far as that is known.
    pub(crate) fn watched(&self, applier: ApplierUid) -> Vec<Watched> {
        let state = self.state();
        let objects = state.appliers.get(&applier).into_iter().flat_map(|tending| &tending.objects);
        let watched = objects.filter_map(|(object, entry)| {
            let (footprint, is_shared) = entry.applied()?;
            let scope = entry.watch.as_ref()?.scope.within(&object.namespace);
            Some(Watched { object: object.clone(), scope, footprint: footprint.clone(), is_shared })
        });
        let mut watched: Vec<Watched> = watched.collect();
        watched.sort_by(|one, other| one.object.cmp(&other.object));
        watched
    }

    /// A dispatch of an applier begins: what is known of its objects stays, and none is corrected until it has ended.
    pub(crate) fn begin(&self, applier: ApplierUid, account: Option<&ServiceAccount>, now: Instant) {
        let mut state = self.state();
        let State { appliers, owners, .. } = &mut *state;
        let tending = appliers.entry(applier).or_default();
        let looked = *tending.looked.get_or_insert(now);
        // Another account may see and do less.
        if tending.account.as_ref() != account || now.saturating_duration_since(looked) > LOOK_EVERY {
            tending.looked = Some(now);
            tending.account = account.cloned();
            tending.objects.drain().for_each(|(object, _)| {
                owners.remove(&object);
            });
        }
        tending.last = None;
        tending.rests = false;
        tending.is_busy = true;
        tending.suspects.clear();
        if let Some(correcting) = tending.correcting.take() {
            correcting.cancel();
        }
    }

    /// A dispatch of an applier has ended, and it owns `inventory`; `last` where all of its groups were applied and nothing but
    /// that is to be done for it again.
    pub(crate) fn end(
        &self,
        applier: ApplierUid,
        inventory: &[ObjectRef],
        last: Option<LastApplied>,
        now: Instant,
    ) {
        let owned: HashSet<&ObjectRef> = inventory.iter().collect();
        let mut state = self.state();
        let State { appliers, owners, .. } = &mut *state;
        let Some(tending) = appliers.get_mut(&applier) else { return };
        tending.is_busy = false;
        tending.owned = inventory.len();
        tending.objects.retain(|object, _| {
            let stays = owned.contains(object);
            if !stays {
                owners.remove(object);
            }
            stays
        });
        tending.drifts.retain(|object| owned.contains(object));
        tending.returned.retain(|object, _| !owned.contains(object));
        tending.drifts.begin_again();
        let kept: usize =
            appliers.values().filter_map(|other| other.last.as_ref()).map(|last| last.bytes).sum();
        let Some(tending) = appliers.get_mut(&applier) else { return };
        let fits = |last: &LastApplied| kept + last.bytes <= MAX_KEPT_BYTES;
        tending.last = last.filter(|last| !tending.rests && fits(last)).map(Arc::new);
        tending.awaits_health = tending.last.as_ref().is_some_and(|last| last.awaits_health());
        if tending.last.is_some() {
            let suspects: Vec<ObjectRef> = tending
                .objects
                .iter()
                .filter(|(_, entry)| entry.is_suspect())
                .map(|(object, _)| object.clone())
                .collect();
            for object in suspects {
                tending.suspect(&object, Vec::new(), now + SETTLE);
            }
        } else if tending.objects.is_empty() {
            appliers.remove(&applier);
        }
        drop(state);
        self.suspected.notify_one();
        self.watches.notify_one();
        self.changed.notify_one();
        self.drifted.notify_one();
    }

    /// Nothing of an applier is to be corrected before its next dispatch.
    pub(crate) fn rest(&self, applier: ApplierUid) {
        let mut state = self.state();
        let State { appliers, owners, .. } = &mut *state;
        let Some(tending) = appliers.get_mut(&applier) else { return };
        if let Some(correcting) = tending.correcting.take() {
            correcting.cancel();
        }
        tending.objects.drain().for_each(|(object, _)| {
            owners.remove(&object);
        });
        tending.suspects.clear();
        tending.drifts = Drifts::default();
        tending.returned.clear();
        tending.last = None;
        // Of a dispatch that is under way.
        tending.rests = true;
        drop(state);
        self.watches.notify_one();
        self.changed.notify_one();
    }

    /// Nothing is to be corrected before the next dispatch of its applier.
    pub(crate) fn rest_all(&self) {
        let appliers: Vec<ApplierUid> = self.state().appliers.keys().copied().collect();
        appliers.into_iter().for_each(|applier| self.rest(applier));
    }

    /// The appliers of which all objects are watched and stand as they were applied, or are reported. One whose dispatch is under way is what it was
    /// before.
    pub(crate) fn settled(&self) -> BTreeSet<ApplierUid> {
        let mut state = self.state();
        let State { is_allowed, appliers, statuses, .. } = &mut *state;
        if !*is_allowed {
            return BTreeSet::new();
        }
        for tending in appliers.values_mut().filter(|tending| !tending.is_busy) {
            let stands = |entry: &Entry| {
                let is_live = |watch: &Watch| statuses.get(watch) == Some(&Status::Live);
                entry.is_settled() && entry.watch.as_ref().is_some_and(is_live)
            };
            // Nothing can be corrected of one that is only watched.
            tending.is_settled = tending.last.as_ref().is_some_and(|last| !last.is_only_watched)
                && tending.correcting.is_none()
                && tending.returned.is_empty()
                && tending.objects.len() == tending.owned
                && tending.objects.values().all(stands);
        }
        appliers.iter().filter(|(_, tending)| tending.is_settled).map(|(applier, _)| *applier).collect()
    }

    /// What of an applier had been deleted and is back, as its cluster's etcd was restored: its next dispatch prunes it once more.
    pub(crate) fn returned(&self, applier: ApplierUid) -> Vec<ObjectRef> {
        let state = self.state();
        let returned = state.appliers.get(&applier).map(|tending| &tending.returned);
        let mut returned: Vec<ObjectRef> = returned.into_iter().flat_map(HashMap::keys).cloned().collect();
        returned.sort();
        returned
    }

    /// These were pruned, or are not to be.
    pub(crate) fn forget_returned(&self, applier: ApplierUid, gone: &HashSet<ObjectRef>) {
        if let Some(tending) = self.state().appliers.get_mut(&applier) {
            tending.returned.retain(|object, _| !gone.contains(object));
        }
    }

    /// Whether the last dispatch of an applier waited for health.
    pub(crate) fn awaits_health(&self, applier: ApplierUid) -> bool {
        self.state().appliers.get(&applier).is_some_and(|tending| tending.awaits_health)
    }

    /// Resolves when something was seen, or done, since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is to be corrected next; waits until there is something.
    pub(crate) async fn next(&self) -> Due {
        loop {
            let wake = match self.due(Instant::now()) {
                Ok(due) => return due,
                Err(wake) => wake,
            };
            tokio::select! {
                () = self.suspected.notified() => {}
                () = until(wake) => {}
            }
        }
    }

    /// What of one applier is due to be corrected, or when something will be. What is due and cannot be corrected is only noted.
    fn due(&self, now: Instant) -> Result<Due, Option<Instant>> {
        let mut state = self.state();
        if !state.is_allowed {
            return Err(None);
        }
        let mut wake: Option<Instant> = None;
        let alone_since = state.alone_since;
        for (applier, tending) in &mut state.appliers {
            let Some(last) = tending.last.as_ref().filter(|_| tending.correcting.is_none()) else { continue };
            let Some(first) = tending.suspects.values().map(|suspect| suspect.due).min() else { continue };
            let Offline { policy, after, .. } = last.dispatch.spec.offline;
            let is_offline = alone_since.is_some_and(|since| now.saturating_duration_since(since) >= after);
            let policy = if is_offline { policy } else { OfflinePolicy::Correct };
            if policy == OfflinePolicy::Stop {
                continue;
            }
            if first > now {
                wake = Some(wake.map_or(first, |wake| wake.min(first)));
                continue;
            }
            let (due, later): (BTreeMap<_, _>, _) = std::mem::take(&mut tending.suspects)
                .into_iter()
                .partition(|(_, suspect)| suspect.due <= now);
            tending.suspects = later;
            if last.is_only_watched {
                let last = Arc::clone(last);
                due.into_iter()
                    .for_each(|(object, suspect)| tending.note_watched(&last, &object, suspect, now));
                self.drifted.notify_one();
                continue;
            }
            let objects = due.into_iter().map(|(object, suspect)| (object, suspect.writers)).collect();
            let cancel = CancellationToken::new();
            tending.correcting = Some(cancel.clone());
            let observes = last.dispatch.spec.drift == DriftMode::Report || policy == OfflinePolicy::Report;
            return Ok(Due { applier: *applier, last: Arc::clone(last), objects, observes, cancel });
        }
        Err(wake)
    }

    /// A correction has ended. Objects that it wrote, or failed to, wait longer before they are corrected the next time; those that it could
    /// not settle are tried again.
    pub(crate) fn corrected(
        &self,
        applier: ApplierUid,
        outcome: CorrectionOutcome,
        cancel: &CancellationToken,
        now: Instant,
    ) {
        let mut state = self.state();
        if cancel.is_cancelled() {
            // A dispatch has taken over, or it rests.
            return;
        }
        if let Some(tending) = state.appliers.get_mut(&applier) {
            tending.correcting = None;
        }
        state.note_outcome(applier, outcome, now);
        drop(state);
        self.suspected.notify_one();
        self.watches.notify_one();
        self.changed.notify_one();
        self.drifted.notify_one();
    }

    /// A dispatch that only observes has found what differs.
    pub(crate) fn observed(&self, applier: ApplierUid, outcome: CorrectionOutcome, now: Instant) {
        self.state().note_outcome(applier, outcome, now);
        self.watches.notify_one();
        self.drifted.notify_one();
    }

    /// Which objects differ and go on doing so, of the next applier of which that has changed; waits until there is one.
    pub(crate) async fn next_drift(&self) -> DriftReport {
        loop {
            let wake = match self.drift_due(Instant::now()) {
                Ok(report) => return report,
                Err(wake) => wake,
            };
            tokio::select! {
                () = self.drifted.notified() => {}
                () = until(wake) => {}
            }
        }
    }

    fn drift_due(&self, now: Instant) -> Result<DriftReport, Option<Instant>> {
        let mut state = self.state();
        let mut wake: Option<Instant> = None;
        let mut wait_for = |at: Instant| wake = Some(wake.map_or(at, |wake| wake.min(at)));
        for tending in state.appliers.values_mut() {
            let Tending { objects, drifts, last: Some(last), .. } = tending else { continue };
            let peace = |object: &ObjectRef| objects.get(object).and_then(Entry::peace);
            drifts.expire_contended(now, peace).into_iter().for_each(&mut wait_for);
            match drifts.due(&last.dispatch.key, now) {
                Some(Ok(report)) => return Ok(report),
                Some(Err(at)) => wait_for(at),
                None => {}
            }
        }
        Err(wake)
    }

    /// Takes what a watch sees.
    pub(crate) fn take(&self, watch: &Watch, sight: Sight, now: Instant) {
        let mut state = self.state();
        let is_news = match sight {
            Sight::Listed(object, footprint) => state.saw(watch, &object, footprint, From::List, now),
            Sight::Seen(object, footprint) => state.saw(watch, &object, footprint, From::Watch, now),
            Sight::Gone(object) => state.lost(watch, &object, now),
            Sight::Complete { all: seen, went_back } => {
                state.completed(watch, &seen, went_back);
                state.statuses.insert(watch.clone(), Status::Live);
                let missing: Vec<ObjectRef> = state
                    .appliers
                    .values()
                    .flat_map(|tending| &tending.objects)
                    .filter(|(object, entry)| entry.watch.as_ref() == Some(watch) && !seen.contains(object))
                    .map(|(object, _)| object.clone())
                    .collect();
                let lost = missing.iter().filter(|object| state.lost(watch, object, now)).count();
                lost > 0
            }
            Sight::Resumed => {
                state.statuses.insert(watch.clone(), Status::Live);
                false
            }
            Sight::Lost => {
                state.unowned.remove(watch);
                state.statuses.insert(watch.clone(), Status::Opening);
                false
            }
        };
        drop(state);
        self.changed.notify_one();
        if is_news {
            self.suspected.notify_one();
        }
    }

    /// A watch is not allowed.
    fn forbidden(&self, watch: &Watch, why: String, now: Instant) {
        let mut state = self.state();
        state.statuses.insert(watch.clone(), Status::Forbidden(now));
        state.refusals.insert(watch.clone(), why);
        drop(state);
        self.changed.notify_one();
    }

    /// What was applied and cannot be watched, and as which account: with why. None: as the agent itself.
    pub(crate) fn unwatched(&self) -> BTreeMap<(String, Option<String>), String> {
        let mut state = self.state();
        let State { appliers, statuses, refusals, .. } = &mut *state;
        // One that is tried again is not known to be allowed yet.
        let is_refused =
            |watch: &&Watch| refusals.contains_key(*watch) && statuses.get(*watch) != Some(&Status::Live);
        let watches = appliers.values().flat_map(|tending| tending.objects.values());
        let unwatched: HashSet<Watch> =
            watches.filter_map(|entry| entry.watch.as_ref()).filter(is_refused).cloned().collect();
        refusals.retain(|watch, _| unwatched.contains(watch));
        let named = |watch: Watch| {
            let account =
                watch.account.as_ref().map(|account| format!("{}/{}", account.namespace, account.name));
            let why = refusals.get(&watch).cloned().unwrap_or_default();
            ((watch.scope.to_string(), account), why)
        };
        unwatched.into_iter().map(named).collect()
    }

    /// What is to be watched. What is no longer is forgotten.
    fn wanted_watches(&self, now: Instant) -> BTreeSet<Watch> {
        let mut state = self.state();
        let State { is_allowed, appliers, statuses, .. } = &mut *state;
        if !*is_allowed {
            statuses.clear();
            return BTreeSet::new();
        }
        statuses.retain(|_, status| {
            !matches!(status, Status::Forbidden(since) if now.saturating_duration_since(*since) > FORBIDDEN_FOR)
        });
        let mut wanted = BTreeSet::new();
        for (object, entry) in appliers.values_mut().flat_map(|tending| &mut tending.objects) {
            let Some(watch) = &mut entry.watch else { continue };
            let is_forbidden = |watch: &Watch| matches!(statuses.get(watch), Some(Status::Forbidden(_)));
            if watch.account.is_none() && is_forbidden(watch) {
                watch.scope = Arc::new(watch.scope.within(&object.namespace));
            }
            if !is_forbidden(watch) && !wanted.contains(watch) {
                wanted.insert(watch.clone());
            }
        }
        statuses.retain(|watch, status| wanted.contains(watch) || matches!(status, Status::Forbidden(_)));
        wanted
    }

    fn stands(&self, applier: ApplierUid, object: &ObjectRef, sent: &Digest) -> bool {
        let mut state = self.state();
        let State { appliers, owners, statuses, .. } = &mut *state;
        if owners.get(object) != Some(&applier) {
            if owners.len() >= MAX_OBJECTS {
                return false;
            }
            if let Some(before) = owners.insert(object.clone(), applier)
                && let Some(tending) = appliers.get_mut(&before)
            {
                // It was handed over: its owner before has nothing to do with it any more.
                tending.objects.remove(object);
                tending.suspects.remove(object);
            }
        }
        let Some(tending) = appliers.get_mut(&applier) else { return false };
        let entry = tending.objects.entry(object.clone()).or_default();
        let is_live = |watch: &Watch| statuses.get(watch) == Some(&Status::Live);
        entry.stands(sent) && entry.watch.as_ref().is_some_and(is_live)
    }

    fn was_other(&self, applier: ApplierUid, object: &ObjectRef, sent: &Digest) -> Option<bool> {
        self.state().appliers.get(&applier)?.objects.get(object)?.was_other(sent)
    }

    fn as_applied(&self, applier: ApplierUid, object: &ObjectRef) -> Option<AsApplied> {
        self.state().appliers.get(&applier)?.objects.get(object)?.as_applied()
    }

    fn note(&self, applier: ApplierUid, object: &ObjectRef, applied: Applied) {
        let mut state = self.state();
        let State { appliers, statuses, .. } = &mut *state;
        let Some(tending) = appliers.get_mut(&applier) else { return };
        let Some(entry) = tending.objects.get_mut(object) else { return };
        let watch = watch_for(tending.account.as_ref(), &applied.scope, statuses);
        entry.note(watch, applied);
        tending.drifts.settle(object);
    }
}
