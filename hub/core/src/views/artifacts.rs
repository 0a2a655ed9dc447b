//! Artifacts of sources, for whoever may read the source.

use jiff::Timestamp;
use roadstead_api::{AnySource, KindId};
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

impl WhichArtifact {
    /// For people.
    fn shown(&self) -> String {
        match self {
            Self::Current => "artifact".to_owned(),
            Self::Digest(digest) => format!("artifact {digest}"),
            Self::Revision(revision) => format!("artifact of revision {revision}"),
            Self::At(at) => format!("artifact from before {at}"),
        }
    }
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
    /// Bytes as it is stored, which are a few more than it has.
    pub bytes: u64,
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
            return Err(HubError::NotFound { what: format!("{} of {}", which.shown(), what()) });
        };
        Ok(ArtifactHead { digest, revision, stored, bytes })
    }

    /// The bytes of an artifact: a tar, packed by gzip. The caller sets memory aside for as many as [`ArtifactHead::bytes`] says.
    ///
    /// # Errors
    /// `Unavailable` where its bytes are lost, or are not to be had now; where the database fails.
    pub async fn artifact_bytes(&self, head: &ArtifactHead) -> Result<Vec<u8>, HubError> {
        let bytes = self.store.blob(head.digest).await?;
        // There was one a moment ago.
        bytes.ok_or_else(|| {
            let digest = head.digest;
            HubError::Unavailable(format!(
                "the bytes of artifact {digest} are not stored any more; its source is fetched again where they were lost: try again"
            ))
        })
    }
}
