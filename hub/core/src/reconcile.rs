//! One look at one Kustomization: gather, decide, carry the decision out.
//!
//! Everything that a look does is safe to do again: it may die at any point, and the next one goes on from what the
//! database holds.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{ConditionStatus, Kustomization, KustomizationStatus};
use roadstead_hub_plan::{AttemptState, Decision, Situation, Target, decide};
use roadstead_hub_store::{Aim, Child, DispatchPlan, DispatchStep, Look, Outcome, Stored, Topic, Tx};
use roadstead_model::{
    ChangeSet, ClusterUid, Digest, Generation, KustomizationUid, ObjectRef, Reason, ResourceUid, Revision,
};

use crate::access::Standing;
use crate::build::BuildOutcome;
use crate::children::AppliedChildren;
use crate::conditions::{self, READY, SUSPENDED};
use crate::{Hub, HubError, events, log, managers, placing, triggers};

/// How long past its own timeout an agent's result is waited for.
const GRACE: Duration = Duration::from_secs(30);
/// Where nothing is to be done until something changes. The look then is a net below the signals, nothing more.
const LONG: Duration = Duration::from_secs(3600);

/// Where a cluster puts what names no namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Why an attempt came to nothing before anything was dispatched.
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

impl Hub {
    /// Looks at a Kustomization, does what is to be done, and tells when to look again.
    ///
    /// # Errors
    /// Where the database fails, or the object is not readable. What concerns the Kustomization itself becomes its
    /// condition and is no error.
    pub async fn look_at_kustomization(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.now();
        let Some(stored) = self.store.get_by_uid(uid).await? else { return Ok(now + LONG) };
        let kustomization: Kustomization = stored.decode()?;
        let children = async { Ok(self.store.children(KustomizationUid::from(stored.uid)).await?) };
        let ((situation, standing), children) =
            tokio::try_join!(self.situation(&stored, &kustomization), children)?;
        let look = SeenKustomization { stored, kustomization, situation, standing, children };
        self.prune_children(&look).await?;
        match decide(&look.situation, now) {
            Decision::Idle { until } => {
                self.resume(&look, now).await?;
                self.await_children(&look, until, now).await
            }
            Decision::Suspend => self.suspend(&look, now).await,
            // What was not sent yet is not to be sent any more.
            Decision::Hold { reason: Reason::AccessDenied, message, .. } if look.is_applying() => {
                self.give_up(&look, Reason::AccessDenied, &message, now).await
            }
            Decision::Hold { reason, message, until, waits } => {
                if self.note_held(&look, reason, &message, now).await? {
                    log::kustomization_held(&look.stored, &message, waits);
                }
                Ok(until)
            }
            Decision::Reconcile { cluster, revision, artifact, news } => {
                let target = ReconcileTarget { cluster, revision, artifact, news };
                self.reconcile(&look, target, now).await
            }
            Decision::Delete { cluster } => self.dispatch_delete(&look, cluster, now).await,
            Decision::GiveUp { message } => {
                self.give_up(&look, Reason::ReconciliationFailed, &message, now).await
            }
            Decision::Release { orphaned } => self.release(&look, orphaned.as_deref()).await,
        }
    }

    async fn suspend(&self, look: &SeenKustomization, now: Timestamp) -> Result<Timestamp, HubError> {
        self.update_status(look, now, |status, generation| {
            conditions::set_suspended(&mut status.conditions, triggers::UNTOUCHED, generation, now);
        })
        .await?;
        Ok(now + LONG)
    }

    /// Takes the Suspended condition away where it is left over.
    async fn resume(&self, look: &SeenKustomization, now: Timestamp) -> Result<(), HubError> {
        let suspended = look.status().conditions.iter().any(|condition| condition.type_ == SUSPENDED);
        if suspended && !look.situation.suspended {
            self.update_status(look, now, |_, _| {}).await?;
        }
        Ok(())
    }

    /// Says what stands in the way; gives whether that is news.
    async fn note_held(
        &self,
        look: &SeenKustomization,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let before = conditions::ready(&look.status().conditions).cloned();
        let request = look.situation.request.clone();
        let changed = self
            .update_status(look, now, |status, generation| {
                // The condition is the answer to whoever asked.
                status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
                set_ready(status, ConditionStatus::False, reason, message, generation, now);
            })
            .await?;
        Ok(changed && before.is_none_or(|before| before.message != message))
    }

    async fn reconcile(
        &self,
        look: &SeenKustomization,
        target: ReconcileTarget,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let spec = &look.kustomization.spec;
        let stays =
            self.store.inventory_of_groups(look.situation.uid, target.cluster, &served_groups()).await?;
        let default = look.standing.default_namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let stays = stays.iter().flat_map(|object| placing::inventory_keys(object, default)).collect();
        let namespace = &look.stored.namespace;
        let built = match self.build(namespace, spec, target.artifact, stays, look.is_asked_for()).await? {
            BuildOutcome::Built(build) => build,
            BuildOutcome::Busy(later) => return Ok(now + later),
            BuildOutcome::Failed(message) => {
                return self.failed(look, &target, Failed::to_build(message), now).await;
            }
        };
        let steps = match steps(spec, &look.standing.home) {
            Ok(steps) => steps,
            Err(message) => return self.failed(look, &target, Failed::to_build(message), now).await,
        };
        let children = match built.children.as_deref().map(serde_json::from_slice).transpose() {
            Ok(children) => children.unwrap_or_default(),
            Err(error) => return Err(HubError::Internal(format!("a stored build is not readable: {error}"))),
        };
        let AppliedChildren { changes, failure } =
            self.apply_children(look, &target.revision, children).await?;
        if let Some((reason, message)) = failure {
            let failed = Failed { reason, message, changes };
            return self.failed(look, &target, failed, now).await;
        }
        let plan = look.plan(steps);
        let deadline = now + spec.timeout().0 + GRACE;
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = look.unchanged(&mut tx).await? else { return Ok(now) };
        let new = look.attempt(Some(&target), Some(built.digest), false, now);
        tx.open_reconciliation(&new, &plan, deadline, &changes).await?;
        let revision = target.revision.to_string();
        look.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision);
            // A regular look at what is Ready does not blink in everyone's watch.
            if target.news {
                let message = "reconciliation in progress";
                set_ready(status, ConditionStatus::Unknown, Reason::Progressing, message, generation, now);
            }
        })
        .await?;
        tx.commit().await?;
        Ok(deadline)
    }

    /// Records an attempt that came to nothing before anything was dispatched.
    async fn failed(
        &self,
        look: &SeenKustomization,
        target: &ReconcileTarget,
        failed: Failed,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Failed { reason, message, changes } = failed;
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = look.unchanged(&mut tx).await? else { return Ok(now) };
        let outcome = Outcome {
            health: BTreeMap::new(),
            reason,
            message: conditions::shortened(&message),
            change_set: changes,
            timings: Vec::new(),
        };
        tx.record_failed_reconciliation(&look.attempt(Some(target), None, false, now), &outcome).await?;
        let revision = target.revision.to_string();
        let request = look.situation.request.clone();
        look.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision);
            status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
            set_ready(status, ConditionStatus::False, reason, &message, generation, now);
        })
        .await?;
        tx.commit().await?;
        log::kustomization_failed(&look.stored, &message);
        if reason == Reason::AccessDenied {
            // It is tried again by each look at it, since what denies it is not its own: so it is not to be looked at at once.
            return Ok(now + look.situation.retry_interval);
        }
        // The planner knows when to try again.
        Ok(now)
    }

    async fn dispatch_delete(
        &self,
        look: &SeenKustomization,
        cluster: ClusterUid,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let plan = look.plan(vec![DispatchStep::Delete]);
        let deadline = now + look.kustomization.spec.timeout().0 + GRACE;
        let connected =
            self.store.session(cluster).await?.is_some_and(|session| session.disconnected.is_none());
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = look.unchanged(&mut tx).await? else { return Ok(now) };
        let mut new = look.attempt(None, None, true, now);
        new.cluster = Some(cluster);
        tx.open_reconciliation(&new, &plan, deadline, &ChangeSet::new()).await?;
        look.write_status(&mut tx, &mut stored, now, |status, generation| {
            let (reason, message) = if connected {
                (Reason::Progressing, "deleting what it owns on its cluster")
            } else {
                let message = "what it owns on its cluster is deleted once that cluster's agent is connected again; \
                               deleting the Cluster abandons it";
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
        look: &SeenKustomization,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Some(open) = self.store.newest_reconciliation(look.situation.uid).await? else { return Ok(now) };
        let Some(cluster) = open.aim.cluster else { return Ok(now) };
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = look.unchanged(&mut tx).await? else { return Ok(now) };
        let message = message.to_owned();
        let outcome = Outcome {
            reason,
            message: message.clone(),
            change_set: ChangeSet::new(),
            timings: Vec::new(),
            health: BTreeMap::new(),
        };
        if tx.finish_reconciliation(look.situation.uid, open.attempt, cluster, &outcome, now).await?.is_some()
        {
            look.write_status(&mut tx, &mut stored, now, |status, generation| {
                set_ready(status, ConditionStatus::False, reason, &message, generation, now);
            })
            .await?;
            tx.wake(Topic::Dispatch);
            log::kustomization_failed(&look.stored, &message);
        }
        tx.commit().await?;
        Ok(now)
    }

    async fn release(&self, look: &SeenKustomization, orphaned: Option<&str>) -> Result<Timestamp, HubError> {
        let now = self.now();
        let mut tx = self.store.begin().await?;
        let Some(stored) = look.unchanged(&mut tx).await? else { return Ok(now) };
        tx.orphan(look.situation.uid).await?;
        tx.forget_reconciliations(look.situation.uid).await?;
        triggers::let_go(&mut tx, &stored, now).await?;
        if let Some(orphaned) = orphaned {
            events::note(&mut tx, &stored, "Warning", Reason::PruneFailed.as_str(), orphaned, now).await?;
        }
        tx.commit().await?;
        log::kustomization_released(&look.stored, orphaned);
        Ok(now + LONG)
    }

    /// Writes a changed status; false where it is as it was, and nothing was written.
    pub(crate) async fn update_status(
        &self,
        look: &SeenKustomization,
        now: Timestamp,
        change: impl FnOnce(&mut KustomizationStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = look.unchanged(&mut tx).await? else { return Ok(false) };
        let changed = look.write_status(&mut tx, &mut stored, now, change).await?;
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

/// A Kustomization as a look has seen it.
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

    /// The object, locked; none where what is wanted has changed since it was seen. Then another look is due anyway.
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

    fn plan(&self, steps: Vec<DispatchStep>) -> DispatchPlan {
        let spec = &self.kustomization.spec;
        DispatchPlan {
            namespace: self.stored.namespace.clone(),
            name: self.stored.name.clone(),
            default_namespace: self.standing.default_namespace.clone(),
            service_account: self
                .standing
                .account()
                .map(|account| (account.namespace.clone(), account.name.clone())),
            timeout_millis: u64::try_from(spec.timeout().0.as_millis()).unwrap_or(u64::MAX),
            steps,
        }
    }

    fn attempt(
        &self,
        target: Option<&ReconcileTarget>,
        build: Option<Digest>,
        deletes: bool,
        started: Timestamp,
    ) -> Aim {
        Aim {
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

/// Changes a Kustomization's status in `tx`. What depends on it is looked at again where its readiness changed.
/// False where nothing changed; then nothing is written.
pub(crate) async fn write_status(
    tx: &mut Tx,
    stored: &mut Stored,
    suspended: bool,
    now: Timestamp,
    change: impl FnOnce(&mut KustomizationStatus, i64) + Send,
) -> Result<bool, HubError> {
    let kustomization: Kustomization = stored.decode()?;
    let before = kustomization.status.unwrap_or_default();
    let mut status = before.clone();
    if !suspended {
        status.conditions.retain(|condition| condition.type_ != SUSPENDED);
    }
    change(&mut status, stored.generation);
    if status == before {
        return Ok(false);
    }
    let ready = |status: &KustomizationStatus| {
        (
            conditions::is_true(&status.conditions, READY, stored.generation),
            status.last_applied_revision.clone(),
        )
    };
    if ready(&status) != ready(&before) {
        let dependents = tx.dependents(&stored.namespace, &stored.name).await?;
        tx.look_at(Look::Kustomization, &dependents).await?;
    }
    // A parent that waits says why its child is not Ready, too.
    if verdict(&status) != verdict(&before)
        && let Some(parent) = tx.parent_of(stored.kind, &stored.namespace, &stored.name).await?
    {
        tx.look_at(Look::Kustomization, &[parent]).await?;
    }
    managers::set_status(stored, &status, now)?;
    tx.put(stored.clone()).await?;
    events::on_ready(tx, stored, &before.conditions, &status.conditions, now).await?;
    Ok(true)
}

/// What Ready says, without when it came to that.
fn verdict(status: &KustomizationStatus) -> Option<(ConditionStatus, &str, Option<i64>)> {
    let ready = conditions::ready(&status.conditions)?;
    Some((ready.status, &ready.message, ready.observed_generation))
}

/// Sets Ready, and with it the generation that was looked at.
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

/// `home` is the namespace of health checks that name none, as Flux has it.
fn steps(spec: &roadstead_api::KustomizationSpec, home: &str) -> Result<Vec<DispatchStep>, String> {
    let mut steps = vec![DispatchStep::Apply { force: spec.force }];
    if spec.prune {
        steps.push(DispatchStep::Prune);
    }
    let mut objects = Vec::with_capacity(spec.health_checks.len());
    for (index, check) in spec.health_checks.iter().enumerate() {
        let Some(api_version) = &check.api_version else {
            return Err(format!(
                "spec.healthChecks[{index}].apiVersion is missing: {} is of no known kind",
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
        steps.push(DispatchStep::Wait { objects, all: spec.wait });
    }
    Ok(steps)
}
