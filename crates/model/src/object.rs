//! References to Kubernetes objects.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many objects an inventory has at most, and so a build and what is made of either.
pub const MAX_OBJECTS: usize = 20_000;

/// An API group and a kind: what identifies a type of object apart from its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind, as `Deployment`.
    pub kind: String,
}

/// An object on a cluster. The version is how it was last addressed and no part of its identity.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version within the group, as `v1`.
    pub version: String,
    /// The kind, as `Deployment`.
    pub kind: String,
    /// The namespace; empty where the object is cluster-scoped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    fn identity(&self) -> (&str, &str, &str, &str) {
        (&self.group, &self.kind, &self.namespace, &self.name)
    }

    /// The type of the object without its version.
    #[must_use]
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// `apiVersion` as it stands in a manifest: `apps/v1`, or `v1` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Splits `apiVersion` into group and version; the core group is empty.
    #[must_use]
    pub fn split_api_version(api_version: &str) -> (&str, &str) {
        api_version.split_once('/').unwrap_or(("", api_version))
    }

    /// As kubectl names an object: `deployment.apps/backend`, `service/backend`. No namespace.
    #[must_use]
    pub fn kubectl_name(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() {
            format!("{kind}/{}", self.name)
        } else {
            format!("{kind}.{}/{}", self.group, self.name)
        }
    }
}

impl PartialEq for ObjectRef {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ObjectRef {}

impl PartialOrd for ObjectRef {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectRef {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl std::hash::Hash for ObjectRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// As Flux names an object in messages: `Deployment/dev/backend`, `Namespace/dev`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.kind, self.name)
        } else {
            write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// The kind that dispatches were of before there were others.
const KUSTOMIZATION: &str = "Kustomization";

/// An applier as people name it: an object of the hub that deploys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApplierRef {
    /// Its kind.
    #[serde(default = "kustomization", skip_serializing_if = "is_kustomization")]
    pub kind: String,
    /// Its namespace on the hub.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

fn kustomization() -> String {
    KUSTOMIZATION.to_owned()
}

fn is_kustomization(kind: &str) -> bool {
    kind == KUSTOMIZATION
}

impl ApplierRef {
    /// A Kustomization.
    #[must_use]
    pub fn kustomization(namespace: &str, name: &str) -> Self {
        Self { kind: kustomization(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Whether it is a Kustomization, of which all versions know.
    #[must_use]
    pub fn is_kustomization(&self) -> bool {
        is_kustomization(&self.kind)
    }
}

impl fmt::Display for ApplierRef {
    /// `Kind namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        // Of one that is gone only its uid is known, in the place of the name.
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}
