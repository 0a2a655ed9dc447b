//! What the hub has an agent do: a dispatch and its steps. The hub stores it, the protocol carries it, the agent does it; this
//! is its one form in all three.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{DispatchKey, ObjectRef};

/// The namespace of a cluster for objects that name none, where nothing else is said.
pub const DEFAULT_NAMESPACE: &str = "default";

/// An ordered list of steps for one Kustomization on one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// What makes it that dispatch.
    pub key: DispatchKey,
    /// What to do.
    pub spec: DispatchSpec,
    /// What the Kustomization owned on this cluster before.
    pub inventory: Vec<ObjectRef>,
}

/// The part of a dispatch that does not change from session to session. The hub stores it as JSON, of which replicas of two
/// versions must read each other's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchSpec {
    /// The hub namespace of the Kustomization.
    pub namespace: String,
    /// The Kustomization's name.
    pub name: String,
    /// The namespace of the cluster for namespaced objects that name none; see [`DispatchSpec::default_namespace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_namespace: Option<String>,
    /// Impersonated for every read and write; none: the agent's own rights.
    pub service_account: Option<ServiceAccount>,
    /// For validation, apply and health together.
    #[serde(rename = "timeoutMillis", with = "millis")]
    pub timeout: Duration,
    /// What to do, in this order.
    pub steps: Vec<Step>,
}

impl DispatchSpec {
    /// Where a namespaced object goes that names no namespace.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.default_namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

/// A service account of the workload cluster. Its JSON is `[NAMESPACE, NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct ServiceAccount {
    /// Its namespace there.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl From<(String, String)> for ServiceAccount {
    fn from((namespace, name): (String, String)) -> Self {
        Self { namespace, name }
    }
}

impl From<ServiceAccount> for (String, String) {
    fn from(account: ServiceAccount) -> Self {
        (account.namespace, account.name)
    }
}

/// One step of a dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Validate and apply the build's objects.
    Apply {
        /// Recreate an object whose change the apiserver calls immutable.
        force: bool,
    },
    /// Delete what is in the inventory and not in the build.
    Prune,
    /// Wait until objects are healthy.
    Wait {
        /// These …
        objects: Vec<ObjectRef>,
        /// … and everything that was applied.
        all: bool,
    },
    /// Delete everything in the inventory.
    Delete,
}

/// A duration as a number of milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn is_stored_as_replicas_of_the_version_before_read_it() {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "apps".to_owned(),
            name: "web".to_owned(),
        };
        let spec = DispatchSpec {
            namespace: "team-a".to_owned(),
            name: "app".to_owned(),
            default_namespace: None,
            service_account: Some(("apps".to_owned(), "deployer".to_owned()).into()),
            timeout: Duration::from_secs(90),
            steps: vec![
                Step::Apply { force: true },
                Step::Prune,
                Step::Wait { objects: vec![object.clone()], all: false },
                Step::Delete,
            ],
        };
        let stored = json!({
            "namespace": "team-a",
            "name": "app",
            "serviceAccount": ["apps", "deployer"],
            "timeoutMillis": 90_000,
            "steps": [
                { "apply": { "force": true } },
                "prune",
                { "wait": { "objects": [object], "all": false } },
                "delete",
            ],
        });
        assert_eq!(serde_json::to_value(&spec).unwrap(), stored);
        assert_eq!(serde_json::from_value::<DispatchSpec>(stored).unwrap(), spec);
        assert_eq!(spec.default_namespace(), "default");
        let elsewhere = DispatchSpec { default_namespace: Some("apps".to_owned()), ..spec };
        assert_eq!(elsewhere.default_namespace(), "apps");
    }
}
