//! What the link calls: an agent's session begins and ends, is sent dispatches, and tells what came of them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::kustomization::{InventoryEntry, ResourceInventory};
use roadstead_api::{Cluster, ConditionStatus, KindId, Kustomization};
use roadstead_hub_store::{AgentSession, Outcome, Queue};
use roadstead_model::{
    ChangeSet, ClusterUid, Dispatch, DispatchKey, HubEpoch, ObjectRef, ObjectResult, Reason, ReplicaId,
    SessionId, Stage, StageTiming,
};

use crate::children::Awaited;
use crate::conditions::{self, READY};
use crate::pki::AgentIdentity;
use crate::progress::Sent;
use crate::reconcile::{set_ready, write_status};
use crate::rollout::{self, UpgradeReport};
use crate::{Hub, HubError, children, clock, events, log, managers, triggers};

/// At most so many dispatches are handed out at once; the rest follows when these are under way.
const BATCH: i64 = 64;
/// Why a session has no say any more.
pub const NOT_CURRENT: &str =
    "a newer session of this cluster has begun, another agent has joined as it, or its Cluster was deleted";
/// Two announcements of one new object at the same instant: the loser's second try finds the winner.
const ANNOUNCE_TRIES: usize = 3;

/// What an agent says when it connects.
#[derive(Debug, Clone)]
pub struct Greeting {
    /// Its version.
    pub agent_version: String,
    /// The uid of its cluster's `kube-system` namespace.
    pub kube_system_uid: String,
    /// Its cluster's version.
    pub kubernetes_version: String,
    /// The image that it runs, where it knows.
    pub image: Option<String>,
    /// The upgrade that it is at, or that failed.
    pub upgrade: Option<UpgradeReport>,
    /// What its clock says.
    pub clock: Option<Timestamp>,
}

/// A session that has begun.
#[derive(Debug, Clone)]
pub struct Session {
    /// The cluster.
    pub cluster: ClusterUid,
    /// Its name.
    pub name: String,
    /// The session.
    pub id: SessionId,
    /// The hub's epoch.
    pub epoch: HubEpoch,
    /// What it was sent.
    pub(crate) sent: Sent,
}

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
    /// How long its stages took.
    pub timings: Vec<StageTiming>,
}

/// Why a dispatch failed.
#[derive(Debug, Clone)]
pub struct DispatchFailure {
    /// Where it stopped.
    pub stage: Stage,
    /// The object and the cause.
    pub message: String,
    /// The agent stopped before it was done; the same dispatch is to be sent again.
    pub cancelled: bool,
}

impl Hub {
    /// Begins a session: from now on it is the cluster's only one.
    ///
    /// # Errors
    /// Where the Cluster is gone, the key is not the one that was enrolled last, or it is another cluster.
    pub async fn begin_session(
        &self,
        identity: &AgentIdentity,
        greeting: &Greeting,
    ) -> Result<Session, HubError> {
        let now = self.now();
        let refuse = |why: String| HubError::Unauthenticated(why);
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(identity.cluster.into()).await? else {
            return Err(refuse("the certificate is of a Cluster that is gone from the hub".to_owned()));
        };
        if stored.kind != KindId::Cluster {
            return Err(refuse("the certificate's subject is not a Cluster".to_owned()));
        }
        let name = stored.name.clone();
        if identity.expires <= now {
            let expired = identity.expires;
            return Err(refuse(format!(
                "the agent's certificate expired at {expired} (it is {now} for the hub)"
            )));
        }
        // Asked while the Cluster's row is held, as an enrolment holds it: the newest key is the only one.
        if tx.agent_key(identity.cluster).await?.as_ref() != Some(&identity.public_key) {
            return Err(refuse(format!("another agent has joined as Cluster '{name}' since this one did")));
        }
        let known = tx.cluster_identity(identity.cluster).await?;
        if known.map(|known| known.to_string()) != Some(greeting.kube_system_uid.clone()) {
            return Err(refuse(format!(
                "the certificate is of Cluster '{name}', and the agent runs in another cluster \
                 (the uid of namespace kube-system differs)"
            )));
        }
        let session = AgentSession {
            session: SessionId::random(),
            replica: self.replica,
            agent_version: greeting.agent_version.clone(),
            image: greeting.image.clone(),
            kubernetes_version: greeting.kubernetes_version.clone(),
            connected: now,
            disconnected: None,
        };
        tx.begin_session(identity.cluster, &session).await?;
        if let Some(report) = &greeting.upgrade {
            rollout::note_report(&mut tx, identity.cluster, report).await?;
        }
        let cluster: Cluster = stored.decode()?;
        let before = cluster.status.unwrap_or_default();
        let mut status = before.clone();
        status.agent_version = Some(greeting.agent_version.clone());
        status.agent_image.clone_from(&greeting.image);
        clock::note_skew(&mut status, greeting.clock, &name, stored.generation, now);
        status.kubernetes_version = Some(greeting.kubernetes_version.clone());
        status.observed_generation = Some(stored.generation);
        conditions::set(
            &mut status.conditions,
            READY,
            ConditionStatus::True,
            Reason::AgentConnected,
            &format!("agent {} is connected", greeting.agent_version),
            stored.generation,
            now,
        );
        managers::set_status(&mut stored, &status, now)?;
        tx.put(stored.clone()).await?;
        events::on_ready(&mut tx, &stored, &before.conditions, &status.conditions, now).await?;
        triggers::wake_cluster(&mut tx, stored.uid, &name).await?;
        tx.enqueue(Queue::Cluster, &[stored.uid]).await?;
        tx.commit().await?;
        tracing::info!(cluster = name, session = %session.session, agent = session.agent_version, "agent connected");
        let epoch = self.store.epoch().await?;
        let sent = Sent::new(session.session, &self.followed);
        Ok(Session { cluster: identity.cluster, name, id: session.session, epoch, sent })
    }

    /// Ends a session; `why` is for people.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn end_session(
        &self,
        cluster: ClusterUid,
        session: SessionId,
        why: &str,
    ) -> Result<(), HubError> {
        let now = self.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(cluster.into()).await? else { return Ok(()) };
        // A newer session has taken its place: the cluster is connected.
        if !tx.end_session(cluster, session, now).await? {
            return Ok(());
        }
        let decoded: Cluster = stored.decode()?;
        let before = decoded.status.unwrap_or_default();
        let mut status = before.clone();
        conditions::set(
            &mut status.conditions,
            READY,
            ConditionStatus::False,
            Reason::AgentDisconnected,
            &format!("the agent's link is cut: {why}"),
            stored.generation,
            now,
        );
        managers::set_status(&mut stored, &status, now)?;
        let name = stored.name.clone();
        tx.put(stored.clone()).await?;
        events::on_ready(&mut tx, &stored, &before.conditions, &status.conditions, now).await?;
        tx.commit().await?;
        tracing::warn!(cluster = name, %session, why, "agent disconnected");
        Ok(())
    }

    /// Whether this is still the cluster's session. It is not once a newer one began or the Cluster is gone.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn is_current_session(&self, session: &Session) -> Result<bool, HubError> {
        Ok(self.store.is_newest_session(session.cluster, session.id).await?)
    }

    /// This replica's sessions that have not been sent all that is open for their clusters.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn sessions_with_dispatches(&self) -> Result<Vec<SessionId>, HubError> {
        Ok(self.store.sessions_with_dispatches(self.replica).await?)
    }

    /// This replica's sessions that are their clusters' newest.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn current_sessions(&self) -> Result<Vec<SessionId>, HubError> {
        Ok(self.store.newest_sessions(self.replica).await?)
    }

    /// Some of the dispatches that this session has not been sent yet, without their inventories; none where it has been
    /// sent all. From now on they count as sent.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn take_dispatches(&self, session: &Session) -> Result<Vec<Dispatch>, HubError> {
        let batch = self.store.take_to_send(session.cluster, session.id, BATCH).await?;
        let taken = batch.into_iter().map(|to_send| {
            session.sent.add(&to_send.key);
            Dispatch { key: to_send.key, spec: to_send.spec, inventory: Vec::new() }
        });
        Ok(taken.collect())
    }

    /// Adds to a dispatch what its Kustomization owns. Just before it is sent, so that the inventories of many are never in
    /// memory at once.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn complete_dispatch(
        &self,
        session: &Session,
        dispatch: &mut Dispatch,
    ) -> Result<(), HubError> {
        dispatch.inventory = self.store.inventory(session.cluster, dispatch.key.kustomization).await?;
        Ok(())
    }

    /// Fails where this is not the cluster's session any more: then what it says does not count.
    async fn must_be_current(&self, session: &Session) -> Result<(), HubError> {
        if self.is_current_session(session).await? {
            return Ok(());
        }
        Err(HubError::Conflict { what: format!("cluster '{}'", session.name), why: NOT_CURRENT.to_owned() })
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
    ) -> Result<Vec<(ObjectRef, String)>, HubError> {
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
    ) -> Result<Vec<(ObjectRef, String)>, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(spec) = tx.hold_open_attempt(key, session.cluster, session.id).await? else {
            drop(tx);
            self.must_be_current(session).await?;
            return Err(HubError::Gone("the dispatch was superseded".to_owned()));
        };
        let (cluster, owner) = (session.cluster, key.kustomization);
        let outside = tx.outside_build(cluster, owner, key.build, spec.default_namespace(), objects).await?;
        if !outside.is_empty() {
            let named: Vec<String> = outside.iter().map(ToString::to_string).collect();
            return Err(HubError::BadRequest(format!(
                "these objects are not in the dispatch's build: {}",
                named.join(", ")
            )));
        }
        let contested = tx.announce(session.cluster, key.kustomization, objects).await?;
        if contested.is_empty() {
            tx.commit().await?;
            return Ok(Vec::new());
        }
        drop(tx);
        let mut named = Vec::with_capacity(contested.len());
        for contested in contested {
            let owner = self.store.get_by_uid(contested.owner.into()).await?;
            let owner = owner.map_or_else(
                || contested.owner.to_string(),
                |owner| format!("{}/{}", owner.namespace, owner.name),
            );
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
        self.must_be_current(session).await?;
        if let Some(DispatchFailure { cancelled: true, .. }) = result.failure {
            // The agent went down, or a newer dispatch came: what is open is sent again in the next session.
            return Ok(());
        }
        let now = self.now();
        let Some(begun) = self.store.open_attempt(key, session.cluster).await? else {
            return Ok(());
        };
        let health = session.sent.close(key);
        let inputs = begun.inputs;
        let Awaited { children, mut late } = self.awaited(key.kustomization).await?;
        if result.failure.is_some() || inputs.deletes {
            late.clear();
        }
        let mut tx = self.store.begin().await?;
        // Always the object first, then its reconciliation: two units of work that touch both cannot lock each other.
        let Some(mut stored) = tx.get_by_uid(key.kustomization.into()).await? else { return Ok(()) };
        let outcome = Outcome { health, ..outcome(result, inputs.revision.as_ref(), inputs.deletes) };
        let closed =
            tx.finish_reconciliation(key.kustomization, key.attempt, session.cluster, &outcome, now).await?;
        let Some(change_set) = closed else { return Ok(()) };
        tx.settle(session.cluster, key.kustomization, &result.inventory).await?;
        let wrote = |result: &ObjectResult| result.action.wrote();
        if let Some(build) = inputs.build.filter(|_| result.change_set.iter().any(wrote)) {
            tx.label_inventory(session.cluster, key.kustomization, build).await?;
        }
        let kustomization: Kustomization = stored.decode()?;
        let succeeded = result.failure.is_none();
        write_status(&mut tx, &mut stored, kustomization.spec.suspend, now, |status, _| {
            status.last_handled_reconcile_at =
                inputs.request.clone().or(status.last_handled_reconcile_at.take());
            status.inventory = Some(inventory(result.inventory.iter().chain(&children)));
            let revision = inputs.revision.as_ref().map(ToString::to_string);
            if succeeded && !inputs.deletes && late.is_empty() {
                status.last_applied_revision.clone_from(&revision);
            }
            // A newer attempt that failed in the hub has the last word, though this one ends after it.
            let other = |newer: &String| revision.as_ref().is_some_and(|revision| revision != newer);
            if status.observed_generation.is_some_and(|newer| newer > inputs.generation.0)
                || status.last_attempted_revision.as_ref().is_some_and(other)
            {
                return;
            }
            status.last_attempted_revision = revision.or(status.last_attempted_revision.take());
            let waits = children::waits_for(&late);
            let (ready, reason, message) = match (succeeded, inputs.deletes) {
                // What follows is another attempt, or the end of the object.
                (true, true) => (ConditionStatus::Unknown, Reason::Progressing, &outcome.message),
                (true, false) if !late.is_empty() => (ConditionStatus::Unknown, Reason::Progressing, &waits),
                (ready, _) => (ConditionStatus::from(ready), outcome.reason, &outcome.message),
            };
            set_ready(status, ready, reason, message, inputs.generation.0, now);
        })
        .await?;
        tx.enqueue(Queue::Kustomization, &[stored.uid]).await?;
        tx.commit().await?;
        let took = since(inputs.started, now);
        match (succeeded, inputs.deletes) {
            (true, false) => log::kustomization_applied(&stored, took, &change_set),
            (true, true) => log::kustomization_pruned(&stored, took, &change_set),
            (false, _) => log::kustomization_failed(&stored, &outcome.message),
        }
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
        if self.store.open_attempt(key, session.cluster).await?.is_none() {
            return Ok(());
        }
        let inventory = self.store.inventory(session.cluster, key.kustomization).await?;
        let message = format!("the dispatch to the agent of cluster {} failed: {why}", session.name);
        let failure = DispatchFailure { stage: Stage::Apply, message, cancelled: false };
        let result = DispatchResult {
            key: key.clone(),
            failure: Some(failure),
            change_set: ChangeSet::new(),
            inventory,
            timings: Vec::new(),
        };
        self.dispatch_finished(session, &result).await
    }

    /// Ends the sessions, and frees the claims, of replicas that were not heard of for `dead_after`.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn bury_dead_replicas(&self, dead_after: Duration) -> Result<(), HubError> {
        // By the database's clock, which all replicas share: one whose own is off must not take the others for dead.
        let now = self.store.now().await?;
        self.warn_of_the_clock(now);
        let alive_since = now - dead_after;
        self.store.replica_seen(self.replica, now).await?;
        if self.database().was_away_within(dead_after) {
            // The others could not say that they live either.
            return Ok(());
        }
        for (cluster, session) in self.store.sessions_of_dead_replicas(alive_since).await? {
            self.end_session(cluster, session, "the hub replica that held it has ended").await?;
        }
        self.store.release_claims_of_dead_replicas(alive_since).await?;
        self.store.forget_dead_replicas(alive_since - dead_after).await?;
        Ok(())
    }

    /// Gives back what this replica holds, at a clean end.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn leave(&self) -> Result<(), HubError> {
        self.store.replica_gone(self.replica).await?;
        let now = self.store.now().await?;
        self.store.release_claims_of_dead_replicas(now - Duration::from_secs(60)).await?;
        Ok(())
    }

    /// This process.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }
}

fn outcome(result: &DispatchResult, revision: Option<&roadstead_model::Revision>, deletes: bool) -> Outcome {
    let (reason, message) = match &result.failure {
        Some(failure) if deletes => (Reason::PruneFailed, failure.message.clone()),
        Some(failure) => (failure.stage.failure(), failure.message.clone()),
        None if deletes => {
            (Reason::ReconciliationSucceeded, "deleted what it owned on its cluster".to_owned())
        }
        None => {
            let revision = revision.map_or_else(String::new, ToString::to_string);
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
