//! A body as it comes: a little of it in memory, more in a file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use roadstead_budget::Pool;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use super::desk::{Answer, Body};
use super::spool::Spool;

/// So many bytes stay in memory while they come.
const SMALL: usize = 64 << 10;

/// What came so far.
pub(crate) struct Kept {
    memory: Vec<u8>,
    /// So many bytes stay there.
    small: usize,
    file: Option<tokio::fs::File>,
    length: u64,
    spool: Spool,
}

/// Why more is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    /// What all fetches may have of the disk is in use.
    #[error("there is no room for temporary files")]
    NoDisk,
    /// The temporary folder cannot be used.
    #[error("temporary folder: {0}")]
    Io(#[from] io::Error),
}

impl Kept {
    pub(crate) fn new(place: Option<PathBuf>, disk: Option<Pool>) -> Self {
        Self { memory: Vec::new(), small: SMALL, file: None, length: 0, spool: Spool::new(place, disk) }
    }

    /// The same, of which nothing stays in memory: for what so many may send at once that even little of each is much.
    pub(crate) fn in_file(self) -> Self {
        Self { small: 0, ..self }
    }

    /// How many bytes came.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) async fn take(&mut self, data: &[u8]) -> Result<(), NotKept> {
        self.length += data.len() as u64;
        if self.file.is_none() && self.memory.len() + data.len() <= self.small {
            self.memory.extend_from_slice(data);
            return Ok(());
        }
        let memory = std::mem::take(&mut self.memory);
        self.spool.make_room(memory.len() + data.len()).map_err(|_| NotKept::NoDisk)?;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tokio::fs::File::from_std(self.spool.file()?),
        };
        for part in [memory.as_slice(), data] {
            file.write_all(part).await?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// All of it in memory.
    pub(crate) async fn into_bytes(self) -> io::Result<Vec<u8>> {
        let Some(mut file) = self.file else { return Ok(self.memory) };
        file.flush().await?;
        file.seek(io::SeekFrom::Start(0)).await?;
        let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or_default());
        file.take(self.length).read_to_end(&mut bytes).await?;
        Ok(bytes)
    }

    /// As an answer for readers. What of it is in a file goes with the spool.
    pub(crate) async fn into_answer(self) -> io::Result<KeptAnswer> {
        let body = match self.file {
            None => Body::Memory(self.memory),
            Some(mut file) => {
                file.flush().await?;
                Body::File(Arc::new(file.into_std().await))
            }
        };
        let answer = Answer { heading: String::new(), body };
        Ok(KeptAnswer { answer, length: self.length, spool: self.spool })
    }
}

/// A body that is there.
pub(crate) struct KeptAnswer {
    pub(crate) answer: Answer,
    /// How many bytes it has.
    pub(crate) length: u64,
    /// To be held as long as the answer is read.
    pub(crate) spool: Spool,
}
