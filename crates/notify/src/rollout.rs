//! Rollouts: how far a commit has come in an environment, which an Alert that groups tells as one status of that commit.
//!
//! [`gather`] makes rollouts of what is known of the appliers; [`next`] is what follows for the status of one, from what was told of it before;
//! [`RolloutNews::event`] is the event that tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{AlertSpec, KindId};
use serde::{Deserialize, Serialize};

use crate::event::{Event, Involved, Level};
use crate::repository::hash;

/// Statuses of one Alert that change at once at most.
const MOST_ROLLOUTS: usize = 500;
/// Environments of one Alert at most: each has a status at every commit.
const MOST_ENVIRONMENTS: usize = 50;
/// After so many messages about one status, that much time is between two that say only how far it has come: GitHub keeps 1,000 of a commit.
const GAPS: [(u64, Duration); 3] =
    [(60, Duration::from_secs(10)), (300, Duration::from_secs(60)), (u64::MAX, Duration::from_secs(600))];
/// Characters of a commit by which people know it.
const SHORT: usize = 10;
/// The environment of what is on no Cluster with the label.
pub const NO_ENVIRONMENT: &str = "none";

/// What a status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Something is still to be reconciled.
    Pending,
    /// All is ready.
    Success,
    /// Nothing is still to be reconciled, and something failed.
    Failure,
    /// It will not come to an end: a later revision took its place, or nothing is counted any more.
    Superseded,
}

impl Verdict {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Superseded => "superseded",
        }
    }

    /// The verdict that is stored so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Success, Self::Failure, Self::Superseded]
            .into_iter()
            .find(|one| one.as_str() == text)
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Pending => "Progressing",
            Self::Success => "RolloutSucceeded",
            Self::Failure => "RolloutFailed",
            Self::Superseded => "RolloutSuperseded",
        }
    }
}

/// How far a rollout has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Whether clusters are counted, or else Kustomizations.
    pub of_clusters: bool,
    /// How many there are.
    pub total: u64,
    /// How many of them are ready.
    pub ready: u64,
    /// How many of them failed.
    pub failed: u64,
}

/// Appliers of one source on one cluster, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The source's revision.
    pub revision: String,
    /// The commit that it comes of, where it is not a commit itself.
    pub origin: Option<String>,
    /// The environment.
    pub environment: String,
    /// The cluster; none where they are on none that has a name.
    pub cluster: Option<String>,
    /// How many there are.
    pub total: u64,
    /// Those that are ready at that revision.
    pub ready: u64,
    /// Those that failed at it.
    pub failed: u64,
}

/// Which status: of which commit, and for which environment. The latter is empty where an Alert tells none apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RolloutKey {
    /// The commit, in hex.
    pub commit: String,
    /// The environment.
    pub environment: String,
}

/// A commit on its way into an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// The revision, as the source has it.
    pub revision: String,
    /// How far it has come.
    pub counts: Counts,
}

/// What there is to tell of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rollouts {
    /// Each.
    pub of: BTreeMap<RolloutKey, Rollout>,
    /// How many are left out, since there are too many.
    pub left_out: usize,
}

#[derive(Default)]
struct Gathered {
    revision: String,
    clusters: BTreeMap<String, Counts>,
    all: Counts,
    is_beside: bool,
}

/// The rollouts of what is known of appliers. What is at no commit is left out.
#[must_use]
pub fn gather(applied: impl IntoIterator<Item = Applied>) -> Rollouts {
    let mut gathered: BTreeMap<RolloutKey, Gathered> = BTreeMap::new();
    for one in applied {
        let named = one.origin.as_deref().unwrap_or(&one.revision);
        let Some(commit) = hash(named) else { continue };
        let at = gathered.entry(RolloutKey { commit, environment: one.environment }).or_default();
        if at.revision.is_empty() || one.revision < at.revision {
            at.revision = one.revision;
        }
        let add = |counts: &mut Counts| {
            counts.total += one.total;
            counts.ready += one.ready;
            counts.failed += one.failed;
        };
        add(&mut at.all);
        match one.cluster {
            Some(cluster) => add(at.clusters.entry(cluster).or_default()),
            None => at.is_beside = true,
        }
    }
    let environments: BTreeSet<String> = gathered.keys().map(|key| key.environment.clone()).collect();
    let last = environments.into_iter().take(MOST_ENVIRONMENTS).next_back();
    let mut rollouts = Rollouts::default();
    for (key, one) in gathered {
        if Some(&key.environment) > last.as_ref() || rollouts.of.len() >= MOST_ROLLOUTS {
            rollouts.left_out += 1;
            continue;
        }
        let counts = one.counts();
        rollouts.of.insert(key, Rollout { revision: one.revision, counts });
    }
    rollouts
}

impl Gathered {
    /// By clusters, where all are on one: it is ready where all on it is, and failed where something on it did.
    fn counts(&self) -> Counts {
        if self.is_beside {
            return self.all;
        }
        let mut counts = Counts { of_clusters: true, ..Counts::default() };
        for one in self.clusters.values() {
            counts.total += 1;
            counts.failed += u64::from(one.failed > 0);
            counts.ready += u64::from(one.failed == 0 && one.ready == one.total);
        }
        counts
    }
}

impl Counts {
    fn under_way(&self) -> u64 {
        self.total.saturating_sub(self.ready).saturating_sub(self.failed)
    }

    fn verdict(&self) -> Verdict {
        match (self.under_way(), self.failed) {
            (0, 0) => Verdict::Success,
            (0, _) => Verdict::Failure,
            _ => Verdict::Pending,
        }
    }

    /// What failed before fails until it is ready, also while it is tried again: else a status would change with each try.
    fn after(self, told: Option<&ToldRollout>) -> Self {
        let Some(before) = told.filter(|told| told.verdict == Verdict::Failure) else { return self };
        let tried_again = before.counts.failed.saturating_sub(self.failed).min(self.under_way());
        Self { failed: self.failed + tried_again, ..self }
    }
}

/// What was told of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldRollout {
    /// The revision, as the source has it.
    pub revision: String,
    /// What was said.
    pub verdict: Verdict,
    /// How far it had come.
    pub counts: Counts,
    /// When that was.
    pub told_at: Timestamp,
    /// How many messages there were.
    pub messages: u64,
}

/// What is done about the status of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutStep {
    /// Nothing: it says what is.
    Keep,
    /// Nothing until then.
    Wait(Timestamp),
    /// It is told.
    Tell(Verdict, Counts),
}

/// What follows from how far a rollout has come, if it is still one, and from what was told of it. What ends it is told at once.
#[must_use]
pub fn next(counts: Option<Counts>, told: Option<&ToldRollout>, now: Timestamp) -> RolloutStep {
    let Some(counts) = counts.filter(|counts| counts.total > 0) else {
        return match told {
            Some(told) if told.verdict == Verdict::Pending => {
                RolloutStep::Tell(Verdict::Superseded, told.counts)
            }
            _ => RolloutStep::Keep,
        };
    };
    let counts = counts.after(told);
    let verdict = counts.verdict();
    let Some(told) = told else { return RolloutStep::Tell(verdict, counts) };
    let is_same = verdict == told.verdict;
    if is_same && (verdict == Verdict::Success || counts == told.counts) {
        return RolloutStep::Keep;
    }
    if !is_same && verdict != Verdict::Pending {
        return RolloutStep::Tell(verdict, counts);
    }
    let gap = GAPS.iter().find(|(most, _)| told.messages < *most).map_or(Duration::ZERO, |(_, gap)| *gap);
    let due = told.told_at.saturating_add(gap).unwrap_or(now);
    // A clock that was set back holds nothing up.
    if now < due && now >= told.told_at { RolloutStep::Wait(due) } else { RolloutStep::Tell(verdict, counts) }
}

/// What an event says of the rollout that it tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutFacts {
    /// What its status is to say.
    pub verdict: Verdict,
    /// The environment, where the Alert tells some apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// How many there are, clusters or Kustomizations.
    pub total: u64,
    /// Those that are ready.
    pub ready: u64,
    /// Those that failed.
    pub failed: u64,
}

/// What is told of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutNews<'a> {
    /// Which one.
    pub key: &'a RolloutKey,
    /// The revision, as the source has it.
    pub revision: &'a str,
    /// What its status is to say.
    pub verdict: Verdict,
    /// How far it has come, or had.
    pub counts: Counts,
    /// The commit that took its place, where that is known.
    pub successor: Option<&'a str>,
}

impl RolloutNews<'_> {
    /// The event that tells it: about the Alert of this namespace, name and uid.
    #[must_use]
    pub fn event(&self, [namespace, name, uid]: [&str; 3], spec: &AlertSpec, now: Timestamp) -> Event {
        let kind = KindId::Alert.get();
        let environment = Some(&self.key.environment).filter(|one| !one.is_empty()).cloned();
        let own = |key: &str| format!("{}/{key}", kind.group());
        let mut metadata = BTreeMap::from([
            (own("commit"), self.key.commit.clone()),
            (own("revision"), self.revision.to_owned()),
        ]);
        metadata.extend(environment.clone().map(|environment| (own("environment"), environment)));
        let Counts { total, ready, failed, .. } = self.counts;
        let event = Event {
            involved_object: Involved {
                api_version: kind.storage_version().api_version(),
                kind: kind.kind.to_owned(),
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                uid: uid.to_owned(),
                resource_version: String::new(),
            },
            severity: if self.verdict == Verdict::Failure { Level::Error } else { Level::Info },
            timestamp: now.to_string(),
            message: self.message(),
            reason: self.verdict.reason().to_owned(),
            metadata,
            reporting_controller: "roadstead-hub".to_owned(),
            reporting_instance: String::new(),
            relayed_from: None,
            statuses_and_comments: false,
            incident: None,
            rollout: Some(RolloutFacts { verdict: self.verdict, environment, total, ready, failed }),
        };
        event.told_by(spec, None)
    }

    fn message(&self) -> String {
        let Counts { of_clusters, total, ready, failed } = self.counts;
        let what = match (of_clusters, total) {
            (true, 1) => "cluster",
            (true, _) => "clusters",
            (false, 1) => "Kustomization",
            (false, _) => "Kustomizations",
        };
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        if self.verdict != Verdict::Superseded {
            return format!("{ready} of {total} {what} ready{failed}");
        }
        let why = match self.successor {
            Some(commit) => {
                format!("superseded by {}", commit.get(..SHORT).unwrap_or(commit))
            }
            None => "not counted any more".to_owned(),
        };
        format!("{why}; {ready} of {total} {what} were ready{failed}")
    }
}

/// The commit that takes the place of another one in an environment: the only one that is on its way there.
#[must_use]
pub fn successor<'a>(of: &RolloutKey, rollouts: &'a Rollouts) -> Option<&'a str> {
    let mut others =
        rollouts.of.keys().filter(|key| key.environment == of.environment && key.commit != of.commit);
    let first = others.next()?;
    others.next().is_none().then_some(first.commit.as_str())
}

#[cfg(test)]
mod tests;
