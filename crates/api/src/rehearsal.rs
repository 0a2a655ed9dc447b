//! `Rehearsal` of `fleet.roadstead.dev/v1alpha1`: a kind for tests, in debug builds only. It uses all that the pipeline has for
//! appliers: two sources, several groups, a hook, a value from a Secret of the hub, an object that is read on the cluster, children.

use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kustomization::{DependencyReference, KubeConfig, ResourceInventory, SourceReference, is_false};
use crate::object::{Condition, LocalObjectReference, Object, Typed, duration_schema};

/// A stored Rehearsal.
pub type Rehearsal = Object<RehearsalSpec, RehearsalStatus>;

impl Typed for Rehearsal {}

/// RehearsalSpec says what is rendered of two sources, and what goes into it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RehearsalSpec {
    /// The cluster that it deploys to. Excludes kubeConfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalObjectReference>,
    /// The kubeconfig of the cluster that it deploys to. Excludes clusterRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// Rehearsals that must be ready before this one is reconciled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// The interval at which it is reconciled.
    #[schemars(schema_with = "duration_schema")]
    pub interval: GoDuration,
    /// The interval after a failed reconciliation. Defaults to interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub retry_interval: Option<GoDuration>,
    /// Timeout for validation, apply and health checking. Defaults to interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Whether objects that left the render are deleted from the cluster.
    #[serde(default)]
    pub prune: bool,
    /// Whether the health of all applied objects is waited for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// Whether reconciliations are held back. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// The name of the Kubernetes service account that is impersonated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The namespace of the cluster for the ConfigMap that is made for the second group.
    pub target_namespace: String,
    /// The source of the first group (its folder `first`) and of the hook (its folder `hook`).
    pub first_source_ref: SourceReference,
    /// The source of the second group.
    pub second_source_ref: SourceReference,
    /// A Secret of the hub: what it has under `value` goes into the ConfigMap of the second group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// A ConfigMap of the cluster. Its data names, under `configMap`, a ConfigMap of the hub, and that one's data goes into the
    /// ConfigMap of the second group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<RehearsalRead>,
    /// Has the render go wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<RehearsalFault>,
}

/// RehearsalRead names a ConfigMap of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RehearsalRead {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// How a render goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RehearsalFault {
    /// It says why it cannot render.
    Fail,
    /// It panics.
    Panic,
    /// It renders no group at all.
    Nothing,
    /// It asks for something more in each round.
    Endless,
    /// It asks for what it has been given already.
    Repeat,
    /// It never ends.
    Hang,
    /// The same object is in both groups.
    Twice,
}

/// RehearsalStatus records the result of the last reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RehearsalStatus {
    /// The last reconciled generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last successfully applied revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// The revision of the last reconciliation attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// The last manual reconciliation request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The objects that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
}
