//! Objects of a build that go to the hub and not to the cluster: Kustomizations, sources, alerts. Flux' repositories apply
//! Kustomizations through a Kustomization; here such a child comes into its parent's namespace, with its parent's cluster as
//! default target, and is owned, waited for and pruned by its parent.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::older::modernize;
use roadstead_api::{ConditionStatus, KindId, Kustomization, KustomizationSpec};
use roadstead_hub_plan::{AttemptState, Attempted};
use roadstead_hub_store::{Child, Stored};
use roadstead_model::{Action, ChangeSet, KustomizationUid, ObjectRef, ObjectResult, Reason};
use serde_json::{Value, json};

use crate::conditions::{self, READY};
use crate::reconcile::{SeenKustomization, set_ready};
use crate::{Address, DeleteOptions, FieldValidation, Hub, HubError, Identity, WriteOptions};

/// Where an object of a build goes.
const TARGET: &str = "fleet.roadstead.dev/target";
/// As Flux' own controller is called among the managers of fields.
const MANAGER: &str = "kustomize-controller";
/// Children of one Kustomization.
const MAX_CHILDREN: usize = 5_000;
/// Children that a message names.
const NAMED: usize = 5;

/// The kind of an object that goes to the hub.
pub(crate) fn kind(object: &Value) -> Option<KindId> {
    let group = object["apiVersion"].as_str()?.split_once('/')?.0;
    if object["metadata"]["annotations"][TARGET] == "Cluster" {
        return None;
    }
    KindId::parse(group, object["kind"].as_str()?).filter(|kind| kind.is_child())
}

/// Whether a health check is of an object on the hub.
pub(crate) fn is_checked_here(group: &str, kind: &str) -> bool {
    KindId::parse(group, kind).is_some_and(KindId::is_child)
}

/// What came of applying what of a build goes to the hub.
#[derive(Default)]
pub(crate) struct AppliedChildren {
    /// What was done to each, in the order in which it was.
    pub(crate) changes: ChangeSet,
    /// Why it was not done to all of them; for the parent's condition.
    pub(crate) failure: Option<String>,
}

impl AppliedChildren {
    fn none(why: String) -> Self {
        Self { changes: ChangeSet::new(), failure: Some(why) }
    }
}

impl Hub {
    /// Applies what of a build goes to the hub.
    pub(crate) async fn apply_children(
        &self,
        look: &SeenKustomization,
        cluster: &str,
        children: Vec<Value>,
    ) -> Result<AppliedChildren, HubError> {
        if children.is_empty() && look.children.is_empty() {
            return Ok(AppliedChildren::default());
        }
        if children.len() > MAX_CHILDREN {
            let count = children.len();
            let why = format!("{count} objects of the build go to the hub, more than {MAX_CHILDREN}");
            return Ok(AppliedChildren::none(why));
        }
        let parent = &look.stored;
        let prepared = children.into_iter().map(|object| prepare(parent, cluster, object));
        let prepared: Vec<(Address, Value)> = match prepared.collect() {
            Ok(prepared) => prepared,
            Err(why) => return Ok(AppliedChildren::none(why)),
        };
        let mut owned: Vec<Child> = prepared
            .iter()
            .map(|(address, _)| Child {
                kind: address.kind,
                namespace: address.namespace.clone(),
                name: address.name.clone(),
                wanted: true,
            })
            // One that holds itself, as Flux' own repositories do, is nobody's to prune.
            .filter(|child| !(child.kind == parent.kind && child.name == parent.name))
            .collect();
        owned.sort_unstable();
        owned.dedup();
        let mut tx = self.store.begin().await?;
        if look.unchanged(&mut tx).await?.is_none() {
            return Ok(AppliedChildren::none("its spec has changed meanwhile".to_owned()));
        }
        let contested = tx.own_children(look.situation.uid, &owned).await?;
        if let Some((object, owner)) = contested.first() {
            return Ok(AppliedChildren::none(format!(
                "{object} is in the build, and is owned by Kustomization {owner}: take it out of one of them"
            )));
        }
        tx.commit().await?;
        let mut applied = AppliedChildren::default();
        for (address, config) in prepared {
            let object = reference(address.kind, &address.namespace, &address.name);
            let options = WriteOptions {
                manager: MANAGER.to_owned(),
                field_validation: FieldValidation::Strict,
                ..WriteOptions::default()
            };
            match self.apply_object(&Identity::hub(), &address, config, true, options).await {
                Ok(written) => applied.changes.push(ObjectResult { object, action: written.action }),
                Err(error) if error.is_of_request() => {
                    let name = format!("{} {}/{}", object.kind, object.namespace, object.name);
                    applied.failure = Some(format!("{name}: {error}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(applied)
    }

    /// Deletes the children that are not wanted any more, once what replaces them is applied; all of them with a parent that
    /// prunes.
    pub(crate) async fn prune_children(&self, look: &SeenKustomization) -> Result<(), HubError> {
        let situation = &look.situation;
        let applied = matches!(
            situation.last,
            Some(Attempted { deletes: false, state: AttemptState::Finished { succeeded: true, .. }, .. })
        );
        let goes = |child: &&Child| situation.deleting || (applied && !child.wanted);
        if situation.suspended || (situation.deleting && !situation.prune) {
            return Ok(());
        }
        let gone: Vec<&Child> = look.children.iter().filter(goes).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let mut changes = ChangeSet::with_capacity(gone.len());
        for child in &gone {
            let action = if situation.prune { self.delete_child(child).await? } else { Action::Skipped };
            let object = reference(child.kind, &child.namespace, &child.name);
            changes.push(ObjectResult { object, action });
        }
        let mut tx = self.store.begin().await?;
        for child in gone {
            tx.forget_child(situation.uid, child).await?;
        }
        tx.add_changes(situation.uid, &changes).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn delete_child(&self, child: &Child) -> Result<Action, HubError> {
        let Some(present) = self.store.get(child.kind, &child.namespace, &child.name).await? else {
            return Ok(Action::Deleted);
        };
        // What is annotated so stays, as on a cluster.
        if present.object["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"] == "disabled" {
            return Ok(Action::Skipped);
        }
        match self.delete_object(&Identity::hub(), &address(child), &DeleteOptions::default()).await {
            Ok(_) | Err(HubError::NotFound { .. }) => Ok(Action::Deleted),
            Err(error) => Err(error),
        }
    }

    /// The children that a Kustomization waits for and that are not Ready, with the reason.
    pub(crate) async fn late_children(
        &self,
        namespace: &str,
        spec: &KustomizationSpec,
        uid: KustomizationUid,
    ) -> Result<Vec<String>, HubError> {
        let mut awaited: Vec<Child> = Vec::new();
        if spec.wait {
            awaited = self.store.children(uid).await?;
            awaited.retain(|child| child.wanted);
        } else {
            for check in &spec.health_checks {
                let (group, _) =
                    ObjectRef::split_api_version(check.api_version.as_deref().unwrap_or_default());
                if let Some(kind) = KindId::parse(group, &check.kind).filter(|kind| kind.is_child()) {
                    let (namespace, name) = (namespace.to_owned(), check.name.clone());
                    awaited.push(Child { kind, namespace, name, wanted: true });
                }
            }
        }
        let mut late = Vec::new();
        for child in awaited {
            let present = self.store.get(child.kind, &child.namespace, &child.name).await?;
            if let Some(why) = not_ready(present.as_ref()) {
                late.push(format!("{} {}/{}: {why}", child.kind, child.namespace, child.name));
            }
        }
        Ok(late)
    }

    /// Says what came of waiting for children. Returns when to look again.
    pub(crate) async fn await_children(
        &self,
        look: &SeenKustomization,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Some(Attempted { deletes: false, state, revision, .. }) = &look.situation.last else {
            return Ok(until);
        };
        let AttemptState::Finished { at, succeeded: true } = state else { return Ok(until) };
        let conditions = look.status().conditions;
        if look.situation.held
            || look.situation.deleting
            || conditions::is_true(&conditions, READY, look.stored.generation)
        {
            return Ok(until);
        }
        let spec = &look.kustomization.spec;
        let late = self.late_children(&look.stored.namespace, spec, look.situation.uid).await?;
        let deadline = *at + spec.timeout().0;
        let revision = revision.as_ref().map(ToString::to_string);
        self.update_status(look, now, |status, generation| {
            if late.is_empty() {
                let message = format!("Applied revision: {}", revision.clone().unwrap_or_default());
                status.last_applied_revision = revision.or(status.last_applied_revision.take());
                let reason = Reason::ReconciliationSucceeded;
                set_ready(status, ConditionStatus::True, reason, &message, generation, now);
            } else if now < deadline {
                let message = waits_for(&late);
                set_ready(status, ConditionStatus::Unknown, Reason::Progressing, &message, generation, now);
            } else {
                let message = timed_out(spec.timeout().0, &late);
                set_ready(
                    status,
                    ConditionStatus::False,
                    Reason::HealthCheckFailed,
                    &message,
                    generation,
                    now,
                );
            }
        })
        .await?;
        let next = if now < deadline { deadline } else { now + look.situation.retry_interval };
        Ok(if late.is_empty() { until } else { until.min(next) })
    }
}

/// What of a Kustomization is on the hub when its dispatch has ended well.
#[derive(Default)]
pub(crate) struct Awaited {
    /// What it owns there.
    pub(crate) children: Vec<ObjectRef>,
    /// What it waits for, with the reason.
    pub(crate) late: Vec<String>,
}

impl Hub {
    pub(crate) async fn awaited(&self, uid: KustomizationUid) -> Result<Awaited, HubError> {
        let children = self.store.children(uid).await?.into_iter().filter(|child| child.wanted);
        let children = children.map(|child| reference(child.kind, &child.namespace, &child.name)).collect();
        let Some(stored) = self.store.get_by_uid(uid.into()).await? else { return Ok(Awaited::default()) };
        let spec = stored.decode::<Kustomization>()?.spec;
        Ok(Awaited { children, late: self.late_children(&stored.namespace, &spec, uid).await? })
    }
}

/// What a condition says while children are waited for.
pub(crate) fn waits_for(late: &[String]) -> String {
    format!("applied; waiting on the hub for {}", some_of(late))
}

fn timed_out(timeout: Duration, late: &[String]) -> String {
    format!("not Ready on the hub within {} s: {}", timeout.as_secs(), some_of(late))
}

fn some_of(late: &[String]) -> String {
    let more = late.len().saturating_sub(NAMED);
    let named = late.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// Why an object on the hub is not Ready.
fn not_ready(present: Option<&Stored>) -> Option<String> {
    let Some(stored) = present else { return Some("there is none".to_owned()) };
    if stored.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let conditions = stored.object["status"]["conditions"].as_array();
    let Some(ready) = conditions.into_iter().flatten().find(|one| one["type"] == READY) else {
        // Of the other kinds nobody says yet how they are.
        let told = matches!(stored.kind, KindId::Kustomization | KindId::GitRepository);
        return told.then(|| "it has not been looked at yet".to_owned());
    };
    let is_current = ready["observedGeneration"].as_i64().is_none_or(|seen| seen == stored.generation);
    match ready["status"].as_str() {
        Some("True") if is_current => None,
        Some("True") => Some("its newest spec has not been looked at yet".to_owned()),
        _ => Some(ready["message"].as_str().unwrap_or("no reason is given").to_owned()),
    }
}

/// An object on the hub, as inventories and change sets name it.
fn reference(kind: KindId, namespace: &str, name: &str) -> ObjectRef {
    let version = kind.get().storage_version();
    ObjectRef {
        group: version.group.to_owned(),
        version: version.name.to_owned(),
        kind: kind.get().kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn address(child: &Child) -> Address {
    let version = child.kind.get().storage_version();
    Address { kind: child.kind, version, namespace: child.namespace.clone(), name: child.name.clone() }
}

/// The configuration that is applied for an object of the build, and where.
fn prepare(parent: &Stored, cluster: &str, mut object: Value) -> Result<(Address, Value), String> {
    let (Some(kind), Some(name)) = (kind(&object), object["metadata"]["name"].as_str().map(str::to_owned))
    else {
        return Err(format!("an object of the build has no name: {}", object["kind"]));
    };
    let named = format!("{kind} {name}");
    let version = modernize(kind.get(), &mut object).map_err(|why| format!("{named}: {why}"))?;
    let namespace = parent.namespace.clone();
    let own = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(format!("{named}: no metadata"));
    };
    metadata.insert("namespace".to_owned(), json!(namespace));
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kustomize.toolkit.fluxcd.io/name".to_owned(), json!(parent.name));
        labels.insert("kustomize.toolkit.fluxcd.io/namespace".to_owned(), json!(parent.namespace));
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(own) = own.filter(|own| *own != namespace) {
        follow(&mut object["spec"], &own, &namespace);
    }
    if kind == KindId::Kustomization && object["spec"].is_object() {
        let spec = &object["spec"];
        if spec["clusterRef"].is_null() && spec["kubeConfig"].is_null() {
            object["spec"]["clusterRef"] = json!({ "name": cluster });
        }
    }
    Ok((Address { kind, version, namespace, name }, object))
}

/// What referred to the namespace that the object had refers to the one that it gets.
fn follow(spec: &mut Value, from: &str, to: &str) {
    let mut references: Vec<&mut Value> = Vec::new();
    if let Some(fields) = spec.as_object_mut() {
        for (field, value) in fields {
            match (field.as_str(), value) {
                ("sourceRef" | "chartRef", value) => references.push(value),
                ("dependsOn" | "eventSources" | "resources", Value::Array(items)) => references.extend(items),
                _ => {}
            }
        }
    }
    for reference in references {
        if reference["namespace"] == from {
            reference["namespace"] = json!(to);
        }
    }
}
