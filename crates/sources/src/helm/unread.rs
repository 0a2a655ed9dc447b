//! Why a reader has nothing, fit to be sent: of a process that reads untrusted bytes it is text, and no more.

use serde::{Deserialize, Serialize};

use super::error::{HelmError, Step, Why};
use crate::attempt::{AttemptError, plain};
use crate::tree::{Measure, TreeError};
use crate::untar::UntarError;

/// What was being read, or made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// An index.
    LoadIndex,
    /// Which chart and version is meant.
    Reference,
    /// A chart as it was received.
    Pull,
    /// Whether it is signed.
    Verify,
    /// Its version is changed.
    Metadata,
    /// Files of values are merged.
    Values,
    /// Charts that it depends on are put into it.
    Dependencies,
    /// It is packed.
    Package,
}

impl Stage {
    fn step(self) -> Step {
        match self {
            Self::LoadIndex => Step::LoadIndex,
            Self::Reference => Step::Reference,
            Self::Pull => Step::Pull,
            Self::Verify => Step::Verify,
            Self::Metadata => Step::Metadata,
            Self::Values => Step::Values,
            Self::Dependencies => Step::Dependencies,
            Self::Package => Step::Package,
        }
    }
}

/// Why there is nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Unread {
    /// It is not what it should be.
    Failed(Stage, String),
    /// It is larger than allowed.
    TooLarge { measure: Measure, limit: u64, path: Option<String> },
    /// Our own machine.
    Internal(String),
    /// Told to stop.
    Stopped,
}

impl Unread {
    pub(super) fn internal(error: &std::io::Error) -> Self {
        Self::Internal(format!("temporary folder: {error}"))
    }

    pub(super) fn of_tree(stage: Stage, error: TreeError) -> Self {
        match error {
            TreeError::TooLarge { measure, limit, path } => Self::TooLarge { measure, limit, path },
            error => Self::Failed(stage, error.to_string()),
        }
    }

    pub(super) fn of_archive(stage: Stage, error: UntarError) -> Self {
        match error {
            UntarError::TooLarge { measure, limit } => Self::TooLarge { measure, limit, path: None },
            UntarError::Tree(error) => Self::of_tree(stage, error),
            UntarError::Internal(detail) => Self::Internal(detail),
            UntarError::Stopped => Self::Stopped,
            error => Self::Failed(stage, format!("the chart {error}")),
        }
    }

    /// What it is of what is fetched from `url`; `about` is what was done where the reader does not say it.
    pub(super) fn of(self, url: String, about: Step) -> HelmError {
        match self {
            Self::Failed(stage, why) => Why::Refused(plain(&why)).at(stage.step()),
            Self::TooLarge { measure, limit, path } => {
                let path = path.map(|path| crate::tree::shown(&path));
                Why::TooLarge { measure, limit, path }.at(about)
            }
            Self::Internal(detail) => Why::Internal(plain(&detail)).at(about),
            Self::Stopped => Why::Attempt(AttemptError::Cancelled { url }).at(about),
        }
    }
}
