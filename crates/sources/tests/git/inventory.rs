//! That no case beside the repository (`../shared/source-cases`) is left out: each file is one that a test reads.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source_cases::{source_cases, tell};

/// Files, by how their names begin, and where they are read.
const READ_BY: &[(&str, &str)] = &[
    ("artifact/", "crates/sources/src/oci/layer/cases.rs"),
    ("bucket.json", "crates/sources/tests/bucket/cases.rs"),
    ("generator-copy.json", "crates/sources/src/generate/copy/tests.rs"),
    ("git-auth.json", "hub/core/src/sources/git/cases.rs"),
    ("git/trees/", "crates/sources/tests/git/cases.rs"),
    ("helm/charts/", "crates/sources/tests/helm/dependencies.rs"),
    ("helm/choose.json", "crates/sources/tests/helm/chart.rs"),
    ("helm/helmignore/", "crates/sources/tests/helm/tree.rs"),
    ("helm/index/", "crates/sources/tests/helm/index.rs"),
    ("helm/url.json", "crates/sources/src/helm/url.rs"),
    ("ignore.json", "crates/sources/src/oci/layer/cases.rs"),
    ("known_hosts.json", "crates/sources/src/git/ssh/known_hosts/tests.rs"),
    ("oci/artifact-tree/", "crates/sources/tests/oci/cases.rs"),
    ("oci/podinfo-", "crates/sources/tests/oci/cases.rs"),
    ("oci/refs.json", "crates/sources/tests/oci/cases.rs"),
    ("revisions.json", "crates/sources/tests/git/cases.rs"),
    ("samples/", "crates/api/tests/samples.rs"),
    ("sanitize.json", "crates/sources/src/attempt/text.rs"),
    ("semver.json", "crates/sources/tests/oci/cases.rs"),
    ("signatures/", "crates/sources/src/git/verify/tests.rs"),
    ("untar.json", "crates/sources/src/oci/layer/cases.rs"),
];

/// What of files with several lists of cases is read elsewhere.
const LISTS: &[(&str, &[(&str, &str)])] = &[
    (
        "helm/choose.json",
        &[
            ("http", "crates/sources/tests/helm/chart.rs"),
            ("oci", "crates/sources/tests/helm/chart.rs"),
            ("version_rewrite", "crates/sources/src/helm/version.rs"),
            ("values_merge", "crates/sources/src/helm/chart/values.rs"),
            ("local_dependency", "crates/sources/tests/helm/tree.rs"),
            ("index_load", "crates/sources/tests/helm/index.rs"),
        ],
    ),
    (
        "revisions.json",
        &[
            ("normalise", "crates/sources/tests/oci/cases.rs"),
            ("split", "crates/sources/tests/oci/cases.rs"),
            ("from_commit", "crates/sources/tests/git/cases.rs"),
            ("note_absolute", "a note"),
            ("event_subject", "crates/sources/src/git/subject.rs"),
            ("remote_listing", "crates/sources/tests/git/cases.rs"),
            ("git_semver", "crates/sources/tests/git/versions.rs"),
        ],
    ),
];

/// Of the archive itself.
const ABOUT: [&str; 3] = ["LICENSE", "NOTICE", "README.md"];

#[test]
fn each_case_is_run_by_a_test() {
    let Some(cases) = source_cases("all kinds") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let reads = |test: &str, name: &str| {
        let text = std::fs::read_to_string(root.join(test)).unwrap_or_else(|error| panic!("{test}: {error}"));
        assert!(text.contains("source_cases(") && text.contains(name), "{test} does not read {name}");
    };
    let files: Vec<&str> =
        cases.keys().map(String::as_str).filter(|name| !name.is_empty() && !name.ends_with('/')).collect();
    let mut used = BTreeSet::new();
    for file in files.iter().filter(|file| !ABOUT.contains(file)) {
        let found = READ_BY.iter().find(|(start, _)| file.starts_with(start));
        let (start, test) = found.unwrap_or_else(|| panic!("no test reads {file}"));
        if used.insert(*start) {
            reads(test, start);
        }
    }
    assert_eq!(used.len(), READ_BY.len(), "of {READ_BY:?} only {used:?} are there");
    for (file, lists) in LISTS {
        let all: serde_json::Value = serde_json::from_slice(&cases[*file]).unwrap();
        for list in all.as_object().unwrap().keys() {
            let found = lists.iter().find(|(name, _)| name == list);
            let (_, test) = found.unwrap_or_else(|| panic!("no test reads {list} of {file}"));
            if *test != "a note" {
                reads(test, &format!("\"{list}\""));
            }
        }
    }
    tell(format_args!("{} files, each read by a test", files.len() - ABOUT.len()));
}
