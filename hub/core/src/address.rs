//! How requests and messages name objects.

use roadstead_api::{Kind, KindId, Version};

use crate::HubError;

/// Which object or objects are meant, as a URL names them.
#[derive(Debug, Clone)]
pub struct Address {
    /// The kind.
    pub kind: KindId,
    /// The version in which objects come and go.
    pub version: &'static Version,
    /// The namespace; empty for all, and for cluster-scoped kinds.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
}

impl Address {
    pub(crate) fn not_found(&self) -> HubError {
        HubError::NotFound { what: named(self.kind.get(), &self.name) }
    }
}

/// Where the next page of a list begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextPage {
    /// The version that the list's first page was of.
    pub version: i64,
    /// The namespace of the last object that was shown.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How an object is named in messages: `kustomizations.kustomize.toolkit.fluxcd.io "web"`.
pub(crate) fn named(kind: &Kind, name: &str) -> String {
    format!("{} \"{name}\"", kind.qualified())
}
