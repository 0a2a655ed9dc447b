//! What the agent has to tell the hub, kept until it is told.
//!
//! No queue: what is pending per applier, so that it is bounded by the work and not by how long the hub is away.
//! Results as they happen are gathered into one message while the last one is on its way. A session takes from it one
//! message at a time; what must not be lost (intents, ends) stays until the hub confirmed it, and is taken again by the
//! next session.

mod corrections;
mod relayed;
mod reports;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roadstead_model::{ApplierUid, Digest, DispatchKey, ObjectRef, ObjectResult, Position, RelayedEvent};
use roadstead_proto::limits::MAX_TENDED;
use roadstead_proto::v1::Refused;
use roadstead_proto::{
    Backlog, Correction, DriftReport, Finished, HealthReport, InventoryAck, InventoryIntent, ObjectHealth,
    Progress, Started, Tended,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::metrics::Meters;
use corrections::Corrections;
use reports::Reports;

pub(crate) use corrections::Version;
pub(crate) use relayed::Relayed;

/// The least time between two messages of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// The least time between two messages of which dispatches wait: many begin to at the same time.
const BACKLOG_EVERY: Duration = Duration::from_millis(250);

/// How many refusals may wait; a hub that causes more of them is not worth listening to.
const MAX_REFUSALS: usize = 256;

/// What the hub said to an intent.
pub type IntentAnswer = Result<InventoryAck, String>;

/// One message to send.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, which is boxed as it is handed out")]
pub enum Outgoing {
    /// What was not understood.
    Refused(Refused),
    /// A build is lacking.
    Build(Digest),
    /// What will be owned.
    Intent(InventoryIntent),
    /// What happened.
    Progress(Progress),
    /// Which dispatches wait, and which have begun.
    Backlog(Backlog),
    /// How a dispatch ended.
    Finished(Finished),
    /// What was corrected, under the number by which it is confirmed.
    Correction(u64, Correction),
    /// What is tended, and what is not any more.
    Tended(Tended),
    /// How what was waited for is, under the number by which it is confirmed.
    Health(u64, HealthReport),
    /// What differs from what was applied, under the number by which it is confirmed.
    Drift(u64, DriftReport),
    /// The keys that a dispatch read, or missed, are others now.
    KeysChanged(DispatchKey),
    /// What Flux's controllers in the cluster have told, under the number of the last of them.
    Relayed(u64, Vec<RelayedEvent>),
}

/// What is pending.
#[derive(Debug, Default)]
pub struct Outbox {
    state: Mutex<State>,
    changed: Notify,
    meters: Meters,
    relayed: Arc<Relayed>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a session listens: progress is for those only.
    is_live: bool,
    refusals: VecDeque<Refused>,
    builds: BTreeMap<Digest, Sent>,
    intents: BTreeMap<ApplierUid, PendingIntent>,
    progress: BTreeMap<ApplierUid, Gathered>,
    /// When progress of an applier was last sent.
    progress_sent: BTreeMap<ApplierUid, Instant>,
    /// Dispatches that wait, or have begun after they waited, until they end.
    backlog: BTreeMap<ApplierUid, Standing>,
    backlog_sent: Option<Instant>,
    finished: BTreeMap<ApplierUid, (Finished, Sent)>,
    corrections: Corrections,
    /// What is tended, and what of that the hub was told in this session.
    tended: BTreeSet<ApplierUid>,
    tended_told: BTreeSet<ApplierUid>,
    reports: Reports<HealthReport>,
    drifts: Reports<DriftReport>,
    /// Dispatches whose keys are others since, until the next dispatch of each applier.
    keys_changed: BTreeMap<ApplierUid, (DispatchKey, Sent)>,
}

/// A dispatch that waits, or has waited.
#[derive(Debug)]
struct Standing {
    key: DispatchKey,
    /// When it began; none: it waits.
    began: Option<Instant>,
    sent: Sent,
}

/// Whether it was sent in this session.
type Sent = bool;

#[derive(Debug)]
struct PendingIntent {
    intent: InventoryIntent,
    answer: oneshot::Sender<IntentAnswer>,
    sent: Sent,
}

/// Progress since the last message.
#[derive(Debug)]
struct Gathered {
    key: DispatchKey,
    position: Position,
    results: Vec<ObjectResult>,
    health: BTreeMap<ObjectRef, ObjectHealth>,
}

impl Gathered {
    fn new(key: DispatchKey, position: Position) -> Self {
        Self { key, position, results: Vec::new(), health: BTreeMap::new() }
    }

    fn into_message(self) -> Progress {
        let Self { key, position, results, health } = self;
        Progress { key, position, results, health: health.into_values().collect() }
    }
}

/// What a session may send now.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// This.
    Message(Box<Outgoing>),
    /// Nothing before then.
    At(Instant),
    /// Nothing until something changes.
    Nothing,
}

impl Outbox {
    /// Empty but for what Flux's controllers have told, counting by these.
    #[must_use]
    pub(crate) fn counting(meters: Meters, relayed: Arc<Relayed>) -> Self {
        Self { meters, relayed, ..Self::default() }
    }

    /// What Flux's controllers have told.
    pub(crate) fn relayed(&self) -> &Relayed {
        &self.relayed
    }

    /// How many dispatches have waited for their turn for more than a moment.
    pub(crate) fn waiting(&self) -> usize {
        self.state().backlog.values().filter(|standing| standing.began.is_none()).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when something was added since the last call.
    pub async fn changed(&self) {
        tokio::select! {
            () = self.changed.notified() => {}
            () = self.relayed.changed() => {}
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_one();
        result
    }

    /// A session begins: everything that is not confirmed is to be sent again.
    pub fn begin_session(&self) {
        self.change(|state| {
            state.is_live = true;
            state.refusals.clear();
            state.progress.clear();
            state.builds.values_mut().for_each(|sent| *sent = false);
            state.intents.values_mut().for_each(|pending| pending.sent = false);
            state.backlog.values_mut().for_each(|standing| standing.sent = false);
            state.finished.values_mut().for_each(|(_, sent)| *sent = false);
            state.corrections.begin_session();
            state.tended_told.clear();
            state.reports.begin_session();
            state.drifts.begin_session();
            state.keys_changed.values_mut().for_each(|(_, sent)| *sent = false);
        });
    }

    /// The session is over: results as they happen are for nobody.
    pub fn end_session(&self) {
        self.relayed.end_session();
        let mut state = self.state();
        state.is_live = false;
        state.progress.clear();
    }

    /// Says that something was not understood; false where too many of those wait.
    pub fn refuse(&self, refused: Refused) -> bool {
        self.change(|state| {
            state.refusals.push_back(refused);
            state.refusals.len() <= MAX_REFUSALS
        })
    }

    /// Asks for a build, once per session, until [`Self::have_build`].
    pub fn want_build(&self, digest: Digest) {
        self.change(|state| {
            state.builds.entry(digest).or_insert(false);
        });
    }

    /// The build came, or is not wanted any more.
    pub fn have_build(&self, digest: &Digest) {
        self.state().builds.remove(digest);
    }

    /// Says what will be owned; the receiver gets the hub's answer. An older intent of the applier is forgotten.
    pub fn intend(&self, intent: InventoryIntent) -> oneshot::Receiver<IntentAnswer> {
        let (answer, answered) = oneshot::channel();
        let pending = PendingIntent { intent, answer, sent: false };
        self.change(|state| state.intents.insert(pending.intent.key.applier, pending));
        answered
    }

    /// The intent is not pursued any more.
    pub fn withdraw_intent(&self, key: &DispatchKey) {
        let mut state = self.state();
        if state.intents.get(&key.applier).is_some_and(|pending| pending.intent.key == *key) {
            state.intents.remove(&key.applier);
        }
    }

    /// The hub's answer to an intent; one that nobody waits for is dropped.
    pub fn answer_intent(&self, key: &DispatchKey, answer: IntentAnswer) {
        let mut state = self.state();
        if state.intents.get(&key.applier).is_some_and(|pending| pending.intent.key == *key)
            && let Some(pending) = state.intents.remove(&key.applier)
        {
            drop(state);
            // Who does not wait any more does not hear it.
            let _ = pending.answer.send(answer);
        }
    }

    /// Something happened to an object, or a stage began.
    pub fn progress(
        &self,
        key: &DispatchKey,
        position: Position,
        result: Option<ObjectResult>,
        health: Option<ObjectHealth>,
    ) {
        self.change(|state| {
            if !state.is_live {
                return;
            }
            let gathered =
                state.progress.entry(key.applier).or_insert_with(|| Gathered::new(key.clone(), position));
            if gathered.key != *key {
                *gathered = Gathered::new(key.clone(), position);
            }
            gathered.position = position;
            gathered.results.extend(result);
            if let Some(health) = health {
                gathered.health.insert(health.object.clone(), health);
            }
        });
    }

    /// A dispatch waits until others have ended.
    pub fn waits(&self, key: &DispatchKey) {
        self.stand(Standing { key: key.clone(), began: None, sent: false });
    }

    /// A dispatch that waited begins.
    pub fn started(&self, key: &DispatchKey) {
        self.stand(Standing { key: key.clone(), began: Some(Instant::now()), sent: false });
    }

    fn stand(&self, standing: Standing) {
        self.change(|state| state.backlog.insert(standing.key.applier, standing));
    }

    /// A dispatch ended, or its end is to be told once more. An older end of the applier is forgotten.
    pub fn finish(&self, finished: Finished) {
        self.meters.finished(&finished);
        self.change(|state| {
            state.backlog.remove(&finished.key.applier);
            // How it waited is of no interest any more.
            state.reports.forget(finished.key.applier);
            state
                .keys_changed
                .retain(|applier, (key, _)| *applier != finished.key.applier || *key == finished.key);
            state.finished.insert(finished.key.applier, (finished, false));
        });
    }

    /// The hub has taken in how a dispatch ended.
    pub fn confirm_finished(&self, key: &DispatchKey) {
        let mut state = self.state();
        if state.finished.get(&key.applier).is_some_and(|(finished, _)| finished.key == *key) {
            state.finished.remove(&key.applier);
        }
    }

    /// What others had changed was corrected, from `began` on. Of very many that wait for a hub, the oldest are forgotten.
    pub fn correct(&self, correction: Correction, began: Instant) {
        self.meters.corrected();
        let forgotten = self.change(|state| state.corrections.add(correction, began));
        if forgotten > 0 {
            tracing::warn!(
                forgotten,
                "the hub will not be told of some corrections: too many wait to be told"
            );
        }
    }

    /// Goes on with corrections that the process before this one could not tell.
    pub(crate) fn resume_corrections(&self, corrections: Vec<Correction>) {
        self.change(|state| state.corrections.resume(corrections, Instant::now()));
    }

    /// Which corrections wait to be told (none where none does), and whether a hub listens.
    pub(crate) fn corrections_waiting(&self) -> (Option<Version>, bool) {
        let state = self.state();
        (state.corrections.version(), state.is_live)
    }

    /// The corrections that wait to be told.
    pub(crate) fn corrections(&self) -> Vec<Correction> {
        self.state().corrections.all(Instant::now())
    }

    /// These are tended, and no others.
    pub fn tend(&self, tended: BTreeSet<ApplierUid>) {
        self.change(|state| state.tended = tended);
    }

    /// How what was waited for is: takes the place of what was told before, and was not sent.
    pub fn report(&self, report: HealthReport) {
        self.change(|state| state.reports.add(report));
    }

    /// What differs from what was applied: takes the place of what was told before, and was not sent.
    pub fn report_drift(&self, report: DriftReport) {
        self.change(|state| state.drifts.add(report));
    }

    /// The keys that a dispatch read, or missed, are others now.
    pub fn keys_changed(&self, key: DispatchKey) {
        self.change(|state| state.keys_changed.insert(key.applier, (key, false)));
    }

    /// Nobody wants to hear of this applier's keys.
    pub fn keys_rest(&self, applier: ApplierUid) {
        self.state().keys_changed.remove(&applier);
    }

    /// The hub has taken in what differs.
    pub fn confirm_drift(&self, number: u64) {
        self.change(|state| state.drifts.confirm(number));
    }

    /// The hub has taken in how what was waited for is.
    pub fn confirm_report(&self, number: u64) {
        self.change(|state| state.reports.confirm(number));
    }

    /// The hub has taken in what was corrected.
    pub fn confirm_correction(&self, number: u64) {
        self.state().corrections.forget(number);
    }

    /// The dispatches whose end the hub has not confirmed.
    #[must_use]
    pub fn unconfirmed(&self) -> Vec<DispatchKey> {
        self.state().finished.values().map(|(finished, _)| finished.key.clone()).collect()
    }

    /// Whether nothing waits to be sent in this session.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let state = self.state();
        state.refusals.is_empty()
            && state.progress.is_empty()
            && state.finished.values().all(|(_, sent)| *sent)
            && state.corrections.are_sent()
            && self.relayed.is_drained()
    }

    /// The next message, marked as sent in this session.
    pub fn next(&self, now: Instant) -> Next {
        let mut state = self.state();
        let message = |outgoing| Next::Message(Box::new(outgoing));
        if let Some(refused) = state.refusals.pop_front() {
            return message(Outgoing::Refused(refused));
        }
        if let Some((digest, sent)) = state.builds.iter_mut().find(|(_, sent)| !**sent) {
            *sent = true;
            return message(Outgoing::Build(*digest));
        }
        if let Some(pending) = state.intents.values_mut().find(|pending| !pending.sent) {
            pending.sent = true;
            return message(Outgoing::Intent(pending.intent.clone()));
        }
        if let Some(backlog) = next_backlog(&mut state, now) {
            return message(Outgoing::Backlog(backlog));
        }
        let ended: BTreeSet<ApplierUid> =
            state.finished.iter().filter(|(_, (_, sent))| !sent).map(|(uid, _)| *uid).collect();
        if let Some(uid) = ended.first() {
            // What happened goes before how it ended.
            if let Some(gathered) = state.progress.remove(uid) {
                return message(Outgoing::Progress(gathered.into_message()));
            }
            state.progress_sent.remove(uid);
            if let Some((finished, sent)) = state.finished.get_mut(uid) {
                *sent = true;
                return message(Outgoing::Finished(finished.clone()));
            }
        }
        let State { corrections, reports, drifts, finished, keys_changed, .. } = &mut *state;
        // The hub takes what comes after a dispatch for what it is once it knows how that ended.
        if let Some((number, told)) = corrections.next(now, |applier| !finished.contains_key(&applier)) {
            return message(Outgoing::Correction(number, told));
        }
        if let Some((number, report)) = reports.next(|applier| !finished.contains_key(&applier)) {
            return message(Outgoing::Health(number, report));
        }
        if let Some((number, report)) = drifts.next(|applier| !finished.contains_key(&applier)) {
            return message(Outgoing::Drift(number, report));
        }
        let is_next = |applier: &ApplierUid, sent: Sent| !sent && !finished.contains_key(applier);
        if let Some((_, (key, sent))) = keys_changed.iter_mut().find(|(of, (_, sent))| is_next(of, *sent)) {
            *sent = true;
            return message(Outgoing::KeysChanged(key.clone()));
        }
        if let Some(tended) = next_tended(&mut state) {
            return message(Outgoing::Tended(tended));
        }
        if let Some((last, events)) = self.relayed.next() {
            return message(Outgoing::Relayed(last, events));
        }
        next_progress(&mut state, now)
    }
}

/// What the hub was not told of what is tended. It counts as told from then on: where the session ends before it arrives, the next one
/// begins with nothing.
fn next_tended(state: &mut State) -> Option<Tended> {
    if !state.is_live || state.tended == state.tended_told {
        return None;
    }
    let State { tended, tended_told, .. } = state;
    let begun: Vec<ApplierUid> = tended.difference(tended_told).take(MAX_TENDED).copied().collect();
    let ended: Vec<ApplierUid> = tended_told.difference(tended).take(MAX_TENDED).copied().collect();
    tended_told.extend(&begun);
    ended.iter().for_each(|applier| {
        tended_told.remove(applier);
    });
    Some(Tended { begun, ended })
}

/// When the next message of what waits may be sent, where there is something to tell.
fn backlog_due(state: &State, now: Instant) -> Option<Instant> {
    let is_news = state.backlog.values().any(|standing| !standing.sent);
    is_news.then(|| state.backlog_sent.map_or(now, |sent| sent + BACKLOG_EVERY))
}

/// All news of what waits, where it is time for that.
fn next_backlog(state: &mut State, now: Instant) -> Option<Backlog> {
    if backlog_due(state, now)? > now {
        return None;
    }
    state.backlog_sent = Some(now);
    let mut backlog = Backlog::default();
    for standing in state.backlog.values_mut().filter(|standing| !standing.sent) {
        standing.sent = true;
        let key = standing.key.clone();
        match standing.began {
            None => backlog.waiting.push(key),
            Some(began) => backlog.started.push(Started { key, ago: now.saturating_duration_since(began) }),
        }
    }
    Some(backlog)
}

/// Progress of the applier that has waited its time, or when the first one will have.
fn next_progress(state: &mut State, now: Instant) -> Next {
    let due = |uid: &ApplierUid| state.progress_sent.get(uid).map_or(now, |sent| *sent + PROGRESS_EVERY);
    let backlog_due = backlog_due(state, now);
    let Some((due, uid)) = state.progress.keys().map(|uid| (due(uid), *uid)).min() else {
        return backlog_due.map_or(Next::Nothing, Next::At);
    };
    if due > now {
        return Next::At(backlog_due.map_or(due, |backlog| backlog.min(due)));
    }
    state.progress_sent.insert(uid, now);
    let gathered = state.progress.remove(&uid);
    gathered.map_or(Next::Nothing, |gathered| {
        Next::Message(Box::new(Outgoing::Progress(gathered.into_message())))
    })
}

#[cfg(test)]
mod tests;
