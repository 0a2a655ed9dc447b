//! Why a reader has no artifact: a [`GitError`] without what the reader is not told, and fit to be sent.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::GitError;
use super::request::GitRequest;
use super::verify::Fault;
use crate::artifact::ArtifactError;
use crate::attempt::{AttemptError, plain};
use crate::tree::{Measure, TreeError};

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    Connecting,
    LoggingIn,
    Listing,
    Receiving,
    Reading,
}

impl Phase {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::LoggingIn => "logging in",
            Self::Listing => "listing references",
            Self::Receiving => "receiving the pack",
            Self::Reading => "reading the commit's files",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why there is no artifact. What it says came from a process that read untrusted bytes: it is text, and no more.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
pub(super) enum Unread {
    #[error("the reference is not there: {detail}")]
    ReferenceNotFound { detail: String },
    #[error("there is no branch")]
    Empty,
    #[error("{phase}: {detail}")]
    Corrupt { phase: Phase, detail: String },
    #[error("more than {limit} {measure}")]
    TooLarge { measure: Measure, limit: u64 },
    /// `commit` is none for the pattern of the request.
    #[error("{source}")]
    Tree { commit: Option<String>, source: TreeError },
    #[error("pack {path}: {detail}")]
    Pack { path: String, detail: String },
    #[error("no folder {folder}")]
    NoFolder { folder: String },
    #[error("{detail}")]
    Unverified { fault: Fault, detail: String, object: String, tag: Option<String> },
    #[error("include '{repository}': {why}")]
    Include { repository: String, why: String },
    /// Of the repository itself where `path` is empty.
    #[error("submodule {path}: {why}")]
    Submodule { path: String, why: String },
    #[error("submodule {path}: {unread}")]
    OfSubmodule { path: String, unread: Box<Unread> },
    #[error("Git's SHA-256 object format")]
    Sha256,
    #[error("{detail}")]
    Internal { detail: String },
    #[error("told to stop")]
    Stopped,
}

impl Unread {
    pub(super) fn tree(commit: Option<&str>, source: TreeError) -> Self {
        Self::Tree { commit: commit.map(str::to_owned), source }
    }

    /// Whether it comes of the server's words, not of the repository's files.
    pub(super) fn is_of_the_conversation(&self) -> bool {
        matches!(self, Self::ReferenceNotFound { .. } | Self::Empty | Self::Corrupt { .. } | Self::Sha256)
    }

    /// What it is of the repository that was asked for.
    pub(super) fn of(self, request: &GitRequest) -> GitError {
        let url = request.shown_url();
        match self {
            Self::ReferenceNotFound { detail } => GitError::ReferenceNotFound {
                url,
                reference: request.reference.to_string(),
                detail: plain(&detail),
            },
            Self::Empty => GitError::Empty { url },
            Self::Corrupt { phase, detail } => {
                GitError::Corrupt { url, phase: phase.text(), detail: plain(&detail) }
            }
            Self::TooLarge { measure, limit } => GitError::TooLarge { url, measure, limit, path: None },
            Self::Tree { commit, source } => {
                GitError::tree(request, commit.as_deref().map(plain).as_deref(), source)
            }
            Self::Pack { path, detail } => {
                let source = std::io::Error::other(plain(&detail));
                GitError::Pack { url, source: ArtifactError::Pack { path, source } }
            }
            Self::NoFolder { folder } => GitError::Sparse {
                url,
                why: format!("sparse checkout dir '{}' does not exist in repository", plain(&folder)),
            },
            Self::Unverified { fault, detail, .. } => {
                GitError::Unverified { url, reason: fault.reason(), detail: plain(&detail) }
            }
            Self::Include { repository, why } => {
                GitError::NotIncluded { url, repository: plain(&repository), why: plain(&why) }
            }
            Self::Submodule { path, why } => {
                GitError::SubmoduleRefused { url, path: plain(&path), why: plain(&why) }
            }
            Self::OfSubmodule { path, unread } => {
                let source = Box::new(unread.of(request));
                GitError::Submodule { url, path: plain(&path), elsewhere: false, source }
            }
            Self::Sha256 => GitError::Unsupported { url, what: "Git's SHA-256 object format" },
            Self::Internal { detail } => GitError::Internal { url, detail: plain(&detail) },
            Self::Stopped => GitError::Attempt(AttemptError::Cancelled { url }),
        }
    }
}
