//! What the rules are checked against: packages with their dependencies, and what their sources name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, PackageId};

use super::source::{self, Named};

/// The workspace as far as the rules ask for it.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) packages: Vec<Package>,
    pub(crate) files: Vec<File>,
}

/// A package of the workspace.
#[derive(Debug, Default, Clone)]
pub(crate) struct Package {
    /// Its folder in the repository, which is its room: `hub/api`.
    pub(crate) room: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// The names of all packages that its builds hold, through any number of steps.
    pub(crate) reaches: BTreeSet<String>,
}

/// One line of a manifest.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The room that it is, for a package of the workspace.
    pub(crate) room: Option<String>,
    /// Only tests, benchmarks and examples have it.
    pub(crate) dev: bool,
}

/// A source file under some package's `src`.
#[derive(Debug, Default, Clone)]
pub(crate) struct File {
    /// From the repository's root, with `/`.
    pub(crate) path: String,
    pub(crate) named: Vec<Named>,
}

/// Gathers the facts of the workspace at `root`.
pub(crate) fn gather(root: &Path) -> Result<Facts> {
    let metadata =
        MetadataCommand::new().current_dir(root).exec().context("ask cargo for the workspace's packages")?;
    let root = metadata.workspace_root.as_std_path();
    let members: BTreeSet<&PackageId> = metadata.workspace_members.iter().collect();
    let room_of = |manifest: &Path| -> Option<String> {
        Some(manifest.parent()?.strip_prefix(root).ok()?.to_string_lossy().into_owned())
    };
    let rooms: BTreeMap<&str, String> = metadata
        .packages
        .iter()
        .filter(|package| members.contains(&package.id))
        .filter_map(|package| Some((package.name.as_str(), room_of(package.manifest_path.as_std_path())?)))
        .collect();
    let graph = Graph::new(&metadata)?;

    let mut facts = Facts::default();
    for package in metadata.packages.iter().filter(|package| members.contains(&package.id)) {
        let room =
            rooms.get(package.name.as_str()).context("a member lies in the workspace's folder")?.clone();
        let dependencies = package
            .dependencies
            .iter()
            .map(|dependency| Dependency {
                name: dependency.name.clone(),
                room: dependency.path.as_ref().and_then(|_| rooms.get(dependency.name.as_str()).cloned()),
                dev: dependency.kind == DependencyKind::Development,
            })
            .collect();
        facts.files.extend(files(root, &root.join(&room).join("src"))?);
        facts.packages.push(Package { room, dependencies, reaches: graph.reach(&package.id) });
    }
    Ok(facts)
}

/// Who holds whom in a build, dev-dependencies left out. Build scripts and procedural macros run in the compiler: what
/// they use is not in what is built, so the way ends there.
struct Graph<'a> {
    edges: BTreeMap<&'a PackageId, Vec<&'a PackageId>>,
    names: BTreeMap<&'a PackageId, &'a str>,
    macros: BTreeSet<&'a PackageId>,
}

impl<'a> Graph<'a> {
    fn new(metadata: &'a cargo_metadata::Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("cargo gives no resolved graph")?;
        let edges = resolve
            .nodes
            .iter()
            .map(|node| {
                let normal = node.deps.iter().filter(|dependency| {
                    dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
                });
                (&node.id, normal.map(|dependency| &dependency.pkg).collect())
            })
            .collect();
        let names = metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
        let macros = metadata
            .packages
            .iter()
            .filter(|package| package.targets.iter().any(cargo_metadata::Target::is_proc_macro))
            .map(|package| &package.id)
            .collect();
        Ok(Self { edges, names, macros })
    }

    fn reach(&self, from: &'a PackageId) -> BTreeSet<String> {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            for next in self.edges.get(id).into_iter().flatten() {
                if !self.macros.contains(next) && seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen.remove(from);
        seen.iter().filter_map(|id| self.names.get(id)).map(|name| (*name).to_owned()).collect()
    }
}

/// Reads every Rust file beneath `folder`, less those that only tests compile.
fn files(root: &Path, folder: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
    let mut for_tests: BTreeSet<PathBuf> = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text =
                    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                let contents = source::read(&text).with_context(|| path.display().to_string())?;
                let home = child_folder(&path);
                for module in &contents.test_modules {
                    for_tests.insert(home.join(format!("{module}.rs")));
                    for_tests.insert(home.join(module));
                }
                found.push((path, contents.named));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found
        .into_iter()
        .filter(|(path, _)| !path.ancestors().any(|path| for_tests.contains(path)))
        .map(|(path, named)| {
            let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            File { path, named }
        })
        .collect())
}

/// Where the child modules of the file `path` lie.
fn child_folder(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(path);
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => folder.to_owned(),
        Some(stem) => folder.join(stem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let facts = gather(root).unwrap();
        let room = |name: &str| facts.packages.iter().find(|package| package.room == name).unwrap();
        assert!(room("hub/store").dependencies.iter().any(|dependency| dependency.name == "sqlx"));
        assert!(room("xtask").reaches.contains("proc-macro2"));
        assert!(room("hub/core").dependencies.iter().any(|d| d.room.as_deref() == Some("hub/store")));
        let this = facts.files.iter().find(|file| file.path == "xtask/src/rooms/facts.rs").unwrap();
        assert!(this.named.iter().any(|named| named.path == "cargo_metadata::MetadataCommand"));
    }

    #[test]
    fn leaves_out_files_that_only_tests_compile() {
        let temp = tempfile::tempdir().unwrap();
        let src = temp.path().join("src");
        std::fs::create_dir_all(src.join("parse/fixtures")).unwrap();
        std::fs::write(src.join("lib.rs"), "mod parse;").unwrap();
        std::fs::write(src.join("parse.rs"), "#[cfg(test)] mod fixtures; use std::io;").unwrap();
        std::fs::write(src.join("parse/fixtures.rs"), "use std::fs;").unwrap();
        std::fs::write(src.join("parse/fixtures/more.rs"), "use std::fs;").unwrap();
        let paths: Vec<_> = files(temp.path(), &src).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["src/lib.rs", "src/parse.rs"]);
    }
}
