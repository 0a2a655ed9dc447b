//! From a commit's objects to a tree in memory. Nothing is checked out on a disk.

use std::fmt;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{Find, FindExt as _, FindHeader, Header, Kind};

use super::error::{GitError, git_chain};
use super::remote::Target;
use super::request::GitRequest;
use super::stop::Stop;
use crate::ignore::{FILE_NAME, Ignore, Verdict};
use crate::tree::{Entry, Measure, Tree, TreeBuilder, TreeError, shown};

const READING: &str = "reading the commit's files";
const MOST_NOTES: usize = 100;

/// What a user should know about a fetch although it is no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A submodule was left out.
    Submodule {
        /// Its folder.
        path: String,
        /// The commit that it is at.
        commit: String,
    },
    /// A file was left out because no YAML could name it.
    NameNotUtf8 {
        /// Its path, as far as it is text.
        path: String,
    },
    /// The password went over the network unencrypted.
    CredentialsInTheClear,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submodule { path, commit } => {
                write!(f, "submodule `{}` (at {commit}) is left out: submodules are not fetched", shown(path))
            }
            Self::NameNotUtf8 { path } => write!(f, "`{}` is left out: its name is not UTF-8", shown(path)),
            Self::CredentialsInTheClear => f.write_str("credentials were sent over plain HTTP: use https://"),
        }
    }
}

/// The files that were found.
pub(super) struct Walked {
    pub(super) tree: Tree,
    pub(super) notes: Vec<Note>,
}

/// Reads the files of the commit that `target` names; gives that commit's id as well.
pub(super) fn walk(
    objects: &(impl Find + FindHeader),
    target: &Target,
    request: &GitRequest,
    ignore: Ignore,
    stop: &Stop,
) -> Result<(String, Walked), GitError> {
    stop.enter(READING);
    let commit = peel(objects, target.object, request)?;
    let id = commit.to_string();
    // An annotated tag is peeled by the server in its list, and by us from the objects: they must agree.
    let promised = &target.revision.commit;
    let unpeeled = target.object.to_string();
    if *promised != id && *promised != unpeeled {
        return Err(corrupt(request, format!("{} leads to {id}, not to {promised}", request.reference)));
    }
    let mut buffer = Vec::new();
    let root = objects
        .find_commit(&commit, &mut buffer)
        .map(|commit| commit.tree())
        .map_err(|error| corrupt(request, git_chain(&error)))?;
    let mut walk = Walk {
        objects,
        request,
        stop,
        id: &id,
        builder: TreeBuilder::new(request.limits.tree.clone()),
        notes: Vec::new(),
        seen: 0,
    };
    if request.credentials.is_some() && request.url.starts_with("http://") {
        walk.note(Note::CredentialsInTheClear);
    }
    let mut folders = vec![(String::new(), root, ignore)];
    while let Some((path, tree, ignore)) = folders.pop() {
        walk.folder(&path, tree, ignore, &mut folders)?;
    }
    let Walk { builder, notes, .. } = walk;
    let tree = builder.finish().map_err(|error| GitError::tree(request, Some(&id), error))?;
    Ok((id, Walked { tree, notes }))
}

/// Follows annotated tags to their commit.
pub(super) fn peel(
    objects: &(impl Find + FindHeader),
    mut id: ObjectId,
    request: &GitRequest,
) -> Result<ObjectId, GitError> {
    const MOST_TAGS: usize = 8;
    let mut buffer = Vec::new();
    for _ in 0..MOST_TAGS {
        let kind = header(objects, id, request)?.kind;
        match kind {
            Kind::Commit => return Ok(id),
            Kind::Tag => {
                id = objects
                    .find_tag(&id, &mut buffer)
                    .map(|tag| tag.target())
                    .map_err(|error| corrupt(request, git_chain(&error)))?;
            }
            Kind::Tree | Kind::Blob => {
                return Err(corrupt(
                    request,
                    format!("{} leads to a {kind}, not to a commit", request.reference),
                ));
            }
        }
    }
    Err(corrupt(request, format!("{} is a tag of a tag of a tag…", request.reference)))
}

fn header(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    request: &GitRequest,
) -> Result<Header, GitError> {
    if id == ObjectId::empty_blob(id.kind()) {
        return Ok(Header { kind: Kind::Blob, size: 0 });
    }
    match objects.try_header(&id) {
        Ok(Some(header)) if header.size > request.limits.object_bytes => Err(GitError::TooLarge {
            url: request.shown_url(),
            measure: Measure::ObjectBytes,
            limit: request.limits.object_bytes,
            path: None,
        }),
        Ok(Some(header)) => Ok(header),
        Ok(None) => Err(corrupt(request, format!("object {id} is missing"))),
        Err(error) => Err(corrupt(request, git_chain(&error))),
    }
}

fn corrupt(request: &GitRequest, detail: String) -> GitError {
    GitError::Corrupt { url: request.shown_url(), phase: READING, detail }
}

struct Walk<'a, O> {
    objects: &'a O,
    request: &'a GitRequest,
    stop: &'a Stop,
    id: &'a str,
    builder: TreeBuilder,
    notes: Vec<Note>,
    /// Entries looked at, also those that are left out: a tree that refers to itself many times costs time, not bytes.
    seen: u32,
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
    ) -> Result<(), GitError> {
        let lines = self.lines(id)?;
        let own = lines.iter().find(|line| {
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
                let why = "no Git tree holds such a name";
                return Err(self.refused(TreeError::BadPath { path: name, why }));
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
    ) -> Result<(), GitError> {
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
                let bytes = self.blob(id, &path)?;
                self.insert(path, Entry::File { bytes, executable: kind == EntryKind::BlobExecutable })?;
            }
            EntryKind::Link => match String::from_utf8(self.blob(id, &path)?) {
                Ok(target) => self.insert(path, Entry::Symlink { target })?,
                Err(_) => self.note(Note::NameNotUtf8 { path }),
            },
        }
        Ok(())
    }

    fn lines(&mut self, id: ObjectId) -> Result<Vec<Line>, GitError> {
        header_of_tree(self.objects, id, self.request)?;
        let mut buffer = Vec::new();
        let tree = self
            .objects
            .find_tree(&id, &mut buffer)
            .map_err(|error| corrupt(self.request, git_chain(&error)))?;
        let count = u32::try_from(tree.entries.len()).unwrap_or(u32::MAX);
        self.seen = self.seen.saturating_add(count).saturating_add(1);
        let limit = self.request.limits.objects;
        if self.seen > limit {
            return Err(self.refused(crate::tree::too_large(Measure::Objects, u64::from(limit), None)));
        }
        self.go_on()?;
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

    /// The bytes of a file, if its size is allowed.
    fn blob(&self, id: ObjectId, path: &str) -> Result<Vec<u8>, GitError> {
        self.go_on()?;
        let size = header(self.objects, id, self.request)?.size;
        self.builder.check_size(path, size).map_err(|error| self.refused(error))?;
        let mut buffer = Vec::new();
        self.objects.find_blob(&id, &mut buffer).map_err(|error| corrupt(self.request, git_chain(&error)))?;
        Ok(buffer)
    }

    fn insert(&mut self, path: String, entry: Entry) -> Result<(), GitError> {
        self.builder.insert(path, entry).map_err(|error| GitError::tree(self.request, Some(self.id), error))
    }

    fn go_on(&self) -> Result<(), GitError> {
        if self.stop.is_stopped() {
            return Err(GitError::Cancelled { url: self.request.shown_url() });
        }
        Ok(())
    }

    fn refused(&self, error: TreeError) -> GitError {
        GitError::tree(self.request, Some(self.id), error)
    }

    fn note(&mut self, note: Note) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(note);
        }
    }
}

/// The empty tree may be absent: Git knows it without its bytes.
fn header_of_tree(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    request: &GitRequest,
) -> Result<(), GitError> {
    if id == ObjectId::empty_tree(id.kind()) {
        return Ok(());
    }
    header(objects, id, request).map(|_| ())
}
