//! `spec.include`: artifacts of other repositories that are put into this one's, in the place of whatever is there.
//!
//! They are unpacked into one file each, of which only sizes and places are in memory, and never by the names that they give. Paths
//! are joined beneath their roots: a `..` at the root stays there, and no link is followed.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::reader::Order;
use super::unread::Unread;
use crate::artifact::{ArtifactError, unpack_with};
use crate::attempt::{AnswerReader, Line};
use crate::tree::{Content, Entry};

/// Artifacts that one repository may include.
pub(super) const MOST: usize = 32;

/// Has the bytes of an artifact.
#[async_trait]
pub trait Stored: fmt::Debug + Send + Sync {
    /// The tar.gz.
    ///
    /// # Errors
    /// Why it cannot be had, for the source's condition.
    async fn bytes(&self) -> Result<StoredBytes, String>;
}

/// The bytes of an artifact, for a short time.
pub struct StoredBytes {
    /// The tar.gz.
    pub bytes: Vec<u8>,
    /// What was reserved for them: free again once this is dropped.
    pub held: Option<roadstead_budget::Reservation>,
}

impl fmt::Debug for StoredBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredBytes({} bytes)", self.bytes.len())
    }
}

/// An artifact that is put into another one.
#[derive(Debug, Clone)]
pub struct Include {
    /// The repository that it is of.
    pub repository: String,
    /// Which of its paths is taken: a folder or a file; all of it where this is empty.
    pub from: String,
    /// Where it is put; the whole artifact is replaced where this is empty.
    pub to: String,
    /// Its bytes.
    pub artifact: Arc<dyn Stored>,
}

impl Include {
    /// What is wrong with its paths, or none.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let bad = |path: &str| path.contains('\0') || names(path).iter().any(|name| !is_name(name));
        [("fromPath", &self.from), ("toPath", &self.to)].into_iter().find(|(_, path)| bad(path)).map(
            |(field, path)| {
                format!(
                    "{field} `{}` of include '{}' is not a path of an artifact",
                    crate::tree::shown(path),
                    self.repository
                )
            },
        )
    }
}

/// Whether an artifact may hold something that is called so.
pub(super) fn is_name(name: &str) -> bool {
    use gix::validate::path::component::Options;
    let options = Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    gix::validate::path::component(name.into(), None, options).is_ok()
}

/// The names in a path beneath a root.
fn names(path: &str) -> Vec<String> {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name.to_owned()),
        }
    }
    names
}

/// The same, as a reader is told it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) repository: String,
    from: String,
    to: String,
    /// The number of the answer that is its artifact.
    answer: usize,
}

impl Told {
    pub(super) fn new(include: &Include, answer: usize) -> Self {
        let joined = |path: &str| names(path).join("/");
        Self {
            repository: include.repository.clone(),
            from: joined(&include.from),
            to: joined(&include.to),
            answer,
        }
    }
}

/// A file's content in the file where an artifact was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    offset: u64,
    pub(super) size: u64,
}

impl Content for Span {
    fn size(&self) -> u64 {
        self.size
    }
}

/// What lies in a folder of an artifact.
#[derive(Debug, Clone)]
pub(super) enum Child {
    Folder,
    File { span: Span, executable: bool },
    Link,
}

/// An artifact that was unpacked.
pub(super) struct Included {
    /// Where it is put.
    pub(super) to: String,
    /// What is put there.
    pub(super) root: Child,
    /// The path of that in the artifact.
    pub(super) from: String,
    contents: File,
    folders: BTreeMap<String, BTreeMap<String, Child>>,
}

impl Included {
    /// What lies in a folder of it.
    pub(super) fn folder(&self, path: &str) -> impl Iterator<Item = (&String, &Child)> {
        self.folders.get(path).into_iter().flatten()
    }

    /// The bytes of a file.
    pub(super) fn content(&self, span: Span) -> Result<Vec<u8>, Unread> {
        let size = usize::try_from(span.size).map_err(|error| internal(&io::Error::other(error)))?;
        let mut bytes = vec![0; size];
        self.contents.read_exact_at(&mut bytes, span.offset).map_err(|error| internal(&error))?;
        Ok(bytes)
    }
}

/// Unpacks what is to be included, with `folder` for its content.
pub(super) fn unpack(order: &Order, line: &Line, folder: &Path) -> Result<Vec<Included>, Unread> {
    let all = order.include.iter().enumerate();
    all.map(|(number, told)| unpack_one(number, told, order, line, folder)).collect()
}

fn unpack_one(
    number: usize,
    told: &Told,
    order: &Order,
    line: &Line,
    folder: &Path,
) -> Result<Included, Unread> {
    let failed = |why: String| Unread::Include { repository: told.repository.clone(), why };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(folder.join(format!("include-{number}")));
    let mut contents = BufWriter::new(file.map_err(|error| internal(&error))?);
    let mut written = 0;
    let answer = BufReader::new(AnswerReader::new(line, told.answer, 0));
    let tree = unpack_with(answer, &order.limits.tree, |entry| {
        let size = io::copy(entry, &mut contents)?;
        let span = Span { offset: written, size };
        written += size;
        Ok(span)
    });
    let tree = tree.map_err(|error| match error {
        ArtifactError::Tree(source) => Unread::Tree { commit: None, source },
        error => failed(error.to_string()),
    })?;
    contents.flush().map_err(|error| internal(&error))?;
    let contents = contents.into_inner().map_err(|error| internal(error.error()))?;
    let mut folders: BTreeMap<String, BTreeMap<String, Child>> = BTreeMap::new();
    folders.entry(String::new()).or_default();
    // Also those that are empty.
    for path in tree.folders().filter(|path| !path.is_empty()) {
        put(&mut folders, path, Child::Folder);
        folders.entry(path.to_owned()).or_default();
    }
    for (path, entry) in tree {
        let child = match entry {
            Entry::File { bytes, executable } => Child::File { span: bytes, executable },
            Entry::Symlink { .. } => Child::Link,
        };
        put(&mut folders, &path, child);
    }
    let root = if folders.contains_key(&told.from) {
        Child::Folder
    } else {
        let (parent, name) = told.from.rsplit_once('/').unwrap_or(("", &told.from));
        let found = folders.get(parent).and_then(|children| children.get(name)).cloned();
        found.ok_or_else(|| failed(format!("its artifact has no `{}`", crate::tree::shown(&told.from))))?
    };
    Ok(Included { to: told.to.clone(), root, from: told.from.clone(), contents, folders })
}

/// Puts something into its folder, and that into its own.
fn put(folders: &mut BTreeMap<String, BTreeMap<String, Child>>, path: &str, child: Child) {
    let (mut path, mut child) = (path, child);
    loop {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_known = folders.contains_key(folder);
        match folders.entry(folder.to_owned()).or_default().entry(name.to_owned()) {
            btree_map::Entry::Vacant(free) => {
                free.insert(child);
            }
            btree_map::Entry::Occupied(_) => return,
        }
        if is_known || folder.is_empty() {
            return;
        }
        (path, child) = (folder, Child::Folder);
    }
}

fn internal(error: &io::Error) -> Unread {
    Unread::Internal { detail: format!("temporary folder: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    #[async_trait]
    impl Stored for Nothing {
        async fn bytes(&self) -> Result<StoredBytes, String> {
            Ok(StoredBytes { bytes: Vec::new(), held: None })
        }
    }

    fn include(from: &str, to: &str) -> Include {
        let (from, to) = (from.to_owned(), to.to_owned());
        Include { repository: "shared".to_owned(), from, to, artifact: Arc::new(Nothing) }
    }

    #[test]
    fn paths_stay_beneath_their_roots() {
        for (path, joined) in [
            ("", ""),
            ("./", ""),
            ("/", ""),
            ("a/b", "a/b"),
            ("/a//b/", "a/b"),
            ("../../etc", "etc"),
            ("a/../../b", "b"),
            ("a/./../..", ""),
        ] {
            let told = Told::new(&include(path, path), 0);
            assert_eq!((told.from.as_str(), told.to.as_str()), (joined, joined), "{path}");
        }
    }

    #[test]
    fn what_no_artifact_holds_is_refused() {
        for bad in [".git", "a/.GIT/hooks", "a/git~1", "a\0b", ".g\u{200c}it"] {
            assert!(include("", bad).refusal().unwrap().contains("toPath"), "{bad}");
            assert!(include(bad, "").refusal().unwrap().contains("fromPath"), "{bad}");
        }
        assert_eq!(include("../a", "b/.github").refusal(), None);
    }
}
