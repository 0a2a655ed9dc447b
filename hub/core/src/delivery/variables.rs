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
use roadstead_finish::{Error, Finished, Substitution, Variables};
use roadstead_hub_store::Stored;
use roadstead_model::{
    ClusterUid, DispatchSpec, FoundVariables, GivenVariables, Group, Reason, Substitute, VariablesFrom,
    VariablesKind,
};
use serde_json::Value;

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::reconcile::SeenApplier;
use crate::delivery::render::identity;

/// Bytes of all variables of the hub that one dispatch has. They are held while it is sent, once for each session that is sent one.
const MAX_GIVEN_BYTES: usize = 256 << 10;

/// Why variables cannot be had, for the applier's condition.
pub(super) type Refused = (Reason, String);

impl Delivery {
    /// Says of each group which of its variables the hub has, and notes those in `by`: when one of them changes, the applier is
    /// reconciled again.
    pub(super) async fn settle_variables(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        groups: &mut [Group],
        by: &mut BTreeMap<String, String>,
    ) -> Result<Result<(), Refused>, HubError> {
        let asks = |group: &Group| group.substitute.as_ref().is_some_and(|one| !one.from.is_empty());
        let lookup = if groups.iter().any(asks) { self.lookup(cluster).await? } else { None };
        let (namespace, mut bytes) = (&seen.stored.namespace, 0);
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
                        if let Err(why) = may_use(seen, &from) {
                            return Ok(Err((Reason::AccessDenied, why)));
                        }
                        bytes += size(&values(&found));
                        from.on_hub = Some(identity(&found));
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
        if bytes > MAX_GIVEN_BYTES {
            let why = format!(
                "the ConfigMaps and Secrets of spec.postBuild.substituteFrom have {bytes} bytes, more than {MAX_GIVEN_BYTES}"
            );
            return Ok(Err((Reason::BuildFailed, why)));
        }
        Ok(Ok(()))
    }

    /// Where the operator of a cluster wants things looked up.
    async fn lookup(&self, cluster: ClusterUid) -> Result<Option<Lookup>, HubError> {
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
            let values = values(&found);
            bytes += size(&values);
            // It has grown since: it is as if it were not there, and the next pass tells why.
            if bytes <= MAX_GIVEN_BYTES {
                given.push(GivenVariables { kind, name: name.to_owned(), values });
            }
        }
        Ok(given)
    }

    /// Substitutes variables in objects that go to the hub, by what the hub has of them.
    pub(super) async fn finish_children(
        &self,
        seen: &SeenApplier,
        groups: &[Group],
        children: Vec<Value>,
    ) -> Result<Result<Vec<Value>, String>, HubError> {
        let Some(substitute) = groups.iter().find_map(|group| group.substitute.as_ref()) else {
            return Ok(Ok(children));
        };
        let Substitute { always, lenient, namespace: _, variables: own, from } = substitute;
        let mut variables = Variables::default();
        let mut elsewhere = Vec::new();
        for from in from {
            let kind = kind_of(from.kind);
            match self.store.get(kind, &seen.stored.namespace, &from.name).await? {
                Some(found) if from.on_hub.is_some() => {
                    for (name, value) in values(&found) {
                        variables.set(name, &value, from.kind == VariablesKind::Secret);
                    }
                }
                _ => elsewhere.push(format!("{} '{}'", from.kind, from.name)),
            }
        }
        for (name, value) in own {
            variables.set(name, value, false);
        }
        let always = *always || !elsewhere.is_empty();
        let substitution = Substitution { always, strict: !lenient, ..Substitution::of(&variables) };
        Ok(match substitution.apply(children) {
            Ok(finished) => without_secrets(finished),
            Err(error @ Error::Undefined { .. }) if !elsewhere.is_empty() => Err(format!(
                "post build failed: {error}; objects that go to the hub are finished there, and the hub does not have {} in namespace '{}'",
                elsewhere.join(", "),
                seen.stored.namespace
            )),
            Err(error) => Err(format!("post build failed: {error}")),
        })
    }
}

/// The objects; or why not, where the value of a Secret became part of an object of another kind: it would be stored, and shown, as it is.
fn without_secrets(finished: Vec<Finished>) -> Result<Vec<Value>, String> {
    let holds = |one: &&Finished| !one.secret.is_empty() && one.object["kind"] != "Secret";
    if let Some(one) = finished.iter().find(holds) {
        let text = |pointer: &str| one.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        return Err(format!(
            "post build failed: {}/{} goes to the hub, where the value of a Secret at {} would be stored as plain text: take it from a ConfigMap, or have the object refer to a Secret",
            text("/kind"),
            text("/metadata/name"),
            one.secret[0]
        ));
    }
    Ok(finished.into_iter().map(|one| one.object).collect())
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
    // Groups of one applier have the same ones.
    all.dedup();
    all
}

/// Why an applier may not use an object of its namespace on the hub: a child may use what is passed on to it.
fn may_use(seen: &SeenApplier, from: &VariablesFrom) -> Result<(), String> {
    let Ok(rights) = &seen.standing.rights else { return Ok(()) };
    if !seen.standing.is_child || rights.may_use_secret(&from.name, &[]) {
        return Ok(());
    }
    let ((of, root), VariablesFrom { kind, name, .. }) = (&rights.root, from);
    Err(format!(
        "{kind} '{}/{name}' of spec.postBuild.substituteFrom is not passed on to it: add it to spec.delegation.secrets of {} {of}/{root}",
        seen.stored.namespace, seen.stored.kind
    ))
}

fn kind_of(kind: VariablesKind) -> KindId {
    match kind {
        VariablesKind::ConfigMap => KindId::ConfigMap,
        VariablesKind::Secret => KindId::Secret,
    }
}

fn size(values: &BTreeMap<String, String>) -> usize {
    values.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// The variables that an object holds. Bytes that are not UTF-8 cannot be substituted.
fn values(stored: &Stored) -> BTreeMap<String, String> {
    if let Some(secret) = &stored.secret {
        let text = |value: String| String::from_utf8(BASE64.decode(value).ok()?).ok();
        return secret
            .expose_all()
            .into_iter()
            .filter_map(|(key, value)| Some((key, text(value)?)))
            .collect();
    }
    let data = stored.object["data"].as_object();
    let texts =
        data.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
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
        let finish = |objects| without_secrets(Substitution::of(&variables).apply(objects).unwrap());
        let fine = vec![object("Provider", "${region}"), object("Secret", "${token}")];
        assert_eq!(finish(fine).unwrap(), [object("Provider", "eu"), object("Secret", "hush")]);
        let why = finish(vec![object("Provider", "https://${token}")]).unwrap_err();
        assert!(why.contains("Provider/a goes to the hub") && why.contains("/spec/a"), "{why}");
        assert!(!why.contains("hush"));
    }
}
