//! Artifacts that are uploaded: taken from whoever may write the ExternalArtifact, looked at in a worker, stored, and named in its
//! status.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use roadstead_api::{Artifact, KindId};
use roadstead_hub_store::Stored;
use roadstead_model::{Digest, Revision};
use roadstead_sources::TreeLimits;
use roadstead_sources::upload::{Intake, UploadError, UploadLimits, Uploaded};
use tokio_util::sync::CancellationToken;

use crate::HubError;
use crate::address::named;
use crate::identity::{Identity, audit};
use crate::objects::quota;
use crate::objects::triggers::generator_of;
use crate::sources::Sources;
use crate::sources::external::{Named, Naming, forbidden};
use crate::sources::fetch::{self, Subject};
use crate::sources::pass::LOGGER;
use crate::workers::Workers;

/// Bytes of an artifact, where there is memory for more.
const MOST: u64 = 256 << 20;
/// Uploads that are looked at and stored at once; what waits for its body is none.
pub(super) const AT_ONCE: usize = 8;
/// What is said of an artifact that was uploaded.
pub(super) const STORED: &str = "stored artifact for revision";

/// What whoever uploads says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its revision.
    pub revision: Revision,
    /// The digest of its bytes.
    pub digest: Digest,
}

impl Sources {
    /// How many bytes an artifact may have that is uploaded.
    ///
    /// # Errors
    /// Where this process has no workers.
    pub fn most_of_an_upload(&self) -> Result<u64, HubError> {
        Ok(limits(self.workers()?).bytes)
    }

    /// Takes an artifact for an ExternalArtifact, as the next that its users deploy. The body is asked for once it is known that it is
    /// wanted. Gives what the status says of it then.
    ///
    /// # Errors
    /// Where `who` may not do that, or there is no such ExternalArtifact; where it is not what was claimed, no artifact, or too large.
    pub async fn upload(
        &self,
        who: &Identity,
        (namespace, name): (&str, &str),
        claimed: &Claimed,
        body: impl Stream<Item = Result<Bytes, HubError>> + Send,
    ) -> Result<Artifact, HubError> {
        let kind = KindId::ExternalArtifact;
        who.authorize("update", kind.get(), "artifact", namespace, name)?;
        let found = self.store.get(kind, namespace, name).await?;
        let found = found.filter(|found| found.deletion_timestamp.is_none());
        let stored = found.ok_or_else(|| HubError::NotFound { what: named(kind.get(), name) })?;
        if let Some(maker) = generator_of(&stored) {
            let why = format!("its artifacts are made by the ArtifactGenerator with the uid {maker}");
            return Err(HubError::Conflict { what: named(kind.get(), name), why });
        }
        let workers = self.workers()?;
        let limits = limits(workers);
        let uploaded = receive(workers, &limits, body).await?;
        if uploaded.digest() != claimed.digest {
            return Err(HubError::BadRequest(format!(
                "the artifact that came has the digest {}, and {} was announced: nothing was stored",
                uploaded.digest(),
                claimed.digest
            )));
        }
        let _place = self.upload_places.try_acquire().map_err(|_| {
            HubError::TooMany("too many artifacts are being uploaded; try again later".to_owned())
        })?;
        self.look(&stored, &uploaded, &limits.tree).await?;
        let (bytes, _held) = uploaded.read(&fetch::room(workers)).await.map_err(refused)?;
        let size = bytes.len() as u64;
        quota::has_room(&self.store, namespace, Some(stored.uid), size)
            .await?
            .map_err(|why| forbidden(&stored, &why))?;
        let now = self.clock.now();
        self.store.put_artifact(claimed.digest, &bytes, now).await?;
        drop(bytes);
        self.take_in(who, &stored, claimed, uploaded.bytes()).await
    }

    /// Has a worker say whether it is an artifact.
    async fn look(&self, stored: &Stored, uploaded: &Uploaded, tree: &TreeLimits) -> Result<(), HubError> {
        let what = Subject { namespace: &stored.namespace, name: "upload".to_owned(), is_asked_for: false };
        let readers = self.readers(what)?;
        let looked = uploaded.look(tree, &readers, &CancellationToken::new()).await;
        readers.finish()?;
        looked.map(|_| ()).map_err(refused)
    }

    /// Makes it the artifact that the status names, with all that follows from it, unless the object is another one by now.
    async fn take_in(
        &self,
        who: &Identity,
        seen: &Stored,
        claimed: &Claimed,
        size: u64,
    ) -> Result<Artifact, HubError> {
        let is_kept = self.store.source_artifact_of(seen.uid, claimed.digest).await?.is_some();
        let mut tx = self.store.begin().await?;
        let found = tx.get_by_uid(seen.uid).await?.filter(|found| found.deletion_timestamp.is_none());
        let Some(mut stored) = found else {
            return Err(HubError::NotFound { what: named(seen.kind.get(), &seen.name) });
        };
        let Claimed { revision, digest } = claimed;
        let message = format!("{STORED} '{revision}'");
        let metadata = BTreeMap::new();
        let artifact = Named { revision, digest: *digest, size, metadata, message };
        let Naming { artifact, users, .. } =
            self.name_artifact(&mut tx, &mut stored, artifact, is_kept).await?;
        let mut entry = audit::about(who, "upload", stored.kind, &stored.namespace, &stored.name);
        entry.detail = format!("revision {revision}, {digest}");
        tx.note(&entry).await?;
        tx.commit().await?;
        if let Some(users) = users {
            self.wake_new_users(&stored, &users).await?;
        }
        tracing::info!(
            target: LOGGER,
            kind = %stored.kind,
            source = format!("{}/{}", stored.namespace, stored.name),
            revision = revision.to_string(),
            "stored artifact"
        );
        Ok(artifact)
    }
}

/// What an upload may have: what a fetched artifact may have, in memory and to those who build.
fn limits(workers: &Workers) -> UploadLimits {
    let room = fetch::room(workers);
    UploadLimits { bytes: MOST.min(room.pool.size() / room.copies), tree: TreeLimits::default() }
}

async fn receive(
    workers: &Workers,
    limits: &UploadLimits,
    body: impl Stream<Item = Result<Bytes, HubError>> + Send,
) -> Result<Uploaded, HubError> {
    let disk = workers.uploads.clone();
    let mut intake = Intake::new(limits.bytes, Some(disk), None);
    let mut body = std::pin::pin!(body);
    while let Some(piece) = body.next().await {
        intake.take(&piece?).await.map_err(refused)?;
    }
    intake.finish().await.map_err(refused)
}

fn refused(error: UploadError) -> HubError {
    match error {
        UploadError::TooLarge { .. } | UploadError::NoMemory(_) => HubError::TooLarge(error.to_string()),
        UploadError::NoDisk => HubError::TooMany(error.to_string()),
        UploadError::NotAnArtifact(why) => HubError::BadRequest(why),
        UploadError::Ended { transient: true, .. } => HubError::Unavailable(error.to_string()),
        UploadError::Ended { .. } => HubError::BadRequest(error.to_string()),
        UploadError::Internal(_) => HubError::Internal(error.to_string()),
    }
}
