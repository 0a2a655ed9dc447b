//! The kustomization files of a tree, as they are looked through before a build. What of them cannot be read, the build will say.

use std::collections::BTreeSet;

use roadstead_kustomize::yaml::read_strict;
use roadstead_kustomize::{EntryKind, FileTree, Limits, TreePath, resolve};
use serde_json::Value;

/// The names of a kustomization file.
const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Folders that are looked into, and what a kustomization file may have to be read.
const MAX_FOLDERS: usize = 2_000;
const MAX_FILE_BYTES: usize = 1 << 20;
const MEMORY: usize = 32 << 20;

/// The folders that were looked into.
#[derive(Default)]
pub(super) struct Folders(BTreeSet<(String, String)>);

impl Folders {
    /// The kustomization in a folder, with where that really is; none where it was looked into before. `of` tells trees apart.
    pub(super) fn enter(
        &mut self,
        tree: &dyn FileTree,
        of: &str,
        folder: &TreePath,
    ) -> Option<(TreePath, Value)> {
        let Ok((folder, EntryKind::Directory)) = resolve(tree, folder) else { return None };
        if self.0.len() >= MAX_FOLDERS || !self.0.insert((of.to_owned(), folder.as_str().to_owned())) {
            return None;
        }
        let file = FILE_NAMES.iter().filter_map(|name| folder.join(name)).find_map(|path| {
            let (path, kind) = resolve(tree, &path).ok()?;
            (kind == EntryKind::File).then_some(path)
        })?;
        let bytes = tree.read(&file, MAX_FILE_BYTES).ok()?;
        let (documents, _) = read_strict(&bytes, &Limits::within(MEMORY)).ok()?;
        documents.first().map(|document| (folder, document.value.to_json()))
    }
}

/// The entries of a list; none where it is something else.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
