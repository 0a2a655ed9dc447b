//! What the sources of an ArtifactGenerator hold now.

use roadstead_api::{AnySource, ArtifactGeneratorSpec, GeneratorSource, GeneratorSourceKind, KindId};
use roadstead_hub_store::Stored;
use roadstead_model::{Digest, Reason};

use super::{Failure, Generators};
use crate::HubError;
use crate::objects::conditions;

/// The annotation by which an artifact says what it was made of.
pub(super) const ORIGIN: &str = "org.opencontainers.image.revision";

/// What a source holds.
#[derive(Debug, Clone)]
pub(super) struct Gathered {
    pub(super) alias: String,
    pub(super) digest: Digest,
    pub(super) revision: String,
    pub(super) url: String,
    /// The revision of what it was made of itself.
    pub(super) origin: Option<String>,
    /// Somebody has looked at it since the database was restored.
    pub(super) is_seen: bool,
}

/// What all of them hold, in the order of the spec.
pub(super) type Found = Vec<Gathered>;

impl Generators {
    /// What its sources hold; or why one of them is of no use.
    pub(super) async fn gather(
        &self,
        generator: &Stored,
        spec: &ArtifactGeneratorSpec,
    ) -> Result<Result<Found, Failure>, HubError> {
        let mut found = Vec::with_capacity(spec.sources.len());
        for source in &spec.sources {
            match self.source(generator, source).await? {
                Ok(one) => found.push(one),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        Ok(Ok(found))
    }

    async fn source(
        &self,
        generator: &Stored,
        source: &GeneratorSource,
    ) -> Result<Result<Gathered, Failure>, HubError> {
        let kind = kind(source.kind);
        let namespace = source.namespace.as_deref().unwrap_or(&generator.namespace);
        let full = format!("{kind} {namespace}/{}", source.name);
        let denied = |why: &str| Ok(Err(Failure::new(Reason::AccessDenied, format!("source {full} {why}"))));
        let missing =
            |why: &str| Ok(Err(Failure::new(Reason::SourceFetchFailed, format!("source {full}: {why}"))));
        if let Err(why) = self.access.may_use_in(generator, namespace).await? {
            return denied(&why);
        }
        let Some(stored) = self.store.get(kind, namespace, &source.name).await? else {
            return missing("not found");
        };
        if let Err(why) = self.access.may_use(generator, &stored).await? {
            return denied(&why);
        }
        let status = stored.decode::<AnySource>()?.status.unwrap_or_default().source;
        let Some(artifact) = status.artifact else {
            let why = conditions::ready(&status.conditions)
                .map_or("it has not been fetched yet", |ready| ready.message.as_str());
            return missing(&format!("it has no artifact: {why}"));
        };
        let Ok(digest) = artifact.digest.parse::<Digest>() else {
            return missing("its status cannot be parsed");
        };
        let is_its_own = match kind {
            // Others may write its status.
            KindId::ExternalArtifact => self.store.source_artifact_of(stored.uid, digest).await?.is_some(),
            _ => self.store.has_blob(digest).await?,
        };
        if !is_its_own {
            return missing(&format!("artifact {digest} is not stored, or no longer stored"));
        }
        Ok(Ok(Gathered {
            alias: source.alias.clone(),
            digest,
            origin: artifact.metadata.get(ORIGIN).cloned(),
            revision: artifact.revision,
            url: artifact.url,
            is_seen: !self.store.is_unseen(stored.uid).await?,
        }))
    }
}

fn kind(kind: GeneratorSourceKind) -> KindId {
    match kind {
        GeneratorSourceKind::Bucket => KindId::Bucket,
        GeneratorSourceKind::GitRepository => KindId::GitRepository,
        GeneratorSourceKind::OciRepository => KindId::OciRepository,
        GeneratorSourceKind::HelmChart => KindId::HelmChart,
        GeneratorSourceKind::ExternalArtifact => KindId::ExternalArtifact,
    }
}
