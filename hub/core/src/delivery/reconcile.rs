//! One pass over one applier: gather, decide, carry the decision out.
//!
//! Everything that a pass does is safe to do again: it may die at any point, and the next one goes on from what the
//! database holds.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use roadstead_api::kustomization::DeletionPolicy;
use roadstead_api::{AnyApplier, AnyApplierStatus, ApplierStatus, ConditionStatus, annotated};
use roadstead_finish::first_warnings;
use roadstead_hub_plan::{AgentLink, Decision, Source, Target, Tended, Turns, decide};
use roadstead_hub_store::{AttemptInputs, CachedBuild, Outcome, Stored, Tx};
use roadstead_kms::MOST_NAMED;
use roadstead_model::{
    AttemptKind, Capabilities, ChangeSet, ClusterUid, Digest, DispatchSpec, DriftMode, Queue, Reason,
    ResourceUid, StepKind, Topic,
};
use roadstead_trace::Span;

use crate::delivery::Delivery;
use crate::delivery::applier::Work;
use crate::delivery::children::AppliedChildren;
use crate::delivery::history;
use crate::delivery::render::{self, Rendered, Rendering};
use crate::delivery::results::AgentOf;
use crate::delivery::seen::{ReconcileTarget, SeenApplier, Sight};
use crate::delivery::traces::{self, Ended};
use crate::delivery::variables::FinishedChildren;
use crate::objects::conditions::{self, RECONCILING, SUSPENDED};
use crate::objects::events::{self, DeniedChild};
use crate::objects::status::{News, WrittenStatus};
use crate::objects::{status, triggers};
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
    /// What of the build may not be written on the hub.
    denied: Vec<DeniedChild>,
}

impl Failed {
    fn new(reason: Reason, message: String) -> Self {
        Self { reason, message, changes: ChangeSet::new(), denied: Vec::new() }
    }

    fn to_build(message: String) -> Self {
        Self::new(Reason::BuildFailed, message)
    }
}

/// Says in the trace of the pass whose it is.
fn describe(seen: &SeenApplier) {
    if roadstead_trace::is_on() {
        roadstead_trace::describe("kind", seen.stored.kind.to_string());
        roadstead_trace::describe("namespace", seen.stored.namespace.as_str());
        roadstead_trace::describe("name", seen.stored.name.as_str());
        roadstead_trace::describe("cluster", seen.cluster());
    }
}

impl Delivery {
    /// Makes one pass over an applier: does what is to be done, and tells when the next pass is due.
    ///
    /// # Errors
    /// Where the database fails, or the object is not readable. What concerns the applier itself becomes its
    /// condition and is not an error.
    pub async fn process_applier(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let (now, began) = (self.clock.now(), Instant::now());
        let gather = Span::start("gather");
        let Some(Sight { seen, wanted }) = self.look(uid).await? else { return Ok(now + LONG) };
        gather.end();
        describe(&seen);
        if let Some(wanted) = wanted.filter(|_| !seen.situation.suspended && !seen.situation.deleting) {
            self.want(&seen, &wanted, now).await?;
        }
        if let Target::Cluster { name, agent: AgentLink::Blind(_), .. } = &seen.situation.target
            && !history::is_unseen(&seen.applier)
        {
            self.update_status(&seen, now, |status, generation| {
                history::health_is_unseen(status, name, generation, now);
            })
            .await?;
        }
        if let Break(later) = self.prune_children(&seen).await? {
            return Ok(now + later);
        }
        match decide(&seen.situation, now) {
            Decision::Idle { until } => self.idle(&seen, until, now).await,
            Decision::Pace { until } => self.pace(&seen, until, now).await,
            Decision::Suspend => self.suspend(&seen, now).await,
            // What was not sent yet is not to be sent any more.
            Decision::Hold { reason: Reason::AccessDenied, message, .. } if seen.is_applying() => {
                self.rest(&seen).await?;
                self.give_up(&seen, Reason::AccessDenied, &message, now).await
            }
            Decision::Hold { reason, message, until, waits } => {
                if reason == Reason::AccessDenied {
                    self.rest(&seen).await?;
                }
                if self.note_held(&seen, reason, &message, now).await? {
                    log::applier_held(&seen.stored, &message, waits);
                }
                Ok(until)
            }
            Decision::Reconcile { cluster, revision, artifact, news } => {
                let target =
                    ReconcileTarget { cluster, revision, artifact, news, rendered_by: BTreeMap::new() };
                if !seen.situation.is_only_requested(cluster) {
                    return self.reconcile(&seen, target, now).await;
                }
                if let Some(turn) = self.wait_for_turn(&seen, now) {
                    return self.pace(&seen, turn, now).await;
                }
                let next = self.reconcile(&seen, target, now).await;
                self.turns().used(&seen.stored.namespace, began.elapsed());
                next
            }
            Decision::Delete { cluster } => self.dispatch_delete(&seen, cluster, now).await,
            Decision::GiveUp { message } => {
                self.give_up(&seen, Reason::ReconciliationFailed, &message, now).await
            }
            Decision::Release { orphaned } => self.release(&seen, orphaned.as_deref()).await,
        }
    }

    /// When it is this applier's turn, where that is later.
    fn wait_for_turn(&self, seen: &SeenApplier, now: Timestamp) -> Option<Timestamp> {
        let newest = seen.situation.asked_for.first().copied();
        self.turns().take(&seen.stored.namespace, seen.situation.uid, newest, now).err()
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        // Nothing under the lock can panic half-way through a change.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what is asked for wait.
    async fn pace(
        &self,
        seen: &SeenApplier,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        self.store.pace(Queue::Applier, seen.stored.uid, until).await?;
        roadstead_trace::unfinished();
        self.idle(seen, until, now).await
    }

    async fn idle(
        &self,
        seen: &SeenApplier,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        self.resume(seen, now).await?;
        let until = seen.check_remotes_at.map_or(until, |look| until.min(look));
        self.await_children(seen, until, now).await
    }

    async fn suspend(&self, seen: &SeenApplier, now: Timestamp) -> Result<Timestamp, HubError> {
        self.rest(seen).await?;
        let request = seen.situation.request.clone();
        self.update_status(seen, now, |status, generation| {
            // As Flux has it, the condition is the answer to whoever asked; what was asked for is done once it is resumed.
            status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
            conditions::set_suspended(&mut status.conditions, triggers::UNTOUCHED, generation, now);
        })
        .await?;
        Ok(now + LONG)
    }

    /// Takes the Suspended condition away where it is left over.
    async fn resume(&self, seen: &SeenApplier, now: Timestamp) -> Result<(), HubError> {
        let suspended = seen.status().conditions.iter().any(|condition| condition.type_ == SUSPENDED);
        if suspended && !seen.situation.suspended {
            self.update_status(seen, now, |_, _| {}).await?;
        }
        Ok(())
    }

    /// Says what stands in the way; gives whether that is news.
    async fn note_held(
        &self,
        seen: &SeenApplier,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let before = conditions::ready(&seen.status().conditions).cloned();
        let request = seen.situation.request.clone();
        let change = |status: &mut ApplierStatus, generation| {
            // The condition is the answer to whoever asked.
            status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
            let is_begun = conditions::find(&status.conditions, RECONCILING).is_some();
            set_ready(status, ConditionStatus::False, reason, message, generation, now);
            // As Flux has it: nothing was begun of what waits for a source or a dependency.
            let waits = [Reason::ArtifactFailed, Reason::DependencyNotReady].contains(&reason);
            if waits && !is_begun {
                status.conditions.retain(|condition| condition.type_ != RECONCILING);
            }
        };
        // As in Flux: what is wrong with a source, the source tells. One that is not there tells nothing.
        let is_told =
            reason == Reason::ArtifactFailed && matches!(seen.situation.source, Source::NoArtifact(_));
        let news = is_told.then_some(News::Waiting);
        let changed = self.update_status_telling(seen, now, news, change).await?;
        Ok(changed && before.is_none_or(|before| before.message != message))
    }

    /// Says what a build waits for where nobody has to change anything. Whoever asked is not answered yet.
    async fn note_waiting(
        &self,
        seen: &SeenApplier,
        target: &ReconcileTarget,
        why: &str,
        now: Timestamp,
    ) -> Result<(), HubError> {
        // As when it is begun: a regular pass over what is Ready does not blink in everyone's watch.
        let is_told = target.news
            && self
                .update_status(seen, now, |status, generation| {
                    set_ready(status, ConditionStatus::Unknown, Reason::Progressing, why, generation, now);
                })
                .await?;
        if is_told {
            log::applier_held(&seen.stored, why, true);
        }
        Ok(())
    }

    /// Whether all that differs was changed by others, and is only to be reported. Who asks for a reconciliation wants it corrected.
    async fn observes(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        dispatch: &DispatchSpec,
    ) -> Result<bool, HubError> {
        if dispatch.drift != DriftMode::Report || seen.is_asked_for() {
            return Ok(false);
        }
        Ok(self.store.was_applied(seen.situation.uid, cluster, &dispatch.digest()).await?)
    }

    async fn reconcile(
        &self,
        seen: &SeenApplier,
        target: ReconcileTarget,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Rendered { rendering, by, mut decrypted_with } = self.render(seen, target.cluster).await?;
        let mut target = ReconcileTarget { rendered_by: by, ..target };
        render::note_offline(&mut target.rendered_by, seen.offline);
        let built = match rendering {
            Rendering::Built(build) => build,
            Rendering::Later(later) => {
                roadstead_trace::unfinished();
                return Ok(now + later);
            }
            Rendering::Waits(later, why) => {
                roadstead_trace::unfinished();
                self.note_waiting(seen, &target, &why, now).await?;
                return Ok(now + later);
            }
            Rendering::Reads(objects) => {
                let steps = vec![StepKind::Read { objects }.into()];
                let dispatch = seen.dispatch(Vec::new(), steps);
                if let Some(message) = self.too_old_agent(target.cluster, seen.cluster(), &dispatch).await? {
                    return self.hold_for_agent(seen, &message, now).await;
                }
                let attempt = seen.attempt(Some(&target), None, AttemptKind::Read, now);
                return self.open(seen, &target, &attempt, &dispatch, &ChangeSet::new(), now).await;
            }
            Rendering::Failed(reason, message) => {
                let failed = Failed::new(reason, message);
                return self.failed(seen, &target, failed, now).await;
            }
        };
        let Work { health, mut groups, mut steps } =
            match seen.kind.steps(&seen.stored, &seen.standing.home, &built.groups)? {
                Ok(work) => work,
                Err((reason, message)) => {
                    let failed = Failed::new(reason, message);
                    return self.failed(seen, &target, failed, now).await;
                }
            };
        seen.adopt(&mut groups, &mut steps);
        let decryption = seen.kind.decryption(&seen.stored, &seen.standing.home)?;
        let (by, decryption) = (&mut target.rendered_by, decryption.as_ref());
        let settled =
            self.settle_decryption(seen, target.cluster, decryption, &built.groups, &mut groups, by).await?;
        let keys = match settled {
            Ok((keys, opened_by)) => {
                decrypted_with.extend(opened_by);
                keys
            }
            Err((reason, message)) => {
                let failed = Failed::new(reason, message);
                return self.failed(seen, &target, failed, now).await;
            }
        };
        let settled =
            self.settle_variables(seen, target.cluster, &mut groups, &mut target.rendered_by).await?;
        let given = match settled {
            Ok(given) => given,
            Err((reason, message)) => {
                let failed = Failed::new(reason, message);
                return self.failed(seen, &target, failed, now).await;
            }
        };
        let dispatch = seen.dispatch(groups, steps);
        // What is watched is looked at once in a long while, and then whatever the watches tell.
        let full = dispatch.full || !target.news && seen.situation.tended == Tended::Now;
        let dispatch = DispatchSpec { health, full, ..dispatch };
        let dispatch = DispatchSpec { guard: self.guard_of(seen, &dispatch), ..dispatch };
        let observe = self.observes(seen, target.cluster, &dispatch).await?;
        let dispatch = DispatchSpec { observe, ..dispatch };
        // Before anything is written, on the hub either.
        if let Some(message) = self.too_old_agent(target.cluster, seen.cluster(), &dispatch).await? {
            return self.hold_for_agent(seen, &message, now).await;
        }
        let attempt = seen.attempt(Some(&target), build_digest(&built), AttemptKind::Apply, now);
        if built.children.is_none()
            && seen.children.is_empty()
            && seen.has_all_of(&target, &dispatch, now)
            && let Some(next) = self.record_unchanged(seen, &attempt, &dispatch, now).await?
        {
            return Ok(next);
        }
        let children = match built.children.as_deref().map(serde_json::from_slice).transpose() {
            Ok(children) => children.unwrap_or_default(),
            Err(error) => return Err(HubError::Internal(format!("a stored build is not readable: {error}"))),
        };
        let finished = match self.finish_children(seen, &dispatch.groups, keys, given, children).await? {
            Ok(finished) => finished,
            Err(message) => return self.failed(seen, &target, Failed::to_build(message), now).await,
        };
        let FinishedChildren { children, unverified, decrypted_with: with } = finished;
        let mut warnings = self.builds.warnings(&built);
        warnings.extend(unverified);
        decrypted_with.extend(with);
        let dispatch = DispatchSpec {
            warnings: first_warnings(warnings),
            decrypted_with: decrypted_with.into_iter().take(MOST_NAMED).collect(),
            ..dispatch
        };
        let applied = self.apply_children(seen, &target.revision, children).await?;
        let AppliedChildren { mut changes, failure, denied } = match applied {
            Continue(applied) => applied,
            Break(later) => return Ok(now + later),
        };
        if let Some((reason, message)) = failure {
            let failed = Failed { reason, message, changes, denied };
            return self.failed(seen, &target, failed, now).await;
        }
        // Who takes over may be a child that was made just now.
        match self.change_owners(seen, target.cluster, &dispatch, now).await? {
            Continue(handed) => changes.extend(handed),
            Break(later) => {
                self.note_changes(seen, &changes).await?;
                return Ok(now + later);
            }
        }
        self.open(seen, &target, &attempt, &dispatch, &changes, now).await
    }

    /// Opens an attempt, which is sent from then on; `done` is what was done for it on the hub. Returns when it is given up.
    async fn open(
        &self,
        seen: &SeenApplier,
        target: &ReconcileTarget,
        attempt: &AttemptInputs,
        dispatch: &DispatchSpec,
        done: &ChangeSet,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let deadline = now + dispatch.timeout + GRACE;
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        tx.open_reconciliation(attempt, dispatch, deadline, done).await?;
        let revision = target.revision.to_string();
        seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision);
            // A regular pass over what is Ready does not blink in everyone's watch.
            if target.news {
                let message = "Reconciliation in progress";
                set_ready(status, ConditionStatus::Unknown, Reason::Progressing, message, generation, now);
                history::health_is_checked(status, &seen.applier.spec, generation, now);
            }
        })
        .await?;
        tx.commit().await?;
        Ok(deadline)
    }

    /// Records that the cluster has all of a new revision already: nothing is sent. None where that is not so any more.
    async fn record_unchanged(
        &self,
        seen: &SeenApplier,
        attempt: &AttemptInputs,
        dispatch: &DispatchSpec,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, HubError> {
        let revision = attempt.revision.as_ref().map_or_else(String::new, ToString::to_string);
        let applied = format!("Applied revision: {revision}");
        let told = format!("{applied}; it is the same as before, and nothing was sent to the cluster");
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(Some(now)) };
        if tx.record_unchanged(attempt, dispatch.digest(), &told).await?.is_none() {
            return Ok(None);
        }
        let request = attempt.request.clone();
        seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision.clone());
            status.last_applied_revision = Some(revision);
            status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
            let reason = Reason::ReconciliationSucceeded;
            set_ready(status, ConditionStatus::True, reason, &applied, generation, now);
            history::note(status, attempt, reason, now);
        })
        .await?;
        tx.commit().await?;
        // The planner knows when the cluster is to be looked at again.
        Ok(Some(now))
    }

    /// Says that the cluster's agent is too old for what is to be done.
    async fn hold_for_agent(
        &self,
        seen: &SeenApplier,
        message: &str,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        if self.note_held(seen, Reason::AgentTooOld, message, now).await? {
            log::applier_held(&seen.stored, message, false);
        }
        Ok(now + RECHECK)
    }

    /// Why the cluster's agent cannot carry this out, where it cannot.
    async fn too_old_agent(
        &self,
        on: ClusterUid,
        cluster: &str,
        dispatch: &DispatchSpec,
    ) -> Result<Option<String>, HubError> {
        // What agents of the first version can do, all can.
        if dispatch.lacking(&Capabilities::default()).is_none() {
            return Ok(None);
        }
        let Some(session) = self.store.session(on).await? else { return Ok(None) };
        let (version, capabilities) = (&session.agent_version, &session.capabilities);
        Ok(AgentOf { cluster, version, capabilities }.too_old_for(dispatch))
    }

    /// Records an attempt that failed before anything was dispatched.
    async fn failed(
        &self,
        seen: &SeenApplier,
        target: &ReconcileTarget,
        failed: Failed,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let Failed { reason, message, changes, denied } = failed;
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        let outcome = Outcome {
            health: BTreeMap::new(),
            reason,
            message: conditions::shortened(&message),
            change_set: changes,
            timings: Vec::new(),
        };
        let attempt = seen.attempt(Some(target), None, AttemptKind::Apply, now);
        tx.record_failed_reconciliation(&attempt, &outcome).await?;
        let revision = target.revision.to_string();
        let request = seen.situation.request.clone();
        let written = seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            status.last_attempted_revision = Some(revision);
            status.last_handled_reconcile_at = request.or(status.last_handled_reconcile_at.take());
            set_ready(status, ConditionStatus::False, reason, &message, generation, now);
        });
        if written.await?.is_some_and(|written| written.is_news) {
            events::on_denied_children(&mut tx, &stored, &denied).await?;
        }
        tx.commit().await?;
        let took = Duration::try_from(self.clock.now().duration_since(now)).unwrap_or_default();
        self.meters.reconciled(stored.uid, took);
        log::applier_failed(&seen.stored, &message);
        if matches!(reason, Reason::AccessDenied | Reason::ArtifactFailed) {
            // It is tried again by each pass over it, since what stands in its way is not its own: so it is not to be processed at once.
            return Ok(now + seen.situation.retry_interval);
        }
        // The planner knows when to try again.
        Ok(now)
    }

    async fn dispatch_delete(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        now: Timestamp,
    ) -> Result<Timestamp, HubError> {
        let gives_back =
            seen.situation.deleting && annotated::gives_back(&seen.stored.object).unwrap_or_default();
        let mut steps =
            if gives_back { vec![StepKind::GiveBack.into()] } else { vec![StepKind::Delete.into()] };
        let waits = seen.applier.spec.deletion_policy == Some(DeletionPolicy::WaitForTermination);
        if waits && seen.situation.deleting && !gives_back {
            steps.push(StepKind::Terminate.into());
        }
        let mut dispatch = seen.dispatch(Vec::new(), steps);
        // What a person deletes goes without a further word, and so does what is on a cluster that a person deletes.
        if !seen.situation.deleting && !matches!(seen.situation.target, Target::Leaving { .. }) {
            dispatch.guard = self.guard_of(seen, &dispatch);
        }
        if let Some(message) = self.too_old_agent(cluster, seen.cluster(), &dispatch).await? {
            return self.hold_for_agent(seen, &message, now).await;
        }
        let handed = match self.release_all(seen, cluster, now).await? {
            Continue(handed) => handed,
            Break(later) => return Ok(now + later),
        };
        if !handed.is_empty() {
            // What is left is known to the next pass: often that is nothing.
            self.note_changes(seen, &handed).await?;
            return Ok(now);
        }
        let deadline = now + dispatch.timeout + GRACE;
        let connected =
            self.store.session(cluster).await?.is_some_and(|session| session.disconnected.is_none());
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        let mut new = seen.attempt(None, None, AttemptKind::Delete, now);
        new.cluster = Some(cluster);
        tx.open_reconciliation(&new, &dispatch, deadline, &ChangeSet::new()).await?;
        seen.write_status(&mut tx, &mut stored, now, |status, generation| {
            let (reason, message) = if connected {
                let giving = "giving back to Flux what it owns on its cluster";
                let deleting = "deleting what it owns on its cluster";
                (Reason::Progressing, if gives_back { giving } else { deleting })
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
        seen: &SeenApplier,
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
        let closed =
            tx.finish_reconciliation(seen.situation.uid, open.attempt, cluster, &outcome, now).await?;
        if let Some(closed) = closed {
            seen.write_status(&mut tx, &mut stored, now, |status, generation| {
                set_ready(status, ConditionStatus::False, reason, &message, generation, now);
            })
            .await?;
            tx.wake(Topic::Dispatch);
            log::applier_failed(&seen.stored, &message);
            if let Some(trace) = closed.trace {
                traces::ended(&Ended {
                    trace,
                    of: &seen.stored,
                    cluster: seen.cluster(),
                    attempt: open.attempt,
                    inputs: &open.inputs,
                    steps: &[],
                    timings: &[],
                    reason,
                    came: now,
                    recorded: now,
                });
            }
        }
        tx.commit().await?;
        Ok(now)
    }

    async fn release(&self, seen: &SeenApplier, orphaned: Option<&str>) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(stored) = seen.unchanged(&mut tx).await? else { return Ok(now) };
        if let Some(cluster) = seen.situation.last.as_ref().and_then(|last| last.cluster) {
            tx.rest(seen.situation.uid, cluster, false).await?;
        }
        tx.orphan(seen.situation.uid).await?;
        tx.forget_reconciliations(seen.situation.uid).await?;
        triggers::let_go(&mut tx, &stored, now).await?;
        if let Some(orphaned) = orphaned {
            events::note(&mut tx, &stored, "Warning", Reason::PruneFailed.as_str(), orphaned, now).await?;
        }
        tx.commit().await?;
        log::applier_released(&seen.stored, orphaned);
        Ok(now + LONG)
    }

    /// Writes a changed status; false where it is as it was, and nothing was written.
    pub(crate) async fn update_status(
        &self,
        seen: &SeenApplier,
        now: Timestamp,
        change: impl FnOnce(&mut ApplierStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        self.update_status_telling(seen, now, None, change).await
    }

    /// The same, where what Ready says is told in another way than it stands there.
    async fn update_status_telling(
        &self,
        seen: &SeenApplier,
        now: Timestamp,
        news: Option<News>,
        change: impl FnOnce(&mut ApplierStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = seen.unchanged(&mut tx).await? else { return Ok(false) };
        let suspended = seen.situation.suspended;
        let written = write_status_telling(&mut tx, &mut stored, suspended, now, change, news).await?;
        if written.is_some() {
            tx.commit().await?;
        }
        Ok(written.is_some())
    }
}

/// Changes a Kustomization's status in `tx`. None where nothing changed; then nothing is written.
pub(crate) async fn write_status(
    tx: &mut Tx,
    stored: &mut Stored,
    suspended: bool,
    now: Timestamp,
    change: impl FnOnce(&mut ApplierStatus, i64) + Send,
) -> Result<Option<WrittenStatus>, HubError> {
    write_status_telling(tx, stored, suspended, now, change, None).await
}

/// The same, where what Ready says is told in another way than it stands there.
async fn write_status_telling(
    tx: &mut Tx,
    stored: &mut Stored,
    suspended: bool,
    now: Timestamp,
    change: impl FnOnce(&mut ApplierStatus, i64) + Send,
    news: Option<News>,
) -> Result<Option<WrittenStatus>, HubError> {
    let change = |status: &mut AnyApplierStatus, generation| {
        let status = &mut status.applier;
        if !suspended {
            status.conditions.retain(|condition| condition.type_ != SUSPENDED);
        }
        change(status, generation);
    };
    Ok(status::write_telling::<AnyApplier>(tx, stored, now, change, |_, _| news).await?)
}

/// Sets Ready with what follows from it; and the generation that was processed where it went through, or is not tried again by
/// itself.
pub(crate) fn set_ready(
    status: &mut ApplierStatus,
    ready: ConditionStatus,
    reason: Reason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    conditions::set_ready(&mut status.conditions, ready, reason, message, generation, now);
    if ready == ConditionStatus::True || conditions::is_stalled(ready, reason) {
        status.observed_generation = Some(generation);
    }
}

/// What the history names as the build of an attempt: of several groups, one digest that changes with each of them.
fn build_digest(build: &CachedBuild) -> Option<Digest> {
    match build.groups.as_slice() {
        [] => None,
        [only] => Some(only.objects),
        groups => {
            let digests: Vec<String> = groups.iter().map(|group| group.objects.to_string()).collect();
            Some(Digest::of(digests.join("\n").as_bytes()))
        }
    }
}
