//! `ResourceQuota` of `v1`: how many objects of which kinds a namespace may have, how many bytes of artifacts, and how many of its builds
//! may run at once. Of Kubernetes' quantities the hub has those that count objects.

use std::collections::BTreeMap;

use roadstead_model::parse_size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{KindId, PipelineRole, Scope};
use crate::object::{Object, Typed};
use crate::registry::KINDS;

/// A stored ResourceQuota.
pub type ResourceQuota = Object<ResourceQuotaSpec, ResourceQuotaStatus>;

impl Typed for ResourceQuota {}

/// All sources together, whatever their kinds.
const SOURCES: &str = "count/sources.fleet.roadstead.dev";

/// Bytes of the artifacts that the namespace's sources have now.
pub const ARTIFACT_BYTES: &str = "bytes/artifacts.fleet.roadstead.dev";

/// Builds of the namespace's appliers that run at once, on all replicas together.
pub const RUNNING_BUILDS: &str = "running/builds.fleet.roadstead.dev";

/// ResourceQuotaSpec says how many objects the namespace may have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuotaSpec {
    /// By what is counted, the highest number, as text: count/kustomizations.kustomize.toolkit.fluxcd.io, count/secrets,
    /// count/sources.fleet.roadstead.dev for sources of all kinds together, bytes/artifacts.fleet.roadstead.dev for what their artifacts
    /// have, as 500Mi, and running/builds.fleet.roadstead.dev for builds that run at once: the others wait.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, String>,
}

/// ResourceQuotaStatus says how many objects the namespace has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuotaStatus {
    /// The highest numbers, as in the spec.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, String>,
    /// How many there are. Counted when the object is read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
}

impl ResourceQuotaSpec {
    /// What is counted: its name, the kinds, and the highest number. What is none of it was refused when it was written.
    pub fn limits(&self) -> impl Iterator<Item = (&str, Vec<KindId>, i64)> {
        self.hard.iter().filter_map(|(what, limit)| Some((what.as_str(), counted(what)?, number(limit)?)))
    }

    /// How many bytes the artifacts of the namespace may have.
    #[must_use]
    pub fn artifact_bytes(&self) -> Option<u64> {
        self.hard.get(ARTIFACT_BYTES).and_then(|limit| parse_size(limit).ok())
    }

    /// How many builds of the namespace may run at once.
    #[must_use]
    pub fn running_builds(&self) -> Option<i64> {
        self.hard.get(RUNNING_BUILDS).and_then(|limit| number(limit))
    }
}

/// The kinds whose objects are counted by this name; none where it is no such name.
pub(crate) fn counted(what: &str) -> Option<Vec<KindId>> {
    if what == SOURCES {
        return Some(KindId::of_role(PipelineRole::Source).collect());
    }
    let name = what.strip_prefix("count/");
    let is_meant = |kind: &&&crate::Kind| {
        // Kubernetes knows these by their short names, too.
        let is_short = matches!(kind.id, KindId::Secret | KindId::ConfigMap) && what == kind.plural;
        let is_named = |name: &str| match name.split_once('.') {
            Some((plural, group)) => {
                kind.plural == plural && kind.versions.iter().any(|version| version.group == group)
            }
            None => kind.plural == name && kind.group().is_empty(),
        };
        kind.scope == Scope::Namespaced && (is_short || name.is_some_and(is_named))
    };
    // Events expire, and who has none of them left is told nothing.
    let kind = KINDS.iter().find(is_meant).filter(|kind| kind.id != KindId::Event)?;
    Some(vec![kind.id])
}

/// Kubernetes takes quantities as numbers, too, and shows them as text.
pub(crate) fn numbers_to_text(object: &mut Value) {
    let hard = object.pointer_mut("/spec/hard").and_then(Value::as_object_mut);
    for limit in hard.into_iter().flat_map(|hard| hard.values_mut()) {
        if let Value::Number(number) = limit {
            *limit = number.to_string().into();
        }
    }
}

/// A number of objects.
pub(crate) fn number(text: &str) -> Option<i64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{KindId, counted, number};
    use crate::structural;

    #[test]
    fn what_can_be_counted() {
        for (what, kind) in [
            ("count/kustomizations.kustomize.toolkit.fluxcd.io", KindId::Kustomization),
            ("count/gitrepositories.source.toolkit.fluxcd.io", KindId::GitRepository),
            ("count/secrets", KindId::Secret),
            ("secrets", KindId::Secret),
            ("configmaps", KindId::ConfigMap),
            ("count/serviceaccounts", KindId::ServiceAccount),
        ] {
            assert_eq!(counted(what), Some(vec![kind]), "{what}");
        }
        assert!(counted("count/sources.fleet.roadstead.dev").is_some_and(|kinds| kinds.len() >= 6));
        for what in [
            "pods",
            "cpu",
            "requests.cpu",
            "count/pods",
            "count/kustomizations",
            "kustomizations",
            "count/events",
            "count/clusters.fleet.roadstead.dev",
            "count/kustomizations.example.com",
            "count/",
            "",
        ] {
            assert_eq!(counted(what), None, "{what}");
        }
    }

    #[test]
    fn a_number_is_as_good_as_its_text() {
        let kind = KindId::ResourceQuota.get();
        let mut object =
            json!({ "spec": { "hard": { "secrets": 5, "configmaps": "6", "count/secrets": 1.5 } } });
        let findings = structural(kind, kind.storage_version(), &mut object);
        assert!(findings.errors.is_empty() && findings.unknown.is_empty());
        assert_eq!(
            object["spec"]["hard"],
            json!({ "secrets": "5", "configmaps": "6", "count/secrets": "1.5" })
        );
        for odd in [json!({ "spec": { "hard": [1] } }), json!({ "spec": 5 }), json!([])] {
            assert!(!structural(kind, kind.storage_version(), &mut odd.clone()).errors.is_empty(), "{odd}");
        }
    }

    #[test]
    fn numbers_are_whole_and_not_negative() {
        assert_eq!((number("0"), number("50")), (Some(0), Some(50)));
        for text in ["", "-1", "+1", "1.5", "1k", "9223372036854775808"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
