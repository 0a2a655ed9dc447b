//! Why a reader has no artifact: an [`OciError`] without what the reader is not told, and fit to be sent.

use serde::{Deserialize, Serialize};

use super::error::OciError;
use super::request::OciRequest;
use crate::artifact::ArtifactError;
use crate::attempt::{AttemptError, plain};
use crate::tree::{Measure, TreeError};

/// Why there is no artifact. What it says came from a process that read untrusted bytes: it is text, and no more.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
pub(super) enum Unread {
    #[error("{detail}")]
    Corrupt { detail: String },
    /// The artifact has not what was asked for.
    #[error("{detail}")]
    Layer { detail: String },
    #[error("more than {limit} {measure}")]
    TooLarge { measure: Measure, limit: u64 },
    #[error("{source}")]
    Tree { source: TreeError },
    #[error("pack {path}: {detail}")]
    Pack { path: String, detail: String },
    #[error("{what}")]
    Unsupported { what: String },
    #[error("{detail}")]
    Internal { detail: String },
    #[error("told to stop")]
    Stopped,
}

impl From<TreeError> for Unread {
    fn from(source: TreeError) -> Self {
        match source {
            TreeError::TooLarge { measure, limit, path: None } => Self::TooLarge { measure, limit },
            source => Self::Tree { source },
        }
    }
}

impl Unread {
    /// What it is of the repository that was asked for, at `revision`.
    pub(super) fn of(self, request: &OciRequest, revision: &str) -> OciError {
        let url = request.shown_url();
        match self {
            Self::Corrupt { detail } => OciError::Corrupt { url, detail: plain(&detail) },
            Self::Layer { detail } => OciError::Layer { url, detail: plain(&detail) },
            Self::TooLarge { measure, limit } => OciError::TooLarge { url, measure, limit, path: None },
            Self::Tree { source } => OciError::tree(url, revision, source),
            Self::Pack { path, detail } => {
                let source = std::io::Error::other(plain(&detail));
                OciError::Pack { url, source: ArtifactError::Pack { path, source } }
            }
            Self::Unsupported { what } => OciError::Unsupported { url, what: plain(&what) },
            Self::Internal { detail } => OciError::Internal { url, detail: plain(&detail) },
            Self::Stopped => OciError::Attempt(AttemptError::Cancelled { url }),
        }
    }
}
