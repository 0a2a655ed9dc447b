//! Unpacking a tar.gz of anyone's: into one file of the scratch folder, of which only sizes and places are in memory, and never by the
//! names that it gives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use crate::tree::{Content, Measure, TreeError, TreeLimits};

/// Bytes of a name that stands in an entry of its own, and of PAX's records.
const MOST_EXTENSION: u64 = 64 << 10;

/// Why an archive is not unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UntarError {
    /// It is damaged, or no such archive.
    #[error("is not a complete tar.gz: {0}")]
    Damaged(String),
    /// It says something that only odd archives say.
    #[error("{0}")]
    Odd(String),
    /// It is larger than allowed.
    #[error("more than {limit} {measure}")]
    TooLarge { measure: Measure, limit: u64 },
    /// A name or a kind of entry that is not taken.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Our own machine.
    #[error("{0}")]
    Internal(String),
    /// Told to stop.
    #[error("told to stop")]
    Stopped,
}

/// A file's content where it lies: it is read when it is packed, so that all files are never in memory together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) executable: bool,
}

impl Content for Span {
    fn size(&self) -> u64 {
        self.size
    }
}

/// An archive that is unpacked.
pub(crate) struct Unpacked {
    pub(crate) contents: File,
    pub(crate) files: BTreeMap<String, Span>,
    /// Folders that it has lines for.
    pub(crate) folders: BTreeSet<String>,
    /// Symbolic links that were left out.
    pub(crate) links: u64,
    pub(crate) first_link: Option<String>,
}

impl Unpacked {
    pub(crate) fn read(&self, span: &Span) -> io::Result<Vec<u8>> {
        read(&self.contents, span)
    }
}

/// What lies at a place of a file.
pub(crate) fn read(contents: &File, span: &Span) -> io::Result<Vec<u8>> {
    let size = usize::try_from(span.size).map_err(io::Error::other)?;
    let mut bytes = vec![0; size];
    contents.read_exact_at(&mut bytes, span.offset)?;
    Ok(bytes)
}

/// Unpacks `archive`, with `folder` for its content.
pub(crate) fn unpack(
    archive: impl Read,
    limits: &TreeLimits,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Unpacked, UntarError> {
    let file = File::options().read(true).write(true).create_new(true).open(folder.join("contents"));
    let contents = file.map_err(|error| internal(&error))?;
    let mut unpacking = Unpacking {
        to: BufWriter::new(contents),
        limits,
        written: 0,
        files: BTreeMap::new(),
        folders: BTreeSet::new(),
        links: 0,
        first_link: None,
    };
    // Besides its files' bytes, an honest tar has for each entry a header, padding and at most two long names.
    let overhead = (limits.path_bytes as u64 + 1_024) * 2 + 1_024;
    let most = limits.total_bytes.saturating_add(overhead.saturating_mul(limits.entries as u64 + 1));
    let plain = MultiGzDecoder::new(BufReader::new(archive));
    let mut archive = tar::Archive::new(Bounded { inner: plain, left: most, passed: false });
    let outcome = unpacking.all(&mut archive, stop);
    let mut rest = archive.into_inner();
    // To the end, so that the checksum of the whole is looked at.
    let ended = io::copy(&mut rest, &mut io::sink());
    if rest.passed {
        return Err(UntarError::TooLarge { measure: Measure::UnpackedBytes, limit: most });
    }
    outcome?;
    ended.map_err(|error| damaged(&error))?;
    let Unpacking { to, files, folders, links, first_link, .. } = unpacking;
    let contents = to.into_inner().map_err(|error| internal(error.error()))?;
    Ok(Unpacked { contents, files, folders, links, first_link })
}

/// An unpacking that is under way.
struct Unpacking<'a> {
    to: BufWriter<File>,
    limits: &'a TreeLimits,
    written: u64,
    files: BTreeMap<String, Span>,
    folders: BTreeSet<String>,
    links: u64,
    first_link: Option<String>,
}

impl Unpacking<'_> {
    fn all(&mut self, archive: &mut tar::Archive<impl Read>, stop: &AtomicBool) -> Result<(), UntarError> {
        // What is said of the next entry by entries of their own. The library would read them whole, whatever their size.
        let mut long_name = None;
        let mut seen = 0_usize;
        for entry in archive.entries().map_err(|error| damaged(&error))?.raw(true) {
            if stop.load(Ordering::Relaxed) {
                return Err(UntarError::Stopped);
            }
            let mut entry = entry.map_err(|error| damaged(&error))?;
            seen += 1;
            // Folders and extensions count as well: they cost time, though not memory.
            if seen > self.limits.entries.saturating_mul(4) {
                let limit = self.limits.entries as u64;
                return Err(UntarError::TooLarge { measure: Measure::Entries, limit });
            }
            match entry.header().entry_type() {
                EntryType::GNULongName => {
                    let name = extension(&mut entry)?;
                    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    long_name = Some(name[..end].to_vec());
                }
                EntryType::XHeader => {
                    let records = extension(&mut entry)?;
                    long_name = path_of(&records)?.or(long_name);
                }
                // The target of a link, which is left out, and what `git archive` notes of its commit.
                EntryType::GNULongLink | EntryType::XGlobalHeader => {
                    extension(&mut entry)?;
                }
                _ => {
                    let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                    self.entry(&name, &mut entry)?;
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &[u8], entry: &mut tar::Entry<'_, impl Read>) -> Result<(), UntarError> {
        let kind = entry.header().entry_type();
        let Some(path) = checked(name, kind == EntryType::Directory)? else { return Ok(()) };
        match kind {
            EntryType::Directory => self.folder(path)?,
            EntryType::Regular => self.file(path, entry)?,
            EntryType::Symlink => {
                self.links += 1;
                self.first_link.get_or_insert(path);
            }
            kind => {
                let why = format!("it is of kind {kind:?}: only files and folders are taken");
                return Err(TreeError::BadPath { path, why: why.into() }.into());
            }
        }
        Ok(())
    }

    fn folder(&mut self, path: String) -> Result<(), UntarError> {
        if path.len() > self.limits.path_bytes {
            let limit = self.limits.path_bytes as u64;
            return Err(UntarError::TooLarge { measure: Measure::PathBytes, limit });
        }
        self.folders.insert(path);
        if self.folders.len() > self.limits.entries {
            let limit = self.limits.entries as u64;
            return Err(UntarError::TooLarge { measure: Measure::Entries, limit });
        }
        Ok(())
    }

    fn file(&mut self, path: String, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), UntarError> {
        let size = entry.size();
        let total = self.written.saturating_add(size);
        if total > self.limits.total_bytes {
            let limit = self.limits.total_bytes;
            return Err(UntarError::TooLarge { measure: Measure::TotalBytes, limit });
        }
        if path.len() > self.limits.path_bytes {
            let limit = self.limits.path_bytes as u64;
            return Err(UntarError::TooLarge { measure: Measure::PathBytes, limit });
        }
        let executable = entry.header().mode().map_err(|error| damaged(&error))? & 0o111 != 0;
        let copied = copy(entry, &mut self.to)?;
        if copied != size {
            return Err(damaged(&io::ErrorKind::UnexpectedEof.into()));
        }
        // As tar has it: what comes later replaces what was there.
        self.files.insert(path, Span { offset: self.written, size, executable });
        self.written = total;
        if self.files.len() > self.limits.entries {
            let limit = self.limits.entries as u64;
            return Err(UntarError::TooLarge { measure: Measure::Entries, limit });
        }
        Ok(())
    }
}

/// As `io::copy`, which would not tell whose error it is.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<u64, UntarError> {
    let mut buffer = vec![0; 64 << 10];
    let mut copied = 0;
    loop {
        let count = from.read(&mut buffer).map_err(|error| damaged(&error))?;
        if count == 0 {
            return Ok(copied);
        }
        to.write_all(&buffer[..count]).map_err(|error| internal(&error))?;
        copied += count as u64;
    }
}

fn extension(entry: &mut tar::Entry<'_, impl Read>) -> Result<Vec<u8>, UntarError> {
    if entry.size() > MOST_EXTENSION {
        return Err(UntarError::TooLarge { measure: Measure::PathBytes, limit: MOST_EXTENSION });
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| damaged(&error))?;
    Ok(bytes)
}

/// The path that PAX's records give the next entry. A size that they give would be another one than its header's, and is for files
/// of 8 GiB and more.
fn path_of(records: &[u8]) -> Result<Option<Vec<u8>>, UntarError> {
    let mut path = None;
    for record in tar::PaxExtensions::new(records) {
        let record = record.map_err(|error| damaged(&error))?;
        match record.key_bytes() {
            b"path" => path = Some(record.value_bytes().to_vec()),
            b"size" => {
                return Err(UntarError::Odd("gives a file's size in PAX records".to_owned()));
            }
            _ => {}
        }
    }
    Ok(path)
}

/// The path of an entry, if it is one that is taken; none for the root. What is refused is what Flux refuses; the rest of
/// the rules are [`TreeBuilder`]'s.
fn checked(name: &[u8], is_folder: bool) -> Result<Option<String>, UntarError> {
    let bad = |why: &'static str| {
        let path = String::from_utf8_lossy(name).into_owned();
        Err(TreeError::BadPath { path, why: why.into() }.into())
    };
    let Ok(text) = std::str::from_utf8(name) else { return bad("it is not UTF-8") };
    if text.is_empty() || text.starts_with('/') || text.contains('\\') {
        return bad("its names are relative, with `/` between their parts");
    }
    // Other tools write `./a` and `folder/`.
    let mut path = text;
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    if is_folder {
        path = path.trim_end_matches('/');
    }
    if is_folder && matches!(path, "" | ".") {
        return Ok(None);
    }
    if path.split('/').any(|part| part == "..") {
        return bad("it leads out of the archive");
    }
    Ok(Some(path.to_owned()))
}

fn internal(error: &io::Error) -> UntarError {
    UntarError::Internal(format!("temporary folder: {error}"))
}

fn damaged(error: &io::Error) -> UntarError {
    UntarError::Damaged(error.to_string())
}

/// A reader that fails when more than `left` bytes come, and says so.
struct Bounded<R> {
    inner: R,
    left: u64,
    passed: bool,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => {
                self.passed = true;
                return Err(io::Error::other("more bytes than allowed"));
            }
        }
        Ok(count)
    }
}
