//! `Kustomization` in its storage form: all fields of `v1alpha1` and of `v1`, and ours.

use std::collections::BTreeMap;

use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cluster::Lookup;
use crate::object::{Condition, LocalObjectReference, Object, Time, Typed, duration_schema};
use crate::{KindId, ObjectMeta, annotated};

/// A stored Kustomization.
pub type Kustomization = Object<KustomizationSpec, KustomizationStatus>;

impl Typed for Kustomization {
    /// With what annotations say of the spec.
    fn from_object(object: &serde_json::Value) -> Result<Self, serde_json::Error> {
        annotated::read_merged(object)
    }
}

/// The annotation that asks for a reconciliation at once.
pub const REQUEST_ANNOTATION: &str = "reconcile.fluxcd.io/requestedAt";
/// The same as `v1` and as `v1alpha1` name it.
pub const REQUEST_ANNOTATIONS: [&str; 2] = [REQUEST_ANNOTATION, "fluxcd.io/reconcileAt"];

/// Entries of `spec.dependsOn`. With it the search for cycles is bounded, too.
pub const MAX_DEPENDENCIES: usize = 100;

/// The value of the annotations that ask for a reconciliation at once; none where nobody asked. A reconciliation is
/// asked for where it differs from `status.lastHandledReconcileAt`. Where both are set, both count: a change of either
/// changes the value.
#[must_use]
pub fn reconcile_requested(metadata: &ObjectMeta) -> Option<String> {
    let values: Vec<&str> = REQUEST_ANNOTATIONS
        .iter()
        .filter_map(|key| metadata.annotations.get(*key))
        .map(String::as_str)
        .filter(|value| !value.is_empty())
        .collect();
    if values.is_empty() { None } else { Some(values.join(" ")) }
}

/// KustomizationSpec defines the pipeline for fetching, decrypting, building, validating and applying Kubernetes
/// manifests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationSpec {
    /// The cluster that the manifests are applied to, by the name of its Cluster. Excludes kubeConfig. Without either,
    /// the default cluster is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<LocalObjectReference>,
    /// Labels and annotations that are set on all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Kustomizations that must be ready before this one is reconciled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// How encrypted manifests are decrypted before they are applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// The interval at which the kustomization is applied, such as 5m. At least 60s is advised.
    #[schemars(schema_with = "duration_schema")]
    pub interval: GoDuration,
    /// The interval after a failed reconciliation. Defaults to interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub retry_interval: Option<GoDuration>,
    /// The kubeconfig of the cluster that the manifests are applied to. Excludes clusterRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// The directory that holds the kustomization file, relative to the source's root. Defaults to the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Variable substitution after the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_build: Option<PostBuild>,
    /// Whether objects that left the build are deleted from the cluster.
    #[serde(default)]
    pub prune: bool,
    /// What happens to the objects when the Kustomization is deleted. Defaults to MirrorPrune: as prune says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Objects whose health the reconciliation waits for.
    #[serde(default, deserialize_with = "health_checks", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<HealthCheck>")]
    pub health_checks: Vec<HealthCheck>,
    /// CEL expressions that tell the health of custom resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub health_check_exprs: Vec<HealthCheckExpr>,
    /// Strategic merge and JSON patches, applied after the build of path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Image names, tags and digests to be replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The Kubernetes service account used for applying (v1alpha1). The stored form also of serviceAccountName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccount>,
    /// The name of the Kubernetes service account that is impersonated when applying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The source that holds the kustomization file.
    pub source_ref: SourceReference,
    /// The revision of the source at which this stays while the source moves on. Roadstead's own extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// How much a reconciliation deletes without a person's confirmation. Roadstead's own extension: of this, the guard of the
    /// cluster and that of the hub, the stricter bounds hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardSpec>,
    /// Tools whose objects on the cluster are taken over. An object of another tool fails. Roadstead's own extension.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub adopt: Vec<Adopt>,
    /// What is done about changes that others make to the objects on the cluster: Correct, or Report, which leaves them until another
    /// build is applied or a reconciliation is asked for. Defaults to Correct. Roadstead's own extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Where Events tell what a reconciliation changed: on the Hub, or in the Cluster, too. Defaults to what the Cluster says, or else to
    /// Hub. Roadstead's own extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventsIn>,
    /// Whether later reconciliations are held back. Does not touch one that is under way. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// The namespace that is set on all namespaced objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// A prefix for all objects' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// A suffix for all objects' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_suffix: Option<String>,
    /// Timeout for validation, apply and health checking. Defaults to interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Whether objects are recreated where an immutable field changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Whether the health of all applied objects is waited for; healthChecks are not needed then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// Kustomize components, relative to path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Whether components that the source lacks are passed over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_missing_components: bool,
    /// Annotations about the build that kustomize adds to objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub build_metadata: Vec<BuildMetadata>,
    /// Fields that drift detection passes over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub ignore: Vec<IgnoreRule>,
    /// What children (the Kustomizations of the build) may use beyond this one's own cluster and service account. Taken from
    /// direct writes only: Git cannot give it, and a child's own is within its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<Delegation>,
    /// How objects are validated before they are applied (v1alpha1). They always are, by the cluster's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<ValidationStrategy>,
}

/// Health checks with the API versions that they leave out. The stored object keeps them left out: `kubectl apply`
/// compares what it applied with what is there.
pub(crate) fn health_checks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<HealthCheck>, D::Error> {
    let mut checks = Vec::<HealthCheck>::deserialize(deserializer)?;
    for check in &mut checks {
        if check.api_version.as_deref().is_none_or(str::is_empty) {
            check.api_version = known_api_version(&check.kind).map(str::to_owned);
        }
    }
    Ok(checks)
}

/// The API version of a kind that everyone knows: the specification's samples leave it out.
pub(crate) fn known_api_version(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        "PodDisruptionBudget" => "policy/v1",
        "Ingress" => "networking.k8s.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "PersistentVolumeClaim" | "Pod" | "Service" | "Secret" | "ConfigMap" | "Namespace" => "v1",
        "HelmRelease" => "helm.toolkit.fluxcd.io/v2",
        _ => return None,
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

/// GuardSpec bounds what a reconciliation deletes. Beyond the bounds the deletions wait until a person confirms them: `roadstead
/// confirm`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardSpec {
    /// What waits: the Deletions, while all else is applied, or everything (Stop). Defaults to Deletions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<GuardMode>,
    /// The share of an inventory of 10 objects or more that may be deleted at once, in percent. Defaults to 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_deletion_percent: Option<u8>,
    /// How many objects may be deleted at once. Defaults to as many as the share allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_deletions: Option<u32>,
}

/// Adopt names a tool from which objects are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Adopt {
    /// Flux, by the labels of its Kustomizations.
    Flux,
}

/// Drift says what is done about changes that others make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Drift {
    /// They are corrected.
    Correct,
    /// They are reported.
    Report,
}

/// EventsIn says where Events tell what was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EventsIn {
    /// On the hub.
    Hub,
    /// In the cluster, too.
    Cluster,
}

/// GuardMode says what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GuardMode {
    /// The deletions.
    Deletions,
    /// Everything.
    Stop,
}

/// Pin holds an applier at a revision of its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pin {
    /// The revision, as `status.lastAppliedRevision` has it: `main@sha1:<commit>`, or `sha1:<commit>` alone. It is fetched where
    /// the hub does not have it any more.
    #[schemars(length(min = 1, max = 1000))]
    pub revision: String,
}

/// Delegation is what a Kustomization passes on to those of its build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delegation {
    /// Names of Clusters that children may deploy to, too; `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub clusters: Vec<String>,
    /// Service accounts that children may act as, too: `NAMESPACE/NAME` or `NAMESPACE/*` of the cluster, or `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub service_accounts: Vec<String>,
    /// Where children lie on the hub: by the namespace that Git names, the one of the hub. Others lie in this
    /// Kustomization's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, String>,
    /// Names of Secrets and ConfigMaps of the hub that children may use for decryption and substitution; `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub secrets: Vec<String>,
}

/// CommonMetadata holds labels and annotations for all objects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommonMetadata {
    /// Annotations to be added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to be added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// DependencyReference names an object that this one depends on: a Kustomization where no other kind is named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencyReference {
    /// API version of the object. Roadstead's own extension: defaults to that of the kind, or to this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object, of those that the hub serves. Roadstead's own extension: defaults to this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. Defaults to the namespace of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A CEL expression over `self` and `dep` that says when the dependency is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_expr: Option<String>,
}

/// Decryption defines how decryption is handled for Kubernetes manifests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decryption {
    /// Name of the decryption engine.
    pub provider: DecryptionProvider,
    /// The Secret that holds the private keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// The service account of the hub, in the namespace of this object, whose identities at key services unwrap keys for which the Secret has no
    /// credentials. Needs the hub's flag --object-level-workload-identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Where the Secret is looked up: on the Hub only, or in the Cluster only, so that neither key nor plaintext reaches the hub. Defaults
    /// to the hub and, where that lacks it, the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Lookup>,
    /// What happens to an encrypted file whose MAC shows that it was changed: Verify refuses it, Warn decrypts it. Defaults to what the
    /// hub's --sops-mac says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacCheck>,
}

/// What the MAC of an encrypted file is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MacCheck {
    /// A file whose MAC does not fit is refused.
    Verify,
    /// It is decrypted, and the log has a warning.
    Warn,
}

/// A decryption engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecryptionProvider {
    /// SOPS.
    Sops,
}

/// KubeConfig references a kubeconfig, such as Cluster API writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// The Secret that holds the kubeconfig under its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyReference>,
    /// The ConfigMap that says how to authenticate to the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalObjectReference>,
}

/// SecretKeyReference names a key of a Secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyReference {
    /// Name of the Secret.
    pub name: String,
    /// Key in the Secret. Defaults to `value`, then `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// PostBuild defines variable substitution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostBuild {
    /// Whether variables are substituted always, or only where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute_strategy: Option<SubstituteStrategy>,
    /// Variables and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub substitute: BTreeMap<String, String>,
    /// ConfigMaps and Secrets that hold variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub substitute_from: Vec<SubstituteReference>,
}

/// When variables are substituted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubstituteStrategy {
    /// Only where there are variables.
    WithVariables,
    /// Always.
    Always,
}

/// SubstituteReference names a ConfigMap or Secret that holds variables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubstituteReference {
    /// Kind of the object that holds the variables.
    pub kind: SubstituteKind,
    /// Name of the object.
    pub name: String,
    /// Whether the object may be absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
}

/// A kind that can hold variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubstituteKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

/// What a deletion does to the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// As prune says.
    MirrorPrune,
    /// They are deleted.
    Delete,
    /// They are deleted, and their going is waited for.
    WaitForTermination,
    /// They stay.
    Orphan,
}

/// HealthCheck names an object on the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// API version of the object. Kubernetes' own kinds need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. Defaults to the Kustomization's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// HealthCheckExpr tells the health of a kind by CEL expressions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheckExpr {
    /// API version of the kind.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// True while the object is being reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
    /// True where the object has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// True where the object is healthy.
    pub current: String,
}

/// Patch is an inline patch and the objects that it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patch {
    /// A strategic merge patch or a JSON patch, as YAML.
    pub patch: String,
    /// The objects that are patched. A strategic merge patch may do without: it names its object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// Selector selects objects of a build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name, as an anchored regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace, as an anchored regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Selector over annotations, in the form of a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<String>,
}

/// Image replaces an image's name, tag or digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The image's name in the manifests, without tag.
    pub name: String,
    /// The name to put in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// The tag to put in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_tag: Option<String>,
    /// The digest to put in the tag's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// ServiceAccount names a service account on the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccount {
    /// Name of the service account.
    pub name: String,
    /// Namespace of the service account. Defaults to the Kustomization's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// SourceReference names a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceReference {
    /// API version of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: SourceKind,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source. Defaults to the Kustomization's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SourceKind {
    /// A Git repository.
    GitRepository,
    /// An S3-compatible bucket.
    Bucket,
    /// An OCI artifact.
    OCIRepository,
    /// An artifact that someone else made.
    ExternalArtifact,
}

impl SourceKind {
    /// The kind that the hub serves, if it does.
    #[must_use]
    pub fn served(self) -> Option<KindId> {
        match self {
            Self::GitRepository => Some(KindId::GitRepository),
            Self::Bucket => Some(KindId::Bucket),
            Self::OCIRepository => Some(KindId::OciRepository),
            Self::ExternalArtifact => Some(KindId::ExternalArtifact),
        }
    }
}

/// Which annotations kustomize adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BuildMetadata {
    /// Where an object came from.
    OriginAnnotations,
    /// Which transformers touched it.
    TransformerAnnotations,
}

impl BuildMetadata {
    /// Kustomize's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OriginAnnotations => "originAnnotations",
            Self::TransformerAnnotations => "transformerAnnotations",
        }
    }
}

/// IgnoreRule names fields that drift detection passes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoreRule {
    /// JSON pointers.
    #[schemars(length(max = 100))]
    pub paths: Vec<String>,
    /// The objects that are meant. Defaults to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// How objects are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ValidationStrategy {
    /// By a local dry-run.
    Client,
    /// By the API server's dry-run.
    Server,
}

/// KustomizationStatus records the result of the last reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationStatus {
    /// The last reconciled generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the Kustomization.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last successfully applied revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// The revision that the source says it was made from, as last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_origin_revision: Option<String>,
    /// The revision of the last reconciliation attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// The last manual reconciliation request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The objects that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// The objects that were applied, in the form of v1alpha1: made of `inventory` when it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Where the objects of `postBuild.substituteFrom`, and the Secret of `decryption`, were found by the last reconciliation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<LookedUp>,
    /// The master keys that the last reconciliation decrypted with, as the encrypted files name them, by kind and name; up to 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decrypted_with: Vec<String>,
    /// The last reconciliations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
}

/// LookedUp says where an object was found that holds variables or keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LookedUp {
    /// Kind of the object.
    pub kind: SubstituteKind,
    /// Name of the object.
    pub name: String,
    /// Where it was found; neither where it is optional, and absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Lookup>,
}

/// Snapshot says of which kinds and where the applied objects are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The checksum of what was applied.
    pub checksum: String,
    /// A namespace each; objects without one come first.
    pub entries: Vec<SnapshotEntry>,
}

/// SnapshotEntry lists the kinds of objects in one namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotEntry {
    /// The namespace; empty for objects without one.
    pub namespace: String,
    /// The kinds: `apps/v1, Kind=Deployment` -> `Deployment`.
    pub kinds: BTreeMap<String, String>,
}

/// ResourceInventory lists objects on a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceInventory {
    /// The objects.
    pub entries: Vec<InventoryEntry>,
}

/// InventoryEntry names an object on a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryEntry {
    /// The object, as `<namespace>_<name>_<group>_<kind>`; a `:` in a name is written `__`.
    pub id: String,
    /// The API version of the object's kind.
    pub v: String,
}

/// HistoryEntry sums up reconciliations of one build with one outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Digest of the build.
    pub digest: String,
    /// When it was first reconciled.
    pub first_reconciled: Time,
    /// When it was last reconciled.
    pub last_reconciled: Time,
    /// How long the last reconciliation took.
    #[schemars(schema_with = "duration_schema")]
    pub last_reconciled_duration: GoDuration,
    /// Reason of Ready after the last reconciliation.
    pub last_reconciled_status: String,
    /// How many reconciliations there were.
    pub total_reconciliations: i64,
    /// What else is known, such as the revision.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
