//! The link to the hub: sessions, one after the other, for as long as this process is the one that works.

mod connect;
mod frame;
mod session;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_agent_policy::Signature;
use roadstead_model::{Capabilities, KubeSystemUid};
use roadstead_proto::AgentState;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use frame::{Counts, FrameError};

use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::identity::Identity;
use crate::runner::Runner;
use crate::upgrade::Report;

/// A session that lived this long was a good one: the next try comes soon.
const GOOD_SESSION: Duration = Duration::from_secs(2);

/// What the agent says of its cluster.
#[derive(Debug, Clone)]
pub struct Facts {
    /// What makes the cluster that cluster.
    pub kube_system: KubeSystemUid,
    /// As `v1.35.3`.
    pub kubernetes_version: String,
}

/// Who keeps the identity, and knows whether this process is the one that works.
pub trait Keeper: Send + Sync + 'static {
    /// The identity for the next session.
    fn identity(&self) -> Arc<Identity>;

    /// Called before each session; false where another process took this one's place.
    fn may_connect(&self) -> impl Future<Output = bool> + Send;

    /// The hub gave a new certificate: keep it.
    fn renewed(&self, identity: Identity) -> impl Future<Output = ()> + Send;

    /// A session has begun, or is over.
    fn connected(&self, is_connected: bool);

    /// The image that runs here; empty where it is not known.
    fn image(&self) -> String;

    /// Why the apiserver does not answer, while that is so.
    fn apiserver(&self) -> watch::Receiver<Option<String>>;

    /// What the agent does not do.
    fn state(&self) -> watch::Receiver<AgentState>;

    /// What the hub is to be told of upgrades.
    fn upgrade_reports(&self) -> watch::Receiver<Option<Report>>;

    /// The hub wants another image to run here. What comes of it is told by [`Self::upgrade_reports`].
    fn upgrade(
        &self,
        image: String,
        timeout: Duration,
        signatures: Vec<Signature>,
    ) -> impl Future<Output = ()> + Send;

    /// The hub wants this agent to remove itself. The error is for the hub.
    fn remove(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// The hub does not take this identity: get another one, if there is a way.
    fn refused(&self) -> impl Future<Output = ()> + Send;

    /// There is no hub, or not the one of this identity: get another identity, if someone has said that there is another
    /// hub.
    fn unreachable(&self) -> impl Future<Output = ()> + Send;
}

/// How a session ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// This side ended it.
    #[error("this agent ended the session")]
    Stopped,
    /// The hub does not take this identity.
    #[error("the hub refused this agent: {0}")]
    Refused(String),
    /// There was no session.
    #[error("the hub at {hub} cannot be reached: {why}")]
    Unreachable {
        /// `host:port`.
        hub: String,
        /// Why.
        why: String,
    },
    /// Nothing was heard.
    #[error("nothing was received from the hub for {0:?}: the connection was closed")]
    Silent(Duration),
    /// The hub does not speak the protocol.
    #[error("the hub broke the protocol: {0}")]
    Protocol(String),
    /// The hub, or what lies between, ended it.
    #[error("the hub ended the session: {0}")]
    Closed(String),
}

/// The link of one agent.
pub struct Link<C> {
    /// Carries out what comes over it.
    pub runner: Runner<C>,
    /// What is said of the cluster.
    pub facts: Facts,
}

impl<C: Cluster> Link<C> {
    /// Holds sessions until `stop`, or until another process took this one's place.
    pub async fn keep<K: Keeper>(&self, keeper: &Arc<K>, stop: &CancellationToken) {
        let mut backoff = Backoff::default();
        loop {
            let may_connect = tokio::select! {
                () = stop.cancelled() => return,
                may_connect = keeper.may_connect() => may_connect,
            };
            if !may_connect {
                return;
            }
            let (end, lived) = self.session(keeper, stop).await;
            if lived >= GOOD_SESSION {
                backoff.reset();
            }
            if matches!(end, End::Stopped) || stop.is_cancelled() {
                return;
            }
            match end {
                End::Refused(_) => {
                    // The cluster may be another agent's by now, or nobody's: what was ordered once counts no more.
                    self.runner.rest_all();
                    keeper.refused().await;
                }
                End::Unreachable { .. } => keeper.unreachable().await,
                _ => {}
            }
            let wait = backoff.draw();
            tracing::warn!(error = %end, retry_in = ?wait, "no session with the hub");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// One session; also how long it lived since the hub's welcome.
    async fn session<K: Keeper>(&self, keeper: &Arc<K>, stop: &CancellationToken) -> (End, Duration) {
        let identity = keeper.identity();
        let mut upgrades = keeper.upgrade_reports();
        let hello = self.hello(keeper.image(), upgrades.borrow_and_update().clone());
        let opened = tokio::select! {
            () = stop.cancelled() => return (End::Stopped, Duration::ZERO),
            opened = connect::open(&identity, hello) => opened,
        };
        let (opened, welcome) = match opened {
            Ok(opened) => opened,
            Err(end) => return (end, Duration::ZERO),
        };
        let began = Instant::now();
        tracing::info!(
            hub = identity.link,
            hub_version = welcome.hub_version,
            session = welcome.session_id,
            epoch = welcome.epoch,
            cluster = welcome.cluster_name,
            "connected to the hub"
        );
        warn_of_the_clock(welcome.unix_millis);
        keeper.connected(true);
        let end = session::Session::new(&self.runner, keeper.clone(), identity, opened, &welcome, upgrades)
            .run(stop)
            .await;
        keeper.connected(false);
        (end, began.elapsed())
    }

    fn hello(&self, image: String, upgrade: Option<Report>) -> roadstead_proto::v1::Hello {
        roadstead_proto::v1::Hello {
            agent_version: crate::VERSION.to_owned(),
            kube_system_uid: self.facts.kube_system.to_string(),
            kubernetes_version: self.facts.kubernetes_version.clone(),
            running: self.runner.unfinished().into_iter().map(Into::into).collect(),
            image,
            upgrade: upgrade.map(Into::into),
            unix_millis: Timestamp::now().as_millisecond(),
            capabilities: Capabilities::of_this_agent().names(),
            seen: self.runner.seen().into_iter().map(Into::into).collect(),
        }
    }
}

/// Says so where the hub's clock and this node's differ by more than a minute.
fn warn_of_the_clock(hub_millis: i64) {
    const TOLERATED: u64 = 60;
    let ahead = Timestamp::now().as_millisecond().saturating_sub(hub_millis) / 1000;
    if hub_millis != 0 && ahead.unsigned_abs() > TOLERATED {
        let (apart, which) = (ahead.unsigned_abs(), if ahead < 0 { "behind" } else { "ahead of" });
        tracing::warn!("the clock of this node is {apart} s {which} the hub's: synchronize both with NTP");
    }
}
