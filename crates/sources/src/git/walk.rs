//! From objects to a tree in memory: a commit's folders, those of submodules in their places, and what is included over all of
//! them. Nothing is checked out on a disk.

mod modules;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{Find, FindExt as _, FindHeader, Header, Kind};
use serde::{Deserialize, Serialize};

use super::error::git_chain;
use super::include::{Child, Included, Span, is_name};
use super::objects;
use super::objects::{corrupt, go_on, header, header_of_tree, tree_of};
use super::reader::Order;
use super::sparse::{Place, Sparse};
use super::unread::Unread;
use crate::attempt::{MOST_NOTES, Note};
use crate::ignore::{FILE_NAME, Ignore, Verdict};
use crate::tree::{Content, Entry, Measure, Tree, TreeBuilder, TreeError, too_large};

/// A file's content where it lies: it is read when it is packed, so that all files are never in memory together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blob {
    /// In a repository.
    Object { repository: usize, id: ObjectId, size: u64 },
    /// In an artifact that is included.
    Included { number: usize, span: Span },
}

impl Content for Blob {
    fn size(&self) -> u64 {
        match self {
            Self::Object { size, .. } => *size,
            Self::Included { span, .. } => span.size,
        }
    }
}

/// What the files come from.
pub(super) struct From<'a, O> {
    /// The repository, and its submodules as [`Order::modules`] has them.
    pub(super) repositories: &'a [&'a O],
    pub(super) included: &'a [Included],
}

/// A submodule that is not there yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wanted {
    /// Its folder, from the root of all.
    pub(super) path: String,
    pub(super) commit: String,
    /// As `.gitmodules` has it.
    pub(super) url: String,
    /// The number of the repository that names it.
    pub(super) parent: usize,
}

/// The files that were found.
pub(super) struct Walked {
    pub(super) tree: Tree<Blob>,
    pub(super) notes: Vec<Note>,
    /// Submodules that are to be had first.
    pub(super) wanted: Vec<Wanted>,
}

/// Finds the files of a commit.
pub(super) fn walk<O: Find + FindHeader>(
    from: &From<'_, O>,
    commit: ObjectId,
    order: &Order,
    ignore: &Ignore,
    stop: &AtomicBool,
) -> Result<Walked, Unread> {
    match walk_with(from, commit, order, ignore.clone(), stop)? {
        Some(walked) => Ok(walked),
        // A folder has patterns, so the defaults do not hold for what was passed before it either.
        None => walk_with(from, commit, order, ignore.without_those_by_default(), stop)?
            .ok_or_else(|| corrupt("its patterns are not those that they were".to_owned())),
    }
}

/// The same with the defaults where those hold; none where they turn out not to.
fn walk_with<O: Find + FindHeader>(
    from: &From<'_, O>,
    commit: ObjectId,
    order: &Order,
    ignore: Ignore,
    stop: &AtomicBool,
) -> Result<Option<Walked>, Unread> {
    let id = commit.to_string();
    let Some(first) = from.repositories.first() else {
        return Err(corrupt("there is no repository".to_owned()));
    };
    let root = tree_of(*first, commit, order)?;
    let mut walk = Walk {
        from,
        order,
        stop,
        id: &id,
        builder: TreeBuilder::new(order.limits.tree.clone()),
        notes: Vec::new(),
        seen: 0,
        sparse: Sparse::new(&order.sparse),
        roots: vec![None; from.repositories.len()],
        urls: BTreeMap::new(),
        wanted: Vec::new(),
        links: None,
    };
    walk.sparse.see("");
    if let Some(place) = walk.roots.first_mut() {
        *place = Some(root);
    }
    let mut node = Folder::Git { repository: 0, tree: root };
    let mut rank = 0;
    for (number, included) in from.included.iter().enumerate().filter(|(_, included)| included.to.is_empty())
    {
        // In the place of everything.
        let Child::Folder = included.root else {
            let why = "a file cannot be the whole artifact: set toPath".to_owned();
            return Err(Unread::Include { repository: order.included_name(number), why });
        };
        (node, rank) = (Folder::Included { number, path: included.from.clone() }, number + 1);
    }
    walk.tell_folder("")?;
    let mut folders = vec![Open { path: String::new(), node, rank, ignore }];
    while let Some(open) = folders.pop() {
        if !walk.folder(open, &mut folders)? {
            return Ok(None);
        }
    }
    let Walk { builder, mut notes, sparse, wanted, links, .. } = walk;
    notes.extend(links.map(|(count, first)| Note::LinksLeftOut { count, first }));
    if let Some(folder) = sparse.missing().filter(|_| rank == 0 && wanted.is_empty()) {
        return Err(Unread::NoFolder { folder: folder.to_owned() });
    }
    let tree = builder.finish_as_told().map_err(|error| Unread::tree(Some(&id), error))?;
    Ok(Some(Walked { tree, notes, wanted }))
}

/// The bytes of a file that was found.
pub(super) fn content<O: Find + FindHeader>(
    from: &From<'_, O>,
    blob: &Blob,
    stop: &AtomicBool,
) -> Result<Vec<u8>, Unread> {
    match *blob {
        Blob::Object { repository, id, size } => {
            let objects =
                from.repositories.get(repository).ok_or_else(|| corrupt("no repository".to_owned()))?;
            objects::bytes(*objects, id, size, stop)
        }
        Blob::Included { number, span } => {
            go_on(stop)?;
            let included = from.included.get(number).ok_or_else(|| corrupt("no include".to_owned()))?;
            included.content(span)
        }
    }
}

/// Where the lines of a folder come from.
#[derive(Debug, Clone)]
enum Folder {
    Git {
        repository: usize,
        tree: ObjectId,
    },
    Included {
        number: usize,
        path: String,
    },
    /// On the way to something that is included.
    Empty,
}

/// A folder that is to be walked.
struct Open {
    path: String,
    node: Folder,
    /// Only includes after this many are put over it: the others were replaced by it.
    rank: usize,
    ignore: Ignore,
}

/// One line of a folder.
#[derive(Debug)]
struct Line {
    node: Node,
    rank: usize,
}

#[derive(Debug)]
enum Node {
    Folder(Folder),
    Object { kind: EntryKind, repository: usize, id: ObjectId },
    Included { number: usize, child: Child },
}

struct Walk<'a, O> {
    from: &'a From<'a, O>,
    order: &'a Order,
    stop: &'a AtomicBool,
    id: &'a str,
    builder: TreeBuilder<Blob>,
    notes: Vec<Note>,
    /// Entries looked at, also those that are left out: a tree that refers to itself many times costs time, not bytes.
    seen: u32,
    /// The folders that are asked for.
    sparse: Sparse,
    /// The root of each repository.
    roots: Vec<Option<ObjectId>>,
    /// What `.gitmodules` of a repository says.
    urls: BTreeMap<usize, BTreeMap<String, String>>,
    wanted: Vec<Wanted>,
    /// Symbolic links that are left out: how many, and the first.
    links: Option<(u64, String)>,
}

impl<O: Find + FindHeader> Walk<'_, O> {
    /// Takes what lies in a folder; false where that shows that the defaults do not hold.
    fn folder(&mut self, open: Open, folders: &mut Vec<Open>) -> Result<bool, Unread> {
        let Open { path, node, rank, ignore } = open;
        let mut lines = match &node {
            Folder::Git { repository, tree } => self.git_lines(&path, *repository, *tree, rank)?,
            Folder::Included { number, path } => self.included_lines(*number, path, rank),
            Folder::Empty => BTreeMap::new(),
        };
        self.put_over(&path, rank, &mut lines);
        let ignore = match lines.get(FILE_NAME) {
            Some(Line { node, .. }) => match self.file(node, FILE_NAME)? {
                Some((blob, _)) => {
                    let content = content(self.from, &blob, self.stop)?;
                    let with_own = ignore.with_file(&path, &content).map_err(|error| self.refused(error))?;
                    // At the root nothing was passed yet.
                    if ignore.has_defaults() && !with_own.has_defaults() && !path.is_empty() {
                        return Ok(false);
                    }
                    with_own
                }
                None => ignore,
            },
            None => ignore,
        };
        for (name, line) in lines {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.line(line, path, &ignore, folders)?;
        }
        Ok(true)
    }

    /// The lines of a folder of a repository, as far as they are asked for.
    fn git_lines(
        &mut self,
        folder: &str,
        repository: usize,
        tree: ObjectId,
        rank: usize,
    ) -> Result<BTreeMap<String, Line>, Unread> {
        let mut lines = BTreeMap::new();
        for (kind, name, id) in self.tree_lines(repository, tree)? {
            let Ok(name) = String::from_utf8(name) else {
                self.note(Note::NameNotUtf8 { path: format!("{folder}/…") });
                continue;
            };
            // Git itself never writes such names; they are how a hostile tree reaches into a clone's settings.
            if !is_name(&name) {
                let why = "a Git tree cannot hold such a name";
                return Err(self.refused(TreeError::BadPath { path: name, why: why.into() }));
            }
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let is_folder = kind == EntryKind::Tree || kind == EntryKind::Commit && self.order.recurse;
            if is_folder {
                self.sparse.see(&path);
            }
            match self.sparse.place(&path) {
                Place::Above if is_folder => {}
                Place::Inside if is_folder || !self.sparse.is_one(&path) => {}
                _ => continue,
            }
            let node = match kind {
                EntryKind::Tree => Node::Folder(Folder::Git { repository, tree: id }),
                kind => Node::Object { kind, repository, id },
            };
            match lines.entry(name) {
                Slot::Vacant(free) => free.insert(Line { node, rank }),
                Slot::Occupied(_) => return Err(self.refused(TreeError::Conflict { path })),
            };
        }
        Ok(lines)
    }

    fn included_lines(&self, number: usize, path: &str, rank: usize) -> BTreeMap<String, Line> {
        let Some(included) = self.from.included.get(number) else { return BTreeMap::new() };
        let lines = included.folder(path).map(|(name, child)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            (name.clone(), Line { node: included_node(number, child, path), rank })
        });
        lines.collect()
    }

    /// Puts what is included into a folder, over what is there.
    fn put_over(&self, folder: &str, rank: usize, lines: &mut BTreeMap<String, Line>) {
        for (number, included) in self.from.included.iter().enumerate().skip(rank) {
            let beneath = match folder {
                "" => Some(included.to.as_str()),
                folder => included.to.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
            };
            let Some(rest) = beneath.filter(|rest| !rest.is_empty()) else { continue };
            match rest.split_once('/') {
                None => {
                    let node = included_node(number, &included.root, included.from.clone());
                    lines.insert(rest.to_owned(), Line { node, rank: number + 1 });
                }
                // On the way to it: whatever is not a folder gives way.
                Some((name, _)) => match lines.get(name) {
                    Some(Line {
                        node: Node::Folder(_) | Node::Object { kind: EntryKind::Commit, .. },
                        ..
                    }) => {}
                    _ => {
                        let node = Node::Folder(Folder::Empty);
                        lines.insert(name.to_owned(), Line { node, rank });
                    }
                },
            }
        }
    }

    fn line(
        &mut self,
        line: Line,
        path: String,
        ignore: &Ignore,
        folders: &mut Vec<Open>,
    ) -> Result<(), Unread> {
        let Line { node, rank } = line;
        let is_folder = matches!(node, Node::Folder(_) | Node::Object { kind: EntryKind::Commit, .. });
        let verdict = ignore.look(&path, is_folder);
        let excluded = verdict.is_some_and(Verdict::excluded);
        if is_folder && !excluded {
            self.tell_folder(&path)?;
        }
        match node {
            // Otherwise what is left out is looked into all the same: patterns in it may take something back, and count for all.
            _ if is_folder && ignore.is_out_for_good(verdict) => {}
            Node::Folder(node) => self.go_into(path, node, rank, ignore.inside(verdict), folders)?,
            Node::Object { kind: EntryKind::Commit, repository, id } => {
                match self.submodule(&path, repository, id, excluded)? {
                    Some(node) => self.go_into(path, node, rank, ignore.inside(verdict), folders)?,
                    // What is put there is put there, whether or not the submodule is.
                    None if self.is_on_the_way(&path, rank) => {
                        self.go_into(path, Folder::Empty, rank, ignore.inside(verdict), folders)?;
                    }
                    None => {}
                }
            }
            _ if excluded => {}
            // As in Flux, and told.
            Node::Object { kind: EntryKind::Link, .. } | Node::Included { child: Child::Link, .. } => {
                self.links.get_or_insert((0, path)).0 += 1;
            }
            node => {
                if let Some((bytes, executable)) = self.file(&node, &path)? {
                    self.insert(path, Entry::File { bytes, executable })?;
                }
            }
        }
        Ok(())
    }

    fn go_into(
        &self,
        path: String,
        node: Folder,
        rank: usize,
        ignore: Ignore,
        folders: &mut Vec<Open>,
    ) -> Result<(), Unread> {
        let limits = self.builder.limits();
        if path.split('/').count() >= limits.depth {
            return Err(self.refused(too_large(Measure::Depth, limits.depth as u64, Some(&path))));
        }
        if path.len() > limits.path_bytes {
            return Err(self.refused(too_large(Measure::PathBytes, limits.path_bytes as u64, Some(&path))));
        }
        folders.push(Open { path, node, rank, ignore });
        Ok(())
    }

    /// Whether something is put beneath a folder.
    fn is_on_the_way(&self, folder: &str, rank: usize) -> bool {
        let beneath = |to: &str| to.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.from.included.iter().skip(rank).any(|included| beneath(&included.to))
    }

    fn repository(&self, number: usize) -> Result<&O, Unread> {
        let found = self.from.repositories.get(number).copied();
        found.ok_or_else(|| corrupt("a submodule is not there".to_owned()))
    }

    /// The lines of a Git tree, owned.
    fn tree_lines(
        &mut self,
        repository: usize,
        id: ObjectId,
    ) -> Result<Vec<(EntryKind, Vec<u8>, ObjectId)>, Unread> {
        let objects = self.repository(repository)?;
        header_of_tree(objects, id, self.order)?;
        let mut buffer = Vec::new();
        let tree = objects.find_tree(&id, &mut buffer).map_err(|error| corrupt(git_chain(&error)))?;
        let lines: Vec<_> = tree
            .entries
            .iter()
            .map(|entry| (entry.mode.kind(), entry.filename.to_vec(), entry.oid.to_owned()))
            .collect();
        let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        self.seen = self.seen.saturating_add(count).saturating_add(1);
        let limit = self.order.limits.objects;
        if self.seen > limit {
            return Err(self.refused(too_large(Measure::Objects, u64::from(limit), None)));
        }
        go_on(self.stop)?;
        Ok(lines)
    }

    /// A line that is a file, if its size is allowed, and whether it may be executed.
    fn file(&self, node: &Node, path: &str) -> Result<Option<(Blob, bool)>, Unread> {
        match *node {
            Node::Object { kind: kind @ (EntryKind::Blob | EntryKind::BlobExecutable), repository, id } => {
                let Header { size, .. } = self.measured(repository, id, path)?;
                let blob = Blob::Object { repository, id, size };
                Ok(Some((blob, kind == EntryKind::BlobExecutable)))
            }
            Node::Included { number, child: Child::File { span, executable } } => {
                self.builder.check_size(path, span.size).map_err(|error| self.refused(error))?;
                Ok(Some((Blob::Included { number, span }, executable)))
            }
            _ => Ok(None),
        }
    }

    /// What is said of a file, if its size is allowed.
    fn measured(&self, repository: usize, id: ObjectId, path: &str) -> Result<Header, Unread> {
        go_on(self.stop)?;
        let found = header(self.repository(repository)?, id, self.order)?;
        if found.kind != Kind::Blob {
            return Err(corrupt(format!("object {id} is a {}, not a file", found.kind)));
        }
        self.builder.check_size(path, found.size).map_err(|error| self.refused(error))?;
        Ok(found)
    }

    fn tell_folder(&mut self, path: &str) -> Result<(), Unread> {
        self.builder.folder(path).map_err(|error| Unread::tree(Some(self.id), error))
    }

    fn insert(&mut self, path: String, entry: Entry<Blob>) -> Result<(), Unread> {
        self.builder.insert(path, entry).map_err(|error| Unread::tree(Some(self.id), error))
    }

    fn refused(&self, error: TreeError) -> Unread {
        Unread::tree(Some(self.id), error)
    }

    fn note(&mut self, note: Note) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(note);
        }
    }
}

/// What is included as a line; `path` is where it lies in its artifact.
fn included_node(number: usize, child: &Child, path: String) -> Node {
    match child {
        Child::Folder => Node::Folder(Folder::Included { number, path }),
        child => Node::Included { number, child: child.clone() },
    }
}
