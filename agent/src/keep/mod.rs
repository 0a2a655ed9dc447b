//! What this agent needs to go on without its hub when it is started again: what it carried out last for each applier, and the builds of
//! that, in Secrets of its own namespace.
//!
//! A dispatch is kept once its result was told. Before another one of its applier writes anything, it is withdrawn (`withdrawn.rs`): so nothing
//! older is ever applied over something newer, whenever the agent ends in between. Of what holds values that the hub gave, or decrypted,
//! only how its objects stood is kept: what differs is noticed then, and not corrected.

mod record;
mod slots;
mod unsent;
mod withdrawn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use roadstead_apply::HashKey;
use roadstead_model::{ApplierUid, Attempt, Digest, DispatchKey, HubEpoch, chain};
use serde_json::json;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::home::{Home, failed};
use crate::tend::Watched;
use crate::until::until;
pub(crate) use record::{Content, Packed, Record, Values, may_be_kept};
use slots::{Changes, PartKey, SLOTS, Slots};
use unsent::Unsent;
use withdrawn::Withdrawn;

/// The Secrets' names begin so; a number follows.
const NAME: &str = "roadstead-agent-kept-";

const TYPE: &str = "fleet.roadstead.dev/agent-kept";

/// How many bytes the builds of one applier may have, compressed, to be kept.
pub(crate) const MOST_KEPT: usize = 4 * 1024 * 1024;

/// How many objects all that is read may own: more are not tended anyway.
const MOST_OBJECTS: usize = 50_000;

/// What is to be kept waits so long for more: what many dispatches leave is a few writes then.
const PAUSE: Duration = Duration::from_secs(3);

/// How long one write may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it takes until a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

const NO_ANSWER: &str = "the apiserver does not answer";

/// What is kept of an applier is of one dispatch.
type Version = (ApplierUid, (HubEpoch, Attempt));

/// What is kept, and what of that is not written yet.
#[derive(Default)]
pub(crate) struct Keep {
    home: Option<Home>,
    /// The [mark](roadstead_apply::HashKey::mark) of this agent's key for footprints.
    mark: u64,
    state: Mutex<State>,
    wake: Notify,
    /// Held while a record is made.
    encoding: Mutex<()>,
    /// What was kept before has been read; before that nobody knows what there is to withdraw.
    is_read: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    slots: Slots,
    /// Which dispatch is kept of each applier, and what of it.
    kept: HashMap<ApplierUid, (Option<Digest>, Digest)>,
    /// How each applier goes on after a restart without a hub; the next dispatch may be under way.
    goes_on: HashMap<ApplierUid, GoesOn>,
    /// The dispatch of each applier that writes, or has written last: what is left by another one is not kept. None where nothing is
    /// to be kept before the next one.
    begun: HashMap<ApplierUid, Option<(HubEpoch, Attempt)>>,
    /// Nothing is kept of any other applier either: so it was said before what there is had been read.
    is_forgotten: bool,
    pending: BTreeMap<usize, BTreeMap<PartKey, Option<Vec<u8>>>>,
    /// What was taken back, though it may be in the Secrets still.
    withdrawn: Withdrawn,
    /// Who waits until that is written.
    waiting: Vec<Waiting>,
    /// Who waits until all that is pending is written, since there is no room for another mark.
    waiting_for_all: Vec<Waiting>,
    /// Of which appliers something is being taken back right now.
    in_flight: BTreeSet<ApplierUid>,
    /// When what is pending is written, where nobody waits for it.
    due: Option<Instant>,
    /// Corrections that the hub was not told of.
    unsent: Unsent,
    /// The apiserver does not let this agent keep anything.
    is_off: bool,
}

/// How an applier goes on after a restart without a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    Corrected,
    Watched,
}

impl From<&Content> for GoesOn {
    fn from(content: &Content) -> Self {
        match content {
            Content::Corrected { .. } => Self::Corrected,
            Content::Watched { .. } => Self::Watched,
        }
    }
}

type Waiting = oneshot::Sender<Result<(), String>>;

/// Of which appliers something is to be taken back.
fn taken_back(pending: &BTreeMap<usize, BTreeMap<PartKey, Option<Vec<u8>>>>) -> BTreeSet<ApplierUid> {
    let changes = pending.values().flatten();
    changes.filter(|(_, value)| value.is_none()).map(|(key, _)| key.applier).collect()
}

impl State {
    /// Whether something of an applier is still there that was taken out of the slots.
    fn is_leaving(&self, applier: ApplierUid) -> bool {
        self.in_flight.contains(&applier) || taken_back(&self.pending).contains(&applier)
    }

    fn forgets(&self, applier: ApplierUid) -> bool {
        self.begun.get(&applier).map_or(self.is_forgotten, Option::is_none)
    }

    fn change(&mut self, changes: Changes) {
        for (slot, key, value) in changes {
            self.pending.entry(slot).or_default().insert(key, value);
        }
    }
}

impl Keep {
    /// What is kept in the agent's namespace. It is [read](Self::read) first, and then [written](Self::write) as it changes.
    pub(crate) fn new(home: Home, hashes: &HashKey) -> Self {
        Self { home: Some(home), mark: hashes.mark(), ..Self::default() }
    }

    /// How the objects of an applier stood, as it is kept.
    pub(crate) fn watched(&self, watched: Vec<Watched>) -> Content {
        Content::Watched { watched, mark: self.mark }
    }

    /// How many appliers are corrected after a restart without a hub, and how many are only watched.
    pub(crate) fn going_on(&self) -> (usize, usize) {
        let state = self.state();
        let corrected = state.goes_on.values().filter(|goes_on| **goes_on == GoesOn::Corrected).count();
        (corrected, state.goes_on.len() - corrected)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back what is kept of an applier, unless it is this dispatch: no agent goes by it any more when this resolves.
    ///
    /// # Errors
    /// Why that is not sure, for people; nothing is to be written then.
    pub(crate) async fn withdraw(&self, key: &DispatchKey) -> Result<(), String> {
        if self.home.is_none() {
            return Ok(());
        }
        let (applier, digest) = (key.applier, key.digest);
        self.state().begun.insert(applier, Some(key.fence()));
        let mut is_read = self.is_read.subscribe();
        // It does not end before this does.
        let _ = is_read.wait_for(|is_read| *is_read).await;
        let answer = {
            let mut state = self.state();
            let is_kept = state.slots.has(applier);
            let is_this =
                digest.is_some() && state.kept.get(&applier).is_some_and(|(kept, _)| *kept == digest);
            if is_this || state.is_off || !(is_kept || state.is_leaving(applier)) {
                return Ok(());
            }
            state.kept.remove(&applier);
            let changes = state.slots.remove(applier);
            state.change(changes);
            state.due.get_or_insert_with(|| Instant::now() + PAUSE);
            let (tell, answer) = oneshot::channel();
            if state.withdrawn.take_back(applier, key.fence()) {
                state.waiting.push(tell);
            } else {
                state.waiting_for_all.push(tell);
            }
            answer
        };
        self.wake.notify_one();
        answer.await.unwrap_or_else(|_| Err("the agent is shutting down".to_owned()))
    }

    /// Keeps what a dispatch that is done leaves, in a while; `digest` is of the [content](Content::digest). Its `record` is made where it
    /// is not kept already, one at a time: it has copies of builds. False where there is none.
    pub(crate) fn store(
        &self,
        key: &DispatchKey,
        digest: Digest,
        record: impl FnOnce() -> Option<Record>,
    ) -> bool {
        if self.home.is_none() {
            return true;
        }
        let (applier, is) = (key.applier, (key.digest, digest));
        if self.state().kept.get(&applier) == Some(&is) {
            return true;
        }
        let one = self.encoding.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = record() else { return false };
        let Some(bytes) = record.encode() else { return false };
        drop(one);
        let mut state = self.state();
        let is_last = state.begun.get(&applier) == Some(&Some(key.fence()));
        if state.is_off || !is_last || !*self.is_read.borrow() {
            return true;
        }
        let (changes, fits) = state.slots.put(applier, record.key.fence(), &bytes);
        if fits {
            state.kept.insert(applier, is);
            state.goes_on.insert(applier, GoesOn::from(&record.content));
        } else {
            state.kept.remove(&applier);
            state.goes_on.remove(&applier);
            tracing::warn!(
                applier = %record.spec.applier, bytes = bytes.len(),
                "its build is not kept in the cluster, for want of room: after a restart of the agent, drift is corrected once the hub has dispatched it again"
            );
        }
        state.change(changes);
        state.due.get_or_insert_with(|| Instant::now() + PAUSE);
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Takes back what is kept of an applier, soon.
    pub(crate) fn forget(&self, applier: ApplierUid) {
        let mut state = self.state();
        state.begun.insert(applier, None);
        state.kept.remove(&applier);
        state.goes_on.remove(&applier);
        let changes = state.slots.remove(applier);
        if changes.is_empty() {
            return;
        }
        state.change(changes);
        state.due = Some(Instant::now());
        drop(state);
        self.wake.notify_one();
    }

    /// The same of all.
    pub(crate) fn forget_all(&self) {
        let mut appliers = {
            let mut state = self.state();
            state.is_forgotten = !*self.is_read.borrow();
            state.slots.appliers()
        };
        appliers.extend(self.state().begun.keys());
        appliers.into_iter().for_each(|applier| self.forget(applier));
    }

    /// Whether nothing of this applier is to be kept before its next dispatch.
    pub(crate) fn forgets(&self, applier: ApplierUid) -> bool {
        self.state().forgets(applier)
    }

    /// What was kept by the agent before this one, each applier's newest. What cannot be read is taken back.
    pub(crate) async fn read(&self) -> Vec<Record> {
        let Some(home) = &self.home else { return Vec::new() };
        let mut parts: BTreeMap<Version, BTreeMap<usize, Vec<u8>>> = BTreeMap::new();
        let mut counts = HashMap::new();
        for slot in 0..SLOTS {
            let found = match crate::app::patiently(|| home.kept_secret(slot)).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "nothing is kept in the cluster, so that a restarted agent corrects nothing before its hub has dispatched \
                         to it: apply this version's agent manifests, whose Role allows it"
                    );
                    self.state().is_off = true;
                    self.is_read.send_replace(true);
                    return Vec::new();
                }
            };
            for (key, value) in found {
                if slot == withdrawn::SLOT && key == unsent::ENTRY {
                    self.state().unsent.found = value.0;
                    continue;
                }
                let Some(key) = PartKey::parse(&key) else { continue };
                if slot == withdrawn::SLOT && self.state().withdrawn.found(key, &value.0) {
                    continue;
                }
                self.state().slots.found(slot, key, value.0.len());
                counts.insert((key.applier, key.fence), key.count);
                parts.entry((key.applier, key.fence)).or_default().insert(key.index, value.0);
            }
        }
        let mut records: BTreeMap<ApplierUid, Record> = BTreeMap::new();
        let mut owned = 0;
        for ((applier, fence), parts) in parts {
            let is_whole = counts.get(&(applier, fence)) == Some(&parts.len());
            let bytes: Vec<u8> = parts.into_values().flatten().collect();
            let record = is_whole.then(|| Record::decode(&bytes)).flatten();
            // Footprints by another key tell nothing.
            let is_ours =
                |content: &Content| !matches!(content, Content::Watched { mark, .. } if *mark != self.mark);
            let counts = self.state().withdrawn.counts(applier, fence);
            let record = record.filter(|record| counts && is_ours(&record.content));
            // They are in order: a newer one takes the place of an older.
            let record = record.filter(|record| {
                owned += record.inventory.len();
                owned <= MOST_OBJECTS
            });
            match record.filter(|record| record.key.applier == applier && record.key.fence() == fence) {
                Some(record) => drop(records.insert(applier, record)),
                None => drop(records.remove(&applier)),
            }
        }
        let mut state = self.state();
        // A hub may have been heard already.
        records.retain(|applier, _| !state.forgets(*applier));
        for applier in state.slots.appliers() {
            match records.get(&applier) {
                Some(record) => {
                    let Record { key, inventory, is_well, inputs, content, .. } = record;
                    let is = (key.digest, content.digest(key, inventory, inputs, *is_well));
                    state.kept.insert(applier, is);
                    state.goes_on.insert(applier, GoesOn::from(&record.content));
                }
                None => {
                    let changes = state.slots.remove(applier);
                    state.change(changes);
                    state.due = Some(Instant::now());
                }
            }
        }
        drop(state);
        self.is_read.send_replace(true);
        self.wake.notify_one();
        records.into_values().collect()
    }

    /// Writes what changes, for as long as it runs.
    pub(crate) async fn write(&self) {
        let Some(home) = &self.home else { return std::future::pending().await };
        loop {
            self.flush_awaited_marks(home).await;
            let due = {
                let state = self.state();
                if state.waiting_for_all.is_empty() { state.due } else { Some(Instant::now()) }
            };
            if due.is_some_and(|due| due <= Instant::now()) {
                self.flush(home).await;
                continue;
            }
            tokio::select! {
                () = self.wake.notified() => {}
                () = until(due) => {}
            }
        }
    }

    /// Writes what was taken back, where somebody waits for that.
    async fn flush_awaited_marks(&self, home: &Home) {
        let is_awaited = !self.state().waiting.is_empty();
        if is_awaited {
            self.flush_marks(home).await;
        }
    }

    /// Writes what was taken back, and what need not be marked any more.
    async fn flush_marks(&self, home: &Home) {
        let (marks, waiting) = {
            let mut state = self.state();
            (state.withdrawn.take(), std::mem::take(&mut state.waiting))
        };
        if marks.is_empty() {
            return answer(waiting, None);
        }
        let changes = marks.iter().map(|(key, is_there)| (key.text(), is_there.then_some(&[][..]))).collect();
        let written = home.keep_in_secret(withdrawn::SLOT, &changes);
        let failed = match tokio::time::timeout(PATIENCE, written).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(self.not_kept(&error)),
            Err(_) => Some(NO_ANSWER.to_owned()),
        };
        if failed.is_some() {
            self.state().withdrawn.give_back(marks);
        }
        answer(waiting, failed.filter(|_| !self.state().is_off).as_deref());
    }

    /// Says why, and keeps nothing any more where the apiserver does not let this agent.
    fn not_kept(&self, error: &crate::home::HomeError) -> String {
        let why = chain(error);
        if error.is_refusal() {
            tracing::warn!(error = why, "what was applied is not kept in the cluster any more");
            self.state().is_off = true;
        }
        why
    }

    /// Writes all that is pending. Whoever waits for a mark waits for no more than the Secret that is being written.
    async fn flush(&self, home: &Home) {
        let (pending, waiting) = {
            let mut state = self.state();
            state.due = None;
            state.in_flight = taken_back(&state.pending);
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.waiting_for_all))
        };
        let (mut failed, mut all_written) = (None, true);
        for (slot, changes) in pending {
            self.flush_awaited_marks(home).await;
            let texts = changes.iter().map(|(key, value)| (key.text(), value.as_deref())).collect();
            let written = tokio::time::timeout(PATIENCE, home.keep_in_secret(slot, &texts)).await;
            let why = match written {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => self.not_kept(&error),
                Err(_) => NO_ANSWER.to_owned(),
            };
            all_written = false;
            let mut state = self.state();
            if state.is_off {
                continue;
            }
            failed = Some(why);
            // What came meanwhile is newer.
            let pending = state.pending.entry(slot).or_default();
            for (key, value) in changes {
                pending.entry(key).or_insert(value);
            }
            state.due = Some(Instant::now() + RETRY);
        }
        {
            let mut state = self.state();
            state.in_flight.clear();
            // What was to go may be there still.
            if all_written {
                let State { withdrawn, pending, .. } = &mut *state;
                let leaving = taken_back(pending);
                withdrawn.settle(|applier| leaving.contains(&applier));
            }
        }
        self.flush_marks(home).await;
        answer(waiting, failed.as_deref());
    }

    /// Writes what is pending, before the agent ends.
    pub(crate) async fn finish(&self) {
        if let Some(home) = &self.home {
            self.flush_awaited_marks(home).await;
            self.flush(home).await;
        }
    }
}

impl Home {
    fn kept_secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), self.namespace())
    }

    /// What one of the Secrets holds; nothing where it is not there.
    async fn kept_secret(&self, slot: usize) -> Result<BTreeMap<String, ByteString>, crate::home::HomeError> {
        let name = format!("{NAME}{slot}");
        let look = failed(format!("read Secret {}/{name}", self.namespace()));
        Ok(self
            .kept_secrets()
            .get_opt(&name)
            .await
            .map_err(look)?
            .and_then(|secret| secret.data)
            .unwrap_or_default())
    }

    /// Changes values of one of the Secrets (`None`: they go), which is made where it is not there.
    async fn keep_in_secret(
        &self,
        slot: usize,
        changes: &BTreeMap<String, Option<&[u8]>>,
    ) -> Result<(), crate::home::HomeError> {
        let name = format!("{NAME}{slot}");
        let bytes = |value: &[u8]| ByteString(value.to_vec());
        let values = changes.iter().map(|(key, value)| (key.clone(), json!(value.map(bytes))));
        let patch = json!({ "data": values.collect::<serde_json::Map<_, _>>() });
        let patched = self.kept_secrets().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        match patched {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            patched => {
                return patched
                    .map(drop)
                    .map_err(failed(format!("write Secret {}/{name}", self.namespace())));
            }
        }
        let data: BTreeMap<String, ByteString> =
            changes.iter().filter_map(|(key, value)| Some((key.clone(), bytes((*value)?)))).collect();
        if data.is_empty() {
            return Ok(());
        }
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let secret = Secret { metadata, data: Some(data), type_: Some(TYPE.to_owned()), ..Secret::default() };
        let created = self.kept_secrets().create(&PostParams::default(), &secret).await;
        created.map(drop).map_err(failed(format!("create Secret {}/{name}", self.namespace())))
    }
}

/// Tells who waits whether what was kept is taken back.
fn answer(waiting: Vec<Waiting>, failed: Option<&str>) {
    for tell in waiting {
        let told = failed.map_or(Ok(()), |why| {
            Err(format!(
                "the earlier build that is kept in the cluster could not be removed, so nothing was applied: {why}"
            ))
        });
        // Who does not wait any more does not hear it.
        let _ = tell.send(told);
    }
}

#[cfg(test)]
mod tests {
    use roadstead_model::{Attempt, Generation};
    use uuid::Uuid;

    use super::*;

    fn key(attempt: i64) -> DispatchKey {
        DispatchKey {
            epoch: HubEpoch(1),
            applier: ApplierUid(Uuid::nil()),
            generation: Generation(1),
            attempt: Attempt(attempt),
            digest: Some(Digest::of(&attempt.to_le_bytes())),
        }
    }

    /// One that was read, in a cluster that is never asked.
    fn keep() -> Keep {
        let uri = "http://127.0.0.1:1".parse().expect("a URI");
        let _provider = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = kube::Client::try_from(kube::Config::new(uri)).expect("a client");
        let keep = Keep::new(Home::new(client, "roadstead-system".to_owned()), &HashKey::random());
        keep.is_read.send_replace(true);
        keep
    }

    fn store(keep: &Keep, attempt: i64) {
        let key = key(attempt);
        let spec = serde_json::from_value(json!({
            "kind": "Kustomization", "namespace": "team", "name": "web", "timeoutMillis": 1, "groups": [], "steps": [],
        }));
        let spec = spec.expect("a spec");
        let content = Content::Corrected { builds: Vec::new(), values: Values::default() };
        let digest = content.digest(&key, &[], &[], true);
        let record = Record {
            key: key.clone(),
            spec,
            inventory: Vec::new(),
            is_well: true,
            inputs: Vec::new(),
            content,
        };
        assert!(keep.store(&key, digest, || Some(record)));
    }

    #[tokio::test]
    async fn a_hub_may_say_what_rests_before_anything_was_read() {
        let (applier, other) = (ApplierUid(Uuid::nil()), ApplierUid(Uuid::from_u128(1)));
        let keep = keep();
        keep.forget(applier);
        assert!(keep.forgets(applier) && !keep.forgets(other));
        keep.is_read.send_replace(false);
        keep.forget_all();
        assert!(keep.forgets(other));
        // What is dispatched is kept again.
        keep.is_read.send_replace(true);
        assert_eq!(keep.withdraw(&key(1)).await, Ok(()));
        assert!(!keep.forgets(applier) && keep.forgets(other));
    }

    #[tokio::test]
    async fn what_a_dispatch_leaves_is_kept_only_while_none_has_begun_after_it() {
        let keep = keep();
        assert_eq!(keep.withdraw(&key(1)).await, Ok(()));
        // The next one writes before what this one leaves is kept.
        assert_eq!(keep.withdraw(&key(2)).await, Ok(()));
        store(&keep, 1);
        assert!(!keep.state().slots.has(ApplierUid(Uuid::nil())));
        store(&keep, 2);
        assert!(keep.state().slots.has(ApplierUid(Uuid::nil())));
        // The same dispatch again takes nothing back.
        assert_eq!(keep.withdraw(&key(2)).await, Ok(()));
        assert!(keep.state().slots.has(ApplierUid(Uuid::nil())));
        // What rests is not kept, also where it comes late.
        keep.forget(ApplierUid(Uuid::nil()));
        store(&keep, 2);
        assert!(!keep.state().slots.has(ApplierUid(Uuid::nil())));
        assert!(keep.state().is_leaving(ApplierUid(Uuid::nil())));
    }
}
