//! What an artifact holds: files and symbolic links by their path, and the rules that hold for every such tree.
//!
//! A [`Tree`] is checked as it is made, so whoever has one knows: every path is relative, in normal form and beneath the
//! root, no path lies beneath a file, nothing is larger than the limits, and no symbolic link leads out of the root, also
//! not by way of other links.

use std::borrow::Cow;
use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

/// How large a tree may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLimits {
    /// How many files and links together, and how many folders.
    pub entries: usize,
    /// How many of them may be symbolic links.
    pub links: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files together.
    pub total_bytes: u64,
    /// Bytes of one path, and of one link's target.
    pub path_bytes: usize,
    /// Names in one path.
    pub depth: usize,
}

impl Default for TreeLimits {
    /// Room for large configuration repositories: 50,000 files of at most 16 MiB, 256 MiB in all.
    fn default() -> Self {
        Self {
            entries: 50_000,
            links: 5_000,
            file_bytes: 16 << 20,
            total_bytes: 256 << 20,
            path_bytes: 1_024,
            depth: 64,
        }
    }
}

/// What was measured when a limit was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Files and links of a tree.
    Entries,
    /// Symbolic links of a tree.
    Links,
    /// Bytes of one file.
    FileBytes,
    /// Bytes of all files of a tree.
    TotalBytes,
    /// Bytes of one path or link target.
    PathBytes,
    /// Names in one path.
    Depth,
    /// Bytes that a server sent.
    TransferBytes,
    /// Bytes of a server's list of references.
    AdvertisementBytes,
    /// Git objects in one pack, or walked in one tree.
    Objects,
    /// Bytes of one Git object.
    ObjectBytes,
    /// Submodules of a Git repository, and theirs.
    Submodules,
    /// Levels of submodules.
    SubmoduleLevels,
    /// Bytes of an artifact when unpacked.
    UnpackedBytes,
    /// Bytes of an artifact as it is packed.
    ArtifactBytes,
    /// Exclusion patterns, or bytes of them.
    Patterns,
    /// Bytes of a manifest of an OCI repository.
    ManifestBytes,
    /// Bytes of a registry's lists of tags.
    ListBytes,
    /// Pages of them.
    ListPages,
    /// Tags of an OCI repository.
    Tags,
    /// Objects of a bucket.
    Keys,
    /// Bytes of a bucket's list of objects.
    ObjectListBytes,
    /// Pages of it.
    ObjectListPages,
    /// Bytes of what is noted of a bucket's objects.
    IndexBytes,
    /// Bytes of the index of a Helm repository.
    HelmIndexBytes,
    /// Versions of charts in it.
    ChartVersions,
    /// Bytes of a packed chart.
    ChartBytes,
    /// Bytes of what says who packed a chart.
    ProvenanceBytes,
    /// Charts that a chart depends on.
    Dependencies,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entries => "files",
            Self::Links => "symbolic links",
            Self::FileBytes => "bytes in one file",
            Self::TotalBytes => "bytes in all files",
            Self::PathBytes => "bytes in one path",
            Self::Depth => "folders deep",
            Self::TransferBytes => "bytes sent by the server",
            Self::AdvertisementBytes => "bytes of references",
            Self::Objects => "Git objects",
            Self::ObjectBytes => "bytes in one Git object",
            Self::Submodules => "submodules",
            Self::SubmoduleLevels => "levels of submodules",
            Self::UnpackedBytes => "bytes unpacked",
            Self::ArtifactBytes => "bytes packed",
            Self::Patterns => "exclusion patterns",
            Self::ManifestBytes => "bytes in one manifest",
            Self::ListBytes => "bytes of lists of tags",
            Self::ListPages => "pages of tags",
            Self::Tags => "tags",
            Self::Keys => "objects in the bucket",
            Self::ObjectListBytes => "bytes of lists of objects",
            Self::ObjectListPages => "pages of objects",
            Self::IndexBytes => "bytes of keys and etags",
            Self::HelmIndexBytes => "bytes in the index",
            Self::ChartVersions => "versions of charts",
            Self::ChartBytes => "bytes in a packed chart",
            Self::ProvenanceBytes => "bytes of provenance",
            Self::Dependencies => "dependencies",
        })
    }
}

/// Why files and links are not a tree that we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum TreeError {
    /// A path is not relative, not in normal form, or not text.
    #[error("path `{}` is refused: {why}", shown(path))]
    BadPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: Cow<'static, str>,
    },
    /// Two entries cannot both exist.
    #[error("path `{}` occurs twice, or lies beneath a file", shown(path))]
    Conflict {
        /// The path.
        path: String,
    },
    /// A limit was passed.
    #[error("more than {limit} {measure}{}", at(path))]
    TooLarge {
        /// What was measured.
        measure: Measure,
        /// The most that is allowed.
        limit: u64,
        /// Where, if one file is to blame.
        path: Option<String>,
    },
    /// A symbolic link leads out of the root.
    #[error(
        "symbolic link `{}` -> `{}` leads out of the repository: only links within it are followed",
        shown(path),
        shown(target)
    )]
    LinkEscapes {
        /// The link.
        path: String,
        /// Its target.
        target: String,
    },
}

/// A text from outside, fit for a message: short and without control characters.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 200;
    let mut out: String = text
        .chars()
        .take(MOST)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

fn at(path: &Option<String>) -> String {
    path.as_ref().map_or_else(String::new, |path| format!(" (at `{}`)", shown(path)))
}

/// What a tree knows of a file's content: the bytes, or where they are to be had.
pub trait Content {
    /// How many bytes it has.
    fn size(&self) -> u64;
}

impl Content for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }
}

/// One file or link.
#[derive(Clone, PartialEq, Eq)]
pub enum Entry<C = Vec<u8>> {
    /// A file.
    File {
        /// Its content.
        bytes: C,
        /// Whether it may be executed.
        executable: bool,
    },
    /// A symbolic link; its target lies within the tree's root (but need not exist).
    Symlink {
        /// The target as written, relative to the link's folder.
        target: String,
    },
}

/// Files are shown by their size: their content may be a secret.
impl<C: Content> fmt::Debug for Entry<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { bytes, executable } => {
                write!(f, "File({} bytes{})", bytes.size(), if *executable { ", executable" } else { "" })
            }
            Self::Symlink { target } => write!(f, "Symlink({target:?})"),
        }
    }
}

/// Files and links by path, sorted by path, and the folders that an artifact of them has lines for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree<C: Content = Vec<u8>> {
    entries: BTreeMap<String, Entry<C>>,
    folders: BTreeSet<String>,
    bytes: u64,
}

impl<C: Content> Default for Tree<C> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), folders: BTreeSet::new(), bytes: 0 }
    }
}

impl<C: Content> Tree<C> {
    /// The entry at `path` (relative, `/` between names), without following links.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry<C>> {
        self.entries.get(path)
    }

    /// All entries, sorted by path.
    pub fn iter(&self) -> btree_map::Iter<'_, String, Entry<C>> {
        self.entries.iter()
    }

    /// The folders that are told of, the root by an empty path. What lies in others is there all the same.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().map(String::as_str)
    }

    /// Those from a path on.
    pub(crate) fn from(&self, path: &str) -> btree_map::Range<'_, String, Entry<C>> {
        let start = Bound::Included(path);
        self.entries.range::<str, _>((start, Bound::Unbounded))
    }

    /// How many files and links.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<'a, C: Content> IntoIterator for &'a Tree<C> {
    type Item = (&'a String, &'a Entry<C>);
    type IntoIter = btree_map::Iter<'a, String, Entry<C>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<C: Content> IntoIterator for Tree<C> {
    type Item = (String, Entry<C>);
    type IntoIter = btree_map::IntoIter<String, Entry<C>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

/// Makes a [`Tree`] and holds it to its rules.
#[derive(Debug)]
pub struct TreeBuilder<C: Content = Vec<u8>> {
    limits: TreeLimits,
    tree: Tree<C>,
    links: usize,
}

impl<C: Content> TreeBuilder<C> {
    /// An empty tree that may grow to `limits`.
    #[must_use]
    pub fn new(limits: TreeLimits) -> Self {
        Self { limits, tree: Tree::default(), links: 0 }
    }

    /// The limits that this tree is held to.
    #[must_use]
    pub fn limits(&self) -> &TreeLimits {
        &self.limits
    }

    /// Refuses a file of `bytes` at `path` before its content is read, if it would pass a limit.
    ///
    /// # Errors
    /// [`TreeError::TooLarge`].
    pub fn check_size(&self, path: &str, bytes: u64) -> Result<(), TreeError> {
        if bytes > self.limits.file_bytes {
            return Err(too_large(Measure::FileBytes, self.limits.file_bytes, Some(path)));
        }
        if self.tree.bytes.saturating_add(bytes) > self.limits.total_bytes {
            return Err(too_large(Measure::TotalBytes, self.limits.total_bytes, Some(path)));
        }
        Ok(())
    }

    /// Adds one entry.
    ///
    /// # Errors
    /// A [`TreeError`] for a path, size, count or duplicate that is not allowed. Links are judged in [`Self::finish`].
    pub fn insert(&mut self, path: String, entry: Entry<C>) -> Result<(), TreeError> {
        check_path(&path, &self.limits)?;
        if self.tree.entries.len() >= self.limits.entries {
            return Err(too_large(Measure::Entries, self.limits.entries as u64, None));
        }
        let size = match &entry {
            Entry::File { bytes, .. } => {
                self.check_size(&path, bytes.size())?;
                bytes.size()
            }
            Entry::Symlink { target } => {
                self.check_link(&path, target)?;
                0
            }
        };
        match self.tree.entries.entry(path) {
            btree_map::Entry::Occupied(taken) => Err(TreeError::Conflict { path: taken.key().clone() }),
            btree_map::Entry::Vacant(free) => {
                free.insert(entry);
                self.tree.bytes += size;
                Ok(())
            }
        }
    }

    /// Tells of a folder; of the root by an empty path.
    ///
    /// # Errors
    /// A [`TreeError`] for a path or count that is not allowed.
    pub fn folder(&mut self, path: &str) -> Result<(), TreeError> {
        if !path.is_empty() {
            check_path(path, &self.limits)?;
        }
        if !self.tree.folders.contains(path) {
            if self.tree.folders.len() > self.limits.entries {
                return Err(too_large(Measure::Entries, self.limits.entries as u64, None));
            }
            self.tree.folders.insert(path.to_owned());
        }
        Ok(())
    }

    fn check_link(&mut self, path: &str, target: &str) -> Result<(), TreeError> {
        self.links += 1;
        if self.links > self.limits.links {
            return Err(too_large(Measure::Links, self.limits.links as u64, None));
        }
        if target.len() > self.limits.path_bytes {
            return Err(too_large(Measure::PathBytes, self.limits.path_bytes as u64, Some(path)));
        }
        if target.is_empty() || target.contains('\0') {
            return Err(TreeError::BadPath {
                path: path.to_owned(),
                why: "a link's target is empty or holds a NUL".into(),
            });
        }
        Ok(())
    }

    /// The finished tree, with every folder that something lies in.
    ///
    /// # Errors
    /// As [`Self::finish_as_told`].
    pub fn finish(mut self) -> Result<Tree<C>, TreeError> {
        let Tree { entries, folders, .. } = &mut self.tree;
        folders.insert(String::new());
        for path in entries.keys() {
            // From the innermost on: what is known has those around it.
            let above = path.match_indices('/').rev().map(|(at, _)| &path[..at]);
            for folder in above {
                if folders.contains(folder) {
                    break;
                }
                if folders.len() > self.limits.entries {
                    return Err(too_large(Measure::Entries, self.limits.entries as u64, None));
                }
                folders.insert(folder.to_owned());
            }
        }
        self.finish_as_told()
    }

    /// The finished tree, with the folders that were told of and no others.
    ///
    /// # Errors
    /// [`TreeError::Conflict`] if an entry lies beneath a file or link, [`TreeError::LinkEscapes`] if a link leads out.
    pub fn finish_as_told(self) -> Result<Tree<C>, TreeError> {
        for (path, entry) in &self.tree {
            let mut rest = path.as_str();
            while let Some((folder, _)) = rest.rsplit_once('/') {
                if self.tree.entries.contains_key(folder) {
                    return Err(TreeError::Conflict { path: path.clone() });
                }
                rest = folder;
            }
            if let Entry::Symlink { target } = entry
                && !stays_inside(&self.tree, path, target)
            {
                return Err(TreeError::LinkEscapes { path: path.clone(), target: target.clone() });
            }
        }
        for path in &self.tree.folders {
            let mut above = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path.as_str()]);
            if above.any(|folder| self.tree.entries.contains_key(folder)) {
                return Err(TreeError::Conflict { path: path.clone() });
            }
        }
        Ok(self.tree)
    }
}

pub(crate) fn too_large(measure: Measure, limit: u64, path: Option<&str>) -> TreeError {
    TreeError::TooLarge { measure, limit, path: path.map(str::to_owned) }
}

/// Refuses whatever is not a plain relative path beneath the root.
pub(crate) fn check_path(path: &str, limits: &TreeLimits) -> Result<(), TreeError> {
    let bad = |why: &'static str| Err(TreeError::BadPath { path: path.to_owned(), why: why.into() });
    if path.len() > limits.path_bytes {
        return Err(too_large(Measure::PathBytes, limits.path_bytes as u64, Some(path)));
    }
    let mut depth = 0;
    for name in path.split('/') {
        depth += 1;
        match name {
            "" => return bad("it is empty, absolute, or has an empty name in it"),
            "." | ".." => return bad("`.` and `..` are not file names"),
            _ if name.contains('\0') => return bad("it holds a NUL"),
            _ => {}
        }
    }
    if depth > limits.depth {
        return Err(too_large(Measure::Depth, limits.depth as u64, Some(path)));
    }
    Ok(())
}

/// Whether the link at `path` stays beneath the root when the system follows it, other links on its way included.
///
/// Looking at the text alone is not enough: with `a/up -> ../.`, the link `out -> a/up/..` climbs out although its text
/// does not. A link that cannot be followed to its end (a loop, a way too long) is refused as well: nobody can use it,
/// and nobody can say where it leads.
fn stays_inside<C: Content>(tree: &Tree<C>, path: &str, target: &str) -> bool {
    const MOST_STEPS: usize = 1_000;
    let mut place: Vec<&str> = path.split('/').collect();
    place.pop();
    if target.starts_with('/') {
        return false;
    }
    let mut ahead: Vec<&str> = target.rsplit('/').collect();
    let mut steps = 0;
    while let Some(name) = ahead.pop() {
        steps += 1;
        if steps > MOST_STEPS {
            return false;
        }
        match name {
            "" | "." => {}
            ".." => {
                if place.pop().is_none() {
                    return false;
                }
            }
            name => {
                place.push(name);
                if let Some(Entry::Symlink { target }) = tree.entries.get(&place.join("/")) {
                    if target.starts_with('/') {
                        return false;
                    }
                    place.pop();
                    ahead.extend(target.rsplit('/'));
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits};

    fn file(bytes: &[u8]) -> Entry {
        Entry::File { bytes: bytes.to_vec(), executable: false }
    }

    fn link(target: &str) -> Entry {
        Entry::Symlink { target: target.to_owned() }
    }

    fn tree(entries: &[(&str, Entry)]) -> Result<Tree, TreeError> {
        let limits =
            TreeLimits { entries: 8, links: 4, file_bytes: 10, total_bytes: 20, path_bytes: 40, depth: 4 };
        let mut builder = TreeBuilder::new(limits);
        for (path, entry) in entries {
            builder.insert((*path).to_owned(), entry.clone())?;
        }
        builder.finish()
    }

    fn escapes(entries: &[(&str, Entry)]) -> bool {
        matches!(tree(entries), Err(TreeError::LinkEscapes { .. }))
    }

    #[test]
    fn paths_that_are_not_beneath_the_root_are_refused() {
        for path in ["", "/", "/etc/passwd", "..", "../x", "a/../b", "a//b", "./a", "a/", "a\0b"] {
            assert!(
                matches!(tree(&[(path, file(b""))]), Err(TreeError::BadPath { .. })),
                "{path:?} was taken: {:?}",
                tree(&[(path, file(b""))])
            );
        }
        assert!(tree(&[("a/..b/...", file(b"")), ("a b/ü\n", file(b""))]).is_ok());
    }

    #[test]
    fn nothing_lies_beneath_a_file_and_nothing_twice() {
        assert!(matches!(tree(&[("a", file(b"")), ("a", file(b""))]), Err(TreeError::Conflict { .. })));
        assert!(matches!(tree(&[("a", file(b"")), ("a/b/c", file(b""))]), Err(TreeError::Conflict { .. })));
        assert!(matches!(tree(&[("a", link("b")), ("a/c", file(b""))]), Err(TreeError::Conflict { .. })));
        assert!(tree(&[("a", file(b"")), ("ab/c", file(b"")), ("a.b", file(b""))]).is_ok());
    }

    #[test]
    fn limits_hold() {
        let measure = |entries: &[(&str, Entry)]| match tree(entries) {
            Err(TreeError::TooLarge { measure, .. }) => Some(measure),
            _ => None,
        };
        assert_eq!(measure(&[("a", file(&[0; 11]))]), Some(Measure::FileBytes));
        assert_eq!(measure(&[("a", file(&[0; 10])), ("b", file(&[0; 10]))]), None);
        assert_eq!(
            measure(&[("a", file(&[0; 10])), ("b", file(&[0; 10])), ("c", file(&[0]))]),
            Some(Measure::TotalBytes)
        );
        assert_eq!(measure(&[("a/b/c/d/e", file(b""))]), Some(Measure::Depth));
        assert_eq!(measure(&[(&"x".repeat(41), file(b""))]), Some(Measure::PathBytes));
        assert_eq!(measure(&[("l", link(&"x".repeat(41)))]), Some(Measure::PathBytes));
        let names: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        let files: Vec<(&str, Entry)> = names.iter().map(|name| (name.as_str(), file(b""))).collect();
        assert_eq!(measure(&files), Some(Measure::Entries));
        let links: Vec<(&str, Entry)> = names.iter().take(5).map(|name| (name.as_str(), link("x"))).collect();
        assert_eq!(measure(&links), Some(Measure::Links));
    }

    #[test]
    fn links_within_the_root_stay() {
        let tree = tree(&[
            ("base/app.yaml", file(b"x")),
            ("overlay/app.yaml", link("../base/app.yaml")),
            ("current", link("overlay/./")),
            ("dangling", link("not/here")),
        ])
        .unwrap();
        assert_eq!(tree.get("current"), Some(&link("overlay/./")));
    }

    #[test]
    fn links_out_of_the_root_are_refused() {
        assert!(escapes(&[("a", link("/etc/passwd"))]));
        assert!(escapes(&[("a", link(".."))]));
        assert!(escapes(&[("a/b", link("../../x"))]));
        assert!(escapes(&[("a/b", link("../c/../../x"))]));
    }

    #[test]
    fn links_out_of_the_root_by_way_of_links_are_refused() {
        // The text of `out` never climbs above the root; the way that the system walks does.
        assert!(escapes(&[("a/b/up", link("../..")), ("out", link("a/b/up/.."))]));
        assert!(!escapes(&[("a/b/up", link("../..")), ("in", link("a/b/up/a"))]));
    }

    #[test]
    fn links_in_a_loop_are_refused_and_end() {
        assert!(escapes(&[("a", link("b")), ("b", link("a"))]));
        assert!(escapes(&[("a", link("a/a/a/a"))]));
    }

    #[test]
    fn errors_name_the_link_and_stay_short() {
        let error = tree(&[("conf/x", link("../../etc/passwd"))]).unwrap_err().to_string();
        assert!(error.contains("`conf/x` -> `../../etc/passwd`"), "{error}");
        let error = tree(&[(&"é\u{1b}".repeat(200), file(b""))]).unwrap_err().to_string();
        assert!(error.chars().count() < 300 && !error.contains('\u{1b}'), "{error}");
    }
}
