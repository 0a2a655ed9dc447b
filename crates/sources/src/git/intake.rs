//! What a server sends, taken within bounds and kept as it is: in memory, or in a file where it is large.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;

use super::error::GitError;
use super::request::GitRequest;
use crate::attempt::{Body, Spool};
use crate::tree::Measure;

/// An answer of so many bytes stays in memory; a larger one, and any pack, goes to a file.
const SMALL: usize = 64 << 10;

/// How many bytes may come, and where they are kept.
pub(super) struct Intake {
    shown_url: String,
    /// For what the server can do and its references.
    advertisement: Allowance,
    packs: Allowance,
    spool: Spool,
}

struct Allowance {
    measure: Measure,
    limit: u64,
    left: u64,
}

impl Allowance {
    fn new(measure: Measure, limit: u64) -> Self {
        Self { measure, limit, left: limit }
    }
}

/// The bytes of one answer.
pub(super) struct Taken {
    is_pack: bool,
    memory: Vec<u8>,
    file: Option<File>,
}

impl Intake {
    pub(super) fn new(request: &GitRequest) -> Self {
        Self {
            shown_url: request.shown_url(),
            advertisement: Allowance::new(Measure::AdvertisementBytes, request.limits.advertisement_bytes),
            packs: Allowance::new(Measure::TransferBytes, request.limits.transfer_bytes),
            spool: Spool::new(request.scratch.clone(), request.disk.clone()),
        }
    }

    /// Begins an answer.
    pub(super) fn begin(&mut self, is_pack: bool) -> Result<Taken, GitError> {
        let file =
            if is_pack { Some(self.spool.file().map_err(|error| self.internal(&error))?) } else { None };
        Ok(Taken { is_pack, memory: Vec::new(), file })
    }

    /// Begins something of our own, of so many bytes.
    pub(super) fn begin_own(&mut self, bytes: usize) -> Result<Taken, GitError> {
        self.spool.make_room(bytes).map_err(|_| GitError::NoDisk { url: self.shown_url.clone() })?;
        self.begin(true)
    }

    /// Takes more bytes of an answer.
    pub(super) fn take(&mut self, taken: &mut Taken, bytes: &[u8]) -> Result<(), GitError> {
        let url = || self.shown_url.clone();
        let allowance = if taken.is_pack { &mut self.packs } else { &mut self.advertisement };
        allowance.left = allowance.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            GitError::TooLarge { url: url(), measure: allowance.measure, limit: allowance.limit, path: None }
        })?;
        if taken.file.is_some() || taken.memory.len() + bytes.len() > SMALL {
            let more = bytes.len() + taken.memory.len();
            self.spool.make_room(more).map_err(|_| GitError::NoDisk { url: url() })?;
        }
        if let Some(file) = &mut taken.file {
            return file.write_all(bytes).map_err(|error| self.internal(&error));
        }
        taken.memory.extend_from_slice(bytes);
        if taken.memory.len() > SMALL {
            let mut large = self.spool.file().map_err(|error| self.internal(&error))?;
            large.write_all(&std::mem::take(&mut taken.memory)).map_err(|error| self.internal(&error))?;
            taken.file = Some(large);
        }
        Ok(())
    }

    fn internal(&self, error: &io::Error) -> GitError {
        GitError::Internal { url: self.shown_url.clone(), detail: format!("temporary folder: {error}") }
    }
}

impl Taken {
    /// Takes bytes of our own, for which there is room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => {
                self.memory.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// The whole answer.
    pub(super) fn into_body(self) -> Body {
        self.file.map_or(Body::Memory(self.memory), |file| Body::File(Arc::new(file)))
    }
}
