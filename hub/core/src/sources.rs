//! Sources: passes over them, the fetching, and what their conditions say. A kind is one implementation of [`SourceKind`], in
//! one file, and a line of [`kind`]; all else is the same for all.

pub(crate) mod addresses;
mod bucket;
mod charts;
mod clouds;
mod external;
pub(crate) mod fetch;
mod generators;
mod git;
mod helm_chart;
mod helm_repository;
mod includes;
mod lenders;
mod limits;
pub(crate) mod notes;
mod oci;
mod outdated;
pub(crate) mod pass;
mod pinned;
mod pull;
mod secrets;
mod upload;
mod verdicts;

use std::sync::Arc;

use roadstead_api::{KindId, SourceSpec};
use roadstead_github_app::Tokens;
use roadstead_hub_store::{Store, StoreError, Stored};
use roadstead_model::{GoDuration, Reason, Revision};
use roadstead_outbound::Authority;
use roadstead_places::Places;
use roadstead_sources::generate::GenerateLimits;
use roadstead_sources::git::Include;
use roadstead_sources::helm::Indexes;
use roadstead_sources::{Fetched, Learned, Source};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::HubOptions;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::AccessRules;
use crate::meters::Meters;
use crate::quarantine::Quarantine;
use crate::workers::{Workers, fair_places};
use charts::{KnownIndexes, Origin};
pub(crate) use clouds::Clouds;
use fetch::{Known, KnownServers};
use limits::Limits;
pub(crate) use secrets::SourceSecret;
use secrets::SourceSecrets;

pub use clouds::CloudOptions;
pub use generators::Generators;
pub use pass::{FetchJob, FetchPlan};
pub use upload::Claimed;

/// Sources, and what is fetched of them.
pub struct Sources {
    store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    access: Arc<AccessRules>,
    clouds: Arc<Clouds>,
    quarantine: Arc<Quarantine>,
    /// For the workers that read what servers sent.
    read_places: Places,
    known_servers: KnownServers,
    known_versions: KnownIndexes,
    limits: Limits,
    upload_places: Semaphore,
    app_tokens: Tokens,
    meters: Arc<Meters>,
}

impl Sources {
    pub(crate) fn new(
        context: &Context,
        clouds: &Arc<Clouds>,
        access: &Arc<AccessRules>,
        quarantine: &Arc<Quarantine>,
    ) -> Self {
        let readers =
            context.options.workers.as_ref().map_or(1, |workers| workers.readers.settings().workers);
        let known_servers = KnownServers::new(&context.options.budget);
        let known_versions = KnownIndexes::new(&context.options.budget);
        let read_places = fair_places(readers);
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            meters: Arc::clone(&context.meters),
            access: Arc::clone(access),
            clouds: Arc::clone(clouds),
            quarantine: Arc::clone(quarantine),
            read_places,
            known_servers,
            known_versions,
            limits: Limits::default(),
            upload_places: Semaphore::new(upload::AT_ONCE),
            app_tokens: context.app_tokens.clone(),
        }
    }
}

impl Sources {
    /// How much may be composed of sources: what a fetched artifact may have, since who deploys it is the same.
    fn generate_limits(&self, workers: &Workers) -> GenerateLimits {
        fetch::generate_limits(workers, self.most_of_a_source())
    }
}

/// A kind of source that the hub fetches.
trait SourceKind: Sync {
    /// The reason of a source that cannot be fetched as its spec asks for it.
    fn failed(&self) -> Reason;

    /// A field that is set and that this version cannot act on: to pass over it would fetch something other than what was asked for.
    fn unsupported(&self, stored: &Stored) -> Result<Option<&'static str>, StoreError>;

    /// Where it is fetched from, where `spec.url` does not say so.
    fn url(&self, _: &Stored) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// What an artifact that was stored is said to be.
    fn stored_message(&self, revision: &Revision) -> String {
        format!("stored artifact for revision '{revision}'")
    }

    /// What is said of an artifact that was stored, or found to be still the one of `revision`; none where that stays as it is.
    fn succeeded(&self, revision: &Revision, _: Option<&Fetched>) -> Option<(Reason, String)> {
        Some((Reason::Succeeded, self.stored_message(revision)))
    }

    /// What the message of a fetch that failed for this reason begins with.
    fn failed_at(&self, _: Reason) -> &'static str {
        ""
    }

    /// In which words it is told that it holds something else than its artifact has; `fetched` where that was received.
    fn newer(&self, _: &Stored, learned: &Learned, _: Option<&Fetched>) -> (Reason, String) {
        (Reason::NewRevision, format!("new upstream revision '{}'", learned.revision))
    }

    /// What Events say of a new artifact, where it is not what Ready says.
    fn told(&self, _: &Stored, _: &Fetched) -> Option<String> {
        None
    }

    /// Whether there is nothing to do for it, and it has no status.
    fn is_static(&self, _: &Stored) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// How often it is looked at where its spec does not say so.
    fn default_interval(&self) -> Option<GoDuration> {
        None
    }

    /// What the name of its artifact ends with.
    fn extension(&self) -> &'static str {
        "tar.gz"
    }

    /// What its status notes of what was fetched; null for what it does not have.
    fn observed_of(&self, _: &Fetched) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// What its status notes of the spec that its artifact was made from, field by field; null for what it does not have.
    fn observed(&self, _: &Stored) -> Result<Vec<(&'static str, Value)>, StoreError> {
        Ok(Vec::new())
    }

    /// What its status notes of how its artifact was verified: with anything else in it, the artifact is to be verified again.
    /// Empty where nothing is verified.
    fn verdict(&self, _: &Stored, _: &SourceSecrets) -> Result<Vec<(&'static str, Value)>, StoreError> {
        Ok(Vec::new())
    }

    /// Why what is fetched cannot be verified as its spec asks for it, whatever that is.
    fn unverifiable(&self, _: &Stored, _: &SourceSecrets) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Why the spec and its Secret do not fit together, whatever stands in either.
    fn misfit(&self, _: &Stored, _: &SourceSecrets) -> Result<Option<Misfit>, StoreError> {
        Ok(None)
    }

    /// The source as its spec asks for it, or what is wrong with one of its Secrets.
    fn source(&self, asked: Asked<'_>) -> Result<Result<Box<dyn Source>, String>, StoreError>;
}

/// What does not fit together.
struct Misfit {
    message: String,
    /// Only another spec changes it.
    is_stalled: bool,
}

/// What is known of a source that is to be fetched, whatever its kind.
struct Asked<'a> {
    stored: &'a Stored,
    spec: &'a SourceSpec,
    /// The revision to which somebody is pinned, in the place of what the spec's reference points to.
    pinned: Option<&'a Revision>,
    /// What it comes from: of a chart.
    origin: Option<&'a Origin>,
    /// What is put into its artifact.
    include: Vec<Include>,
    /// What its spec names.
    secrets: &'a SourceSecrets,
    /// What it may connect to although the hub's policy does not allow it.
    tolerated: Option<Authority>,
    /// Bytes of its files.
    most_bytes: u64,
    options: &'a HubOptions,
    /// Tokens of GitHub Apps.
    app_tokens: &'a Tokens,
    /// Its server, as this process last found it.
    known: Known,
    /// Where indexes of Helm repositories are stored: of one of those.
    indexes: Option<Arc<dyn Indexes>>,
}

/// The reason of a source of this kind that cannot be fetched, where nothing closer is known.
pub(crate) fn failed(of: KindId) -> Reason {
    let other =
        if of == KindId::ExternalArtifact { Reason::ArtifactFailed } else { Reason::GitOperationFailed };
    kind(of).map_or(other, SourceKind::failed)
}

/// The kinds that are fetched: those that the registry says are sources and are reconciled.
fn kind(kind: KindId) -> Option<&'static dyn SourceKind> {
    match kind {
        KindId::GitRepository => Some(&git::Git),
        KindId::OciRepository => Some(&oci::Oci),
        KindId::Bucket => Some(&bucket::Buckets),
        KindId::HelmRepository => Some(&helm_repository::HelmRepositories),
        KindId::HelmChart => Some(&helm_chart::HelmCharts),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::kind;
    use roadstead_api::{KindId, PipelineRole};

    #[test]
    fn sources_that_the_registry_says_are_reconciled_are_fetched() {
        for id in KindId::of_role(PipelineRole::Source) {
            // Of that kind others bring the artifacts.
            let fetched = id.get().reconciled && id != KindId::ExternalArtifact;
            assert_eq!(kind(id).is_some(), fetched, "{id}");
        }
    }
}
