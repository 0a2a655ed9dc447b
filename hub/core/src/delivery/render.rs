//! From an applier to its build, round by round: what a render asks for besides its sources is brought to it, objects of the hub at
//! once, objects of the cluster by an attempt that reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roadstead_api::{KindId, Reference};
use roadstead_hub_plan::{AttemptState, Attempted};
use roadstead_hub_store::{CachedBuild, Stored};
use roadstead_model::{
    ApplierUid, AttemptKind, ClusterUid, DEFAULT_NAMESPACE, ObjectRef, Offline, ReadObject, Reason,
};
use serde_json::Value;

use crate::HubError;
use crate::delivery::applier::{Given, MAX_NEEDS, MAX_ROUNDS, Need};
use crate::delivery::build::{BuildOutcome, For, Order};
use crate::delivery::remotes::{CHECK_TIME, Remote};
use crate::delivery::seen::SeenApplier;
use crate::delivery::{Delivery, placing};
use crate::remotes;

/// Bytes of all objects of the hub that one render is given, as JSON. As many renders as passes are made at once may hold so much.
const MAX_GIVEN_BYTES: usize = 1 << 20;
/// The identity of an object that is not there.
const ABSENT: &str = "";

/// What came of a render.
pub(super) enum Rendering {
    /// It is stored.
    Built(CachedBuild),
    /// Others are before it: it is to be tried again after this.
    Later(Duration),
    /// A quota lets no more builds run now: after how long it is to be tried again, and why it waits.
    Waits(Duration, String),
    /// Why there is nothing to apply.
    Failed(Reason, String),
    /// Objects of the cluster are to be read first.
    Reads(Vec<ObjectRef>),
}

/// A render, and which objects of the hub it goes by: their keys, and which one each was. And the hub's master keys that opened its inputs,
/// by kind and name.
pub(super) struct Rendered {
    pub(super) rendering: Rendering,
    pub(super) by: BTreeMap<String, String>,
    pub(super) decrypted_with: BTreeSet<String>,
}

impl Delivery {
    /// Renders what is to be applied on `cluster`.
    pub(super) async fn render(&self, seen: &SeenApplier, cluster: ClusterUid) -> Result<Rendered, HubError> {
        let (mut by, mut decrypted_with) = (BTreeMap::new(), BTreeSet::new());
        let rendering = self.rendering(seen, cluster, &mut by, &mut decrypted_with).await?;
        Ok(Rendered { rendering, by, decrypted_with })
    }

    async fn rendering(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        by: &mut BTreeMap<String, String>,
        decrypted_with: &mut BTreeSet<String>,
    ) -> Result<Rendering, HubError> {
        let stored = &seen.stored;
        let mut order = Order {
            kind: stored.kind,
            recipe: seen.kind.recipe(stored)?,
            artifacts: seen.artifacts.clone(),
            stays: self.stays(seen, cluster).await?,
            given: Vec::new(),
            salt: None,
        };
        let (mut facts, mut turn) = (None, None);
        let mut given_bytes = 0;
        let failed = |message: String| Rendering::Failed(Reason::BuildFailed, message);
        for _ in 0..MAX_ROUNDS {
            order.salt = self.salt(&order)?;
            let whom = For { applier: stored.uid, namespace: &stored.namespace, asked: seen.is_asked_for() };
            let outcome = self.builds.build(whom, &order, &mut turn).await?;
            let needs = match outcome {
                BuildOutcome::Built(build) => return Ok(Rendering::Built(build)),
                BuildOutcome::Busy(later) => return Ok(Rendering::Later(later)),
                BuildOutcome::Waits(later, why) => {
                    return Ok(Rendering::Waits(later, why));
                }
                BuildOutcome::Failed(why) => return Ok(failed(why)),
                // As Flux has it: the build was not begun.
                BuildOutcome::NotInSource(why) => {
                    return Ok(Rendering::Failed(Reason::ArtifactFailed, why));
                }
                BuildOutcome::Needs(needs) => needs,
            };
            if order.given.len() + needs.len() > MAX_NEEDS
                || needs.iter().any(|need| order.given.iter().any(|given| given.need == *need))
            {
                let why = format!("its render asks for the same again, or for more than {MAX_NEEDS} objects");
                return Ok(failed(why));
            }
            let (mut unread, mut is_pending) = (Vec::new(), false);
            for need in needs {
                match &need {
                    Need::Object { kind, name } => match self.object_of_hub(seen, *kind, name).await? {
                        Ok(given) => {
                            let namespace = stored.namespace.clone();
                            let key = Reference { kind: *kind, namespace, name: name.clone() }.key();
                            by.insert(key, given.identity.clone());
                            given_bytes += given.found.as_ref().map_or(0, |found| found.to_string().len());
                            if given_bytes > MAX_GIVEN_BYTES {
                                let why = format!(
                                    "its render needs more than {MAX_GIVEN_BYTES} bytes of ConfigMaps and Secrets of the hub"
                                );
                                return Ok(failed(why));
                            }
                            order.given.push(given);
                        }
                        Err(why) => {
                            return Ok(Rendering::Failed(Reason::AccessDenied, why));
                        }
                    },
                    Need::Keys(inputs) => {
                        match self.input_keys(seen, cluster, inputs, by, decrypted_with).await? {
                            Ok(given) => order.given.push(given),
                            Err((reason, why)) => {
                                return Ok(Rendering::Failed(reason, why));
                            }
                        }
                    }
                    Need::Remote { url } => match self.remote(seen, url, &order.given, by).await? {
                        Remote::Given(given) => order.given.push(given),
                        Remote::Failed(why) => return Ok(failed(why)),
                        // The others are checked meanwhile.
                        Remote::Pending => is_pending = true,
                    },
                    Need::Read(object) => {
                        if facts.is_none() {
                            facts = Some(self.facts(seen, cluster).await?);
                        }
                        let read = facts.iter().flatten().find(|fact| fact.object == *object);
                        match read {
                            Some(fact) => order.given.push(given_of(need.clone(), fact)?),
                            None => unread.push(object.clone()),
                        }
                    }
                }
            }
            if is_pending {
                return Ok(Rendering::Later(CHECK_TIME));
            }
            if !unread.is_empty() {
                // With those of the rounds before: what is rendered by is of one moment.
                let before = order.given.iter().filter_map(|given| match &given.need {
                    Need::Read(object) => Some(object.clone()),
                    Need::Object { .. } | Need::Keys(_) | Need::Remote { .. } => None,
                });
                let reads = before.chain(unread).collect();
                return Ok(Rendering::Reads(reads));
            }
        }
        let why = format!("its render is not done after {MAX_ROUNDS} rounds");
        Ok(failed(why))
    }

    /// Renders once more what is dispatched, for a sealed build whose bytes are not at hand.
    pub(super) async fn render_again(
        &self,
        applier_uid: ApplierUid,
        cluster: ClusterUid,
    ) -> Result<(), HubError> {
        let Some(seen) = self.see(applier_uid.into()).await? else { return Ok(()) };
        if let Rendering::Failed(_, why) = self.render(&seen, cluster).await?.rendering {
            tracing::info!(kustomization = %seen.stored, why, "could not render a sealed build again");
        }
        Ok(())
    }

    /// What the digests of a sealed render depend on besides; none where it is not sealed. It is the same on each replica, and nobody
    /// without the hub's key can make it.
    fn salt(&self, order: &Order) -> Result<Option<String>, HubError> {
        if !order.given.iter().any(Given::seals) {
            return Ok(None);
        }
        let key = order
            .key()
            .map_err(|error| HubError::Internal(format!("a render job cannot be serialized: {error}")))?;
        Ok(Some(self.store.salt(&key)))
    }

    /// Objects of kinds that go to the hub, and that it owns on the cluster: those stay there.
    async fn stays(&self, seen: &SeenApplier, cluster: ClusterUid) -> Result<BTreeSet<String>, HubError> {
        let owned = self.store.inventory_of_children(seen.situation.uid, cluster).await?;
        let default = seen.standing.default_namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        Ok(owned.iter().flat_map(|object| placing::inventory_keys(object, default)).collect())
    }

    /// A ConfigMap or Secret of the hub, in the namespace of the applier; or why that may not have it.
    async fn object_of_hub(
        &self,
        seen: &SeenApplier,
        kind: KindId,
        name: &str,
    ) -> Result<Result<Given, String>, HubError> {
        let namespace = &seen.stored.namespace;
        if !matches!(kind, KindId::ConfigMap | KindId::Secret) {
            return Ok(Err(format!(
                "its render asks for {kind} '{namespace}/{name}', which is not to be had"
            )));
        }
        let need = Need::Object { kind, name: name.to_owned() };
        if let Err(why) = passed_on(seen, kind, name) {
            return Ok(Err(why));
        }
        let found = self.store.get(kind, namespace, name).await?;
        let identity = found.as_ref().map_or_else(|| ABSENT.to_owned(), identity);
        Ok(Ok(Given { need, found: found.map(whole), identity }))
    }

    /// What the newest attempt has read, where it was made for what is wanted now.
    async fn facts(&self, seen: &SeenApplier, cluster: ClusterUid) -> Result<Vec<ReadObject>, HubError> {
        let Some(Attempted { kind: AttemptKind::Read, cluster: Some(read_on), state, .. }) =
            &seen.situation.last
        else {
            return Ok(Vec::new());
        };
        let AttemptState::Finished { succeeded: true, .. } = state else { return Ok(Vec::new()) };
        if *read_on != cluster || !seen.situation.is_last_current(cluster) {
            return Ok(Vec::new());
        }
        Ok(self.store.facts(seen.situation.uid).await?)
    }

    /// Whether one of these objects of the hub is another one now.
    pub(super) async fn is_outdated(&self, by: &BTreeMap<String, String>) -> Result<bool, HubError> {
        for (key, was) in by.iter().filter(|(key, _)| *key != OFFLINE && !remotes::is_name(key)) {
            let Some(Reference { kind, namespace, name }) = Reference::from_key(key) else { return Ok(true) };
            let found = self.store.get(kind, &namespace, &name).await?;
            if found.as_ref().map_or_else(|| ABSENT.to_owned(), identity) != *was {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What stands among what an applier was rendered by for what its cluster's agent does while the hub is away.
const OFFLINE: &str = "offline";

/// Whether that is something else now.
pub(super) fn is_other_offline(by: &BTreeMap<String, String>, offline: Offline) -> bool {
    by.get(OFFLINE) != offline_text(offline).as_ref()
}

/// Notes it.
pub(super) fn note_offline(by: &mut BTreeMap<String, String>, offline: Offline) {
    by.extend(offline_text(offline).map(|text| (OFFLINE.to_owned(), text)));
}

/// None where nothing is said.
fn offline_text(offline: Offline) -> Option<String> {
    if offline == Offline::default() {
        return None;
    }
    // Words and numbers have a JSON form.
    serde_json::to_string(&offline).ok()
}

/// Whether an applier may use a ConfigMap or Secret of its namespace on the hub: a child may use what is passed on to it. The error is
/// for its condition.
pub(super) fn passed_on(seen: &SeenApplier, kind: KindId, name: &str) -> Result<(), String> {
    let Ok(rights) = &seen.standing.rights else { return Ok(()) };
    if !seen.standing.is_child || rights.may_use_secret(name, &[]) {
        return Ok(());
    }
    let (of, root) = &rights.root;
    Err(format!(
        "{kind} '{}/{name}' is not passed on to it: add it to spec.delegation.secrets of {} {of}/{root}",
        seen.stored.namespace, seen.stored.kind
    ))
}

/// Which one an object is, and in which version.
pub(super) fn identity(stored: &Stored) -> String {
    format!("{}@{}", stored.uid, stored.resource_version)
}

/// An object of the hub with what is secret of it.
fn whole(stored: Stored) -> Value {
    let mut object = stored.object;
    if let Some(secret) = stored.secret {
        object["data"] = secret.expose_all().into_iter().collect();
    }
    object
}

fn given_of(need: Need, fact: &ReadObject) -> Result<Given, HubError> {
    let found: Option<Value> =
        fact.json.as_deref().map(serde_json::from_slice).transpose().map_err(|error| {
            HubError::Internal(format!("what was read of {} is not readable: {error}", fact.object))
        })?;
    let text = |pointer: &str| {
        found.as_ref().and_then(|object| object.pointer(pointer)).and_then(Value::as_str).unwrap_or_default()
    };
    let identity = match found {
        Some(_) => format!("{}@{}", text("/metadata/uid"), text("/metadata/resourceVersion")),
        None => ABSENT.to_owned(),
    };
    Ok(Given { need, found, identity })
}
