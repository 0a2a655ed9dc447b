//! What a kustomization names by URL: fetched by whoever builds, and read as if it stood beneath a directory of that name.
//!
//! The library itself never fetches. Without a [`Remote`] a URL is an error. What was fetched has a root of its own:
//! neither a path nor a link in it leads to the rest of the tree.

mod url;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::tree::{EntryKind, FileTree, TreeError, TreePath, resolve};

pub use url::{RemoteRepository, RemoteUrl};

/// Fetches what URLs lead to.
///
/// URLs are what kustomize takes: `https://host/file.yaml`, `https://github.com/org/repo//dir?ref=v1`,
/// `git@host:org/repo`. One build asks for each URL once.
///
/// ```
/// use std::sync::Arc;
/// use roadstead_kustomize::{Fetched, MemoryTree, Options, Remote, TreePath};
///
/// /// Answers from what was fetched before the build.
/// #[derive(Debug)]
/// struct Mirror;
///
/// impl Remote for Mirror {
///     fn fetch(&self, url: &str) -> Result<Fetched, String> {
///         match url {
///             "https://example.org/empty" => {
///                 Ok(Fetched { tree: Arc::new(MemoryTree::new()), path: TreePath::root() })
///             }
///             _ => Err("not in the mirror".into()),
///         }
///     }
/// }
///
/// let options = Options { remote: Some(Arc::new(Mirror)), ..Options::default() };
/// # let _ = options;
/// ```
pub trait Remote: Debug + Send + Sync {
    /// Fetches a URL. The message of a failure becomes part of the build's error.
    fn fetch(&self, url: &str) -> Result<Fetched, String>;
}

/// What a URL led to.
#[derive(Clone)]
pub struct Fetched {
    /// The files, from the root of the repository; for a single file, that file.
    pub tree: Arc<dyn FileTree>,
    /// The file or the directory that is meant.
    pub path: TreePath,
}

impl Debug for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetched").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The trees that were fetched, each beneath a directory with the name of its URL.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    by_name: RefCell<HashMap<String, Fetched>>,
}

impl Mounts {
    /// The path of what a URL leads to, fetched if it is not there yet.
    pub(crate) fn fetch(&self, remote: &dyn Remote, url: &str) -> Result<TreePath, String> {
        let name = url.replace('/', "|");
        let known = self.by_name.borrow().get(&name).map(|fetched| fetched.path.clone());
        let path = match known {
            Some(path) => path,
            None => {
                let fetched = remote.fetch(url)?;
                let path = fetched.path.clone();
                self.by_name.borrow_mut().insert(name.clone(), fetched);
                path
            }
        };
        beneath(&name, &path).ok_or_else(|| "not a URL that can be fetched".to_owned())
    }

    /// The name of the fetched tree that a path is in.
    pub(crate) fn name_of(&self, path: &TreePath) -> Option<String> {
        self.find(path).map(|(name, ..)| name)
    }

    /// The fetched tree that a path is in, with its name and the path in it.
    pub(crate) fn find(&self, path: &TreePath) -> Option<(String, Arc<dyn FileTree>, TreePath)> {
        let by_name = self.by_name.borrow();
        if by_name.is_empty() {
            return None;
        }
        let (first, rest) = path.as_str().split_once('/').unwrap_or((path.as_str(), ""));
        let (name, fetched) = by_name.get_key_value(first)?;
        Some((name.clone(), fetched.tree.clone(), TreePath::new(rest)?))
    }

    /// Follows the links on the way to a path.
    pub(crate) fn resolve(
        &self,
        tree: &dyn FileTree,
        path: &TreePath,
    ) -> Result<(TreePath, EntryKind), TreeError> {
        let Some((name, tree, inner)) = self.find(path) else { return resolve(tree, path) };
        let (real, kind) = resolve(&*tree, &inner)?;
        let real = beneath(&name, &real).ok_or_else(|| TreeError::NotFound(path.clone()))?;
        Ok((real, kind))
    }
}

fn beneath(name: &str, path: &TreePath) -> Option<TreePath> {
    TreePath::new(name)?.join(path.as_str().trim_start_matches('/'))
}
