//! What a HelmChart comes from: a HelmRepository, or a chart in the artifact of another source, of its own namespace.

use std::sync::Arc;

use roadstead_api::source::{HelmChartSourceKind, HelmRepositoryType};
use roadstead_api::{AnySource, AnySourceStatus, HelmChart, HelmRepository, KindId, SourceSpec};
use roadstead_hub_store::Stored;
use roadstead_model::{Digest, Reason};
use roadstead_sources::git;
use serde_json::Value;

use crate::HubError;
use crate::sources::Sources;
use crate::sources::includes::Blob;

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
        let from = stored.decode::<HelmChart>()?.spec.source_ref;
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
        if kind == KindId::HelmRepository && is_registry(&found.decode()?) {
            return Ok(Ok(Some(Origin { stored: found, artifact: None, revision: None, noted })));
        }
        let artifact = found.decode::<AnySource>()?.status.and_then(|status| status.source.artifact);
        let digest: Option<Digest> = artifact.as_ref().and_then(|artifact| artifact.digest.parse().ok());
        match artifact.zip(digest) {
            Some((artifact, digest)) if self.store.has_blob(digest).await? => {
                let blob: Arc<dyn git::Stored> = Arc::new(Blob::new(self, digest));
                let revision = Some(artifact.revision);
                Ok(Ok(Some(Origin { stored: found, artifact: Some(blob), revision, noted })))
            }
            _ => {
                let message = format!("no artifact available for {kind} source '{}'", from.name);
                Ok(Err((Reason::NoSourceArtifact, message)))
            }
        }
    }
}
