//! Helm repositories over HTTP, and charts: of such a repository, of a registry, or in the artifact of another source.
//!
//! A [`HelmIndexRequest`] brings the index of a repository as an artifact, in one form ([`index`]). A [`HelmChartRequest`] brings one chart: as it came,
//! or with its values and its version changed, and packed again.
//!
//! Two sides share the work, as for all kinds. One has the network, the credentials and the time (`wire`, `receive`, `fetch_index`, `fetch_chart`, and `dependencies` for the charts
//! of other repositories that a chart in a folder depends on): it keeps
//! what is answered without looking at it. The other (`reader`) has what was answered, or an artifact that is stored, and nothing else: it
//! reads indexes and charts, says who signed a chart (`provenance`), merges values and packs. What it says of a chart is bounded and checked again before anybody goes by it.

mod chart;
mod dependencies;
mod error;
mod fetch_chart;
mod fetch_index;
mod index;
mod known;
mod provenance;
pub(crate) mod reader;
mod receive;
mod request;
mod unread;
mod url;
mod version;
mod wire;

pub use self::url::normalised;
pub use dependencies::{Repositories, RepositoryAt};
pub use error::{HelmError, Step, Why};
pub use known::{Indexes, KnownIndex, KnownVersions};
pub use request::{
    AskedTogether, ChartOrigin, HelmBounds, HelmChartRequest, HelmIndexRequest, HelmLimits, HelmLogin,
    HelmServer, ValuesFiles,
};
pub use version::{RevisionOf, build_metadata};
