//! The composing itself, for a process that has no network: sources are unpacked into one file of the scratch folder, of which only sizes
//! and places are in memory, and artifacts are packed into another.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roadstead_model::{Digest, Hasher};
use serde::{Deserialize, Serialize};

use super::copy::{Copied, CopyError, Files, Piece, Workspace, apply};
use super::spec::{Output, SpecError, Wanted, alias_of, expand};
use crate::artifact::{pack_to, unpack_with};
use crate::attempt::{AnswerReader, Line, bring_file};
use crate::ignore::{Ignore, Walk};
use crate::tree::{Entry, Measure, TreeBuilder, TreeLimits, too_large};

/// Once what is to be brought has so many bytes, the rest is another reader's.
const ENOUGH: u64 = 16 << 20;

/// What a reader is to do. The artifacts of all sources lie in the only answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) sources: Vec<Lying>,
    pub(super) pattern: Option<String>,
    pub(super) outputs: Vec<Output>,
    /// Artifacts that need not be brought.
    pub(super) known: BTreeSet<Digest>,
    /// So many of them were made before.
    pub(super) skip: usize,
    pub(super) limits: Limits,
}

/// Where the artifact of a source lies in the answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Lying {
    pub(super) alias: String,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// How much may be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// What a source, and what an artifact may hold.
    pub tree: TreeLimits,
    /// Bytes of all sources when unpacked, with all archives that are extracted.
    pub unpacked_bytes: u64,
    /// Bytes of an artifact as it is packed.
    pub artifact_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tree: TreeLimits::default(), unpacked_bytes: 512 << 20, artifact_bytes: 256 << 20 }
    }
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// These were made; those of them that are not known were brought, one behind the other.
    Made {
        made: Vec<Made>,
        /// How many there are in all.
        total: usize,
        /// Symbolic links of sources that were left out.
        links: u64,
    },
    /// One of them cannot be made.
    Failed {
        /// Its name; none where it is about all of them.
        name: Option<String>,
        why: String,
        /// It stays so until the spec changes, or what a source's folders are called.
        is_spec: bool,
    },
    Stopped,
}

/// An artifact that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) name: String,
    pub(super) output: usize,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) brought: bool,
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the reply as bytes.
pub(crate) fn read(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    let mut failed_at = None;
    let reply = match make(order, folder, line, stop, &mut failed_at) {
        Ok(reply) => reply,
        Err(CopyError::Stopped) => Reply::Stopped,
        Err(error) => {
            let is_spec = matches!(error, CopyError::Spec(_));
            Reply::Failed { name: failed_at, why: error.to_string(), is_spec }
        }
    };
    // Texts, numbers and flags: they always become JSON.
    serde_json::to_vec(&reply).unwrap_or_default()
}

fn internal(error: io::Error) -> CopyError {
    CopyError::Internal(error)
}

fn make(
    order: &Order,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
    at: &mut Option<String>,
) -> Result<Reply, CopyError> {
    let mut bench = Bench::new(order, folder, line, stop)?;
    let wanted = bench.wanted()?;
    let mut packed = Packed::new(folder)?;
    let (total, mut made) = (wanted.len(), Vec::new());
    for Wanted { output, index, labels } in wanted.into_iter().skip(order.skip) {
        *at = Some(output.name.clone());
        if packed.end >= ENOUGH.min(order.limits.artifact_bytes) {
            break;
        }
        let begin = packed.end;
        let (digest, size) = bench.pack(&output, &mut packed)?;
        if size > order.limits.artifact_bytes {
            let limit = order.limits.artifact_bytes;
            return Err(too_large(Measure::ArtifactBytes, limit, None).into());
        }
        // It begins what the next one brings.
        if packed.end > order.limits.artifact_bytes {
            packed.back_to(begin)?;
            break;
        }
        let brought = !order.known.contains(&digest);
        if !brought {
            packed.back_to(begin)?;
        }
        made.push(Made { name: output.name, output: index, labels, digest, size, brought });
    }
    *at = None;
    if packed.end > 0 {
        bring_file(&mut packed.file, packed.end, line).map_err(internal)?;
    }
    Ok(Reply::Made { made, total, links: bench.links })
}

/// Artifacts that were packed, one behind the other.
struct Packed {
    file: File,
    end: u64,
}

impl Packed {
    fn new(folder: &Path) -> Result<Self, CopyError> {
        Ok(Self { file: scratch(folder, "packed")?, end: 0 })
    }

    fn back_to(&mut self, end: u64) -> Result<(), CopyError> {
        self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end))).map_err(internal)?;
        self.end = end;
        Ok(())
    }
}

fn scratch(folder: &Path, name: &str) -> Result<File, CopyError> {
    let file = File::options().read(true).write(true).create_new(true).open(folder.join(name));
    file.map_err(internal)
}

/// Hashes what is written.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Sources, as far as they were asked for, and where their contents lie.
struct Bench<'a> {
    order: &'a Order,
    line: &'a Line,
    stop: &'a AtomicBool,
    contents: File,
    /// Where the next file's content will lie.
    end: u64,
    sources: HashMap<String, Arc<Files>>,
    links: u64,
}

impl<'a> Bench<'a> {
    fn new(order: &'a Order, folder: &Path, line: &'a Line, stop: &'a AtomicBool) -> Result<Self, CopyError> {
        let contents = scratch(folder, "contents")?;
        Ok(Self { order, line, stop, contents, end: 0, sources: HashMap::new(), links: 0 })
    }

    /// The artifacts that are made, all of them.
    fn wanted(&mut self) -> Result<Vec<Wanted>, CopyError> {
        let outputs = &self.order.outputs;
        let Some(pattern) = &self.order.pattern else {
            let plain = |(index, output): (usize, &Output)| Wanted {
                output: output.clone(),
                index,
                labels: BTreeMap::new(),
            };
            return Ok(outputs.iter().enumerate().map(plain).collect());
        };
        let source = self.source(alias_of(pattern)?)?;
        let mut folders: BTreeSet<&str> = BTreeSet::new();
        for path in source.keys() {
            // From the innermost on: what is known has those around it.
            for (at, _) in path.match_indices('/').rev() {
                if !folders.insert(&path[..at]) {
                    break;
                }
            }
        }
        Ok(expand(pattern, outputs, folders.into_iter())?)
    }

    /// Packs an artifact behind those that are there.
    fn pack(&mut self, output: &Output, packed: &mut Packed) -> Result<(Digest, u64), CopyError> {
        let limits = &self.order.limits.tree;
        let mut staged = Files::new();
        for copy in &output.copy {
            self.check_stop()?;
            apply(&copy.read()?, self, limits, &mut staged)?;
        }
        let mut builder = TreeBuilder::new(limits.clone());
        let mut ignored = Walk::new(Ignore::new(None)?);
        for (path, Copied { content, executable }) in staged {
            if !ignored.excludes(&path) {
                builder.insert(path, Entry::File { bytes: content, executable })?;
            }
        }
        let tree = builder.finish()?;
        let to = BufWriter::new(&mut packed.file);
        let to = Hashing { inner: to, hasher: Hasher::default(), size: 0 };
        let to = pack_to(to, &tree, |piece: &Piece| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("told to stop"));
            }
            Ok(Cow::Owned(self.read(piece)?.into_owned()))
        })?;
        let Hashing { mut inner, hasher, size } = to;
        inner.flush().map_err(internal)?;
        drop(inner);
        packed.end += size;
        Ok((hasher.finish(), size))
    }

    fn check_stop(&self) -> Result<(), CopyError> {
        if self.stop.load(Ordering::Relaxed) { Err(CopyError::Stopped) } else { Ok(()) }
    }

    /// The files of a tar.gz, with their contents behind those that are there.
    fn take(&mut self, packed: impl Read) -> Result<Files, CopyError> {
        self.check_stop()?;
        let most = self.order.limits.unpacked_bytes;
        let (mut end, mut to) = (self.end, BufWriter::new(&self.contents));
        to.seek(SeekFrom::Start(end)).map_err(internal)?;
        let keep = |entry: &mut dyn Read| {
            let size = io::copy(entry, &mut to)?;
            let piece = Piece::Lies { offset: end, size };
            end += size;
            Ok(piece)
        };
        let packed = BufReader::with_capacity(64 << 10, packed);
        let mut limits = self.order.limits.tree.clone();
        limits.total_bytes = limits.total_bytes.min(most.saturating_sub(self.end));
        let tree = unpack_with(packed, &limits, keep)?;
        to.flush().map_err(internal)?;
        drop(to);
        self.end = end;
        let mut files = Files::new();
        for (path, entry) in tree {
            match entry {
                Entry::File { bytes, executable } => {
                    files.insert(path, Copied { content: bytes, executable });
                }
                Entry::Symlink { .. } => self.links += 1,
            }
        }
        Ok(files)
    }
}

impl Workspace for Bench<'_> {
    fn source(&mut self, alias: &str) -> Result<Arc<Files>, CopyError> {
        if let Some(files) = self.sources.get(alias) {
            return Ok(Arc::clone(files));
        }
        let Some(lying) = self.order.sources.iter().find(|source| source.alias == alias) else {
            return Err(SpecError::NoSource { field: "from", alias: alias.to_owned() }.into());
        };
        let bytes = AnswerReader::new(self.line, 0, lying.offset).take(lying.size);
        let files = Arc::new(self.take(bytes)?);
        self.sources.insert(alias.to_owned(), Arc::clone(&files));
        Ok(files)
    }

    fn read<'p>(&self, piece: &'p Piece) -> io::Result<Cow<'p, [u8]>> {
        match piece {
            Piece::Made(bytes) => Ok(Cow::Borrowed(bytes)),
            Piece::Lies { offset, size } => {
                let mut bytes = vec![0; usize::try_from(*size).map_err(io::Error::other)?];
                self.contents.read_exact_at(&mut bytes, *offset)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<Files, CopyError> {
        self.take(packed)
    }
}
