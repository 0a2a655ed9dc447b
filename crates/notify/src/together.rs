//! News that says the same of many objects, told as one.

use roadstead_model::Digest;

use crate::cause::Cause;
use crate::event::Event;
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

impl Together {
    /// What news, as an Alert tells it, has in common with that of other objects: kind, reason, revision, and the message without what differs.
    #[must_use]
    pub fn key(event: &Event, cluster: Option<&str>) -> Digest {
        let mut parts = vec![event.involved_object.kind.as_str(), &event.reason];
        for key in ["revision", "originRevision"] {
            parts.push(event.metadata.get(key).map_or("", String::as_str));
        }
        let text = Cause::of(event, cluster).text;
        parts.push(&text);
        let lengths = parts.iter().map(|part| format!("{}:{part}", part.len()));
        Digest::of(lengths.collect::<String>().as_bytes())
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
            Together::key(&event(name, message, revision), Some(cluster))
        };
        let one = key("web-edge-1", "edge-1", "edge-1: finished in 3s", "main@sha1:a");
        assert_eq!(one, key("web-edge-2", "edge-2", "edge-2: finished in 1m2s", "main@sha1:a"));
        assert_eq!(one, key("api", "edge-1", "edge-1: finished in 3s", "main@sha1:a"));
        assert_ne!(one, key("web-edge-1", "edge-1", "edge-1: finished in 3s", "main@sha1:b"));
        assert_ne!(one, key("web-edge-1", "edge-1", "edge-1: waits for 3s", "main@sha1:a"));
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
