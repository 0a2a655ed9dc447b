//! Decryption (`spec.decryption`): by whose keys what is dispatched is decrypted, the data keys that go with a dispatch, and the
//! decryption of objects that go to the hub.
//!
//! The Secret with the master keys is looked up in the applier's namespace on the hub and, where that lacks it, by the agent in its
//! cluster. A master key of the hub's stays here: what an agent is sent are the data keys of its build's objects, joined with a
//! dispatch when it is sent and stored nowhere.

mod changed;
mod holder;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_api::{KindId, Lookup, Reference};
use roadstead_finish::{Finished, named};
use roadstead_hub_plan::Denial;
use roadstead_hub_store::BuiltGroup;
use roadstead_kms::{AskedOnce, Keys, KnownKeys, MOST_NAMED};
use roadstead_model::{ClusterUid, Decrypt, Digest, DispatchSpec, GivenKey, Group, Reason};
use roadstead_places::Place;
use roadstead_sops::{DataKey, DataKeys as _, MacPolicy, WrappedKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use zeroize::Zeroizing;

use self::holder::Holder;
pub(super) use self::holder::is_by_account;
pub(super) use self::services::KeyServices;
use self::services::UNWRAPPING;
use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::applier::{Given, GivenKeys, InputKey, Need};
use crate::delivery::render::{identity, passed_on};
use crate::delivery::results::{DispatchFailure, DispatchResult};
use crate::delivery::seen::SeenApplier;
use crate::delivery::variables::Refused;

/// Data keys of one build.
const MAX_KEYS: usize = 2_000;
/// Bytes of what they are wrapped as, as JSON. They are in memory for each pass that is made, and parsed for a few at once.
pub(super) const MAX_WRAPPED_BYTES: usize = 2 << 20;

/// Bytes of the name of a master key in a status.
const MAX_NAME_BYTES: usize = 512;

const NO_SECRET: &str = "spec.decryption.secretRef is not set, so there are no keys: have it name a Secret with *.agekey or *.asc entries";

/// How many Secrets are looked at for names that are nearly the one that was not found; how many are told; and how many characters
/// may differ, at least.
const MOST_NAMES: i64 = 500;
const MAX_NEAR: usize = 3;
const NEAR: usize = 2;

/// How an applier's objects are decrypted, as its spec says.
#[derive(Debug, Clone)]
pub(crate) struct Decryption {
    /// The Secret with the master keys; none where the spec names none.
    pub(crate) secret: Option<String>,
    /// The service account of the hub by whose identities key services are asked; none where the spec names none.
    pub(crate) account: Option<String>,
    /// The namespace of the cluster where it is looked up.
    pub(crate) namespace: String,
    /// Where alone it is looked up; none where it is the hub, and then the cluster.
    pub(crate) location: Option<Lookup>,
    /// Decrypt files whose MACs do not fit, too; none where the spec does not say.
    pub(crate) lenient: Option<bool>,
}

/// What the hub does where files have MACs that do not fit, and a Kustomization does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SopsMac {
    /// They are not decrypted, unless the Kustomization says so.
    #[default]
    Verify,
    /// They are decrypted.
    Warn,
    /// They are not decrypted, and a Kustomization that says otherwise is refused.
    Enforce,
}

/// An encrypted object of a build: what its data key is wrapped as. It is stored with the build.
#[derive(Debug, Serialize, Deserialize)]
struct Wrapped {
    /// For messages: one of the objects that have it.
    object: String,
    key: WrappedKey,
}

/// Where the master keys are.
enum MasterKeys {
    /// On the hub.
    Hub(Box<Holder>),
    /// Not on the hub; why that is so.
    Elsewhere(String),
}

/// What objects that go to the hub are decrypted with.
pub(super) enum ChildKeys {
    /// Nothing: the spec does not ask for it.
    None,
    /// The hub's own keys.
    Held { keys: Arc<Keys>, known: Arc<KnownKeys>, by: String, lenient: bool },
    /// The hub has none; why that is so.
    Elsewhere(String),
}

/// What is decrypted before it goes to the hub.
#[derive(Default)]
pub(super) struct DecryptedChildren {
    pub(super) children: Vec<Finished>,
    /// What has a MAC that does not fit.
    pub(super) warnings: Vec<String>,
    /// The master keys that opened it, by kind and name.
    pub(super) decrypted_with: BTreeSet<String>,
}

/// What came of unwrapping data keys.
#[derive(Default)]
struct UnwrappedAll {
    keys: Vec<GivenKey>,
    /// The master keys that opened them, by kind and name.
    opened_by: BTreeSet<String>,
    /// Why the first that did not open did not.
    failed: Option<String>,
}

/// The master keys that a dispatch was decrypted with, by the hub or as its agent says. For people: so many at most, and each cut where it is long.
pub(super) fn decrypted_with(spec: &DispatchSpec, result: &DispatchResult) -> Vec<String> {
    let all: BTreeSet<&str> =
        spec.decrypted_with.iter().chain(&result.decrypted_with).map(|name| shortened(name)).collect();
    all.into_iter().take(MOST_NAMED).map(str::to_owned).collect()
}

fn shortened(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or(name)
}

/// What of a group's objects is encrypted, as it is stored with the build; none where nothing is. What cannot be read of an object's
/// own words on it, the agent will say.
pub(super) fn wrapped_keys(objects: &[Value]) -> Result<Option<Vec<u8>>, String> {
    let (mut found, mut known, mut any) = (Vec::new(), BTreeSet::new(), false);
    for object in objects {
        match roadstead_finish::wrapped_keys(object) {
            Ok(keys) => {
                any |= !keys.is_empty();
                let new = keys.into_iter().filter(|key| known.insert(key.digest()));
                found.extend(new.map(|key| Wrapped { object: named(object), key }));
            }
            Err(_) => any = true,
        }
        if found.len() > MAX_KEYS {
            return Err(format!("the build's encrypted objects have more than {MAX_KEYS} data keys"));
        }
    }
    if !any {
        return Ok(None);
    }
    let encoded = serde_json::to_vec(&found).map_err(|error| error.to_string())?;
    if encoded.len() > MAX_WRAPPED_BYTES {
        return Err(format!(
            "the wrapped data keys of the build's encrypted objects have more than {MAX_WRAPPED_BYTES} bytes: encrypt to fewer recipients"
        ));
    }
    Ok(Some(encoded))
}

impl Delivery {
    /// Says of each group whose objects are encrypted by which keys it is decrypted. Keys of the hub are tried here, so that what they do
    /// not open is told before anything is sent. Which Secret was looked for goes to `by`: when it changes, or comes to be, the applier
    /// is reconciled again. Gives the names of the hub's keys that open something, too.
    pub(super) async fn settle_decryption(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        decryption: Option<&Decryption>,
        built: &[BuiltGroup],
        groups: &mut [Group],
        by: &mut BTreeMap<String, String>,
    ) -> Result<Result<(ChildKeys, BTreeSet<String>), Refused>, HubError> {
        let none_of_the_hub = |keys: ChildKeys| Ok(Ok((keys, BTreeSet::new())));
        let Some(decryption) = decryption else { return none_of_the_hub(ChildKeys::None) };
        let is_encrypted = |group: &Group| wrapped_of(built, group.objects).is_some();
        let any = groups.iter().any(is_encrypted);
        let failed = |why: String| Ok(Err((Reason::BuildFailed, why)));
        let lenient = match self.is_lenient(decryption) {
            Ok(lenient) => lenient,
            Err(why) => return failed(why),
        };
        let Some(shown) = decryption.shown() else {
            return if any {
                failed(NO_SECRET.to_owned())
            } else {
                none_of_the_hub(ChildKeys::Elsewhere(NO_SECRET.to_owned()))
            };
        };
        let found = match self.master_keys(seen, cluster, decryption, shown, by).await? {
            Ok(MasterKeys::Hub(found)) => found,
            Ok(MasterKeys::Elsewhere(why)) => {
                for group in groups.iter_mut().filter(|group| is_encrypted(group)) {
                    group.decrypt = Some(decryption.by(shown, None, lenient));
                }
                return none_of_the_hub(ChildKeys::Elsewhere(why));
            }
            Err(refused) => return Ok(Err(refused)),
        };
        let _place = self.place_to_unwrap(&found).await;
        let mut wrapped = Vec::new();
        for group in groups.iter_mut() {
            let Some(of_group) = wrapped_of(built, group.objects) else { continue };
            wrapped.extend(parsed(of_group)?);
            group.decrypt = Some(decryption.by(shown, Some(found.identity()), lenient));
        }
        let keys = match self.keys_of(&found) {
            Ok(keys) => Arc::new(keys),
            Err(why) => return failed(why),
        };
        let unwrapped = self.unwrap(&found, Arc::clone(&keys), wrapped).await?;
        if let Some(why) = unwrapped.failed {
            return failed(why);
        }
        let (known, by) = (Arc::clone(&self.key_services.known), found.identity());
        Ok(Ok((ChildKeys::Held { keys, known, by, lenient }, unwrapped.opened_by)))
    }

    /// The data keys of encrypted inputs of a build, which the hub has to have. Which Secret was looked for goes to `by`, and the names of
    /// the master keys that opened them to `decrypted_with`.
    pub(super) async fn input_keys(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        inputs: &[InputKey],
        by: &mut BTreeMap<String, String>,
        decrypted_with: &mut BTreeSet<String>,
    ) -> Result<Result<Given, Refused>, HubError> {
        let failed = |why: String| Ok(Err((Reason::BuildFailed, why)));
        let Some(first) = inputs.first() else { return failed("its render asks for no keys".to_owned()) };
        let lacks = |why: &str| {
            let InputKey { path, used_by, instead, .. } = first;
            failed(format!(
                "{path} is encrypted and has to be decrypted before the build, since {used_by} reads it, and the hub has no keys for it: {why}; {instead}"
            ))
        };
        let Some(decryption) = seen.kind.decryption(&seen.stored, &seen.standing.home)? else {
            return lacks("spec.decryption is not set");
        };
        let lenient = match self.is_lenient(&decryption) {
            Ok(lenient) => lenient,
            Err(why) => return failed(why),
        };
        let Some(shown) = decryption.shown() else { return lacks(NO_SECRET) };
        let found = match self.master_keys(seen, cluster, &decryption, shown, by).await? {
            Ok(MasterKeys::Hub(found)) => found,
            Ok(MasterKeys::Elsewhere(why)) => return lacks(&why),
            Err(refused) => return Ok(Err(refused)),
        };
        let keys = match self.keys_of(&found) {
            Ok(keys) => Arc::new(keys),
            Err(why) => return failed(why),
        };
        let _place = self.place_to_unwrap(&found).await;
        let wrapped =
            inputs.iter().map(|input| Wrapped { object: input.path.clone(), key: input.key.clone() });
        let unwrapped = self.unwrap(&found, keys, wrapped.collect()).await?;
        if let Some(why) = unwrapped.failed {
            return failed(why);
        }
        decrypted_with.extend(unwrapped.opened_by);
        let named = |given: GivenKey| (given.wrapped.to_string(), BASE64.encode(&*given.key));
        let given = GivenKeys { lenient, keys: unwrapped.keys.into_iter().map(named).collect() };
        let given = serde_json::to_value(&given)
            .map_err(|error| HubError::Internal(format!("data keys cannot be serialized: {error}")))?;
        // Whether files whose MACs do not fit are decrypted decides what comes of it, too.
        let identity = format!("{}{}", found.identity(), if lenient { "/lenient" } else { "" });
        Ok(Ok(Given { need: Need::Keys(inputs.to_vec()), found: Some(given), identity }))
    }

    /// What of it the operator has to allow first.
    pub(super) fn gated(&self, decryption: Option<Decryption>) -> Option<Denial> {
        let message = "to use spec.decryption.serviceAccountName for decryption authentication please enable the \
                       ObjectLevelWorkloadIdentity feature gate in the controller: start the hub with --object-level-workload-identity";
        let is_gated = decryption?.account.is_some() && !self.account_identities;
        is_gated.then(|| Denial { reason: Reason::FeatureGateDisabled, message: message.to_owned() })
    }

    /// Whether files whose MACs do not fit are decrypted; or why that cannot be.
    fn is_lenient(&self, decryption: &Decryption) -> Result<bool, String> {
        match (decryption.lenient, self.sops_mac) {
            (Some(true), SopsMac::Enforce) => Err(
                "spec.decryption.mac Warn is not allowed by this hub (--sops-mac=enforce): set it to Verify"
                    .to_owned(),
            ),
            (Some(lenient), _) => Ok(lenient),
            (None, mac) => Ok(mac == SopsMac::Warn),
        }
    }

    /// The Secret with the master keys, where it is the hub's. That it was looked for goes to `by`.
    async fn master_keys(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        decryption: &Decryption,
        secret: &str,
        by: &mut BTreeMap<String, String>,
    ) -> Result<Result<MasterKeys, Refused>, HubError> {
        let failed = |why: String| Ok(Err((Reason::BuildFailed, why)));
        let place = match self.keys_location(seen, cluster, decryption).await? {
            Ok(Some(Lookup::Cluster)) => {
                return Ok(Ok(MasterKeys::Elsewhere("its keys stay in the cluster".to_owned())));
            }
            Ok(place) => place,
            Err(why) => return failed(why),
        };
        if let Some(account) = &decryption.account {
            let held = self.keys_of_account(seen, place, decryption.secret.as_deref(), account, by).await?;
            return Ok(held.map(|held| MasterKeys::Hub(Box::new(held))));
        }
        let namespace = &seen.stored.namespace;
        let reference =
            Reference { kind: KindId::Secret, namespace: namespace.clone(), name: secret.to_owned() };
        let found = self.store.get(KindId::Secret, namespace, secret).await?;
        by.insert(reference.key(), found.as_ref().map_or_else(String::new, identity));
        let Some(found) = found else {
            let why = self.not_found(namespace, secret).await?;
            return if place == Some(Lookup::Hub) { failed(why) } else { Ok(Ok(MasterKeys::Elsewhere(why))) };
        };
        Ok(match passed_on(seen, KindId::Secret, secret) {
            Ok(()) => Ok(MasterKeys::Hub(Box::new(Holder::of_secret(found)))),
            Err(why) => Err((Reason::AccessDenied, format!("{why} (spec.decryption.secretRef)"))),
        })
    }

    /// Where alone keys are looked up, by the applier and by the operator of its cluster; none where it is the hub, and then the cluster.
    async fn keys_location(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        decryption: &Decryption,
    ) -> Result<Result<Option<Lookup>, String>, HubError> {
        let of_cluster = self.lookup(cluster).await?;
        Ok(match (decryption.location, of_cluster) {
            (Some(own), Some(of_cluster)) if own != of_cluster => Err(format!(
                "spec.decryption.location is {own:?}, and spec.lookup of Cluster '{}' is {of_cluster:?}",
                seen.cluster()
            )),
            (own, of_cluster) => Ok(own.or(of_cluster)),
        })
    }

    /// A failure whose cause is that the Secret is nowhere, with the names that are nearly its own; none where it is another failure.
    pub(super) async fn with_near_names(
        &self,
        result: &DispatchResult,
        spec: &DispatchSpec,
    ) -> Result<Option<DispatchFailure>, HubError> {
        let Some(failure) = &result.failure else { return Ok(None) };
        let of_cluster = |group: &Group| group.decrypt.clone().filter(|decrypt| decrypt.on_hub.is_none());
        let Some(Decrypt { secret, .. }) = spec.groups.iter().find_map(of_cluster) else { return Ok(None) };
        if !failure.message.contains(&format!("/{secret}': not found")) {
            return Ok(None);
        }
        let near = self.near(&spec.applier.namespace, &secret).await?;
        let message = format!("{}{near}", failure.message);
        Ok((!near.is_empty()).then(|| DispatchFailure { message, ..failure.clone() }))
    }

    /// Says that the hub has no such Secret, and which ones it has of nearly that name.
    async fn not_found(&self, namespace: &str, name: &str) -> Result<String, HubError> {
        let near = self.near(namespace, name).await?;
        Ok(format!("Secret '{namespace}/{name}' of spec.decryption.secretRef not found on the hub{near}"))
    }

    /// Which Secrets a namespace has of nearly this name, to be put behind a message; empty where it has none.
    async fn near(&self, namespace: &str, name: &str) -> Result<String, HubError> {
        let mut near = self.store.names(KindId::Secret, namespace, MOST_NAMES).await?;
        near.retain(|other| strsim::damerau_levenshtein(other, name) <= NEAR.max(name.len() / 3));
        near.truncate(MAX_NEAR);
        if near.is_empty() {
            return Ok(String::new());
        }
        let quoted: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
        Ok(format!(" (namespace '{namespace}' of the hub has {})", quoted.join(", ")))
    }

    /// The data keys of the objects of a dispatch that are decrypted by keys of the hub. One that cannot be had any more is left out: the
    /// agent says so, and the next pass tells why.
    pub(super) async fn given_keys(&self, spec: &DispatchSpec) -> Result<Vec<GivenKey>, HubError> {
        let mut given: BTreeMap<[u8; 32], GivenKey> = BTreeMap::new();
        for group in &spec.groups {
            let Some(Decrypt { secret, on_hub: Some(on_hub), .. }) = &group.decrypt else { continue };
            let found = self.holder(&spec.applier.namespace, secret, on_hub).await?;
            let Some(found) = found.filter(|found| found.identity() == *on_hub) else { continue };
            let _place = self.place_to_unwrap(&found).await;
            let Some(wrapped) = self.store.wrapped_keys(group.objects).await? else { continue };
            let Ok(keys) = self.keys_of(&found) else { continue };
            let unwrapped = self.unwrap(&found, Arc::new(keys), parsed(&wrapped)?).await?;
            given.extend(unwrapped.keys.into_iter().map(|given| (*given.wrapped.as_bytes(), given)));
        }
        Ok(given.into_values().collect())
    }

    /// One of few places to unwrap data keys in.
    async fn place_to_unwrap(&self, holder: &Holder) -> Place {
        let namespace = holder.namespace();
        self.key_services.places.take(namespace, namespace).await
    }

    /// Unwraps data keys, up to the first that does not open, and says why it does not. What was unwrapped by the same Secret before is not
    /// asked for again. To be called by whoever holds a place for it.
    async fn unwrap(
        &self,
        holder: &Holder,
        keys: Arc<Keys>,
        wrapped: Vec<Wrapped>,
    ) -> Result<UnwrappedAll, HubError> {
        let (by, known) = (holder.identity(), Arc::clone(&self.key_services.known));
        let until = Instant::now() + UNWRAPPING;
        let work = tokio::task::spawn_blocking(move || {
            let keys = AskedOnce::new(&keys, &known, &by, until);
            let mut unwrapped = UnwrappedAll::default();
            for Wrapped { object, key } in wrapped {
                match keys.data_key(&key) {
                    Ok(found) => unwrapped.keys.push(given_key(Digest::from_bytes(key.digest()), &found)),
                    Err(error) => {
                        unwrapped.failed = Some(format!("decryption failed for '{object}': {error}"));
                        break;
                    }
                }
            }
            UnwrappedAll { opened_by: keys.opened_by(), ..unwrapped }
        });
        work.await.map_err(|error| HubError::Internal(format!("the unwrapping of data keys failed: {error}")))
    }
}

impl Decryption {
    /// What is named in messages about where the keys are, and in dispatches: the Secret, or the account where there is none.
    fn shown(&self) -> Option<&str> {
        self.secret.as_deref().or(self.account.as_deref())
    }

    fn by(&self, secret: &str, on_hub: Option<String>, lenient: bool) -> Decrypt {
        Decrypt { namespace: self.namespace.clone(), secret: secret.to_owned(), on_hub, lenient }
    }
}

/// Decrypts objects that go to the hub. The error is for the applier's condition.
pub(super) fn decrypt_children(children: Vec<Value>, keys: &ChildKeys) -> Result<DecryptedChildren, String> {
    let as_they_are = |children| DecryptedChildren { children, ..DecryptedChildren::default() };
    let is_encrypted = |object: &Value| {
        object.get("sops").is_some()
            || roadstead_finish::wrapped_keys(object).map_or(true, |keys| !keys.is_empty())
    };
    match keys {
        // Nothing of the hub can use it; what is wrong with it, the cluster says.
        ChildKeys::None => {
            let plain = children.into_iter().filter(|object| !is_encrypted(object));
            Ok(as_they_are(plain.map(Finished::from).collect()))
        }
        ChildKeys::Held { keys, known, by, lenient } => {
            let mac = if *lenient { MacPolicy::Warn } else { MacPolicy::Verify };
            let until = Instant::now() + UNWRAPPING;
            let keys = AskedOnce::new(keys, known, by, until);
            let opened = roadstead_finish::decrypt(children, mac, &keys);
            let (children, warnings) = opened.map_err(|error| error.to_string())?;
            let warnings = warnings.iter().map(ToString::to_string).collect();
            Ok(DecryptedChildren { children, warnings, decrypted_with: keys.opened_by() })
        }
        ChildKeys::Elsewhere(why) => match children.iter().find(|object| is_encrypted(object)) {
            Some(object) => Err(format!(
                "{} is encrypted and goes to the hub, where what this build deploys there refers to it, and the hub has no keys for it: {why}",
                named(object)
            )),
            None => Ok(as_they_are(children.into_iter().map(Finished::from).collect())),
        },
    }
}

fn given_key(wrapped: Digest, key: &DataKey) -> GivenKey {
    GivenKey { wrapped, key: Zeroizing::new(key.expose().to_vec()) }
}

fn wrapped_of(built: &[BuiltGroup], objects: Digest) -> Option<&[u8]> {
    built.iter().find(|group| group.objects == objects)?.wrapped_keys.as_deref()
}

fn parsed(wrapped: &[u8]) -> Result<Vec<Wrapped>, HubError> {
    serde_json::from_slice(wrapped).map_err(|error| {
        HubError::Internal(format!("the wrapped keys of a stored build are not readable: {error}"))
    })
}
