//! Why a bucket did not do what it was asked. No text of it holds a credential.

use roadstead_cloud::ServiceError;

/// Why a bucket did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// What the operator says of it cannot be used.
    #[error("{0}")]
    Setting(String),
    /// There are no credentials for it.
    #[error("there are no credentials for the bucket {bucket}: {why}")]
    Credentials {
        /// Which.
        bucket: String,
        /// Why not.
        why: String,
    },
    /// No answer.
    #[error("the bucket {bucket} cannot be reached: {why}")]
    Unreachable {
        /// Which.
        bucket: String,
        /// What happened.
        why: String,
    },
    /// An answer that took too long.
    #[error("the bucket {bucket} did not answer within {seconds} s")]
    TooSlow {
        /// Which.
        bucket: String,
        /// So long it had.
        seconds: u64,
    },
    /// It says no.
    #[error("the bucket {bucket} refused: HTTP {status}{}{hint}", code.as_ref().map_or_else(String::new, |code| format!(" ({code})")))]
    Refused {
        /// Which.
        bucket: String,
        /// HTTP's status.
        status: u16,
        /// The server's own word for it.
        code: Option<String>,
        /// What to do, where that is known.
        hint: String,
    },
    /// Not an answer of such a server.
    #[error("the bucket {bucket} answered with something else than it was asked for: {why}")]
    Malformed {
        /// Which.
        bucket: String,
        /// What is wrong with it.
        why: String,
    },
}

/// What is wrong with an object that is to be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadObject {
    /// There is none.
    #[error("it is not in the bucket any more")]
    Missing,
    /// It has another length than was put there.
    #[error("it has another length in the bucket than it was stored with")]
    OtherLength,
}

impl BucketError {
    pub(crate) fn credentials(bucket: &str, why: &ServiceError) -> Self {
        Self::Credentials { bucket: bucket.to_owned(), why: why.to_string() }
    }

    /// Whether other credentials may be what is wanted: those that were given out before may have ended.
    pub(crate) fn is_about_keys(&self) -> bool {
        const CODES: [&str; 3] = ["ExpiredToken", "InvalidAccessKeyId", "InvalidToken"];
        match self {
            Self::Refused { status: 401, .. } => true,
            Self::Refused { status: 400 | 403, code: Some(code), .. } => CODES.contains(&code.as_str()),
            _ => false,
        }
    }
}
