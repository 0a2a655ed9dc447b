//! A kustomization for a directory that has none, as Flux makes it: all manifests in it and below; a directory with a
//! kustomization of its own is one resource.

use crate::error::Error;
use crate::load::{Loader, yaml_error};
use crate::target::kustomization_file;
use crate::tree::{EntryKind, TreeError, TreePath};
use crate::value::Value;
use crate::yaml::{Dialect, read_counted};

/// Paths of the manifests, from `dir`.
pub(crate) fn manifests(loader: &Loader<'_>, dir: &TreePath) -> Result<Vec<String>, Error> {
    let mut out = Vec::new();
    scan(loader, dir, "", &mut out, 0)?;
    Ok(out)
}

fn scan(
    loader: &Loader<'_>,
    dir: &TreePath,
    prefix: &str,
    out: &mut Vec<String>,
    depth: usize,
) -> Result<(), Error> {
    let limit = loader.limits.depth;
    if depth > limit {
        return Err(Error::Limit {
            place: dir.display().to_owned(),
            what: "directories inside of each other",
            limit,
        });
    }
    for entry in loader.entries(dir)? {
        let Some(path) = dir.join(&entry.name) else { continue };
        let name = format!("{prefix}{}", entry.name);
        let is_link = matches!(entry.kind, EntryKind::Symlink { .. });
        let (real, kind) = match loader.resolve(&path) {
            Ok(found) => found,
            Err(TreeError::NotFound(_)) if is_link => continue,
            Err(error) => return Err(error.into()),
        };
        match kind {
            // A linked directory is not entered: it is found where it really is, and cannot make a loop.
            EntryKind::Directory if is_link => {}
            EntryKind::Directory if kustomization_file(loader, &real)?.is_some() => out.push(name),
            EntryKind::Directory => scan(loader, &real, &format!("{name}/"), out, depth + 1)?,
            EntryKind::File if is_manifest(loader, &entry.name, &real)? => {
                if out.len() >= loader.limits.objects {
                    let limit = loader.limits.objects;
                    return Err(Error::Limit { place: dir.display().to_owned(), what: "manifests", limit });
                }
                out.push(name);
            }
            EntryKind::File | EntryKind::Symlink { .. } => {}
        }
    }
    Ok(())
}

/// A YAML file that holds Kubernetes objects. One that holds none is left out; one that cannot be read is an error.
fn is_manifest(loader: &Loader<'_>, name: &str, path: &TreePath) -> Result<bool, Error> {
    if !(name.ends_with(".yaml") || name.ends_with(".yml")) {
        return Ok(false);
    }
    let bytes = loader.read(path)?;
    // Not counted among the values of the build: what is listed here is read again.
    let read = read_counted(&bytes, Dialect::Object, loader.limits, loader.budget.room())
        .map_err(|error| yaml_error(path.as_str(), error))?;
    Ok(read.documents.iter().any(|document| {
        let Value::Map(map) = &document.value else { return false };
        map.contains_key("apiVersion") && map.contains_key("kind")
    }))
}
