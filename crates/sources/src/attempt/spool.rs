//! Where answers lie that are too large for memory, until they are read.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use roadstead_budget::{Exhausted, Pool, Reservation};

use super::scratch::Scratch;

/// Room on the disk is asked for in such steps.
const STEP: u64 = 1 << 20;

/// Where large answers lie; it goes away with its wire.
pub(crate) struct Spool {
    place: Option<PathBuf>,
    folder: Option<Scratch>,
    files: u32,
    /// What all spools may have together.
    disk: Option<Pool>,
    written: u64,
    held: Option<Reservation>,
}

impl Spool {
    pub(crate) fn new(place: Option<PathBuf>, disk: Option<Pool>) -> Self {
        Self { place, folder: None, files: 0, disk, written: 0, held: None }
    }

    /// Has room for so many bytes more, in all of its files.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.written += bytes as u64;
        let Some(disk) = &self.disk else { return Ok(()) };
        // In steps, so that few are asked for.
        let wanted = self.written.next_multiple_of(STEP);
        match &mut self.held {
            Some(held) => held.try_grow_to(wanted),
            None => disk.try_reserve(wanted).map(|held| self.held = Some(held)),
        }
    }

    /// A new file, to be written and read.
    pub(crate) fn file(&mut self) -> io::Result<File> {
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => Scratch::new(self.place.as_deref())?,
        };
        self.files += 1;
        let path = folder.path().join(format!("answer-{}", self.files));
        self.folder = Some(folder);
        File::options().read(true).write(true).create_new(true).open(path)
    }
}
