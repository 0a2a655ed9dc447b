//! What can go wrong with Helm repositories and charts.

use std::fmt;

use roadstead_model::Reason;

use crate::attempt::AttemptError;
use crate::oci::OciError;
use crate::tree::Measure;

/// Why there is no new artifact. No text of it holds a credential, or the query of a URL.
#[derive(Debug, thiserror::Error)]
#[error("{step}{why}")]
pub struct HelmError {
    /// What was being done.
    pub step: Step,
    /// Why it could not be done.
    #[source]
    pub why: Box<Why>,
}

/// What is done, as Flux tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before anything was asked, or about the attempt as a whole.
    Attempt,
    /// The index of a repository is received.
    FetchIndex,
    /// It is read.
    LoadIndex,
    /// Which chart and version is meant.
    Reference,
    /// A chart is received.
    Pull,
    /// Its signature is verified.
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attempt => "",
            Self::FetchIndex => "failed to fetch Helm repository index: ",
            Self::LoadIndex => "failed to load Helm repository from index YAML: ",
            Self::Reference => "invalid chart reference: ",
            Self::Pull => "chart pull error: ",
            Self::Verify => "chart verification error: ",
            Self::Metadata => "chart metadata patch error: ",
            Self::Values => "values files merge error: ",
            Self::Dependencies => "dependency build error: ",
            Self::Package => "chart package error: ",
        })
    }
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// There is no answer, or not in time.
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    /// Of a registry.
    #[error(transparent)]
    Oci(OciError),
    /// A URL is not one that we ask.
    #[error("the URL `{url}` is refused: {why}")]
    Url {
        /// The URL, without credentials.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// What is there, or what is asked for, is not what it should be.
    #[error("{0}")]
    Refused(String),
    /// Credentials would be sent in the clear.
    #[error(
        "nothing is sent to `{url}`: without TLS anyone on the way could read the credentials of `spec.secretRef`; use https, or \
         start the hub with --allow-plain-http-credentials"
    )]
    PlainCredentials {
        /// Where they would go.
        url: String,
    },
    /// Certificates or keys that were given hold nothing that can be used.
    #[error("{0}")]
    Unusable(String),
    /// The server wants other credentials, or some.
    #[error(
        "`{url}` answered {status}: {}",
        if *had_credentials { "the credentials of `spec.secretRef` were not accepted" }
        else { "it requires credentials that were not sent to it; see `spec.secretRef` of the HelmRepository, and `spec.passCredentials` \
                where charts are on another host" }
    )]
    Denied {
        /// What was asked for.
        url: String,
        /// HTTP's status: 401 or 403.
        status: u16,
        /// Whether credentials were sent.
        had_credentials: bool,
    },
    /// The server is there, and fails, or has no such file.
    #[error("`{url}` answered HTTP {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP's status.
        status: u16,
    },
    /// What came is another chart than the index says.
    #[error("`{url}` sent a chart with digest {came}, and the index says {expected}")]
    OtherDigest {
        /// The chart.
        url: String,
        /// What came.
        came: String,
        /// What should have come.
        expected: String,
    },
    /// What all fetches may have of the disk is in use.
    #[error(
        "it is too large to be fetched beside the other sources: all the disk space for fetches is in use; it is tried again"
    )]
    NoDisk,
    /// Larger than allowed.
    #[error("more than {limit} {measure}{}", path.as_ref().map_or_else(String::new, |path| format!(" (at `{path}`)")))]
    TooLarge {
        /// What was measured.
        measure: Measure,
        /// The most that is allowed.
        limit: u64,
        /// Which file, if one is to blame.
        path: Option<String>,
    },
    /// A chart of another repository that it depends on cannot be had.
    #[error("failed to add remote dependency '{name}': {doing}{why}")]
    Dependency {
        /// What it is called.
        name: String,
        /// What was being done, as Flux tells it.
        doing: String,
        /// Why it could not be done.
        why: Box<Why>,
    },
    /// The artifact that a chart is made of cannot be had.
    #[error("the source's artifact: {0}")]
    Artifact(String),
    /// What read its bytes was ended.
    #[error("what came could not be read: {why}")]
    Ended {
        /// What ended it.
        why: String,
        /// Whether the same may go well the next time.
        transient: bool,
    },
    /// Our own machine: no space, no TLS provider, a bug.
    #[error("it failed inside Roadstead: {0}")]
    Internal(String),
}

impl Why {
    /// What it is of a step.
    pub(super) fn at(self, step: Step) -> HelmError {
        let step = match &self {
            // These say all there is to say.
            Self::Attempt(AttemptError::AddressRefused { .. } | AttemptError::Cancelled { .. }) => {
                Step::Attempt
            }
            Self::Oci(OciError::Unverified { .. }) => Step::Verify,
            _ => step,
        };
        HelmError { step, why: Box::new(self) }
    }

    /// The cause, whichever of several charts it is about.
    fn of_all(&self) -> &Self {
        match self {
            Self::Dependency { why, .. } => why,
            why => why,
        }
    }
}

impl From<AttemptError> for HelmError {
    fn from(error: AttemptError) -> Self {
        Why::from(error).at(Step::Attempt)
    }
}

impl HelmError {
    /// The same of a step, where it is about the attempt as a whole.
    pub(super) fn or_at(self, step: Step) -> Self {
        match self.step {
            Step::Attempt => self.why.at(step),
            _ => self,
        }
    }

    /// The `reason` of the condition that this becomes; none where it is the one of fetches of that kind that fail.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        let of_address = |error: &AttemptError| error.reason();
        match self.why.as_ref() {
            Why::Attempt(error) | Why::Oci(OciError::Attempt(error)) if error.reason().is_some() => {
                return of_address(error);
            }
            Why::Url { .. } if self.step == Step::FetchIndex => return Some(Reason::URLInvalid),
            Why::PlainCredentials { .. } | Why::Unusable(_) => return Some(Reason::AuthenticationFailed),
            Why::Oci(error) if self.step == Step::Pull && error.reason() == Reason::AuthenticationFailed => {
                return Some(Reason::AuthenticationFailed);
            }
            Why::Denied { .. } | Why::Attempt(AttemptError::Untrusted { .. }) if self.step == Step::Pull => {
                return Some(Reason::AuthenticationFailed);
            }
            _ => {}
        }
        match self.step {
            Step::Attempt => None,
            Step::FetchIndex => Some(Reason::Failed),
            Step::LoadIndex => Some(Reason::IndexationFailed),
            Step::Reference => Some(Reason::InvalidChartReference),
            Step::Pull => Some(Reason::ChartPullError),
            Step::Verify => Some(Reason::ChartVerificationError),
            Step::Metadata => Some(Reason::MetadataPatchError),
            Step::Values => Some(Reason::ValuesFilesError),
            Step::Dependencies => Some(Reason::DependencyBuildError),
            Step::Package => Some(Reason::ChartPackageError),
        }
    }

    /// Whether nothing changes before somebody changes the spec, or what it refers to.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        matches!(self.why.as_ref(), Why::Refused(_) | Why::Url { .. })
            && matches!(
                self.reason(),
                Some(
                    Reason::URLInvalid
                        | Reason::InvalidChartReference
                        | Reason::ValuesFilesError
                        | Reason::MetadataPatchError
                )
            )
    }

    /// Whether it is about a chart that came, and could not be made into an artifact.
    #[must_use]
    pub fn is_of_building(&self) -> bool {
        matches!(self.step, Step::Verify | Step::Metadata | Step::Values | Step::Dependencies | Step::Package)
    }

    /// Until when the server takes no requests, where that is what it says.
    #[must_use]
    pub fn rate_limited_until(&self) -> Option<jiff::Timestamp> {
        match self.why.of_all() {
            Why::Attempt(error) | Why::Oci(OciError::Attempt(error)) => error.rate_limited_until(),
            _ => None,
        }
    }

    /// Whether it may go away without anyone changing the repository or the object: try again soon, rather than at the
    /// next interval.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.why.of_all() {
            Why::Attempt(error) => error.is_transient(),
            Why::Oci(error) => error.is_transient(),
            Why::NoDisk | Why::Internal(_) | Why::Artifact(_) => true,
            Why::Ended { transient, .. } => *transient,
            Why::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
