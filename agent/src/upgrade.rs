//! How this agent has another image take its place, and goes back where that does not connect.
//!
//! The agent changes the image of its own Deployment, and notes in the same write, in an annotation there, from which image
//! to which, and until when. The Deployment ends the old pod only once the new one is ready, and ready is who has a session
//! with the hub. So the old agent watches: where the time is up first, it puts its own image back and says why. All that
//! matters is in the annotation, so whoever is killed goes on where it was when it is started again. Whoever runs the new
//! image takes the annotation away when the roll-out is complete.
//!
//! Meanwhile the old agent keeps its session whoever holds the Lease, until the hub has a newer one: a new agent that starts,
//! takes the Lease and never connects costs nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_agent_policy::Signature;
use roadstead_model::chain;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deployment::OwnDeployment;
use crate::home::{Home, HomeError};
use crate::lease::Lease;
use crate::warden::Warden;

/// The variable with the name of this agent's pod.
const POD: &str = "ROADSTEAD_POD_NAME";

/// How often a roll-out that is under way is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// A new agent that is not ready for this long is taken to have no session.
const DESERTED: Duration = Duration::from_secs(15);

/// What a hub may ask for.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(86_400);

/// Writers that may get in each other's way.
const TRIES: usize = 5;

/// An upgrade, as it stands in the Deployment's annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The image before.
    pub from: String,
    /// The image that is to take its place.
    pub to: String,
    /// When the one before is put back.
    pub deadline: Timestamp,
    /// Why it was put back, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The Deployment as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its resourceVersion.
    pub version: String,
    /// The image that it says.
    pub image: String,
    /// The upgrade that it knows of.
    pub record: Option<Record>,
    /// All its pods are of what it says now, and available.
    pub is_complete: bool,
}

/// What is to be done about an upgrade.
#[derive(Debug, PartialEq, Eq)]
enum Duty {
    /// Nothing, and nothing to wait for.
    Rest,
    /// Nothing yet.
    Watch,
    /// The old image is to be put back.
    GoBack,
    /// The record is to be taken away.
    Forget,
}

/// What whoever runs the image `me` is to do.
fn duty(me: &str, seen: &Seen, now: Timestamp) -> Duty {
    let Some(record) = seen.record.as_ref().filter(|record| record.failed.is_none()) else {
        return Duty::Rest;
    };
    if seen.image != record.to {
        // Somebody has changed the image since.
        return Duty::Forget;
    }
    if me == record.to {
        return if seen.is_complete { Duty::Forget } else { Duty::Watch };
    }
    if me == record.from && !seen.is_complete && now >= record.deadline {
        return Duty::GoBack;
    }
    Duty::Watch
}

/// What the hub is told of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The image that was asked for.
    pub image: String,
    /// Why this agent stays, if it does.
    pub failed: Option<String>,
    /// Whether that is the cluster's own policy, and says nothing of the image.
    pub is_refused: bool,
}

impl From<Report> for roadstead_proto::v1::UpgradeReport {
    fn from(report: Report) -> Self {
        use roadstead_proto::v1::UpgradeState;
        let state = match (&report.failed, report.is_refused) {
            (None, _) => UpgradeState::UnderWay,
            (Some(_), false) => UpgradeState::Failed,
            (Some(_), true) => UpgradeState::Refused,
        };
        let message = roadstead_proto::limits::bounded(&report.failed.unwrap_or_default());
        Self { image: report.image, state: state.into(), message }
    }
}

/// This agent's part in upgrades.
pub struct Upgrades {
    deployment: OwnDeployment,
    /// The image that runs here, where it is run by its Deployment.
    me: Option<String>,
    state: Mutex<State>,
    wake: Notify,
    reports: watch::Sender<Option<Report>>,
}

#[derive(Default)]
struct State {
    /// This is the old agent of an upgrade that is under way.
    in_custody: bool,
    /// Since when no new agent is ready.
    deserted: Option<Instant>,
}

impl Upgrades {
    /// Finds out which image this is, and whether an upgrade is under way.
    pub async fn find(home: &Home) -> Arc<Self> {
        let deployment = OwnDeployment::new(home.clone());
        let me = match std::env::var(POD) {
            Err(_) => None,
            Ok(pod) => match crate::app::patiently(|| deployment.image_of(&pod)).await {
                Ok(image) => image,
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "this agent does not know its own image, so it cannot change it"
                    );
                    None
                }
            },
        };
        let upgrades = Self {
            deployment,
            me,
            state: Mutex::default(),
            wake: Notify::new(),
            reports: watch::Sender::new(None),
        };
        if let Some(me) = upgrades.me.clone() {
            match crate::app::patiently(|| upgrades.deployment.look()).await {
                Ok(Some(seen)) => upgrades.take_in(&me, &seen),
                Ok(None) => {}
                Err(error) => tracing::warn!(error = chain(&error), "upgrades cannot be supervised"),
            }
        }
        Arc::new(upgrades)
    }

    /// The image that runs here.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.me.as_deref()
    }

    /// What the hub is to be told; none where there is nothing.
    #[must_use]
    pub fn reports(&self) -> watch::Receiver<Option<Report>> {
        self.reports.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the old agent of an upgrade that is under way: it keeps its session whoever holds the Lease.
    #[must_use]
    pub fn in_custody(&self) -> bool {
        self.state().in_custody
    }

    /// Whether it is, and no new agent has a session: the old one is to have one again, if it has none.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let state = self.state();
        state.in_custody && state.deserted.is_some_and(|since| since.elapsed() >= DESERTED)
    }

    /// Takes in what is so: what the hub is told, and whether this agent is the one that watches.
    fn take_in(&self, me: &str, seen: &Seen) {
        let record = seen.record.as_ref();
        let mine = record.filter(|record| record.from == me);
        let mut state = self.state();
        state.in_custody = mine.is_some_and(|record| record.failed.is_none() && seen.image == record.to);
        if !state.in_custody {
            state.deserted = None;
        }
        drop(state);
        let report = mine.map(|record| Report {
            image: record.to.clone(),
            failed: record.failed.clone(),
            is_refused: false,
        });
        self.reports.send_if_modified(|known| {
            let is_new = *known != report && report.is_some();
            if is_new {
                known.clone_from(&report);
            }
            is_new
        });
    }

    /// Has another image take this one's place, where the cluster's policy allows it. What comes of it is told by
    /// [`Self::reports`].
    pub async fn begin(&self, image: &str, timeout: Duration, signatures: &[Signature], warden: &Warden) {
        let timeout = timeout.clamp(*TIMEOUTS.start(), *TIMEOUTS.end());
        let mut is_refused = false;
        let failed = match &self.me {
            None => Some(format!(
                "this agent is not run by Deployment {}, so it cannot change its image",
                self.deployment.name()
            )),
            Some(me) if me == image => None,
            Some(me) => match warden.check_upgrade(me, image, signatures).await {
                Err(why) => {
                    is_refused = true;
                    Some(why)
                }
                Ok(()) => match self.try_begin(me, image, timeout).await {
                    Ok(()) => return self.wake.notify_one(),
                    Err(error) if error.is_refusal() => Some(format!(
                        "{}: does the agent's Role allow it? Apply the agent's manifests again",
                        chain(&error)
                    )),
                    Err(error) => Some(chain(&error)),
                },
            },
        };
        if let Some(why) = &failed {
            tracing::warn!(image, why, "the image was not changed");
        }
        // Also where it was told before: the hub has asked again.
        self.reports.send_replace(Some(Report { image: image.to_owned(), failed, is_refused }));
    }

    async fn try_begin(&self, me: &str, image: &str, timeout: Duration) -> Result<(), HomeError> {
        for _ in 0..TRIES {
            let Some(seen) = self.deployment.look().await? else {
                return Err(HomeError::NoDeployment(self.deployment.name()));
            };
            let is_begun = seen.record.as_ref().is_some_and(|record| {
                (record.to.as_str(), &record.failed, &seen.image) == (image, &None, &record.to)
            });
            if is_begun {
                self.take_in(me, &seen);
                return Ok(());
            }
            let record = Record {
                from: me.to_owned(),
                to: image.to_owned(),
                deadline: Timestamp::now() + timeout,
                failed: None,
            };
            if self.deployment.change(&seen, image, Some(&record)).await? {
                tracing::info!(from = me, to = image, deadline = %record.deadline, "changed the image");
                let seen = Seen { image: image.to_owned(), record: Some(record), ..seen };
                self.take_in(me, &seen);
                return Ok(());
            }
        }
        Err(HomeError::Contended(self.deployment.name()))
    }

    /// Watches upgrades until `stop`. Where none is under way, nothing is asked for.
    pub async fn watch(self: Arc<Self>, lease: Arc<Lease>, stop: CancellationToken) {
        let Some(me) = self.me.clone() else { return };
        loop {
            let rests = match self.step(&me, &lease).await {
                Ok(rests) => rests,
                Err(error) => {
                    tracing::warn!(error = chain(&error), "the upgrade could not be supervised");
                    false
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY), if !rests => {}
            }
        }
    }

    /// Does what is to be done now; true where nothing is to be waited for.
    async fn step(&self, me: &str, lease: &Lease) -> Result<bool, HomeError> {
        let Some(seen) = self.deployment.look().await? else { return Ok(true) };
        self.take_in(me, &seen);
        let Some(record) = &seen.record else { return Ok(true) };
        match duty(me, &seen, Timestamp::now()) {
            Duty::Rest => return Ok(true),
            Duty::Watch => {
                if self.in_custody() {
                    let is_ready = self.deployment.readiness(&record.to).await?.is_ok();
                    let mut state = self.state();
                    state.deserted = if is_ready { None } else { state.deserted.or(Some(Instant::now())) };
                }
                return Ok(false);
            }
            Duty::Forget => {
                if self.deployment.change(&seen, &seen.image, None).await? {
                    tracing::info!(image = seen.image, "the upgrade is complete");
                    self.take_in(me, &Seen { record: None, ..seen });
                    return Ok(true);
                }
            }
            Duty::GoBack => {
                let why = match self.deployment.readiness(&record.to).await? {
                    Ok(()) => "it was ready, but not for long enough".to_owned(),
                    Err(why) => why,
                };
                let why = format!("the agent of {} did not take over in time: {why}", record.to);
                let over = Record { failed: Some(why.clone()), ..record.clone() };
                if self.deployment.change(&seen, me, Some(&over)).await? {
                    tracing::warn!(image = me, why, "the old image was put back");
                    // Its successor is on its way out: this one does not wait until that let go.
                    lease.claim().await;
                    self.take_in(me, &Seen { image: me.to_owned(), record: Some(over), ..seen });
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Duty, Record, Seen, duty};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn seen(image: &str, is_complete: bool) -> Seen {
        let record = Record { from: "a:1".to_owned(), to: "a:2".to_owned(), deadline: at(100), failed: None };
        Seen { version: "1".to_owned(), image: image.to_owned(), record: Some(record), is_complete }
    }

    #[test]
    fn who_does_what() {
        // The old one waits for the new, and goes back when the time is up.
        assert_eq!(duty("a:1", &seen("a:2", false), at(99)), Duty::Watch);
        assert_eq!(duty("a:1", &seen("a:2", false), at(100)), Duty::GoBack);
        // In the moment in which the new one is there, whatever the time, it is left to it.
        assert_eq!(duty("a:1", &seen("a:2", true), at(100)), Duty::Watch);
        // The new one ends the upgrade when the old one's pod is gone, and never goes back.
        assert_eq!(duty("a:2", &seen("a:2", false), at(1000)), Duty::Watch);
        assert_eq!(duty("a:2", &seen("a:2", true), at(1000)), Duty::Forget);
        // Somebody wants a third, or went back by hand.
        assert_eq!(duty("a:1", &seen("a:3", false), at(1000)), Duty::Forget);
        assert_eq!(duty("a:1", &seen("a:1", true), at(1000)), Duty::Forget);
        // It is over.
        let mut over = seen("a:1", true);
        over.record.as_mut().expect("a record").failed = Some("no such image".to_owned());
        assert_eq!(duty("a:1", &over, at(1000)), Duty::Rest);
        over.record = None;
        assert_eq!(duty("a:1", &over, at(1000)), Duty::Rest);
    }

    #[test]
    fn a_record_reads_back() {
        let record = seen("a:2", false).record.expect("a record");
        let text = serde_json::to_string(&record).expect("JSON");
        assert_eq!(serde_json::from_str::<Record>(&text).expect("JSON"), record);
    }
}
