//! Objects of a build that go to the hub and not to the cluster: Kustomizations, sources, alerts. Flux' repositories apply
//! Kustomizations through a Kustomization; here such a child is written with the rights of its parent, which come from the
//! Kustomization that a person made, and is owned, waited for and pruned by its parent.

use std::collections::BTreeSet;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::kustomization::HealthCheck;
use roadstead_api::{AnyApplier, ApplierSpec, ConditionStatus, KindId, Reference};
use roadstead_hub_plan::{AttemptState, Attempted, Rights};
use roadstead_hub_store::{Child, Parent, Stored};
use roadstead_model::{
    Action, ApplierUid, AttemptKind, ChangeSet, ObjectRef, ObjectResult, Queue, Reason, Revision,
};
use serde_json::Value;

use crate::HubError;
use crate::address::{Address, named};
use crate::delivery::Delivery;
use crate::delivery::handover::{Released, Soon};
use crate::delivery::placing::{Claim, Fixed, Placed, Placing, Seen, changed_field, claim, settle};
use crate::delivery::reconcile::set_ready;
use crate::delivery::seen::SeenApplier;
use crate::identity::Identity;
use crate::identity::access::{ADOPTED_BY, MAX_DEPTH, asked, too_deep};
use crate::objects::apply::Wanted;
use crate::objects::conditions::{self, READY};
use crate::objects::events::{self, DeniedChild};
use crate::objects::{DeleteOptions, FieldValidation, WriteOptions};

/// As Flux' own controller is called among the managers of fields.
const MANAGER: &str = "kustomize-controller";
/// Children of one Kustomization.
const MAX_CHILDREN: usize = 5_000;
/// Children that a message names.
const NAMED: usize = 5;

/// What came of applying what of a build goes to the hub.
#[derive(Default)]
pub(crate) struct AppliedChildren {
    /// What was done to each, in the order in which it was.
    pub(crate) changes: ChangeSet,
    /// Why it was not done to all of them; for the parent's condition.
    pub(crate) failure: Option<(Reason, String)>,
    /// Those that the parent may not write.
    pub(crate) denied: Vec<DeniedChild>,
}

impl AppliedChildren {
    fn none(reason: Reason, why: &[String]) -> Self {
        Self { failure: Some((reason, some_of(why))), ..Self::default() }
    }
}

/// An object of a build, and how it may be written.
struct Admitted {
    placed: Placed,
    claim: Claim,
    seen: Seen,
    /// The cluster that its `spec.kubeConfig` chooses.
    cluster: Option<String>,
}

impl Delivery {
    /// Applies what of a build goes to the hub, with the rights that the Kustomization has and passes on.
    pub(crate) async fn apply_children(
        &self,
        seen: &SeenApplier,
        revision: &Revision,
        children: Vec<Value>,
    ) -> Result<Soon<AppliedChildren>, HubError> {
        if children.is_empty() && seen.children.is_empty() {
            return Ok(Continue(AppliedChildren::default()));
        }
        if children.len() > MAX_CHILDREN {
            let count = children.len();
            let why = format!("{count} objects of the build go to the hub, more than {MAX_CHILDREN}");
            return Ok(Continue(AppliedChildren::none(Reason::ReconciliationFailed, &[why])));
        }
        let placed = match self.place_children(seen, children).await? {
            Ok(placed) => placed,
            Err((reason, why)) => return Ok(Continue(AppliedChildren::none(reason, &why))),
        };
        let rights = match &seen.standing.rights {
            Ok(rights) => rights,
            Err(why) => {
                let denied = AppliedChildren::none(Reason::AccessDenied, std::slice::from_ref(why));
                return Ok(Continue(denied));
            }
        };
        let nests = placed.iter().any(|one| one.child.kind.is_applier());
        if nests && seen.standing.depth >= MAX_DEPTH {
            return Ok(Continue(AppliedChildren::none(Reason::AccessDenied, &[too_deep()])));
        }
        let taken = match self.take_children(seen, &placed, self.clock.now()).await? {
            Continue(taken) => taken,
            Break(later) => return Ok(Break(later)),
        };
        let admitted = match self.claim_children(seen, placed).await? {
            Ok(admitted) => admitted,
            Err(failed) => return Ok(Continue(AppliedChildren { changes: taken, ..failed })),
        };
        let who = Identity::applier(&seen.stored.applier_ref(), &revision.to_string());
        let (mut changes, mut refused, mut denied) = (taken, Vec::new(), Vec::new());
        for one in admitted {
            let child = one.placed.child.clone();
            let object = reference(child.kind, &child.namespace, &child.name);
            let shown = one.placed.named();
            match self.apply_child(&who, seen.situation.uid, rights, one).await {
                Ok(action) => changes.push(ObjectResult::new(object, action)),
                Err(error) if error.is_of_request() => {
                    if matches!(error, HubError::Forbidden(_)) {
                        denied.push(DeniedChild::of(&child, &error.to_string()));
                    }
                    refused.push(format!("{shown}: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        let accepted = self.store.accept_children(seen.situation.uid).await?;
        if !accepted.is_empty() {
            let mut tx = self.store.begin().await?;
            tx.enqueue(Queue::Applier, &accepted).await?;
            tx.commit().await?;
        }
        let failure = (!refused.is_empty()).then(|| (reason_of(&denied), some_of(&refused)));
        Ok(Continue(AppliedChildren { changes, failure, denied }))
    }

    /// Where on the hub what of a build goes there comes to lie; or why it does not.
    pub(super) async fn place_children(
        &self,
        seen: &SeenApplier,
        children: Vec<Value>,
    ) -> Result<Result<Vec<Placed>, (Reason, Vec<String>)>, HubError> {
        let rights = match &seen.standing.rights {
            Ok(rights) => rights,
            Err(why) => return Ok(Err((Reason::AccessDenied, vec![why.clone()]))),
        };
        let family: BTreeSet<String> =
            self.store.git_namespaces(&rights.root.0, &rights.root.1).await?.into_iter().collect();
        let home = &seen.standing.home;
        let placing = Placing { parent: &seen.stored, home, cluster: seen.cluster(), rights, family };
        Ok(placing.place(settle(children, home)).map_err(|why| (Reason::ReconciliationFailed, why)))
    }

    /// Records what the Kustomization is about to own; nothing where any of it is not its to write.
    async fn claim_children(
        &self,
        seen: &SeenApplier,
        placed: Vec<Placed>,
    ) -> Result<Result<Vec<Admitted>, AppliedChildren>, HubError> {
        let parent = &seen.stored;
        let failed = |reason: Reason, why: &[String]| Ok(Err(AppliedChildren::none(reason, why)));
        let mut tx = self.store.begin().await?;
        if seen.unchanged(&mut tx).await?.is_none() {
            return failed(Reason::ReconciliationFailed, &["its spec has changed meanwhile".to_owned()]);
        }
        let children: Vec<Child> = placed.iter().map(|one| one.child.clone()).collect();
        let present = tx.present_children(&children).await?;
        let references = parent.kind.references(&parent.object, &parent.namespace);
        let sources: Vec<Reference> =
            references.into_iter().filter(|reference| reference.kind.is_source()).collect();
        let (mut admitted, mut owned, mut refused, mut denied) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (mut placed, present) in placed.into_iter().zip(present) {
            match claim(parent, &sources, &placed, &present) {
                Ok(claim) => {
                    if claim.recorded {
                        let Claim { kept, adopted, .. } = claim;
                        owned.push(Child { kept, adopted, object: present.uid, ..placed.child.clone() });
                    }
                    if claim.fixed != Fixed::Nothing {
                        placed.keep_git_namespace(present.git_namespace.as_deref());
                    }
                    admitted.push(Admitted { placed, claim, seen: present.uid, cluster: None });
                }
                Err(why) => {
                    // Not of another applier of Git, but somebody else's.
                    if present.made_by.is_none_or(|by| by.kept || by.uid.is_none()) {
                        denied.push(DeniedChild::of(&placed.child, &why));
                    }
                    refused.push(why);
                }
            }
        }
        if !refused.is_empty() {
            let failed = AppliedChildren::none(reason_of(&denied), &refused);
            return Ok(Err(AppliedChildren { denied, ..failed }));
        }
        owned.sort_unstable();
        let name = format!("{}/{}", parent.namespace, parent.name);
        let account = seen.standing.account_text();
        let writer = Parent { uid: seen.situation.uid, name: &name, account: &account };
        let contested = tx.own_children(&writer, &owned).await?;
        if let Some((object, owner)) = contested.first() {
            let why = format!(
                "{object} is in the build, and is owned by Kustomization {owner}: remove it from one of them"
            );
            return failed(Reason::ReconciliationFailed, &[why]);
        }
        tx.commit().await?;
        for one in &mut admitted {
            let config = &one.placed.config["spec"]["kubeConfig"];
            if one.placed.child.kind.is_applier() && !config.is_null() {
                one.cluster = self.access.cluster_by_config(&one.placed.child.namespace, config).await?;
            }
        }
        Ok(Ok(admitted))
    }

    async fn apply_child(
        &self,
        who: &Identity,
        parent: ApplierUid,
        rights: &Rights,
        one: Admitted,
    ) -> Result<Action, HubError> {
        let Admitted { placed: Placed { child, address, config }, claim, seen, cluster } = one;
        let options = WriteOptions {
            manager: MANAGER.to_owned(),
            field_validation: FieldValidation::Strict,
            ..WriteOptions::default()
        };
        let guard = |before: Option<&Stored>, after: &Stored| {
            if before.map(|before| before.uid) != seen {
                let what = named(child.kind.get(), &child.name);
                let why = "somebody else made it, or deleted it, meanwhile; it is tried again".to_owned();
                return Err(HubError::Conflict { what, why });
            }
            match before {
                Some(before) if claim.fixed != Fixed::Nothing => stays_fixed(claim.fixed, before, after),
                _ if claim.recorded && child.kind.is_applier() => {
                    let asked = asked(after, &child.git_namespace, cluster)?;
                    rights.of_child(asked).map(|_| ()).map_err(HubError::Forbidden)
                }
                _ => Ok(()),
            }
        };
        let owns = claim.recorded && claim.fixed == Fixed::Nothing;
        // Who may write the other namespace may not have what the root may.
        let exact = owns && child.namespace != rights.root.0;
        let wanted = Wanted { config, force: true, maker: claim.recorded.then_some(parent), exact };
        let written = self.objects.apply_guarded(who, &address, wanted, options, guard).await?;
        if written.action != Action::Unchanged {
            self.note_child(who, &child, written.action).await?;
        }
        Ok(written.action)
    }

    /// Says at the child who wrote it.
    async fn note_child(&self, who: &Identity, child: &Child, action: Action) -> Result<(), HubError> {
        let Some(stored) = self.store.get(child.kind, &child.namespace, &child.name).await? else {
            return Ok(());
        };
        let mut tx = self.store.begin().await?;
        let message = format!("{} by {}", action.as_str(), who.recorded());
        events::note(&mut tx, &stored, "Normal", "Applied", &message, self.clock.now()).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes the children that are not wanted any more, once what replaces them is applied; all of them with a parent that
    /// prunes. What another one builds now goes to that one.
    pub(crate) async fn prune_children(&self, seen: &SeenApplier) -> Result<Soon<()>, HubError> {
        let situation = &seen.situation;
        let applied = matches!(
            situation.last,
            Some(Attempted {
                kind: AttemptKind::Apply,
                state: AttemptState::Finished { succeeded: true, .. },
                ..
            })
        );
        let goes = |child: &&Child| situation.deleting || (applied && !child.wanted);
        if situation.suspended || (situation.deleting && !situation.prune) {
            return Ok(Continue(()));
        }
        let mut gone: Vec<&Child> = seen.children.iter().filter(goes).collect();
        if gone.is_empty() {
            return Ok(Continue(()));
        }
        if situation.prune {
            let leaving = gone.iter().map(|child| (*child).clone()).collect();
            let released = if situation.deleting { Released::All } else { Released::Unbuilt };
            match self.give_children(seen, leaving, released, self.clock.now()).await? {
                Break(later) => return Ok(Break(later)),
                // Those that went are not its own any more.
                Continue(left) => {
                    gone.retain(|child| child.kept || child.object.is_none() || left.contains(child));
                }
            }
        }
        let revision = situation.last.as_ref().and_then(|last| last.revision.as_ref());
        let revision = revision.map(ToString::to_string).unwrap_or_default();
        let who = Identity::applier(&seen.stored.applier_ref(), &revision);
        let mut changes = ChangeSet::with_capacity(gone.len());
        for child in &gone {
            // What a person made stays.
            let prunes = situation.prune && !child.kept;
            let action = if prunes { self.delete_child(&who, child).await? } else { Action::Skipped };
            let object = reference(child.kind, &child.namespace, &child.name);
            changes.push(ObjectResult::new(object, action));
        }
        let mut tx = self.store.begin().await?;
        for child in gone {
            tx.forget_child(situation.uid, child).await?;
        }
        tx.add_changes(situation.uid, &changes).await?;
        tx.commit().await?;
        Ok(Continue(()))
    }

    async fn delete_child(&self, who: &Identity, child: &Child) -> Result<Action, HubError> {
        let Some(present) = self.store.get(child.kind, &child.namespace, &child.name).await? else {
            return Ok(Action::Deleted);
        };
        // Another one that has its name since is a person's. And what is annotated so stays, as on a cluster.
        if child.object != Some(present.uid)
            || present.object["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
        {
            return Ok(Action::Skipped);
        }
        let options = DeleteOptions { uid: Some(present.uid.to_string()), ..DeleteOptions::default() };
        match self.objects.delete(who, &address(child), &options).await {
            Ok(_) | Err(HubError::NotFound { .. }) => Ok(Action::Deleted),
            Err(error) => Err(error),
        }
    }

    /// The children that a Kustomization waits for and that are not Ready, with the reason.
    pub(crate) async fn late_children(
        &self,
        parent: &Stored,
        spec: &ApplierSpec,
    ) -> Result<Vec<String>, HubError> {
        let mut awaited: Vec<Child> = Vec::new();
        if spec.wait {
            awaited = self.store.children(ApplierUid::from(parent.uid)).await?;
            awaited.retain(|child| child.wanted);
        } else {
            for check in &spec.health_checks {
                let (group, _) =
                    ObjectRef::split_api_version(check.api_version.as_deref().unwrap_or_default());
                if let Some(kind) = KindId::parse(group, &check.kind).filter(|kind| kind.is_child()) {
                    awaited.push(self.checked_child(parent, spec, kind, check).await?);
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

    /// The object on the hub that a health check is of: by the namespace that Git names, where the check names one.
    async fn checked_child(
        &self,
        parent: &Stored,
        spec: &ApplierSpec,
        kind: KindId,
        check: &HealthCheck,
    ) -> Result<Child, HubError> {
        let mut namespace = parent.namespace.clone();
        let standing = self.access.standing(parent, spec, None).await?;
        if let Ok(rights) = &standing.rights {
            rights.place(check.namespace.as_ref().unwrap_or(&standing.home)).clone_into(&mut namespace);
        }
        let name = check.name.clone();
        Ok(Child {
            kind,
            namespace,
            name,
            wanted: true,
            git_namespace: String::new(),
            kept: false,
            adopted: false,
            object: None,
        })
    }

    /// Says what came of waiting for children. Returns when the next pass is due.
    pub(crate) async fn await_children(
        &self,
        seen: &SeenApplier,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Some(Attempted { kind: AttemptKind::Apply, state, revision, .. }) = &seen.situation.last else {
            return Ok(until);
        };
        let AttemptState::Finished { at, succeeded: true } = state else { return Ok(until) };
        let conditions = seen.status().conditions;
        if seen.situation.held
            || seen.situation.deleting
            || conditions::is_true(&conditions, READY, seen.stored.generation)
        {
            return Ok(until);
        }
        let spec = &seen.applier.spec;
        let late = self.late_children(&seen.stored, spec).await?;
        let deadline = *at + spec.timeout().0;
        let revision = revision.as_ref().map(ToString::to_string);
        self.update_status(seen, now, |status, generation| {
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
        let next = if now < deadline { deadline } else { now + seen.situation.retry_interval };
        Ok(if late.is_empty() { until } else { until.min(next) })
    }
}

/// The children of a Kustomization.
#[derive(Default)]
pub(crate) struct Children {
    /// Those of its newest build.
    pub(crate) wanted: Vec<Child>,
    /// Those that left it.
    pub(crate) dropped: Vec<Child>,
}

/// What of a Kustomization is on the hub when its dispatch has ended well.
#[derive(Default)]
pub(crate) struct Awaited {
    /// What it owns there.
    pub(crate) children: Vec<ObjectRef>,
    /// What it waits for, with the reason.
    pub(crate) late: Vec<String>,
    /// All that it has, or had: what is left of those is looked after by passes.
    pub(crate) all: Children,
    /// Whether those that left the build are deleted.
    pub(crate) prunes: bool,
}

impl Delivery {
    pub(crate) async fn awaited(&self, uid: ApplierUid) -> Result<Awaited, HubError> {
        let children = self.store.children(uid).await?;
        let (wanted, dropped): (Vec<Child>, Vec<Child>) =
            children.into_iter().partition(|child| child.wanted);
        let children =
            wanted.iter().map(|child| reference(child.kind, &child.namespace, &child.name)).collect();
        let Some(stored) = self.store.get_by_uid(uid.into()).await? else { return Ok(Awaited::default()) };
        let spec = stored.decode::<AnyApplier>()?.spec;
        let late = self.late_children(&stored, &spec).await?;
        Ok(Awaited { children, late, prunes: spec.prune, all: Children { wanted, dropped } })
    }
}

/// What a condition says while children are waited for.
pub(crate) fn waits_for(late: &[String]) -> String {
    format!("applied; waiting on the hub for {}", some_of(late))
}

fn timed_out(timeout: Duration, late: &[String]) -> String {
    format!("not Ready on the hub within {} s: {}", timeout.as_secs(), some_of(late))
}

fn reason_of(denied: &[DeniedChild]) -> Reason {
    if denied.is_empty() { Reason::ReconciliationFailed } else { Reason::AccessDenied }
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
    // A chat that is down holds up no deployment; in Flux these say nothing at all.
    if matches!(stored.kind, KindId::Provider | KindId::Alert) {
        return None;
    }
    let conditions = stored.object["status"]["conditions"].as_array();
    let Some(ready) = conditions.into_iter().flatten().find(|one| one["type"] == READY) else {
        // Of the other kinds nobody says yet how they are.
        return stored.kind.get().reconciled.then(|| "it has not been reconciled yet".to_owned());
    };
    let is_current = ready["observedGeneration"].as_i64().is_none_or(|seen| seen == stored.generation);
    match ready["status"].as_str() {
        Some("True") if is_current => None,
        Some("True") => Some("its newest spec has not been reconciled yet".to_owned()),
        _ => Some(ready["message"].as_str().unwrap_or("no reason is given").to_owned()),
    }
}

/// An object on the hub, as inventories and change sets name it.
pub(super) fn reference(kind: KindId, namespace: &str, name: &str) -> ObjectRef {
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

/// What Git does not change of an object that a person made.
fn stays_fixed(fixed: Fixed, before: &Stored, after: &Stored) -> Result<(), HubError> {
    match changed_field(fixed, before, after) {
        None => Ok(()),
        Some(field) => Err(HubError::Forbidden(format!(
            "a person made it, and the build would change its {field}: write it as the build has it, or annotate it: \
             {ADOPTED_BY}=NAMESPACE/NAME of the Kustomization that may"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::KindId;
    use roadstead_hub_store::Stored;
    use serde_json::json;

    use super::not_ready;

    #[test]
    fn a_chat_that_is_down_holds_up_no_parent() {
        let status = json!({ "conditions": [{ "type": "Ready", "status": "False", "message": "it answered HTTP 503" }] });
        for (kind, waits) in [(KindId::Provider, false), (KindId::Alert, false), (KindId::Receiver, true)] {
            for object in [json!({}), json!({ "status": status })] {
                let stored = Stored::new(kind, "apps", "one", Timestamp::UNIX_EPOCH, object);
                assert_eq!(not_ready(Some(&stored)).is_some(), waits, "{kind}");
            }
        }
    }
}
