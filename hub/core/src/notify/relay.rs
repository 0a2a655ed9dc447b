//! Events that controllers of Flux in clusters tell, which their agents relay: so that a fleet of which some clusters still have a Flux alerts
//! in one place. Only Alerts whose sources name the cluster are told of them, and no commit's status or comment is made of them.

use roadstead_api::Time;
use roadstead_hub_store::RelayedItem;
use roadstead_model::{ObjectRef, RelayedEvent};
use roadstead_notify::{Event, Involved, Level, OWN_PREFIX};
use serde_json::json;

use crate::HubError;
use crate::clusters::Session;
use crate::notify::Notifier;

/// In the place of a condition: what a controller tells of how an object is.
const CONDITION: &str = "Relayed";
/// Reasons by which Flux's controllers tell that an object is well. Others that tell of no failure come on the way there, or back.
const RECOVERIES: [&str; 6] = [
    "ReconciliationSucceeded",
    "Succeeded",
    "NewArtifact",
    "InstallSucceeded",
    "UpgradeSucceeded",
    "TestSucceeded",
];

impl Notifier {
    /// Keeps events of the session's cluster for the stream of events, the newest of them, and for the Alerts that listen to them, as long
    /// as there is room for them. Gives how many were left out of these.
    ///
    /// # Errors
    /// `Conflict` where this is not the cluster's session any more; else where the database fails. They are to be sent again then.
    pub async fn relay(&self, session: &Session, events: Vec<RelayedEvent>) -> Result<u64, HubError> {
        self.sessions.must_be_current(session).await?;
        let now = self.clock.now();
        let at = Time(now);
        let items: Vec<RelayedItem> =
            events.into_iter().map(|event| item(event, &session.name, &at)).collect();
        let mut tx = self.store.begin().await?;
        tx.keep_relayed((session.cluster, &session.name), &items, now).await?;
        let count = tx.relay(&session.name, &items).await?;
        tx.commit().await?;
        self.meters.relayed(count);
        Ok(count.left_out)
    }
}

fn item(event: RelayedEvent, cluster: &str, now: &Time) -> RelayedItem {
    let is_well = !event.is_error && RECOVERIES.contains(&event.reason.as_str());
    let event = told(event, cluster, now);
    let Involved { kind, namespace, name, .. } = event.involved_object.clone();
    let is_error = event.is_error();
    let condition = (is_error || is_well).then_some(CONDITION);
    let (reason, message) = (event.reason.clone(), event.message.clone());
    RelayedItem { kind, namespace, name, reason, message, is_error, condition, event: json!(event) }
}

/// The event as one of the hub's is. That it is of this cluster, nothing in it can say otherwise.
fn told(event: RelayedEvent, cluster: &str, now: &Time) -> Event {
    let ObjectRef { group, version, kind, namespace, name } = event.object;
    let of_object = format!("{group}/");
    let is_kept = |key: &str| {
        let bare = key.strip_prefix(OWN_PREFIX).or_else(|| key.strip_prefix(&of_object));
        // As in Flux, keys of other groups are dropped, and digests, which are for nobody.
        bare.is_some_and(|bare| !["cluster", "digest", "checksum"].contains(&bare))
    };
    let metadata = event.metadata.into_iter().filter(|(key, _)| is_kept(key)).collect();
    let is_time = event.timestamp.parse::<jiff::Timestamp>().is_ok();
    Event {
        involved_object: Involved {
            api_version: if group.is_empty() { version } else { format!("{group}/{version}") },
            kind,
            name,
            namespace,
            uid: event.uid,
            // It is another one in each event: by the rest, news of one object is known for that.
            resource_version: String::new(),
        },
        severity: if event.is_error { Level::Error } else { Level::Info },
        timestamp: if is_time { event.timestamp } else { now.to_string() },
        message: event.message,
        reason: event.reason,
        metadata,
        reporting_controller: event.reporting_controller,
        reporting_instance: event.reporting_instance,
        relayed_from: Some(cluster.to_owned()),
        statuses_and_comments: false,
        incident: None,
        rollout: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn event(reason: &str, is_error: bool) -> RelayedEvent {
        let text = |text: &str| text.to_owned();
        let metadata = [
            ("kustomize.toolkit.fluxcd.io/revision", "main@sha1:a"),
            ("kustomize.toolkit.fluxcd.io/cluster", "other"),
            ("kustomize.toolkit.fluxcd.io/digest", "sha256:a"),
            ("event.toolkit.fluxcd.io/cluster", "other"),
            ("event.toolkit.fluxcd.io/team", "blue"),
            ("helm.toolkit.fluxcd.io/revision", "1"),
            ("cluster", "other"),
        ];
        RelayedEvent {
            object: ObjectRef {
                group: text("kustomize.toolkit.fluxcd.io"),
                version: text("v1"),
                kind: text("Kustomization"),
                namespace: text("apps"),
                name: text("web"),
            },
            uid: text("1"),
            is_error,
            timestamp: text("2026-01-01T00:00:00Z"),
            message: text("it fails"),
            reason: text(reason),
            reporting_controller: text("kustomize-controller"),
            reporting_instance: text("kustomize-controller-1"),
            metadata: metadata.into_iter().map(|(key, value)| (text(key), text(value))).collect(),
        }
    }

    #[test]
    fn nothing_in_an_event_says_of_which_cluster_it_is() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let told = told(event("BuildFailed", true), "edge-1", &now);
        assert_eq!(told.relayed_from.as_deref(), Some("edge-1"));
        let metadata = json!({
            "event.toolkit.fluxcd.io/team": "blue", "kustomize.toolkit.fluxcd.io/revision": "main@sha1:a",
        });
        assert_eq!(json!(told.metadata), metadata);
        assert_eq!(told.timestamp, "2026-01-01T00:00:00Z");
        let odd = RelayedEvent { timestamp: "yesterday".to_owned(), ..event("BuildFailed", true) };
        assert_eq!(super::told(odd, "edge-1", &now).timestamp, "1970-01-01T00:00:00Z");
    }

    #[test]
    fn what_is_on_the_way_is_no_recovery() {
        let now = Time(Timestamp::UNIX_EPOCH);
        for (reason, is_error, is_of_condition) in [
            ("HealthCheckFailed", true, true),
            ("ReconciliationSucceeded", false, true),
            ("UpgradeSucceeded", false, true),
            ("Progressing", false, false),
            ("DependencyNotReady", false, false),
            // What came before failed.
            ("RollbackSucceeded", false, false),
            ("UninstallSucceeded", false, false),
        ] {
            let item = item(event(reason, is_error), "edge-1", &now);
            assert_eq!(item.condition.is_some(), is_of_condition, "{reason}");
            assert_eq!(item.is_error, is_error);
        }
    }
}
