//! From a layer to the files of an artifact. What is read is a tar.gz of anyone's ([`crate::untar`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::unread::Unread;
use crate::artifact::{ArtifactError, pack_to};
use crate::attempt::Note;
use crate::ignore::{FILE_NAME, Ignore, Verdict};
use crate::tree::{Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits, shown};
use crate::untar::{Span, Unpacked, UntarError};

/// Bytes of a `.sourceignore`, as [`Ignore`] has it.
const MOST_PATTERNS: u64 = 256 << 10;

/// What the files of a layer came to.
pub(super) struct Packed {
    /// The artifact, at its end.
    pub(super) file: File,
    pub(super) files: usize,
    pub(super) unpacked_bytes: u64,
    pub(super) notes: Vec<Note>,
}

/// Unpacks `layer`, with `folder` for its content.
pub(super) fn unpack(
    layer: impl Read,
    limits: &TreeLimits,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Layer, Unread> {
    let unpacked = crate::untar::unpack(layer, limits, folder, stop).map_err(|error| match error {
        UntarError::Damaged(_) => Unread::Layer { detail: format!("its layer {error}") },
        UntarError::Odd(_) => Unread::Corrupt { detail: format!("its layer {error}") },
        UntarError::TooLarge { measure, limit } => Unread::TooLarge { measure, limit },
        UntarError::Tree(error) => error.into(),
        UntarError::Internal(detail) => Unread::Internal { detail },
        UntarError::Stopped => Unread::Stopped,
    })?;
    Ok(Layer(unpacked))
}

/// The files of a layer.
pub(super) struct Layer(Unpacked);

impl Layer {
    /// Leaves out what is to be left out, and packs the rest into a file of `folder`.
    pub(super) fn pack(
        mut self,
        ignore: Option<&str>,
        limits: &TreeLimits,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<Packed, Unread> {
        let (root, own) = self.patterns(ignore)?;
        let tree = self.tree(root, &own, limits)?;
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("artifact"));
        let file = file.map_err(|error| internal(&error))?;
        let packed = pack_to(BufWriter::new(file), &tree, |span: &Span| {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("told to stop"));
            }
            self.0.read(span).map(Cow::Owned)
        });
        let packed = packed.map_err(|error| match error {
            ArtifactError::Pack { path, source } => Unread::Pack { path, detail: source.to_string() },
            other => Unread::Internal { detail: other.to_string() },
        })?;
        let mut file = packed.into_inner().map_err(|error| internal(error.error()))?;
        file.seek(SeekFrom::End(0)).map_err(|error| internal(&error))?;
        let mut notes = Vec::new();
        if let Some(first) = self.0.first_link {
            notes.push(Note::LinksLeftOut { count: self.0.links, first });
        }
        Ok(Packed { file, files: tree.len(), unpacked_bytes: tree.bytes(), notes })
    }

    /// What is left out before the folders' own patterns (the defaults too, unless there is a pattern anywhere), and those by their folders.
    fn patterns(&self, spec: Option<&str>) -> Result<(Ignore, BTreeMap<String, Span>), Unread> {
        let (mut root, mut own) = (Ignore::new(spec)?, BTreeMap::new());
        for (path, span) in &self.0.files {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            if name != FILE_NAME || folder.split('/').any(|folder| folder == ".git") {
                continue;
            }
            if root.has_defaults() && !root.with_file("", &self.content(path, span)?)?.has_defaults() {
                root = root.without_those_by_default();
            }
            own.insert(folder.to_owned(), *span);
        }
        Ok((root, own))
    }

    /// The files and folders that stay. They are moved: there may be many.
    fn tree(
        &mut self,
        root: Ignore,
        own: &BTreeMap<String, Span>,
        limits: &TreeLimits,
    ) -> Result<Tree<Span>, Unread> {
        let mut builder = TreeBuilder::new(limits.clone());
        builder.folder("")?;
        let root = self.with_own(own, root, "")?;
        let (files, folders) = (std::mem::take(&mut self.0.files), std::mem::take(&mut self.0.folders));
        let files = files.into_iter().map(|(path, span)| (path, Some(span)));
        let mut all: Vec<(String, Option<Span>)> =
            files.chain(folders.into_iter().map(|path| (path, None))).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        // The folders on the way to where it is, with their patterns: what lies in one folder comes in one piece.
        let mut way: Vec<(String, Ignore)> = Vec::new();
        for (path, span) in all {
            while way.last().is_some_and(|(folder, _)| !is_beneath(&path, folder)) {
                way.pop();
            }
            let known = way.last().map_or(0, |(folder, _)| folder.len() + 1);
            if path.split('/').count() > limits.depth {
                let (measure, limit) = (Measure::Depth, limits.depth as u64);
                return Err(TreeError::TooLarge { measure, limit, path: Some(path) }.into());
            }
            let whole = span.is_none().then_some(path.len());
            let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at >= known).chain(whole);
            for at in ends {
                let folder = &path[..at];
                let above = way.last().map_or(&root, |(_, ignore)| ignore);
                let verdict = above.look(folder, true);
                if !verdict.is_some_and(Verdict::excluded) {
                    builder.folder(folder)?;
                }
                let inside = self.with_own(own, above.inside(verdict), folder)?;
                way.push((folder.to_owned(), inside));
            }
            let Some(bytes) = span else { continue };
            let ignore = way.last().map_or(&root, |(_, ignore)| ignore);
            if !ignore.excludes(&path, false) {
                builder.insert(path, Entry::File { bytes, executable: bytes.executable })?;
            }
        }
        Ok(builder.finish_as_told()?)
    }

    /// With the patterns of the folder's own file, where it has one.
    fn with_own(&self, own: &BTreeMap<String, Span>, ignore: Ignore, folder: &str) -> Result<Ignore, Unread> {
        let Some(span) = own.get(folder) else { return Ok(ignore) };
        Ok(ignore.with_file(folder, &self.content(folder, span)?)?)
    }

    /// The content of a `.sourceignore`.
    fn content(&self, path: &str, span: &Span) -> Result<Vec<u8>, Unread> {
        if span.size > MOST_PATTERNS {
            let (measure, limit) = (Measure::FileBytes, MOST_PATTERNS);
            return Err(TreeError::TooLarge { measure, limit, path: Some(shown(path)) }.into());
        }
        self.0.read(span).map_err(|error| internal(&error))
    }
}

fn is_beneath(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn internal(error: &io::Error) -> Unread {
    Unread::Internal { detail: format!("temporary folder: {error}") }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
