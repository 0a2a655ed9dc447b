//! The variables of what is dispatched (Flux's `postBuild`): which objects of the hub hold them, what of those goes with a dispatch,
//! and what is substituted here, in objects that go to the hub.
//!
//! A ConfigMap or Secret is looked up in the applier's namespace on the hub and, where that lacks it, by the agent in its cluster.
//! Values of the hub's are joined with a dispatch when it is sent, and are stored nowhere.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_api::kustomization::{LookedUp, SubstituteKind};
use roadstead_api::{Cluster, KindId, Lookup, Reference};
use roadstead_finish::{Error, Finished, Limits, Substitution, Variables};
use roadstead_hub_store::Stored;
use roadstead_model::{
    ClusterUid, DispatchSpec, FoundVariables, GivenVariables, Group, Reason, Substitute, VariablesFrom,
    VariablesKind,
};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::decryption::{ChildKeys, decrypt_children, is_by_account};
use crate::delivery::render::{identity, passed_on};
use crate::delivery::seen::SeenApplier;

/// Bytes of all variables of the hub that one dispatch has. They are in memory while a pass is made and while a dispatch is sent, so
/// once for each pass and for each session.
const MAX_GIVEN_BYTES: usize = 256 << 10;
/// What may come of an applier's objects that go to the hub. Two are finished at once (`Delivery::finishing`).
const CHILDREN: Limits = Limits { bytes: 16 << 20, memory: 32 << 20, work: 20_000_000 };

/// Why variables cannot be had, for the applier's condition.
pub(super) type Refused = (Reason, String);

/// Objects that go to the hub, decrypted and with their variables.
pub(super) struct FinishedChildren {
    pub(super) children: Vec<Value>,
    /// What was decrypted though its MAC does not fit.
    pub(super) unverified: Vec<String>,
    /// The master keys that it was decrypted with, by kind and name.
    pub(super) decrypted_with: BTreeSet<String>,
}

impl Delivery {
    /// Says of each group which of its variables the hub has, and gives those. Which objects were looked for goes to `by`: when one of
    /// them changes, or comes to be, the applier is reconciled again.
    pub(super) async fn settle_variables(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        groups: &mut [Group],
        by: &mut BTreeMap<String, String>,
    ) -> Result<Result<Vec<GivenVariables>, Refused>, HubError> {
        let asks = |group: &Group| group.substitute.as_ref().is_some_and(|one| !one.from.is_empty());
        let lookup = if groups.iter().any(asks) { self.lookup(cluster).await? } else { None };
        let (namespace, mut given) = (&seen.stored.namespace, Vec::new());
        for substitute in groups.iter_mut().filter_map(|group| group.substitute.as_mut()) {
            substitute.lenient = self.lenient_substitutions;
            let mut settled = Vec::with_capacity(substitute.from.len());
            for mut from in std::mem::take(&mut substitute.from) {
                if lookup != Some(Lookup::Cluster) {
                    let (kind, name) = (kind_of(from.kind), from.name.clone());
                    let found = self.store.get(kind, namespace, &name).await?;
                    let key = Reference { kind, namespace: namespace.clone(), name }.key();
                    by.insert(key, found.as_ref().map_or_else(String::new, identity));
                    if let Some(found) = found {
                        if let Err(why) = passed_on(seen, kind, &from.name) {
                            let why = format!("{why} (spec.postBuild.substituteFrom)");
                            return Ok(Err((Reason::AccessDenied, why)));
                        }
                        from.on_hub = Some(identity(&found));
                        let name = from.name.clone();
                        given.push(GivenVariables { kind: from.kind, name, values: values(&found) });
                    }
                }
                match (&from.on_hub, lookup) {
                    (None, Some(Lookup::Hub)) if from.optional => continue,
                    (None, Some(Lookup::Hub)) => {
                        let VariablesFrom { kind, name, .. } = from;
                        let why = format!(
                            "{kind} '{namespace}/{name}' of spec.postBuild.substituteFrom not found on the hub, and spec.lookup of Cluster '{}' is Hub",
                            seen.cluster()
                        );
                        return Ok(Err((Reason::BuildFailed, why)));
                    }
                    _ => settled.push(from),
                }
            }
            substitute.from = settled;
        }
        let bytes: usize = given.iter().map(size).sum();
        if bytes > MAX_GIVEN_BYTES {
            let why = format!(
                "the ConfigMaps and Secrets of spec.postBuild.substituteFrom have {bytes} bytes, more than {MAX_GIVEN_BYTES}"
            );
            return Ok(Err((Reason::BuildFailed, why)));
        }
        Ok(Ok(given))
    }

    /// Where the operator of a cluster wants things looked up.
    pub(super) async fn lookup(&self, cluster: ClusterUid) -> Result<Option<Lookup>, HubError> {
        let Some(cluster) = self.store.get_by_uid(cluster.into()).await? else { return Ok(None) };
        Ok(cluster.decode::<Cluster>()?.spec.lookup)
    }

    /// The variables of the hub that a dispatch names. One that is not there any more is left out: the agent says so.
    pub(super) async fn given_variables(&self, spec: &DispatchSpec) -> Result<Vec<GivenVariables>, HubError> {
        let named: BTreeSet<(VariablesKind, &str)> = spec
            .groups
            .iter()
            .filter_map(|group| group.substitute.as_ref())
            .flat_map(|substitute| &substitute.from)
            .filter(|from| from.on_hub.is_some())
            .map(|from| (from.kind, from.name.as_str()))
            .collect();
        let mut given = Vec::with_capacity(named.len());
        let mut bytes = 0;
        for (kind, name) in named {
            let Some(found) = self.store.get(kind_of(kind), &spec.applier.namespace, name).await? else {
                continue;
            };
            let one = GivenVariables { kind, name: name.to_owned(), values: values(&found) };
            bytes += size(&one);
            // If it has grown since, it is as if it were not there, and the next pass tells why.
            if bytes <= MAX_GIVEN_BYTES {
                given.push(one);
            }
        }
        Ok(given)
    }

    /// Decrypts objects that go to the hub, and substitutes variables in them, by what the hub has of keys and variables.
    pub(super) async fn finish_children(
        &self,
        seen: &SeenApplier,
        groups: &[Group],
        keys: ChildKeys,
        given: Vec<GivenVariables>,
        children: Vec<Value>,
    ) -> Result<Result<FinishedChildren, String>, HubError> {
        let substitute = groups.iter().find_map(|group| group.substitute.clone());
        if children.is_empty() {
            return Ok(Ok(FinishedChildren {
                children,
                unverified: Vec::new(),
                decrypted_with: BTreeSet::new(),
            }));
        }
        let namespace = seen.stored.namespace.clone();
        let Ok(_one_of_few) = self.finishing.acquire().await else {
            return Err(HubError::Internal("no more objects are finished: the hub is ending".to_owned()));
        };
        // It can take seconds, which those that serve requests do not have.
        let work = tokio::task::spawn_blocking(move || {
            let decrypted = decrypt_children(children, &keys)?;
            let (children, unverified) = (decrypted.children, decrypted.warnings);
            let children = match substitute {
                Some(substitute) => finished(&substitute, &given, children, &namespace)?,
                None => without_secrets(children)?,
            };
            Ok(FinishedChildren { children, unverified, decrypted_with: decrypted.decrypted_with })
        });
        work.await
            .map_err(|error| HubError::Internal(format!("what goes to the hub was not finished: {error}")))
    }
}

/// The objects with their variables substituted; or why they cannot be, for the applier's condition.
fn finished(
    substitute: &Substitute,
    given: &[GivenVariables],
    children: Vec<Finished>,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let mut variables = Variables::default();
    for one in given {
        for (name, value) in &one.values {
            variables.set(name, value, one.kind == VariablesKind::Secret);
        }
    }
    for (name, value) in &substitute.variables {
        variables.set(name, value, false);
    }
    let elsewhere: Vec<String> = substitute
        .from
        .iter()
        .filter(|from| from.on_hub.is_none())
        .map(|from| format!("{} '{}'", from.kind, from.name))
        .collect();
    let substitution = Substitution {
        variables: &variables,
        // With variables of the cluster's there are some, though they are not known here.
        always: substitute.always || !elsewhere.is_empty(),
        strict: !substitute.lenient,
        limits: CHILDREN,
    };
    match substitution.apply(children) {
        Ok(finished) => without_secrets(finished),
        Err(error @ Error::Undefined { .. }) if !elsewhere.is_empty() => Err(format!(
            "post build failed: {error}; variables of objects that go to the hub must be on the hub, which does not have {} in namespace '{namespace}'",
            elsewhere.join(", ")
        )),
        Err(error) => Err(format!("post build failed: {error}")),
    }
}

/// The objects; or why not, where a decrypted value, or that of a Secret, became part of an object of another kind: it would be stored, and shown, as it is.
fn without_secrets(finished: Vec<Finished>) -> Result<Vec<Value>, String> {
    let holds = |one: &&Finished| !one.secret.is_empty() && one.object["kind"] != "Secret";
    if let Some(one) = finished.iter().find(holds) {
        let text = |pointer: &str| one.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        return Err(format!(
            "post build failed: {}/{} goes to the hub, and the secret value at {} would be stored there in plain text: leave it unencrypted and take it from a ConfigMap, or have the object refer to a Secret",
            text("/kind"),
            text("/metadata/name"),
            one.secret[0]
        ));
    }
    Ok(finished.into_iter().map(|one| one.object.into_value()).collect())
}

/// Where what holds the variables of a dispatch was found: by the hub, or as its agent says.
pub(super) fn lookups(spec: &DispatchSpec, found: &[FoundVariables]) -> Vec<LookedUp> {
    let named = spec.groups.iter().filter_map(|group| group.substitute.as_ref());
    let looked_up = |from: &VariablesFrom| {
        let is_it = |one: &FoundVariables| (one.kind, &one.name) == (from.kind, &from.name);
        let location = match &from.on_hub {
            Some(_) => Some(Lookup::Hub),
            None => found.iter().any(is_it).then_some(Lookup::Cluster),
        };
        let kind = match from.kind {
            VariablesKind::ConfigMap => SubstituteKind::ConfigMap,
            VariablesKind::Secret => SubstituteKind::Secret,
        };
        LookedUp { kind, name: from.name.clone(), location }
    };
    let mut all: Vec<LookedUp> = named.flat_map(|substitute| &substitute.from).map(looked_up).collect();
    let of_secret =
        |decrypt: &&roadstead_model::Decrypt| !decrypt.on_hub.as_deref().is_some_and(is_by_account);
    let decrypts = spec.groups.iter().filter_map(|group| group.decrypt.as_ref()).filter(of_secret);
    let keys = decrypts.map(|decrypt| {
        let is_it = |one: &FoundVariables| one.kind == VariablesKind::Secret && one.name == decrypt.secret;
        let location = match &decrypt.on_hub {
            Some(_) => Some(Lookup::Hub),
            None => found.iter().any(is_it).then_some(Lookup::Cluster),
        };
        LookedUp { kind: SubstituteKind::Secret, name: decrypt.secret.clone(), location }
    });
    all.extend(keys);
    // Groups of one applier have the same ones.
    all.dedup();
    all
}

fn kind_of(kind: VariablesKind) -> KindId {
    match kind {
        VariablesKind::ConfigMap => KindId::ConfigMap,
        VariablesKind::Secret => KindId::Secret,
    }
}

fn size(given: &GivenVariables) -> usize {
    given.values.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// The variables that an object holds. Bytes that are not UTF-8 cannot be substituted.
fn values(stored: &Stored) -> BTreeMap<String, Zeroizing<String>> {
    if let Some(secret) = &stored.secret {
        let text = |value: String| String::from_utf8(BASE64.decode(value).ok()?).ok().map(Zeroizing::new);
        return secret
            .expose_all()
            .into_iter()
            .filter_map(|(key, value)| Some((key, text(value)?)))
            .collect();
    }
    let data = stored.object["data"].as_object();
    let texts = data
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned().into())));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_of_a_secret_becomes_part_of_secrets_only() {
        let mut variables = Variables::default();
        variables.set("token", "hush", true);
        variables.set("region", "eu", false);
        let object = |kind: &str, text: &str| json!({ "kind": kind, "metadata": { "name": "a" }, "spec": { "a": text } });
        let finish =
            |objects: Vec<Value>| without_secrets(Substitution::of(&variables).apply(objects).unwrap());
        let fine = vec![object("Provider", "${region}"), object("Secret", "${token}")];
        assert_eq!(finish(fine).unwrap(), [object("Provider", "eu"), object("Secret", "hush")]);
        let why = finish(vec![object("Provider", "https://${token}")]).unwrap_err();
        assert!(why.contains("Provider/a goes to the hub") && why.contains("/spec/a"), "{why}");
        assert!(!why.contains("hush"));
    }
}
