//! The peak of the heap is bounded by what a build puts out: at most ten times its text, where that has 100 kB or more.
//!
//! Trees of our own are built, and the largest public cases where `../shared` is there. The text of a file counts from
//! when it is read, and the whole output as one text: as in a process that builds from a disk and prints.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../benches/trees/mod.rs"]
mod trees;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use peak_alloc::PeakAlloc;
use roadstead_kustomize::{Entry, EntryKind, FileTree, MemoryTree, Options, TreeError, TreePath, build};
use trees::SHAPES;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MOST: f64 = 10.0;
/// For objects that are a hundred bytes of text each, all of them generated and then merged into: what is kept of any
/// object, its ids and its place, outweighs them.
const MOST_FOR_TINY: f64 = 25.0;
/// Smaller outputs are outweighed by the builtin tables.
const AT_LEAST: usize = 100_000;

/// A tree whose files are read again each time, as from a disk.
#[derive(Debug)]
struct Disk<'t>(&'t MemoryTree);

impl FileTree for Disk<'_> {
    fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError> {
        self.0.kind(path)
    }

    fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError> {
        self.0.read(path, limit).map(|bytes| Cow::Owned(bytes.into_owned()))
    }

    fn entries(&self, path: &TreePath) -> Result<Vec<Entry>, TreeError> {
        self.0.entries(path)
    }
}

/// The length of the output, and the peak of the heap in multiples of it.
fn measure(tree: &MemoryTree, path: &str) -> Option<(usize, f64)> {
    let path = TreePath::new(path)?;
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let built = build(&Disk(tree), &path, &Options::default()).ok()?;
    let output = built.to_yaml();
    let peak = HEAP.peak_usage() - before;
    Some((output.len(), peak as f64 / output.len() as f64))
}

/// Input and path of the public cases whose output is large enough.
fn public_cases() -> BTreeMap<String, (MemoryTree, String)> {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/kustomize-cases/cases-public.tar.gz");
    let mut cases: BTreeMap<String, (MemoryTree, String)> = BTreeMap::new();
    let Ok(file) = File::open(&archive) else {
        eprintln!("NOT TESTED: {} is not there, so only trees of our own are built", archive.display());
        return cases;
    };
    let mut large = Vec::new();
    for entry in tar::Archive::new(flate2::read::GzDecoder::new(file)).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let Some((case, rest)) = path.strip_prefix("cases/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        if rest == "expected.yaml" && entry.size() >= AT_LEAST as u64 {
            large.push(case.to_owned());
        }
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let (tree, cmd) = cases.entry(case.to_owned()).or_default();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        match rest.strip_prefix("input/") {
            Some(inner) => tree.insert_file(TreePath::new(inner).unwrap(), bytes),
            None if rest == "cmd" => *cmd = String::from_utf8(bytes).unwrap().trim().to_owned(),
            None => {}
        }
    }
    // Those with flags are left to the test of all public cases.
    cases.retain(|name, (_, cmd)| large.contains(name) && !cmd.contains(' '));
    cases
}

/// One test, so that nothing else is on the heap meanwhile.
#[test]
fn the_heap_is_bounded_by_the_output() {
    let mut cases = public_cases();
    for shape in SHAPES {
        let at = |size: usize| {
            (format!("{shape:?} of {size}").to_lowercase(), (shape.tree(size), "overlay".into()))
        };
        cases.extend([at(500), at(2_000)]);
    }
    // What is made once and kept is not part of a build.
    assert!(measure(&SHAPES[0].tree(10), "overlay").is_some());
    let mut measured = 0;
    for (name, (tree, path)) in &cases {
        let Some((output, times)) = measure(tree, path).filter(|(output, _)| *output >= AT_LEAST) else {
            continue;
        };
        eprintln!("{times:5.1} times {:5} kB  {name}", output / 1_000);
        let most = if name.starts_with("merginggenerators") { MOST_FOR_TINY } else { MOST };
        assert!(times <= most, "{name}: the heap takes {times:.1} times the output of {output} bytes");
        measured += 1;
    }
    assert!(measured >= SHAPES.len(), "only {measured} outputs were large enough to be measured");
}
