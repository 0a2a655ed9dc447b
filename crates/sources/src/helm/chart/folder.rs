//! The artifact of another source, and the charts in it. Its content lies in one file of the scratch folder, of which only sizes and
//! places are in memory. Symbolic links are followed within it: an artifact has none that lead out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::helmignore::{FILE_NAME, MOST_BYTES, Rules};
use super::{CHART_YAML, Chart, Part, clean, too_large};
use crate::artifact::unpack_with;
use crate::helm::request::HelmLimits;
use crate::helm::unread::{Stage, Unread};
use crate::tree::{Content as _, Entry, Measure, Tree, TreeLimits, shown};
use crate::untar::Span;

/// Links that are followed on the way to one file.
const MOST_STEPS: usize = 1_000;
/// Links to folders that lie in each other.
const MOST_LINKED: usize = 16;

/// The artifact of another source.
pub(in crate::helm) struct Source {
    contents: Arc<File>,
    tree: Tree<Span>,
}

/// What is at a path.
pub(in crate::helm) enum Found {
    /// A chart in a folder.
    Folder(Chart),
    /// A file, which may be a packed one.
    File(Part),
}

impl Source {
    /// Unpacks an artifact, with `folder` for its content.
    pub(in crate::helm) fn unpack(
        artifact: impl BufRead,
        limits: &TreeLimits,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<Self, Unread> {
        let file = File::options().read(true).write(true).create_new(true).open(folder.join("source"));
        let mut to = BufWriter::new(file.map_err(|error| Unread::internal(&error))?);
        let mut offset = 0;
        let tree = unpack_with(artifact, limits, |content: &mut dyn Read| {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("told to stop"));
            }
            let size = io::copy(content, &mut to)?;
            let span = Span { offset, size, executable: false };
            offset += size;
            Ok(span)
        });
        let tree = tree.map_err(|error| Unread::Internal(error.to_string()))?;
        to.flush().map_err(|error| Unread::internal(&error))?;
        let contents = to.into_inner().map_err(|error| Unread::internal(error.error()))?;
        Ok(Self { contents: Arc::new(contents), tree })
    }

    /// The file at a path, whatever links lead to it.
    pub(in crate::helm) fn file(&self, path: &str) -> Option<Part> {
        match self.tree.get(&self.resolved(path)?)? {
            Entry::File { bytes, .. } => Some(Part::Lies(Arc::clone(&self.contents), *bytes)),
            Entry::Symlink { .. } => None,
        }
    }

    /// What is at a path.
    pub(in crate::helm) fn find(
        &self,
        path: &str,
        limits: &HelmLimits,
        stop: &AtomicBool,
    ) -> Result<Found, Unread> {
        let path = clean(path);
        if let Some(part) = self.file(&path) {
            return Ok(Found::File(part));
        }
        let none = || Unread::Failed(Stage::Reference, format!("no chart found at '/{}'", shown(&path)));
        let real = self.resolved(&path).ok_or_else(none)?;
        let rules = self.rules(&real)?;
        let mut walk =
            Walk { source: self, rules, limits: &limits.chart, stop, files: BTreeMap::new(), bytes: 0 };
        walk.folder(&real, "", 0)?;
        let files = walk.files;
        if files.is_empty() {
            return Err(none());
        }
        if !files.contains_key(CHART_YAML) {
            let why = format!("no {CHART_YAML} at '/{}'", shown(&path));
            return Err(Unread::Failed(Stage::Reference, why));
        }
        Chart::of(files, Stage::Reference).map(Found::Folder)
    }

    /// The patterns of a folder.
    fn rules(&self, real: &str) -> Result<Rules, Unread> {
        let fail = |why: String| Unread::Failed(Stage::Reference, why);
        let Some(part) = self.file(&joined(real, FILE_NAME)) else { return Rules::parse("").map_err(fail) };
        if part.size() > MOST_BYTES {
            return Err(fail(format!("{FILE_NAME} has more than {MOST_BYTES} bytes")));
        }
        let bytes = part.read().map_err(|error| Unread::internal(&error))?;
        Rules::parse(&String::from_utf8_lossy(&bytes)).map_err(fail)
    }

    /// The path that a path leads to, once its links are followed; none where that has no end.
    fn resolved(&self, path: &str) -> Option<String> {
        let mut place: Vec<&str> = Vec::new();
        let mut ahead: Vec<&str> = path.rsplit('/').collect();
        let mut steps = 0;
        while let Some(name) = ahead.pop() {
            steps += 1;
            if steps > MOST_STEPS {
                return None;
            }
            match name {
                "" | "." => {}
                ".." => {
                    place.pop();
                }
                name => {
                    place.push(name);
                    if let Some(Entry::Symlink { target }) = self.tree.get(&place.join("/")) {
                        place.pop();
                        ahead.extend(target.rsplit('/'));
                    }
                }
            }
        }
        Some(place.join("/"))
    }
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The files of a chart while they are collected.
struct Walk<'a> {
    source: &'a Source,
    rules: Rules,
    limits: &'a TreeLimits,
    stop: &'a AtomicBool,
    files: BTreeMap<String, Part>,
    bytes: u64,
}

impl Walk<'_> {
    /// Takes what is in a folder; `at` is where that lies in the chart.
    fn folder(&mut self, real: &str, at: &str, linked: usize) -> Result<(), Unread> {
        let prefix = if real.is_empty() { String::new() } else { format!("{real}/") };
        let source = self.source;
        for (path, entry) in source.tree.from(&prefix) {
            let Some(rest) = path.strip_prefix(&prefix) else { break };
            if self.stop.load(Ordering::Relaxed) {
                return Err(Unread::Stopped);
            }
            let path_in_chart = joined(at, rest);
            if self.is_left_out(&path_in_chart, at.len()) {
                continue;
            }
            match entry {
                Entry::File { bytes, .. } => self.file(path_in_chart, *bytes)?,
                Entry::Symlink { .. } => self.link(path, path_in_chart, linked)?,
            }
        }
        Ok(())
    }

    /// Whether a path stays out, or a folder that it lies in, beneath what is known not to.
    fn is_left_out(&self, path: &str, known: usize) -> bool {
        let folders = path.match_indices('/').filter(|(end, _)| *end > known);
        folders.into_iter().any(|(end, _)| self.rules.excludes(&path[..end], true))
            || self.rules.excludes(path, false)
    }

    fn link(&mut self, path: &str, in_chart: String, linked: usize) -> Result<(), Unread> {
        let nowhere = || {
            let why =
                format!("symbolic link `{}` points to nothing, or to a folder that contains it", shown(path));
            Unread::Failed(Stage::Reference, why)
        };
        let real = self.source.resolved(path).ok_or_else(nowhere)?;
        match self.source.tree.get(&real) {
            Some(Entry::File { bytes, .. }) => self.file(in_chart, *bytes),
            Some(Entry::Symlink { .. }) => Err(nowhere()),
            None if linked >= MOST_LINKED => Err(nowhere()),
            None => {
                let before = self.files.len();
                if self.rules.excludes(&in_chart, true) {
                    return Ok(());
                }
                self.folder(&real, &in_chart, linked + 1)?;
                // A folder is there by what is in it.
                if self.files.len() == before && !self.source.has_folder(&real) {
                    return Err(nowhere());
                }
                Ok(())
            }
        }
    }

    fn file(&mut self, path: String, span: Span) -> Result<(), Unread> {
        crate::tree::check_path(&path, self.limits)
            .map_err(|error| Unread::of_tree(Stage::Reference, error))?;
        if span.size > self.limits.file_bytes {
            return Err(too_large(self.limits, &path));
        }
        self.bytes = self.bytes.saturating_add(span.size);
        let over = |measure, limit| Err(Unread::TooLarge { measure, limit, path: None });
        if self.bytes > self.limits.total_bytes {
            return over(Measure::TotalBytes, self.limits.total_bytes);
        }
        if self.files.len() >= self.limits.entries {
            return over(Measure::Entries, self.limits.entries as u64);
        }
        self.files.insert(path, Part::Lies(Arc::clone(&self.source.contents), span));
        Ok(())
    }
}

impl Source {
    fn has_folder(&self, real: &str) -> bool {
        let prefix = format!("{real}/");
        real.is_empty() || self.tree.from(&prefix).next().is_some_and(|(path, _)| path.starts_with(&prefix))
    }
}
