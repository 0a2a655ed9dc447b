//! What can go wrong with a Git source.

use jiff::Timestamp;
use roadstead_cloud::{Cloud, ServiceError};
use roadstead_github_app::AppError;
use roadstead_model::Reason;

use super::request::{GitLimits, GitRequest};
use crate::artifact::ArtifactError;
use crate::attempt::{AttemptError, one_line, without_secrets};
use crate::tree::{Measure, TreeError};

/// Why there is no new artifact. Every text names the URL, and none holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
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
        "`{url}` is not fetched: without TLS anyone on the way could read the credentials of `spec.secretRef`; use \
         `https://`, or start the hub with --allow-plain-http-credentials"
    )]
    PlainCredentials {
        /// The repository.
        url: String,
    },
    /// The reference is not one that we ask for.
    #[error("{reference} of `{url}` is refused: {why}")]
    ReferenceRefused {
        /// The repository.
        url: String,
        /// The reference.
        reference: String,
        /// Why.
        why: String,
    },
    /// `caFile`/`ca.crt` holds no certificates.
    #[error("the CA given for `{url}` is unusable: {detail}; want certificates in PEM")]
    CaUnusable {
        /// The repository.
        url: String,
        /// Why.
        detail: String,
    },
    /// What the Secret has to log in with cannot be used.
    #[error("cannot log in at `{url}`: {why}")]
    LoginUnusable {
        /// The repository.
        url: String,
        /// Why, without any of it.
        why: String,
    },
    /// There is no token of the GitHub App.
    #[error("cannot log in at `{url}`")]
    App {
        /// The repository.
        url: String,
        /// Why.
        source: Box<AppError>,
    },
    /// The host is not the one that `known_hosts` has.
    #[error(
        "the host of `{url}` is not trusted: {why}. If you know that the server is the right one, put what `{scan}` prints into \
         `known_hosts` of the Secret in `spec.secretRef` (`flux create secret git` does so)"
    )]
    HostUntrusted {
        /// The repository.
        url: String,
        /// What it showed, or what is not known.
        why: String,
        /// The command that asks it for its keys.
        scan: String,
    },
    /// The server does not let this key in.
    #[error(
        "`{url}` does not let user `{user}` in with the {key} of the Secret in `spec.secretRef`: {}",
        if *partial { "the server wants more than a key" } else { "add its public key to the repository, as a deploy key say" }
    )]
    KeyNotAccepted {
        /// The repository.
        url: String,
        /// The user.
        user: String,
        /// The key's kind and fingerprint.
        key: String,
        /// Whether the key was right and not enough.
        partial: bool,
    },
    /// There is no such repository on an SSH server, or not for this key.
    #[error("no Git repository is served at `{url}`, or this key may not read it: {detail}")]
    NotServed {
        /// The repository.
        url: String,
        /// What the server said.
        detail: String,
    },
    /// The server wants other credentials, or some.
    #[error(
        "{}: `{url}` answered {status}: {}",
        if *status == 401 { "authentication required" } else { "authorization failed" },
        if *had_credentials { "the credentials of `spec.secretRef` were not accepted" }
        else { "it requires credentials; name a Secret with `username` and `password` in `spec.secretRef`" }
    )]
    Auth {
        /// The repository.
        url: String,
        /// HTTP's status: 401 or 403.
        status: u16,
        /// Whether any were sent.
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
    /// The server wants another identity of its cloud.
    #[error("`{url}` answered {status}: the identity of {cloud} that asks may not read it")]
    CloudDenied {
        /// The repository.
        url: String,
        /// HTTP's status: 401 or 403.
        status: u16,
        /// Which cloud's.
        cloud: Cloud,
    },
    /// There is no such repository, or not for these credentials.
    #[error(
        "repository not found: there is no Git repository at `{url}`, or these credentials may not read it (HTTP {status})"
    )]
    RepositoryNotFound {
        /// The repository.
        url: String,
        /// HTTP's status: 404 or 410.
        status: u16,
    },
    /// The repository has no such branch, tag or commit.
    #[error("`{url}` has no {reference}{}", if *detail == String::new() { String::new() } else { format!(": {detail}") })]
    ReferenceNotFound {
        /// The repository.
        url: String,
        /// The reference.
        reference: String,
        /// What the server said, if it did.
        detail: String,
    },
    /// A branch of a repository without any.
    #[error("git repository is empty: `{url}` has no branch yet")]
    Empty {
        /// The repository.
        url: String,
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
    /// What the server sent is damaged, is not Git, or is not what it promised.
    #[error("`{url}` sent something invalid ({phase}): {detail}")]
    Corrupt {
        /// The repository.
        url: String,
        /// What was tried.
        phase: &'static str,
        /// What is wrong.
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
    /// The folders that are asked for are not there, or none that could be.
    #[error("`{url}`: failed to sparse checkout directories: {why}")]
    Sparse {
        /// The repository.
        url: String,
        /// Why.
        why: String,
    },
    /// Artifacts are not to be put where the spec says.
    #[error("`{url}`: {why}")]
    IncludeRefused {
        /// The repository.
        url: String,
        /// Why.
        why: String,
    },
    /// An artifact cannot be put into this one.
    #[error("`{url}`: failed to copy the artifact of include '{repository}': {why}")]
    NotIncluded {
        /// The repository.
        url: String,
        /// The one that is included.
        repository: String,
        /// Why.
        why: String,
    },
    /// A submodule is not fetched, whatever is there.
    #[error("submodule `{path}` of `{url}` is refused: {why}")]
    SubmoduleRefused {
        /// The repository.
        url: String,
        /// The submodule's folder; that of the one which names it where its own cannot be known.
        path: String,
        /// Why.
        why: String,
    },
    /// A submodule could not be fetched.
    #[error(
        "submodule `{path}` of `{url}`: {source}{}",
        if *elsewhere && source.is_about_login() { "; the credentials of `spec.secretRef` go to the server of `spec.url` only" }
        else { "" }
    )]
    Submodule {
        /// The repository.
        url: String,
        /// The submodule's folder.
        path: String,
        /// Whether it is at another server than the repository.
        elsewhere: bool,
        /// Why.
        source: Box<GitError>,
    },
    /// What was fetched is not signed by whom it should be.
    #[error("`{url}` is not verified: {detail}")]
    Unverified {
        /// The repository.
        url: String,
        /// What was wrong, as Flux names it.
        reason: Reason,
        /// What was wrong with which object.
        detail: String,
    },
    /// The commit's files are not a tree that we take.
    #[error("`{url}` at {commit}: {source}")]
    Tree {
        /// The repository.
        url: String,
        /// The commit.
        commit: String,
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
    /// Something that only a newer Roadstead can do.
    #[error("`{url}`: {what} is not supported")]
    Unsupported {
        /// The repository.
        url: String,
        /// What.
        what: &'static str,
    },
    /// A local repository cannot be opened or read.
    #[error("cannot read the local repository `{url}`: {detail}")]
    Local {
        /// The repository.
        url: String,
        /// Why.
        detail: String,
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

impl GitError {
    pub(super) fn tree(request: &GitRequest, commit: Option<&str>, source: TreeError) -> Self {
        let url = request.shown_url();
        let commit = commit.unwrap_or("spec.ignore").to_owned();
        match source {
            TreeError::TooLarge { measure, limit, path } => {
                let path = path.map(|path| crate::tree::shown(&path));
                Self::TooLarge { url, measure, limit, path }
            }
            source => Self::Tree { url, commit, source },
        }
    }

    /// Whether a server answered this, and so may answer something else to another question. A server that is overloaded is
    /// not asked more.
    pub(super) fn is_an_answer(&self) -> bool {
        match self {
            Self::Auth { .. } | Self::RepositoryNotFound { .. } => true,
            Self::Attempt(AttemptError::RedirectRefused { .. }) => true,
            Self::Status { status, .. } => (400..500).contains(status) && *status != 429,
            _ => false,
        }
    }

    /// Whether other credentials might do.
    fn is_about_login(&self) -> bool {
        matches!(
            self,
            Self::Auth { .. }
                | Self::RepositoryNotFound { .. }
                | Self::NotServed { .. }
                | Self::LoginUnusable { .. }
        )
    }

    /// The `reason` of the condition that this becomes.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Attempt(error) => error.reason().unwrap_or(Reason::GitOperationFailed),
            Self::UrlRefused { .. } => Reason::URLInvalid,
            // What a server sends without end is the server's doing; the rest is about what would be stored.
            Self::TooLarge { measure: Measure::TransferBytes | Measure::AdvertisementBytes, .. } => {
                Reason::GitOperationFailed
            }
            Self::Cloud { source, .. } => crate::cloud::reason(source),
            Self::Auth { .. }
            | Self::CloudDenied { .. }
            | Self::KeyNotAccepted { .. }
            | Self::LoginUnusable { .. }
            | Self::App { .. }
            | Self::CaUnusable { .. }
            | Self::PlainCredentials { .. } => Reason::AuthenticationFailed,
            Self::Unverified { reason, .. } => *reason,
            Self::Empty { .. } => Reason::EmptyGitRepository,
            Self::IncludeRefused { .. } => Reason::IllegalPath,
            Self::NotIncluded { .. } => Reason::CopyFailure,
            Self::Submodule { source, .. } => source.reason(),
            Self::TooLarge { .. } | Self::Tree { .. } | Self::Pack { .. } => Reason::StorageOperationFailed,
            Self::ReferenceRefused { .. }
            | Self::RepositoryNotFound { .. }
            | Self::ReferenceNotFound { .. }
            | Self::Sparse { .. }
            | Self::SubmoduleRefused { .. }
            | Self::HostUntrusted { .. }
            | Self::NotServed { .. }
            | Self::Status { .. }
            | Self::NoDisk { .. }
            | Self::Corrupt { .. }
            | Self::Ended { .. }
            | Self::Unsupported { .. }
            | Self::Local { .. }
            | Self::Internal { .. } => Reason::GitOperationFailed,
        }
    }

    /// Whether a process with more memory would take it: the bound is one that [`GitLimits`] has higher.
    #[must_use]
    pub fn is_for_want_of_memory(&self) -> bool {
        let most = GitLimits::default();
        if let Self::Submodule { source, .. } = self {
            return source.is_for_want_of_memory();
        }
        let Self::TooLarge { measure, limit, .. } = self else { return false };
        *limit
            < match measure {
                Measure::TotalBytes => most.tree.total_bytes,
                Measure::ArtifactBytes => most.artifact_bytes,
                Measure::ObjectBytes => most.object_bytes,
                Measure::Objects => u64::from(most.objects),
                _ => return false,
            }
    }

    /// Until when the server takes no requests, where that is what it says.
    #[must_use]
    pub fn rate_limited_until(&self) -> Option<Timestamp> {
        match self {
            Self::Attempt(error) => error.rate_limited_until(),
            // Another server's word, perhaps; it is asked after the repository's own.
            Self::Submodule { elsewhere: false, source, .. } => source.rate_limited_until(),
            Self::App { source, .. } => match source.as_ref() {
                AppError::Resting { until, .. } => Some(*until),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether that is the word of the GitHub API, and not of the repository's server.
    #[must_use]
    pub fn is_of_the_api(&self) -> bool {
        match self {
            Self::App { .. } => true,
            Self::Submodule { source, .. } => source.is_of_the_api(),
            _ => false,
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
            Self::Ended { transient, .. } => *transient,
            Self::Submodule { source, .. } => source.is_transient(),
            Self::App { source, .. } => source.is_transient(),
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

/// A text that came from a server or a library, fit for a message.
pub(super) fn detail(text: &str) -> String {
    crate::tree::shown(&without_secrets(text.trim()))
}

/// An error of gix and its causes in one line. Its errors are trees: `source` shows a part of one only.
pub(super) fn git_chain(error: &gix::Error) -> String {
    one_line(error.iter_errors())
}
