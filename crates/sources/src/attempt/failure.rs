//! What can go wrong with an attempt at a source of any kind: on the way to its server, and for want of time.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use roadstead_model::Reason;
use roadstead_outbound::{Refusal, SendError};
use tokio_util::sync::CancellationToken;

use super::{Stop, chain, shown_url, untrusted};

/// Why an attempt did not get as far as to an answer. Every text names the URL, and none holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The policy does not let it be connected to, or somewhere that it redirects to.
    #[error("`{url}` is not fetched: {refusal}")]
    AddressRefused {
        /// The source.
        url: String,
        /// Which address, and what would allow it.
        refusal: Box<Refusal>,
    },
    /// There is no usable answer from an address that is not public. Says the same whatever listens there, so that nobody
    /// can look around in the hub's network by what it says.
    #[error(
        "cannot reach `{url}`: at that address, which is not public, connections are refused or not answered in time, or \
         {}; the hub's log says which",
        trust.when_not_reached()
    )]
    NotReached {
        /// The source.
        url: String,
        /// By what its server is trusted.
        trust: TrustedBy,
    },
    /// The server's certificate is not trusted.
    #[error(
        "the certificate of `{url}` is not trusted: {detail}; if it is of your own CA, {}",
        trust.advice()
    )]
    Untrusted {
        /// The source.
        url: String,
        /// What is wrong with it.
        detail: String,
        /// By what its server is trusted.
        trust: TrustedBy,
    },
    /// The server cannot be reached, or breaks off.
    #[error("cannot reach `{url}` ({phase}): {detail}")]
    Unreachable {
        /// The source.
        url: String,
        /// What was tried.
        phase: &'static str,
        /// Why it failed.
        detail: String,
    },
    /// A redirect that is not followed.
    #[error("`{url}` redirects to `{to}`, which is not followed: {why}")]
    RedirectRefused {
        /// The source.
        url: String,
        /// Where to, without credentials.
        to: String,
        /// Why not.
        why: String,
    },
    /// The server takes no more requests for a while.
    #[error(
        "`{url}` is not fetched before {}: its server answered HTTP {status} and said so",
        until.strftime("%Y-%m-%dT%H:%M:%SZ")
    )]
    RateLimited {
        /// The source.
        url: String,
        /// What it answered.
        status: u16,
        /// Until then.
        until: Timestamp,
    },
    /// Not done in time.
    #[error("`{url}` was not fetched within {timeout:?} (while {phase})")]
    Timeout {
        /// The source.
        url: String,
        /// How long was waited.
        timeout: Duration,
        /// What was going on when time was up.
        phase: &'static str,
    },
    /// The caller ended it.
    #[error("fetching `{url}` was cancelled")]
    Cancelled {
        /// The source.
        url: String,
    },
}

/// Where the object says by what its server is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustedBy {
    /// `ca.crt` beside the credentials.
    SecretRef,
    /// `ca.crt` in a Secret of its own, or nothing where it asks for no TLS.
    CertSecretRef,
    /// `known_hosts` beside the credentials.
    KnownHosts,
    /// No object says anything about it: what the hub's machine trusts.
    System,
}

impl TrustedBy {
    fn advice(self) -> &'static str {
        match self {
            Self::SecretRef | Self::KnownHosts => "put that into `ca.crt` of the Secret in `spec.secretRef`",
            Self::CertSecretRef => "put that into `ca.crt` of the Secret in `spec.certSecretRef`",
            Self::System => "the hub trusts what its own machine trusts (SSL_CERT_FILE)",
        }
    }

    fn when_not_reached(self) -> &'static str {
        match self {
            Self::SecretRef => {
                "the answer is not HTTP, or the server's certificate is not trusted (if it is of your own CA, put that into \
                 `ca.crt` of the Secret in `spec.secretRef`)"
            }
            Self::CertSecretRef => {
                "the answer is not HTTP, or the server's certificate is not trusted (if it is of your own CA, put that into \
                 `ca.crt` of the Secret in `spec.certSecretRef`; if it has none, set `spec.insecure`)"
            }
            Self::System => {
                "the answer is not HTTP, or the server's certificate is not one that the hub's own machine trusts (SSL_CERT_FILE)"
            }
            Self::KnownHosts => {
                "the answer is not SSH, or the host's key is not one of those in `known_hosts` of the Secret in `spec.secretRef`"
            }
        }
    }
}

impl AttemptError {
    /// What is told of a failure at an address that is not public; the operator's log has the rest.
    pub(crate) fn not_reached(url: String, trust: TrustedBy, detail: &str) -> Self {
        tracing::info!(url, detail, "a source at an address that is not public cannot be reached");
        Self::NotReached { url, trust }
    }

    /// What is told of a server that gave no answer.
    pub(crate) fn of_sending(url: String, trust: TrustedBy, phase: &'static str, error: &SendError) -> Self {
        if let Some(refusal) = &error.refusal {
            return Self::AddressRefused { url, refusal: Box::new(refusal.clone()) };
        }
        let detail = chain(error.source.as_ref());
        if error.veiled {
            return Self::not_reached(url, trust, &detail);
        }
        match untrusted(error.source.as_ref()) {
            Some(detail) => Self::Untrusted { url, detail, trust },
            None => Self::Unreachable { url, phase, detail },
        }
    }

    /// A redirect to `location` that is not followed.
    pub(crate) fn of_redirect(url: String, location: &str, why: String) -> Self {
        Self::RedirectRefused { url, to: shown_url(location), why }
    }

    /// The `reason` of the condition that this becomes; none where it is the one of fetches of that kind that fail.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        matches!(self, Self::AddressRefused { .. }).then_some(Reason::URLInvalid)
    }

    /// Until when the server takes no requests, where that is what it says.
    #[must_use]
    pub fn rate_limited_until(&self) -> Option<Timestamp> {
        match self {
            Self::RateLimited { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Whether it may go away without anyone changing the source or the object.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            // The name may lead elsewhere soon, and the operator may allow the address.
            Self::AddressRefused { .. }
            | Self::NotReached { .. }
            | Self::Unreachable { .. }
            | Self::RateLimited { .. }
            | Self::Timeout { .. }
            | Self::Cancelled { .. } => true,
            Self::Untrusted { .. } | Self::RedirectRefused { .. } => false,
        }
    }
}

/// What is fetched, and for how long.
pub(crate) struct Limited<'a> {
    /// The kind, for the log.
    pub(crate) kind: &'static str,
    pub(crate) url: String,
    pub(crate) trust: TrustedBy,
    pub(crate) timeout: Duration,
    pub(crate) stop: &'a Stop,
    pub(crate) cancel: &'a CancellationToken,
}

impl Limited<'_> {
    /// Works until it is done, the time is up, or it is cancelled. However the work broke off: if it was told to stop, that is the cause.
    pub(crate) async fn run<T, E: From<AttemptError> + std::fmt::Display>(
        self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Self { kind, url, trust, timeout, stop, cancel } = self;
        let started = Instant::now();
        let result = tokio::select! {
            biased;
            result = work => Some(result),
            () = cancel.cancelled() => None,
            () = tokio::time::sleep_until(stop.deadline().into()) => None,
        };
        let result = result.unwrap_or_else(|| Err(AttemptError::Cancelled { url: url.clone() }.into()));
        let elapsed_ms = started.elapsed().as_millis();
        tracing::debug!(kind, url, elapsed_ms, ok = result.is_ok(), "source checked");
        result.map_err(|error| {
            if cancel.is_cancelled() {
                AttemptError::Cancelled { url }.into()
            } else if stop.is_past() && stop.is_veiled() {
                AttemptError::not_reached(url, trust, &error.to_string()).into()
            } else if stop.is_past() {
                AttemptError::Timeout { url, timeout, phase: stop.phase() }.into()
            } else {
                error
            }
        })
    }
}
