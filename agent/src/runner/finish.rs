//! The last steps of rendering, in the cluster: a group's objects are decrypted (Flux's `decryption`), and variables are substituted in
//! them (`postBuild`).
//!
//! Data keys and variables of the hub came with the dispatch; others are read here, as the account that the dispatch names. None leaves
//! the agent's memory except in the objects that are applied.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_apply::Manifest;
use roadstead_finish::{Finished, Substitution, Variables, Warning};
use roadstead_kms::AskedOnce;
use roadstead_model::{
    Confidential, Decrypt, FoundVariables, GivenVariables, Group, ObjectRef, Stage, Substitute,
    VariablesFrom, VariablesKind,
};
use roadstead_proto::Failure;
use roadstead_sops::{DataKey, MacPolicy, UnwrappedKeys};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::work::{On, Record, Work, cancelled, failed};
use crate::cluster::Cluster;
use crate::inputs::{Input, WATCH};
use crate::keys::Entries;

/// How long key services are asked for the data keys of one group.
const UNWRAPPING: Duration = Duration::from_secs(120);

impl<C: Cluster> Work<'_, C> {
    /// A group's objects, finished. What holds decrypted values or those of Secrets is marked.
    pub(super) async fn finish(
        &self,
        on: &On<'_, C>,
        group: &Group,
        objects: Vec<Value>,
        record: &mut Record,
    ) -> Result<Vec<Manifest>, Box<Failure>> {
        let began = Instant::now();
        let objects = match &group.decrypt {
            Some(decrypt) => self.decrypted(on, decrypt, objects, record).await?,
            None => {
                if let Some(name) = roadstead_finish::encrypted_secret(&objects) {
                    let message = format!(
                        "{name} is SOPS encrypted, configuring decryption is required for this secret to be reconciled"
                    );
                    return Err(failed(Stage::Apply, message));
                }
                // Of a sealed group, also while variables are substituted.
                let secret = if group.sealed { vec![String::new()] } else { Vec::new() };
                let marked = |object: Value| Finished { object: object.into(), secret: secret.clone() };
                objects.into_iter().map(marked).collect()
            }
        };
        let finished = match &group.substitute {
            Some(substitute) => self.substituted(on, substitute, objects, record).await?,
            None => objects,
        };
        if group.decrypt.is_some() || group.substitute.is_some() {
            record.spent_since(Stage::Finish, began);
        }
        let manifest = |one: Finished| {
            let manifest = Manifest::from(one.object);
            if one.secret.is_empty() && !group.sealed { manifest } else { manifest.sensitive() }
        };
        Ok(finished.into_iter().map(manifest).collect())
    }

    async fn decrypted(
        &self,
        on: &On<'_, C>,
        decrypt: &Decrypt,
        objects: Vec<Value>,
        record: &mut Record,
    ) -> Result<Vec<Finished>, Box<Failure>> {
        let keys = match decrypt.on_hub {
            Some(_) => Keys::Unwrapped(given_keys(on)),
            None => self.master_keys(on, decrypt, record).await?,
        };
        let (mac, secret) = (
            if decrypt.lenient { MacPolicy::Warn } else { MacPolicy::Verify },
            format!("{}/{}", decrypt.namespace, decrypt.secret),
        );
        let (known, runtime) = (Arc::clone(&self.keys.known), Handle::current());
        let until = Instant::now() + on.dispatch.spec.timeout.min(UNWRAPPING);
        let services = Arc::clone(self.keys);
        let work = tokio::task::spawn_blocking(move || {
            let (opened, by) = match keys {
                // The hub knows what it unwrapped them by.
                Keys::Unwrapped(keys) => (roadstead_finish::decrypt(objects, mac, &keys), BTreeSet::new()),
                Keys::Entries { entries, by } => {
                    let keys = services.keys(&entries, &secret, runtime)?;
                    let keys = AskedOnce::new(&keys, &known, &by, until);
                    (roadstead_finish::decrypt(objects, mac, &keys), keys.opened_by())
                }
            };
            let (opened, warnings) = opened.map_err(|error| error.to_string())?;
            Ok((opened, warnings, by))
        });
        let opened = tokio::select! {
            biased;
            () = on.cancel.cancelled() => return Err(cancelled(Stage::Finish, "decrypting objects")),
            opened = work => opened.map_err(|_| cancelled(Stage::Finish, "decrypting objects"))?,
        };
        let (opened, warnings, by) = opened.map_err(|message: String| failed(Stage::Finish, message))?;
        record.decrypted_with.extend(by);
        for warning in warnings {
            let Warning { object, field, problem } = &warning;
            tracing::warn!(object, field, problem, "decrypted a file that may have been changed");
            record.warnings.push(warning.to_string());
        }
        Ok(opened)
    }

    /// The entries of the Secret of master keys, as the cluster has it.
    async fn master_keys(
        &self,
        on: &On<'_, C>,
        decrypt: &Decrypt,
        record: &mut Record,
    ) -> Result<Keys, Box<Failure>> {
        let Decrypt { namespace, secret, .. } = decrypt;
        let from =
            VariablesFrom { kind: VariablesKind::Secret, name: secret.clone(), optional: true, on_hub: None };
        let about =
            |why: &str| format!("cannot decrypt with the keys of Secret '{namespace}/{secret}': {why}");
        let found = self.look_up(on, namespace, &from, &about, record).await?;
        let object = object_of(namespace, &from);
        let version =
            found.as_ref().map(|found| found["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        let account = on.dispatch.spec.service_account.as_ref();
        record.inputs.push(Input::read(&object, account, version));
        let Some(found) = found else {
            let failure = failed(Stage::Finish, about(&nowhere(namespace)));
            return Err(Box::new(Failure { object: Some(object), ..*failure }));
        };
        record.found.push(FoundVariables { kind: VariablesKind::Secret, name: secret.clone() });
        let data = found["data"].as_object().into_iter().flatten();
        let entry = |(name, value): (&String, &Value)| {
            let bytes = BASE64.decode(value.as_str()?).ok()?;
            Some((name.clone(), Zeroizing::new(bytes)))
        };
        let text = |field: &str| found["metadata"][field].as_str().unwrap_or_default();
        let by = format!("{}@{}", text("uid"), text("resourceVersion"));
        Ok(Keys::Entries { entries: data.filter_map(entry).collect(), by })
    }

    async fn substituted(
        &self,
        on: &On<'_, C>,
        substitute: &Substitute,
        objects: Vec<Finished>,
        record: &mut Record,
    ) -> Result<Vec<Finished>, Box<Failure>> {
        let variables = self.variables(on, substitute, record).await?;
        let (always, strict) = (substitute.always, !substitute.lenient);
        let work = tokio::task::spawn_blocking(move || {
            Substitution { always, strict, ..Substitution::of(&variables) }.apply(objects)
        });
        let finished = tokio::select! {
            biased;
            () = on.cancel.cancelled() => return Err(cancelled(Stage::Finish, "substituting variables")),
            finished = work => finished.map_err(|_| cancelled(Stage::Finish, "substituting variables"))?,
        };
        finished.map_err(|error| failed(Stage::Finish, format!("post build failed: {error}")))
    }

    /// All variables of a group, each with its last value.
    async fn variables(
        &self,
        on: &On<'_, C>,
        substitute: &Substitute,
        record: &mut Record,
    ) -> Result<Variables, Box<Failure>> {
        let mut variables = Variables::default();
        for from in &substitute.from {
            let secret = from.kind == VariablesKind::Secret;
            if from.on_hub.is_some() {
                let is_it = |given: &&GivenVariables| (given.kind, &given.name) == (from.kind, &from.name);
                let Some(given) = on.dispatch.given.iter().find(is_it) else {
                    let message = format!(
                        "post build failed: substitute from '{}/{}' error: it no longer exists on the hub",
                        from.kind, from.name
                    );
                    return Err(failed(Stage::Finish, message));
                };
                for (name, value) in &given.values {
                    variables.set(name, value, secret);
                }
                continue;
            }
            let about = |why: &str| {
                format!("post build failed: substitute from '{}/{}' error: {why}", from.kind, from.name)
            };
            let namespace = &substitute.namespace;
            let Some(found) = self.look_up(on, namespace, from, &about, record).await? else { continue };
            if found["metadata"]["labels"][WATCH] == "Enabled" {
                let version = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                let account = on.dispatch.spec.service_account.as_ref();
                record.inputs.push(Input::read(&object_of(namespace, from), account, Some(version)));
            }
            let data = found["data"].as_object().into_iter().flatten();
            for (name, value) in data {
                let Some(text) = value.as_str() else { continue };
                if secret {
                    // Bytes that are not UTF-8 cannot be substituted.
                    let bytes = BASE64.decode(text).unwrap_or_default();
                    let Ok(text) = String::from_utf8(bytes).map(Zeroizing::new) else { continue };
                    variables.set(name, &text, true);
                } else {
                    variables.set(name, text, false);
                }
            }
            record.found.push(FoundVariables { kind: from.kind, name: from.name.clone() });
        }
        for (name, value) in &substitute.variables {
            variables.set(name, value, false);
        }
        Ok(variables)
    }

    /// A ConfigMap or Secret, as the cluster has it; none where it may be absent, and is. `about` says what it was to be had for.
    async fn look_up(
        &self,
        on: &On<'_, C>,
        namespace: &str,
        from: &VariablesFrom,
        about: &(dyn Fn(&str) -> String + Sync),
        record: &mut Record,
    ) -> Result<Option<Confidential>, Box<Failure>> {
        let object = object_of(namespace, from);
        let about = |why: String| {
            Box::new(Failure { object: Some(object.clone()), ..*failed(Stage::Finish, about(&why)) })
        };
        let found = self.read_as_allowed(on, &object, Stage::Finish, &about, record).await?;
        if found.is_none() && !from.optional {
            return Err(about(nowhere(namespace)));
        }
        Ok(found.map(Confidential::from))
    }
}

/// A ConfigMap or Secret of the cluster.
fn object_of(namespace: &str, from: &VariablesFrom) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: from.kind.as_str().to_owned(),
        namespace: namespace.to_owned(),
        name: from.name.clone(),
    }
}

fn nowhere(namespace: &str) -> String {
    format!("not found on the hub, nor in namespace '{namespace}' of the cluster")
}

/// What there is to decrypt with.
enum Keys {
    /// Data keys, which the hub has unwrapped.
    Unwrapped(UnwrappedKeys),
    /// A Secret of the cluster, and which one in which version.
    Entries { entries: Entries, by: String },
}

/// The data keys that came with a dispatch.
fn given_keys<C: Cluster>(on: &On<'_, C>) -> UnwrappedKeys {
    let mut keys = UnwrappedKeys::default();
    for given in &on.dispatch.data_keys {
        keys.insert(*given.wrapped.as_bytes(), DataKey::new(given.key.clone()));
    }
    keys
}
