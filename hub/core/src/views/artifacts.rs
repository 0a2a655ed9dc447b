//! Artifacts of sources, for whoever may read the source.

use jiff::Timestamp;
use roadstead_api::{AnySource, KindId};
use roadstead_budget::{PoolName, Reservation};
use roadstead_hub_store::SourceArtifact;
use roadstead_model::{Digest, Revision};

use crate::HubError;
use crate::identity::Identity;
use crate::views::Views;

/// Which artifact of a source is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichArtifact {
    /// The one that its status names.
    Current,
    /// The one with this digest.
    Digest(Digest),
    /// The one of this revision, whatever branch or tag that was found by.
    Revision(Revision),
    /// The one that was the newest at this time.
    At(Timestamp),
}

/// An artifact that is stored.
#[derive(Debug, Clone)]
pub struct ArtifactHead {
    /// Its digest, that of its bytes.
    pub digest: Digest,
    /// The revision that it was made of.
    pub revision: String,
    /// When it was stored.
    pub stored: Timestamp,
    bytes: u64,
}

/// All of an artifact: a tar, packed by gzip.
pub struct ArtifactBytes {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The memory that they take: held for as long as they are.
    pub memory: Reservation,
}

impl Views {
    /// Which artifact of a source that is.
    ///
    /// # Errors
    /// `NotFound` where there is no such source, or none of its artifacts is that or is still stored; where `who` may not read the source.
    pub async fn artifact(
        &self,
        who: &Identity,
        (kind, namespace, name): (&str, &str, &str),
        which: &WhichArtifact,
    ) -> Result<ArtifactHead, HubError> {
        let kind = KindId::named(kind)
            .filter(|kind| kind.is_source())
            .ok_or_else(|| HubError::NotFound { what: format!("kind of source \"{kind}\"") })?;
        who.authorize("get", kind.get(), "", namespace, name)?;
        let what = || format!("{} \"{name}\"", kind.get().qualified());
        let Some(source) = self.store.get(kind, namespace, name).await? else {
            return Err(HubError::NotFound { what: what() });
        };
        let uid = source.uid;
        let found = match which {
            WhichArtifact::Current => {
                let artifact = source.decode::<AnySource>()?.status.unwrap_or_default().source.artifact;
                match artifact.and_then(|artifact| artifact.digest.parse().ok()) {
                    Some(digest) => self.store.source_artifact_of(uid, digest).await?,
                    None => None,
                }
            }
            WhichArtifact::Digest(digest) => self.store.source_artifact_of(uid, *digest).await?,
            WhichArtifact::Revision(revision) => self.store.source_artifact_at(uid, revision).await?,
            WhichArtifact::At(at) => self.store.source_artifact_before(uid, *at).await?,
        };
        let Some(SourceArtifact { digest, revision, stored, bytes }) = found else {
            return Err(HubError::NotFound { what: format!("such an artifact of {}", what()) });
        };
        Ok(ArtifactHead { digest, revision, stored, bytes })
    }

    /// The bytes of an artifact. Waits until there is memory for them.
    ///
    /// # Errors
    /// `NotFound` where it is no longer stored; `TooLarge` where it is larger than all the memory for such; where the database fails.
    pub async fn artifact_bytes(&self, head: &ArtifactHead) -> Result<ArtifactBytes, HubError> {
        let pool = self.budget.pool(PoolName::Blobs);
        // It is opened as a whole, in its place; and then there is what is on its way.
        let reserved = pool.reserve(head.bytes.saturating_mul(2)).await;
        let memory = reserved.map_err(|error| HubError::TooLarge(error.to_string()))?;
        let bytes = self.store.blob(head.digest).await?;
        let bytes = bytes.ok_or_else(|| HubError::NotFound { what: format!("artifact {}", head.digest) })?;
        Ok(ArtifactBytes { bytes, memory })
    }
}
