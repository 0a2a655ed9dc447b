//! What a fuzzer drives, from bytes: shared by the targets for `cargo fuzz` and by a test on stable Rust
//! (`tests/mutations.rs`).
//!
//! A function that returns has found nothing. A panic, a stack overflow, a run without end and two builds that differ are
//! findings.

use roadstead_kustomize::yaml::{Dialect, read_documents, write_document};
use roadstead_kustomize::{Limits, MemoryTree, Options, TreePath, build};

/// One thing to fuzz, with the name of its seeds.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const TARGETS: [Target; 5] = [
    ("yaml", yaml),
    ("strategic_merge", strategic_merge),
    ("json_patch", json_patch),
    ("replacements", replacements),
    ("whole_build", whole_build),
];

/// Runs one of them.
pub(crate) fn run(name: &str, bytes: &[u8]) {
    TARGETS.iter().filter(|(target, _)| *target == name).for_each(|(_, target)| target(bytes));
}

/// What stands between the parts of one input.
const MARK: &str = "\n#### ";

/// Small bounds: what runs into them is found sooner.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.file_bytes = 1 << 20;
    limits.total_bytes = 4 << 20;
    limits.nodes = 50_000;
    limits
}

/// Reads bytes as YAML of each dialect; what an object holds is written, read back, and must be written the same again.
fn yaml(bytes: &[u8]) {
    for dialect in [Dialect::Kustomization, Dialect::Patch, Dialect::Object] {
        let Ok(documents) = read_documents(bytes, dialect, &limits()) else { continue };
        for document in documents {
            let mut out = String::new();
            write_document(&mut out, &document.value);
            let _ = read_documents(out.as_bytes(), dialect, &limits());
        }
    }
}

/// An object, then a strategic merge patch.
fn strategic_merge(bytes: &[u8]) {
    patched(bytes, "resources: [objects.yaml]\npatches: [{path: change.yaml}]\n");
    patched(bytes, "resources: [objects.yaml]\npatches: [{path: change.yaml, target: {kind: .+}}]\n");
}

/// An object, then a JSON patch.
fn json_patch(bytes: &[u8]) {
    patched(bytes, "resources: [objects.yaml]\npatches: [{path: change.yaml, target: {kind: .+}}]\n");
}

/// Objects, then replacements.
fn replacements(bytes: &[u8]) {
    patched(bytes, "resources: [objects.yaml]\nreplacements: [{path: change.yaml}]\n");
}

fn patched(bytes: &[u8], kustomization: &str) {
    let text = String::from_utf8_lossy(bytes);
    let (objects, change) = text.split_once(MARK).unwrap_or(("", &text));
    let files = [("kustomization.yaml", kustomization), ("objects.yaml", objects), ("change.yaml", change)];
    twice(&files);
}

/// A whole tree: each part starts with the path of a file, the first is `kustomization.yaml`.
fn whole_build(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (first, rest) = text.split_once(MARK).unwrap_or((&text, ""));
    let mut files = vec![("kustomization.yaml", first)];
    files.extend(rest.split(MARK).filter_map(|part| part.split_once('\n')));
    twice(&files);
}

/// Builds twice: the bytes, or the error, must be the same.
fn twice(files: &[(&str, &str)]) {
    let mut tree = MemoryTree::new();
    for (path, text) in files {
        if let Some(path) = TreePath::new(path) {
            tree.insert_file(path, *text);
        }
    }
    let options = Options { limits: limits(), ..Options::default() };
    let run = || {
        build(&tree, &TreePath::root(), &options)
            .map(|build| build.to_yaml())
            .map_err(|error| error.to_string())
    };
    assert_eq!(run(), run(), "two builds of the same tree differ");
}
