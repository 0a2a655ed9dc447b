//! What is known of all appliers, and what it means that something of them was seen, or done. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use roadstead_apply::{Footprint, Scope};
use roadstead_model::{ApplierUid, DriftMode, DriftState, DriftedObject, ObjectRef, ServiceAccount};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drift::{CorrectionOutcome, Drift, Drifts, bytes_of, named};
use super::entry::{Entry, From, News};
use super::{LastApplied, Watch};

/// How many bytes of fields and messages are kept in mind of all objects that go on differing; of further ones only that they do. What waits to be told
/// of that may take as much twice over.
const MAX_DETAIL_BYTES: usize = 2 * 1024 * 1024;
/// How many objects are kept in mind that came back with a backup of etcd: the next ones are found once these are gone.
const MAX_RETURNED: usize = 5_000;
/// What is kept of why one cannot be corrected.
const MAX_MESSAGE: usize = 1024;
/// Why what is only watched is not corrected.
const NOT_KEPT: &str = "the agent has restarted, and does not have what it needs to correct this object: values from the hub, or a build that is too \
     large to be kept; it will be corrected once the hub has dispatched it again";

/// How a watch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It does not tell all changes yet, or just now.
    Opening,
    /// It tells all changes.
    Live,
    /// It is not allowed, since then.
    Forbidden(Instant),
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether the hub knows of corrections: one that does not cannot say which appliers rest.
    pub(super) is_allowed: bool,
    /// Whether a hub has said so, or that it does not.
    pub(super) is_told: bool,
    pub(super) appliers: HashMap<ApplierUid, Tending>,
    /// Since when there is no hub; none while there is one.
    pub(super) alone_since: Option<Instant>,
    /// Whose an object is.
    pub(super) owners: HashMap<ObjectRef, ApplierUid>,
    pub(super) statuses: HashMap<Watch, Status>,
    /// Why watches are not allowed.
    pub(super) refusals: HashMap<Watch, String>,
    /// What a list that is not complete yet has of appliers that are tended, and that none of them owns.
    pub(super) unowned: HashMap<Watch, Vec<(ObjectRef, ApplierUid)>>,
}

/// What is known of one applier.
#[derive(Debug, Default)]
pub(super) struct Tending {
    pub(super) account: Option<ServiceAccount>,
    /// When all of its objects were last asked about.
    pub(super) looked: Option<Instant>,
    pub(super) objects: HashMap<ObjectRef, Entry>,
    /// With what its objects are corrected; none while a dispatch is under way, or where it failed.
    pub(super) last: Option<Arc<LastApplied>>,
    pub(super) suspects: BTreeMap<ObjectRef, Suspect>,
    /// A correction is under way.
    pub(super) correcting: Option<CancellationToken>,
    /// Nothing is corrected before the next dispatch.
    pub(super) rests: bool,
    /// A dispatch is under way.
    pub(super) is_busy: bool,
    /// How many objects it owns.
    pub(super) owned: usize,
    /// Whether nothing had to be asked about it when that was last looked at.
    pub(super) is_settled: bool,
    /// Whether its last dispatch waited for health.
    pub(super) awaits_health: bool,
    pub(super) drifts: Drifts,
    /// What had been deleted and is back, with its label, since the cluster's etcd was restored; and what tells of each.
    pub(super) returned: HashMap<ObjectRef, Watch>,
}

#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) due: Instant,
    pub(super) writers: BTreeSet<String>,
}

impl Tending {
    pub(super) fn suspect(&mut self, object: &ObjectRef, writers: Vec<String>, due: Instant) {
        let suspect = self.suspects.entry(object.clone());
        suspect.or_insert(Suspect { due, writers: BTreeSet::new() }).writers.extend(writers);
    }

    /// An object differs, and there is nothing to correct it by.
    pub(super) fn note_watched(
        &mut self,
        last: &LastApplied,
        object: &ObjectRef,
        suspect: Suspect,
        now: Instant,
    ) {
        let Some(entry) = self.objects.get_mut(object) else { return };
        let seen = entry.seen().cloned();
        let is_wanted = last.dispatch.spec.drift == DriftMode::Correct;
        let (state, message) = if is_wanted {
            (DriftState::Failed, NOT_KEPT.to_owned())
        } else {
            (DriftState::Reported, String::new())
        };
        let managers = named(suspect.writers.into_iter().collect());
        self.drifts.add(DriftedObject {
            object: object.clone(),
            state,
            missing: seen.is_none(),
            managers,
            fields: Vec::new(),
            corrected: 0,
            message,
        });
        entry.was_reported(None, seen);
        // What is written all the time is looked at more and more slowly.
        entry.was_corrected(now);
    }

    /// What was only reported is to be corrected.
    pub(super) fn correct_reported(&mut self, due: Instant) {
        let reported =
            self.objects.iter_mut().filter_map(|(object, entry)| entry.correct_reported().then_some(object));
        let reported: Vec<ObjectRef> = reported.cloned().collect();
        reported.iter().for_each(|object| self.suspect(object, Vec::new(), due));
    }
}

/// What tells of an object in `scope`. As the agent a kind is watched at once; where that is forbidden, by namespace.
pub(super) fn watch_for(
    account: Option<&ServiceAccount>,
    scope: &Scope,
    statuses: &HashMap<Watch, Status>,
) -> Watch {
    let watch = Watch { account: account.cloned(), scope: Arc::new(scope.clone()) };
    if watch.account.is_some() {
        return watch;
    }
    let wide = Watch { account: None, scope: Arc::new(scope.everywhere()) };
    if matches!(statuses.get(&wide), Some(Status::Forbidden(_))) { watch } else { wide }
}

impl State {
    /// Takes what came of correcting, or of observing.
    pub(super) fn note_outcome(&mut self, applier: ApplierUid, outcome: CorrectionOutcome, now: Instant) {
        let CorrectionOutcome { mut drift, written, reported, skipped, unsettled, failure } = outcome;
        let kept: usize = self.appliers.values().map(|tending| tending.drifts.bytes()).sum();
        let mut room = MAX_DETAIL_BYTES.saturating_sub(kept);
        let failure = &failure[..failure.floor_char_boundary(MAX_MESSAGE)];
        let Self { appliers, statuses, .. } = self;
        let Some(tending) = appliers.get_mut(&applier) else { return };
        let account = tending.account.clone();
        let mut drifted = |object: &ObjectRef, state, corrected, message: &str| {
            let mut drift = drift.remove(object).unwrap_or_default();
            let bytes = bytes_of(&drift.fields) + message.len();
            let (object, mut message) = (object.clone(), message.to_owned());
            match room.checked_sub(bytes) {
                Some(left) => room = left,
                None => {
                    drift.fields.clear();
                    message.clear();
                }
            }
            let Drift { missing, managers, fields, scope, footprint } = drift;
            let watch = scope.map(|scope| watch_for(account.as_ref(), &scope, statuses));
            (DriftedObject { object, state, missing, managers, fields, corrected, message }, watch, footprint)
        };
        for object in &reported {
            let (drifted, watch, footprint) = drifted(object, DriftState::Reported, 0, "");
            tending.drifts.add(drifted);
            if let Some(entry) = tending.objects.get_mut(object) {
                entry.was_reported(watch, footprint);
                // What is written all the time is looked at more and more slowly.
                entry.was_corrected(now);
            }
        }
        let mut again = Vec::new();
        for object in &written {
            let Some(entry) = tending.objects.get_mut(object) else { continue };
            entry.was_corrected(now);
            if let Some(count) = entry.contended(now) {
                tending.drifts.add(drifted(object, DriftState::Contended, count, "").0);
            }
            if entry.is_suspect() {
                again.push((object.clone(), entry.not_before(now)));
            }
        }
        for object in &skipped {
            let Some(entry) = tending.objects.get_mut(object) else { continue };
            // One that says itself that it is left alone counts as applied.
            if entry.is_suspect() {
                entry.was_corrected(now);
                again.push((object.clone(), entry.not_before(now)));
            }
        }
        for object in &unsettled {
            let Some(entry) = tending.objects.get_mut(object) else { continue };
            entry.was_corrected(now);
            tending.drifts.add(drifted(object, DriftState::Failed, 0, failure).0);
            again.push((object.clone(), entry.not_before(now)));
        }
        for (object, due) in again {
            tending.suspect(&object, Vec::new(), due);
        }
    }

    /// The entry of an object, with its applier, where this watch is the one that tells of it.
    fn entry(&mut self, watch: &Watch, object: &ObjectRef) -> Option<(&mut Tending, bool)> {
        let owner = self.owners.get(object)?;
        let tending = self.appliers.get_mut(owner)?;
        let entry = tending.objects.get(object)?;
        // One that was not applied yet has no watch.
        let is_its = entry.watch.as_ref().is_none_or(|its| its == watch);
        Some((tending, is_its))
    }

    /// Whether there is more to be corrected than before.
    pub(super) fn saw(
        &mut self,
        watch: &Watch,
        object: &ObjectRef,
        footprint: Footprint,
        from: From,
        now: Instant,
    ) -> bool {
        let Some((tending, true)) = self.entry(watch, object) else {
            self.note_unowned(watch, object, &footprint, from);
            return false;
        };
        let Some(entry) = tending.objects.get_mut(object) else { return false };
        let (news, due) = (entry.see(footprint, from), entry.not_before(now));
        match news {
            News::Changed(writers) if tending.last.is_some() => {
                tending.suspect(object, writers, due);
                true
            }
            News::Stands => {
                tending.suspects.remove(object);
                tending.drifts.settle(object);
                false
            }
            News::Changed(_) | News::Nothing => false,
        }
    }

    /// A list has something of an applier that nobody owns.
    fn note_unowned(&mut self, watch: &Watch, object: &ObjectRef, footprint: &Footprint, from: From) {
        let Some(applier) = footprint.owner().filter(|_| from == From::List && footprint.is_ours()) else {
            return;
        };
        if self.owners.contains_key(object) || !self.appliers.contains_key(&applier) {
            return;
        }
        let noted: usize = self.unowned.values().map(Vec::len).sum();
        if noted < MAX_RETURNED {
            self.unowned.entry(watch.clone()).or_default().push((object.clone(), applier));
        }
    }

    /// A list is complete. Where the cluster has gone back in time, what nobody owns had been deleted, and is back.
    pub(super) fn completed(&mut self, watch: &Watch, all: &HashSet<ObjectRef>, went_back: bool) {
        let unowned = self.unowned.remove(watch).unwrap_or_default();
        for tending in self.appliers.values_mut() {
            tending.returned.retain(|object, by| by != watch || all.contains(object));
        }
        if !went_back {
            return;
        }
        tracing::warn!(
            scope = %watch.scope, unowned = unowned.len(),
            "the cluster is at an earlier state than before, as after a restore of its etcd: objects that differ are corrected, and objects \
             that nobody owns are pruned by the next reconciliation of their owner by label"
        );
        let mut room =
            MAX_RETURNED.saturating_sub(self.appliers.values().map(|one| one.returned.len()).sum());
        for (object, applier) in unowned {
            let Some(tending) = self.appliers.get_mut(&applier).filter(|_| room > 0) else { continue };
            // A dispatch may have come to own it meanwhile.
            if !self.owners.contains_key(&object) {
                room -= 1;
                tending.returned.insert(object, watch.clone());
            }
        }
    }

    /// The same of an object that is not there any more.
    pub(super) fn lost(&mut self, watch: &Watch, object: &ObjectRef, now: Instant) -> bool {
        for tending in self.appliers.values_mut().filter(|tending| !tending.returned.is_empty()) {
            tending.returned.remove(object);
        }
        let Some((tending, true)) = self.entry(watch, object) else { return false };
        let Some(entry) = tending.objects.get_mut(object) else { return false };
        let (is_suspect, due) = (entry.gone(object), entry.not_before(now));
        let is_news = is_suspect && tending.last.is_some();
        if is_news {
            tending.suspect(object, Vec::new(), due);
        }
        is_news
    }
}
