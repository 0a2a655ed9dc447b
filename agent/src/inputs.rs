//! ConfigMaps and Secrets of the cluster that dispatches read: Secrets with keys for decryption, and sources of variables with the label
//! [`WATCH`], as in Flux. They are watched, so that the hub hears when one of them has changed, and reconciles again what it is for. A Secret
//! with keys is watched where it was not found, too.
//!
//! Each is watched by its name and as the account that read it; of its content nothing is asked for. Where that account may not watch it,
//! or there are too many of them, the hub's next attempt reads it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roadstead_apply::{Scope, Sight};
use roadstead_model::{ApplierUid, DispatchKey, ObjectRef, ServiceAccount};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::outbox::Outbox;
use crate::tend::Watch;
use crate::watching::{FORBIDDEN_FOR, OpenWatches};

/// The label by which a ConfigMap or Secret asks for a reconciliation of what refers to it when it changes; its value is `Enabled`.
pub(crate) const WATCH: &str = "reconcile.fluxcd.io/watch";

/// How many are watched at once.
const MAX_WATCHES: usize = 64;

/// The resource version in which it was read or seen; none: it was not there.
type Version = Option<u64>;

/// A ConfigMap or Secret that a dispatch read, as it was then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub(crate) struct Input {
    object: ObjectRef,
    watch: Watch,
    version: Version,
}

/// The same as it is kept in the cluster: an agent that is started again watches it from there.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    object: ObjectRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<ServiceAccount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Version,
}

impl From<Kept> for Input {
    fn from(Kept { object, account, version }: Kept) -> Self {
        let plural = if object.kind == "ConfigMap" { "configmaps" } else { "secrets" };
        let scope = Arc::new(Scope::named(&object, plural).only(&object.name));
        Self { object, watch: Watch { account, scope }, version }
    }
}

impl From<Input> for Kept {
    fn from(Input { object, watch, version }: Input) -> Self {
        Self { object, account: watch.account, version }
    }
}

impl Input {
    /// The ConfigMap or Secret that this account read; `version` is its resource version, as the apiserver gives it.
    pub(crate) fn read(object: &ObjectRef, account: Option<&ServiceAccount>, version: Option<&str>) -> Self {
        let version = version.map(|version| version.parse().unwrap_or_default());
        Kept { object: object.clone(), account: account.cloned(), version }.into()
    }
}

/// The inputs of the newest dispatch of each applier.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    read: BTreeMap<ApplierUid, Read>,
    /// How each that is watched was seen last.
    seen: BTreeMap<Watch, Version>,
    forbidden: BTreeMap<Watch, Instant>,
}

/// What the newest dispatch of an applier read.
#[derive(Debug)]
struct Read {
    key: DispatchKey,
    inputs: Vec<Input>,
    /// Its hub was told that one of them is another one now: once for each dispatch.
    is_told: bool,
}

impl Inputs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dispatch has ended that read these. Says whether one of them was seen to change since.
    pub(crate) fn ended(&self, key: &DispatchKey, inputs: &[Input]) -> bool {
        let mut state = self.state();
        // A watch may lag behind what was read: only what is newer counts.
        let is_newer = |one: &Input| state.seen.get(&one.watch).is_some_and(|seen| *seen > one.version);
        let is_told = inputs.iter().any(is_newer);
        let before = if inputs.is_empty() {
            state.read.remove(&key.applier)
        } else {
            state.read.insert(key.applier, Read { key: key.clone(), inputs: inputs.to_vec(), is_told })
        };
        drop(state);
        if before.map(|before| before.inputs).unwrap_or_default() != inputs {
            self.changed.notify_one();
        }
        is_told
    }

    /// What this dispatch read, where it is the newest of its applier.
    pub(crate) fn of(&self, key: &DispatchKey) -> Vec<Input> {
        let state = self.state();
        let read = state.read.get(&key.applier).filter(|read| read.key.fence() == key.fence());
        read.map(|read| read.inputs.clone()).unwrap_or_default()
    }

    /// This applier's inputs are not watched any more.
    pub(crate) fn forget(&self, applier: ApplierUid) {
        if self.state().read.remove(&applier).is_some() {
            self.changed.notify_one();
        }
    }

    /// The same of all.
    pub(crate) fn forget_all(&self) {
        self.state().read.clear();
        self.changed.notify_one();
    }

    /// An input has this version now. Gives the dispatches that read another version of it, as far as the hub was not told yet.
    fn seen(&self, watch: &Watch, version: Version) -> Vec<DispatchKey> {
        let mut state = self.state();
        state.seen.insert(watch.clone(), version);
        let is_other = |one: &Input| {
            one.watch == *watch && (version > one.version || version.is_none() && one.version.is_some())
        };
        let mut changed = Vec::new();
        for read in state.read.values_mut().filter(|read| !read.is_told) {
            if read.inputs.iter().any(is_other) {
                read.is_told = true;
                changed.push(read.key.clone());
            }
        }
        changed
    }

    fn forbidden(&self, watch: &Watch, now: Instant) {
        let mut state = self.state();
        state.seen.remove(watch);
        state.forbidden.insert(watch.clone(), now + FORBIDDEN_FOR);
    }

    /// The inputs that are to be watched.
    fn wanted(&self, now: Instant) -> BTreeSet<Watch> {
        let mut state = self.state();
        let State { read, seen, forbidden } = &mut *state;
        let mut wanted: BTreeSet<Watch> =
            read.values().flat_map(|read| &read.inputs).map(|one| one.watch.clone()).collect();
        forbidden.retain(|watch, until| *until > now && wanted.contains(watch));
        wanted.retain(|watch| !forbidden.contains_key(watch));
        seen.retain(|watch, _| wanted.contains(watch));
        wanted
    }
}

/// Watches them for as long as it runs.
pub(crate) async fn keep<C: Cluster>(cluster: C, inputs: Arc<Inputs>, outbox: Arc<Outbox>) {
    let mut open = OpenWatches::default();
    loop {
        let wanted = inputs.wanted(Instant::now());
        let watching = |watch| one(cluster.clone(), Arc::clone(&inputs), Arc::clone(&outbox), watch);
        if open.set(wanted, MAX_WATCHES, watching) {
            tracing::warn!(
                "not all ConfigMaps and Secrets with keys or variables are watched: there would be more than {MAX_WATCHES} watches"
            );
        }
        open.rest(&inputs.changed).await;
    }
}

/// Watches one until that is not allowed.
async fn one<C: Cluster>(cluster: C, inputs: Arc<Inputs>, outbox: Arc<Outbox>, watch: Watch) {
    let cluster = cluster.acting_as(watch.account.as_ref());
    let mut tell = |sight: Sight| {
        let version = match sight {
            Sight::Listed(_, footprint) | Sight::Seen(_, footprint) => Some(footprint.version()),
            Sight::Gone(_) => None,
            Sight::Complete { all, .. } if all.is_empty() => None,
            Sight::Complete { .. } | Sight::Lost | Sight::Resumed => return,
        };
        for key in inputs.seen(&watch, version) {
            outbox.keys_changed(key);
        }
    };
    let why = cluster.watch_owned(&watch.scope, &mut tell).await;
    tracing::info!(
        scope = %watch.scope, account = watch.account_name(), why = why.as_str(),
        "a change of these keys or variables is not seen before the next reconciliation: they cannot be watched"
    );
    inputs.forbidden(&watch, Instant::now());
}

#[cfg(test)]
mod tests {
    use roadstead_model::{Attempt, Generation, HubEpoch};

    use super::*;

    fn key(applier: u128, attempt: i64) -> DispatchKey {
        DispatchKey {
            epoch: HubEpoch(1),
            applier: ApplierUid(uuid::Uuid::from_u128(applier)),
            generation: Generation(1),
            attempt: Attempt(attempt),
            digest: None,
        }
    }

    fn input(kind: &str, name: &str, version: Option<&str>) -> Input {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        };
        Input::read(&object, None, version)
    }

    fn secret(name: &str, version: Option<&str>) -> Input {
        input("Secret", name, version)
    }

    #[test]
    fn a_changed_secret_is_told_once_for_each_dispatch() {
        let inputs = Inputs::default();
        let watch = secret("keys", None).watch;
        assert!(!inputs.ended(&key(1, 1), &[secret("keys", Some("5"))]));
        assert!(!inputs.ended(&key(2, 1), &[secret("other", Some("5"))]));
        assert_eq!(inputs.wanted(Instant::now()).len(), 2);
        // As it was read; and what was before that, of which a watch tells late.
        assert!(inputs.seen(&watch, Some(5)).is_empty());
        assert!(inputs.seen(&watch, Some(4)).is_empty());
        assert_eq!(inputs.seen(&watch, Some(6)), [key(1, 1)]);
        assert!(inputs.seen(&watch, Some(7)).is_empty());
        // The next dispatch read it before its last change.
        assert!(inputs.ended(&key(1, 2), &[secret("keys", Some("6"))]));
        assert!(!inputs.ended(&key(1, 3), &[secret("keys", Some("7"))]));
        assert_eq!(inputs.seen(&watch, None), [key(1, 3)]);
        // One that is not there may come to be.
        assert!(!inputs.ended(&key(1, 4), &[secret("keys", None)]));
        assert!(inputs.seen(&watch, None).is_empty());
        assert_eq!(inputs.seen(&watch, Some(9)), [key(1, 4)]);
    }

    #[test]
    fn what_is_kept_of_them_is_watched_and_told_after_a_restart() {
        let (before, after) = (Inputs::default(), Inputs::default());
        let read =
            [secret("keys", Some("5")), secret("absent", None), input("ConfigMap", "settings", Some("7"))];
        before.ended(&key(1, 3), &read);
        assert!(before.of(&key(1, 2)).is_empty(), "of an attempt before that");
        let kept = serde_json::to_vec(&before.of(&key(1, 3))).expect("JSON");
        let kept: Vec<Input> = serde_json::from_slice(&kept).expect("inputs");
        assert_eq!(kept, read);
        after.ended(&key(1, 3), &kept);
        assert_eq!(after.wanted(Instant::now()), before.wanted(Instant::now()));
        assert!(after.seen(&read[0].watch, Some(5)).is_empty(), "as it was read");
        assert_eq!(after.seen(&read[2].watch, Some(8)), [key(1, 3)], "changed while no agent ran");
    }

    #[test]
    fn a_config_map_is_another_one_than_a_secret_of_its_name() {
        let [map, secret] = ["ConfigMap", "Secret"].map(|kind| input(kind, "settings", Some("5")));
        let inputs = Inputs::default();
        inputs.ended(&key(1, 1), &[map.clone(), secret.clone()]);
        assert_eq!(inputs.wanted(Instant::now()).len(), 2);
        assert!(map.watch.scope.to_string().contains("configmaps"), "{}", map.watch.scope);
        assert_eq!(inputs.seen(&map.watch, Some(6)), [key(1, 1)]);
    }

    #[test]
    fn what_is_not_read_any_more_is_not_watched() {
        let inputs = Inputs::default();
        let (now, watch) = (Instant::now(), secret("keys", None).watch);
        inputs.ended(&key(1, 1), &[secret("keys", Some("5"))]);
        inputs.forbidden(&watch, now);
        assert!(inputs.wanted(now).is_empty());
        assert_eq!(inputs.wanted(now + FORBIDDEN_FOR).len(), 1);
        inputs.ended(&key(1, 2), &[]);
        assert!(inputs.wanted(now + FORBIDDEN_FOR).is_empty());
        inputs.ended(&key(1, 3), &[secret("keys", Some("5"))]);
        inputs.forget(key(1, 1).applier);
        assert!(inputs.wanted(now).is_empty());
    }
}
