//! An artifact: a tree as a tar.gz, and back.
//!
//! Packing depends on the tree and nothing else, so the same tree has the same digest, whoever packs it and whenever. The tar is byte for byte
//! what Flux makes of the same files: folders before what is in them, each by the order of its names, no times, no owners, two modes of files.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};

use flate2::bufread::GzDecoder;
use roadstead_model::Digest;

use crate::gzip::Gzip;
use crate::tree::{Content, Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits, shown, too_large};
use crate::ustar::{self, Kind};

/// A packed tree.
#[derive(Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The SHA-256 of `bytes`.
    pub digest: Digest,
    /// The tar.gz.
    pub bytes: Vec<u8>,
    /// How many files and links it holds.
    pub files: usize,
    /// Bytes of its files when unpacked.
    pub unpacked_bytes: u64,
}

impl Artifact {
    /// Bytes of the tar.gz: what Flux calls the artifact's `size`.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl std::fmt::Debug for Artifact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Artifact({}, {} bytes, {} files)", self.digest, self.bytes.len(), self.files)
    }
}

/// Why a tree could not be packed, or some bytes not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// What it holds is not a tree that we take.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It holds something other than files, links and folders.
    #[error(
        "the artifact holds `{}` of kind {kind}: only files, symbolic links and folders are taken",
        shown(path)
    )]
    Kind {
        /// The entry.
        path: String,
        /// Its kind, as tar names it.
        kind: String,
    },
    /// It is not a tar.gz, or a damaged one.
    #[error("the artifact is not a complete tar.gz: {0}")]
    Damaged(#[source] io::Error),
    /// The tar.gz could not be written.
    #[error("packing `{}`: {source}", shown(path))]
    Pack {
        /// The entry.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Packs `tree`.
///
/// # Errors
/// [`ArtifactError::Pack`] if tar cannot hold an entry.
pub fn pack(tree: &Tree) -> Result<Artifact, ArtifactError> {
    let bytes = pack_to(Vec::new(), tree, |bytes| Ok(Cow::Borrowed(bytes.as_slice())))?;
    Ok(Artifact { digest: Digest::of(&bytes), bytes, files: tree.len(), unpacked_bytes: tree.bytes() })
}

/// Packs `tree` into `to`, one file's content after the other, each read by `read` when its turn comes.
pub(crate) fn pack_to<C: Content, W: Write>(
    to: W,
    tree: &Tree<C>,
    mut read: impl FnMut(&C) -> io::Result<Cow<'_, [u8]>>,
) -> Result<W, ArtifactError> {
    let whole = |source| ArtifactError::Pack { path: String::new(), source };
    let mut tar = Gzip::new(to).map_err(whole)?;
    let folders = tree.folders().map(|path| (path, None));
    let mut all: Vec<(&str, Option<&Entry<C>>)> =
        folders.chain(tree.iter().map(|(path, entry)| (path.as_str(), Some(entry)))).collect();
    // The root is first, whose path is empty. Folders are walked: what lies in one stands before what comes after it.
    all.sort_unstable_by(|(one, _), (other, _)| one.split('/').cmp(other.split('/')));
    for (path, entry) in all {
        let packed = match entry {
            None => ustar::write(&mut tar, if path.is_empty() { "." } else { path }, Kind::Folder),
            Some(entry) => append(&mut tar, path, entry, &mut read),
        };
        packed.map_err(|source| ArtifactError::Pack { path: path.to_owned(), source })?;
    }
    ustar::end(&mut tar).map_err(whole)?;
    tar.finish().map_err(whole)
}

fn append<C: Content>(
    tar: &mut impl Write,
    path: &str,
    entry: &Entry<C>,
    read: &mut impl FnMut(&C) -> io::Result<Cow<'_, [u8]>>,
) -> io::Result<()> {
    match entry {
        Entry::File { bytes, executable } => {
            let bytes = read(bytes)?;
            let size = bytes.len() as u64;
            ustar::write(tar, path, Kind::File { size, executable: *executable })?;
            tar.write_all(&bytes)?;
            ustar::pad(tar, size)
        }
        Entry::Symlink { target } => ustar::write(tar, path, Kind::Link(target)),
    }
}

/// Reads an artifact back, holding it to `limits`.
///
/// The bytes may come from anywhere: what is read is bounded before it is kept, and the resulting tree obeys every rule of
/// [`Tree`]. Compare the digest first where it is known.
///
/// # Errors
/// An [`ArtifactError`]; never a part of the tree.
pub fn unpack(bytes: &[u8], limits: &TreeLimits) -> Result<Tree, ArtifactError> {
    unpack_from(bytes, limits)
}

/// As [`unpack`], of bytes as they come: the packed form is never held whole.
///
/// # Errors
/// As [`unpack`]; [`ArtifactError::Damaged`] also where `bytes` cannot be read.
pub fn unpack_from(bytes: impl BufRead, limits: &TreeLimits) -> Result<Tree, ArtifactError> {
    unpack_with(bytes, limits, |entry| {
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

/// As [`unpack_from`]; `keep` takes the content of each file, and gives what the tree has in its place.
pub(crate) fn unpack_with<C: Content>(
    bytes: impl BufRead,
    limits: &TreeLimits,
    mut keep: impl FnMut(&mut dyn Read) -> io::Result<C>,
) -> Result<Tree<C>, ArtifactError> {
    // Besides its files' bytes, an honest tar has for each entry a header, padding and at most two long names.
    let overhead = (limits.path_bytes as u64 + 1_024) * 2 + 1_024;
    let most = limits.total_bytes.saturating_add(overhead.saturating_mul(limits.entries as u64 + 1));
    let mut archive = tar::Archive::new(Bounded { inner: GzDecoder::new(bytes), left: most });
    let mut builder = TreeBuilder::new(limits.clone());
    let damaged = |error: io::Error| damaged(error, most);
    let mut seen = 0_usize;
    for entry in archive.entries().map_err(damaged)? {
        // Folders count as well: they cost time, though not memory.
        seen += 1;
        if seen > limits.entries.saturating_mul(2) {
            return Err(too_large(Measure::Entries, limits.entries as u64, None).into());
        }
        read_entry(&mut builder, entry.map_err(damaged)?, most, &mut keep)?;
    }
    // To the end, so that the checksum of the whole is looked at.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(damaged)?;
    if !rest.inner.into_inner().fill_buf().map_err(ArtifactError::Damaged)?.is_empty() {
        return Err(ArtifactError::Damaged(io::Error::other("there are bytes after its end")));
    }
    Ok(builder.finish_as_told()?)
}

fn read_entry<C: Content>(
    builder: &mut TreeBuilder<C>,
    mut entry: tar::Entry<'_, impl Read>,
    most: u64,
    keep: &mut impl FnMut(&mut dyn Read) -> io::Result<C>,
) -> Result<(), ArtifactError> {
    let path = text(&entry.path_bytes())?;
    let kind = entry.header().entry_type();
    // Other tools write `./a` and `folder/`.
    let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
    match kind {
        tar::EntryType::Directory => {
            let path = path.trim_end_matches('/');
            builder.folder(if path == "." { "" } else { path })?;
        }
        // What `git archive` notes of its commit.
        tar::EntryType::XGlobalHeader => {}
        tar::EntryType::Regular => {
            builder.check_size(&path, entry.size())?;
            let executable = entry.header().mode().map_err(ArtifactError::Damaged)? & 0o111 != 0;
            let bytes = keep(&mut entry).map_err(|error| damaged(error, most))?;
            builder.insert(path, Entry::File { bytes, executable })?;
        }
        tar::EntryType::Symlink => {
            let target = text(entry.link_name_bytes().unwrap_or_default().as_ref())?;
            builder.insert(path, Entry::Symlink { target })?;
        }
        kind => return Err(ArtifactError::Kind { path, kind: format!("{kind:?}") }),
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<String, TreeError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(TreeError::BadPath {
            path: String::from_utf8_lossy(bytes).into_owned(),
            why: "it is not UTF-8".into(),
        }),
    }
}

fn damaged(error: io::Error, most: u64) -> ArtifactError {
    let mut inner: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(cause) = inner {
        if cause.is::<PastTheEnd>() {
            return too_large(Measure::UnpackedBytes, most, None).into();
        }
        // tar wraps what its reader says in an error of its own, which shows its source.
        inner = cause
            .downcast_ref::<io::Error>()
            .map_or_else(|| cause.source(), |io| io.get_ref().map(|inner| inner as _));
    }
    ArtifactError::Damaged(error)
}

/// A reader that fails when more than `left` bytes come: a plain end would look like a damaged archive.
struct Bounded<R> {
    inner: R,
    left: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("more bytes than allowed")]
struct PastTheEnd;

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other(PastTheEnd))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
