//! One pass over one Kustomization: gather, decide, carry the decision out.
//!
//! Everything that a pass does is safe to do again: it may die at any point, and the next one goes on from what the
//! database holds.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{ConditionStatus, Kustomization, KustomizationStatus};
use roadstead_hub_plan::{AttemptState, Decision, Situation, Target, decide};
use roadstead_hub_store::{AttemptInputs, Child, Outcome, Stored, Tx};
use roadstead_model::{
    Capabilities, ChangeSet, ClusterUid, Digest, DispatchSpec, Generation, Group, KustomizationUid,
    ObjectRef, OnImmutable, Reason, ResourceUid, Revision, ServiceAccount, Step, StepKind, Topic,
};

use crate::delivery::build::BuildOutcome;
use crate::delivery::children::AppliedChildren;
use crate::delivery::results::AgentOf;
use crate::delivery::{Delivery, placing};
use crate::identity::access::Standing;
use crate::objects::conditions::{self, READY, SUSPENDED};
use crate::objects::{events, status, triggers};
use crate::{HubError, log};

/// How long past its own timeout an agent's result is waited for.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Where nothing is to be done until something changes. The pass then is a net below the signals, nothing more.
const LONG: Duration = Duration::from_secs(3600);
/// How soon it is looked whether an agent that was too old is another one, where nothing says so before.
const RECHECK: Duration = Duration::from_secs(30);

/// Why an attempt failed before anything was dispatched.
struct Failed {
    reason: Reason,
    message: String,
    /// What was done on the hub until then.
    changes: ChangeSet,
}

impl Failed {
    fn to_build(message: String) -> Self {
        Self { reason: Reason::BuildFailed, message, changes: ChangeSet::new() }
    }
}

impl Delivery {
    /// Makes one pass over a Kustomization: does what is to be done, and tells when the next pass is due.
    ///
    /// # Errors
    /// Where the database fails, or the object is not readable. What concerns the Kustomization itself becomes its
    /// condition and is not an error.
    pub async fn process_kustomization(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let Some(stored) = self.store.get_by_uid(uid).await? else { return Ok(now + LONG) };
        let kustomization: Kustomization = stored.decode()?;
        let children = async { Ok(self.store.children(KustomizationUid::from(stored.uid)).await?) };
        let ((situation, standing), children) =
            tokio::try_join!(self.situation(&stored, &kustomization), children)?;
        let seen = SeenKustomization { stored, kustomization, situation, standing, children };
        self.prune_children(&seen).await?;
        match decide(&seen.situation, now) {
            Decision::Idle { until } => {
                self.resume(&seen, now).await?;
                self.await_children(&seen, until, now).await
            }
            Decision::Suspend => self.suspend(&seen, now).await,
            // What was not sent yet is not to be sent any more.
            Decision::Hold { reason: Reason::AccessDenied, message, .. } if seen.is_applying() => {
                self.give_up(&seen, Reason::AccessDenied, &message, now).await
            }
            Decision::Hold { reason, message, until, waits } => {
                if self.note_held(&seen, reason, &message, now).await? {
                    log::kustomization_held(&seen.stored, &message, waits);
                }
                Ok(until)
            }
            Decision::Reconcile { cluster, revision, artifact, news } => {
                let target = ReconcileTarget { cluster, revision, artifact, news };
                self.reconcile(&seen, target, now).await
            }
            Decision::Delete { cluster } => self.dispatch_delete(&seen, cluster, now).await,
            Decision::GiveUp { message } => {
                self.give_up(&seen, Reason::ReconciliationFailed, &message, now).await
            }
            Decision::Release { orphaned } => self.release(&seen, orphaned.as_deref()).await,
        }
    }

    async fn suspend(&self, seen: &SeenKustomization, now: Timestamp) -> Result<Timestamp, HubError> {
        self.update_status(seen, now, |status, generation| {
            conditions::set_suspended(&mut status.conditions, triggers::UNTOUCHED, generation, now);
        })
        .await?;
        Ok(now + LONG)
    }

    /// Takes the Suspended condition away where it is left over.
    async fn resume(&self, seen: &SeenKustomization, now: Timestamp) -> Result<(), HubError> {
        let suspended = seen.status().conditions.iter().any(|condition| condition.type_ == SUSPENDED);
        if suspended && !seen.situation.suspended {
            self.update_status(seen, now, |_, _| {}).await?;
        }
        Ok(())
    }

    /// Says what stands in the way; gives whether that is news.
    async fn note_held(
        &self,
        seen: &SeenKustomization,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let before = conditions::ready(&seen.status().conditions).cloned();
        let request = seen.situation.request.clone();
        let changed = self
            .update_status(seen, now, |status, generation| {
                // The condition is the answer to whoever asked.
                status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
                set_ready(status, ConditionStatus::False, reason, message, generation, now);
            })
            .await?;
        Ok(changed && before.is_none_or(|before| before.message != message))
    }

    async fn reconcile(
        &self,
        seen: &SeenKustomization,
        target: ReconcileTarget,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let spec = &seen.kustomization.spec;
        let stays =
            self.store.inventory_of_groups(seen.situation.uid, target.cluster, &served_groups()).await?;
        let default =
            seen.standing.default_namespace.as_deref().unwrap_or(roadstead_model::DEFAULT_NAMESPACE);
        let stays = stays.iter().flat_map(|object| placing::inventory_keys(object, default)).collect();
        let namespace = &seen.stored.namespace;
        let built =
            match self.builds.build(namespace, spec, target.artifact, stays, seen.is_asked_for()).await? {
                BuildOutcome::Built(build) => build,
                BuildOutcome::Busy(later) => return Ok(now + later),
                BuildOutcome::Failed(message) => {
                    return self.failed(seen, &target, Failed::to_build(message), now).await;
                }
            };
        let steps = match steps(spec, &seen.standing.home) {
            Ok(steps) => steps,
            Err(message) => return self.failed(seen, &target, Failed::to_build(message), now).await,
        };
        let dispatch = seen.dispatch(vec![group(spec, built.digest)], steps);
        if let Some(message) = self.too_old_agent(&target, seen.cluster(), &dispatch).await? {
            if self.note_held(seen, Reason::AgentTooOld, &message, now).await? {
                log::kustomization_held(&seen.stored, &message, false);
            }
            return Ok(now + RECHECK);
        }
        let children = match built.children.as_deref().map(serde_json::from_slice).transpose() {
            Ok(children) => children.unwrap_or_default(),
            Err(error) => return Err(HubError::Internal(format!("a stored build is not readable: {error}"))),
        };
        let AppliedChildren { changes, failure } =
            self.apply_children(seen, &target.revision, children).await?;
        if let Some((reason, message)) = failure {
            let failed = Failed { reason, message, changes };
            return self.failed(seen, &target, failed, now).await;
        }
        let deadline = now + dispatch.timeout + GRACE;
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        let new = seen.attempt(Some(&target), Some(built.digest), false, now);
        tx.open_reconciliation(&new, &dispatch, deadline, &changes).await?;
        let revision = target.revision.to_string();
        seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision);
            // A regular pass over what is Ready does not blink in everyone's watch.
            if target.news {
                let message = "reconciliation in progress";
                set_ready(status, ConditionStatus::Unknown, Reason::Progressing, message, generation, now);
            }
        })
        .await?;
        tx.commit().await?;
        Ok(deadline)
    }

    /// Why the cluster's agent cannot carry this out, where it cannot.
    async fn too_old_agent(
        &self,
        target: &ReconcileTarget,
        cluster: &str,
        dispatch: &DispatchSpec,
    ) -> Result<Option<String>, HubError> {
        // What agents of the first version can do, all can.
        if dispatch.lacking(&Capabilities::default()).is_none() {
            return Ok(None);
        }
        let Some(session) = self.store.session(target.cluster).await? else { return Ok(None) };
        let (version, capabilities) = (&session.agent_version, &session.capabilities);
        Ok(AgentOf { cluster, version, capabilities }.too_old_for(dispatch))
    }

    /// Records an attempt that failed before anything was dispatched.
    async fn failed(
        &self,
        seen: &SeenKustomization,
        target: &ReconcileTarget,
        failed: Failed,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Failed { reason, message, changes } = failed;
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        let outcome = Outcome {
            health: BTreeMap::new(),
            reason,
            message: conditions::shortened(&message),
            change_set: changes,
            timings: Vec::new(),
        };
        tx.record_failed_reconciliation(&seen.attempt(Some(target), None, false, now), &outcome).await?;
        let revision = target.revision.to_string();
        let request = seen.situation.request.clone();
        seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision);
            status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
            set_ready(status, ConditionStatus::False, reason, &message, generation, now);
        })
        .await?;
        tx.commit().await?;
        log::kustomization_failed(&seen.stored, &message);
        if reason == Reason::AccessDenied {
            // It is tried again by each pass over it, since what denies it is not its own: so it is not to be processed at once.
            return Ok(now + seen.situation.retry_interval);
        }
        // The planner knows when to try again.
        Ok(now)
    }

    async fn dispatch_delete(
        &self,
        seen: &SeenKustomization,
        cluster: ClusterUid,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let dispatch = seen.dispatch(Vec::new(), vec![StepKind::Delete.into()]);
        let deadline = now + dispatch.timeout + GRACE;
        let connected =
            self.store.session(cluster).await?.is_some_and(|session| session.disconnected.is_none());
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        let mut new = seen.attempt(None, None, true, now);
        new.cluster = Some(cluster);
        tx.open_reconciliation(&new, &dispatch, deadline, &ChangeSet::new()).await?;
        seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            let (reason, message) = if connected {
                (Reason::Progressing, "deleting what it owns on its cluster")
            } else {
                let message = "what it owns on its cluster is deleted once that cluster's agent is connected again; delete the Cluster to abandon it";
                (Reason::ClusterUnreachable, message)
            };
            set_ready(status, ConditionStatus::False, reason, message, generation, now);
        })
        .await?;
        tx.commit().await?;
        Ok(deadline)
    }

    async fn give_up(
        &self,
        seen: &SeenKustomization,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Some(open) = self.store.newest_reconciliation(seen.situation.uid).await? else { return Ok(now) };
        let Some(cluster) = open.inputs.cluster else { return Ok(now) };
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        let message = message.to_owned();
        let outcome = Outcome {
            reason,
            message: message.clone(),
            change_set: ChangeSet::new(),
            timings: Vec::new(),
            health: BTreeMap::new(),
        };
        if tx.finish_reconciliation(seen.situation.uid, open.attempt, cluster, &outcome, now).await?.is_some()
        {
            seen.write_status(&mut tx, &mut stored, now, |status, generation| {
                set_ready(status, ConditionStatus::False, reason, &message, generation, now);
            })
            .await?;
            tx.wake(Topic::Dispatch);
            log::kustomization_failed(&seen.stored, &message);
        }
        tx.commit().await?;
        Ok(now)
    }

    async fn release(&self, seen: &SeenKustomization, orphaned: Option<&str>) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        tx.orphan(seen.situation.uid).await?;
        tx.forget_reconciliations(seen.situation.uid).await?;
        triggers::let_go(&mut tx, &stored, now).await?;
        if let Some(orphaned) = orphaned {
            events::note(&mut tx, &stored, "Warning", Reason::PruneFailed.as_str(), orphaned, now).await?;
        }
        tx.commit().await?;
        log::kustomization_released(&seen.stored, orphaned);
        Ok(now + LONG)
    }

    /// Writes a changed status; false where it is as it was, and nothing was written.
    pub(crate) async fn update_status(
        &self,
        seen: &SeenKustomization,
        now: Timestamp,
        change: impl FnOnce(&mut KustomizationStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(false) };
        let changed = seen.write_status(&mut tx, &mut stored, now, change).await?;
        if changed {
            tx.commit().await?;
        }
        Ok(changed)
    }
}

/// What is to be reconciled, where.
struct ReconcileTarget {
    cluster: ClusterUid,
    revision: Revision,
    artifact: Digest,
    news: bool,
}

/// A Kustomization as a pass has seen it.
pub(crate) struct SeenKustomization {
    pub(crate) stored: Stored,
    pub(crate) kustomization: Kustomization,
    pub(crate) situation: Situation,
    /// Whence it has its rights.
    pub(crate) standing: Standing,
    /// What it owns on the hub.
    pub(crate) children: Vec<Child>,
}

impl SeenKustomization {
    /// The name of the chosen cluster.
    pub(crate) fn cluster(&self) -> &str {
        match &self.situation.target {
            Target::Cluster { name, .. } | Target::Leaving { name, .. } => name,
            Target::NotFound(_) => "",
        }
    }

    /// Whether an attempt is open that applies something.
    fn is_applying(&self) -> bool {
        let last = self.situation.last.as_ref();
        last.is_some_and(|last| !last.deletes && matches!(last.state, AttemptState::Open { .. }))
    }

    /// Whether somebody asks for a reconciliation that was not tried yet.
    fn is_asked_for(&self) -> bool {
        let tried = self.situation.last.as_ref().and_then(|last| last.request.as_ref());
        self.situation.request.is_some() && self.situation.request.as_ref() != tried
    }

    pub(crate) fn status(&self) -> KustomizationStatus {
        self.kustomization.status.clone().unwrap_or_default()
    }

    /// The object, locked; none where what is wanted has changed since it was seen. Then another pass is due anyway.
    pub(crate) async fn unchanged(&self, tx: &mut Tx) -> Result<Option<Stored>, HubError> {
        let Some(stored) = tx.get_by_uid(self.stored.uid).await? else { return Ok(None) };
        let same = stored.generation == self.stored.generation
            && stored.deletion_timestamp == self.stored.deletion_timestamp;
        Ok(same.then_some(stored))
    }

    async fn write_status(
        &self,
        tx: &mut Tx,
        stored: &mut Stored,
        now: Timestamp,
        change: impl FnOnce(&mut KustomizationStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        write_status(tx, stored, self.situation.suspended, now, change).await
    }

    fn dispatch(&self, groups: Vec<Group>, steps: Vec<Step>) -> DispatchSpec {
        let spec = &self.kustomization.spec;
        DispatchSpec {
            namespace: self.stored.namespace.clone(),
            name: self.stored.name.clone(),
            default_namespace: self.standing.default_namespace.clone(),
            service_account: self.standing.account().map(|account| ServiceAccount {
                namespace: account.namespace.clone(),
                name: account.name.clone(),
            }),
            timeout: spec.timeout().0,
            groups,
            steps,
        }
    }

    fn attempt(
        &self,
        target: Option<&ReconcileTarget>,
        build: Option<Digest>,
        deletes: bool,
        started: Timestamp,
    ) -> AttemptInputs {
        AttemptInputs {
            kustomization: self.situation.uid,
            cluster: target.map(|target| target.cluster),
            generation: Generation(self.stored.generation),
            revision: target.map(|target| target.revision.clone()),
            artifact: target.map(|target| target.artifact),
            build,
            request: self.situation.request.clone(),
            deletes,
            started,
        }
    }
}

/// Changes a Kustomization's status in `tx`. False where nothing changed; then nothing is written.
pub(crate) async fn write_status(
    tx: &mut Tx,
    stored: &mut Stored,
    suspended: bool,
    now: Timestamp,
    change: impl FnOnce(&mut KustomizationStatus, i64) + Send,
) -> Result<bool, HubError> {
    let written = status::write::<Kustomization>(tx, stored, now, |status, generation| {
        if !suspended {
            status.conditions.retain(|condition| condition.type_ != SUSPENDED);
        }
        change(status, generation);
    });
    Ok(written.await?.is_some())
}

/// Sets Ready, and with it the generation that was processed.
pub(crate) fn set_ready(
    status: &mut KustomizationStatus,
    ready: ConditionStatus,
    reason: Reason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    conditions::set(&mut status.conditions, READY, ready, reason, message, generation, now);
    status.observed_generation = Some(generation);
}

/// The API groups of kinds of which a build's objects go to the hub.
fn served_groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> =
        roadstead_api::KINDS.iter().filter(|kind| kind.id.is_child()).map(|kind| kind.group()).collect();
    groups.dedup();
    groups
}

/// What a Kustomization applies, and how.
fn group(spec: &roadstead_api::KustomizationSpec, build: Digest) -> Group {
    let on_immutable = if spec.force { OnImmutable::Recreate } else { OnImmutable::Fail };
    Group { on_immutable, ..Group::of(build) }
}

/// `home` is the namespace of health checks that name none, as Flux has it.
fn steps(spec: &roadstead_api::KustomizationSpec, home: &str) -> Result<Vec<Step>, String> {
    let mut steps = vec![StepKind::Apply { group: 0 }];
    if spec.prune {
        steps.push(StepKind::Prune);
    }
    let mut objects = Vec::with_capacity(spec.health_checks.len());
    for (index, check) in spec.health_checks.iter().enumerate() {
        let Some(api_version) = &check.api_version else {
            return Err(format!(
                "spec.healthChecks[{index}].apiVersion is missing: {} is not of a known kind",
                check.kind
            ));
        };
        let (group, version) = ObjectRef::split_api_version(api_version);
        if placing::is_checked_here(group, &check.kind) {
            continue;
        }
        objects.push(ObjectRef {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: check.kind.clone(),
            namespace: check.namespace.clone().unwrap_or_else(|| home.to_owned()),
            name: check.name.clone(),
        });
    }
    if spec.wait || !objects.is_empty() {
        let groups = if spec.wait { vec![0] } else { Vec::new() };
        steps.push(StepKind::Wait { objects, groups });
    }
    Ok(steps.into_iter().map(Step::from).collect())
}
