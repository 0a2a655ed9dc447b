//! Silences: what Alerts do not send, until when, and why.

use roadstead_api::{KindId, SilenceObjects, SilenceSpec, Time};
use roadstead_hub_store::FleetSilence;
use roadstead_model::SilenceFilter;
use schemars::JsonSchema;
use serde::Serialize;

use crate::HubError;
use crate::identity::Identity;
use crate::views::fleet::MAX_ITEMS;
use crate::views::{Views, visible};

/// A Silence, and whether it is in force.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SilenceItem {
    /// Its namespace, whose Alerts it is for.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Why it is there.
    pub reason: String,
    /// Who wrote it; empty where that is not known.
    pub author: String,
    /// When it begins.
    #[schemars(with = "String")]
    pub from: Time,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Time>,
    /// When its windows begin, how long they last and by which zone's clocks, where it has some; else empty.
    pub schedule: String,
    /// Until when it is in force, where it is so now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub in_force_until: Option<Time>,
    /// Whether it is over.
    pub is_over: bool,
    /// The Alerts that it is for; all of its namespace where there are none.
    pub alerts: Vec<String>,
    /// The objects that it is for, each in words; all where there are none.
    pub objects: Vec<String>,
    /// Of how many objects it keeps something back now.
    pub kept_back: i64,
}

impl Views {
    /// Silences by namespace and name: those that `who` may list, and that are not over for more than a day.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], or the database fails.
    pub async fn silences(
        &self,
        who: &Identity,
        filter: &SilenceFilter,
        limit: i64,
    ) -> Result<Vec<SilenceItem>, HubError> {
        let visible = visible::of_kinds(who, &[KindId::Silence], &filter.namespace)?;
        let now = self.clock.now();
        let found =
            self.store.fleet_silences(filter, visible.as_ref(), now, limit.clamp(1, MAX_ITEMS)).await?;
        // One that cannot be read silences nothing.
        Ok(found.into_iter().filter_map(|found| item(found, now)).collect())
    }
}

fn item(found: FleetSilence, now: jiff::Timestamp) -> Option<SilenceItem> {
    let spec: SilenceSpec = serde_json::from_value(found.spec).ok()?;
    let in_force_until = spec.silences_until(now).map(Time);
    let schedule = spec.schedule.as_ref().map(|schedule| {
        let zone = schedule.time_zone.as_deref().unwrap_or("UTC");
        format!("{} for {} ({zone})", schedule.cron, schedule.duration)
    });
    Some(SilenceItem {
        namespace: found.namespace,
        name: found.name,
        from: Time(spec.from.map_or(found.created_at, |from| from.0)),
        until: spec.until,
        schedule: schedule.unwrap_or_default(),
        in_force_until,
        is_over: spec.until.is_some_and(|until| until.0 <= now),
        alerts: spec.alerts.into_iter().map(|alert| alert.name).collect(),
        objects: spec.objects.iter().map(in_words).collect(),
        kept_back: found.kept_back,
        reason: spec.reason,
        author: spec.author.unwrap_or_default(),
    })
}

/// As `Kustomization apps/web on edge-1 with tier=batch`.
fn in_words(objects: &SilenceObjects) -> String {
    let mut words = vec![objects.kind.clone().unwrap_or_else(|| "all".to_owned())];
    match (&objects.namespace, &objects.name) {
        (Some(namespace), Some(name)) => words.push(format!("{namespace}/{name}")),
        (None, Some(name)) => words.push(name.clone()),
        (Some(namespace), None) => words.push(format!("in {namespace}")),
        (None, None) => {}
    }
    words.extend(objects.cluster.as_ref().map(|cluster| format!("on {cluster}")));
    if !objects.match_labels.is_empty() {
        let labels = objects.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        words.push(format!("with {}", labels.collect::<Vec<_>>().join(", ")));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(spec: serde_json::Value) -> FleetSilence {
        let created_at = "2026-11-28T10:00:00Z".parse().unwrap();
        FleetSilence { namespace: "apps".to_owned(), name: "one".to_owned(), created_at, spec, kept_back: 3 }
    }

    #[test]
    fn a_silence_says_what_it_is_for_and_until_when() {
        let now = "2026-11-28T10:30:00Z".parse().unwrap();
        let spec = json!({ "reason": "the database moves", "author": "jane", "until": "2026-11-28T11:00:00Z",
            "alerts": [{ "name": "chat" }], "objects": [
                { "kind": "Kustomization", "namespace": "apps", "name": "web" }, { "cluster": "edge-1" },
                { "kind": "HelmRelease", "namespace": "apps", "matchLabels": { "tier": "batch", "a": "b" } }] });
        let silence = item(found(spec), now).unwrap();
        assert_eq!(
            silence.objects,
            ["Kustomization apps/web", "all on edge-1", "HelmRelease in apps with a=b, tier=batch"]
        );
        assert_eq!((silence.author.as_str(), silence.kept_back, silence.is_over), ("jane", 3, false));
        assert_eq!(silence.in_force_until, silence.until);
        let over = item(found(json!({ "reason": "r", "until": "2026-11-28T10:30:00Z" })), now).unwrap();
        assert!(over.is_over && over.in_force_until.is_none() && over.objects.is_empty());
        let nightly = json!({ "reason": "r", "schedule": { "cron": "0 22 * * *", "timeZone": "Europe/Berlin", "duration": "8h" } });
        let nightly = item(found(nightly), now).unwrap();
        assert!(nightly.in_force_until.is_none() && !nightly.is_over, "{nightly:?}");
        assert!(
            nightly.schedule.contains("0 22 * * * for 8h") && nightly.schedule.contains("Berlin"),
            "{nightly:?}"
        );
        assert!(item(found(json!({ "reason": 7 })), now).is_none());
    }
}
