//! One dispatch, step by step: the build, what the hub says to the inventory, apply, prune, wait, delete. What is done with a group's
//! objects before they are applied, hooks and reads have files of their own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, MaybeDone, maybe_done, select};
use roadstead_agent_policy::{Account, Policy};
use roadstead_apply::{Desired, Error, Event, HealthRules, IgnoreRules, Manifest, Outcome, Run};
use roadstead_budget::Reservation;
use roadstead_model::{
    Action, ApplierRef, ChangeSet, Digest, Dispatch, DispatchSpec, FoundVariables, GoDuration, Group, Held,
    ObjectRef, OnImmutable, Position, Purpose, ReadObject, ServiceAccount, Stage, StepKind, StepTiming,
};
use roadstead_places::Places;
use roadstead_proto::limits::MAX_HELD;
use roadstead_proto::{Failure, Finished, InventoryAck, InventoryIntent, ObjectHealth, OwnedByAnother};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::builds::{BuildError, Builds, Unpacked};
use crate::cluster::{Cluster, Until};
use crate::health::Healths;
use crate::inputs::{Input, Inputs};
use crate::keep::Keep;
use crate::keys::KeyServices;
use crate::outbox::Outbox;
use crate::runner::guarding;
use crate::runner::turn::{Cancelled, Turn};
use crate::tend::{Book, CorrectionOutcome, Drift, Tended};

/// How many other owners a message names.
const MAX_NAMED: usize = 10;

/// What a dispatch is carried out with.
pub(super) struct Work<'a, C> {
    pub(super) outbox: &'a Arc<Outbox>,
    pub(super) builds: &'a Builds,
    pub(super) cluster: &'a C,
    pub(super) places: &'a Places,
    pub(super) tended: &'a Arc<Tended>,
    pub(super) healths: &'a Healths,
    pub(super) keys: &'a Arc<KeyServices>,
    pub(super) keep: &'a Keep,
    pub(super) inputs: &'a Inputs,
}

/// What came of asking for a group's objects.
pub(super) struct Fetched {
    digest: Digest,
    pub(super) unpacked: Result<Unpacked, BuildError>,
    took: Duration,
}

/// What was done so far.
#[derive(Default)]
pub(super) struct Record {
    pub(super) change_set: ChangeSet,
    pub(super) inventory: Vec<ObjectRef>,
    timings: Vec<StepTiming>,
    pub(super) reads: Vec<ReadObject>,
    /// What held variables and was found in the cluster.
    pub(super) found: Vec<FoundVariables>,
    /// The index of the step that it is at.
    step: Option<usize>,
    /// What the groups hold that were applied, by their indices.
    pub(super) applied: BTreeMap<usize, Vec<ObjectRef>>,
    /// What came from inventories of Flux's.
    pub(super) claimed: Vec<ObjectRef>,
    /// Deletions that wait for a person's confirmation.
    pub(super) held: Vec<Held>,
    /// The cluster's master keys that it was decrypted with, by kind and name.
    pub(super) decrypted_with: BTreeSet<String>,
    /// What of the cluster it was made with, as it was read: keys, and variables whose changes are to be heard of.
    pub(super) inputs: Vec<Input>,
    /// What somebody should look at though it did not fail.
    pub(super) warnings: Vec<String>,
    /// The cluster's own policy, and when it was read.
    pub(super) policy: Option<(Arc<Policy>, Instant)>,
    /// What is set aside for the group that is worked on.
    pub(super) memory: Option<Reservation>,
}

impl Record {
    pub(super) fn spent(&mut self, stage: Stage, micros: u64) {
        let step = self.step;
        match self.timings.iter_mut().find(|timing| timing.step == step && timing.stage == stage) {
            Some(timing) => timing.micros = timing.micros.saturating_add(micros),
            None => self.timings.push(StepTiming { step, label: None, stage, micros }),
        }
    }

    pub(super) fn spent_since(&mut self, stage: Stage, since: Instant) {
        self.spent(stage, u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn take(&mut self, outcome: Outcome) -> Result<(), Box<Failure>> {
        let Outcome { changes, inventory, held, timings, error } = outcome;
        self.change_set.extend(changes);
        self.held.extend(held.iter().map(guarding::volume));
        self.inventory = inventory;
        for timing in timings {
            self.spent(timing.stage, timing.micros);
        }
        error.map_or(Ok(()), |error| Err(failure(&error)))
    }
}

pub(super) fn failed(stage: Stage, message: impl Into<String>) -> Box<Failure> {
    let position = Position { step: None, stage };
    Box::new(Failure { position, message: message.into(), object: None, cancelled: false })
}

pub(super) fn cancelled(stage: Stage, doing: &str) -> Box<Failure> {
    Box::new(Failure { cancelled: true, ..*failed(stage, format!("cancelled while {doing}")) })
}

pub(super) fn failure(error: &Error) -> Box<Failure> {
    failure_while(error.stage(), error)
}

pub(super) fn failure_while(stage: Stage, error: &Error) -> Box<Failure> {
    let object = match error {
        Error::Objects { causes, total: 1, .. } => causes.first().map(|cause| cause.first.object.clone()),
        Error::NotHealthy { unhealthy, total: 1, .. } => unhealthy.first().map(|sick| sick.object.clone()),
        _ => None,
    };
    let cancelled = matches!(error, Error::Cancelled { .. });
    Box::new(Failure { object, cancelled, ..*failed(stage, error.to_string()) })
}

/// What is to be pruned that is not in the dispatch's inventory.
#[derive(Debug, Default)]
pub(super) struct Unlisted {
    /// Owned, and not known to a hub whose database was restored. The hub is told.
    pub(super) lost: Vec<ObjectRef>,
    /// Back after its deletion, since the cluster's etcd was restored: it bears the owner's label, and nobody owns it.
    pub(super) returned: Vec<ObjectRef>,
}

impl<C: Cluster> Work<'_, C> {
    /// Carries out all steps, or those up to one that fails. Gives what differs, too, where that is only observed.
    pub(super) async fn carry_out(
        &self,
        dispatch: &Dispatch,
        Unlisted { lost, returned }: &Unlisted,
        cancel: CancellationToken,
    ) -> (Finished, CorrectionOutcome) {
        let began = Instant::now();
        let cluster = self.cluster.acting_as(dispatch.spec.service_account.as_ref());
        let DispatchSpec { full, observe, .. } = dispatch.spec;
        let book = Book::of(self.tended, dispatch.key.applier, full);
        let book = Arc::new(if observe { book.with_differences() } else { book });
        let cluster = cluster.with_ledger(Arc::clone(&book) as Arc<_>);
        let cluster = if observe { cluster.observing() } else { cluster };
        let cluster = cluster.under(dispatch.spec.guard.as_ref());
        let (cluster, unreadable) = match HealthRules::new(&dispatch.spec.health) {
            Ok(rules) if rules.is_empty() => (cluster, None),
            Ok(rules) => (cluster.with_health(Arc::new(rules)), None),
            Err(error) => (cluster, Some(error)),
        };
        let account = dispatch.spec.service_account.clone();
        let account = account.map(|ServiceAccount { namespace, name }| Account { namespace, name });
        let on = On { dispatch, lost, returned, cancel: &cancel, cluster: &cluster, account, step: None };
        let inventory = dispatch.inventory.iter().chain(lost).cloned().collect();
        let mut record = Record { inventory, ..Record::default() };
        // Validation, apply and health share one deadline; it begins with the first of them.
        let mut deadline = None;
        // The first group comes while the policy is read; nothing is done with it before that lets the dispatch in.
        let mut ahead = pin!(maybe_done(self.first_group(&on)));
        let Self { places, outbox, .. } = *self;
        let mut turn = Turn { places, outbox, dispatch, cancel: &cancel, place: None };
        let mut failure = match (turn.take().await, unreadable) {
            (Err(Cancelled), _) => Some(on.never_had_its_turn()),
            (Ok(()), Some(error)) => Some(failed(Stage::Finish, error.to_string())),
            (Ok(()), None) => {
                let admitted = async {
                    match select(pin!(self.admit(&on, &mut record)), ahead.as_mut()).await {
                        Either::Left((admitted, _)) => admitted,
                        Either::Right(((), admit)) => admit.await,
                    }
                };
                turn.work(admitted).await.err()
            }
        };
        let steps = if failure.is_none() { dispatch.spec.steps.as_slice() } else { &[] };
        for (index, step) in steps.iter().enumerate() {
            record.step = Some(index);
            let on = on.at(index);
            if let StepKind::Wait { .. } = step.kind {
                turn.give_up();
            } else {
                let asked = Instant::now();
                if let Err(Cancelled) = turn.take().await {
                    failure = Some(on.at_its_step(*on.never_had_its_turn()));
                    break;
                }
                // The time that others took is not the dispatch's.
                deadline = deadline.map(|until| until + asked.elapsed());
            }
            let done =
                turn.work(self.step(&on, &step.kind, ahead.as_mut(), &mut deadline, &mut record)).await;
            record.memory = None;
            if let Err(reason) = done {
                failure = Some(on.at_its_step(*reason));
                break;
            }
        }
        drop(turn);
        self.tell_of_changes(&on, &mut record).await;
        log(dispatch, began.elapsed(), &record, failure.as_deref());
        if dispatch.spec.purpose == Purpose::Reconcile && !cancel.is_cancelled() {
            let inputs = std::mem::take(&mut record.inputs);
            if self.inputs.ended(&dispatch.key, &inputs) {
                outbox.keys_changed(dispatch.key.clone());
            }
        }
        let Record { change_set, inventory, timings, reads, mut found, mut held, .. } = record;
        let Record { warnings, decrypted_with, policy, .. } = record;
        found.sort();
        found.dedup();
        // The rest waits like these, and is told once these are confirmed.
        held.truncate(MAX_HELD);
        let tells_values = policy.is_none_or(|(policy, _)| policy.tells_values());
        let observed = observed(&book, &change_set, tells_values);
        let finished = Finished {
            key: dispatch.key.clone(),
            failure: failure.map(|failure| *failure),
            change_set,
            inventory,
            timings,
            reads,
            found,
            held,
            warnings: roadstead_finish::first_warnings(warnings),
            decrypted_with: decrypted_with.into_iter().collect(),
        };
        (finished, observed)
    }

    async fn step<B: Future<Output = Option<Fetched>>>(
        &self,
        on: &On<'_, C>,
        kind: &StepKind,
        ahead: Pin<&mut MaybeDone<B>>,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        match kind {
            StepKind::Apply { group } => self.apply(on, ahead, *group, deadline, record).await,
            StepKind::Prune => self.prune(on, record).await,
            StepKind::Wait { objects, groups } => self.wait(on, objects, groups, deadline, record).await,
            StepKind::Delete => self.delete(on, record).await,
            StepKind::Terminate => self.terminate(on, deadline, record).await,
            StepKind::AdoptInventory { of } => self.adopt_inventory(on, of, record).await,
            StepKind::GiveBack => self.give_back(on, record).await,
            StepKind::Hook { group, policy } => self.hook(on, ahead, *group, *policy, deadline, record).await,
            StepKind::Read { objects } => self.read(on, objects, record).await,
        }
    }

    async fn apply<B: Future<Output = Option<Fetched>>>(
        &self,
        on: &On<'_, C>,
        ahead: Pin<&mut MaybeDone<B>>,
        index: usize,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let ready = self.make_ready(on, ahead, index, deadline, record).await?;
        self.write(on, index, ready, deadline, record).await
    }

    /// Prepares a group, and has the hub store what is going to be owned: then it may be written.
    pub(super) async fn make_ready<B: Future<Output = Option<Fetched>>>(
        &self,
        on: &On<'_, C>,
        ahead: Pin<&mut MaybeDone<B>>,
        index: usize,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<Ready<C>, Box<Failure>> {
        let group = on.group(index)?;
        let manifests = self.manifests(on, ahead, group, record).await?;
        let until = *deadline.get_or_insert_with(|| Instant::now() + on.dispatch.spec.timeout);
        let desired = on.desired(group, manifests)?;
        let mut tell = on.teller(self.outbox);
        let mut run = Run::new(until, on.cancel.clone(), &mut tell);
        let began = Instant::now();
        let prepared = on.cluster.prepare(desired, &mut run).await;
        record.spent_since(Stage::Validate, began);
        let prepared = prepared.map_err(|error| failure(&error))?;
        let policy = self.policy(on, record).await?;
        self.judge(on, &policy, &prepared, &mut run).await?;
        let objects = C::objects(&prepared);
        on.check_for_two_groups(index, &objects, record)?;

        let asked = Instant::now();
        // What was applied before is going to be owned too.
        let intended: Vec<ObjectRef> = record.applied.values().flatten().chain(&objects).cloned().collect();
        self.stops_for_volumes(on, &prepared, &mut run, record).await?;
        self.stops(on, index, &intended, record).await?;
        let intended = on.with_lost(intended);
        let (asked_for, withdrawn) =
            tokio::join!(self.ask_the_hub(on, intended), self.withdraw(on, Stage::Apply));
        asked_for?;
        withdrawn?;
        // The hub's time is not the dispatch's: a link that is cut here must not use up the timeout.
        *deadline = Some(until + asked.elapsed());
        Ok(Ready { prepared, objects, policy })
    }

    /// Writes a group that was made ready.
    pub(super) async fn write(
        &self,
        on: &On<'_, C>,
        index: usize,
        ready: Ready<C>,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let Ready { prepared, objects, policy: known } = ready;
        let until = *deadline.get_or_insert_with(|| Instant::now() + on.dispatch.spec.timeout);
        let mut tell = on.teller(self.outbox);
        let mut run = Run::new(until, on.cancel.clone(), &mut tell);
        // The hub may have taken its time, and the policy have changed meanwhile.
        let policy = self.policy(on, record).await?;
        if policy != known {
            self.judge(on, &policy, &prepared, &mut run).await?;
        }
        self.follow_unasked(on, &objects);
        let cluster = on.cluster.guarded(policy, on.account.clone());
        let outcome = cluster.apply(&prepared, &record.inventory, &mut run).await;
        record.take(outcome)?;
        record.applied.insert(index, objects);
        Ok(())
    }

    /// The objects of the group that a dispatch applies first, and how long they took to come; none where it applies none.
    async fn first_group(&self, on: &On<'_, C>) -> Option<Fetched> {
        let applied = on.dispatch.spec.steps.iter().find_map(|step| match step.kind {
            StepKind::Apply { group } | StepKind::Hook { group, .. } => Some(group),
            _ => None,
        })?;
        let group = on.dispatch.spec.groups.get(applied)?;
        Some(self.objects_of(group.objects).await)
    }

    pub(super) async fn objects_of(&self, digest: Digest) -> Fetched {
        let began = Instant::now();
        let unpacked = self.builds.objects(digest).await;
        Fetched { digest, unpacked, took: began.elapsed() }
    }

    /// A group's objects: what was fetched `ahead`, where it is that group's.
    async fn manifests<B: Future<Output = Option<Fetched>>>(
        &self,
        on: &On<'_, C>,
        mut ahead: Pin<&mut MaybeDone<B>>,
        group: &Group,
        record: &mut Record,
    ) -> Result<Vec<Manifest>, Box<Failure>> {
        on.tell(self.outbox, Stage::Finish);
        let fetched = async {
            if !matches!(*ahead, MaybeDone::Gone) {
                ahead.as_mut().await;
                let fetched = ahead.as_mut().take_output().flatten();
                if let Some(fetched) = fetched.filter(|fetched| fetched.digest == group.objects) {
                    return fetched;
                }
            }
            self.objects_of(group.objects).await
        };
        let fetched = tokio::select! {
            biased;
            () = on.cancel.cancelled() => return Err(cancelled(Stage::Finish, "waiting for the build")),
            fetched = fetched => fetched,
        };
        let Fetched { digest: _, unpacked, took } = fetched;
        record.spent(Stage::Finish, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        let Unpacked { objects, memory } =
            unpacked.map_err(|error| failed(Stage::Finish, error.to_string()))?;
        record.memory = Some(memory);
        self.finish(on, group, objects, record).await
    }

    /// What was kept of another dispatch must not be there any more when this one writes.
    pub(super) async fn withdraw(&self, on: &On<'_, C>, stage: Stage) -> Result<(), Box<Failure>> {
        tokio::select! {
            biased;
            () = on.cancel.cancelled() => Err(cancelled(stage, "taking back what is kept of an earlier build")),
            withdrawn = self.keep.withdraw(&on.dispatch.key) => withdrawn.map_err(|why| failed(stage, why)),
        }
    }

    /// Writes the inventory ahead: the hub stores what will be owned, and says whether it may be.
    pub(super) async fn ask_the_hub(
        &self,
        on: &On<'_, C>,
        objects: Vec<ObjectRef>,
    ) -> Result<(), Box<Failure>> {
        let key = on.dispatch.key.clone();
        let answer = self.outbox.intend(InventoryIntent { key: key.clone(), objects });
        let answer = tokio::select! {
            biased;
            () = on.cancel.cancelled() => {
                self.outbox.withdraw_intent(&key);
                return Err(cancelled(Stage::Apply, "waiting for the hub to store the inventory"));
            }
            answer = answer => answer,
        };
        let ack = match answer {
            Ok(Ok(ack)) => ack,
            Ok(Err(why)) => {
                return Err(failed(Stage::Apply, format!("the hub refused the inventory: {why}")));
            }
            Err(_) => return Err(cancelled(Stage::Apply, "waiting for the hub to store the inventory")),
        };
        owned_by_another(&ack).map_or(Ok(()), Err)
    }

    async fn prune(&self, on: &On<'_, C>, record: &mut Record) -> Result<(), Box<Failure>> {
        let groups = 0..on.dispatch.spec.groups.len();
        if record.applied.is_empty() || groups.into_iter().any(|group| !record.applied.contains_key(&group)) {
            return Err(failed(
                Stage::Prune,
                "the dispatch has a step that prunes before all of its groups were applied",
            ));
        }
        let keep: Vec<ObjectRef> = record.applied.values().flatten().cloned().collect();
        if self.waits(on, &keep, record).await? {
            return Ok(());
        }
        self.remove(on, &keep, record).await
    }

    /// Deletes everything. As in Flux, nothing is deleted on behalf of an account that is gone, and nothing waits for
    /// it either: what it would have deleted stays, and is owned by nobody from then on.
    async fn delete(&self, on: &On<'_, C>, record: &mut Record) -> Result<(), Box<Failure>> {
        self.lets_go_without(on, "objects are deleted", record).await?;
        if self.waits(on, &[], record).await? {
            return Ok(());
        }
        self.withdraw(on, Stage::Prune).await?;
        self.remove(on, &[], record).await
    }

    /// Where the account is gone on whose behalf something is to be done, lets everything go as it is.
    pub(super) async fn lets_go_without(
        &self,
        on: &On<'_, C>,
        what: &str,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let Some(account) = &on.dispatch.spec.service_account else { return Ok(()) };
        if self.has_account(on, account).await? {
            return Ok(());
        }
        let left = std::mem::take(&mut record.inventory).len();
        Err(failed(
            Stage::Prune,
            format!(
                "serviceaccount {}/{}, on whose behalf {what}, does not exist on the cluster: \
                 {left} objects stay there and are no longer owned",
                account.namespace, account.name
            ),
        ))
    }

    /// Waits until what was deleted is gone. What is not gone in time stays in the inventory, and is deleted again by the next try.
    async fn terminate(
        &self,
        on: &On<'_, C>,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let deleted = record.change_set.iter().filter(|result| result.action == Action::Deleted);
        let deleted: Vec<ObjectRef> = deleted.map(|result| result.object.clone()).collect();
        let ended = self.until(on, &deleted, Until::Gone, deadline, record).await;
        if ended.is_err() {
            record.inventory.extend(deleted);
            record.inventory.sort();
            record.inventory.dedup();
        }
        ended
    }

    async fn has_account(&self, on: &On<'_, C>, account: &ServiceAccount) -> Result<bool, Box<Failure>> {
        let mut ignore = |_| ();
        let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut ignore);
        // The agent's own identity asks: the account could not say that it is missing.
        self.cluster.has_account(account, &mut run).await.map_err(|error| failure_while(Stage::Prune, &error))
    }

    /// Deletes what stands in the inventory and not in `keep`.
    pub(super) async fn remove(
        &self,
        on: &On<'_, C>,
        keep: &[ObjectRef],
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let policy = self.policy(on, record).await?;
        policy
            .check_account(on.account.as_ref())
            .map_err(|refused| failed(Stage::Prune, refused.to_string()))?;
        self.are_within_the_policy(on, &policy, keep, record).await?;
        let cluster = on.cluster.guarded(policy, on.account.clone());
        let key = &on.dispatch.key;
        on.tell(self.outbox, Stage::Prune);
        let mut tell = on.teller(self.outbox);
        let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut tell);
        let inventory: Vec<ObjectRef> = record.inventory.iter().chain(on.returned).cloned().collect();
        let mut outcome = cluster.prune(key.applier, &inventory, keep, &mut run).await;
        // It is no more owned than before: what is left of it is found again.
        let is_kept: HashSet<&ObjectRef> = record.inventory.iter().chain(keep).collect();
        outcome.inventory.retain(|object| is_kept.contains(object));
        record.take(outcome)
    }

    async fn wait(
        &self,
        on: &On<'_, C>,
        objects: &[ObjectRef],
        groups: &[usize],
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let applied = groups.iter().filter_map(|group| record.applied.get(group)).flatten();
        let mut waited_for: Vec<ObjectRef> = objects.iter().chain(applied).cloned().collect();
        waited_for.sort();
        waited_for.dedup();
        self.follow(on, &waited_for, record);
        self.until(on, &waited_for, Until::Healthy, deadline, record).await
    }
}

/// What a dispatch that observes has found.
fn observed(book: &Book, changes: &ChangeSet, tells_values: bool) -> CorrectionOutcome {
    let drifted = changes.iter().filter(|result| result.action == Action::Drifted);
    let of = |difference| {
        let drift = Drift::new(difference, []);
        if tells_values { drift } else { drift.without_values() }
    };
    CorrectionOutcome {
        reported: drifted.map(|result| result.object.clone()).collect(),
        drift: book.take_differences().into_iter().map(|(object, one)| (object, of(one))).collect(),
        ..CorrectionOutcome::default()
    }
}

/// A group that may be written.
pub(super) struct Ready<C: Cluster> {
    prepared: C::Ready,
    /// What is going to be owned.
    pub(super) objects: Vec<ObjectRef>,
    /// The policy that allowed it.
    policy: Arc<Policy>,
}

/// What every step of a dispatch shares.
pub(super) struct On<'a, C> {
    pub(super) dispatch: &'a Dispatch,
    /// What was owned before the hub's database was restored, and the hub does not know: it is told of it.
    pub(super) lost: &'a [ObjectRef],
    /// See [`Unlisted`].
    pub(super) returned: &'a [ObjectRef],
    pub(super) cancel: &'a CancellationToken,
    /// As the account sees it.
    pub(super) cluster: &'a C,
    pub(super) account: Option<Account>,
    /// The index of the step that it is at; none before the first.
    pub(super) step: Option<usize>,
}

impl<'a, C> On<'a, C> {
    /// Together with what was lost.
    fn with_lost(&self, mut objects: Vec<ObjectRef>) -> Vec<ObjectRef> {
        if !self.lost.is_empty() {
            objects.extend_from_slice(self.lost);
            objects.sort();
            objects.dedup();
        }
        objects
    }

    /// The same dispatch, at this step.
    fn at(&self, step: usize) -> Self {
        Self { account: self.account.clone(), step: Some(step), ..*self }
    }

    /// The failure, as one of the step that the dispatch is at.
    fn at_its_step(&self, failure: Failure) -> Box<Failure> {
        let position = Position { step: self.step, ..failure.position };
        Box::new(Failure { position, ..failure })
    }

    /// A group's objects, as the engine takes them.
    pub(super) fn desired(&self, group: &Group, manifests: Vec<Manifest>) -> Result<Desired, Box<Failure>> {
        let ignore = IgnoreRules::new(&group.ignore);
        Ok(Desired {
            owner: self.dispatch.key.applier,
            manifests,
            default_namespace: self.dispatch.spec.default_namespace().to_owned(),
            force: group.on_immutable == OnImmutable::Recreate,
            adopt_flux: group.adopt_flux,
            adopt_managers: group.adopt_managers.clone(),
            tenant: self.dispatch.spec.applier.namespace.clone(),
            ignore: ignore.map_err(|error| failed(Stage::Finish, error.to_string()))?,
        })
    }

    /// One of the dispatch's groups. One that it does not have is refused when the dispatch arrives.
    pub(super) fn group(&self, index: usize) -> Result<&'a Group, Box<Failure>> {
        let group = self.dispatch.spec.groups.get(index);
        group.ok_or_else(|| failed(Stage::Finish, format!("the dispatch has no group {index}")))
    }

    /// Fails where an object of this group was applied as another one's: whichever came last would win.
    fn check_for_two_groups(
        &self,
        index: usize,
        objects: &[ObjectRef],
        record: &Record,
    ) -> Result<(), Box<Failure>> {
        let mine: BTreeSet<_> = objects.iter().collect();
        let others = record.applied.iter().filter(|(other, _)| **other != index);
        for (other, applied) in others {
            if let Some(twice) = applied.iter().find(|object| mine.contains(object)) {
                let label = |index| self.group(index).map(|group| group.label.clone()).unwrap_or_default();
                let message = format!(
                    "{twice} is in two groups, '{}' and '{}': remove it from one of them",
                    label(*other),
                    label(index)
                );
                let object = Some(twice.clone());
                return Err(Box::new(Failure { object, ..*failed(Stage::Validate, message) }));
            }
        }
        Ok(())
    }

    pub(super) fn tell(&self, outbox: &Outbox, stage: Stage) {
        outbox.progress(&self.dispatch.key, Position { step: self.step, stage }, None, None);
    }

    /// Hands the engine's events on as progress.
    pub(super) fn teller(&self, outbox: &'a Outbox) -> impl FnMut(Event) + Send + use<'a, C> {
        let (key, step) = (&self.dispatch.key, self.step);
        let at = move |stage| Position { step, stage };
        move |event| match event {
            Event::Validated { .. } => outbox.progress(key, at(Stage::Validate), None, None),
            Event::Applied(result) => outbox.progress(key, at(Stage::Apply), Some(result), None),
            Event::Pruned(result) => outbox.progress(key, at(Stage::Prune), Some(result), None),
            Event::Health { object, health } => {
                let health = ObjectHealth { object, status: health.status, message: health.message };
                outbox.progress(key, at(Stage::Wait), None, Some(health));
            }
        }
    }
}

/// The failure of a dispatch whose objects others own.
fn owned_by_another(ack: &InventoryAck) -> Option<Box<Failure>> {
    let owned = &ack.owned_by_another;
    if owned.is_empty() {
        return None;
    }
    let mut by_owner: Vec<(&OwnedByAnother, usize)> = Vec::new();
    let mut unnamed = 0;
    for one in owned {
        let is_full = by_owner.len() == MAX_NAMED;
        match by_owner.iter_mut().find(|(first, _)| first.owner == one.owner) {
            Some((_, others)) => *others += 1,
            None if is_full => unnamed += 1,
            None => by_owner.push((one, 0)),
        }
    }
    let name = |(first, others): (&OwnedByAnother, usize)| {
        let is = format!("{} is owned by {}", first.object, first.owner);
        match others {
            0 => is,
            1 => format!("{is} (the same for 1 more object)"),
            _ => format!("{is} (the same for {others} more objects)"),
        }
    };
    let mut named: Vec<String> = by_owner.into_iter().map(name).collect();
    if unnamed > 0 {
        named.push(format!("and {unnamed} more"));
    }
    let object = if let [one] = owned.as_slice() { Some(one.object.clone()) } else { None };
    let message = format!("{}; nothing was applied: remove it from one of the two", named.join("; "));
    Some(Box::new(Failure { object, ..*failed(Stage::Apply, message) }))
}

fn log(dispatch: &Dispatch, took: Duration, record: &Record, failure: Option<&Failure>) {
    let count = |action| record.change_set.iter().filter(|result| result.action == action).count();
    let ApplierRef { kind, namespace, name } = &dispatch.spec.applier;
    let applier = format!("{namespace}/{name}");
    let duration = GoDuration(took).to_string();
    let (created, configured, unchanged) =
        (count(Action::Created), count(Action::Configured), count(Action::Unchanged));
    let (recreated, adopted) = (count(Action::Recreated), count(Action::Adopted));
    let (deleted, skipped, attempt) =
        (count(Action::Deleted), count(Action::Skipped), dispatch.key.attempt.0);
    match failure {
        None => tracing::info!(
            kind,
            applier,
            attempt,
            duration,
            created,
            configured,
            recreated,
            adopted,
            unchanged,
            deleted,
            skipped,
            "dispatch finished"
        ),
        Some(failure) => tracing::warn!(
            kind, applier, attempt, duration, created, configured, recreated, adopted, unchanged, deleted, skipped,
            stage = ?failure.position.stage, cancelled = failure.cancelled, error = failure.message, "dispatch failed"
        ),
    }
}
