//! The sessions of agents: each begins and ends, and is its cluster's newest or has no say any more; and the replicas that hold
//! them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{
    Cluster, ClusterOfflineStatus, ClusterStatus, ConditionStatus, KindId, REQUEST_ANNOTATIONS,
};
use roadstead_budget::PoolName;
use roadstead_hub_store::{AgentSession, SeenAttempt, Store};
use roadstead_model::{
    ApplierUid, Capabilities, Capability, ClusterUid, HubEpoch, Queue, Reason, ReplicaId, SessionId,
};

use crate::HubError;
use crate::clock::Clock;
use crate::clusters::pki::AgentIdentity;
use crate::clusters::progress::{Followed, Sent};
use crate::clusters::rollout::{self, UpgradeReport};
use crate::context::Context;
use crate::objects::conditions::{self, PAUSED, READY, WATCHED};
use crate::objects::{status, triggers};

/// Why a session has no say any more.
pub const NOT_CURRENT: &str =
    "a newer session of this cluster has begun, another agent has joined as it, or its Cluster was deleted";

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
    /// What it can do that one of the first version cannot.
    pub capabilities: Capabilities,
    /// The newest attempts that it has seen.
    pub seen: Vec<SeenAttempt>,
}

/// What came of a greeting.
#[derive(Debug)]
pub struct Begun {
    /// The session.
    pub session: Session,
    /// Appliers that the agent has seen and the hub does not know: they were deleted, or its database was restored.
    pub unknown: Vec<ApplierUid>,
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
    /// The agent's version.
    pub(crate) agent_version: String,
    /// What the agent can do that one of the first version cannot.
    pub(crate) capabilities: Capabilities,
    /// What it was sent.
    pub(crate) sent: Sent,
}

/// How a session stands.
#[derive(Debug, Clone, Copy)]
pub struct SessionStanding {
    /// It is the cluster's newest.
    pub is_current: bool,
    /// There are [appliers that rest](crate::delivery::Delivery::take_resting) of which its agent was not told yet.
    pub has_resting: bool,
    /// There is an [order](super::Agents::take_order) of which its agent was not told yet.
    pub has_order: bool,
}

impl Session {
    /// Whether the agent corrects what others change, and so has to hear what is to rest.
    #[must_use]
    pub fn corrects(&self) -> bool {
        self.capabilities.has(Capability::Corrections)
    }
}

/// The sessions of agents, and the replicas that hold them.
pub struct Sessions {
    store: Store,
    pub(super) clock: Arc<dyn Clock>,
    replica: ReplicaId,
    pub(super) followed: Arc<Followed>,
    /// Whether this replica's clock and the database's differ.
    pub(super) clock_is_off: AtomicBool,
}

impl Sessions {
    pub(crate) fn new(context: &Context) -> Self {
        let followed = Arc::new(Followed::new(context.options.budget.pool(PoolName::Progress)));
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            replica: context.replica,
            followed,
            clock_is_off: AtomicBool::default(),
        }
    }

    /// Begins a session: from now on it is the cluster's only one.
    ///
    /// # Errors
    /// Where the Cluster is gone, the key is not the one that was enrolled last, or it is another cluster.
    pub async fn begin(&self, identity: &AgentIdentity, greeting: &Greeting) -> Result<Begun, HubError> {
        let now = self.clock.now();
        let refuse = |why: String| HubError::Unauthenticated(why);
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(identity.cluster.into()).await? else {
            return Err(refuse(
                "the certificate is for a Cluster that no longer exists on the hub".to_owned(),
            ));
        };
        if stored.kind != KindId::Cluster {
            return Err(refuse("the certificate's subject is not a Cluster".to_owned()));
        }
        let name = stored.name.clone();
        if identity.expires <= now {
            let expired = identity.expires;
            return Err(refuse(format!(
                "the agent's certificate expired at {expired} (the hub's clock says {now})"
            )));
        }
        // Asked while the Cluster's row is held, as an enrolment holds it: the newest key is the only one.
        if tx.agent_key(identity.cluster).await?.as_ref() != Some(&identity.public_key) {
            return Err(refuse(format!("another agent has since joined as Cluster '{name}'")));
        }
        let known = tx.cluster_identity(identity.cluster).await?;
        if known.map(|known| known.to_string()) != Some(greeting.kube_system_uid.clone()) {
            return Err(refuse(format!(
                "the certificate is for Cluster '{name}', but the agent runs in another cluster (the uid of namespace \
                 kube-system differs)"
            )));
        }
        let session = AgentSession {
            session: SessionId::random(),
            replica: self.replica,
            agent_version: greeting.agent_version.clone(),
            image: greeting.image.clone(),
            kubernetes_version: greeting.kubernetes_version.clone(),
            capabilities: greeting.capabilities.clone(),
            connected: now,
            disconnected: None,
            unreachable: None,
        };
        tx.begin_session(identity.cluster, &session).await?;
        // Before anything is planned for it: whoever plans sees the session only together with this.
        let unknown = tx.note_seen_attempts(identity.cluster, &greeting.seen, &REQUEST_ANNOTATIONS).await?;
        if let Some(report) = &greeting.upgrade {
            rollout::note_report(&mut tx, identity.cluster, report).await?;
        }
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| {
            status.agent_version = Some(greeting.agent_version.clone());
            status.agent_image.clone_from(&greeting.image);
            super::skew::note_skew(status, greeting.clock, &name, generation, now);
            status.kubernetes_version = Some(greeting.kubernetes_version.clone());
            status.observed_generation = Some(generation);
            note_sight(status, &greeting.agent_version, None, generation, now);
            // It says so if there is anything.
            note_state(status, &AgentState::default(), generation, now);
        })
        .await?;
        triggers::wake_cluster(&mut tx, stored.uid, &name).await?;
        tx.enqueue(Queue::Cluster, &[stored.uid]).await?;
        tx.commit().await?;
        tracing::info!(cluster = name, session = %session.session, agent = session.agent_version, "agent connected");
        let epoch = self.store.epoch().await?;
        let sent = Sent::new(session.session, &self.followed);
        let AgentSession { session: id, agent_version, capabilities, .. } = session;
        let session =
            Session { cluster: identity.cluster, name, id, epoch, agent_version, capabilities, sent };
        Ok(Begun { session, unknown })
    }

    /// Ends a session; `why` is for people.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn end(&self, cluster: ClusterUid, session: SessionId, why: &str) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(cluster.into()).await? else { return Ok(()) };
        // A newer session has taken its place: the cluster is connected.
        if !tx.end_session(cluster, session, now).await? {
            return Ok(());
        }
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| {
            let message = format!("closing the agent's connection: {why}");
            let (is, reason) = (ConditionStatus::False, Reason::AgentDisconnected);
            conditions::set(&mut status.conditions, READY, is, reason, &message, generation, now);
        })
        .await?;
        let name = stored.name;
        tx.commit().await?;
        tracing::warn!(cluster = name, %session, why, "agent disconnected");
        Ok(())
    }

    /// Records why a cluster's apiserver does not answer its agent, or that it does again. What is on the cluster cannot be seen
    /// meanwhile: those that deploy there are looked at.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn apiserver_told(&self, session: &Session, unreachable: Option<&str>) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(session.cluster.into()).await? else { return Ok(()) };
        if !tx.note_unreachable(session.cluster, session.id, unreachable).await? {
            return Ok(());
        }
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| {
            note_sight(status, &session.agent_version, unreachable, generation, now);
        })
        .await?;
        triggers::wake_cluster(&mut tx, stored.uid, &stored.name).await?;
        let name = stored.name;
        tx.commit().await?;
        match unreachable {
            Some(why) => {
                tracing::warn!(cluster = name, why, "the cluster's API server does not answer its agent");
            }
            None => tracing::info!(cluster = name, "the cluster's API server answers its agent again"),
        }
        Ok(())
    }

    /// Records what a cluster's agent does not do.
    ///
    /// # Errors
    /// `Conflict` where this is not the cluster's session any more; else where the database fails.
    pub async fn state_told(&self, session: &Session, state: &AgentState) -> Result<(), HubError> {
        self.must_be_current(session).await?;
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(session.cluster.into()).await? else { return Ok(()) };
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| {
            note_state(status, state, generation, now);
        })
        .await?;
        tx.commit().await?;
        let AgentState { paused, total, .. } = state;
        tracing::info!(cluster = session.name, paused, unwatched = total, "the agent reported its state");
        Ok(())
    }

    /// Whether this is still the cluster's session. It is not once a newer one began or the Cluster is gone.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn is_current(&self, session: &Session) -> Result<bool, HubError> {
        Ok(self.store.is_newest_session(session.cluster, session.id).await?)
    }

    /// Whether this is still the cluster's session, and what its agent was not told yet.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn standing(&self, session: &Session) -> Result<SessionStanding, HubError> {
        let (is_current, has_resting, has_order) =
            self.store.session_standing(session.cluster, session.id).await?;
        // One that corrects nothing by itself need not be told.
        let has_resting = has_resting && session.corrects();
        Ok(SessionStanding { is_current, has_resting, has_order })
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
    pub async fn current(&self) -> Result<Vec<SessionId>, HubError> {
        Ok(self.store.newest_sessions(self.replica).await?)
    }

    /// Fails where this is not the cluster's session any more: then what it says does not count.
    pub(crate) async fn must_be_current(&self, session: &Session) -> Result<(), HubError> {
        if self.is_current(session).await? {
            return Ok(());
        }
        Err(HubError::Conflict { what: format!("cluster '{}'", session.name), why: NOT_CURRENT.to_owned() })
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
        if self.store.health().was_away_within(dead_after) {
            // The others could not say that they live either.
            return Ok(());
        }
        for (cluster, session) in self.store.sessions_of_dead_replicas(alive_since).await? {
            self.end(cluster, session, "the hub replica that held it has stopped").await?;
        }
        self.store.release_claims_of_dead_replicas(alive_since).await?;
        self.store.end_build_turns_of_dead_replicas(alive_since).await?;
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
        let alive_since = now - Duration::from_secs(60);
        self.store.release_claims_of_dead_replicas(alive_since).await?;
        self.store.end_build_turns_of_dead_replicas(alive_since).await?;
        Ok(())
    }

    /// This process.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// What an agent does not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentState {
    /// An operator of its cluster has paused it.
    pub paused: bool,
    /// The first of what it applied and cannot watch, for people.
    pub unwatched: Vec<String>,
    /// How many there are.
    pub total: usize,
    /// How many appliers it goes on correcting when it is started again without a hub.
    pub corrected: usize,
    /// How many it only watches then.
    pub watched: usize,
}

/// Says what an agent does not do, and nothing where it does everything.
fn note_state(status: &mut ClusterStatus, state: &AgentState, generation: i64, now: Timestamp) {
    let AgentState { paused, unwatched, total, corrected, watched } = state;
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    status.offline = (*corrected > 0 || *watched > 0)
        .then(|| ClusterOfflineStatus { corrected: count(*corrected), only_watched: count(*watched) });
    let paused = paused.then(|| {
        "an operator of the cluster has paused the agent by the annotation fleet.roadstead.dev/paused on its namespace: \
         nothing is applied, corrected or deleted there until it is removed"
            .to_owned()
    });
    let unwatched = (!unwatched.is_empty()).then(|| {
        let more = total.saturating_sub(unwatched.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!(
            "changes that others make are found at the interval only, because these cannot be watched (grant list and watch): \
             {}{more}",
            unwatched.join("; ")
        )
    });
    for (type_, is, reason, message) in [
        (PAUSED, ConditionStatus::True, Reason::PausedInCluster, paused),
        (WATCHED, ConditionStatus::False, Reason::WatchForbidden, unwatched),
    ] {
        match message {
            None => status.conditions.retain(|condition| condition.type_ != type_),
            Some(message) => {
                conditions::set(&mut status.conditions, type_, is, reason, &message, generation, now);
            }
        }
    }
}

/// Says that a cluster's agent is connected; and not Ready, where its apiserver does not answer it.
fn note_sight(
    status: &mut ClusterStatus,
    agent: &str,
    unreachable: Option<&str>,
    generation: i64,
    now: Timestamp,
) {
    let (is, reason, message) = match unreachable {
        None => (ConditionStatus::True, Reason::AgentConnected, format!("agent {agent} is connected")),
        Some(why) => {
            let message = format!("the API server does not answer the agent: {why}");
            (ConditionStatus::False, Reason::ClusterUnreachable, message)
        }
    };
    conditions::set(&mut status.conditions, READY, is, reason, &message, generation, now);
}
