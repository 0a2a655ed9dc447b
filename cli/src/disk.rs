//! The file system as a tree for builds.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use roadstead_kustomize::{Entry, EntryKind, FileTree, TreeError, TreePath};
use roadstead_sources::ignore::{FILE_NAME, Ignore};

/// A `.sourceignore` of more bytes is refused.
const MAX_IGNORE: usize = 256 << 10;

/// The whole file system: bases may lie anywhere on it; which files may be read is for the load restrictor to say.
///
/// What a source would leave out of its artifact (`.sourceignore`) is not listed, so a plain directory is built from the
/// same manifests here and on the hub. A file that a kustomization names is read in any case, as kustomize does.
#[derive(Debug)]
pub(crate) struct DiskTree {
    root: PathBuf,
    /// Where the source begins that is built: the repository, or else the directory itself.
    source: TreePath,
}

impl DiskTree {
    /// The tree, and the path in it of a directory of this machine.
    pub(crate) fn at(dir: &Path) -> anyhow::Result<(Self, TreePath)> {
        let real =
            fs::canonicalize(dir).with_context(|| format!("cannot read {:?}", dir.display().to_string()))?;
        let text = real.to_str().with_context(|| format!("path {real:?} is not UTF-8"))?;
        let path = TreePath::new(text).with_context(|| format!("path {text:?} leaves the root"))?;
        let repository = real.ancestors().find(|dir| dir.join(".git").exists()).and_then(Path::to_str);
        let source = repository.and_then(TreePath::new).unwrap_or_else(|| path.clone());
        Ok((Self { root: PathBuf::from("/"), source }, path))
    }

    /// What is left out of a directory of the source; none where it is not part of it.
    fn ignored(&self, dir: &TreePath) -> Result<Option<Ignored>, TreeError> {
        if !dir.is_within(&self.source) {
            return Ok(None);
        }
        let below = dir.as_str()[self.source.as_str().len()..].trim_start_matches('/');
        let failed =
            |error: &dyn std::fmt::Display| TreeError::Io { path: dir.clone(), message: error.to_string() };
        let mut rules = Ignore::new(None).map_err(|error| failed(&error))?;
        let mut at = String::new();
        let mut real = self.source.clone();
        let mut parts = below.split('/').filter(|part| !part.is_empty());
        loop {
            if let Some(file) = real.join(FILE_NAME)
                && self.kind(&file)? == Some(EntryKind::File)
            {
                let content = self.read(&file, MAX_IGNORE)?;
                // Patterns in folders beside the way to this one end the defaults, too, on a hub: finding those would take a walk through all.
                rules = rules.with_file(&at, &content).map_err(|error| failed(&error))?;
            }
            let Some(part) = parts.next() else { break };
            if !at.is_empty() {
                at.push('/');
            }
            at.push_str(part);
            rules = rules.inside(rules.look(&at, true));
            let Some(next) = real.join(part) else { break };
            real = next;
        }
        Ok(Some(Ignored { rules, dir: at }))
    }

    fn real(&self, path: &TreePath) -> PathBuf {
        self.root.join(path.as_str())
    }
}

/// What is left out of one directory.
struct Ignored {
    rules: Ignore,
    /// From the root of the source.
    dir: String,
}

impl Ignored {
    fn leaves_out(&self, entry: &Entry) -> bool {
        let path =
            if self.dir.is_empty() { entry.name.clone() } else { format!("{}/{}", self.dir, entry.name) };
        let is_folder = entry.kind == EntryKind::Directory;
        // Into a folder that is left out one has to look all the same where something in it may be taken back in.
        self.rules.excludes(&path, is_folder) && (!is_folder || self.rules.is_final())
    }
}

fn failed(path: &TreePath, error: &io::Error) -> TreeError {
    match error.kind() {
        io::ErrorKind::NotFound => TreeError::NotFound(path.clone()),
        io::ErrorKind::NotADirectory => TreeError::NotADirectory(path.clone()),
        io::ErrorKind::IsADirectory => TreeError::NotAFile(path.clone()),
        _ => TreeError::Io { path: path.clone(), message: error.to_string() },
    }
}

/// Sockets, devices and pipes are nothing that a build can read.
fn kind_of(path: &Path, kind: fs::FileType) -> io::Result<Option<EntryKind>> {
    if kind.is_symlink() {
        let target = fs::read_link(path)?;
        // An absolute target lies beneath the root, which is that of the file system.
        let target = match (target.strip_prefix("/"), path.parent()) {
            (Ok(rest), Some(parent)) => {
                let up: PathBuf = parent.components().skip(1).map(|_| "..").collect();
                up.join(rest)
            }
            _ => target,
        };
        let target = target.into_os_string().into_string();
        return target
            .map(|target| Some(EntryKind::Symlink { target }))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the link's target is not UTF-8"));
    }
    Ok(match () {
        () if kind.is_dir() => Some(EntryKind::Directory),
        () if kind.is_file() => Some(EntryKind::File),
        () => None,
    })
}

impl FileTree for DiskTree {
    fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError> {
        let real = self.real(path);
        match fs::symlink_metadata(&real).and_then(|metadata| kind_of(&real, metadata.file_type())) {
            Ok(kind) => Ok(kind),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(failed(path, &error)),
        }
    }

    fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError> {
        let read = || {
            let mut bytes = Vec::new();
            // One byte more than allowed tells a file that is too large, also one that grows.
            let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
            fs::File::open(self.real(path))?.take(bound).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error| failed(path, &error))?;
        if bytes.len() > limit {
            return Err(TreeError::TooLarge { path: path.clone(), limit });
        }
        Ok(Cow::Owned(bytes))
    }

    fn entries(&self, dir: &TreePath) -> Result<Vec<Entry>, TreeError> {
        let list = || {
            let mut entries = Vec::new();
            for entry in fs::read_dir(self.real(dir))? {
                let entry = entry?;
                // A name that is not UTF-8 cannot be named by a kustomization.
                let Ok(name) = entry.file_name().into_string() else { continue };
                if let Some(kind) = kind_of(&entry.path(), entry.file_type()?)? {
                    entries.push(Entry { name, kind });
                }
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        };
        let mut entries = list().map_err(|error| failed(dir, &error))?;
        if let Some(ignored) = self.ignored(dir)? {
            entries.retain(|entry| !ignored.leaves_out(entry));
        }
        Ok(entries)
    }
}
