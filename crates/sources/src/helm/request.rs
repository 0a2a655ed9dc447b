//! What is asked of Helm repositories.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::Pool;
use roadstead_outbound::{ClientIdentity, Guard, Policy, Purpose, Secret};
use serde::{Deserialize, Serialize};

use super::dependencies::Repositories;
use super::known::{Indexes, KnownIndex, KnownVersions};
use crate::attempt::Room;
use crate::git::{Stored, TrustedKeys};
use crate::oci::OciRequest;
use crate::tree::TreeLimits;

/// How much a repository, or a chart, may make us read, keep and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelmLimits {
    /// Bytes of an index as it is received.
    pub index_bytes: u64,
    /// Bytes of an index as it is kept.
    pub index_artifact_bytes: u64,
    /// Versions of charts in an index.
    pub versions: usize,
    /// Bytes of a packed chart, as it is received and as it is made.
    pub chart_bytes: u64,
    /// Bytes of what says who packed a chart.
    pub provenance_bytes: u64,
    /// What a chart may hold.
    pub chart: TreeLimits,
    /// What the artifact of a source with charts may hold.
    pub source: TreeLimits,
    /// Memory for reading and merging files of values.
    pub values_memory: usize,
}

impl Default for HelmLimits {
    fn default() -> Self {
        Self {
            index_bytes: 50 << 20,
            index_artifact_bytes: 64 << 20,
            versions: 100_000,
            chart_bytes: 10 << 20,
            provenance_bytes: 1 << 20,
            chart: TreeLimits {
                entries: 10_000,
                links: 1_000,
                file_bytes: 5 << 20,
                total_bytes: 100 << 20,
                path_bytes: 1_024,
                depth: 64,
            },
            source: TreeLimits::default(),
            values_memory: 64 << 20,
        }
    }
}

/// A name and a password.
#[derive(Debug, Clone)]
pub struct HelmLogin {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// A Helm repository over HTTP: where it is, and as whom it is asked.
#[derive(Debug, Clone)]
pub struct HelmServer {
    /// Its URL.
    pub url: String,
    /// Who asks.
    pub login: Option<HelmLogin>,
    /// Whether the credentials go to other hosts too that the index names.
    pub pass_credentials: bool,
    /// Whether credentials may be sent over plain HTTP, where anyone on the way can read them.
    pub plain_http_credentials: bool,
    /// PEM of certificate authorities to trust besides the system's.
    pub ca: Option<Vec<u8>>,
    /// The certificate that this client shows.
    pub identity: Option<ClientIdentity>,
    /// The way out, which decides what may be connected to.
    pub guard: Guard,
}

impl HelmServer {
    /// A public repository on the public internet.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            login: None,
            pass_credentials: false,
            plain_http_credentials: false,
            ca: None,
            identity: None,
            guard: Guard::new(Arc::new(Policy::default()), Purpose::Helm),
        }
    }
}

/// What every fetch has of bounds and places.
#[derive(Debug, Clone)]
pub struct HelmBounds {
    /// For the whole attempt.
    pub timeout: Duration,
    /// Bounds.
    pub limits: HelmLimits,
    /// Where room for the artifact is reserved, before its first byte is taken. Without, none is asked for.
    pub room: Option<Room>,
    /// What all fetches may have of the disk for what servers send; unbounded without.
    pub disk: Option<Pool>,
    /// Where temporary folders are made; the system's place for such if `None`.
    pub scratch: Option<PathBuf>,
}

impl Default for HelmBounds {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            limits: HelmLimits::default(),
            room: None,
            disk: None,
            scratch: None,
        }
    }
}

/// One fetch of the index of a repository.
#[derive(Debug, Clone)]
pub struct HelmIndexRequest {
    /// The repository.
    pub server: HelmServer,
    /// Bounds.
    pub bounds: HelmBounds,
    /// What is known of the index from earlier looks with the same URL and credentials; what this one learns is kept there.
    pub known_index: KnownIndex,
    /// Where indexes are stored, so that one that somebody else received need not be received again.
    pub indexes: Option<Arc<dyn Indexes>>,
}

/// Charts of one index, which are looked up at once.
#[derive(Debug, Clone, Default)]
pub struct AskedTogether {
    /// What is known of this very index from earlier looks; what this one learns is kept there.
    pub known: KnownVersions,
    /// Charts that others will ask for, each with its version or range of versions.
    pub others: Vec<(String, String)>,
}

/// Where a chart comes from.
#[derive(Debug, Clone)]
pub enum ChartOrigin {
    /// A repository over HTTP, of which the hub has the index.
    Repository {
        /// The repository.
        server: Box<HelmServer>,
        /// Its index, as it is stored.
        index: Arc<dyn Stored>,
        /// What is known of that index, and what is asked of it together with this chart.
        together: AskedTogether,
        /// How a registry is asked, where the index says that a chart is in one.
        registry: Box<OciRequest>,
    },
    /// A registry: a request for its repository of that chart, of which the tag is not chosen yet.
    Registry(Box<OciRequest>),
    /// A folder or file in the artifact of another source.
    Tree {
        /// The artifact.
        artifact: Arc<dyn Stored>,
        /// For messages: `GitRepository 'app'`.
        named: String,
        /// Where charts of other repositories come from that it depends on.
        repositories: Arc<dyn Repositories>,
    },
}

/// Files of values that are merged into one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValuesFiles {
    /// Their paths.
    pub paths: Vec<String>,
    /// Whether those that are not there are passed over.
    pub ignore_missing: bool,
}

impl ValuesFiles {
    /// Whether they are anything but what a chart has anyway.
    #[must_use]
    pub fn are_any(&self) -> bool {
        match self.paths.as_slice() {
            [] => false,
            [only] => {
                let leads_up = only.starts_with('/') || only.split('/').any(|name| name == "..");
                leads_up || super::chart::clean(only) != "values.yaml"
            }
            _ => true,
        }
    }
}

/// One fetch of one chart.
#[derive(Debug, Clone)]
pub struct HelmChartRequest {
    /// Where it comes from.
    pub origin: ChartOrigin,
    /// Its name, or its path in the other source.
    pub chart: String,
    /// A version or a range of versions; of a repository or a registry only.
    pub version: String,
    /// Files of values.
    pub values: ValuesFiles,
    /// Whose keys are to have signed its provenance, where that is asked for; not of a chart in another source.
    pub provenance: Option<TrustedKeys>,
    /// What its version has after the `+`, in the place of what is there.
    pub build_metadata: Option<String>,
    /// Bounds.
    pub bounds: HelmBounds,
    /// The name of the chart whose artifact the caller has.
    pub known_name: Option<String>,
    /// Whether what it comes from is what the known revision was made of, so that there is nothing to look at.
    pub is_settled: bool,
}
