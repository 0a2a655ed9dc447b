//! What agents are sent and what came of it: dispatches, what they are about to own, and their results.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::kustomization::{InventoryEntry, ResourceInventory};
use roadstead_api::{AnyApplier, ConditionStatus};
use roadstead_hub_store::{AttemptInputs, Closed, OpenAttempt, Outcome, Stored};
use roadstead_model::{
    ApplierRef, AttemptKind, Capabilities, Capability, ChangeSet, Digest, Dispatch, DispatchKey,
    DispatchSpec, FoundVariables, Held, ObjectRef, ObjectResult, Queue, ReadObject, Reason, StepKind,
    StepTiming, chain,
};

use crate::clusters::Session;
use crate::delivery::Delivery;
use crate::delivery::children::{self, Awaited, Children};
use crate::delivery::decryption::decrypted_with;
use crate::delivery::drift;
use crate::delivery::history;
use crate::delivery::holds::Waits;
use crate::delivery::reconcile::{GRACE, set_ready, write_status};
use crate::delivery::situation::is_held;
use crate::delivery::traces::{self, Ended};
use crate::delivery::unverified;
use crate::delivery::variables::lookups;
use crate::objects::conditions::{self, READY};
use crate::objects::events;
use crate::{HubError, log};

/// At most so many dispatches are handed out at once; the rest follows when these are under way.
const BATCH: i64 = 64;
/// A pass that is due sooner than this is not left to the timer, which the loop of passes may oversleep.
const NAP: Duration = Duration::from_secs(10);
/// So long after it was planned a dispatch may begin.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Two announcements of one new object at the same instant: the loser's second try finds the winner.
const ANNOUNCE_TRIES: usize = 3;

/// What came of a dispatch.
#[derive(Debug, Clone)]
pub struct DispatchResult {
    /// The dispatch.
    pub key: DispatchKey,
    /// Where and why it failed, if it did.
    pub failure: Option<DispatchFailure>,
    /// What it did.
    pub change_set: ChangeSet,
    /// What is owned now.
    pub inventory: Vec<ObjectRef>,
    /// How long the stages of its steps took.
    pub timings: Vec<StepTiming>,
    /// What its read steps found.
    pub reads: Vec<ReadObject>,
    /// What held variables and was found in the cluster.
    pub found: Vec<FoundVariables>,
    /// Deletions that wait for a person's confirmation.
    pub held: Vec<Held>,
    /// What somebody should look at though it did not fail.
    pub warnings: Vec<String>,
    /// The cluster's master keys that it was decrypted with, by kind and name.
    pub decrypted_with: Vec<String>,
}

/// Why a dispatch failed.
#[derive(Debug, Clone)]
pub struct DispatchFailure {
    /// The index of the step that failed, where one did and the agent told it.
    pub step: Option<usize>,
    /// Why, in a word.
    pub reason: Reason,
    /// The object and the cause.
    pub message: String,
    /// The agent stopped before it was done; the same dispatch is to be sent again.
    pub cancelled: bool,
}

impl DispatchFailure {
    /// For people. Of several groups, which step it was of says more than the stage.
    fn told(&self, spec: &DispatchSpec) -> String {
        let step = self.step.filter(|_| spec.groups.len() > 1);
        match step.and_then(|index| Some((index, spec.steps.get(index)?))) {
            Some((index, step)) => format!("step {} ({}): {}", index + 1, step.label, self.message),
            None => self.message.clone(),
        }
    }
}

/// What [`Delivery::take_dispatches`] took.
#[derive(Debug)]
pub struct TakenDispatches {
    /// Not complete yet.
    pub dispatches: Vec<Dispatch>,
    /// Whether there may be more of them.
    pub more: bool,
}

impl Delivery {
    /// Some of the dispatches that this session has not been sent yet, not [complete](Self::complete_dispatch) yet. From now on they count
    /// as sent.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn take_dispatches(&self, session: &Session) -> Result<TakenDispatches, HubError> {
        let takes_groups = session.capabilities.has(Capability::Groups);
        loop {
            let batch = self.store.take_to_send(session.cluster, session.id, BATCH).await?;
            // What is opened from now on wakes the session again.
            let (more, mut taken) = (batch.more, Vec::with_capacity(batch.dispatches.len()));
            for to_send in batch.dispatches {
                let (key, mut spec) = (to_send.key(takes_groups), to_send.spec);
                let agent = AgentOf {
                    cluster: &session.name,
                    version: &session.agent_version,
                    capabilities: &session.capabilities,
                };
                if let Some(message) = agent.too_old_for(&spec) {
                    // It was planned for another agent, which this one has taken the place of, and is closed as that one knows it.
                    let key = DispatchKey { digest: Some(spec.digest()), ..key };
                    self.lost(session, &key, Reason::AgentTooOld, message).await?;
                    continue;
                }
                if !session.capabilities.has(Capability::Guard) {
                    spec.guard = None;
                }
                // A deletion does not wait for another agent because of its Event.
                spec.cluster_events &= session.capabilities.has(Capability::ClusterEvents);
                session.sent.add(&key, &spec.steps);
                if let Some(trace) = to_send.trace {
                    traces::sent(trace, key.attempt, to_send.started, &session.name);
                }
                taken.push(Dispatch {
                    key,
                    spec,
                    inventory: Vec::new(),
                    given: Vec::new(),
                    data_keys: Vec::new(),
                    trace: to_send.trace.map(|trace| traces::of_attempt(trace, to_send.attempt)),
                });
            }
            if !more || !taken.is_empty() {
                return Ok(TakenDispatches { dispatches: taken, more });
            }
        }
    }

    /// Adds to a dispatch what its applier owns, and the variables and data keys that the hub has for it. Just before it is sent, so that those of
    /// many are never in memory at once.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn complete_dispatch(
        &self,
        session: &Session,
        dispatch: &mut Dispatch,
    ) -> Result<(), HubError> {
        dispatch.inventory = self.store.inventory(session.cluster, dispatch.key.applier).await?;
        dispatch.given = self.given_variables(&dispatch.spec).await?;
        dispatch.data_keys = self.given_keys(&dispatch.spec).await?;
        Ok(())
    }

    /// Records what a dispatch is about to own, before anything is written. Returns the objects that others own, with
    /// their owners; then nothing was recorded and nothing may be written.
    ///
    /// # Errors
    /// `Gone` where the dispatch is not one that is open for the session's cluster; `BadRequest` where objects are not of its
    /// build; `Conflict` where this is not the cluster's session any more; else where the database fails.
    pub async fn announce(
        &self,
        session: &Session,
        key: &DispatchKey,
        objects: &[ObjectRef],
    ) -> Result<Vec<(ObjectRef, ApplierRef)>, HubError> {
        if self.store.is_announced(key, session.cluster, session.id, objects).await? {
            return Ok(Vec::new());
        }
        for _ in 1..ANNOUNCE_TRIES {
            match self.try_announce(session, key, objects).await {
                Err(HubError::Store(error)) if error.is_unique_violation() => {}
                result => return result,
            }
        }
        self.try_announce(session, key, objects).await
    }

    async fn try_announce(
        &self,
        session: &Session,
        key: &DispatchKey,
        objects: &[ObjectRef],
    ) -> Result<Vec<(ObjectRef, ApplierRef)>, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(spec) = tx.hold_open_attempt(key, session.cluster, session.id).await? else {
            drop(tx);
            self.sessions.must_be_current(session).await?;
            return Err(HubError::Gone("the dispatch was superseded".to_owned()));
        };
        let (cluster, owner) = (session.cluster, key.applier);
        let builds = spec.groups.iter().map(|group| group.objects);
        let substituted = spec.groups.iter().any(|group| group.substitute.is_some());
        let namespace = spec.default_namespace();
        let outside = tx.outside_build(cluster, owner, builds, substituted, namespace, objects).await?;
        // What a Flux there has applied, and what was owned when the database was restored, the agent alone can see: it may say what of that
        // it is going to own.
        let is_its_to_say = !outside.is_empty()
            && (spec.adopts_inventories() || tx.is_first_since_restore(owner, key.attempt).await?);
        if !outside.is_empty() && !is_its_to_say {
            let named: Vec<String> = outside.iter().map(ToString::to_string).collect();
            return Err(HubError::BadRequest(format!(
                "these objects are not in the dispatch's build: {}",
                named.join(", ")
            )));
        }
        let contested = tx.announce(session.cluster, key.applier, objects).await?;
        if contested.is_empty() {
            tx.commit().await?;
            return Ok(Vec::new());
        }
        drop(tx);
        let mut named = Vec::with_capacity(contested.len());
        for contested in contested {
            let owner = self.store.get_by_uid(contested.owner.into()).await?;
            let owner = match owner {
                Some(owner) => owner.applier_ref(),
                None => ApplierRef::kustomization("", &contested.owner.to_string()),
            };
            named.push((contested.object, owner));
        }
        Ok(named)
    }

    /// Records what came of a dispatch: inventory, status, history; and has the planner look at what follows.
    ///
    /// # Errors
    /// Where the database fails; then it has not been recorded, and is to be told again.
    pub async fn dispatch_finished(
        &self,
        session: &Session,
        result: &DispatchResult,
    ) -> Result<(), HubError> {
        let key = &result.key;
        let begun = self.store.open_attempt(key, session.cluster, session.id).await?;
        let trace = begun.as_ref().and_then(|begun| begun.trace).filter(|_| roadstead_trace::is_on());
        let trace = trace.map(|trace| traces::of_attempt(trace, key.attempt));
        roadstead_trace::within(trace, self.record_result(session, result, begun)).await
    }

    async fn record_result(
        &self,
        session: &Session,
        result: &DispatchResult,
        begun: Option<OpenAttempt>,
    ) -> Result<(), HubError> {
        let key = &result.key;
        if begun.as_ref().is_none_or(|begun| !begun.is_current) {
            self.sessions.must_be_current(session).await?;
        }
        if let Some(DispatchFailure { cancelled: true, .. }) = result.failure {
            // The agent went down, or a newer dispatch came: what is open is sent again in the next session.
            return Ok(());
        }
        let now = self.clock.now();
        let Some(begun) = begun else { return Ok(()) };
        let health = session.sent.close(key);
        let (inputs, spec) = (begun.reconciliation.inputs, begun.spec);
        let unasked;
        let result = match misread(result, &spec) {
            Some(failure) if result.failure.is_none() => {
                unasked = DispatchResult { failure: Some(failure), reads: Vec::new(), ..result.clone() };
                &unasked
            }
            _ => result,
        };
        let named;
        let result = match self.with_near_names(result, &spec).await? {
            Some(failure) => {
                named = DispatchResult { failure: Some(failure), ..result.clone() };
                &named
            }
            None => result,
        };
        let Awaited { children, mut late, prunes, all } =
            if begun.has_children { self.awaited(key.applier).await? } else { Awaited::default() };
        if result.failure.is_some() || inputs.kind != AttemptKind::Apply {
            late.clear();
        }
        let has_any = !(all.wanted.is_empty() && all.dropped.is_empty());
        let all = if prunes { all } else { Children { dropped: Vec::new(), ..all } };
        let held = if result.held.is_empty() && all.dropped.is_empty() {
            None
        } else {
            self.waits_after(result, &spec, inputs.kind, &all).await?
        };
        let waits;
        let (result, held) = match held {
            Some(Waits { failure, held }) => {
                waits = DispatchResult { failure: Some(failure), ..result.clone() };
                (&waits, Some(held))
            }
            None => (result, None),
        };
        let mut tx = self.store.begin().await?;
        // Always the object first, then its reconciliation: two units of work that touch both cannot lock each other.
        let Some(mut stored) = tx.get_by_uid(key.applier.into()).await? else { return Ok(()) };
        let timings = labelled(&result.timings, &spec);
        let unverified =
            if inputs.kind == AttemptKind::Apply { unverified::told(&spec, result) } else { None };
        let outcome = Outcome { health, timings, ..outcome(result, &inputs, &spec) };
        let message = unverified::beside(&outcome.message, unverified.as_deref());
        let recorded = Outcome { message, ..outcome.clone() };
        let closed =
            tx.finish_reconciliation(key.applier, key.attempt, session.cluster, &recorded, now).await?;
        let Some(Closed { change_set, wanted, drifts, .. }) = closed else { return Ok(()) };
        if let Some(held) = &held {
            tx.hold_deletion(key.applier, held, now).await?;
        }
        let wrote = |result: &ObjectResult| result.action.wrote();
        if inputs.kind == AttemptKind::Read {
            tx.keep_facts(key.applier, key.attempt, &result.reads).await?;
        } else {
            let groups = if result.change_set.iter().any(wrote) { spec.groups.as_slice() } else { &[] };
            let written: Vec<Digest> = groups.iter().map(|group| group.objects).collect();
            tx.settle(session.cluster, key.applier, key.attempt, &result.inventory, &written).await?;
        }
        let applier: AnyApplier = stored.decode()?;
        let succeeded = result.failure.is_none();
        let is_settled = succeeded
            && inputs.kind == AttemptKind::Apply
            && drift::settle(&mut tx, key.applier, drifts, &result.change_set, now).await?;
        let only_read = succeeded && inputs.kind == AttemptKind::Read;
        let mut passed = None;
        write_status(&mut tx, &mut stored, applier.spec.suspend, now, |status, _| {
            // What it has read is rendered by now, and that is the answer.
            if only_read {
                return;
            }
            status.last_handled_reconcile_at =
                inputs.request.clone().or(status.last_handled_reconcile_at.take());
            if inputs.kind == AttemptKind::Apply {
                status.lookups = lookups(&spec, &result.found);
                status.decrypted_with = decrypted_with(&spec, result);
            }
            status.inventory = Some(inventory(result.inventory.iter().chain(&children)));
            let revision = inputs.revision.as_ref().map(ToString::to_string);
            if succeeded && inputs.kind == AttemptKind::Apply && late.is_empty() {
                status.last_applied_revision.clone_from(&revision);
            }
            // A newer attempt that failed in the hub has the last word, though this one ends after it.
            let other = |newer: &String| revision.as_ref().is_some_and(|revision| revision != newer);
            let seen = conditions::ready(&status.conditions).and_then(|ready| ready.observed_generation);
            if seen.is_some_and(|newer| newer > inputs.generation.0)
                || status.last_attempted_revision.as_ref().is_some_and(other)
            {
                return;
            }
            status.last_attempted_revision = revision.or(status.last_attempted_revision.take());
            let waits = children::waits_for(&late);
            let (ready, reason, message) = match (succeeded, inputs.kind == AttemptKind::Delete) {
                // What follows is another attempt, or the end of the object.
                (true, true) => (ConditionStatus::Unknown, Reason::Progressing, &outcome.message),
                (true, false) if !late.is_empty() => (ConditionStatus::Unknown, Reason::Progressing, &waits),
                (ready, _) => (ConditionStatus::from(ready), outcome.reason, &outcome.message),
            };
            set_ready(status, ready, reason, message, inputs.generation.0, now);
            if succeeded && inputs.kind == AttemptKind::Apply {
                unverified::set(&mut status.conditions, unverified.as_deref(), inputs.generation.0, now);
            }
            if is_settled {
                drift::clear(status);
            }
            passed = history::note_health(status, &applier.spec, &outcome, inputs.generation.0, now);
            history::note(status, &inputs, outcome.reason, now);
        })
        .await?;
        if inputs.kind != AttemptKind::Read {
            events::on_changes(&mut tx, &stored, &change_set, now).await?;
        }
        if let Some(unverified) = &unverified {
            unverified::note(&mut tx, &stored, unverified, now).await?;
        }
        // As Flux tells it: of what was changed and has become healthy.
        if let Some(passed) = passed.filter(|_| change_set.iter().any(wrote)) {
            events::note(&mut tx, &stored, "Normal", Reason::Progressing.as_str(), &passed, now).await?;
        }
        let next = now + roadstead_hub_plan::jittered(applier.spec.interval.0, key.applier);
        let rests = !has_any && next > now + NAP && !is_held(&applier) && is_done(&stored, &inputs)?;
        if !rests {
            tx.enqueue(Queue::Applier, &[stored.uid]).await?;
        }
        tx.commit().await?;
        if let Some(trace) = begun.trace {
            traces::ended(&Ended {
                trace,
                of: &stored,
                cluster: &session.name,
                attempt: key.attempt,
                inputs: &inputs,
                steps: &spec.steps,
                timings: &outcome.timings,
                reason: outcome.reason,
                came: now,
                recorded: self.clock.now(),
            });
        }
        let took = since(inputs.started, now);
        if inputs.kind == AttemptKind::Apply {
            self.meters.reconciled(stored.uid, took);
            self.meters.dispatched(stored.kind, &outcome.timings, took);
        }
        match (succeeded, inputs.kind) {
            (true, AttemptKind::Apply) => log::applier_applied(&stored, took, &change_set),
            (true, AttemptKind::Delete) => log::applier_pruned(&stored, took, &change_set),
            (true, AttemptKind::Read) => {}
            (false, _) => log::applier_failed(&stored, &outcome.message),
        }
        if rests {
            let (queue, deadline) = (Queue::Applier, begun.reconciliation.deadline);
            // Where it stays there is one pass more, which finds nothing to do.
            if let Err(error) = self.store.move_next_pass(queue, stored.uid, wanted, deadline, next).await {
                tracing::debug!(kustomization = %stored, error = chain(&error), "could not move the next pass");
            }
        }
        Ok(())
    }

    /// Records which dispatches wait in the agent, and which have begun so long ago after they waited: what they may take counts
    /// from then.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn backlog_reported(
        &self,
        session: &Session,
        waiting: &[DispatchKey],
        started: &[(DispatchKey, Duration)],
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let waits = waiting.iter().map(|key| (key, None));
        let begun = started.iter().map(|(key, ago)| (key, Some(now - *ago)));
        let told: Vec<_> = waits.chain(begun).collect();
        self.store.move_deadlines(session.cluster, session.id, &told, MAX_WAIT, GRACE).await?;
        Ok(())
    }

    /// Records that nothing more will come of a dispatch: the agent does not know what is asked of it, or the hub cannot
    /// read what it tells. What was announced stays owned.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn dispatch_lost(
        &self,
        session: &Session,
        key: &DispatchKey,
        why: &str,
    ) -> Result<(), HubError> {
        let message = format!("the dispatch to the agent of cluster {} failed: {why}", session.name);
        self.lost(session, key, Reason::ReconciliationFailed, message).await
    }

    async fn lost(
        &self,
        session: &Session,
        key: &DispatchKey,
        reason: Reason,
        message: String,
    ) -> Result<(), HubError> {
        if self.store.open_attempt(key, session.cluster, session.id).await?.is_none() {
            return Ok(());
        }
        let inventory = self.store.inventory(session.cluster, key.applier).await?;
        let failure = DispatchFailure { step: None, reason, message, cancelled: false };
        let result = DispatchResult {
            key: key.clone(),
            failure: Some(failure),
            change_set: ChangeSet::new(),
            inventory,
            timings: Vec::new(),
            reads: Vec::new(),
            found: Vec::new(),
            held: Vec::new(),
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
        };
        self.dispatch_finished(session, &result).await
    }
}

/// Why what an agent says that it has read cannot be: it is not believed to have read what it was asked for.
fn misread(result: &DispatchResult, spec: &DispatchSpec) -> Option<DispatchFailure> {
    let asked = spec.steps.iter().flat_map(|step| match &step.kind {
        StepKind::Read { objects } => objects.as_slice(),
        _ => &[],
    });
    let is_json = |read: &ReadObject| {
        read.json.as_deref().is_none_or(|json| serde_json::from_slice::<serde::de::IgnoredAny>(json).is_ok())
    };
    let whole = asked.eq(result.reads.iter().map(|read| &read.object)) && result.reads.iter().all(is_json);
    let message = "the cluster's agent has read something other than what it was asked for".to_owned();
    let reason = Reason::ReconciliationFailed;
    (!whole).then_some(DispatchFailure { step: None, reason, message, cancelled: false })
}

fn outcome(result: &DispatchResult, inputs: &AttemptInputs, spec: &DispatchSpec) -> Outcome {
    let deletes = inputs.kind == AttemptKind::Delete;
    let (reason, message) = match &result.failure {
        Some(failure) if deletes && failure.reason != Reason::DeletionHeld => {
            (Reason::PruneFailed, failure.message.clone())
        }
        Some(failure) => (failure.reason, failure.told(spec)),
        None if deletes => {
            (Reason::ReconciliationSucceeded, "deleted what it owned on its cluster".to_owned())
        }
        None if inputs.kind == AttemptKind::Read => {
            let read = format!("read {} objects of the cluster, to render by", result.reads.len());
            (Reason::ReconciliationSucceeded, read)
        }
        None => {
            let revision = inputs.revision.as_ref().map_or_else(String::new, ToString::to_string);
            (Reason::ReconciliationSucceeded, format!("Applied revision: {revision}"))
        }
    };
    Outcome {
        reason,
        message: conditions::shortened(&message),
        change_set: result.change_set.clone(),
        timings: result.timings.clone(),
        health: BTreeMap::new(),
    }
}

/// Whether what was attempted is what is wanted, as far as the object tells, and all of it is done: then nothing is left to do until
/// the interval is over or something changes, which asks for a pass itself. A newer attempt that failed in the hub is to be tried
/// again before.
fn is_done(stored: &Stored, inputs: &AttemptInputs) -> Result<bool, HubError> {
    let AnyApplier { spec, status, .. } = stored.decode()?;
    let status = status.unwrap_or_default().applier;
    Ok(inputs.kind == AttemptKind::Apply
        && stored.deletion_timestamp.is_none()
        && !spec.suspend
        && stored.generation == inputs.generation.0
        && status.last_attempted_revision == inputs.revision.as_ref().map(ToString::to_string)
        && conditions::is_true(&status.conditions, READY, stored.generation))
}

/// The timings with the labels of their steps. Those of steps that were not dispatched are left out.
fn labelled(timings: &[StepTiming], spec: &DispatchSpec) -> Vec<StepTiming> {
    let is_known = |timing: &&StepTiming| timing.step.is_none_or(|step| step < spec.steps.len());
    let label = |step: Option<usize>| Some(spec.steps.get(step?)?.label.clone());
    let timings = timings.iter().filter(is_known);
    timings.map(|timing| StepTiming { label: label(timing.step), ..timing.clone() }).collect()
}

/// The agent of a cluster, for people.
#[derive(Clone, Copy)]
pub(crate) struct AgentOf<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) version: &'a str,
    pub(crate) capabilities: &'a Capabilities,
}

impl AgentOf<'_> {
    /// Why this agent cannot carry a dispatch out; none where it can.
    pub(crate) fn too_old_for(&self, spec: &DispatchSpec) -> Option<String> {
        let lacking = spec.lacking(self.capabilities)?;
        let (number, label, capability) = (lacking.index + 1, lacking.label, lacking.capability.name());
        Some(format!(
            "step {number} ({label}) needs an agent with the capability '{capability}', which the agent of cluster {}, \
             version {}, does not have: upgrade that agent. Nothing was sent to it",
            self.cluster, self.version
        ))
    }
}

/// As v1 lists it: `<namespace>_<name>_<group>_<kind>`, a `:` in a name written `__`.
fn inventory<'a>(objects: impl Iterator<Item = &'a ObjectRef>) -> ResourceInventory {
    let mut objects: Vec<&ObjectRef> = objects.collect();
    objects.sort_unstable();
    let entries = objects
        .into_iter()
        .map(|object| InventoryEntry {
            id: format!(
                "{}_{}_{}_{}",
                object.namespace,
                object.name.replace(':', "__"),
                object.group,
                object.kind
            ),
            v: object.version.clone(),
        })
        .collect();
    ResourceInventory { entries }
}

fn since(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
