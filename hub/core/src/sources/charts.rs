//! What a HelmChart comes from: a HelmRepository, or a chart in the artifact of another source, of its own namespace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use roadstead_api::source::{HelmChartSourceKind, HelmChartSpec, HelmRepositoryType};
use roadstead_api::{AnySource, AnySourceStatus, HelmChart, HelmRepository, KindId, SourceSpec};
use roadstead_budget::MemoryBudget;
use roadstead_hub_store::{Store, Stored};
use roadstead_model::{Digest, Reason, Revision, chain};
use roadstead_sources::git;
use roadstead_sources::helm::{AskedTogether, Indexes, KnownVersions, Repositories};
use serde_json::Value;

use crate::HubError;
use crate::sources::Sources;
use crate::sources::includes::Blob;
use crate::sources::lenders::Lenders;

/// What is known of indexes may take this part of the process's memory.
const PART: u64 = 64;

/// What the status has of the revision of what a chart comes from.
pub(super) const OBSERVED_REVISION: &str = "observedSourceArtifactRevision";
/// What it has of the chart's name.
pub(super) const OBSERVED_NAME: &str = "observedChartName";
/// What it has of the files of values that were merged.
pub(super) const OBSERVED_VALUES: &str = "observedValuesFiles";

/// What a chart comes from.
pub(super) struct Origin {
    /// The source.
    pub(super) stored: Stored,
    /// Its artifact; none of a registry, which has none.
    pub(super) artifact: Option<Arc<dyn git::Stored>>,
    /// The revision of that.
    pub(super) revision: Option<String>,
    /// What the chart's status noted of it, and of the chart.
    pub(super) noted: Noted,
    /// Where charts come from that it depends on.
    pub(super) repositories: Arc<dyn Repositories>,
    /// What is known of the versions in its index.
    pub(super) together: AskedTogether,
}

/// What a chart's status says of its artifact.
#[derive(Default)]
pub(super) struct Noted {
    pub(super) revision: Option<String>,
    pub(super) name: Option<String>,
}

impl Noted {
    fn of(status: Option<&AnySourceStatus>) -> Self {
        let text = |field: &str| {
            let value = status.and_then(|status| status.more.get(field));
            value.and_then(Value::as_str).map(str::to_owned)
        };
        Self { revision: text(OBSERVED_REVISION), name: text(OBSERVED_NAME) }
    }
}

impl Origin {
    /// Whether it is what the chart's artifact was made of. Of a registry that is not known before it is asked.
    pub(super) fn is_settled(&self) -> bool {
        self.revision.is_some() && self.revision == self.noted.revision
    }

    /// What the chart's status is to note of it.
    pub(super) fn told(&self) -> Vec<(&'static str, Value)> {
        vec![(OBSERVED_REVISION, self.revision.clone().map_or(Value::Null, Value::String))]
    }

    /// Has the chart be fetched from where its repository is, with that one's Secrets and in its time.
    pub(super) fn lend(&self, spec: &mut SourceSpec) -> Result<(), HubError> {
        if self.stored.kind != KindId::HelmRepository {
            return Ok(());
        }
        let own = self.stored.decode::<AnySource>()?.spec;
        spec.url = own.url;
        spec.timeout = own.timeout;
        spec.secret_ref = own.secret_ref;
        spec.cert_secret_ref = own.cert_secret_ref;
        Ok(())
    }
}

/// Whether a HelmRepository is a registry: there is nothing to do for it, and it has no status.
pub(super) fn is_registry(repository: &HelmRepository) -> bool {
    repository.spec.type_ == Some(HelmRepositoryType::Oci)
}

impl Sources {
    /// What a chart comes from, as it is now, or the reason and the message of its conditions; none of another kind of source.
    pub(super) async fn origin_of(
        &self,
        stored: &Stored,
        status: Option<&AnySourceStatus>,
    ) -> Result<Result<Option<Origin>, (Reason, String)>, HubError> {
        if stored.kind != KindId::HelmChart {
            return Ok(Ok(None));
        }
        let spec = stored.decode::<HelmChart>()?.spec;
        let from = &spec.source_ref;
        let kind = match from.kind {
            HelmChartSourceKind::HelmRepository => KindId::HelmRepository,
            HelmChartSourceKind::GitRepository => KindId::GitRepository,
            HelmChartSourceKind::Bucket => KindId::Bucket,
        };
        let Some(found) = self.store.get(kind, &stored.namespace, &from.name).await? else {
            let message =
                format!("failed to get source: {kind} '{}/{}' not found", stored.namespace, from.name);
            return Ok(Err((Reason::SourceUnavailable, message)));
        };
        let noted = Noted::of(status);
        let repositories: Arc<dyn Repositories> = Arc::new(Lenders::new(self, &stored.namespace));
        if kind == KindId::HelmRepository && is_registry(&found.decode()?) {
            return Ok(Ok(Some(Origin {
                stored: found,
                artifact: None,
                revision: None,
                noted,
                repositories,
                together: AskedTogether::default(),
            })));
        }
        let artifact = found.decode::<AnySource>()?.status.and_then(|status| status.source.artifact);
        let digest: Option<Digest> = artifact.as_ref().and_then(|artifact| artifact.digest.parse().ok());
        match artifact.zip(digest) {
            Some((artifact, digest)) if self.store.has_blob(digest).await? => {
                let blob: Arc<dyn git::Stored> = Arc::new(Blob::new(self, digest));
                let revision = Some(artifact.revision);
                let mut origin = Origin {
                    stored: found,
                    artifact: Some(blob),
                    revision,
                    noted,
                    repositories,
                    together: AskedTogether::default(),
                };
                if kind == KindId::HelmRepository && !origin.is_settled() {
                    origin.together = self.asked_together(&origin.stored, digest, &spec).await?;
                }
                Ok(Ok(Some(origin)))
            }
            _ => {
                let message = format!("no artifact available for {kind} source '{}'", from.name);
                Ok(Err((Reason::NoSourceArtifact, message)))
            }
        }
    }

    /// What is known of an index, and which other charts are taken of it: where nobody has looked for this one yet, they are looked up with it.
    async fn asked_together(
        &self,
        repository: &Stored,
        index: Digest,
        spec: &HelmChartSpec,
    ) -> Result<AskedTogether, HubError> {
        let known = self.known_versions.of(index);
        let version = spec.version.as_deref().unwrap_or_default();
        let others = if known.knows(&spec.chart, version) {
            Vec::new()
        } else {
            self.store.charts_of(&repository.namespace, &repository.name).await?
        };
        Ok(AskedTogether { known, others })
    }
}

/// What is known of the versions in indexes, by their digests.
#[derive(Debug)]
pub(super) struct KnownIndexes {
    most: usize,
    of: Mutex<HashMap<Digest, KnownVersions>>,
}

impl KnownIndexes {
    pub(super) fn new(budget: &MemoryBudget) -> Self {
        let most = budget.total() / PART / KnownVersions::MOST as u64;
        Self { most: usize::try_from(most).unwrap_or(usize::MAX).max(1), of: Mutex::default() }
    }

    fn of(&self, index: Digest) -> KnownVersions {
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= self.most && !all.contains_key(&index) {
            // Each of them is read once more.
            all.clear();
        }
        all.entry(index).or_default().clone()
    }
}

/// Indexes of Helm repositories where they are stored.
struct StoredIndexes {
    store: Store,
    blob: Blob,
}

impl std::fmt::Debug for StoredIndexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredIndexes").finish_non_exhaustive()
    }
}

#[async_trait]
impl Indexes for StoredIndexes {
    async fn at(&self, revision: &Revision) -> Option<Arc<dyn git::Stored>> {
        // The revision of an index is its digest.
        let digest: Digest = revision.to_string().parse().ok()?;
        match self.store.has_blob(digest).await {
            Ok(true) => Some(Arc::new(self.blob.of(digest))),
            Ok(false) => None,
            Err(error) => {
                // It is received once more then.
                tracing::error!(%digest, error = chain(&error), "could not look for a stored index");
                None
            }
        }
    }
}

pub(super) fn stored_indexes(sources: &Sources) -> Arc<dyn Indexes> {
    Arc::new(StoredIndexes { store: sources.store.clone(), blob: Blob::new(sources, Digest::of(b"")) })
}
