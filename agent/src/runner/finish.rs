//! The last steps of rendering, in the cluster: variables are substituted in a group's objects (Flux's `postBuild`).
//!
//! Variables of the hub came with the dispatch; the others are read here, as the account that the dispatch names. Neither leaves the
//! agent's memory except in the objects that are applied.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_agent_policy::{Action, Object};
use roadstead_apply::{Manifest, Run};
use roadstead_finish::{Substitution, Variables};
use roadstead_model::{
    FoundVariables, GivenVariables, Group, ObjectRef, Stage, Substitute, VariablesFrom, VariablesKind,
};
use roadstead_proto::Failure;
use serde_json::Value;
use tokio::time::Instant;

use super::work::{On, Record, Work, cancelled, failed, failure_while};
use crate::cluster::Cluster;

impl<C: Cluster> Work<'_, C> {
    /// A group's objects, finished. What holds values of Secrets is marked.
    pub(super) async fn finish(
        &self,
        on: &On<'_, C>,
        group: &Group,
        objects: Vec<Value>,
        record: &mut Record,
    ) -> Result<Vec<Manifest>, Box<Failure>> {
        let Some(substitute) = &group.substitute else {
            return Ok(objects.into_iter().map(Manifest::from).collect());
        };
        let began = Instant::now();
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
        record.spent_since(Stage::Finish, began);
        let finished =
            finished.map_err(|error| failed(Stage::Finish, format!("post build failed: {error}")))?;
        let manifest = |one: roadstead_finish::Finished| {
            let manifest = Manifest::from(one.object);
            if one.secret.is_empty() { manifest } else { manifest.sensitive() }
        };
        Ok(finished.into_iter().map(manifest).collect())
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
            let Some(found) = self.look_up(on, &substitute.namespace, from, record).await? else { continue };
            let data = found["data"].as_object().into_iter().flatten();
            for (name, value) in data {
                let Some(text) = value.as_str() else { continue };
                if secret {
                    // Bytes that are not UTF-8 cannot be substituted.
                    let bytes = BASE64.decode(text).unwrap_or_default();
                    let Ok(text) = String::from_utf8(bytes) else { continue };
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

    /// An object that holds variables, as the cluster has it; none where it may be absent, and is.
    async fn look_up(
        &self,
        on: &On<'_, C>,
        namespace: &str,
        from: &VariablesFrom,
        record: &mut Record,
    ) -> Result<Option<Value>, Box<Failure>> {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: from.kind.as_str().to_owned(),
            namespace: namespace.to_owned(),
            name: from.name.clone(),
        };
        let about = |why: String| {
            let message =
                format!("post build failed: substitute from '{}/{}' error: {why}", from.kind, from.name);
            Box::new(Failure { object: Some(object.clone()), ..*failed(Stage::Finish, message) })
        };
        let policy = self.policy(on, record).await?;
        let asked = Object { reference: &object, content: None };
        policy
            .evaluate(Action::Read, &asked, on.account.as_ref())
            .map_err(|refused| about(refused.to_string()))?;
        let mut ignore = |_| ();
        let until = Instant::now() + on.dispatch.spec.timeout;
        let mut run = Run::new(until, on.cancel.clone(), &mut ignore);
        let found = on.cluster.read(&object, &mut run).await.map_err(|error| {
            let failure = failure_while(Stage::Finish, &error);
            if failure.cancelled { failure } else { about(error.to_string()) }
        })?;
        if found.is_none() && !from.optional {
            return Err(about(format!(
                "not found on the hub, nor in namespace '{namespace}' of the cluster"
            )));
        }
        Ok(found)
    }
}
