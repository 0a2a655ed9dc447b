//! What can go wrong with an OCI repository.

use roadstead_cloud::{Cloud, ServiceError};
use roadstead_model::Reason;

use super::request::OciLimits;
use crate::artifact::ArtifactError;
use crate::attempt::AttemptError;
use crate::tree::{Measure, TreeError};

/// Why there is no new artifact. Every text names the URL, and none holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// There is no answer, or not in time.
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    /// The URL is not one that we take.
    #[error("the URL `{url}` is refused: {why}")]
    UrlRefused {
        /// The URL, without credentials.
        url: String,
        /// Why.
        why: String,
    },
    /// Credentials would be sent in the clear.
    #[error(
        "`{url}` is not fetched: without TLS anyone on the way could read the credentials of `spec.secretRef`; leave out \
         `spec.insecure`, or start the hub with --allow-plain-http-credentials"
    )]
    PlainCredentials {
        /// The repository.
        url: String,
    },
    /// The reference is not one that we ask for.
    #[error("failed to determine the artifact tag for '{url}': {why}")]
    ReferenceRefused {
        /// The repository.
        url: String,
        /// Why.
        why: String,
    },
    /// No tag is in the range of versions.
    #[error("failed to determine the artifact tag for '{url}': no match found for semver: {range}")]
    NoTag {
        /// The repository.
        url: String,
        /// The range.
        range: String,
    },
    /// `certSecretRef` holds nothing that can be used.
    #[error("the Secret in `spec.certSecretRef` cannot be used for `{url}`: {detail}")]
    CertificatesUnusable {
        /// The repository.
        url: String,
        /// Why.
        detail: String,
    },
    /// The registry wants other credentials, or some.
    #[error(
        "`{url}` answered {status}: {}",
        if *had_credentials { "the credentials of `spec.secretRef` were not accepted, or may not pull from it" }
        else {
            "it requires credentials; name a Secret of type kubernetes.io/dockerconfigjson with an entry for that registry in \
             `spec.secretRef`"
        }
    )]
    Auth {
        /// The repository.
        url: String,
        /// HTTP's status: 401 or 403.
        status: u16,
        /// Whether there were any.
        had_credentials: bool,
    },
    /// Nothing is given out to the identity of a cloud.
    #[error("failed to get credentials for `{url}`: {source}")]
    Cloud {
        /// The repository.
        url: String,
        /// Why.
        source: ServiceError,
    },
    /// The registry wants another identity of its cloud.
    #[error("`{url}` answered {status}: the identity of {cloud} that asks may not pull from it")]
    CloudDenied {
        /// The repository.
        url: String,
        /// HTTP's status: 401 or 403.
        status: u16,
        /// Which cloud's.
        cloud: Cloud,
    },
    /// The registry's token service cannot be used.
    #[error("the token service of `{url}`: {why}")]
    TokenService {
        /// The repository.
        url: String,
        /// Why not.
        why: String,
        /// Whether the same may go well the next time.
        transient: bool,
    },
    /// There is no such repository, tag or manifest, or not for these credentials.
    #[error("`{url}` has no {what}, or these credentials may not read it (HTTP {status})")]
    NotFound {
        /// The repository.
        url: String,
        /// What was asked for.
        what: String,
        /// HTTP's status: 404 or 410.
        status: u16,
    },
    /// The server is there, and fails.
    #[error("`{url}` answered HTTP {status} ({phase})")]
    Status {
        /// The repository.
        url: String,
        /// What was tried.
        phase: &'static str,
        /// HTTP's status.
        status: u16,
    },
    /// What all fetches may have of the disk is in use.
    #[error(
        "`{url}` is too large to be fetched beside the other sources: all the disk space for fetches is in use; it is tried again"
    )]
    NoDisk {
        /// The repository.
        url: String,
    },
    /// What the server sent is damaged, or is not what it promised.
    #[error("`{url}` sent something invalid: {detail}")]
    Corrupt {
        /// The repository.
        url: String,
        /// What is wrong.
        detail: String,
    },
    /// The artifact has not what was asked for.
    #[error("`{url}`: {detail}")]
    Layer {
        /// The repository.
        url: String,
        /// What is not there.
        detail: String,
    },
    /// Larger than allowed.
    #[error("`{url}` is too large: more than {limit} {measure}{}", path.as_ref().map_or_else(String::new, |path| format!(" (at `{path}`)")))]
    TooLarge {
        /// The repository.
        url: String,
        /// What was measured.
        measure: Measure,
        /// The most that is allowed.
        limit: u64,
        /// Which file, if one is to blame.
        path: Option<String>,
    },
    /// The layer's files are not a tree that we take.
    #[error("`{url}` at {revision}: {source}")]
    Tree {
        /// The repository.
        url: String,
        /// Of which manifest.
        revision: String,
        /// Why.
        source: TreeError,
    },
    /// The artifact could not be written.
    #[error("packing the files of `{url}`: {source}")]
    Pack {
        /// The repository.
        url: String,
        /// Why.
        source: ArtifactError,
    },
    /// What read its bytes was ended.
    #[error("what `{url}` sent could not be read: {why}")]
    Ended {
        /// The repository.
        url: String,
        /// What ended it.
        why: String,
        /// Whether the same may go well the next time.
        transient: bool,
    },
    /// It is not signed by whom it should be.
    #[error("failed to verify the signature using provider '{provider}': {detail}")]
    Unverified {
        /// What verifies.
        provider: &'static str,
        /// Why; it names the repository.
        detail: String,
    },
    /// Something that only a newer Roadstead can do.
    #[error("`{url}`: {what} is not supported")]
    Unsupported {
        /// The repository.
        url: String,
        /// What.
        what: String,
    },
    /// Our own machine: no space, no TLS provider, a bug.
    #[error("fetching `{url}` failed inside Roadstead: {detail}")]
    Internal {
        /// The repository.
        url: String,
        /// Why.
        detail: String,
    },
}

impl OciError {
    pub(super) fn tree(url: String, revision: &str, source: TreeError) -> Self {
        match source {
            TreeError::TooLarge { measure, limit, path } => {
                let path = path.map(|path| crate::tree::shown(&path));
                Self::TooLarge { url, measure, limit, path }
            }
            source => Self::Tree { url, revision: revision.to_owned(), source },
        }
    }

    /// The `reason` of the condition that this becomes.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Attempt(error) => error.reason().unwrap_or(Reason::OCIArtifactPullFailed),
            Self::UrlRefused { .. } => Reason::URLInvalid,
            Self::ReferenceRefused { .. } | Self::NoTag { .. } => Reason::ReadOperationFailed,
            Self::Cloud { source, .. } => crate::cloud::reason(source),
            Self::Auth { .. }
            | Self::CloudDenied { .. }
            | Self::TokenService { .. }
            | Self::CertificatesUnusable { .. }
            | Self::PlainCredentials { .. } => Reason::AuthenticationFailed,
            Self::Layer { .. } | Self::Tree { .. } => Reason::OCIArtifactLayerOperationFailed,
            Self::TooLarge { measure, .. } => match measure {
                // What a server sends without end is the server's doing; the rest is about what would be stored.
                Measure::TransferBytes | Measure::ManifestBytes | Measure::ListBytes | Measure::Tags => {
                    Reason::OCIArtifactPullFailed
                }
                _ => Reason::StorageOperationFailed,
            },
            Self::Pack { .. } => Reason::StorageOperationFailed,
            Self::Unverified { .. } => Reason::VerificationError,
            Self::NotFound { .. }
            | Self::Status { .. }
            | Self::NoDisk { .. }
            | Self::Corrupt { .. }
            | Self::Ended { .. }
            | Self::Unsupported { .. }
            | Self::Internal { .. } => Reason::OCIArtifactPullFailed,
        }
    }

    /// Whether a process with more memory would take it: the bound is one that [`OciLimits`] has higher.
    #[must_use]
    pub fn is_for_want_of_memory(&self) -> bool {
        let most = OciLimits::default();
        let Self::TooLarge { measure, limit, .. } = self else { return false };
        *limit
            < match measure {
                Measure::TotalBytes => most.tree.total_bytes,
                Measure::ArtifactBytes => most.artifact_bytes,
                _ => return false,
            }
    }

    /// Whether it may go away without anyone changing the repository or the object: try again soon, rather than at the
    /// next interval.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Attempt(error) => error.is_transient(),
            Self::NoDisk { .. } | Self::Internal { .. } | Self::Corrupt { .. } => true,
            Self::Cloud { source, .. } => source.may_pass(),
            Self::Ended { transient, .. } | Self::TokenService { transient, .. } => *transient,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
