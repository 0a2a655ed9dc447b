//! What is built: a directory of this machine, an artifact (a tar.gz), or a Git repository at a revision.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roadstead_kustomize::{FileTree, MemoryTree, TreePath};
use roadstead_outbound::{Guard, Policy, Proxies, Purpose};
use roadstead_sources::{
    Entry, Fetched, GitError, GitReference, GitRequest, Outcome, Tree, TreeLimits, fetch, unpack,
};
use tokio_util::sync::CancellationToken;

use crate::disk::DiskTree;

/// A tar.gz of more bytes is refused.
const MAX_ARCHIVE: u64 = 512 << 20;
/// For one fetch.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Something to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// A directory.
    Directory(PathBuf),
    /// A directory in a tar.gz.
    Archive {
        /// The tar.gz.
        file: PathBuf,
        /// From its root.
        path: String,
    },
    /// A directory in a Git repository.
    Git {
        /// Where the repository is.
        url: String,
        /// From its root.
        path: String,
        /// The text after `ref=`: a branch, a tag, a full commit id or a name below `refs/`; none for its HEAD.
        reference: Option<String>,
    },
}

impl Input {
    /// Reads what was typed: `DIR`, `FILE.tar.gz[//DIR]` or `URL[//DIR][?ref=REVISION]`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.starts_with("git@") || text.starts_with("ssh://") {
            bail!("{text:?} is a Git repository over SSH, which is not supported yet: use its https:// URL");
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return Self::parse_url(scheme, rest);
        }
        let (file, path) = text.split_once("//").unwrap_or((text, ""));
        if file.ends_with(".tar.gz") || file.ends_with(".tgz") {
            return Ok(Self::Archive { file: file.into(), path: path.to_owned() });
        }
        Ok(Self::Directory(text.into()))
    }

    fn parse_url(scheme: &str, rest: &str) -> Result<Self> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut reference = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("ref" | "version", value)) if !value.is_empty() => reference = Some(value.to_owned()),
                _ => bail!("unknown parameter {pair:?} in the URL: give the revision as ?ref=REVISION"),
            }
        }
        // As kustomize splits them: after `//`, else after `.git/`.
        let (repository, path) = match (rest.split_once("//"), rest.split_once(".git/")) {
            (Some((repository, path)), _) => (repository.to_owned(), path),
            (None, Some((repository, path))) => (format!("{repository}.git"), path),
            (None, None) => (rest.to_owned(), ""),
        };
        Ok(Self::Git { url: format!("{scheme}://{repository}"), path: path.to_owned(), reference })
    }

    /// Its files, and the directory in them.
    pub(crate) fn open(&self) -> Result<(Box<dyn FileTree>, TreePath)> {
        match self {
            Self::Directory(dir) => {
                let (tree, path) = DiskTree::at(dir)?;
                Ok((Box::new(tree), path))
            }
            Self::Archive { file, path } => {
                let bytes = read(file)?;
                Ok((Box::new(memory(&bytes)?), within(path)?))
            }
            Self::Git { url, path, reference } => {
                let path = within(path)?;
                let fetched = fetch_git(url, reference.as_deref())?;
                for note in &fetched.notes {
                    crate::output::warning(&note.to_string());
                }
                Ok((Box::new(memory(&fetched.artifact.bytes)?), path))
            }
        }
    }
}

fn within(path: &str) -> Result<TreePath> {
    TreePath::new(path).with_context(|| format!("path {path:?} leaves the root"))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let attempt = || format!("cannot read {:?}", file.display().to_string());
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).with_context(attempt)?;
    opened.take(MAX_ARCHIVE + 1).read_to_end(&mut bytes).with_context(attempt)?;
    if bytes.len() as u64 > MAX_ARCHIVE {
        bail!("{:?} has more than {MAX_ARCHIVE} bytes", file.display().to_string());
    }
    Ok(bytes)
}

fn memory(artifact: &[u8]) -> Result<MemoryTree> {
    let tree: Tree = unpack(artifact, &TreeLimits::default())?;
    let mut memory = MemoryTree::new();
    for (path, entry) in tree {
        let path = within(&path)?;
        match entry {
            Entry::File { bytes, .. } => memory.insert_file(path, bytes),
            Entry::Symlink { target } => memory.insert_symlink(path, target),
        }
    }
    Ok(memory)
}

fn fetch_git(url: &str, reference: Option<&str>) -> Result<Box<Fetched>> {
    crate::tls::install();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut last = None;
    for reference in references(reference) {
        let mut request = GitRequest::new(url.to_owned());
        request.reference = reference;
        request.allow_file = true;
        // Where the user could go as well.
        request.guard = Guard::new(Arc::new(Policy::everything()), Purpose::Git)
            .with_proxies(Arc::new(Proxies::from_env()));
        request.timeout = TIMEOUT;
        match runtime.block_on(fetch(request, &CancellationToken::new())) {
            Ok(Outcome::Fetched(fetched)) => return Ok(fetched),
            Ok(Outcome::Unchanged(revision)) => {
                bail!("{url} reports {revision} as unchanged and sent nothing")
            }
            // It may be a tag.
            Err(error @ GitError::ReferenceNotFound { .. }) => last = last.or(Some(error)),
            Err(error) => return Err(error.into()),
        }
    }
    let error = last.map_or_else(|| anyhow::anyhow!("{url}: no revision given"), anyhow::Error::from);
    Err(error.context("no branch or tag has that name"))
}

/// What a revision may mean, the likeliest first.
fn references(text: Option<&str>) -> Vec<GitReference> {
    let Some(text) = text else { return vec![GitReference::Name("HEAD".to_owned())] };
    if text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return vec![GitReference::Commit { id: text.to_ascii_lowercase(), branch: None }];
    }
    if text.starts_with("refs/") {
        return vec![GitReference::Name(text.to_owned())];
    }
    vec![GitReference::Branch(text.to_owned()), GitReference::Tag(text.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(url: &str, path: &str, reference: Option<&str>) -> Input {
        Input::Git { url: url.to_owned(), path: path.to_owned(), reference: reference.map(str::to_owned) }
    }

    #[test]
    fn what_is_typed() {
        let parse = |text| Input::parse(text).unwrap();
        assert_eq!(parse("overlays/prod"), Input::Directory("overlays/prod".into()));
        assert_eq!(parse("a//b"), Input::Directory("a//b".into()));
        let archive = |file: &str, path: &str| Input::Archive { file: file.into(), path: path.to_owned() };
        assert_eq!(parse("x/app.tar.gz"), archive("x/app.tar.gz", ""));
        assert_eq!(parse("app.tgz//deploy/prod"), archive("app.tgz", "deploy/prod"));
        assert_eq!(parse("https://h/o/r"), git("https://h/o/r", "", None));
        assert_eq!(parse("https://h/o/r//a/b?ref=v1"), git("https://h/o/r", "a/b", Some("v1")));
        assert_eq!(parse("https://h/o/r.git/a?ref=main"), git("https://h/o/r.git", "a", Some("main")));
        assert_eq!(parse("file:///srv/r.git//a"), git("file:///srv/r.git", "a", None));
        for wrong in ["git@h:o/r", "ssh://git@h/o/r", "https://h/o/r?depth=1", "https://h/o/r?ref="] {
            assert!(Input::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_revision_may_mean() {
        assert_eq!(references(None), [GitReference::Name("HEAD".to_owned())]);
        assert_eq!(references(Some("refs/pull/1/head")), [GitReference::Name("refs/pull/1/head".to_owned())]);
        let id = "0123456789abcdef0123456789ABCDEF01234567";
        let commit = GitReference::Commit { id: id.to_ascii_lowercase(), branch: None };
        assert_eq!(references(Some(id)), [commit]);
        let v1 = || "v1".to_owned();
        assert_eq!(references(Some("v1")), [GitReference::Branch(v1()), GitReference::Tag(v1())]);
    }
}
