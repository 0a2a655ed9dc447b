//! The files that a build reads, as a trait: an artifact in memory, a folder on disk, a Git tree.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

/// How many links one path may pass through.
const MAX_LINKS: usize = 40;

/// A path beneath the root of a tree: no `.`, no `..`, no empty part, `/` between parts; the root is empty.
///
/// ```
/// use roadstead_kustomize::TreePath;
///
/// let app = TreePath::new("clusters/./prod/").ok_or("leaves the root")?;
/// assert_eq!(app.as_str(), "clusters/prod");
/// assert_eq!(app.join("../base").ok_or("leaves the root")?.as_str(), "clusters/base");
/// assert!(app.join("../../..").is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(String);

impl TreePath {
    /// The root of the tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads a path from the root; a leading `/` means the root too. `None` where it leaves the root.
    pub fn new(path: &str) -> Option<Self> {
        Self::root().join(path)
    }

    /// Follows a path from here (from the root if it starts with `/`). `None` where it leaves the root.
    pub fn join(&self, path: &str) -> Option<Self> {
        let mut out = if path.starts_with('/') { String::new() } else { self.0.clone() };
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." if out.is_empty() => return None,
                ".." => out.truncate(out.rfind('/').unwrap_or(0)),
                part if part.contains('\0') => return None,
                part => {
                    if !out.is_empty() {
                        out.push('/');
                    }
                    out.push_str(part);
                }
            }
        }
        Some(Self(out))
    }

    /// The path as text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for messages; `.` for the root.
    pub fn display(&self) -> &str {
        if self.0.is_empty() { "." } else { &self.0 }
    }

    /// Is this the root?
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory that holds it; the root for the root.
    pub fn parent(&self) -> Self {
        Self(self.0.rfind('/').map_or_else(String::new, |i| self.0[..i].to_owned()))
    }

    /// The last part.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Is it `dir`, or beneath it?
    pub fn is_within(&self, dir: &Self) -> bool {
        dir.0.is_empty()
            || self.0.strip_prefix(&dir.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.display())
    }
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, with its target as written.
    Symlink {
        /// Where it points, relative to its directory.
        target: String,
    },
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// Why something in a tree could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// Nothing there.
    #[error("no file or directory {:?}", .0.display())]
    NotFound(TreePath),
    /// A directory where a file was wanted.
    #[error("{:?} is a directory, a file is needed", .0.display())]
    NotAFile(TreePath),
    /// A file where a directory was wanted.
    #[error("{:?} is a file, a directory is needed", .0.display())]
    NotADirectory(TreePath),
    /// A link that leaves the root of the tree.
    #[error("the link {:?} points to {target:?}, outside the root", link.display())]
    LinkLeavesRoot {
        /// The link.
        link: TreePath,
        /// Its target, as written.
        target: String,
    },
    /// Links that point to each other.
    #[error("too many symbolic links on the path to {:?}", .0.display())]
    LinkLoop(TreePath),
    /// A path that leaves the root of the tree.
    #[error("path {path:?} (from {:?}) leaves the root", from.display())]
    PathLeavesRoot {
        /// Where the path starts.
        from: TreePath,
        /// The path, as written.
        path: String,
    },
    /// A file over the bound.
    #[error("file {:?} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: TreePath,
        /// The bound in bytes.
        limit: usize,
    },
    /// The tree itself failed.
    #[error("cannot read {:?}: {message}", path.display())]
    Io {
        /// What was read.
        path: TreePath,
        /// Why it failed.
        message: String,
    },
}

/// Files beneath one root: what a caller implements for an archive, a folder or a Git tree ([`MemoryTree`] is one that holds
/// them in memory).
///
/// ```
/// use std::borrow::Cow;
/// use roadstead_kustomize::{Entry, EntryKind, FileTree, Options, TreeError, TreePath, build};
///
/// /// A tree of one file.
/// struct One(&'static str);
///
/// impl FileTree for One {
///     fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError> {
///         Ok(match path.as_str() {
///             "" => Some(EntryKind::Directory),
///             "pod.yaml" => Some(EntryKind::File),
///             _ => None,
///         })
///     }
///
///     fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError> {
///         if self.0.len() > limit {
///             return Err(TreeError::TooLarge { path: path.clone(), limit });
///         }
///         Ok(Cow::Borrowed(self.0.as_bytes()))
///     }
///
///     fn entries(&self, _: &TreePath) -> Result<Vec<Entry>, TreeError> {
///         Ok(vec![Entry { name: "pod.yaml".into(), kind: EntryKind::File }])
///     }
/// }
///
/// let tree = One("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n");
/// assert_eq!(build(&tree, &TreePath::root(), &Options::default())?.objects[0].name(), "p");
/// # Ok::<(), roadstead_kustomize::Error>(())
/// ```
///
/// Implementations do not follow links: [`resolve`] does, and never out of the root.
pub trait FileTree: Send + Sync {
    /// What stands at a path whose parents are not links; `None` for nothing.
    fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError>;

    /// The bytes of a regular file, refused over `limit` bytes.
    fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError>;

    /// The entries of a directory, sorted by name.
    fn entries(&self, dir: &TreePath) -> Result<Vec<Entry>, TreeError>;
}

/// Follows the links on the way to a path; gives the real path and what stands there (never a link).
pub fn resolve(tree: &dyn FileTree, path: &TreePath) -> Result<(TreePath, EntryKind), TreeError> {
    let mut links = 0;
    let mut done = TreePath::root();
    let mut todo: Vec<String> =
        path.as_str().split('/').rev().filter(|p| !p.is_empty()).map(str::to_owned).collect();
    let mut kind = EntryKind::Directory;
    while let Some(part) = todo.pop() {
        if kind == EntryKind::File {
            return Err(TreeError::NotADirectory(done));
        }
        if part == ".." {
            // Only the target of a link holds this, and it may pass through links of its own.
            if done.is_root() {
                return Err(TreeError::PathLeavesRoot { from: TreePath::root(), path: path.to_string() });
            }
            done = done.parent();
            kind = EntryKind::Directory;
            continue;
        }
        let next = done.join(&part).ok_or_else(|| TreeError::NotFound(path.clone()))?;
        match tree.kind(&next)?.ok_or_else(|| TreeError::NotFound(path.clone()))? {
            EntryKind::Symlink { target } => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(TreeError::LinkLoop(path.clone()));
                }
                let leaves = || TreeError::LinkLeavesRoot { link: next.clone(), target: target.clone() };
                // The target is checked by its text from the real directory of the link, and each link on its way again.
                if target.starts_with('/') || done.join(&target).is_none() {
                    return Err(leaves());
                }
                todo.extend(
                    target.split('/').rev().filter(|p| !p.is_empty() && *p != ".").map(str::to_owned),
                );
            }
            found => {
                done = next;
                kind = found;
            }
        }
    }
    Ok((done, kind))
}

/// A tree in memory: what the hub makes from an artifact.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::{EntryKind, FileTree, MemoryTree, TreePath};
///
/// let mut tree = MemoryTree::new();
/// let path = |text| TreePath::new(text).ok_or("leaves the root");
/// tree.insert_file(path("base/kustomization.yaml")?, "resources: [pod.yaml]\n");
/// tree.insert_symlink(path("latest")?, "base");
/// assert_eq!(tree.kind(&path("base")?)?, Some(EntryKind::Directory));
/// assert_eq!(tree.read(&path("base/kustomization.yaml")?, 1 << 20)?, &b"resources: [pod.yaml]\n"[..]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryTree {
    nodes: BTreeMap<TreePath, MemoryNode>,
}

/// What stands at a path of a [`MemoryTree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node<'a> {
    /// A file, with its bytes.
    File(&'a [u8]),
    /// A symbolic link, with its target.
    Symlink(&'a str),
    /// A directory that was added as such.
    Directory,
}

#[derive(Debug, Clone)]
enum MemoryNode {
    File(Vec<u8>),
    Symlink(String),
    Directory,
}

impl MemoryTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a file; its directories need not be added.
    pub fn insert_file(&mut self, path: TreePath, bytes: impl Into<Vec<u8>>) {
        self.nodes.insert(path, MemoryNode::File(bytes.into()));
    }

    /// Adds or replaces a symbolic link.
    pub fn insert_symlink(&mut self, path: TreePath, target: impl Into<String>) {
        self.nodes.insert(path, MemoryNode::Symlink(target.into()));
    }

    /// Adds an (empty) directory.
    pub fn insert_directory(&mut self, path: TreePath) {
        self.nodes.entry(path).or_insert(MemoryNode::Directory);
    }

    /// Number of files, links and directories added.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What was added, by its path.
    pub fn iter(&self) -> impl Iterator<Item = (&TreePath, Node<'_>)> {
        self.nodes.iter().map(|(path, node)| {
            let node = match node {
                MemoryNode::File(bytes) => Node::File(bytes),
                MemoryNode::Symlink(target) => Node::Symlink(target),
                MemoryNode::Directory => Node::Directory,
            };
            (path, node)
        })
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn beneath<'a>(&'a self, dir: &TreePath) -> impl Iterator<Item = (&'a str, &'a MemoryNode)> + use<'a> {
        let prefix = if dir.is_root() { String::new() } else { format!("{dir}/") };
        let start = Bound::Included(TreePath(prefix.clone()));
        self.nodes
            .range((start, Bound::Unbounded))
            .map_while(move |(path, node)| path.0.strip_prefix(&prefix).map(|rest| (rest, node)))
            .filter(|(rest, _)| !rest.is_empty())
    }
}

impl FileTree for MemoryTree {
    fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError> {
        Ok(match self.nodes.get(path) {
            Some(MemoryNode::File(_)) => Some(EntryKind::File),
            Some(MemoryNode::Symlink(target)) => Some(EntryKind::Symlink { target: target.clone() }),
            Some(MemoryNode::Directory) => Some(EntryKind::Directory),
            None if path.is_root() || self.beneath(path).next().is_some() => Some(EntryKind::Directory),
            None => None,
        })
    }

    fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError> {
        match self.nodes.get(path) {
            Some(MemoryNode::File(bytes)) if bytes.len() > limit => {
                Err(TreeError::TooLarge { path: path.clone(), limit })
            }
            Some(MemoryNode::File(bytes)) => Ok(Cow::Borrowed(bytes)),
            Some(_) => Err(TreeError::NotAFile(path.clone())),
            None => Err(TreeError::NotFound(path.clone())),
        }
    }

    fn entries(&self, dir: &TreePath) -> Result<Vec<Entry>, TreeError> {
        let mut entries: BTreeMap<&str, EntryKind> = BTreeMap::new();
        for (rest, node) in self.beneath(dir) {
            match rest.split_once('/') {
                Some((name, _)) => {
                    entries.insert(name, EntryKind::Directory);
                }
                None => {
                    let kind = match node {
                        MemoryNode::File(_) => EntryKind::File,
                        MemoryNode::Symlink(target) => EntryKind::Symlink { target: target.clone() },
                        MemoryNode::Directory => EntryKind::Directory,
                    };
                    entries.entry(rest).or_insert(kind);
                }
            }
        }
        Ok(entries.into_iter().map(|(name, kind)| Entry { name: name.to_owned(), kind }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text).unwrap()
    }

    #[test]
    fn paths_are_normalised_and_stay_beneath_the_root() {
        assert_eq!(path("a/./b//../c").as_str(), "a/c");
        assert_eq!(TreePath::new("a/../.."), None);
        assert_eq!(path("a/b").join("/c").unwrap().as_str(), "c");
        assert!(path("ab").join("../b").unwrap().is_within(&path("b")));
        assert!(!path("ab").is_within(&path("a")));
    }

    #[test]
    fn links_stay_beneath_the_root() {
        let mut tree = MemoryTree::new();
        tree.insert_file(path("real/x.yaml"), "x");
        tree.insert_symlink(path("apps/link"), "../real");
        tree.insert_symlink(path("apps/out"), "../../etc");
        tree.insert_symlink(path("apps/loop"), "loop");
        assert_eq!(
            resolve(&tree, &path("apps/link/x.yaml")).unwrap(),
            (path("real/x.yaml"), EntryKind::File)
        );
        let error = resolve(&tree, &path("apps/out/passwd")).unwrap_err().to_string();
        assert_eq!(error, "the link \"apps/out\" points to \"../../etc\", outside the root");
        assert!(matches!(resolve(&tree, &path("apps/loop")), Err(TreeError::LinkLoop(_))));
    }

    #[test]
    fn entries_of_a_directory() {
        let mut tree = MemoryTree::new();
        tree.insert_file(path("a/b/c.yaml"), "");
        tree.insert_file(path("a/b.yaml"), "");
        let names: Vec<_> = tree.entries(&path("a")).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["b", "b.yaml"]);
        assert_eq!(tree.kind(&path("a")).unwrap(), Some(EntryKind::Directory));
    }
}
