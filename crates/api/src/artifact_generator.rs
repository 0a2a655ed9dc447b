//! `ArtifactGenerator` of `source.extensions.fluxcd.io/v1beta1`: artifacts that are composed of what others hold.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::{Condition, Object, Typed};

/// A stored ArtifactGenerator.
pub type ArtifactGenerator = Object<ArtifactGeneratorSpec, ArtifactGeneratorStatus>;

impl Typed for ArtifactGenerator {}

/// The most sources, and the most artifacts, of one ArtifactGenerator.
pub const MAX_GENERATED: usize = 1_000;

/// ArtifactGeneratorSpec says which artifacts are made, of what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorSpec {
    /// Labels and annotations for all ExternalArtifacts that are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<GeneratedMetadata>,
    /// The sources whose files are copied.
    #[schemars(length(min = 1, max = 1000))]
    pub sources: Vec<GeneratorSource>,
    /// Folders of a source, as `@alias/apps/{name}`: each artifact is made once for each folder that matches, with what stands in the
    /// place of `{name}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path_pattern: Option<String>,
    /// The artifacts that are made.
    #[schemars(length(min = 1, max = 1000))]
    pub artifacts: Vec<OutputArtifact>,
}

/// GeneratedMetadata is metadata for what is made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// GeneratorSource names a source whose files are copied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GeneratorSource {
    /// What the source is called in this ArtifactGenerator.
    #[schemars(extend("pattern" = "^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"), length(max = 63))]
    pub alias: String,
    /// Kind of the source.
    pub kind: GeneratorSourceKind,
    /// Name of the source.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Namespace of the source. Defaults to that of the ArtifactGenerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A kind of source whose files can be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GeneratorSourceKind {
    /// An S3-compatible bucket.
    Bucket,
    /// A Git repository.
    GitRepository,
    /// An OCI artifact.
    #[serde(rename = "OCIRepository")]
    OciRepository,
    /// A Helm chart.
    HelmChart,
    /// An artifact that someone else made.
    ExternalArtifact,
}

/// OutputArtifact is an artifact that is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputArtifact {
    /// The name of the ExternalArtifact; with pathPattern, it may hold `{name}`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The source, as `@alias`, whose revision the artifact has. By default it is `latest@` and the artifact's own digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"), length(max = 64))]
    pub revision: Option<String>,
    /// The source, as `@alias`, whose origin the artifact names as its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"), length(max = 64))]
    pub origin_revision: Option<String>,
    /// What is copied, one after the other: what comes later replaces what is there.
    #[schemars(length(min = 1, max = 1000))]
    pub copy: Vec<CopyOperation>,
}

/// CopyOperation copies files of a source into an artifact, as `cp -r` does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyOperation {
    /// What is copied: `@alias/` and a path or a pattern.
    #[schemars(extend("pattern" = "^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"), length(max = 1024))]
    pub from: String,
    /// Where it is copied to: `@artifact/` and a path.
    #[schemars(extend("pattern" = "^@(artifact)/(.*)$"), length(max = 1024))]
    pub to: String,
    /// Patterns of files that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub exclude: Vec<String>,
    /// What is done with a file that is there already. Defaults to Overwrite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<CopyStrategy>,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CopyStrategy {
    /// It replaces what is there.
    #[default]
    Overwrite,
    /// As YAML, it is merged into what is there.
    Merge,
    /// As a tar.gz, it is unpacked.
    Extract,
}

/// ArtifactGeneratorStatus records what was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorStatus {
    /// The last manual reconciliation request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The conditions of the ArtifactGenerator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The ExternalArtifacts that were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<GeneratedArtifact>,
    /// The digest of what the sources held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_sources_digest: Option<String>,
}

/// GeneratedArtifact is an ExternalArtifact that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedArtifact {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The digest of the archive.
    pub digest: String,
    /// The name of the archive.
    pub filename: String,
}
