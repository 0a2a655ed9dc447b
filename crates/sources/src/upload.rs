//! An artifact that somebody brings: taken piece by piece, hashed on the way, and looked at where an [`Engine`]
//! says before it is of any use.
//!
//! It is kept as it came, so that its digest is the one that its author knows. Looking at it finds out whether it is an artifact at
//! all: whoever unpacks it later does so by the same rules.

use std::io::{self, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use roadstead_budget::{Exhausted, Pool, Reservation};
use roadstead_model::{Digest, Hasher, chain};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::artifact::unpack_with;
use crate::attempt::{
    AnswerReader, Body, Desk, Ended, Engine, Kept, KeptAnswer, Line, NotKept, Room, Stop, plain,
};
use crate::reading::Job;
use crate::tree::{Content, TreeLimits};

/// Looking at an upload takes no longer than this, waiting for a place included.
const LOOK: Duration = Duration::from_secs(300);

/// How much an upload may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadLimits {
    /// Bytes as it comes.
    pub bytes: u64,
    /// What it may hold.
    pub tree: TreeLimits,
}

/// Why an upload is not taken.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// More than is taken.
    #[error("an artifact has {most} bytes at most")]
    TooLarge {
        /// The most.
        most: u64,
    },
    /// All the disk space for uploads is in use.
    #[error("all the disk space for uploads is in use; try again later")]
    NoDisk,
    /// It is not an artifact, or not one that is taken.
    #[error("{0}")]
    NotAnArtifact(String),
    /// What looked at it was ended.
    #[error("the artifact could not be checked: {why}")]
    Ended {
        /// What ended it.
        why: String,
        /// Whether the same may go well the next time.
        transient: bool,
    },
    /// There can never be memory for it.
    #[error("there is no memory for an artifact of that size: {0}")]
    NoMemory(#[source] Exhausted),
    /// Our own machine: no space, a bug.
    #[error("taking an artifact failed inside Roadstead: {0}")]
    Internal(String),
}

fn internal(error: &dyn std::fmt::Display) -> UploadError {
    UploadError::Internal(error.to_string())
}

/// An upload that is under way.
pub struct Intake {
    kept: Kept,
    hasher: Hasher,
    most: u64,
}

impl Intake {
    /// Takes so many bytes at most, into a folder in `place` (or where the system has such), within what `disk` has left.
    #[must_use]
    pub fn new(most: u64, disk: Option<Pool>, place: Option<PathBuf>) -> Self {
        Self { kept: Kept::new(place, disk).in_file(), hasher: Hasher::default(), most }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// Where they are too many, or there is no disk for them.
    pub async fn take(&mut self, piece: &[u8]) -> Result<(), UploadError> {
        if self.kept.length().saturating_add(piece.len() as u64) > self.most {
            return Err(UploadError::TooLarge { most: self.most });
        }
        self.hasher.update(piece);
        self.kept.take(piece).await.map_err(|error| match error {
            NotKept::NoDisk => UploadError::NoDisk,
            NotKept::Io(_) => internal(&error),
        })
    }

    /// All of it is there.
    ///
    /// # Errors
    /// Where the file cannot be written to its end.
    pub async fn finish(self) -> Result<Uploaded, UploadError> {
        let (digest, bytes) = (self.hasher.finish(), self.kept.length());
        let kept = self.kept.into_answer().await.map_err(|error| internal(&error))?;
        Ok(Uploaded { kept, digest, bytes })
    }
}

/// An upload that is whole.
pub struct Uploaded {
    kept: KeptAnswer,
    digest: Digest,
    bytes: u64,
}

/// What an upload holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// How many files and links.
    pub files: usize,
    /// Bytes of its files when unpacked.
    pub unpacked_bytes: u64,
}

impl Uploaded {
    /// The digest of its bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has it looked at where `engine` says.
    ///
    /// # Errors
    /// [`UploadError::NotAnArtifact`] where it is none, or none that is taken; where what looked at it was ended.
    pub async fn look(
        &self,
        tree: &TreeLimits,
        engine: &dyn Engine,
        cancel: &CancellationToken,
    ) -> Result<Looked, UploadError> {
        let about = self.digest.to_string();
        let ended = |Ended { why, transient }| UploadError::Ended { why, transient };
        engine.admit(&about).await.map_err(ended)?;
        let stop = Stop::new(Instant::now() + LOOK, cancel.child_token());
        let mut desk = Desk::new(0, None, &stop);
        desk.answers.push(self.kept.answer.clone());
        let order = Order { tree: tree.clone() };
        let order = Job::Upload(&order).encode().map_err(|error| internal(&error))?;
        let reply = tokio::select! {
            reply = engine.run(&about, order, &mut desk) => reply.map_err(ended)?,
            () = stop.stopped() => {
                let why = "it was not done in time".to_owned();
                return Err(UploadError::Ended { why, transient: true });
            }
        };
        match serde_json::from_slice(&reply) {
            Ok(Reply::Holds { files, unpacked_bytes }) => Ok(Looked { files, unpacked_bytes }),
            // It came from a process that read untrusted bytes.
            Ok(Reply::Refused(why)) => Err(UploadError::NotAnArtifact(plain(&why))),
            Err(_) => Err(UploadError::Internal("the reader's reply cannot be parsed".to_owned())),
        }
    }

    /// Its bytes, with what is reserved for them.
    ///
    /// # Errors
    /// Where there could never be memory for them, or the file cannot be read.
    pub async fn read(&self, room: &Room) -> Result<(Vec<u8>, Reservation), UploadError> {
        let held = room.reserve(self.bytes).await.map_err(UploadError::NoMemory)?;
        let (answer, size) = (self.kept.answer.clone(), self.bytes);
        let read = move || match answer.body {
            Body::Memory(bytes) => Ok(bytes),
            Body::File(file) => {
                let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, 0).map(|()| bytes)
            }
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| internal(&error))?;
        Ok((read.map_err(|error| internal(&error))?, held))
    }
}

/// What a reader is to do: look at the only answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    tree: TreeLimits,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Holds { files: usize, unpacked_bytes: u64 },
    Refused(String),
}

/// A file of which nothing is kept but how long it is.
struct Length(u64);

impl Content for Length {
    fn size(&self) -> u64 {
        self.0
    }
}

/// Does what `order` says, and gives the reply as bytes.
pub(crate) fn read(order: &Order, line: &Line) -> Vec<u8> {
    let bytes = BufReader::with_capacity(64 << 10, AnswerReader::new(line, 0, 0));
    let tree = unpack_with(bytes, &order.tree, |entry| io::copy(entry, &mut io::sink()).map(Length));
    let reply = match tree {
        Ok(tree) => Reply::Holds { files: tree.len(), unpacked_bytes: tree.bytes() },
        Err(error) => Reply::Refused(chain(&error)),
    };
    // Texts and numbers: they always become JSON.
    serde_json::to_vec(&reply).unwrap_or_default()
}

#[cfg(test)]
mod tests;
