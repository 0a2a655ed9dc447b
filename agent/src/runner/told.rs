//! What a dispatch changed, told by an Event in the cluster, where that is asked for: for who looks there and not at the hub.
//!
//! It lies in the namespace of the dispatch's account or, where there is none, in the namespace of objects that name none. It is written
//! with the rights of the dispatch: as its account, under the cluster's policy. It is a notice only: whatever keeps it from being written
//! is logged, and the dispatch does not fail by it.

use std::time::Duration;

use roadstead_agent_policy::{Action as Asked, Object};
use roadstead_apply::Run;
use roadstead_model::{Action, ApplierRef, ObjectRef, ObjectResult, chain};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::work::{On, Record, Work};
use crate::cluster::Cluster;

/// How long a result waits for its Event.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a message: an API server takes no longer one.
const MAX_MESSAGE: usize = 1024;
/// So much of an applier's name stands in its Events' names.
const NAME: usize = 180;
/// Who reports.
const COMPONENT: &str = "roadstead-agent";

impl<C: Cluster> Work<'_, C> {
    /// Writes the Event of a dispatch that changed something.
    pub(super) async fn tell_of_changes(&self, on: &On<'_, C>, record: &mut Record) {
        if !on.dispatch.spec.cluster_events {
            return;
        }
        let Some(message) = message(&record.change_set) else { return };
        let (reference, content) = event(on, &message);
        if let Err(why) = self.write_event(on, &reference, &content, record).await {
            let applier = format!("{}/{}", on.dispatch.spec.applier.namespace, on.dispatch.spec.applier.name);
            tracing::warn!(applier, event = %reference, why, "could not tell in the cluster what was changed");
        }
    }

    async fn write_event(
        &self,
        on: &On<'_, C>,
        reference: &ObjectRef,
        content: &Value,
        record: &mut Record,
    ) -> Result<(), String> {
        let policy = self.policy(on, record).await.map_err(|failure| failure.message)?;
        let asked = Object { reference, content: Some(content) };
        policy.evaluate(Asked::Apply, &asked, on.account.as_ref()).map_err(|refused| refused.to_string())?;
        let mut ignore = |_| ();
        let mut run = Run::new(Instant::now() + PATIENCE, on.cancel.clone(), &mut ignore);
        on.cluster.tell(reference, content, &mut run).await.map_err(|error| chain(&error))
    }
}

/// What was changed, line by line as the hub tells it; none where nothing was.
fn message(changes: &[ObjectResult]) -> Option<String> {
    let changed: Vec<&ObjectResult> =
        changes.iter().filter(|one| one.action.wrote() || one.action == Action::Deleted).collect();
    let mut message = String::new();
    for (told, result) in changed.iter().enumerate() {
        let line = format!("{} {}", result.object, result.action.as_str());
        let rest = format!("and {} more", changed.len() - told);
        // Room for the last line stays.
        if message.len() + line.len() + rest.len() + 2 > MAX_MESSAGE {
            message.push_str(&rest);
            return Some(message);
        }
        message.push_str(&line);
        message.push('\n');
    }
    message.pop().map(|_| message)
}

/// The Event: one for each attempt, by its name, also where the attempt is carried out again.
fn event<C>(on: &On<'_, C>, message: &str) -> (ObjectRef, Value) {
    let (key, spec) = (&on.dispatch.key, &on.dispatch.spec);
    let ApplierRef { kind, namespace, name } = &spec.applier;
    let at = on.account.as_ref().map_or_else(|| spec.default_namespace(), |account| &account.namespace);
    let cut = name.get(..NAME).unwrap_or(name).trim_end_matches(['-', '.']);
    let reference = ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Event".to_owned(),
        namespace: at.to_owned(),
        name: format!("{cut}.{}-{}-{}", key.applier.0.simple(), key.epoch.0, key.attempt.0),
    };
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let content = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": reference.name, "namespace": at,
            "annotations": { "fleet.roadstead.dev/applier": format!("{namespace}/{name}") },
        },
        // An Event lies in the namespace of what it is about. The applier itself is on the hub.
        "involvedObject": { "kind": kind, "namespace": at, "name": name, "uid": key.applier.to_string() },
        "type": "Normal", "reason": "Progressing", "message": message, "count": 1,
        "source": { "component": COMPONENT }, "reportingComponent": COMPONENT,
        "firstTimestamp": now, "lastTimestamp": now,
    });
    (reference, content)
}

#[cfg(test)]
mod tests {
    use roadstead_model::{Action, ObjectRef, ObjectResult};

    use super::{MAX_MESSAGE, message};

    fn result(name: String, action: Action) -> ObjectResult {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "dev".to_owned(),
            name,
        };
        ObjectResult::new(object, action)
    }

    #[test]
    fn what_was_changed_is_told_as_far_as_there_is_room() {
        let some = [
            result("a".to_owned(), Action::Created),
            result("b".to_owned(), Action::Unchanged),
            result("c".to_owned(), Action::Deleted),
        ];
        assert_eq!(message(&some).as_deref(), Some("ConfigMap/dev/a created\nConfigMap/dev/c deleted"));
        assert_eq!(message(&some[1..2]), None);
        let many: Vec<ObjectResult> =
            (0..100).map(|number| result(format!("map-{number:03}"), Action::Configured)).collect();
        let told = message(&many).unwrap();
        assert!(told.len() <= MAX_MESSAGE, "{}", told.len());
        let lines = told.lines().count() - 1;
        assert!(told.ends_with(&format!("\nand {} more", 100 - lines)), "{told}");
    }
}
