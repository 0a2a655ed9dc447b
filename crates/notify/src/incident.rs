//! Incidents: failures with one [`Cause`](crate::Cause) that an Alert tells as one thing, which opens, grows and is resolved.
//!
//! [`Incident::next`] is what follows from what is known of one at a time; [`Incident::told`] is the event that tells it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_api::AlertGroup;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Involved, Level};

/// Clusters or objects that a message lists.
pub const MOST_NAMED: usize = 20;
/// The shortest time between two messages of one incident, and the longest that its first one may wait.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Where nothing is to be done before something happens.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// An incident is taken to be over where it is not told again by so long after it should have been, or where it is never told again.
const SLACK: Duration = Duration::from_secs(3600);
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// What an Alert does not say.
const WAIT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(300);
const REPEAT: Duration = Duration::from_secs(4 * 3600);

/// When an incident is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long failures are gathered before the first message, and how long all must be well before the last one.
    pub wait: Duration,
    /// At least so long after a message comes one that more fail.
    pub interval: Duration,
    /// So long after a message comes one that it still goes on. None is never.
    pub repeat: Option<Duration>,
}

impl From<&AlertGroup> for Pace {
    fn from(group: &AlertGroup) -> Self {
        let repeat = group.repeat_interval.map_or(REPEAT, |repeat| repeat.0);
        Self {
            wait: group.wait.map_or(WAIT, |wait| wait.0).min(LONGEST_WAIT),
            interval: group.interval.map_or(INTERVAL, |interval| interval.0).max(SHORTEST),
            repeat: (!repeat.is_zero()).then_some(repeat.max(SHORTEST)),
        }
    }
}

/// What is known of an incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Its id, which no other incident has.
    pub id: String,
    /// The first failure, as the Alert tells it.
    pub first: Event,
    /// When that was.
    pub opened_at: Timestamp,
    /// When it was last told, if it was.
    pub told_at: Option<Timestamp>,
    /// How many objects had failed by then.
    pub told: u64,
    /// Objects that fail now.
    pub failing: u64,
    /// Objects that failed at any time.
    pub failed: u64,
    /// Objects that do not fail for this cause any more, but for another one.
    pub elsewhere: u64,
    /// Objects that count as over although nobody said that they are well.
    pub lapsed: Lapsed,
    /// The clusters of those that fail now.
    pub failing_clusters: u64,
    /// Those of all that failed.
    pub clusters: u64,
    /// How many clusters there are of which the Alert hears, where that is known.
    pub of_clusters: Option<u64>,
    /// The first of those that fail now, or failed if none does: by cluster where they have one.
    pub names: Vec<String>,
    /// When the last one was well again; none while one fails.
    pub well_since: Option<Timestamp>,
}

/// Objects of an incident that count as over although nobody said that they are well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lapsed {
    /// They were deleted, or their Clusters.
    pub gone: u64,
    /// The Alert is not for them any more.
    pub left: u64,
    /// They are suspended.
    pub suspended: u64,
    /// Their health is not checked any more.
    pub unchecked: u64,
    /// They are on clusters, and nothing was heard of them for long.
    pub unheard: u64,
    /// None of these was heard of since then.
    pub unheard_since: Option<Timestamp>,
}

impl Lapsed {
    /// What people are told of them.
    fn told(&self) -> Vec<String> {
        let objects =
            |count: u64| if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
        let told = |count: u64, words: [&str; 2]| {
            let [before, after] = words;
            (count > 0).then(|| format!("{before}{}{after}", objects(count)))
        };
        let is = |count: u64| if count == 1 { "is" } else { "are" };
        let deleted = match self.gone {
            1 => " was deleted, or its Cluster was",
            _ => " were deleted, or their Clusters were",
        };
        let since = self.unheard_since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
        [
            told(self.gone, ["", deleted]),
            told(self.suspended, ["", &format!(" {} suspended", is(self.suspended))]),
            told(self.unchecked, ["the health of ", " is no longer checked"]),
            told(self.left, ["the Alert is no longer for ", ""]),
            told(self.unheard, ["nothing was heard of ", &format!("{since}, which may fail still")]),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What a message says of its incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It is new.
    Opened,
    /// More objects fail.
    Grown,
    /// It goes on.
    Repeated,
    /// It is over.
    Resolved,
}

/// What an event says of the incident that it tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentFacts {
    /// Its id.
    pub id: String,
    /// What is new.
    pub stage: Stage,
    /// When it began, in RFC 3339.
    pub opened_at: String,
    /// Objects that fail now.
    pub failing: u64,
    /// Objects that failed at any time.
    pub failed: u64,
    /// Clusters of those that fail now.
    pub clusters: u64,
    /// The clusters of which the Alert hears, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_clusters: Option<u64>,
    /// When to take it to be over where nothing more is told, in RFC 3339.
    #[serde(default)]
    pub expires_at: String,
}

/// Why an incident is no longer reported to a Provider, although nothing said that it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingReason {
    /// Its Alert was deleted.
    AlertDeleted,
    /// The Provider was.
    ProviderDeleted,
    /// Its Alert names another Provider.
    ProviderChanged,
}

impl ClosingReason {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AlertDeleted => "alert-deleted",
            Self::ProviderDeleted => "provider-deleted",
            Self::ProviderChanged => "provider-changed",
        }
    }

    /// What is stored so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::AlertDeleted, Self::ProviderDeleted, Self::ProviderChanged];
        all.into_iter().find(|one| one.as_str() == text)
    }

    /// What people are told.
    fn told(self) -> &'static str {
        match self {
            Self::AlertDeleted => "the Alert was deleted",
            Self::ProviderDeleted => "the Provider was deleted",
            Self::ProviderChanged => "the Alert was given another Provider",
        }
    }
}

/// What is done with an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then.
    Wait(Timestamp),
    /// It is told, and goes on.
    Tell(Stage),
    /// It is told for the last time.
    Resolve,
    /// It was over before anybody was told of it.
    Forget,
}

impl Incident {
    /// What is to be done now.
    #[must_use]
    pub fn next(&self, pace: &Pace, now: Timestamp) -> Step {
        if let Some(since) = self.well_since {
            return match self.told_at {
                _ if now < since + pace.wait => Step::Wait(since + pace.wait),
                Some(_) => Step::Resolve,
                None => Step::Forget,
            };
        }
        let Some(told_at) = self.told_at else {
            let due = self.opened_at + pace.wait;
            return if now < due { Step::Wait(due) } else { Step::Tell(Stage::Opened) };
        };
        if self.failed > self.told {
            let due = told_at + pace.interval;
            return if now < due { Step::Wait(due) } else { Step::Tell(Stage::Grown) };
        }
        match pace.repeat.map(|repeat| told_at + repeat) {
            Some(due) if now >= due => Step::Tell(Stage::Repeated),
            Some(due) => Step::Wait(due),
            None => Step::Wait(now + LONG),
        }
    }

    /// The event that tells it.
    #[must_use]
    pub fn told(&self, stage: Stage, pace: &Pace, now: Timestamp) -> Event {
        let message = self.message(stage, now);
        let again = pace.repeat.map_or(NEVER, |repeat| repeat + SLACK);
        self.event(stage, message, now, now + again)
    }

    /// The last event of it as one incident, since its Alert no longer groups.
    #[must_use]
    pub fn ungrouped(&self, now: Timestamp) -> Event {
        let message =
            "This is not told as an incident any more: the Alert no longer groups failures".to_owned();
        self.event(Stage::Resolved, message, now, now)
    }

    /// The event that tells that nothing more is told of it, since the Alert may not hear of it any more.
    #[must_use]
    pub fn withdrawn(&self, now: Timestamp) -> Event {
        let message =
            "Reports of this incident end here: the Alert is no longer allowed to hear of it".to_owned();
        self.event(Stage::Resolved, message, now, now)
    }

    /// The event that tells that nothing more is told of it there. What fails may go on failing.
    #[must_use]
    pub fn closed_elsewhere(&self, why: ClosingReason, now: Timestamp) -> Event {
        let still = if self.failing > 0 { ", although the failure may go on" } else { "" };
        let first_line = self.first.message.trim().lines().next().unwrap_or_default();
        let message = format!("Reports of this incident end here{still}: {}.\n{first_line}", why.told());
        self.event(Stage::Resolved, message, now, now)
    }

    fn event(&self, stage: Stage, message: String, now: Timestamp, expires: Timestamp) -> Event {
        let mut metadata = self.first.metadata.clone();
        // It is about more than one; what it is about does not change what it is called.
        metadata.remove("cluster");
        metadata.insert("incident".to_owned(), self.id.clone());
        // Services know by it what belongs together.
        let involved_object = Involved { uid: self.id.clone(), ..self.first.involved_object.clone() };
        let severity = if stage == Stage::Resolved { Level::Info } else { Level::Error };
        let facts = IncidentFacts {
            id: self.id.clone(),
            stage,
            opened_at: self.opened_at.to_string(),
            failing: self.failing,
            failed: self.failed,
            clusters: if stage == Stage::Resolved { self.clusters } else { self.failing_clusters },
            of_clusters: self.of_clusters,
            expires_at: expires.to_string(),
        };
        Event {
            involved_object,
            severity,
            timestamp: now.to_string(),
            message,
            metadata,
            relayed_from: self.first.relayed_from.clone().filter(|_| self.clusters <= 1),
            incident: Some(facts),
            ..self.first.clone()
        }
    }

    fn message(&self, stage: Stage, now: Timestamp) -> String {
        let lasted = lasting(now.duration_since(self.opened_at));
        let cause = self.first.message.trim();
        if stage == Stage::Resolved {
            let end = self.well_since.unwrap_or(now).duration_since(self.opened_at);
            let mut why = self.lapsed.told();
            if self.elsewhere > 0 {
                why.insert(0, "what failed now fails for another cause".to_owned());
            }
            // Only what is well is resolved.
            let (what, why) = match why.as_slice() {
                [] => ("Resolved", String::new()),
                some => ("Over", format!(": {}", some.join("; "))),
            };
            let whom = extent(self.failed, self.clusters, self.of_clusters);
            let first_line = cause.lines().next().unwrap_or_default();
            return format!("{what} after {}{why}. It failed {whom}.\n{first_line}", lasting(end));
        }
        let whom = extent(self.failing, self.failing_clusters, self.of_clusters);
        let head = match stage {
            // A single failure reads as it would without incidents.
            Stage::Opened if self.failing == 1 && self.failed == 1 => return cause.to_owned(),
            Stage::Opened => format!("Fails {whom} for one cause."),
            Stage::Grown => format!("Now fails {whom}, for {lasted}."),
            Stage::Repeated | Stage::Resolved => format!("Still fails {whom}, for {lasted}."),
        };
        let all = if self.failing_clusters > 0 { self.failing_clusters } else { self.failing };
        format!("{head}\n{cause}\n{}", listed(&self.names, all))
    }
}

/// On how much something is so: `on 37 of 100 clusters`.
pub(crate) fn extent(objects: u64, clusters: u64, of_clusters: Option<u64>) -> String {
    let many =
        |count: u64, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    // Objects that are on no cluster, like sources.
    if clusters == 0 {
        return format!("for {}", many(objects, "object"));
    }
    let of = match of_clusters {
        Some(all) if all > clusters => format!("{clusters} of {}", many(all, "cluster")),
        _ => many(clusters, "cluster"),
    };
    if objects == clusters { format!("on {of}") } else { format!("on {of} ({})", many(objects, "object")) }
}

/// The first of so many.
pub(crate) fn listed(names: &[String], all: u64) -> String {
    let named = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>();
    let more = all.saturating_sub(u64::try_from(named.len()).unwrap_or(u64::MAX));
    let list = named.join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}

/// A duration as people say it, by its two largest units.
pub(crate) fn lasting(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, 0) => format!("{minutes}m"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, 0, _) => format!("{hours}h"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, 0, ..) => format!("{days}d"),
        (days, hours, ..) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PACE: Pace = Pace {
        wait: Duration::from_secs(30),
        interval: Duration::from_secs(300),
        repeat: Some(Duration::from_secs(14_400)),
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn incident() -> Incident {
        let first = serde_json::from_value(json!({
            "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "web-edge-1",
                "namespace": "apps", "uid": "1" },
            "severity": "error", "timestamp": "2026-08-07T10:00:00Z", "message": "it fails\nhere and there",
            "reason": "BuildFailed", "reportingController": "c", "metadata": { "cluster": "edge-1", "revision": "r" },
        }))
        .unwrap();
        Incident {
            id: "i".to_owned(),
            first,
            opened_at: at(0),
            told_at: None,
            told: 0,
            failing: 1,
            failed: 1,
            elsewhere: 0,
            lapsed: Lapsed::default(),
            failing_clusters: 1,
            clusters: 1,
            of_clusters: None,
            names: vec!["edge-1".to_owned()],
            well_since: None,
        }
    }

    #[test]
    fn one_is_told_when_it_opens_grows_goes_on_and_ends() {
        let new = incident();
        let told = Incident { told_at: Some(at(30)), told: 1, ..new.clone() };
        let grown = Incident { failing: 37, failed: 37, ..told.clone() };
        let well =
            |incident: &Incident| Incident { failing: 0, well_since: Some(at(100)), ..incident.clone() };
        for (incident, seconds, step) in [
            (&new, 0, Step::Wait(at(30))),
            (&new, 30, Step::Tell(Stage::Opened)),
            (&told, 31, Step::Wait(at(14_430))),
            (&told, 14_430, Step::Tell(Stage::Repeated)),
            (&grown, 31, Step::Wait(at(330))),
            (&grown, 330, Step::Tell(Stage::Grown)),
            (&well(&told), 100, Step::Wait(at(130))),
            (&well(&told), 130, Step::Resolve),
            (&well(&new), 130, Step::Forget),
            // Nobody knows yet whether it stays well.
            (&well(&new), 110, Step::Wait(at(130))),
        ] {
            assert_eq!(incident.next(&PACE, at(seconds)), step, "{incident:?} at {seconds}");
        }
        let never = Pace { repeat: None, ..PACE };
        assert_eq!(told.next(&never, at(1_000_000)), Step::Wait(at(1_086_400)));
    }

    #[test]
    fn messages_say_how_far_it_goes() {
        let one = incident();
        let many = Incident {
            failing: 37,
            failed: 40,
            failing_clusters: 37,
            clusters: 40,
            of_clusters: Some(100),
            names: (1..=37).map(|number| format!("edge-{number}")).collect(),
            ..incident()
        };
        let apps = Incident { failing: 74, failing_clusters: 37, of_clusters: None, ..many.clone() };
        let sources = Incident {
            failing: 2,
            failing_clusters: 0,
            names: vec!["apps/a".to_owned(), "apps/b".to_owned()],
            ..many.clone()
        };
        let over = Incident { failing: 0, failing_clusters: 0, well_since: Some(at(750)), ..many.clone() };
        let moved = Incident { elsewhere: 1, ..over.clone() };
        let gone = Incident { lapsed: Lapsed { gone: 1, ..Lapsed::default() }, ..over.clone() };
        let lapsed =
            Lapsed { gone: 2, left: 3, suspended: 1, unchecked: 5, unheard: 4, unheard_since: Some(at(600)) };
        let lapsed = Incident { lapsed, ..moved.clone() };
        let text = |incident: &Incident, stage: Stage| incident.told(stage, &PACE, at(3_700)).message;
        let all = [
            text(&one, Stage::Opened),
            text(&many, Stage::Opened),
            text(&many, Stage::Grown),
            text(&apps, Stage::Repeated),
            text(&sources, Stage::Opened),
            text(&over, Stage::Resolved),
            text(&moved, Stage::Resolved),
            text(&gone, Stage::Resolved),
            text(&lapsed, Stage::Resolved),
        ];
        insta::assert_snapshot!(all.join("\n---\n"));
    }

    #[test]
    fn what_services_know_it_by_stays() {
        let [opened, resolved] =
            [Stage::Opened, Stage::Resolved].map(|stage| incident().told(stage, &PACE, at(60)));
        assert_eq!(opened.involved_object, resolved.involved_object);
        assert_eq!((opened.severity, resolved.severity), (Level::Error, Level::Info));
        assert_eq!(opened.metadata, resolved.metadata);
        assert_eq!(json!(opened.metadata), json!({ "incident": "i", "revision": "r" }));
        assert_eq!(json!(resolved.incident)["stage"], "resolved");
    }

    #[test]
    fn what_is_no_longer_reported_is_closed_and_says_why() {
        for (why, words) in [
            (ClosingReason::AlertDeleted, "the Alert was deleted"),
            (ClosingReason::ProviderDeleted, "the Provider was deleted"),
            (ClosingReason::ProviderChanged, "the Alert was given another Provider"),
        ] {
            assert_eq!(ClosingReason::parse(why.as_str()), Some(why));
            let told = incident().closed_elsewhere(why, at(60));
            assert_eq!(
                told.message,
                format!(
                    "Reports of this incident end here, although the failure may go on: {words}.\nit fails"
                )
            );
            let opened = incident().told(Stage::Opened, &PACE, at(60));
            assert_eq!((told.involved_object, told.metadata), (opened.involved_object, opened.metadata));
            assert!(told.severity == Level::Info && json!(told.incident)["stage"] == "resolved");
        }
        let over = Incident { failing: 0, ..incident() };
        let told = over.closed_elsewhere(ClosingReason::AlertDeleted, at(60)).message;
        assert_eq!(told, "Reports of this incident end here: the Alert was deleted.\nit fails");
        assert_eq!(ClosingReason::parse("anything else"), None);
    }

    #[test]
    fn one_of_a_cluster_keeps_its_name_when_it_grows() {
        let mut one = incident();
        one.first.relayed_from = Some("edge-1".to_owned());
        let names = [1, 2].map(|clusters| {
            Incident { clusters, ..one.clone() }.told(Stage::Opened, &PACE, at(60)).unique_uid()
        });
        assert_eq!(names, ["i", "i"]);
    }

    #[test]
    fn durations_are_read_by_people() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m1s"),
            (3_600, "1h"),
            (5_400, "1h30m"),
            (86_400, "1d"),
            (90_000, "1d1h"),
        ] {
            assert_eq!(lasting(SignedDuration::from_secs(seconds)), text);
        }
    }
}
