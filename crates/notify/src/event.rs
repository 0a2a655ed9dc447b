//! The event, in the form that Flux' controllers send and generic Providers are sent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::AlertSpec;
use roadstead_api::rules::MAX_METADATA_BYTES;
use roadstead_model::Digest;
use serde::{Deserialize, Serialize};

use crate::incident::{IncidentFacts, Stage};
use crate::rollout::RolloutFacts;

/// What stands before the keys that an object's own annotations give its events.
pub const OWN_PREFIX: &str = "event.toolkit.fluxcd.io/";

/// The annotation of an Alert whose events keep the keys of their metadata, `GROUP/KEY`, and so are what Flux' controllers send to a
/// notification-controller.
pub const QUALIFIED: &str = "fleet.roadstead.dev/qualified-metadata";

/// The annotation of an Alert all of whose sources with `cluster` have `statusesAndComments`.
pub const STATUSES_AND_COMMENTS: &str = "fleet.roadstead.dev/statuses-and-comments";

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The object.
    pub involved_object: Involved,
    /// How bad it is.
    pub severity: Level,
    /// When it happened, in RFC 3339.
    pub timestamp: String,
    /// What happened, for people.
    pub message: String,
    /// What happened, in one word.
    pub reason: String,
    /// What else is known: with keys `GROUP/KEY` before [`Event::told_by`], and bare ones after.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Who tells it.
    pub reporting_controller: String,
    /// And where that runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
    /// The Cluster whose Flux told it; none of what is the hub's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relayed_from: Option<String>,
    /// Of what a cluster's Flux told: whether commits' statuses and comments may be made of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub statuses_and_comments: bool,
    /// The incident that it tells of, where the Alert groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<IncidentFacts>,
    /// The rollout whose status it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutFacts>,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Involved {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// Its resource version, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// News.
    Info,
    /// A failure.
    Error,
}

impl Level {
    /// As it stands in an event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Error => "error",
        }
    }
}

impl Event {
    /// The event as an Alert tells it: its metadata has bare keys, with what the Alert adds. What comes later in this list wins: the
    /// `cluster`, the object's own annotations, the Alert's `eventMetadata`, its `summary`, what the hub itself knows.
    #[must_use]
    pub fn told_by(&self, alert: &AlertSpec, cluster: Option<&str>) -> Self {
        let group = self.involved_object.api_version.split_once('/').map_or("", |(group, _)| group);
        let mut merged = BTreeMap::new();
        if let Some(cluster) = cluster {
            merged.insert("cluster".to_owned(), cluster.to_owned());
        }
        let bare = |prefix: &str| {
            let of_prefix =
                self.metadata.iter().filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value)));
            of_prefix.map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>()
        };
        merged.extend(bare(OWN_PREFIX));
        // An older version may have stored more than is taken now.
        let mut room = MAX_METADATA_BYTES;
        for (key, value) in &alert.event_metadata {
            let Some(left) = room.checked_sub(key.len() + value.len()) else { continue };
            room = left;
            merged.insert(key.clone(), value.clone());
        }
        merged.extend(alert.summary.clone().map(|summary| ("summary".to_owned(), summary)));
        merged.extend(bare(&format!("{group}/")));
        // These tell duplicates apart, and are for nobody else.
        for key in ["token", "digest", "checksum"] {
            merged.remove(key);
        }
        Self { metadata: merged, ..self.clone() }
    }

    /// The event as it is, with what an Alert adds, for a notification-controller: that makes bare keys of `GROUP/KEY`, and drops others.
    #[must_use]
    pub fn qualified_by(&self, alert: &AlertSpec, cluster: Option<&str>) -> Self {
        let bare = Self { metadata: BTreeMap::new(), ..self.clone() }.told_by(alert, cluster);
        let group = self.involved_object.api_version.split_once('/').map_or("", |(group, _)| group);
        let mut metadata: BTreeMap<String, String> =
            bare.metadata.into_iter().map(|(key, value)| (format!("{group}/{key}"), value)).collect();
        metadata.extend(self.metadata.clone());
        Self { metadata, ..bare }
    }

    /// What events that say the same have in common: the object, what happened to it, and at which revision.
    #[must_use]
    pub fn key(&self) -> Digest {
        let Involved { kind, namespace, name, .. } = &self.involved_object;
        let mut parts =
            vec![kind.as_str(), namespace, name, self.severity.as_str(), &self.reason, &self.message];
        parts.extend(self.relayed_from.as_deref());
        for (key, value) in &self.metadata {
            if ["/revision", "/originRevision", "/token"].iter().any(|end| key.ends_with(end)) {
                parts.extend([key.as_str(), value]);
            }
        }
        let lengths = parts.iter().map(|part| format!("{}:{part}", part.len()));
        Digest::of(lengths.collect::<String>().as_bytes())
    }

    /// Whether it tells of a failure.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Level::Error
    }

    /// Whether it tells that an object is well: neither a failure, nor on the way, nor waiting for others.
    #[must_use]
    pub fn is_recovery(&self) -> bool {
        !self.is_error() && !["Progressing", "DependencyNotReady"].contains(&self.reason.as_str())
    }

    /// Whether it tells that an incident is over.
    #[must_use]
    pub(crate) fn is_resolved(&self) -> bool {
        self.incident.as_ref().is_some_and(|incident| incident.stage == Stage::Resolved)
    }

    /// When it happened.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.timestamp.parse().unwrap_or_default()
    }

    /// `kustomization/web.apps`: how chats name the object.
    #[must_use]
    pub(crate) fn object(&self) -> String {
        let Involved { kind, namespace, name, .. } = &self.involved_object;
        format!("{}/{name}.{namespace}", kind.to_lowercase())
    }

    /// `Kustomization/apps/web`.
    #[must_use]
    pub(crate) fn path(&self) -> String {
        let Involved { kind, namespace, name, .. } = &self.involved_object;
        format!("{kind}/{namespace}/{name}")
    }

    /// What tells the object from all others that Alerts hear of: those of clusters may have the same names.
    #[must_use]
    pub(crate) fn unique_path(&self) -> String {
        match &self.relayed_from {
            Some(cluster) => format!("{cluster}/{}", self.path()),
            None => self.path(),
        }
    }

    /// The same of its uid, which a cluster may give as it likes. That of an incident is the hub's own, and stays whatever it comes to be about.
    #[must_use]
    pub(crate) fn unique_uid(&self) -> String {
        let uid = &self.involved_object.uid;
        match &self.relayed_from {
            _ if self.incident.is_some() => uid.clone(),
            Some(cluster) => format!("{cluster}/{uid}"),
            None => uid.clone(),
        }
    }

    /// The reason in words: `health check failed`.
    #[must_use]
    pub(crate) fn reason_in_words(&self) -> String {
        let mut words = String::with_capacity(self.reason.len() + 8);
        let mut was_lower = false;
        for c in self.reason.chars() {
            if c.is_uppercase() && was_lower {
                words.push(' ');
            }
            was_lower = !c.is_uppercase();
            words.extend(c.to_lowercase());
        }
        words
    }

    /// The metadata, what explains the most first.
    #[must_use]
    pub(crate) fn facts(&self) -> Vec<(&str, &str)> {
        let mut facts: Vec<_> =
            self.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        facts.sort_by_key(|(key, _)| (*key != "summary", *key));
        facts
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Event {
        serde_json::from_value(json!({
            "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "web",
                "namespace": "apps", "uid": "1" },
            "severity": "error", "timestamp": "2026-08-07T10:00:00Z", "message": "it fails", "reason": "HealthCheckFailed",
            "reportingController": "roadstead-hub",
            "metadata": {
                "kustomize.toolkit.fluxcd.io/revision": "main@sha1:abc", "kustomize.toolkit.fluxcd.io/token": "x",
                "event.toolkit.fluxcd.io/env": "from the object", "event.toolkit.fluxcd.io/team": "from the object",
                "event.toolkit.fluxcd.io/summary": "from the object", "event.toolkit.fluxcd.io/revision": "from the object",
                "source.toolkit.fluxcd.io/other": "of another group",
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_comes_later_wins() {
        let alert: AlertSpec = serde_json::from_value(json!({
            "providerRef": { "name": "p" }, "eventSources": [], "summary": "from the summary",
            "eventMetadata": { "team": "from the alert", "summary": "from the alert", "revision": "from the alert" },
        }))
        .unwrap();
        let told = event().told_by(&alert, Some("edge-1"));
        let expected = json!({
            "cluster": "edge-1", "env": "from the object", "team": "from the alert", "summary": "from the summary",
            "revision": "main@sha1:abc",
        });
        assert_eq!(json!(told.metadata), expected);
        let mut own = event();
        own.metadata.insert("event.toolkit.fluxcd.io/cluster".to_owned(), "mine".to_owned());
        assert_eq!(own.told_by(&alert, Some("edge-1")).metadata["cluster"], "mine");
        assert_eq!(told.facts()[0], ("summary", "from the summary"));
        // What was stored before there was a bound does not make events larger.
        let large = BTreeMap::from([("a", "x".repeat(MAX_METADATA_BYTES)), ("b", "y".to_owned())]);
        let alert: AlertSpec = serde_json::from_value(json!({
            "providerRef": { "name": "p" }, "eventSources": [], "eventMetadata": large,
        }))
        .unwrap();
        let told = event().told_by(&alert, None);
        assert_eq!((told.metadata.get("a"), told.metadata.get("b").map(String::as_str)), (None, Some("y")));
    }

    #[test]
    fn the_same_news_has_the_same_key_and_no_other() {
        let same = event();
        let mut uid = same.clone();
        uid.involved_object.uid = "2".to_owned();
        uid.timestamp = "2026-08-07T10:01:00Z".to_owned();
        assert_eq!(same.key(), uid.key());
        let mut moved = same.clone();
        (moved.involved_object.namespace, moved.involved_object.name) = ("app".to_owned(), "sweb".to_owned());
        let mut revision = same.clone();
        revision
            .metadata
            .insert("kustomize.toolkit.fluxcd.io/revision".to_owned(), "main@sha1:abd".to_owned());
        let info = Event { severity: Level::Info, ..same.clone() };
        let relayed = |cluster: &str| Event { relayed_from: Some(cluster.to_owned()), ..same.clone() };
        assert_ne!(relayed("edge-1").key(), relayed("edge-2").key());
        for other in [moved, revision, info, relayed("edge-1")] {
            assert_ne!(same.key(), other.key(), "{other:?}");
        }
    }

    #[test]
    fn reasons_are_read_as_words() {
        for (reason, words) in [
            ("HealthCheckFailed", "health check failed"),
            ("OCIArtifactPullFailed", "ociartifact pull failed"),
            ("", ""),
        ] {
            assert_eq!(Event { reason: reason.to_owned(), ..event() }.reason_in_words(), words);
        }
    }
}
