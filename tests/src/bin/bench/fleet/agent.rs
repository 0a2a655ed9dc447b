//! A simulated agent: real certificates, real TLS, the real protocol, and no cluster. What it is told to apply it says to
//! have applied, but for Kustomizations named [`BROKEN`]: those never get healthy.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use roadstead_proto::v1::{
    Action, BuildRequest, DispatchKey, Failure, Finished, Heartbeat, InventoryIntent, ObjectRef,
    ObjectResult, Stage, Tended, agent_message, hub_message,
};
use roadstead_tests::{AgentSession, EnrolledAgent};
use serde_json::{Value, json};

use crate::api::Api;

/// As the real agent's.
const HEARTBEAT: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(500);
/// How the names of Kustomizations begin that fail. What they say tells when it was sent, in milliseconds since 1970.
pub(crate) const BROKEN: &str = "broken";

/// What all agents of a fleet have done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Those that are connected now.
    pub(crate) connected: AtomicUsize,
    /// Dispatches that were carried out.
    pub(crate) finished: AtomicUsize,
    /// Whether what is applied does not get healthy.
    pub(crate) fails: AtomicBool,
    /// When that of a Kustomization was last, by its name.
    last: Mutex<BTreeMap<String, Instant>>,
}

impl Counts {
    fn finished(&self, name: String) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Instant::now());
    }

    /// When each Kustomization whose name begins so was last carried out, of those that were since then.
    pub(crate) fn since(&self, prefix: &str, then: Instant) -> Vec<Instant> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let named = last.iter().filter(|(name, at)| name.starts_with(prefix) && **at >= then);
        named.map(|(_, at)| *at).collect()
    }
}

/// Counted as connected, until it is dropped.
struct Connected<'a>(&'a Counts);

impl<'a> Connected<'a> {
    fn new(counts: &'a Counts) -> Self {
        counts.connected.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A simulated agent that is on board.
pub(crate) struct SimulatedAgent(EnrolledAgent);

impl SimulatedAgent {
    /// Creates a Cluster and enrols as its agent.
    pub(crate) async fn enrol(hub: &Api, name: &str) -> Result<Self> {
        let clusters = "/apis/fleet.roadstead.dev/v1alpha1/clusters";
        let cluster = json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
            "spec": { "access": [{ "namespace": "*", "agentRights": true }] } });
        hub.ask(Method::POST, clusters, "application/json", cluster.to_string()).await?;
        let join = hub.post(&format!("{clusters}/{name}/jointoken"), &json!({})).await?;
        Self::join(hub, &join, &uuid::Uuid::new_v4().to_string()).await
    }

    /// Enrols with a join Secret, as the agent of the cluster whose `kube-system` has this uid.
    pub(crate) async fn join(hub: &Api, join: &Value, kube_system: &str) -> Result<Self> {
        EnrolledAgent::join(hub.http(), hub.server(), join, kube_system).await.map(Self)
    }

    /// Keeps sessions, one after the other, for ever.
    pub(crate) async fn keep(self, counts: Arc<Counts>) {
        loop {
            // A hub that is away is what some figures are about, so it is said and not the end.
            if let Err(error) = self.session(&counts).await {
                eprintln!("a simulated agent's session ended: {error:#}");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Keeps sessions, and does nothing of what it is sent.
    pub(crate) async fn hang(self, counts: Arc<Counts>) {
        loop {
            let _ = self.silent_session(&counts).await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn silent_session(&self, counts: &Counts) -> Result<()> {
        let mut session = self.0.session().await?;
        let _connected = Connected::new(counts);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                _ = heartbeat.tick() => session.say(agent_message::Body::Heartbeat(Heartbeat {})).await?,
                heard = session.hear() => drop(heard?),
            }
        }
    }

    async fn session(&self, counts: &Counts) -> Result<()> {
        let mut session = self.0.session().await?;
        let mut under_way = BTreeMap::new();
        let _connected = Connected::new(counts);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                _ = heartbeat.tick() => session.say(agent_message::Body::Heartbeat(Heartbeat {})).await?,
                heard = session.hear() => answer(heard?, &mut session, &mut under_way, counts).await?,
            }
        }
    }
}

/// Answers the hub. `under_way` has the name of each Kustomization that was dispatched, by its uid.
async fn answer(
    heard: Option<hub_message::Body>,
    session: &mut AgentSession,
    under_way: &mut BTreeMap<String, String>,
    counts: &Counts,
) -> Result<()> {
    match heard {
        Some(hub_message::Body::Dispatch(dispatch)) => {
            let key = dispatch.key.context("a dispatch has a key")?;
            // As an agent that does not have the build yet.
            let digest = dispatch.groups.first().map(|group| group.objects.clone()).unwrap_or_default();
            session.say(agent_message::Body::BuildRequest(BuildRequest { digest })).await?;
            let objects = vec![object(&dispatch.name)];
            under_way.insert(key.applier_uid.clone(), dispatch.name);
            let intent = InventoryIntent { key: Some(key), objects };
            session.say(agent_message::Body::InventoryIntent(intent)).await
        }
        Some(hub_message::Body::InventoryAck(ack)) => {
            let key = ack.key.context("an acknowledgement has a key")?;
            let name = under_way.get(&key.applier_uid).context("it was dispatched")?.clone();
            let tended = Tended { begun: vec![key.applier_uid.clone()], ended: Vec::new() };
            session.say(agent_message::Body::Finished(finished(key, &name, counts)?)).await?;
            // As the real one, which watches what it has applied.
            session.say(agent_message::Body::Tended(tended)).await?;
            counts.finished(name);
            Ok(())
        }
        // Another attempt has come in the place of that one.
        Some(hub_message::Body::Refused(refused)) if refused.what == "stale" => Ok(()),
        Some(hub_message::Body::Refused(refused)) => bail!("the hub refused {refused:?}"),
        _ => Ok(()),
    }
}

/// What each Kustomization's build holds, perhaps among others: the hub takes nothing for applied that is not in it.
fn object(name: &str) -> ObjectRef {
    ObjectRef {
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "bench".to_owned(),
        name: format!("settings-{name}"),
        ..ObjectRef::default()
    }
}

fn finished(key: DispatchKey, name: &str, counts: &Counts) -> Result<Finished> {
    let failure = if name.starts_with(BROKEN) {
        let sent = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let message = format!("timed out waiting for: ConfigMap/bench/{name}; sent at {sent}");
        Some(Failure { stage: Stage::Wait.into(), message, ..Failure::default() })
    } else if counts.fails.load(Ordering::Relaxed) {
        let message = format!("ConfigMap/bench/settings-{name}: timed out after 5m0s: 0 of 1 ready");
        Some(Failure { stage: Stage::Wait.into(), message, ..Failure::default() })
    } else {
        None
    };
    let object = object(name);
    let result = ObjectResult { object: Some(object.clone()), action: Action::Configured.into() };
    Ok(Finished {
        key: Some(key),
        failure,
        change_set: vec![result],
        inventory: vec![object],
        ..Finished::default()
    })
}
