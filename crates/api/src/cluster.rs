//! `Cluster` of `fleet.roadstead.dev/v1alpha1`: a registered target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::KindId;
use crate::object::{Condition, Object, Typed};

/// A stored Cluster.
pub type Cluster = Object<ClusterSpec, ClusterStatus>;

impl Typed for Cluster {
    const KIND: KindId = KindId::Cluster;
}

/// ClusterSpec says how the hub treats a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// What happens to the objects on the cluster when the Cluster is deleted. Defaults to Abandon: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<ClusterDeletionPolicy>,
}

/// What a Cluster's deletion does to the objects there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterDeletionPolicy {
    /// They stay.
    Abandon,
}

/// ClusterStatus is what the cluster's agent told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The last observed generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the Cluster: Ready says whether its agent is connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// UID of the cluster's kube-system namespace, which makes it that cluster.
    #[serde(default, rename = "kubeSystemUID", skip_serializing_if = "Option::is_none")]
    pub kube_system_uid: Option<String>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Version of the cluster's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
}
