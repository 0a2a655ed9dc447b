//! From a commit's objects to a tree in memory. Nothing is checked out on a disk.

use std::sync::atomic::{AtomicBool, Ordering};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{Find, FindExt as _, FindHeader, Header, Kind};

use super::error::git_chain;
use super::reader::Order;
use super::remote::Target;
use super::sparse::{Place, Sparse};
use super::unread::{Phase, Unread};
use crate::attempt::{MOST_NOTES, Note};
use crate::ignore::{FILE_NAME, Ignore, Verdict};
use crate::tree::{Content, Entry, Measure, Tree, TreeBuilder, TreeError};

/// A file's content where it lies: it is read when it is packed, so that all files are never in memory together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blob {
    id: ObjectId,
    size: u64,
}

impl Content for Blob {
    fn size(&self) -> u64 {
        self.size
    }
}

/// The files that were found.
pub(super) struct Walked {
    pub(super) tree: Tree<Blob>,
    pub(super) notes: Vec<Note>,
}

/// The commit that `target` leads to.
pub(super) fn commit_of(
    objects: &(impl Find + FindHeader),
    target: &Target,
    order: &Order,
) -> Result<ObjectId, Unread> {
    let commit = peel(objects, target.object, order)?;
    // An annotated tag is peeled by the server in its list, and by us from the objects: they must agree.
    let (promised, found, unpeeled) = (&target.commit, commit.to_string(), target.object.to_string());
    if *promised != found && *promised != unpeeled {
        return Err(corrupt(format!("{} leads to {found}, not to {promised}", order.reference)));
    }
    Ok(commit)
}

/// Finds the files of a commit.
pub(super) fn walk(
    objects: &(impl Find + FindHeader),
    commit: ObjectId,
    order: &Order,
    ignore: Ignore,
    stop: &AtomicBool,
) -> Result<Walked, Unread> {
    let id = commit.to_string();
    let mut buffer = Vec::new();
    let root = objects
        .find_commit(&commit, &mut buffer)
        .map(|commit| commit.tree())
        .map_err(|error| corrupt(git_chain(&error)))?;
    let mut walk = Walk {
        objects,
        order,
        stop,
        id: &id,
        builder: TreeBuilder::new(order.limits.tree.clone()),
        notes: Vec::new(),
        seen: 0,
        sparse: Sparse::new(&order.sparse),
    };
    walk.sparse.see("");
    let mut folders = vec![(String::new(), root, ignore)];
    while let Some((path, tree, ignore)) = folders.pop() {
        walk.folder(&path, tree, ignore, &mut folders)?;
    }
    let Walk { builder, notes, sparse, .. } = walk;
    if let Some(folder) = sparse.missing() {
        return Err(Unread::NoFolder { folder: folder.to_owned() });
    }
    let tree = builder.finish().map_err(|error| Unread::tree(Some(&id), error))?;
    Ok(Walked { tree, notes })
}

/// The bytes of a file that was found.
pub(super) fn content(objects: &impl Find, blob: &Blob, stop: &AtomicBool) -> Result<Vec<u8>, Unread> {
    go_on(stop)?;
    let mut buffer = Vec::new();
    objects.find_blob(&blob.id, &mut buffer).map_err(|error| corrupt(git_chain(&error)))?;
    if buffer.len() as u64 != blob.size {
        return Err(corrupt(format!("object {} does not have the size that it claims", blob.id)));
    }
    Ok(buffer)
}

/// Follows annotated tags to their commit.
pub(super) fn peel(
    objects: &(impl Find + FindHeader),
    mut id: ObjectId,
    order: &Order,
) -> Result<ObjectId, Unread> {
    const MOST_TAGS: usize = 8;
    let mut buffer = Vec::new();
    for _ in 0..MOST_TAGS {
        let kind = header(objects, id, order)?.kind;
        match kind {
            Kind::Commit => return Ok(id),
            Kind::Tag => {
                id = objects
                    .find_tag(&id, &mut buffer)
                    .map(|tag| tag.target())
                    .map_err(|error| corrupt(git_chain(&error)))?;
            }
            Kind::Tree | Kind::Blob => {
                return Err(corrupt(format!("{} leads to a {kind}, not to a commit", order.reference)));
            }
        }
    }
    Err(corrupt(format!("{} has too many nested tags", order.reference)))
}

/// The kind of an object and its size, if that is allowed.
pub(super) fn header(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    order: &Order,
) -> Result<Header, Unread> {
    if id == ObjectId::empty_blob(id.kind()) {
        return Ok(Header { kind: Kind::Blob, size: 0 });
    }
    match objects.try_header(&id) {
        Ok(Some(header)) if header.size > order.limits.object_bytes => {
            Err(Unread::TooLarge { measure: Measure::ObjectBytes, limit: order.limits.object_bytes })
        }
        Ok(Some(header)) => Ok(header),
        Ok(None) => Err(corrupt(format!("object {id} is missing"))),
        Err(error) => Err(corrupt(git_chain(&error))),
    }
}

pub(super) fn corrupt(detail: String) -> Unread {
    Unread::Corrupt { phase: Phase::Reading, detail }
}

fn go_on(stop: &AtomicBool) -> Result<(), Unread> {
    if stop.load(Ordering::Relaxed) { Err(Unread::Stopped) } else { Ok(()) }
}

struct Walk<'a, O> {
    objects: &'a O,
    order: &'a Order,
    stop: &'a AtomicBool,
    id: &'a str,
    builder: TreeBuilder<Blob>,
    notes: Vec<Note>,
    /// Entries looked at, also those that are left out: a tree that refers to itself many times costs time, not bytes.
    seen: u32,
    /// The folders that are asked for.
    sparse: Sparse,
}

/// One line of a Git tree, owned.
struct Line {
    kind: EntryKind,
    name: Vec<u8>,
    id: ObjectId,
}

impl<O: Find + FindHeader> Walk<'_, O> {
    fn folder(
        &mut self,
        path: &str,
        id: ObjectId,
        ignore: Ignore,
        folders: &mut Vec<(String, ObjectId, Ignore)>,
    ) -> Result<(), Unread> {
        let lines = self.lines(id)?;
        let is_taken = self.sparse.place(path) == Place::Inside;
        let own = lines.iter().filter(|_| is_taken).find(|line| {
            line.name == FILE_NAME.as_bytes()
                && matches!(line.kind, EntryKind::Blob | EntryKind::BlobExecutable)
        });
        let ignore = match own {
            Some(line) => {
                let content = self.blob(line.id, FILE_NAME)?;
                ignore.with_file(path, &content).map_err(|error| self.refused(error))?
            }
            None => ignore,
        };
        for line in lines {
            let Ok(name) = String::from_utf8(line.name) else {
                self.note(Note::NameNotUtf8 { path: format!("{path}/…") });
                continue;
            };
            // Git itself never writes such names; they are how a hostile tree reaches into a clone's settings.
            if name.eq_ignore_ascii_case(".git") || name.contains('/') {
                let why = "a Git tree cannot hold such a name";
                return Err(self.refused(TreeError::BadPath { path: name, why: why.into() }));
            }
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.line(line.kind, path, line.id, &ignore, folders)?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        kind: EntryKind,
        path: String,
        id: ObjectId,
        ignore: &Ignore,
        folders: &mut Vec<(String, ObjectId, Ignore)>,
    ) -> Result<(), Unread> {
        if kind == EntryKind::Tree {
            self.sparse.see(&path);
        }
        match self.sparse.place(&path) {
            Place::Above if kind == EntryKind::Tree => {}
            Place::Inside if kind == EntryKind::Tree || !self.sparse.is_one(&path) => {}
            _ => return Ok(()),
        }
        let verdict = ignore.look(&path, kind == EntryKind::Tree);
        let excluded = verdict.is_some_and(Verdict::excluded);
        match kind {
            EntryKind::Tree if excluded && ignore.is_final() => {}
            EntryKind::Tree => {
                let limits = self.builder.limits();
                let (depth, bytes) = (limits.depth, limits.path_bytes);
                if path.split('/').count() >= depth {
                    return Err(self.refused(crate::tree::too_large(
                        Measure::Depth,
                        depth as u64,
                        Some(&path),
                    )));
                }
                if path.len() > bytes {
                    return Err(self.refused(crate::tree::too_large(
                        Measure::PathBytes,
                        bytes as u64,
                        Some(&path),
                    )));
                }
                folders.push((path, id, ignore.inside(verdict)));
            }
            _ if excluded => {}
            EntryKind::Commit => self.note(Note::Submodule { path, commit: id.to_string() }),
            EntryKind::Blob | EntryKind::BlobExecutable => {
                let bytes = self.measured(id, &path)?;
                self.insert(path, Entry::File { bytes, executable: kind == EntryKind::BlobExecutable })?;
            }
            EntryKind::Link => match String::from_utf8(self.blob(id, &path)?) {
                Ok(target) => self.insert(path, Entry::Symlink { target })?,
                Err(_) => self.note(Note::NameNotUtf8 { path }),
            },
        }
        Ok(())
    }

    fn lines(&mut self, id: ObjectId) -> Result<Vec<Line>, Unread> {
        header_of_tree(self.objects, id, self.order)?;
        let mut buffer = Vec::new();
        let tree = self.objects.find_tree(&id, &mut buffer).map_err(|error| corrupt(git_chain(&error)))?;
        let count = u32::try_from(tree.entries.len()).unwrap_or(u32::MAX);
        self.seen = self.seen.saturating_add(count).saturating_add(1);
        let limit = self.order.limits.objects;
        if self.seen > limit {
            return Err(self.refused(crate::tree::too_large(Measure::Objects, u64::from(limit), None)));
        }
        go_on(self.stop)?;
        Ok(tree
            .entries
            .iter()
            .map(|entry| Line {
                kind: entry.mode.kind(),
                name: entry.filename.to_vec(),
                id: entry.oid.to_owned(),
            })
            .collect())
    }

    /// A file, if its size is allowed.
    fn measured(&self, id: ObjectId, path: &str) -> Result<Blob, Unread> {
        go_on(self.stop)?;
        let Header { kind, size } = header(self.objects, id, self.order)?;
        if kind != Kind::Blob {
            return Err(corrupt(format!("object {id} is a {kind}, not a file")));
        }
        self.builder.check_size(path, size).map_err(|error| self.refused(error))?;
        Ok(Blob { id, size })
    }

    /// The bytes of a file, if its size is allowed.
    fn blob(&self, id: ObjectId, path: &str) -> Result<Vec<u8>, Unread> {
        content(self.objects, &self.measured(id, path)?, self.stop)
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

/// The empty tree may be absent: Git knows it without its bytes.
fn header_of_tree(objects: &(impl Find + FindHeader), id: ObjectId, order: &Order) -> Result<(), Unread> {
    if id == ObjectId::empty_tree(id.kind()) {
        return Ok(());
    }
    header(objects, id, order).map(|_| ())
}
