//! `ReferenceGrant` of `fleet.roadstead.dev/v1alpha1`: lets objects of other namespaces refer to those of its own. Its form is that of
//! Gateway API's kind of this name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::KindId;
use crate::object::{ObjectMeta, Typed};

/// ReferenceGrant lets objects of other namespaces refer to objects of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrant {
    /// The versioned schema of this representation of the object.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default)]
    pub kind: String,
    /// Standard object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who may refer to what.
    pub spec: ReferenceGrantSpec,
}

impl Typed for ReferenceGrant {}

/// ReferenceGrantSpec says from where what of this namespace may be referred to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// Who may refer: objects of these kinds in these namespaces. Any entry is enough.
    #[schemars(length(min = 1, max = 16))]
    pub from: Vec<ReferenceGrantFrom>,
    /// What they may refer to in the namespace of the ReferenceGrant. Any entry is enough.
    #[schemars(length(min = 1, max = 16))]
    pub to: Vec<ReferenceGrantTo>,
}

impl ReferenceGrantSpec {
    /// Whether an object of this kind and namespace may refer to that one, which lies in the namespace of the ReferenceGrant.
    #[must_use]
    pub fn allows(&self, from: (KindId, &str), to: (KindId, &str)) -> bool {
        let is_from = self.from.iter().any(|entry| {
            KindId::parse(&entry.group, &entry.kind) == Some(from.0) && entry.namespace == from.1
        });
        let is_to = self.to.iter().any(|entry| {
            let is_named = entry.name.as_deref().is_none_or(|name| name == to.1);
            KindId::parse(&entry.group, &entry.kind) == Some(to.0) && is_named
        });
        is_from && is_to
    }
}

/// ReferenceGrantFrom names objects that may refer to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantFrom {
    /// Their API group, as kustomize.toolkit.fluxcd.io.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Their kind, as Kustomization.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Their namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

/// ReferenceGrantTo names objects that may be referred to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantTo {
    /// Their API group, as source.toolkit.fluxcd.io; empty for Secrets and ConfigMaps.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Their kind, as GitRepository.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The name of the only one. Defaults to all of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{KindId, ReferenceGrantSpec};

    #[test]
    fn a_grant_is_for_the_kinds_the_namespaces_and_the_names_that_it_names() {
        let spec: ReferenceGrantSpec = serde_json::from_value(serde_json::json!({
            "from": [{ "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "namespace": "team-a" }],
            "to": [
                { "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "name": "shared" },
                { "group": "source.toolkit.fluxcd.io", "kind": "Bucket" },
                { "group": "", "kind": "Secret", "name": "values" },
                { "group": "other.example.com", "kind": "OCIRepository" },
            ],
        }))
        .unwrap();
        let team = (KindId::Kustomization, "team-a");
        for (from, to, want) in [
            (team, (KindId::GitRepository, "shared"), true),
            (team, (KindId::GitRepository, "other"), false),
            (team, (KindId::Bucket, "any"), true),
            (team, (KindId::Secret, "values"), true),
            (team, (KindId::ConfigMap, "values"), false),
            // Another group's kind of that name is not the hub's.
            (team, (KindId::OciRepository, "any"), false),
            ((KindId::Kustomization, "team-b"), (KindId::Bucket, "any"), false),
            ((KindId::Receiver, "team-a"), (KindId::Bucket, "any"), false),
        ] {
            assert_eq!(spec.allows(from, to), want, "{from:?} {to:?}");
        }
    }
}
