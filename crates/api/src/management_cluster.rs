//! `ManagementCluster` of `fleet.roadstead.dev/v1alpha1`: a cluster in which Cluster API keeps its Clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterAgent, ClusterDeletionPolicy};
use crate::kustomization::SecretKeyReference;
use crate::object::{Condition, Object, Typed};

/// A stored ManagementCluster.
pub type ManagementCluster = Object<ManagementClusterSpec, ManagementClusterStatus>;

impl Typed for ManagementCluster {}

/// ManagementClusterSpec says where Clusters of Cluster API are, and what becomes of them here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagementClusterSpec {
    /// The kubeconfig by which the hub reads the management cluster. It needs to get the namespace kube-system, and to get,
    /// list and watch Clusters of Cluster API and Secrets.
    pub kube_config: ManagementKubeConfig,
    /// The namespaces of the management cluster that are looked at. Defaults to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub namespaces: Vec<String>,
    /// The ManagementClusters whose Clusters may move to this one (`clusterctl move`). Without it a Cluster stays with the
    /// management cluster that it came from, paused or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub accept_moves_from: Vec<ManagementClusterPeer>,
    /// The ManagementClusters of other namespaces that the Clusters of this one may move to, where those accept them. Within a
    /// namespace `acceptMovesFrom` is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub allow_moves_to: Vec<ManagementClusterPeer>,
    /// Whether nothing is done for now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// What Clusters have in their specs when they are made. Later on it is for each Cluster to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<ManagedClusterTemplate>,
}

/// ManagementClusterPeer names another ManagementCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagementClusterPeer {
    /// Its name.
    pub name: String,
    /// Its namespace. Defaults to that of the ManagementCluster that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// ManagementKubeConfig references the kubeconfig of a management cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagementKubeConfig {
    /// The Secret that holds the kubeconfig, in the namespace of the ManagementCluster. Of its type nothing is asked: one of
    /// type `cluster.x-k8s.io/secret` is that of a cluster that comes on board.
    pub secret_ref: SecretKeyReference,
}

/// ManagedClusterTemplate is what is set in the spec of each Cluster that is made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterTemplate {
    /// What happens to the objects on a cluster when it is deleted from its management cluster. Defaults to Abandon: they
    /// stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<ClusterDeletionPolicy>,
    /// Where and how the agents run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<ClusterAgent>,
}

/// ManagementClusterStatus is what was seen of a management cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagementClusterStatus {
    /// The last observed generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the ManagementCluster: Ready says whether its Clusters are followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// UID of its kube-system namespace. Another cluster is not followed under the same name: all Clusters of the first one
    /// would be missing from it, and be retired.
    #[serde(default, rename = "kubeSystemUID", skip_serializing_if = "Option::is_none")]
    pub kube_system_uid: Option<String>,
    /// How many Clusters it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u32>,
}
