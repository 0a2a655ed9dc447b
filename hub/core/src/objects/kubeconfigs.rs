//! Secrets with a kubeconfig, as Cluster API writes them.

use roadstead_api::{ClusterKubeConfig, KindId, SecretReference};
use roadstead_hub_store::Stored;

/// The `type` of the Secrets that Cluster API writes.
pub(crate) const KUBECONFIG_TYPE: &str = "cluster.x-k8s.io/secret";
/// How their names end: the Cluster's name stands before it.
pub(crate) const SUFFIX: &str = "-kubeconfig";
/// The key under which Cluster API writes a kubeconfig.
pub(crate) const KEY: &str = ClusterKubeConfig::USUAL_KEYS[0];

/// Whether the object is a kubeconfig as Cluster API writes it.
pub(crate) fn is_kubeconfig(stored: &Stored) -> bool {
    stored.kind == KindId::Secret
        && stored.object["type"] == KUBECONFIG_TYPE
        && cluster_name(stored).is_some()
}

/// The name of the Cluster that a Secret of this name is for.
pub(crate) fn cluster_name(secret: &Stored) -> Option<&str> {
    secret.name.strip_suffix(SUFFIX).filter(|name| !name.is_empty())
}

/// The keys under which the kubeconfig may be: the one that is named, or the usual ones.
pub(crate) fn keys(named: Option<&str>) -> Vec<&str> {
    named.map_or_else(|| ClusterKubeConfig::USUAL_KEYS.to_vec(), |key| vec![key])
}

/// A reference to the Secret.
pub(crate) fn reference(secret: &Stored) -> SecretReference {
    SecretReference { namespace: secret.namespace.clone(), name: secret.name.clone() }
}
