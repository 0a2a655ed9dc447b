//! A Cluster of Cluster API, as a management cluster shows it.

use std::collections::BTreeMap;

use crate::Digest;

/// A Cluster of Cluster API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagedCluster {
    /// Its namespace.
    pub namespace: String,
    /// Its name, which is also the name on the hub.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether its control plane has been reached once.
    pub initialized: bool,
    /// `spec.paused`.
    pub paused: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The kubeconfig in its Secret; none where that is not there, or was not read.
    pub kubeconfig: Option<Digest>,
}
