//! What is copied, as `cp -r` would: over trees whose contents lie elsewhere, so that no path ever names a file of this machine.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use super::merge::{MergeError, merge};
use super::spec::{Exclude, From, Operation, SpecError, Strategy};
use crate::artifact::ArtifactError;
use crate::tree::{Content, Measure, TreeError, TreeLimits, shown, too_large};

/// What a file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// It lies there, among all that was unpacked.
    Lies { offset: u64, size: u64 },
    /// It was made of others.
    Made(Arc<[u8]>),
}

impl Content for Piece {
    fn size(&self) -> u64 {
        match self {
            Self::Lies { size, .. } => *size,
            Self::Made(bytes) => bytes.len() as u64,
        }
    }
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) content: Piece,
    pub(super) executable: bool,
}

/// Files by their paths.
pub(super) type Files = BTreeMap<String, Copied>;

/// Where files are had.
pub(super) trait Workspace {
    /// Those of a source.
    fn source(&mut self, alias: &str) -> Result<Arc<Files>, CopyError>;

    /// What a file has.
    fn read<'p>(&self, piece: &'p Piece) -> io::Result<Cow<'p, [u8]>>;

    /// What a tar.gz holds.
    fn unpack(&mut self, packed: &[u8]) -> Result<Files, CopyError>;
}

/// Why something cannot be copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("'{}' does not exist", shown(.0))]
    Missing(String),
    #[error("no files match pattern '{}'", shown(.0))]
    NoMatch(String),
    #[error("all files that match pattern '{}' are excluded", shown(.0))]
    AllExcluded(String),
    #[error("strategy Extract requires a .tar.gz or .tgz file, which '{}' is not", shown(.0))]
    NotPacked(String),
    #[error("'{}' cannot be merged: {why}", shown(path))]
    Merge { path: String, why: MergeError },
    #[error("'{}' cannot be extracted: {why}", shown(path))]
    Extract { path: String, why: Box<CopyError> },
    #[error("{0}")]
    Artifact(#[from] ArtifactError),
    #[error("{0}")]
    Tree(#[from] TreeError),
    #[error("it failed inside Roadstead: {0}")]
    Internal(io::Error),
    #[error("it was told to stop")]
    Stopped,
}

/// Carries out one operation on what there is of an artifact.
pub(super) fn apply(
    operation: &Operation,
    workspace: &mut dyn Workspace,
    limits: &TreeLimits,
    staged: &mut Files,
) -> Result<(), CopyError> {
    let source = workspace.source(&operation.alias)?;
    let mut copying = Copying { operation, workspace, limits, staged, excluded: HashMap::new() };
    match &operation.from {
        From::Path(path) => copying.path(&source, path),
        From::Pattern { text, .. } if operation.strategy == Strategy::Extract => {
            copying.extract_all(&source, text)
        }
        From::Pattern { text, .. } => copying.pattern(&source, text),
    }
}

/// A copy that is under way.
struct Copying<'a> {
    operation: &'a Operation,
    workspace: &'a mut dyn Workspace,
    limits: &'a TreeLimits,
    staged: &'a mut Files,
    /// Folders and whether they are left out.
    excluded: HashMap<String, bool>,
}

impl Copying<'_> {
    fn path(&mut self, source: &Files, path: &str) -> Result<(), CopyError> {
        if let Some(file) = source.get(path) {
            return self.single(path, file);
        }
        if !path.is_empty() && beneath(source, path).next().is_none() {
            return Err(CopyError::Missing(path.to_owned()));
        }
        if self.operation.strategy == Strategy::Extract {
            return Err(CopyError::NotPacked(path.to_owned()));
        }
        // A folder becomes one of the same name; the root has none.
        let to = join(&self.operation.to, base(path));
        self.folder(source, path, &to, path)
    }

    fn single(&mut self, path: &str, file: &Copied) -> Result<(), CopyError> {
        if self.is_excluded(path, "") {
            return Ok(());
        }
        let operation = self.operation;
        if operation.strategy == Strategy::Extract {
            if !is_packed(path) {
                return Err(CopyError::NotPacked(path.to_owned()));
            }
            return self.extract(path, file);
        }
        let into = operation.to_folder || operation.to.is_empty() || is_folder(self.staged, &operation.to);
        let to = if into { join(&operation.to, base(path)) } else { operation.to.clone() };
        self.put(to, file)
    }

    /// What a pattern names in a source and is not left out, and the part of it before its first sign.
    fn matched<'s>(&mut self, source: &'s Files, text: &str) -> Result<(Vec<&'s str>, String), CopyError> {
        let From::Pattern { glob, .. } = &self.operation.from else { return Ok(Default::default()) };
        let mut matches: Vec<&str> = Vec::new();
        for path in source.keys() {
            let candidate = match glob.depth() {
                Some(depth) => first_names(path, depth),
                None => Some(path.as_str()),
            };
            // What lies in one folder comes in one piece.
            let Some(candidate) = candidate.filter(|candidate| matches.last() != Some(candidate)) else {
                continue;
            };
            if glob.matches(candidate) {
                matches.push(candidate);
            }
        }
        if matches.is_empty() {
            return Err(CopyError::NoMatch(text.to_owned()));
        }
        let root = crate::glob::fixed_part(text);
        matches.retain(|path| !self.is_excluded(path, &root));
        if matches.is_empty() {
            return Err(CopyError::AllExcluded(text.to_owned()));
        }
        Ok((matches, root))
    }

    fn pattern(&mut self, source: &Files, text: &str) -> Result<(), CopyError> {
        let (matches, root) = self.matched(source, text)?;
        let stripped = text.strip_suffix("/**").map(|folder| format!("{folder}/"));
        for path in matches {
            let kept = stripped.as_deref().and_then(|folder| path.strip_prefix(folder)).unwrap_or(path);
            let to = join(&self.operation.to, kept);
            match source.get(path) {
                Some(file) => self.put(to, file)?,
                None => self.folder(source, path, &to, &root)?,
            }
        }
        Ok(())
    }

    /// Extracts those of the matches that are packed; folders and other files are passed over.
    fn extract_all(&mut self, source: &Files, text: &str) -> Result<(), CopyError> {
        let (matches, _) = self.matched(source, text)?;
        for path in matches.into_iter().filter(|path| is_packed(path)) {
            if let Some(file) = source.get(path) {
                self.extract(path, file)?;
            }
        }
        Ok(())
    }

    /// Copies what lies in a folder, which is the root where it has no name.
    fn folder(&mut self, source: &Files, folder: &str, to: &str, root: &str) -> Result<(), CopyError> {
        for (path, file) in beneath(source, folder) {
            let within = if folder.is_empty() { path } else { &path[folder.len() + 1..] };
            if self.is_left_out(path, folder, root) {
                continue;
            }
            self.put(join(to, within), file)?;
        }
        Ok(())
    }

    /// Whether a file is left out, by itself or with a folder that it lies in, below the one that is copied.
    fn is_left_out(&mut self, path: &str, below: &str, root: &str) -> bool {
        if self.operation.exclude.is_empty() {
            return false;
        }
        let from = if below.is_empty() { 0 } else { below.len() + 1 };
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > from) {
            let folder = &path[..at];
            let is_out = match self.excluded.get(folder) {
                Some(known) => *known,
                None => {
                    let is_out = self.is_excluded(folder, root);
                    self.excluded.insert(folder.to_owned(), is_out);
                    is_out
                }
            };
            if is_out {
                return true;
            }
        }
        self.is_excluded(path, root)
    }

    /// Whether a path is left out: as it is, or as it is called from the folder that is copied.
    fn is_excluded(&self, path: &str, root: &str) -> bool {
        let is_out = |path: &str| {
            let excludes = |exclude: &Exclude| {
                exclude.glob.matches(path) || exclude.bare && exclude.glob.matches(base(path))
            };
            self.operation.exclude.iter().any(excludes)
        };
        let within = path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
        is_out(path) || !root.is_empty() && within.is_some_and(is_out)
    }

    fn put(&mut self, to: String, file: &Copied) -> Result<(), CopyError> {
        let present = self.staged.get(&to).filter(|_| self.operation.strategy == Strategy::Merge);
        let file = match present {
            None => file.clone(),
            Some(present) => self.merged(&to, present, file)?,
        };
        self.staged.insert(to, file);
        if self.staged.len() > self.limits.entries {
            return Err(too_large(Measure::Entries, self.limits.entries as u64, None).into());
        }
        Ok(())
    }

    fn merged(&self, path: &str, present: &Copied, file: &Copied) -> Result<Copied, CopyError> {
        let read = |piece| self.workspace.read(piece).map_err(CopyError::Internal);
        let (below, above) = (read(&present.content)?, read(&file.content)?);
        let most = usize::try_from(self.limits.file_bytes).unwrap_or(usize::MAX);
        let merged = merge(&below, &above, most);
        let merged = merged.map_err(|why| CopyError::Merge { path: path.to_owned(), why })?;
        Ok(Copied { content: Piece::Made(merged.into()), executable: false })
    }

    fn extract(&mut self, path: &str, file: &Copied) -> Result<(), CopyError> {
        let packed = self.workspace.read(&file.content).map_err(CopyError::Internal)?.into_owned();
        let failed = |why| match why {
            CopyError::Stopped => CopyError::Stopped,
            why => CopyError::Extract { path: path.to_owned(), why: Box::new(why) },
        };
        let files = self.workspace.unpack(&packed).map_err(failed)?;
        for (path, file) in files {
            let to = join(&self.operation.to, &path);
            self.staged.insert(to, file);
        }
        if self.staged.len() > self.limits.entries {
            return Err(too_large(Measure::Entries, self.limits.entries as u64, None).into());
        }
        Ok(())
    }
}

/// All that lies in a folder, in its order; all there is where it has no name.
fn beneath<'f>(files: &'f Files, folder: &str) -> impl Iterator<Item = (&'f str, &'f Copied)> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let from = files.range(prefix.clone()..);
    from.take_while(move |(path, _)| path.starts_with(&prefix)).map(|(path, file)| (path.as_str(), file))
}

fn is_folder(files: &Files, path: &str) -> bool {
    beneath(files, path).next().is_some()
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", path) => path.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, path) => format!("{folder}/{path}"),
    }
}

/// The first names of a path; none where it has fewer.
fn first_names(path: &str, count: usize) -> Option<&str> {
    let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.nth(count.checked_sub(1)?).map(|end| &path[..end])
}

fn is_packed(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    lower.ends_with(".tar.gz") || lower.ends_with(".tgz")
}

#[cfg(test)]
mod tests;
