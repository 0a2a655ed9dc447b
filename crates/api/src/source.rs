//! Sources of `source.toolkit.fluxcd.io/v1`: what they have in common, and the kinds besides GitRepository (Bucket,
//! OCIRepository, HelmRepository, HelmChart).

use std::collections::BTreeMap;

use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kustomization::is_false;
use crate::object::{Condition, LocalObjectReference, Object, Time, Typed, duration_schema};

/// A stored Bucket.
pub type Bucket = Object<BucketSpec, BucketStatus>;
/// A stored OCIRepository.
pub type OciRepository = Object<OciRepositorySpec, OciRepositoryStatus>;
/// A stored HelmRepository.
pub type HelmRepository = Object<HelmRepositorySpec, HelmRepositoryStatus>;
/// A stored HelmChart.
pub type HelmChart = Object<HelmChartSpec, HelmChartStatus>;

/// What the hub reads and writes of a source, whatever its kind.
pub type AnySource = Object<SourceSpec, AnySourceStatus>;

impl Typed for AnySource {}
impl Typed for Bucket {}
impl Typed for HelmChart {}
impl Typed for HelmRepository {}
impl Typed for OciRepository {}

/// What the specs of all kinds of sources say in the same words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// Where it is fetched from. Empty of a kind that says it in other words.
    #[serde(default)]
    pub url: String,
    /// The interval at which it is looked at.
    pub interval: Option<GoDuration>,
    /// Timeout of fetching.
    pub timeout: Option<GoDuration>,
    /// The Secret that holds credentials.
    pub secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds certificates.
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds the proxy's address and credentials.
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Where credentials are changed for others.
    pub sts: Option<BucketSts>,
    /// Whether fetching is held back.
    #[serde(default)]
    pub suspend: bool,
}

/// The status of a source of any kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AnySourceStatus {
    /// What all sources have.
    #[serde(flatten)]
    pub source: SourceStatus,
    /// What its kind has besides.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// BucketSpec says which objects of which bucket are made into an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketSpec {
    /// How to authenticate: with what secretRef holds (generic), or as a cloud's own. Defaults to generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<BucketProvider>,
    /// Name of the bucket.
    pub bucket_name: String,
    /// Where the bucket is: a host with an optional port, or a URL's.
    pub endpoint: String,
    /// Credentials from the AWS Security Token Service or one like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts: Option<BucketSts>,
    /// Whether plain HTTP is allowed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// The region of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Only objects whose keys begin with this are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The Secret that holds credentials: accesskey and secretkey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// The service account whose cloud identity authenticates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The Secret that holds tls.crt, tls.key and ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds the proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// The interval at which the bucket is looked at.
    #[schemars(schema_with = "duration_schema")]
    pub interval: GoDuration,
    /// Timeout of fetching. Defaults to 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Patterns of files that are left out, in the form of a .gitignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Whether fetching is held back. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// Whose a bucket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BucketProvider {
    /// Any that speaks S3.
    Generic,
    /// Amazon.
    Aws,
    /// Google.
    Gcp,
    /// Azure.
    Azure,
}

/// BucketSts says where temporary credentials come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketSts {
    /// The kind of service.
    pub provider: StsProvider,
    /// Its URL.
    #[schemars(extend("pattern" = "^(http|https)://.*$"))]
    pub endpoint: String,
    /// The Secret that holds username and password for LDAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds tls.crt, tls.key and ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
}

/// A kind of token service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StsProvider {
    /// Amazon's.
    Aws,
    /// MinIO's, by LDAP.
    Ldap,
}

/// SourceStatus records the last fetch of a source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The last reconciled generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The last manual reconciliation request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// BucketStatus records the last fetch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketStatus {
    /// What all sources have.
    #[serde(flatten)]
    pub source: SourceStatus,
    /// Where the last artifact can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The ignore patterns of the last artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
}

/// OCIRepositorySpec says which artifact of which OCI repository is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OCIRepositorySpec")]
pub struct OciRepositorySpec {
    /// URL of the repository, as oci://registry.example.com/org/name.
    #[schemars(extend("pattern" = "^oci://.*$"))]
    pub url: String,
    /// Which artifact is taken. Defaults to the tag `latest`.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<OciReference>,
    /// Which layer is taken, and how. Defaults to the first, extracted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<OciLayerSelector>,
    /// How to authenticate: with what secretRef holds (generic), or as a cloud's own. Defaults to generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<BucketProvider>,
    /// The Secret that holds the registry's credentials, of type kubernetes.io/dockerconfigjson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// How the artifact's signature is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OciVerification>,
    /// The service account whose pull secrets or cloud identity authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The Secret that holds tls.crt, tls.key and ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds the proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// The interval at which the repository is looked at.
    #[schemars(schema_with = "duration_schema")]
    pub interval: GoDuration,
    /// Timeout of fetching. Defaults to 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Patterns of files that are left out, in the form of a .gitignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Whether plain HTTP is allowed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// Whether fetching is held back. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// OCIReference says which artifact is taken; of several, digest counts before semver, and semver before tag.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciReference {
    /// The artifact's digest, as sha256:<hex>.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The newest tag within a range of semantic versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// A regular expression that tags must match before semver is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver_filter: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// OCILayerSelector says which layer is taken, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciLayerSelector {
    /// The first layer of this media type is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Whether it is extracted, or copied as it is. Defaults to extract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OciLayerOperation>,
}

/// What is done with a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OciLayerOperation {
    /// It is extracted.
    Extract,
    /// It is copied.
    Copy,
}

/// OCIVerification says how signatures are verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciVerification {
    /// Whose signatures they are. Defaults to cosign.
    #[serde(default)]
    pub provider: OciVerificationProvider,
    /// The Secret that holds the trusted public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Identities of which one must have signed, where no key is given.
    #[serde(default, rename = "matchOIDCIdentity", skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OidcIdentity>,
    /// The Secret that holds the trusted root, where it is not that of the public instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalObjectReference>,
}

/// A program for signatures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OciVerificationProvider {
    /// Sigstore's cosign.
    #[default]
    Cosign,
    /// Notary's notation.
    Notation,
}

/// OIDCIdentity is who may have signed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OidcIdentity {
    /// A regular expression that the issuer must match.
    pub issuer: String,
    /// A regular expression that the subject must match.
    pub subject: String,
}

/// OCIRepositoryStatus records the last fetch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciRepositoryStatus {
    /// What all sources have.
    #[serde(flatten)]
    pub source: SourceStatus,
    /// Where the last artifact can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The ignore patterns of the last artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// The layer selector of the last artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_layer_selector: Option<OciLayerSelector>,
    /// The digest of the public keys by which it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_verification_keys: Option<String>,
}

/// HelmRepositorySpec says where charts come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmRepositorySpec {
    /// URL of the repository, over HTTP, HTTPS or OCI.
    #[schemars(extend("pattern" = "^(http|https|oci)://.*$"))]
    pub url: String,
    /// The Secret that holds credentials: username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds tls.crt, tls.key and ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Whether the credentials go to other hosts too that the index names.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pass_credentials: bool,
    /// The interval at which the repository is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub interval: Option<GoDuration>,
    /// Whether plain HTTP is allowed to an OCI registry.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// Timeout of fetching. Defaults to 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Whether fetching is held back. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// An index over HTTP (default) or an OCI registry.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<HelmRepositoryType>,
    /// How to authenticate to an OCI registry. Defaults to generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<BucketProvider>,
    /// Which other namespaces could refer to it; without effect, as in Flux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,
}

/// AccessFrom names namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessFrom {
    /// Namespaces by their labels.
    #[serde(default)]
    pub namespace_selectors: Vec<NamespaceSelector>,
}

/// NamespaceSelector selects namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// The labels that a namespace must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// HelmRepositoryStatus records the last fetch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmRepositoryStatus {
    /// What all sources have.
    #[serde(flatten)]
    pub source: SourceStatus,
    /// Where the last artifact can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What a Helm repository is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HelmRepositoryType {
    /// An index over HTTP.
    Default,
    /// An OCI registry.
    Oci,
}

/// HelmChartSpec says which chart is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartSpec {
    /// The chart's name, or its path in the source.
    pub chart: String,
    /// A version or a range of versions. Defaults to the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The source that holds the chart.
    pub source_ref: HelmChartSourceReference,
    /// The interval at which the source is looked at.
    #[schemars(schema_with = "duration_schema")]
    pub interval: GoDuration,
    /// What makes a new artifact: the chart's version (default) or the source's revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconcile_strategy: Option<ReconcileStrategy>,
    /// Files of values, merged in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Whether missing files of values are passed over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_missing_values_files: bool,
    /// Whether fetching is held back. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// How the chart's signature is verified; of Helm repositories only, and with cosign and notation of OCI registries only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartVerification>,
}

/// HelmChartVerification says how a chart's signature is verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartVerification {
    /// Whose signatures they are. Defaults to cosign.
    #[serde(default)]
    pub provider: HelmChartVerificationProvider,
    /// The Secret that holds the trusted public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Identities of which one must have signed, where no key is given.
    #[serde(default, rename = "matchOIDCIdentity", skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OidcIdentity>,
    /// The Secret that holds the trusted root, where it is not that of the public instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalObjectReference>,
}

impl HelmChartVerification {
    /// The same of an artifact in a registry; none of a chart's provenance.
    #[must_use]
    pub fn of_artifact(&self) -> Option<OciVerification> {
        let provider = match self.provider {
            HelmChartVerificationProvider::Cosign => OciVerificationProvider::Cosign,
            HelmChartVerificationProvider::Notation => OciVerificationProvider::Notation,
            HelmChartVerificationProvider::Provenance => return None,
        };
        Some(OciVerification {
            provider,
            secret_ref: self.secret_ref.clone(),
            match_oidc_identity: self.match_oidc_identity.clone(),
            trusted_root_secret_ref: self.trusted_root_secret_ref.clone(),
        })
    }
}

/// A program for signatures of charts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HelmChartVerificationProvider {
    /// Sigstore's cosign.
    #[default]
    Cosign,
    /// Notary's notation.
    Notation,
    /// Helm's own: the provenance that `helm package --sign` writes. An extension of Roadstead's.
    Provenance,
}

/// The source of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartSourceReference {
    /// API version of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: HelmChartSourceKind,
    /// Name of the source.
    pub name: String,
}

/// The kinds that hold charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HelmChartSourceKind {
    /// A Helm repository.
    HelmRepository,
    /// A Git repository.
    GitRepository,
    /// A bucket.
    Bucket,
}

/// What makes a new artifact of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReconcileStrategy {
    /// Another version of the chart.
    ChartVersion,
    /// Another revision of the source.
    Revision,
}

/// HelmChartStatus records the last fetch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartStatus {
    /// What all sources have.
    #[serde(flatten)]
    pub source: SourceStatus,
    /// Where the last artifact can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The revision of the source that was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_artifact_revision: Option<String>,
    /// The name of the chart that was last found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_chart_name: Option<String>,
    /// The files of values of the last artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_values_files: Vec<String>,
    /// The digest of the public keys by which it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_verification_keys: Option<String>,
}

/// Artifact is a source at one revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Digest of the archive, as `sha256:<hex>`.
    #[schemars(extend("pattern" = "^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: String,
    /// Path of the archive in the hub's storage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// URL of the archive, where it can be had.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The revision, as `main@sha1:<commit>`.
    pub revision: String,
    /// When the artifact was made.
    pub last_update_time: Time,
    /// Size of the archive in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// What else is known about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
