//! RBAC's four kinds, of `rbac.authorization.k8s.io/v1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::ObjectMeta;

/// The API group of RBAC's kinds, and of users and groups as subjects.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Role is a set of permissions in a namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Role {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// What is permitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PolicyRule>,
}

/// ClusterRole is a set of permissions in all namespaces and beyond them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRole {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// What is permitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PolicyRule>,
    /// From which other ClusterRoles the rules are put together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation_rule: Option<AggregationRule>,
}

/// PolicyRule says which verbs are permitted on which resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// The verbs; `*` is all.
    pub verbs: Vec<String>,
    /// The groups of the resources; the core group is empty, `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources; `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The objects' names. Empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are not resources, in ClusterRoles only.
    #[serde(default, rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// AggregationRule says from which ClusterRoles one is put together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregationRule {
    /// Those that any of these select.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_role_selectors: Vec<LabelSelector>,
}

/// LabelSelector selects objects by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

impl LabelSelector {
    /// Whether it selects something with these labels; one without requirements selects everything, one that is not valid nothing.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let (have, values) = (labels.get(&requirement.key), &requirement.values);
                match requirement.operator.as_str() {
                    "In" => have.is_some_and(|have| values.contains(have)),
                    "NotIn" => !values.is_empty() && have.is_none_or(|have| !values.contains(have)),
                    "Exists" => values.is_empty() && have.is_some(),
                    "DoesNotExist" => values.is_empty() && have.is_none(),
                    _ => false,
                }
            })
    }

    /// The labels that it asks for.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let expressions = self.match_expressions.iter().map(|requirement| requirement.key.as_str());
        self.match_labels.keys().map(String::as_str).chain(expressions)
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// LabelSelectorRequirement is a requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub operator: String,
    /// The values for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// A binding gives a role's permissions to subjects: a RoleBinding in its namespace, a ClusterRoleBinding everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleBinding {
    /// The versioned schema of this representation of the object.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default)]
    pub kind: String,
    /// Standard object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who gets the permissions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,
    /// The role; a ClusterRoleBinding's is a ClusterRole. Cannot be updated.
    pub role_ref: RoleRef,
}

/// Subject is a user, a group or a service account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// User, Group or ServiceAccount.
    pub kind: String,
    /// `rbac.authorization.k8s.io` for users and groups, empty for service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Its name.
    pub name: String,
    /// The namespace of a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// RoleRef names the role of a binding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleRef {
    /// `rbac.authorization.k8s.io`
    #[serde(default)]
    pub api_group: String,
    /// Role or ClusterRole.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Fills in a binding's API groups where they are left out, as Kubernetes does.
pub fn default_binding(binding: &mut Value) {
    if binding["roleRef"]["apiGroup"].as_str().is_none_or(str::is_empty) {
        binding["roleRef"]["apiGroup"] = GROUP.into();
    }
    for subject in binding["subjects"].as_array_mut().into_iter().flatten() {
        if subject["apiGroup"].is_null() && matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            subject["apiGroup"] = GROUP.into();
        }
    }
}
