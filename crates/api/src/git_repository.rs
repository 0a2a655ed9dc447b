//! `GitRepository` of `source.toolkit.fluxcd.io/v1`.

use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kustomization::is_false;
use crate::object::{LocalObjectReference, Object, Typed, duration_schema};
use crate::source::{Artifact, SourceStatus};

/// A stored GitRepository.
pub type GitRepository = Object<GitRepositorySpec, GitRepositoryStatus>;

impl Typed for GitRepository {}

/// GitRepositorySpec says which revision of which Git repository is made into an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositorySpec {
    /// URL of the repository, over HTTP, HTTPS or SSH.
    #[schemars(extend("pattern" = "^(http|https|ssh|file)://.*$"))]
    pub url: String,
    /// The Secret that holds credentials: username and password, or bearerToken, ca.crt; identity and known_hosts for
    /// SSH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// How to authenticate: with what secretRef holds (generic), or by a cloud's workload identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<GitProvider>,
    /// The service account whose cloud identity authenticates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The interval at which the repository is looked at.
    #[schemars(schema_with = "duration_schema")]
    pub interval: GoDuration,
    /// Timeout of Git operations. Defaults to 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Which commit is taken. Defaults to the branch `master`.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// How the commit's signature is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitVerification>,
    /// The Secret that holds the proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Patterns of files that are left out, in the form of a .gitignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Whether fetching is held back. Defaults to false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Whether submodules are cloned too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recurse_submodules: bool,
    /// Artifacts of other repositories that are put into this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitInclude>,
    /// Directories to be checked out. Defaults to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
}

/// How to authenticate to a Git server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GitProvider {
    /// With the credentials of secretRef.
    Generic,
    /// AWS CodeCommit.
    Aws,
    /// Azure DevOps.
    Azure,
    /// A GitHub app.
    Github,
}

/// GitReference says which commit is taken; of several, the first of commit, name, tag, semver and branch counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GitReference {
    /// The head of a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The newest tag within a range of semantic versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// A reference by its full name, as `refs/heads/main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A commit by its id; with branch, it is looked for there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// GitVerification says how signatures are verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitVerification {
    /// What is verified: the commit at HEAD, the tag, or both. Defaults to HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<GitVerificationMode>,
    /// The Secret that holds the public keys of trusted authors.
    pub secret_ref: LocalObjectReference,
}

/// What is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GitVerificationMode {
    /// The commit.
    HEAD,
    /// The commit (older spelling).
    #[serde(rename = "head")]
    Head,
    /// The tag.
    Tag,
    /// Both.
    TagAndHEAD,
}

/// GitInclude puts another repository's artifact into this one's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitInclude {
    /// The other GitRepository.
    pub repository: IncludedRepository,
    /// Which of its paths. Defaults to its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<String>,
    /// Where it is put. Defaults to the other's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_path: Option<String>,
}

/// IncludedRepository names a GitRepository that is included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncludedRepository {
    /// Name of the referent.
    pub name: String,
    /// Namespace of the referent. Defaults to that of the GitRepository that includes it. Flux has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// GitRepositoryStatus records the last fetch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// What all sources have.
    #[serde(flatten)]
    pub source: SourceStatus,
    /// The artifacts that were put into the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// The ignore patterns of the last artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Whether the last artifact has submodules.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed_recurse_submodules: bool,
    /// What the last artifact includes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitInclude>,
    /// The directories of the last artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// What of the last artifact was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<GitVerificationMode>,
    /// The digest of the public keys by which it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_verification_keys: Option<String>,
}
