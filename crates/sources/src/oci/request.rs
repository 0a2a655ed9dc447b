//! What is asked of an OCI repository.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::Pool;
use roadstead_cloud::CloudIdentity;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::{ClientIdentity, Guard, Policy, Purpose};
use serde::{Deserialize, Serialize};

use super::known::KnownRegistry;
use super::login::RegistryLogins;
use super::verify::Verification;
use crate::attempt::Room;
use crate::tree::TreeLimits;

/// The media type of a chart's layer, by which Helm's tags are known.
pub(crate) const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The media type of the layer beside it that says who packed the chart.
pub(crate) const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

/// Which artifact is wanted: `spec.ref` of an OCIRepository. Where several fields are set, Flux's order is digest, semver, tag;
/// [`OciReference::from_spec`] keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OciReference {
    /// What a tag names now.
    Tag(String),
    /// The newest tag in a range of versions.
    SemVer {
        /// The range.
        range: String,
        /// A regular expression, as Go has them, which a tag must match somewhere.
        filter: Option<String>,
    },
    /// A manifest by its digest.
    Digest(String),
}

impl Default for OciReference {
    fn default() -> Self {
        Self::Tag("latest".to_owned())
    }
}

impl OciReference {
    /// From the fields of `spec.ref`; empty ones count as absent.
    #[must_use]
    pub fn from_spec(
        digest: Option<&str>,
        semver: Option<&str>,
        filter: Option<&str>,
        tag: Option<&str>,
    ) -> Self {
        let given = |field: Option<&str>| field.filter(|text| !text.is_empty()).map(str::to_owned);
        if let Some(digest) = given(digest) {
            return Self::Digest(digest);
        }
        match given(semver) {
            Some(range) => Self::SemVer { range, filter: given(filter) },
            None => given(tag).map(Self::Tag).unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for OciReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, "tag `{tag}`"),
            Self::SemVer { range, .. } => write!(f, "version `{range}`"),
            Self::Digest(digest) => write!(f, "digest `{digest}`"),
        }
    }
}

/// What is done with the layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LayerOperation {
    /// Its files become the artifact.
    #[default]
    Extract,
    /// It is the artifact as it is; patterns of what to leave out do not count.
    Copy,
}

/// How much a repository may make us read, keep and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciLimits {
    /// Bytes of a layer.
    pub layer_bytes: u64,
    /// Bytes of a manifest or an index.
    pub manifest_bytes: u64,
    /// Bytes of all lists of tags together.
    pub list_bytes: u64,
    /// Tags that are looked at.
    pub tags: usize,
    /// What the artifact may hold.
    pub tree: TreeLimits,
    /// Bytes of the artifact as it is packed.
    pub artifact_bytes: u64,
}

impl Default for OciLimits {
    fn default() -> Self {
        Self {
            layer_bytes: 512 << 20,
            manifest_bytes: 4 << 20,
            list_bytes: 16 << 20,
            tags: 100_000,
            tree: TreeLimits::default(),
            artifact_bytes: 256 << 20,
        }
    }
}

/// One fetch of one repository.
#[derive(Debug, Clone)]
pub struct OciRequest {
    /// `oci://host/path`.
    pub url: String,
    /// Which artifact.
    pub reference: OciReference,
    /// The media type of the layer that is meant; the first layer where it is not said.
    pub media_type: Option<String>,
    /// What is done with it.
    pub operation: LayerOperation,
    /// How to log in, if needed.
    pub logins: RegistryLogins,
    /// Who logs in where none of these is for the repository.
    pub cloud: Option<CloudIdentity>,
    /// Whether the registry is spoken to without TLS (`spec.insecure`).
    pub insecure: bool,
    /// Whether credentials may be sent over plain HTTP, where anyone on the way can read them.
    pub plain_http_credentials: bool,
    /// PEM of certificate authorities to trust besides the system's.
    pub ca: Option<Vec<u8>>,
    /// The certificate that this client shows.
    pub identity: Option<ClientIdentity>,
    /// The way out, which decides what may be connected to.
    pub guard: Guard,
    /// For the whole attempt, from the first packet to the packed artifact.
    pub timeout: Duration,
    /// Bounds.
    pub limits: OciLimits,
    /// Where room for the artifact is reserved, before its first byte is taken. Without, none is asked for.
    pub room: Option<Room>,
    /// What all fetches may have of the disk for what servers send; unbounded without.
    pub disk: Option<Pool>,
    /// The revision whose artifact the caller has. Leave it out to get the artifact in any case: when `ignore` changed.
    pub known: Option<Revision>,
    /// What is known of the registry from earlier looks with the same URL and credentials; what this one learns is kept there.
    pub known_registry: KnownRegistry,
    /// `spec.ignore`.
    pub ignore: Option<String>,
    /// Who is to have signed the artifact, where that is asked for.
    pub verify: Option<Verification>,
    /// Where temporary folders are made; the system's place for such if `None`.
    pub scratch: Option<PathBuf>,
}

impl OciRequest {
    /// A request for the tag `latest` with default limits and a timeout of 60 seconds, which reaches the public internet alone.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            reference: OciReference::default(),
            media_type: None,
            operation: LayerOperation::default(),
            logins: RegistryLogins::default(),
            cloud: None,
            insecure: false,
            plain_http_credentials: false,
            ca: None,
            identity: None,
            guard: Guard::new(Arc::new(Policy::default()), Purpose::Oci),
            timeout: Duration::from_secs(60),
            limits: OciLimits::default(),
            room: None,
            disk: None,
            known: None,
            known_registry: KnownRegistry::default(),
            ignore: None,
            verify: None,
            scratch: None,
        }
    }

    /// The URL, fit for messages: whatever looks like credentials is left out.
    #[must_use]
    pub fn shown_url(&self) -> String {
        crate::attempt::shown_url(&self.url)
    }
}

/// The revision of a manifest that was found at a tag; at an empty one where it was asked for by its digest.
pub(super) fn revision(tag: &str, digest: Digest) -> Option<Revision> {
    let at = if tag.is_empty() { "" } else { "@" };
    format!("{tag}{at}{digest}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::OciReference;

    #[test]
    fn flux_precedence() {
        let of = OciReference::from_spec;
        let all = of(Some("sha256:D"), Some(">1"), Some("rc"), Some("t"));
        assert_eq!(all, OciReference::Digest("sha256:D".to_owned()));
        let range = OciReference::SemVer { range: ">1".to_owned(), filter: Some("rc".to_owned()) };
        assert_eq!(of(Some(""), Some(">1"), Some("rc"), Some("t")), range);
        assert_eq!(of(None, None, Some("rc"), Some("t")), OciReference::Tag("t".to_owned()));
        assert_eq!(of(None, None, None, None), OciReference::Tag("latest".to_owned()));
    }
}
