//! Passes over what Alerts count: how far each commit has come is told as one status of it for each environment.
//!
//! The appliers are counted when news of them was sorted, or their source has moved on, and now and then while something is under way; of one
//! Alert not more often than each [`EVERY`]. What is told is noted in the unit of work that makes a delivery of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{AlertGroup, AlertSpec};
use roadstead_hub_store::{Stored, StoredRollout, Tx};
use roadstead_model::Digest;
use roadstead_notify::{
    Applied, Counts, Rollout, RolloutKey, RolloutNews, RolloutStep, Rollouts, ToldRollout, Verdict, gather,
    next, successor,
};
use serde_json::json;

use crate::HubError;
use crate::notify::Notifier;

/// Appliers of one Alert are counted no sooner than that after they were counted.
const EVERY: Duration = Duration::from_secs(10);
/// And, while something is under way, no later: of what is removed or suspended there is no news.
const UNDER_WAY: Duration = Duration::from_secs(60);

/// What came of telling what an Alert groups.
#[derive(Default)]
pub(super) struct Grouped {
    /// When it is to be done again, if that is known.
    pub(super) look_at: Option<Timestamp>,
    /// Statuses that are left out, since there are too many.
    pub(super) left_out: usize,
}

impl Notifier {
    /// Makes deliveries of the statuses that are to say something else.
    pub(super) async fn tell_rollouts(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
        group: &AlertGroup,
    ) -> Result<Grouped, HubError> {
        let now = self.clock.now();
        if let Some(counted_at) = self.store.rollouts_counted_at(alert.uid).await?
            && (counted_at..counted_at + EVERY).contains(&now)
        {
            return Ok(Grouped { look_at: Some(counted_at + EVERY), left_out: 0 });
        }
        let _alone = self.counting.lock().await;
        let counted = self.counted(alert, spec, group).await?;
        let mut tx = self.store.begin().await?;
        tx.hold_incidents(alert.uid).await?;
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        let applied = tx.count_appliers(&counted.sources).await?.into_iter().map(|one| Applied {
            environment: counted.environment(one.cluster.as_deref()),
            revision: one.revision,
            origin: one.origin,
            cluster: one.cluster,
            total: number(one.total),
            ready: number(one.ready),
            failed: number(one.failed),
        });
        let rollouts = gather(applied);
        let look_at = step(&mut tx, alert, spec, &rollouts, now).await?;
        tx.rollouts_counted(alert.uid, now).await?;
        tx.commit().await?;
        Ok(Grouped { look_at, left_out: rollouts.left_out })
    }

    /// Ends the statuses of an Alert that counts nothing any more.
    pub(super) async fn end_rollouts(&self, alert: &Stored, spec: &AlertSpec) -> Result<(), HubError> {
        if !self.store.has_pending_rollouts(alert.uid).await? {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        tx.hold_incidents(alert.uid).await?;
        step(&mut tx, alert, spec, &Rollouts::default(), self.clock.now()).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Does what follows for each status; says when to look again.
async fn step(
    tx: &mut Tx,
    alert: &Stored,
    spec: &AlertSpec,
    rollouts: &Rollouts,
    now: Timestamp,
) -> Result<Option<Timestamp>, HubError> {
    let commits: BTreeSet<&str> = rollouts.of.keys().map(|key| key.commit.as_str()).collect();
    let commits: Vec<&str> = commits.into_iter().collect();
    let told: BTreeMap<RolloutKey, ToldRollout> =
        tx.told_rollouts(alert.uid, &commits).await?.into_iter().filter_map(read).collect();
    let keys: BTreeSet<&RolloutKey> = rollouts.of.keys().chain(told.keys()).collect();
    let mut look_at = None;
    for key in keys {
        let (is, was) = (rollouts.of.get(key), told.get(key));
        let (is_pending, again) = match next(is.map(|is| is.counts), was, now) {
            RolloutStep::Keep => (was.is_some_and(|was| was.verdict == Verdict::Pending), None),
            RolloutStep::Wait(until) => (true, Some(until)),
            RolloutStep::Tell(verdict, counts) => {
                let revision = revision(is, was);
                let successor = successor(key, rollouts);
                let news = RolloutNews { key, revision, verdict, counts, successor };
                let is_told = tell(tx, alert, spec, &news, now).await?;
                (!is_told || verdict == Verdict::Pending, None)
            }
        };
        let later = is_pending.then_some(now + UNDER_WAY);
        look_at = look_at.into_iter().chain(again).chain(later).min();
    }
    Ok(look_at)
}

fn revision<'a>(is: Option<&'a Rollout>, was: Option<&'a ToldRollout>) -> &'a str {
    is.map(|is| is.revision.as_str()).or(was.map(|was| was.revision.as_str())).unwrap_or_default()
}

async fn tell(
    tx: &mut Tx,
    alert: &Stored,
    spec: &AlertSpec,
    news: &RolloutNews<'_>,
    now: Timestamp,
) -> Result<bool, HubError> {
    let RolloutKey { commit, environment } = news.key;
    let Counts { of_clusters, total, ready, failed } = news.counts;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let rollout = StoredRollout {
        commit: commit.clone(),
        environment: environment.clone(),
        revision: news.revision.to_owned(),
        verdict: news.verdict.as_str().to_owned(),
        of_clusters,
        total: number(total),
        ready: number(ready),
        failed: number(failed),
        told_at: now,
        messages: 1,
    };
    let uid = alert.uid.to_string();
    let event = news.event([&alert.namespace, &alert.name, &uid], spec, now);
    let key = Digest::of(format!("rollout/{commit}/{environment}").as_bytes());
    Ok(tx.tell_rollout(alert.uid, &rollout, &json!(event), key.as_bytes()).await?)
}

/// One that a newer version wrote, and that cannot be read, is told as if nothing had been.
fn read(stored: StoredRollout) -> Option<(RolloutKey, ToldRollout)> {
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    let counts = Counts {
        of_clusters: stored.of_clusters,
        total: number(stored.total),
        ready: number(stored.ready),
        failed: number(stored.failed),
    };
    let told = ToldRollout {
        revision: stored.revision,
        verdict: Verdict::parse(&stored.verdict)?,
        counts,
        told_at: stored.told_at,
        messages: number(stored.messages),
    };
    Some((RolloutKey { commit: stored.commit, environment: stored.environment }, told))
}
