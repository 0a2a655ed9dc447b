//! Builds on their way to agents: only those of dispatches that are open for the agent's cluster, in parts, each in memory
//! that was reserved for it.

use roadstead_budget::{PoolName, Reservation};
use roadstead_hub_store::Store;
use roadstead_model::Digest;

use crate::{Hub, HubError, Session};

/// A sealed build is opened as a whole: what is stored, its parts, and what comes out are there at once.
const SEALED_COPIES: u64 = 4;
/// A part, and the message that it is copied into.
const PLAIN_COPIES: u64 = 2;

/// A build that is read part by part.
pub struct BuildReader {
    store: Store,
    digest: Digest,
    size: usize,
    at: i32,
    /// The build, where it had to be read as a whole.
    whole: Option<Vec<u8>>,
    _reserved: Reservation,
}

impl Hub {
    /// A build, packed, where a dispatch that is open for the session's cluster has it. None for everything else, whether
    /// it is stored or not, so that nobody learns what others have. Waits until there is memory for it.
    ///
    /// # Errors
    /// Where the database fails, or the build is larger than all the memory for builds on their way.
    pub async fn open_build(
        &self,
        session: &Session,
        digest: Digest,
    ) -> Result<Option<BuildReader>, HubError> {
        let Some(head) = self.store.open_build(session.cluster, session.id, digest).await? else {
            return Ok(None);
        };
        let bytes = if head.sealed {
            head.bytes as u64 * SEALED_COPIES
        } else {
            head.bytes.min(Store::BLOB_PART) as u64 * PLAIN_COPIES
        };
        let reserved = self.options.budget.pool(PoolName::Blobs).reserve(bytes).await;
        let reserved = reserved.map_err(|error| HubError::Internal(format!("send a build: {error}")))?;
        let (mut size, mut whole) = (head.bytes, None);
        if head.sealed {
            let Some(bytes) = self.store.blob(digest).await? else { return Ok(None) };
            size = bytes.len();
            whole = Some(bytes);
        }
        let store = self.store.clone();
        Ok(Some(BuildReader { store, digest, size, at: 0, whole, _reserved: reserved }))
    }
}

impl BuildReader {
    /// Bytes of the whole, packed.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The next part; none where all was read, or the rest is not stored any more.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, HubError> {
        let at = self.at;
        self.at += 1;
        match &mut self.whole {
            Some(whole) => Ok((at == 0).then(|| std::mem::take(whole))),
            None => Ok(self.store.blob_part(self.digest, at).await?),
        }
    }
}
