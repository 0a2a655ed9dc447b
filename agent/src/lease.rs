//! The Lease that keeps two agents from fighting over one cluster.
//!
//! The rule: a process that starts takes the Lease, whoever holds it, because a start has a reason (a roll-out, a crash,
//! an operator); the process that finds another in its place stands by. So a successor never waits for a killed
//! predecessor's Lease to run out, and two living agents do not take it from each other in turns. One that stands by
//! takes over when the holder let go, or has not renewed for [`DURATION`] by the watcher's own clock. A moment of overlap
//! is harmless: both would apply the same digests.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as KubeLease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::home::Home;

/// The Lease's name.
pub const LEASE: &str = "roadstead-agent";

/// How often it is renewed, and looked at.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);

/// How long an unrenewed Lease counts.
pub const DURATION: Duration = Duration::from_secs(30);

/// How often two writers may get in each other's way before that is an error.
const TRIES: usize = 5;

/// Whether this process is the one that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Holding,
    /// Another one is.
    StandingBy {
        /// Who.
        holder: String,
    },
}

/// This process's claim.
pub struct Lease {
    api: Api<KubeLease>,
    identity: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether this process took it once; from then on another holder is respected.
    taken: bool,
    /// The last renewal of another holder that was seen, and when by our clock.
    seen: Option<(Option<Timestamp>, Instant)>,
}

/// What to do about a Lease as it is found.
#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    Take,
    Renew,
    StandBy(String),
}

fn judge(identity: &str, state: &State, holder: &str, is_stale: bool) -> Judgement {
    if holder == identity {
        Judgement::Renew
    } else if holder.is_empty() || !state.taken || is_stale {
        Judgement::Take
    } else {
        Judgement::StandBy(holder.to_owned())
    }
}

impl Lease {
    /// A claim of this process, not yet made.
    #[must_use]
    pub fn new(home: &Home) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "agent".to_owned());
        let identity = format!("{host}_{}_{}", std::process::id(), uuid::Uuid::new_v4());
        Self { api: Api::namespaced(home.client(), home.namespace()), identity, state: Mutex::default() }
    }

    /// Takes or renews it, or finds that another process holds it.
    ///
    /// # Errors
    /// When the apiserver is away or refuses.
    pub async fn look(&self) -> Result<Standing, kube::Error> {
        let mut state = self.state.lock().await;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_once(&mut state).await {
                Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
                standing => return standing,
            }
        }
    }

    async fn try_once(&self, state: &mut State) -> Result<Standing, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let Some(found) = self.api.get_opt(LEASE).await? else {
            let lease = self.claimed(KubeLease::default(), now, true);
            self.api.create(&PostParams::default(), &lease).await?;
            state.taken = true;
            return Ok(Standing::Holding);
        };
        let spec = found.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let renewed = spec.renew_time.map(|time| time.0);
        if state.seen.is_none_or(|(seen, _)| seen != renewed) {
            state.seen = Some((renewed, Instant::now()));
        }
        let is_stale = state.seen.is_some_and(|(_, since)| since.elapsed() >= DURATION);
        let is_new = match judge(&self.identity, state, &holder, is_stale) {
            Judgement::StandBy(holder) => return Ok(Standing::StandingBy { holder }),
            Judgement::Take => true,
            Judgement::Renew => false,
        };
        // The resourceVersion that was read goes along: whoever was faster wins.
        self.api.replace(LEASE, &PostParams::default(), &self.claimed(found, now, is_new)).await?;
        state.taken = true;
        Ok(Standing::Holding)
    }

    fn claimed(&self, mut lease: KubeLease, now: MicroTime, is_new: bool) -> KubeLease {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if is_new {
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count.saturating_add(1)));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        let name = lease.metadata.name.take().unwrap_or_else(|| LEASE.to_owned());
        lease.metadata = ObjectMeta { name: Some(name), ..lease.metadata };
        lease
    }

    /// From now on another holder is respected, as by a process that took it once.
    pub async fn respect(&self) {
        self.state.lock().await.taken = true;
    }

    /// The next look takes it, whoever holds it.
    pub async fn claim(&self) {
        self.state.lock().await.taken = false;
    }

    /// Lets go of it, if this process holds it.
    ///
    /// # Errors
    /// When the apiserver is away or refuses.
    pub async fn release(&self) -> Result<(), kube::Error> {
        let _state = self.state.lock().await;
        let Some(mut lease) = self.api.get_opt(LEASE).await? else { return Ok(()) };
        let Some(spec) =
            lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        else {
            return Ok(());
        };
        spec.holder_identity = Some(String::new());
        self.api.replace(LEASE, &PostParams::default(), &lease).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Judgement, State, judge};

    #[test]
    fn a_start_takes_it_and_the_one_it_was_taken_from_stands_by() {
        let new = State::default();
        let old = State { taken: true, seen: None };
        assert_eq!(judge("b", &new, "a", false), Judgement::Take);
        assert_eq!(judge("a", &old, "b", false), Judgement::StandBy("b".to_owned()));
        assert_eq!(judge("a", &old, "b", true), Judgement::Take);
        assert_eq!(judge("a", &old, "", false), Judgement::Take);
        assert_eq!(judge("b", &old, "b", false), Judgement::Renew);
    }
}
