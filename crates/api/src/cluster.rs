//! `Cluster` of `fleet.roadstead.dev/v1alpha1`: a registered target.

use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kustomization::{Adopt, EventsIn, GuardSpec};
use crate::object::{Condition, Object, Time, Typed, duration_schema};
use crate::rbac::LabelSelector;

/// A stored Cluster.
pub type Cluster = Object<ClusterSpec, ClusterStatus>;

impl Typed for Cluster {}

/// ClusterSpec says how the hub treats a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// What happens to the objects on the cluster when the Cluster is deleted. Defaults to Abandon: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<ClusterDeletionPolicy>,
    /// The kubeconfig by which the hub installs the cluster's agent. Set by the hub for clusters that came on board by a
    /// Secret of Cluster API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<ClusterKubeConfig>,
    /// Where and how the cluster's agent runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<ClusterAgent>,
    /// Which namespaces of the hub may deploy to the cluster, and as whom. Without it, the namespace of the Secret by which the
    /// cluster came on board has all rights, and others have none; a cluster that joined by a token has none until it is
    /// granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub access: Option<Vec<ClusterAccessGrant>>,
    /// The service account for Kustomizations that name none: `NAME` in their own namespace of the cluster, or `NAMESPACE/NAME`.
    /// Defaults to the hub's default, if it has one, or else to the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_service_account: Option<String>,
    /// How much a reconciliation deletes on the cluster without a person's confirmation. Of this, the Kustomization's own guard and
    /// that of the hub, the stricter bounds hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardSpec>,
    /// Tools whose objects on the cluster are taken over by whatever is deployed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub adopt: Vec<Adopt>,
    /// Managers of fields, as managedFields names them, whose fields are taken over with the objects of these tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(min = 1, max = 128)))]
    pub adopt_managers: Vec<String>,
    /// Where Events tell what was changed on the cluster, of Kustomizations that do not say so themselves: on the Hub, or in the Cluster,
    /// too. Defaults to Hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventsIn>,
    /// Namespaces of the hub whose Alerts may receive the events that Flux reports in the cluster, whoever wrote them; `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 63)))]
    pub event_readers: Vec<String>,
    /// What the cluster's agent does while the hub is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<ClusterOffline>,
    /// Where the ConfigMaps and Secrets of `postBuild.substituteFrom` are looked up. By default on the hub and then, if it lacks
    /// them, in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<Lookup>,
    /// Where it comes from, of a cluster that a management cluster of Cluster API shows. Set by the hub, which goes by it
    /// when it follows and retires the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_api: Option<ClusterApiOrigin>,
}

/// ClusterOffline says what the cluster's agent does while it cannot hear the hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOffline {
    /// What is done about drift: Correct, Report (it is noticed, and reported and corrected once the hub is back) or Stop. Defaults to
    /// Correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<DriftPolicy>,
    /// How long the hub has to be away before Report or Stop counts. Until then drift is corrected. Defaults to 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub after: Option<GoDuration>,
    /// Whether values and keys that the hub gave with a build are kept in a Secret of the agent's namespace, so that the agent can correct
    /// objects that need them after a restart without the hub. By default they are in its memory only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_secrets: bool,
}

/// DriftPolicy says what is done about drift while the hub is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftPolicy {
    /// It is corrected.
    Correct,
    /// It is noticed, and reported and corrected once the hub is back.
    Report,
    /// Nothing.
    Stop,
}

/// Where objects are looked up that Kustomizations name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Lookup {
    /// On the hub only.
    Hub,
    /// In the cluster only.
    Cluster,
}

/// ClusterAccessGrant lets namespaces of the hub deploy to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAccessGrant {
    /// The namespace of the hub; `*` is all of them. Either this or namespaceSelector is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Selects namespaces of the hub by their labels; without a requirement all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// The service accounts of the cluster that it may act as: `NAMESPACE/NAME`, `NAMESPACE/*` or `*`. Defaults to those of the
    /// cluster's namespace of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub service_accounts: Vec<String>,
    /// Whether it may deploy without a service account, with the rights of the agent, and so as any account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent_rights: bool,
}

/// ClusterApiOrigin names a Cluster of Cluster API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApiOrigin {
    /// The ManagementCluster that shows it.
    pub management_cluster_ref: ManagementClusterReference,
    /// Its namespace in the management cluster.
    pub namespace: String,
    /// Its UID: another one of the same name is another cluster.
    pub uid: String,
    /// Whether it is paused. One that goes while it is paused was moved to another management cluster, and is not retired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The keys of the labels that were carried over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// ManagementClusterReference names a ManagementCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManagementClusterReference {
    /// Namespace of the ManagementCluster.
    pub namespace: String,
    /// Name of the ManagementCluster.
    pub name: String,
}

/// ClusterKubeConfig references the kubeconfig of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterKubeConfig {
    /// The Secret that holds the kubeconfig.
    pub secret_ref: SecretReference,
    /// The Secret's key. Defaults to `value`, then `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the Secret keeps the kubeconfig once the agent is connected. By default the hub takes it out: it is not
    /// needed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

impl ClusterKubeConfig {
    /// The keys of a Secret under which its kubeconfig is where none is named.
    pub const USUAL_KEYS: [&str; 2] = ["value", "value.yaml"];

    /// Whether it is the kubeconfig that somebody means who names the Secret, and perhaps a key of it.
    #[must_use]
    pub fn is_of_key(&self, named: Option<&str>) -> bool {
        let is_usual = |key: &str| Self::USUAL_KEYS.contains(&key);
        match (self.key.as_deref(), named) {
            (Some(own), Some(named)) => own == named,
            (Some(own), None) => is_usual(own),
            (None, named) => named.is_none_or(is_usual),
        }
    }
}

/// SecretReference names a Secret of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// Namespace of the Secret on the hub.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

/// ClusterAgent says where and how a cluster's agent runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAgent {
    /// The agent's namespace in the cluster. Defaults to `roadstead-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the agent runs outside of the cluster, with a kubeconfig of its own: the hub then installs all but its
    /// Deployment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosted: bool,
    /// The agent's image. Defaults to the hub's `--agent-image`. An agent that runs another one puts this in its place,
    /// when its turn comes in the roll-out over the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether the agent takes part in roll-outs. Defaults to Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<AgentUpgrade>,
    /// What becomes of the agent when the Cluster is deleted. Defaults to Leave: it stays installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<AgentRemoval>,
}

/// Whether an agent takes part in roll-outs of another image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentUpgrade {
    /// It does.
    Auto,
    /// It is upgraded when the Cluster is annotated with `reconcile.fluxcd.io/requestedAt`.
    Manual,
}

/// What becomes of an agent whose Cluster is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentRemoval {
    /// It stays installed, and is not let in any more.
    Leave,
    /// It removes itself: its namespace with all that is in it, its ClusterRole and bindings.
    Remove,
}

/// What a Cluster's deletion does to the objects there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterDeletionPolicy {
    /// They stay.
    Abandon,
    /// What Kustomizations own there is deleted first, unless they are suspended or do not prune.
    Prune,
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
    /// Image of the agent, where it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_image: Option<String>,
    /// Version of the cluster's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// The kubeconfig that was used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<ClusterKubeConfigStatus>,
    /// How the cluster's agent goes on when it is started again while the hub is away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<ClusterOfflineStatus>,
}

/// ClusterOfflineStatus counts how what was deployed to a cluster goes on when its agent is started again while the hub is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOfflineStatus {
    /// How many Kustomizations are corrected.
    pub corrected: u64,
    /// How many are only watched, so that what differs is reported once the hub is back: they need values or keys of the hub's that
    /// `spec.offline.keepSecrets` does not keep in the cluster, or are too large to be kept there.
    pub only_watched: u64,
}

/// ClusterKubeConfigStatus is what the hub keeps of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterKubeConfigStatus {
    /// Digest of the kubeconfig that led to the cluster last.
    pub digest: String,
    /// The address of the cluster's API server in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// When the agent was installed with it. Not set by a rotation, after which nothing is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_at: Option<Time>,
}
