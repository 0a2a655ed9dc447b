//! What all kinds that deploy (appliers) say in the same words, so that the pipeline need not know each of them.

use roadstead_model::GoDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::annotated;
use crate::kustomization::{
    Adopt, Delegation, DeletionPolicy, DependencyReference, Drift, EventsIn, GuardSpec, HealthCheck,
    HistoryEntry, KubeConfig, LookedUp, Pin, ResourceInventory, ServiceAccount, health_checks,
};
use crate::object::{Condition, LocalObjectReference, Object, Typed};

/// What the hub reads and writes of an applier, whatever its kind.
pub type AnyApplier = Object<ApplierSpec, AnyApplierStatus>;

impl Typed for AnyApplier {
    /// With what annotations say of the spec.
    fn from_object(object: &Value) -> Result<Self, serde_json::Error> {
        annotated::read_merged(object)
    }
}

/// What the specs of all kinds of appliers say in the same words. What a kind has no word for has its default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplierSpec {
    /// The cluster that it deploys to, by the name of its Cluster. Excludes `kube_config`.
    pub cluster_ref: Option<LocalObjectReference>,
    /// The kubeconfig of the cluster that it deploys to. Excludes `cluster_ref`.
    pub kube_config: Option<KubeConfig>,
    /// Appliers of its kind that must be ready before it is reconciled.
    #[serde(default)]
    pub depends_on: Vec<DependencyReference>,
    /// The interval at which it is reconciled.
    pub interval: GoDuration,
    /// The interval after a failed reconciliation. Defaults to `interval`.
    pub retry_interval: Option<GoDuration>,
    /// Timeout for validation, apply and health checking. Defaults to `interval`.
    pub timeout: Option<GoDuration>,
    /// Whether objects that are not wanted any more are deleted from the cluster.
    #[serde(default)]
    pub prune: bool,
    /// What happens to the objects when it is deleted. Defaults to: as `prune` says.
    pub deletion_policy: Option<DeletionPolicy>,
    /// Whether the health of all applied objects is waited for.
    #[serde(default)]
    pub wait: bool,
    /// Objects whose health is waited for.
    #[serde(default, deserialize_with = "health_checks")]
    pub health_checks: Vec<HealthCheck>,
    /// The Kubernetes service account that is impersonated, with its namespace.
    pub service_account: Option<ServiceAccount>,
    /// The name of the Kubernetes service account that is impersonated.
    pub service_account_name: Option<String>,
    /// The revision of its first source at which it stays.
    pub pin: Option<Pin>,
    /// How much a reconciliation deletes without a person's confirmation.
    pub guard: Option<GuardSpec>,
    /// Tools whose objects are taken over.
    #[serde(default)]
    pub adopt: Vec<Adopt>,
    /// What is done about changes that others make to the objects.
    pub drift: Option<Drift>,
    /// Where Events tell what was changed.
    pub events: Option<EventsIn>,
    /// Whether reconciliations are held back.
    #[serde(default)]
    pub suspend: bool,
    /// What children may use beyond its own cluster and service account.
    pub delegation: Option<Delegation>,
}

impl ApplierSpec {
    /// The service account to impersonate, as (namespace, name); `own` is the applier's namespace, which is meant where none is
    /// named.
    #[must_use]
    pub fn impersonated<'a>(&'a self, own: &'a str) -> Option<(&'a str, &'a str)> {
        if let Some(account) = &self.service_account {
            return Some((account.namespace.as_deref().unwrap_or(own), &account.name));
        }
        self.service_account_name.as_deref().map(|name| (own, name))
    }

    /// The timeout of one reconciliation.
    #[must_use]
    pub fn timeout(&self) -> GoDuration {
        self.timeout.unwrap_or(self.interval)
    }

    /// The interval after a failed reconciliation.
    #[must_use]
    pub fn retry_interval(&self) -> GoDuration {
        self.retry_interval.unwrap_or(self.interval)
    }
}

/// What the hub writes into the status of an applier of any kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplierStatus {
    /// The last reconciled generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last successfully applied revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// The revision of the last reconciliation attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// The last manual reconciliation request that was handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The objects that were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// The last outcomes, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Where what holds its variables was found by the last reconciliation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<LookedUp>,
    /// The master keys that the last reconciliation decrypted with, by kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decrypted_with: Vec<String>,
}

/// The status of an applier of any kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AnyApplierStatus {
    /// What all appliers have.
    #[serde(flatten)]
    pub applier: ApplierStatus,
    /// What its kind has besides.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}
