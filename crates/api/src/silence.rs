//! `Silence` of `fleet.roadstead.dev/v1alpha1`: for a time, Alerts of its namespace do not send what it is for.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cron::{CronSchedule, Times};
use crate::object::{LocalObjectReference, ObjectMeta, Time, Typed, duration_schema};

/// The longest window of a schedule.
pub const MAX_WINDOW: Duration = Duration::from_secs(7 * 24 * 3600);

/// Silence keeps what happens to some objects from being sent by Alerts of its namespace, for a time. What fails at its end is told then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Silence {
    /// The versioned schema of this representation of the object.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default)]
    pub kind: String,
    /// Standard object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is not sent, when, and why.
    pub spec: SilenceSpec,
}

impl Typed for Silence {}

/// SilenceSpec says what is not sent, when, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SilenceSpec {
    /// Why, for those who wonder: what is being done, or the ticket's name.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Who wrote this spec. The hub sets it, whatever is written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The Alerts of this namespace that do not send. Defaults to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub alerts: Vec<LocalObjectReference>,
    /// The objects of which nothing is sent; any entry is enough. Defaults to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub objects: Vec<SilenceObjects>,
    /// When it begins. Defaults to when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// When it ends. Needed where there is no schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Windows that come again, between its beginning and its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<SilenceSchedule>,
}

/// SilenceObjects says of which objects nothing is sent: of those that are all that it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SilenceObjects {
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// In this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// On this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster: Option<String>,
    /// With these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// SilenceSchedule is a window that comes again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SilenceSchedule {
    /// When it begins: a cron expression of five fields, as "0 22 * * FRI".
    #[schemars(length(min = 9, max = 256))]
    pub cron: String,
    /// The time zone by whose clocks that is, as Europe/Berlin. Defaults to UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// How long it lasts, by the time that passes; 168h at most.
    #[schemars(schema_with = "duration_schema")]
    pub duration: GoDuration,
}

impl SilenceSchedule {
    /// When its windows begin.
    #[must_use]
    pub fn begins(&self) -> CronSchedule {
        CronSchedule { cron: self.cron.clone(), time_zone: self.time_zone.clone() }
    }
}

/// An object of which something might be sent.
#[derive(Debug, Clone, Copy)]
pub struct SilencedObject<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<&'a str>,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl SilenceSpec {
    /// Until when it silences, where it does so now: it does once it is there, whatever the clock showed when it was made. Of windows that overlap, the first one's end is told: it is asked again then.
    #[must_use]
    pub fn silences_until(&self, now: Timestamp) -> Option<Timestamp> {
        let from = self.from.map_or(Timestamp::MIN, |from| from.0);
        let until = self.until.map_or(Timestamp::MAX, |until| until.0);
        if now < from || now >= until {
            return None;
        }
        let Some(schedule) = &self.schedule else { return self.until.map(|until| until.0) };
        let lasts = schedule.duration.0.min(MAX_WINDOW);
        let began = Times::of(&schedule.begins()).ok()?.first(now, lasts)?;
        Some(began.checked_add(lasts).unwrap_or(until).min(until))
    }

    /// Whether it is for an Alert of its namespace.
    #[must_use]
    pub fn is_for_alert(&self, name: &str) -> bool {
        self.alerts.is_empty() || self.alerts.iter().any(|alert| alert.name == name)
    }

    /// Whether it is for an object.
    #[must_use]
    pub fn is_for(&self, object: SilencedObject<'_>) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        self.objects.is_empty()
            || self.objects.iter().any(|these| {
                is(&these.kind, object.kind)
                    && is(&these.namespace, object.namespace)
                    && is(&these.name, object.name)
                    && (these.cluster.is_none() || these.cluster.as_deref() == object.cluster)
                    && these.match_labels.iter().all(|(key, value)| object.labels.get(key) == Some(value))
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(more: Value) -> SilenceSpec {
        let mut spec = json!({ "reason": "the database moves" });
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        serde_json::from_value(spec).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn it_lasts_from_its_beginning_to_its_end() {
        let until = json!({ "until": "2026-11-28T12:00:00+01:00" });
        let later = json!({ "from": "2026-11-28T10:30:00Z", "until": "2026-11-28T11:00:00Z" });
        let nightly =
            json!({ "schedule": { "cron": "0 22 * * *", "timeZone": "Europe/Berlin", "duration": "8h" } });
        let at_night =
            json!({ "schedule": { "cron": "30 2 * * *", "timeZone": "Europe/Berlin", "duration": "90m" } });
        let ends = json!({ "until": "2026-11-29T00:00:00Z",
                           "schedule": { "cron": "0 22 * * *", "timeZone": "Europe/Berlin", "duration": "8h" } });
        for (silence, now, expected) in [
            (&until, "2026-11-28T10:00:00Z", Some("2026-11-28T11:00:00Z")),
            (&until, "2026-11-28T11:00:00Z", None),
            (&later, "2026-11-28T10:29:59Z", None),
            (&later, "2026-11-28T10:30:00Z", Some("2026-11-28T11:00:00Z")),
            (&nightly, "2026-11-28T20:59:59Z", None),
            (&nightly, "2026-11-28T21:00:00Z", Some("2026-11-29T05:00:00Z")),
            (&nightly, "2026-11-29T05:00:00Z", None),
            (&ends, "2026-11-28T23:00:00Z", Some("2026-11-29T00:00:00Z")),
            (&ends, "2026-11-29T01:00:00Z", None),
            // The night in which summer ends is an hour longer: the window is not.
            (&nightly, "2027-10-31T03:59:59Z", Some("2027-10-31T04:00:00Z")),
            (&nightly, "2027-10-31T04:00:00Z", None),
            // 02:30 is skipped when summer begins: it lasts as long, from 03:30 on. When summer ends, 02:30 comes twice: the first counts.
            (&at_night, "2027-03-28T01:29:59Z", None),
            (&at_night, "2027-03-28T01:30:00Z", Some("2027-03-28T03:00:00Z")),
            (&at_night, "2027-03-28T03:00:00Z", None),
            (&at_night, "2027-10-31T00:29:59Z", None),
            (&at_night, "2027-10-31T00:30:00Z", Some("2027-10-31T02:00:00Z")),
            (&at_night, "2027-10-31T01:59:59Z", Some("2027-10-31T02:00:00Z")),
            (&at_night, "2027-10-31T02:00:00Z", None),
        ] {
            assert_eq!(spec(silence.clone()).silences_until(at(now)), expected.map(at), "{silence} {now}");
        }
    }

    #[test]
    fn it_is_for_the_objects_that_it_names() {
        let labels = BTreeMap::from([("env".to_owned(), "production".to_owned())]);
        let object = SilencedObject {
            kind: "Kustomization",
            namespace: "apps",
            name: "web",
            cluster: Some("edge-1"),
            labels: &labels,
        };
        for (objects, expected) in [
            (json!([]), true),
            (json!([{}]), true),
            (json!([{ "kind": "Kustomization", "name": "web" }]), true),
            (json!([{ "kind": "GitRepository" }]), false),
            (json!([{ "kind": "GitRepository" }, { "cluster": "edge-1" }]), true),
            (json!([{ "cluster": "edge-2" }]), false),
            (json!([{ "namespace": "other", "name": "web" }]), false),
            (json!([{ "matchLabels": { "env": "production" } }]), true),
            (json!([{ "matchLabels": { "env": "staging" } }]), false),
        ] {
            assert_eq!(spec(json!({ "objects": objects })).is_for(object), expected, "{objects}");
        }
        let nowhere = SilencedObject { cluster: None, ..object };
        assert!(!spec(json!({ "objects": [{ "cluster": "edge-1" }] })).is_for(nowhere));
        let named = spec(json!({ "alerts": [{ "name": "chat" }] }));
        assert!(
            named.is_for_alert("chat") && !named.is_for_alert("pager") && spec(json!({})).is_for_alert("any")
        );
    }
}
