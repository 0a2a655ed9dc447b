//! What was received of a bucket: one text of bytes, in memory as long as it is small, then in a temporary file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;

use super::error::Why;
use super::index::Span;
use super::request::BucketRequest;
use crate::attempt::{Answer, Body, Spool};

/// So many bytes stay in memory.
const SMALL: u64 = 64 << 10;
/// Bytes of an object that are written at once.
const WRITTEN: usize = 64 << 10;

/// All that was received.
pub(super) struct Received {
    spool: Spool,
    memory: Vec<u8>,
    file: Option<Arc<File>>,
    end: u64,
}

impl Received {
    pub(super) fn new(request: &BucketRequest) -> Self {
        let spool = Spool::new(request.scratch.clone(), request.disk.clone());
        Self { spool, memory: Vec::new(), file: None, end: 0 }
    }

    /// Where the next bytes will lie.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// What lies between there and the end.
    pub(super) fn since(&self, offset: u64) -> Span {
        Span { offset, size: self.end - offset }
    }

    pub(super) async fn append(&mut self, bytes: Bytes) -> Result<(), Why> {
        let count = bytes.len() as u64;
        if self.file.is_none() && self.end + count <= SMALL {
            self.memory.extend_from_slice(&bytes);
        } else {
            let place = self.place(count).await?;
            place.write(0, bytes).await?;
            return Ok(());
        }
        self.end += count;
        Ok(())
    }

    /// A place in the file for so many bytes more.
    pub(super) async fn place(&mut self, size: u64) -> Result<Place, Why> {
        let more = usize::try_from(size).map_err(|error| Why::Internal(error.to_string()))?;
        self.spool.make_room(self.memory.len() + more).map_err(|_| Why::NoDisk)?;
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(self.spool.file().map_err(|error| no_folder(&error))?);
                let memory = Bytes::from(std::mem::take(&mut self.memory));
                Place { file: Arc::clone(&file), offset: 0 }.write(0, memory).await?;
                self.file = Some(Arc::clone(&file));
                file
            }
        };
        let place = Place { file, offset: self.end };
        self.end += size;
        Ok(place)
    }

    /// As an answer for readers.
    pub(super) fn answer(&self) -> Answer {
        let body = match &self.file {
            None => Body::Memory(self.memory.clone()),
            Some(file) => Body::File(Arc::clone(file)),
        };
        Answer { heading: String::new(), body }
    }
}

/// A place in the file. Many can be written at once.
#[derive(Clone)]
pub(super) struct Place {
    file: Arc<File>,
    offset: u64,
}

impl Place {
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    async fn write(&self, at: u64, bytes: Bytes) -> Result<(), Why> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (file, offset) = (Arc::clone(&self.file), self.offset + at);
        let write = move || file.write_all_at(&bytes, offset);
        let written = tokio::task::spawn_blocking(write).await.map_err(io::Error::other).flatten();
        written.map_err(|error| no_folder(&error))
    }

    /// What is written there from some byte on, piece by piece.
    pub(super) fn writer(&self, at: u64) -> Writer<'_> {
        Writer { place: self, at, buffer: Vec::new() }
    }
}

/// Writes pieces, some of them together.
pub(super) struct Writer<'p> {
    place: &'p Place,
    at: u64,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Why> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITTEN { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn flush(&mut self) -> Result<(), Why> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let count = bytes.len() as u64;
        self.place.write(self.at, bytes).await?;
        self.at += count;
        Ok(())
    }
}

fn no_folder(error: &io::Error) -> Why {
    Why::Internal(format!("temporary folder: {error}"))
}
