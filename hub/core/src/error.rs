//! The hub's one domain error. The API turns it into an HTTP status, the link into a gRPC status, each in one place.

use roadstead_api::FieldError;
use roadstead_body::BodyError;
use roadstead_hub_store::StoreError;

use crate::address::NextPage;

/// Why a use case did not happen.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// No such object.
    #[error("{what} not found")]
    NotFound {
        /// The object, as `kustomizations.kustomize.toolkit.fluxcd.io "web"`.
        what: String,
    },
    /// An object of that name exists.
    #[error("{what} already exists")]
    AlreadyExists {
        /// The object.
        what: String,
    },
    /// The object changed since the caller read it.
    #[error("{what}: {why}")]
    Conflict {
        /// The object.
        what: String,
        /// What stands against what.
        why: String,
    },
    /// An apply that would set what others manage.
    #[error("{message}")]
    ApplyConflict {
        /// What an apiserver says of it.
        message: String,
        /// Each field, as `.spec.path`, and with whom it conflicts.
        causes: Vec<(String, String)>,
    },
    /// The object breaks its kind's rules.
    #[error("{what} is invalid: {}", causes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid {
        /// The object.
        what: String,
        /// Each broken rule with the field that breaks it.
        causes: Vec<FieldError>,
    },
    /// The request itself cannot be understood.
    #[error("{0}")]
    BadRequest(String),
    /// Who asks is not known.
    #[error("{0}")]
    Unauthenticated(String),
    /// Who asks may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// A body of a form that is not taken here.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// A watch asked for changes that are no longer kept.
    #[error("{0}")]
    Gone(String),
    /// Not now: the same request may do later, here or on another replica.
    #[error("{0}")]
    Unavailable(String),
    /// Whoever asks has too much under way.
    #[error("{0}")]
    TooMany(String),
    /// A version that this hub has not given out yet.
    #[error("Too large resource version: {wanted}, current: {present}")]
    TooLargeVersion {
        /// The version in the request.
        wanted: i64,
        /// The last one that was given out.
        present: i64,
    },
    /// A page that no longer follows what came before it; the list can go on as of now, from there.
    #[error(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results."
    )]
    PageGone(Box<NextPage>),
    /// A body or a part of it that has more bytes than are taken.
    #[error("{0}")]
    TooLarge(String),
    /// What was being sent did not come in time.
    #[error("{0}")]
    Timeout(String),
    /// The database failed.
    #[error("the hub's database failed")]
    Store(#[source] StoreError),
    /// Something that ought not to happen.
    #[error("{0}")]
    Internal(String),
}

/// What users are told while the object store with the artifacts does not work.
const ARTIFACTS_UNAVAILABLE: &str = "the artifact store is unavailable; the hub's log says why";

impl From<StoreError> for HubError {
    fn from(error: StoreError) -> Self {
        match error {
            // Nothing is wrong with the database. Why it is unavailable was logged; the bucket is the operator's, and users are not told of it.
            StoreError::ArtifactStore(_) => Self::Unavailable(ARTIFACTS_UNAVAILABLE.to_owned()),
            other => Self::Store(other),
        }
    }
}

impl From<BodyError> for HubError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Unsupported(why) => Self::UnsupportedMediaType(why),
            error @ BodyError::Memory { .. } => Self::TooLarge(error.to_string()),
            other => Self::BadRequest(other.to_string()),
        }
    }
}

impl HubError {
    /// What is wrong with the database as a whole, where that is why; the same may do later.
    #[must_use]
    pub fn outage(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.outage(),
            _ => None,
        }
    }

    /// Whether it is a fault of what was asked for, which whoever asked is to mend.
    #[must_use]
    pub fn is_of_request(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Conflict { .. }
            | Self::ApplyConflict { .. }
            | Self::Invalid { .. }
            | Self::BadRequest(_)
            | Self::Forbidden(_)
            | Self::TooLarge(_) => true,
            Self::Unauthenticated(_)
            | Self::UnsupportedMediaType(_)
            | Self::Gone(_)
            | Self::Unavailable(_)
            | Self::TooMany(_)
            | Self::TooLargeVersion { .. }
            | Self::PageGone(_)
            | Self::Timeout(_)
            | Self::Store(_)
            | Self::Internal(_) => false,
        }
    }

    /// The name of the object that the error is about, where it tells: it stands in quotes.
    #[must_use]
    pub fn object_name(&self) -> Option<&str> {
        match self {
            Self::NotFound { what }
            | Self::AlreadyExists { what }
            | Self::Conflict { what, .. }
            | Self::Invalid { what, .. } => what.split('"').nth(1).filter(|name| !name.is_empty()),
            _ => None,
        }
    }
}
