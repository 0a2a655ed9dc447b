//! News that says the same of many objects, told as one.

use std::collections::BTreeMap;

use roadstead_api::AlertSpec;
use roadstead_model::Digest;

use crate::cause::Cause;
use crate::event::{Event, Involved};
use crate::incident::{extent, listed};

/// News of objects that says the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    /// The first of it, as the Alert tells it.
    pub first: Event,
    /// How many objects there are.
    pub objects: u64,
    /// Their clusters.
    pub clusters: u64,
    /// The first of these, or of the objects where they are about none.
    pub names: Vec<String>,
}

/// What news has in common with that of other objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Common {
    /// The message without what differs.
    pub text: String,
    /// Of the kind, the reason, the revision and the text.
    pub digest: Digest,
}

/// One of the objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Another {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, where the hub knows it.
    pub uid: String,
    /// The Cluster whose Flux told of it.
    pub relayed_from: Option<String>,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<String>,
}

impl Together {
    /// What news, as an Alert tells it, has in common with that of other objects.
    #[must_use]
    pub fn common(event: &Event, cluster: Option<&str>) -> Common {
        let mut parts = vec![event.involved_object.kind.as_str(), &event.reason];
        for key in ["revision", "originRevision"] {
            parts.push(event.metadata.get(key).map_or("", String::as_str));
        }
        let text = Cause::of(event, cluster).text;
        parts.push(&text);
        let lengths = parts.iter().map(|part| format!("{}:{part}", part.len()));
        let digest = Digest::of(lengths.collect::<String>().as_bytes());
        Common { text, digest }
    }

    /// The first of such news as it is told of another object, where it may not be told of its own any more: all that is not common to both is left out. `text` is
    /// what the messages have in common; without it the reason stands in their place.
    #[must_use]
    pub fn of_another(first: &Event, text: Option<&str>, another: &Another, alert: &AlertSpec) -> Event {
        const COMMON: [&str; 3] = ["revision", "originRevision", "commit_status"];
        let Another { namespace, name, uid, relayed_from, cluster } = another;
        let cluster = cluster.as_deref();
        let message = match text {
            Some(text) => text
                .replace("<name>", name)
                .replace("<namespace>", namespace)
                .replace("<cluster>", cluster.unwrap_or("<cluster>")),
            None => first.reason_in_words(),
        };
        let involved_object = Involved {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            resource_version: String::new(),
            ..first.involved_object.clone()
        };
        let bare = Event {
            involved_object,
            message,
            metadata: BTreeMap::new(),
            reporting_instance: String::new(),
            relayed_from: relayed_from.clone(),
            ..first.clone()
        };
        let mut told = bare.told_by(alert, cluster);
        let is_common = |key: &str| key.rsplit('/').next().is_some_and(|bare| COMMON.contains(&bare));
        let common = first.metadata.iter().filter(|(key, _)| is_common(key));
        told.metadata.extend(common.map(|(key, value)| (key.clone(), value.clone())));
        told
    }

    /// The event that tells it: what it is where it is of one object only.
    #[must_use]
    pub fn told(self) -> Event {
        let Self { first, objects, clusters, names } = self;
        if objects <= 1 {
            return first;
        }
        let whom = match extent(objects, clusters, None).split_once(' ') {
            Some(("on", clusters)) => format!("On {clusters}"),
            Some((_, objects)) => format!("Of {objects}"),
            None => String::new(),
        };
        let all = if clusters > 0 { clusters } else { objects };
        let message = format!("{whom}:\n{}\n{}", first.message.trim(), listed(&names, all));
        let mut metadata = first.metadata.clone();
        if clusters > 1 {
            // It is about more than one.
            metadata.remove("cluster");
        }
        let relayed_from = first.relayed_from.clone().filter(|_| clusters <= 1);
        Event { message, metadata, relayed_from, ..first }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, message: &str, revision: &str) -> Event {
        serde_json::from_value(json!({
            "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name,
                "namespace": "apps", "uid": "1" },
            "severity": "info", "timestamp": "2026-08-07T10:00:00Z", "message": message, "reason": "ReconciliationSucceeded",
            "reportingController": "c", "metadata": { "cluster": "edge-1", "revision": revision },
        }))
        .unwrap()
    }

    #[test]
    fn the_same_of_many_objects_is_one_and_another_revision_is_not() {
        let key = |name: &str, cluster: &str, message: &str, revision: &str| {
            Together::common(&event(name, message, revision), Some(cluster)).digest
        };
        let one = key("web-edge-1", "edge-1", "edge-1: finished in 3s", "main@sha1:a");
        assert_eq!(one, key("web-edge-2", "edge-2", "edge-2: finished in 1m2s", "main@sha1:a"));
        assert_eq!(one, key("api", "edge-1", "edge-1: finished in 3s", "main@sha1:a"));
        assert_ne!(one, key("web-edge-1", "edge-1", "edge-1: finished in 3s", "main@sha1:b"));
        assert_ne!(one, key("web-edge-1", "edge-1", "edge-1: waits for 3s", "main@sha1:a"));
    }

    #[test]
    fn what_is_of_the_first_alone_is_not_told_of_another() {
        let mut first = event("secret-edge-1", "edge-1: secret-edge-1 finished in 3s", "main@sha1:a");
        first.metadata.insert("team".to_owned(), "secret".to_owned());
        let alert: AlertSpec = serde_json::from_value(json!({
            "providerRef": { "name": "p" }, "eventSources": [], "eventMetadata": { "env": "production" },
        }))
        .unwrap();
        let text = Together::common(&first, Some("edge-1")).text;
        let another = Another {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "2".to_owned(),
            relayed_from: None,
            cluster: Some("edge-2".to_owned()),
        };
        let told = Together::of_another(&first, Some(&text), &another, &alert);
        assert_eq!(told.message, "edge-2: web finished in <duration>");
        let metadata = json!({ "cluster": "edge-2", "env": "production", "revision": "main@sha1:a" });
        assert_eq!(json!(told.metadata), metadata);
        let whole = json!(told).to_string();
        assert!(!whole.contains("secret") && !whole.contains("edge-1"), "{whole}");
        assert_eq!(Together::of_another(&first, None, &another, &alert).message, "reconciliation succeeded");
    }

    #[test]
    fn it_says_of_how_many() {
        let told = |objects: u64, clusters: u64, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let event = Together { first: event("web", "finished", "r"), objects, clusters, names }.told();
            (event.message, event.metadata.contains_key("cluster"))
        };
        assert_eq!(told(1, 1, &["edge-1"]), ("finished".to_owned(), true));
        assert_eq!(
            told(3, 3, &["edge-1", "edge-2"]),
            ("On 3 clusters:\nfinished\nedge-1, edge-2 and 1 more".to_owned(), false)
        );
        assert_eq!(told(3, 1, &["edge-1"]), ("On 1 cluster (3 objects):\nfinished\nedge-1".to_owned(), true));
        assert_eq!(
            told(2, 0, &["apps/a", "apps/b"]),
            ("Of 2 objects:\nfinished\napps/a, apps/b".to_owned(), true)
        );
    }
}
