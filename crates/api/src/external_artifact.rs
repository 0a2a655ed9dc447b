//! `ExternalArtifact` of `source.toolkit.fluxcd.io/v1`: an artifact that the hub does not fetch. Somebody uploads it, or an
//! ArtifactGenerator makes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::{Condition, Object, Typed};
use crate::source::Artifact;

/// A stored ExternalArtifact.
pub type ExternalArtifact = Object<ExternalArtifactSpec, ExternalArtifactStatus>;

impl Typed for ExternalArtifact {}

/// ExternalArtifactSpec says what the artifact is made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactSpec {
    /// The object that the artifact is made of, for people: the hub does not look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<OriginReference>,
}

/// OriginReference names an object of any kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OriginReference {
    /// API version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. Defaults to that of the ExternalArtifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// ExternalArtifactStatus records the last artifact.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactStatus {
    /// The last artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// The conditions of the ExternalArtifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
