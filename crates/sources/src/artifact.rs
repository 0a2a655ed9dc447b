//! An artifact: a tree as a tar.gz, and back.
//!
//! Packing depends on the tree and nothing else: paths sorted, no times, no owners, two modes. So the same tree has the
//! same digest, whoever packs it and whenever.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};

use flate2::bufread::GzDecoder;
use roadstead_model::Digest;

use crate::gzip::Gzip;
use crate::tree::{Content, Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits, shown, too_large};

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
    let mut tar = tar::Builder::new(Gzip::new(to).map_err(whole)?);
    for (path, entry) in tree {
        append(&mut tar, path, entry, &mut read)
            .map_err(|source| ArtifactError::Pack { path: path.clone(), source })?;
    }
    tar.into_inner().and_then(Gzip::finish).map_err(whole)
}

fn append<C: Content, W: Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    entry: &Entry<C>,
    read: &mut impl FnMut(&C) -> io::Result<Cow<'_, [u8]>>,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    match entry {
        Entry::File { bytes, executable } => {
            let bytes = read(bytes)?;
            header.set_entry_type(tar::EntryType::Regular);
            header.set_mode(if *executable { 0o755 } else { 0o644 });
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes.as_ref())
        }
        Entry::Symlink { target } => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            if header.set_link_name_literal(target).is_err() {
                append_long_target(tar, target)?;
            }
            tar.append_data(&mut header, path, io::empty())
        }
    }
}

/// GNU's entry for the target of the link that follows, when the link's own header has no room for it. The `tar` crate
/// would write one itself, but shortens targets (`a/.` to `a`) on the way, and a tree shall read back as it was.
fn append_long_target<W: Write>(tar: &mut tar::Builder<W>, target: &str) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_path("././@LongLink")?;
    header.set_entry_type(tar::EntryType::GNULongLink);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    // GNU ends the name with a NUL.
    header.set_size(target.len() as u64 + 1);
    header.set_cksum();
    tar.append(&header, target.as_bytes().chain([0].as_slice()))
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
    Ok(builder.finish()?)
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
        // The second is what `git archive` notes of its commit.
        tar::EntryType::Directory | tar::EntryType::XGlobalHeader => {}
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
