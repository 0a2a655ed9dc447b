//! Builds on their way to agents: only those of dispatches that are open for the agent's cluster, in parts, each in memory
//! that was reserved for it.

use std::collections::VecDeque;

use roadstead_budget::{PoolName, Reservation};
use roadstead_hub_store::Store;
use roadstead_model::Digest;

use crate::HubError;
use crate::clusters::Session;
use crate::delivery::{Builds, Delivery};

/// A sealed build is opened as a whole, in its place, and then cut into parts.
const SEALED_COPIES: u64 = 2;
/// What sealing adds to a build, and more.
const SEAL: usize = 64;
/// A part, and the message that it is copied into.
const PLAIN_COPIES: u64 = 2;
/// A build of so many bytes is read at once.
const SMALL: usize = 32 * 1024;
/// An opened build's parts.
const PART: usize = 256 * 1024;

/// A build that an agent may have.
enum Opened {
    /// It is here.
    Build(Box<BuildReader>),
    /// It is sealed, and not in this replica's memory.
    Elsewhere,
}

/// A build that is read part by part.
pub struct BuildReader {
    store: Store,
    digest: Digest,
    size: usize,
    at: i32,
    /// The parts of the build that are left, where it was read as a whole.
    opened: Option<VecDeque<Vec<u8>>>,
    reserved: Reservation,
}

impl Delivery {
    /// A build, packed, where a dispatch that is open for the session's cluster has it. None for everything else, whether
    /// it is stored or not, so that nobody learns what others have. Waits until there is memory for it.
    ///
    /// # Errors
    /// [`HubError::TooLarge`] where it has more than `most` bytes, or is larger than all the memory for builds on their way;
    /// else where the database fails.
    pub async fn open_build(
        &self,
        session: &Session,
        digest: Digest,
        most: usize,
    ) -> Result<Option<BuildReader>, HubError> {
        match self.builds.open(session, digest, most).await? {
            None => return Ok(None),
            Some(Opened::Build(build)) => return Ok(Some(*build)),
            Some(Opened::Elsewhere) => {}
        }
        // Another replica made it, or this one had no room for it any more.
        if !self.builds.may_make_again(digest) {
            return Ok(None);
        }
        let Some(applier) = self.store.applier_of_build(session.cluster, digest).await? else {
            return Ok(None);
        };
        self.render_again(applier, session.cluster).await?;
        match self.builds.open(session, digest, most).await? {
            Some(Opened::Build(build)) => Ok(Some(*build)),
            // Something has changed since it was dispatched, and another dispatch follows.
            Some(Opened::Elsewhere) | None => Ok(None),
        }
    }
}

impl Builds {
    async fn open(&self, session: &Session, digest: Digest, most: usize) -> Result<Option<Opened>, HubError> {
        // Most builds are small: those are there with one question.
        let pool = self.options.budget.pool(PoolName::Blobs);
        let reserve = async |bytes: u64| {
            let reserved = pool.reserve(bytes).await;
            reserved.map_err(|error| HubError::TooLarge(error.to_string()))
        };
        let small = reserve(SMALL as u64 * PLAIN_COPIES).await?;
        let Some((head, whole)) =
            self.store.open_build(session.cluster, session.id, digest, SMALL.min(most)).await?
        else {
            return Ok(None);
        };
        let too_large =
            |bytes| HubError::TooLarge(format!("it has {bytes} bytes compressed, at most {most} are sent"));
        if head.bytes == 0 {
            // Only its name is stored.
            drop(small);
            let Some(packed) = self.sealed(digest) else { return Ok(Some(Opened::Elsewhere)) };
            let size = packed.len();
            if size > most {
                return Err(too_large(size));
            }
            // It may be pushed out of memory while it is sent: what is sent is a copy.
            let reserved = reserve((size + 2 * PART) as u64).await?;
            let opened = Some(packed.chunks(PART).map(<[u8]>::to_vec).collect());
            let store = self.store.clone();
            return Ok(Some(Opened::Build(Box::new(BuildReader {
                store,
                digest,
                size,
                at: 0,
                opened,
                reserved,
            }))));
        }
        // Before memory is reserved for it.
        if head.bytes > most + if head.sealed { SEAL } else { 0 } {
            return Err(too_large(head.bytes));
        }
        let bytes = if head.sealed {
            head.bytes as u64 * SEALED_COPIES
        } else {
            head.bytes.min(Store::BLOB_PART) as u64 * PLAIN_COPIES
        };
        let (mut size, mut opened) = (head.bytes, None);
        let reserved = if let Some(whole) = whole {
            opened = Some(VecDeque::from([whole]));
            small
        } else {
            // Given back first: nobody waits for memory while it holds some.
            drop(small);
            reserve(bytes).await?
        };
        if head.sealed {
            let Some(bytes) = self.store.blob(digest).await? else { return Ok(None) };
            size = bytes.len();
            if size > most {
                return Err(too_large(size));
            }
            opened = Some(bytes.chunks(PART).map(<[u8]>::to_vec).collect());
        }
        let store = self.store.clone();
        let mut reader = BuildReader { store, digest, size, at: 0, opened, reserved };
        reader.give_back();
        Ok(Some(Opened::Build(Box::new(reader))))
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
        let Some(parts) = &mut self.opened else {
            let at = self.at;
            self.at += 1;
            return Ok(self.store.blob_part(self.digest, at).await?);
        };
        let part = parts.pop_front();
        self.give_back();
        Ok(part)
    }

    /// Of what is opened only as much is held as is left, with the part that is on its way.
    fn give_back(&mut self) {
        if let Some(parts) = &self.opened {
            let left: usize = parts.iter().map(Vec::len).sum();
            self.reserved.shrink_to((left + 2 * PART) as u64);
        }
    }
}
