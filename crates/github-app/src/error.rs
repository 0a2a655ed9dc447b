//! Why there is no token of a GitHub App.

use http::HeaderMap;
use jiff::Timestamp;
use roadstead_outbound::{ClientError, SendError};
use roadstead_signing::CannotSign;

use crate::answer::Bad;

/// Why there is no token. Nothing of a key or token stands in it, and nothing of what the other side said but its status and clock.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The private key cannot sign.
    #[error("the private key of the GitHub App: {0}")]
    Key(#[from] CannotSign),
    /// There is no way to the API.
    #[error("the way to the GitHub API: {0}")]
    Client(#[from] ClientError),
    /// The API is not reached, or gives no whole answer.
    #[error("no token of the GitHub App: `{api}` cannot be reached")]
    Unreachable {
        /// The API.
        api: String,
        /// Why.
        source: SendError,
    },
    /// It does not answer in time.
    #[error("no token of the GitHub App: `{api}` did not answer in time")]
    TimedOut {
        /// The API.
        api: String,
    },
    /// It takes no more requests for a while.
    #[error("no token of the GitHub App: `{api}` takes no more requests for a while (HTTP {status})")]
    Limited {
        /// The API.
        api: String,
        /// What it answered.
        status: u16,
        /// In which headers it said until when.
        headers: Box<HeaderMap>,
    },
    /// It said before that it takes no more requests for a while, and is not asked.
    #[error(
        "no token of the GitHub App: `{api}` takes no more requests before {}",
        until.strftime("%Y-%m-%dT%H:%M:%SZ")
    )]
    Resting {
        /// The API.
        api: String,
        /// Until then.
        until: Timestamp,
    },
    /// It does not believe that this is the App.
    #[error(
        "no token of the GitHub App: `{api}` answered HTTP 401: the private key is not one of App {app}, or the clocks differ{}",
        clock.as_deref().map_or_else(String::new, |clock| format!(" ({clock})"))
    )]
    Unauthorized {
        /// The API.
        api: String,
        /// The App's id.
        app: String,
        /// How far the clocks are apart, where they are.
        clock: Option<String>,
    },
    /// The App is not installed there.
    #[error("no token of the GitHub App: `{api}` answered HTTP 404: App {app} has no {installation}")]
    NotInstalled {
        /// The API.
        api: String,
        /// The App's id.
        app: String,
        /// Which installation.
        installation: String,
    },
    /// The installation is suspended.
    #[error(
        "no token of the GitHub App: `{api}` answered HTTP {status}: the installation of App {app} is suspended"
    )]
    Suspended {
        /// The API.
        api: String,
        /// What it answered.
        status: u16,
        /// The App's id.
        app: String,
    },
    /// It answered something else than success.
    #[error(
        "no token of the GitHub App: `{api}` answered HTTP {status}{}",
        if (300..400).contains(status) { ", a redirect, which is not followed: correct githubAppBaseURL" } else { "" }
    )]
    Refused {
        /// The API.
        api: String,
        /// What it answered.
        status: u16,
    },
    /// The answer is too long.
    #[error("no token of the GitHub App: the answer of `{api}` is longer than {most} bytes")]
    TooLarge {
        /// The API.
        api: String,
        /// What is taken.
        most: usize,
    },
    /// The answer cannot be used.
    #[error("no token of the GitHub App: the answer of `{api}`: {why}")]
    Answer {
        /// The API.
        api: String,
        /// Why.
        why: Bad,
    },
}

impl AppError {
    /// Whether it may go away without anyone changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Limited { .. }
            | Self::Resting { .. }
            | Self::TooLarge { .. }
            | Self::Answer { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::Key(_)
            | Self::Client(_)
            | Self::Unauthorized { .. }
            | Self::NotInstalled { .. }
            | Self::Suspended { .. } => false,
        }
    }
}
