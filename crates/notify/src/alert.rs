//! Which events an Alert is for.

use std::collections::BTreeMap;

use regex::Regex;
use roadstead_api::rules::{MAX_PATTERN, MAX_PATTERN_BYTES, MAX_PATTERNS};
use roadstead_api::{AlertSpec, CrossNamespaceObjectReference, KindId, LabelSelector};
use roadstead_go_regex::{PatternError, compile};

use crate::event::{Event, Involved, Level};

/// The namespace or name that stands for all.
const ALL: &str = "*";

/// An expression of an Alert that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field}[{index}]: {why}")]
pub struct BadPattern {
    /// The list.
    pub field: &'static str,
    /// Where it stands there.
    pub index: usize,
    /// What is wrong with it.
    pub why: PatternError,
}

/// The labels by which sources select.
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    /// Of the object that an event is of.
    pub object: &'a BTreeMap<String, String>,
    /// Of its namespace; none where that is not there.
    pub namespace: Option<&'a BTreeMap<String, String>>,
    /// Of the Cluster that it is about; none where it is about none.
    pub cluster: Option<&'a BTreeMap<String, String>>,
}

/// An object that Alerts may listen to.
#[derive(Debug, Clone, Copy)]
pub struct Listened<'a> {
    /// Its kind's group.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The Cluster whose Flux tells of it; none of what is the hub's own.
    pub relayed_from: Option<&'a str>,
}

impl<'a> Listened<'a> {
    fn of(event: &'a Event) -> Self {
        let Involved { api_version, kind, namespace, name, .. } = &event.involved_object;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { group, kind, namespace, name, relayed_from: event.relayed_from.as_deref() }
    }
}

/// Says which events an Alert is for.
#[derive(Debug)]
pub struct Selector<'a> {
    spec: &'a AlertSpec,
    namespace: &'a str,
    inclusion: Vec<Regex>,
    exclusion: Vec<Regex>,
}

impl<'a> Selector<'a> {
    /// Of an Alert in `namespace`.
    ///
    /// # Errors
    /// The first expression that cannot be used: an Alert that has one is for nothing, rather than for more than it says.
    pub fn new(spec: &'a AlertSpec, namespace: &'a str) -> Result<Self, BadPattern> {
        let inclusion = compiled("inclusionList", &spec.inclusion_list)?;
        let exclusion = compiled("exclusionList", &spec.exclusion_list)?;
        Ok(Self { spec, namespace, inclusion, exclusion })
    }

    /// The sources by which it is for an event with these labels: none where it is not. Whether it may be, where the object lies in another
    /// namespace, is for the caller.
    #[must_use]
    pub fn matching<'s>(
        &'s self,
        event: &Event,
        labels: Labels<'_>,
    ) -> Vec<&'s CrossNamespaceObjectReference> {
        let spec = self.spec;
        if spec.suspend || spec.is_for_errors() && event.severity != Level::Error {
            return Vec::new();
        }
        let object = Listened::of(event);
        let of_source =
            |source: &&CrossNamespaceObjectReference| is_of(source, self.namespace, object, labels);
        let found: Vec<_> = spec.event_sources.iter().filter(of_source).collect();
        if found.is_empty() || !self.lets_through(&event.message) {
            return Vec::new();
        }
        found
    }

    fn lets_through(&self, message: &str) -> bool {
        let matches = |patterns: &[Regex]| patterns.iter().any(|pattern| pattern.is_match(message));
        (self.inclusion.is_empty() || matches(&self.inclusion)) && !matches(&self.exclusion)
    }
}

/// Whether any source of an Alert in `namespace` chooses an object with these labels, whatever there is to tell of it.
#[must_use]
pub fn listens_to(spec: &AlertSpec, namespace: &str, object: Listened<'_>, labels: Labels<'_>) -> bool {
    spec.event_sources.iter().any(|source| is_of(source, namespace, object, labels))
}

fn is_of(
    source: &CrossNamespaceObjectReference,
    own_namespace: &str,
    object: Listened<'_>,
    labels: Labels<'_>,
) -> bool {
    let selected = |selector: &Option<LabelSelector>, labels: Option<&BTreeMap<String, String>>| {
        selector.as_ref().is_none_or(|selector| labels.is_some_and(|labels| selector.selects(labels)))
    };
    let namespace = source.namespace.as_deref().unwrap_or(own_namespace);
    // As Flux has it, a source's version says nothing; a group that is another one's does.
    let is_of_place = match (&source.cluster, object.relayed_from) {
        (None, None) => KindId::parse(object.group, object.kind).is_some(),
        // Of kinds that the hub does not have, too.
        (Some(wanted), Some(cluster)) => {
            (wanted == ALL || wanted == cluster) && source.kind.group() == object.group
        }
        _ => false,
    };
    is_of_place
        && source.kind.as_str() == object.kind
        && (namespace == ALL || namespace == object.namespace)
        && (source.name == ALL || source.name == object.name)
        && source.match_labels.iter().all(|(key, value)| labels.object.get(key) == Some(value))
        && selected(&source.namespace_selector, labels.namespace)
        && selected(&source.cluster_selector, labels.cluster)
}

fn compiled(field: &'static str, patterns: &[String]) -> Result<Vec<Regex>, BadPattern> {
    let each = patterns.iter().enumerate().map(|(index, pattern)| {
        let too_long = index >= MAX_PATTERNS || pattern.len() > MAX_PATTERN_BYTES;
        let compiled = if too_long {
            let shown = pattern.chars().take(40).collect();
            Err(PatternError::TooLarge { pattern: shown })
        } else {
            compile(pattern, MAX_PATTERN)
        };
        compiled.map_err(|why| BadPattern { field, index, why })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(namespace: &str, name: &str, message: &str) -> Event {
        serde_json::from_value(json!({
            "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name,
                "namespace": namespace, "uid": "1" },
            "severity": "info", "timestamp": "2026-08-07T10:00:00Z", "message": message, "reason": "X",
            "reportingController": "c",
        }))
        .unwrap()
    }

    fn is_for(more: &Value, event: &Event, labels: &[(&str, &str)]) -> bool {
        let mut spec = json!({ "providerRef": { "name": "p" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec: AlertSpec = serde_json::from_value(spec).unwrap();
        let labels = map(labels);
        let labels = Labels { object: &labels, namespace: None, cluster: None };
        !Selector::new(&spec, "apps").unwrap().matching(event, labels).is_empty()
    }

    fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selectors_say_which_namespaces_and_clusters() {
        let event = event("shop", "web", "m");
        let selector = json!({ "matchLabels": { "team": "blue" },
            "matchExpressions": [{ "key": "old", "operator": "DoesNotExist" }] });
        let (none, blue) = (map(&[]), map(&[("team", "blue")]));
        let old = map(&[("team", "blue"), ("old", "yes")]);
        for (field, labels, expected) in [
            ("namespaceSelector", [Some(&blue), None], true),
            ("namespaceSelector", [Some(&old), Some(&blue)], false),
            ("namespaceSelector", [None, Some(&blue)], false),
            ("clusterSelector", [None, Some(&blue)], true),
            ("clusterSelector", [Some(&blue), Some(&none)], false),
            // About no cluster.
            ("clusterSelector", [Some(&blue), None], false),
        ] {
            let source = json!({ "kind": "Kustomization", "name": "*", "namespace": "*", field: selector });
            let spec: AlertSpec =
                serde_json::from_value(json!({ "providerRef": { "name": "p" }, "eventSources": [source] }))
                    .unwrap();
            let [namespace, cluster] = labels;
            let labels = Labels { object: &none, namespace, cluster };
            let selects = !Selector::new(&spec, "apps").unwrap().matching(&event, labels).is_empty();
            assert_eq!(selects, expected, "{field} {labels:?}");
        }
    }

    #[test]
    fn what_a_cluster_tells_is_for_sources_that_say_so() {
        let own = event("apps", "web", "m");
        let relayed = Event { relayed_from: Some("edge-1".to_owned()), ..own.clone() };
        let mut release = relayed.clone();
        release.involved_object.api_version = "helm.toolkit.fluxcd.io/v2".to_owned();
        release.involved_object.kind = "HelmRelease".to_owned();
        for (source, of_own, of_relayed) in [
            (json!({ "kind": "Kustomization", "name": "*" }), true, false),
            (json!({ "kind": "Kustomization", "name": "*", "namespace": "*" }), true, false),
            (json!({ "kind": "Kustomization", "name": "*", "cluster": "edge-1" }), false, true),
            (json!({ "kind": "Kustomization", "name": "web", "cluster": "*" }), false, true),
            (json!({ "kind": "Kustomization", "name": "*", "cluster": "edge-2" }), false, false),
            (
                json!({ "kind": "Kustomization", "name": "*", "namespace": "ops", "cluster": "*" }),
                false,
                false,
            ),
        ] {
            let sources = json!({ "eventSources": [source] });
            assert_eq!(is_for(&sources, &own, &[]), of_own, "{sources}");
            assert_eq!(is_for(&sources, &relayed, &[]), of_relayed, "{sources}");
        }
        let releases = json!({ "eventSources": [{ "kind": "HelmRelease", "name": "*", "cluster": "*" }] });
        assert!(is_for(&releases, &release, &[]));
        release.involved_object.api_version = "example.test/v2".to_owned();
        assert!(!is_for(&releases, &release, &[]));
    }

    #[test]
    fn sources_say_which_objects() {
        let event = event("apps", "web", "m");
        for (source, labels, expected) in [
            (json!({ "kind": "Kustomization", "name": "web" }), &[][..], true),
            (json!({ "kind": "Kustomization", "name": "*" }), &[], true),
            (json!({ "kind": "Kustomization", "name": "api" }), &[], false),
            (json!({ "kind": "GitRepository", "name": "web" }), &[], false),
            (json!({ "kind": "Kustomization", "name": "web", "namespace": "ops" }), &[], false),
            (json!({ "kind": "Kustomization", "name": "*", "namespace": "*" }), &[], true),
            (
                json!({ "kind": "Kustomization", "name": "web", "apiVersion": "kustomize.toolkit.fluxcd.io/v1beta2" }),
                &[],
                true,
            ),
            (
                json!({ "kind": "Kustomization", "name": "*", "matchLabels": { "a": "b" } }),
                &[("a", "b")],
                true,
            ),
            (
                json!({ "kind": "Kustomization", "name": "*", "matchLabels": { "a": "b" } }),
                &[("a", "c")],
                false,
            ),
            (json!({ "kind": "Kustomization", "name": "web", "matchLabels": { "a": "b" } }), &[], false),
        ] {
            assert_eq!(is_for(&json!({ "eventSources": [source] }), &event, labels), expected, "{source}");
        }
        let any = json!({ "eventSources": [{ "kind": "Bucket", "name": "*" }, { "kind": "Kustomization", "name": "*" }] });
        assert!(is_for(&any, &event, &[]));
        // Of another group.
        let mut other = event.clone();
        other.involved_object.api_version = "example.test/v1".to_owned();
        assert!(!is_for(&any, &other, &[]));
    }

    #[test]
    fn severity_and_expressions_say_which_news() {
        let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
        let news = event("apps", "web", "Reconciliation finished in 2s");
        let failure = Event { severity: Level::Error, message: "build failed".to_owned(), ..news.clone() };
        for (more, expected) in [
            (json!({}), (true, true)),
            (json!({ "eventSeverity": "info" }), (true, true)),
            (json!({ "eventSeverity": "error" }), (false, true)),
            (json!({ "suspend": true }), (false, false)),
            (json!({ "inclusionList": [".*finished.*", "^x$"] }), (true, false)),
            (json!({ "exclusionList": ["finished in \\d+s"] }), (false, true)),
            (json!({ "inclusionList": ["finished|build"], "exclusionList": ["build"] }), (true, false)),
        ] {
            let mut spec = more.clone();
            spec["eventSources"] = sources.clone();
            assert_eq!((is_for(&spec, &news, &[]), is_for(&spec, &failure, &[])), expected, "{more}");
        }
    }

    #[test]
    fn an_expression_that_cannot_be_used_is_named() {
        for (list, field) in
            [("inclusionList", "spec.inclusionList[1]"), ("exclusionList", "spec.exclusionList[1]")]
        {
            for bad in [
                "(".to_owned(),
                "x".repeat(MAX_PATTERN_BYTES + 1),
                "((a{1,1000}){1,1000}){1,1000}".to_owned(),
            ] {
                let spec = json!({ "providerRef": { "name": "p" }, "eventSources": [], list: ["fine", bad] });
                let spec: AlertSpec = serde_json::from_value(spec).unwrap();
                let why = Selector::new(&spec, "apps").unwrap_err().to_string();
                assert!(why.starts_with(field), "{why}");
            }
        }
    }
}
