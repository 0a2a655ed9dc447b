//! The reading of what an object store sent: pages of lists, patterns, and what objects hold, for a process that has no network and
//! knows neither the bucket nor credentials. All of it lies in one file, the only answer that there is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Take};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::error::Why;
use super::index::{Listed, Span, check_key, decode, encode, plain_etag};
use super::listing::{self, Object};
use super::request::{BucketLimits, BucketStore};
use crate::artifact::{ArtifactError, pack_to};
use crate::attempt::{AnswerReader, AttemptError, Line, bring, bring_file, plain};
use crate::ignore::{FILE_NAME, Ignore, Walk};
use crate::tree::{Content, Entry, Measure, TreeBuilder, TreeError, shown};

/// Bytes of an etag.
const MOST_ETAG: usize = 1 << 10;

/// What a reader is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) store: BucketStore,
    pub(super) limits: BucketLimits,
    pub(super) what: What,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// Say how a list goes on after this page.
    Page(Span),
    /// Say what an answer calls the reason for its no.
    Refusal(Span),
    /// Note the objects that are taken, of all pages.
    Index { pages: Vec<Span>, prefix: String, ignore: Option<String>, patterns: Option<Span> },
    /// Pack the objects of an index.
    Pack { index: Span, patterns: Option<Span> },
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The page's successor.
    Next {
        next: Option<String>,
        /// The bucket's own file with patterns is on it.
        has_patterns: bool,
    },
    /// A word for what is wrong.
    Code(Option<String>),
    /// The index was brought.
    Indexed,
    /// The artifact was brought.
    Packed { files: usize, unpacked_bytes: u64 },
    /// It cannot be read.
    Unread(Unread),
}

/// Why there is no artifact. What it says came from a process that read untrusted bytes: it is text, and no more.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Unread {
    Corrupt(String),
    Tree(TreeError),
    Pack { path: String, detail: String },
    Internal(String),
    Stopped,
}

impl Unread {
    pub(super) fn why(self, url: String) -> Why {
        match self {
            Self::Corrupt(detail) => Why::Corrupt(plain(&detail)),
            Self::Tree(error) => error.into(),
            Self::Pack { path, detail } => {
                let source = io::Error::other(plain(&detail));
                Why::Pack(ArtifactError::Pack { path, source })
            }
            Self::Internal(detail) => Why::Internal(plain(&detail)),
            Self::Stopped => Why::Attempt(AttemptError::Cancelled { url }),
        }
    }
}

impl From<TreeError> for Unread {
    fn from(error: TreeError) -> Self {
        Self::Tree(error)
    }
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the
/// reply as bytes.
pub(crate) fn read(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    let reply = match &order.what {
        What::Page(page) => next(order, *page, line),
        What::Refusal(answer) => {
            let code = listing::refusal(order.store, span(line, *answer));
            Ok(Reply::Code(code.map(str::to_owned)))
        }
        What::Index { pages, prefix, ignore, patterns } => {
            index(order, pages, prefix, ignore.as_deref(), *patterns, line, stop)
        }
        What::Pack { index, patterns } => pack(&order.limits, *index, *patterns, folder, line, stop),
    };
    // Texts, numbers and flags: they always become JSON.
    serde_json::to_vec(&reply.unwrap_or_else(Reply::Unread)).unwrap_or_default()
}

/// What lies at a place of the answer.
fn span(line: &Line, span: Span) -> BufReader<Take<AnswerReader>> {
    BufReader::new(AnswerReader::new(line, 0, span.offset).take(span.size))
}

fn whole(line: &Line, at: Span, most: u64) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    if at.size > most {
        return Err(Unread::Internal("more than there is room for".to_owned()));
    }
    span(line, at).read_to_end(&mut bytes).map_err(|error| internal(&error))?;
    Ok(bytes)
}

fn corrupt(why: &str) -> Unread {
    Unread::Corrupt(format!("its list of objects: {why}"))
}

fn internal(error: &io::Error) -> Unread {
    Unread::Internal(error.to_string())
}

fn too_large(measure: Measure, limit: u64, path: Option<&str>) -> Unread {
    Unread::Tree(TreeError::TooLarge { measure, limit, path: path.map(shown) })
}

fn next(order: &Order, page: Span, line: &Line) -> Result<Reply, Unread> {
    let mut has_patterns = false;
    let read = listing::read(order.store, span(line, page), &mut |object| {
        has_patterns |= object.key == FILE_NAME;
        Ok(())
    });
    let read = read.map_err(|why| corrupt(&why))?;
    Ok(Reply::Next { next: read.next, has_patterns })
}

/// An index that is being made.
struct Indexing<'a> {
    store: BucketStore,
    limits: &'a BucketLimits,
    prefix: &'a str,
    walk: Walk,
    seen: usize,
    bytes: u64,
    total: u64,
    taken: BTreeMap<String, Listed>,
    /// What is wrong with an object.
    wrong: Option<Unread>,
}

impl Indexing<'_> {
    fn object(&mut self, object: Object) -> Result<(), Unread> {
        let limits = &self.limits.tree;
        self.seen += 1;
        if self.seen > self.limits.keys {
            return Err(too_large(Measure::Keys, self.limits.keys as u64, None));
        }
        if !object.key.starts_with(self.prefix) {
            return Err(corrupt("it holds an object without the prefix that was asked for"));
        }
        if object.is_folder() || object.key == FILE_NAME {
            return Ok(());
        }
        // Looking at patterns takes memory for each folder.
        if object.key.len() > limits.path_bytes {
            return Err(too_large(Measure::PathBytes, limits.path_bytes as u64, Some(&object.key)));
        }
        if object.key.split('/').count() > limits.depth {
            return Err(too_large(Measure::Depth, limits.depth as u64, Some(&object.key)));
        }
        if self.walk.excludes(&object.key) {
            return Ok(());
        }
        check_key(&object.key, limits)?;
        // Flux notes etags as they are listed; its client of S3 takes the quotation marks away.
        let etag = if self.store == BucketStore::S3 { plain_etag(&object.etag) } else { &object.etag };
        let etag = etag.to_owned();
        if etag.is_empty() || etag.len() > MOST_ETAG || etag.chars().any(char::is_control) {
            return Err(corrupt(&format!("'{}' has no valid etag", shown(&object.key))));
        }
        let Some(size) = object.size else {
            return Err(corrupt(&format!("'{}' has no valid size", shown(&object.key))));
        };
        if size > limits.file_bytes {
            return Err(too_large(Measure::FileBytes, limits.file_bytes, Some(&object.key)));
        }
        self.total = self.total.saturating_add(size);
        if self.total > limits.total_bytes {
            return Err(too_large(Measure::TotalBytes, limits.total_bytes, None));
        }
        self.bytes += (object.key.len() + etag.len() + 28) as u64;
        if self.bytes > self.limits.index_bytes {
            return Err(too_large(Measure::IndexBytes, self.limits.index_bytes, None));
        }
        if self.taken.len() >= limits.entries {
            return Err(too_large(Measure::Entries, limits.entries as u64, None));
        }
        let listed = Listed { key: object.key.clone(), etag, size, generation: object.generation, offset: 0 };
        match self.taken.insert(object.key, listed) {
            None => Ok(()),
            Some(twice) => Err(corrupt(&format!("'{}' stands in it twice", shown(&twice.key)))),
        }
    }
}

fn index(
    order: &Order,
    pages: &[Span],
    prefix: &str,
    ignore: Option<&str>,
    patterns: Option<Span>,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Reply, Unread> {
    let limits = &order.limits;
    let mut root = Ignore::without_defaults(ignore)?;
    if let Some(patterns) = patterns {
        root = root.with_file("", &whole(line, patterns, limits.tree.file_bytes)?)?;
    }
    let mut indexing = Indexing {
        store: order.store,
        limits,
        prefix,
        walk: Walk::new(root),
        seen: 0,
        bytes: 0,
        total: 0,
        taken: BTreeMap::new(),
        wrong: None,
    };
    for page in pages {
        if stop.load(Ordering::Relaxed) {
            return Err(Unread::Stopped);
        }
        let read = listing::read(order.store, span(line, *page), &mut |object| {
            indexing.object(object).map_err(|wrong| {
                indexing.wrong = Some(wrong);
                String::new()
            })
        });
        if let Some(wrong) = indexing.wrong.take() {
            return Err(wrong);
        }
        read.map_err(|why| corrupt(&why))?;
    }
    let bytes = encode(indexing.taken.values());
    drop(indexing);
    bring(&mut bytes.as_slice(), bytes.len() as u64, line).map_err(|error| internal(&error))?;
    Ok(Reply::Indexed)
}

/// A file's content where it lies in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lies(Span);

impl Content for Lies {
    fn size(&self) -> u64 {
        self.0.size
    }
}

fn pack(
    limits: &BucketLimits,
    index: Span,
    patterns: Option<Span>,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Reply, Unread> {
    let objects = whole(line, index, limits.index_bytes.saturating_mul(2))?;
    let objects = decode(&objects, limits).map_err(|why| Unread::Internal(why.to_string()))?;
    let mut builder = TreeBuilder::new(limits.tree.clone());
    let file = |span: Span| Entry::File { bytes: Lies(span), executable: false };
    for Listed { key, size, offset, .. } in objects {
        builder.insert(key, file(Span { offset, size }))?;
    }
    if let Some(patterns) = patterns {
        builder.insert(FILE_NAME.to_owned(), file(patterns))?;
    }
    let tree = builder.finish()?;
    let to = File::options().read(true).write(true).create_new(true).open(folder.join("artifact"));
    let to = to.map_err(|error| internal(&error))?;
    let mut reader = AnswerReader::new(line, 0, 0);
    let packed = pack_to(BufWriter::new(to), &tree, |lies: &Lies| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("told to stop"));
        }
        reader.go_to(lies.0.offset);
        let mut bytes = vec![0; usize::try_from(lies.0.size).map_err(io::Error::other)?];
        reader.read_exact(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    });
    let packed = packed.map_err(|error| match error {
        ArtifactError::Pack { path, source } => Unread::Pack { path, detail: source.to_string() },
        other => Unread::Internal(other.to_string()),
    })?;
    let mut to = packed.into_inner().map_err(|error| internal(error.error()))?;
    let size = to.metadata().map_err(|error| internal(&error))?.len();
    if size > limits.artifact_bytes {
        return Err(too_large(Measure::ArtifactBytes, limits.artifact_bytes, None));
    }
    bring_file(&mut to, size, line).map_err(|error| internal(&error))?;
    Ok(Reply::Packed { files: tree.len(), unpacked_bytes: tree.bytes() })
}
