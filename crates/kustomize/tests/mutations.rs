//! The functions that a fuzzer drives (`fuzz/kustomize.rs` at the root), on stable Rust: the seeds, changed at random, for a bounded
//! number of cases. `cargo fuzz` finds more; this keeps the functions and what was found once from coming back.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../../fuzz/kustomize.rs"]
mod entry;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// Cases for each target; `KUSTOMIZE_MUTATIONS` asks for more.
fn cases() -> u32 {
    std::env::var("KUSTOMIZE_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(format!("kustomize_{target}"));
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// One change of a text.
#[derive(Debug, Clone)]
enum Change {
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// A piece to another place.
    Copy(Index, usize, Index),
    /// A piece of another seed.
    Splice(Index, Index, Index, usize),
}

/// What means something to YAML, to patches or to kustomizations.
const WORDS: [&str; 24] = [
    "null",
    "~",
    "{}",
    "[]",
    ": ",
    "- ",
    "\n",
    "  ",
    "*a",
    "&a ",
    "<<: *a",
    "!!binary ",
    "|-\n",
    ">\n",
    "\"",
    "'",
    "$patch: delete",
    "$patch: replace",
    "-1",
    "9999999999",
    ".*",
    "/-",
    "[name=x]",
    "---\n",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), prop::sample::select(&WORDS[..])).prop_map(|(i, word)| Change::Insert(i, word.into())),
        (at(), prop::collection::vec(any::<u8>(), 1..4)).prop_map(|(i, bytes)| Change::Insert(i, bytes)),
        (at(), 1..40_usize).prop_map(|(i, n)| Change::Remove(i, n)),
        (at(), 1..80_usize, at()).prop_map(|(i, n, to)| Change::Copy(i, n, to)),
        (at(), at(), at(), 1..200_usize).prop_map(|(seed, i, to, n)| Change::Splice(seed, i, to, n)),
    ]
}

fn mutate(seeds: &[Vec<u8>], seed: Index, changes: &[Change]) -> Vec<u8> {
    let mut bytes = seed.get(seeds).clone();
    let place = |len: usize, index: &Index| index.index(len + 1);
    for change in changes {
        let len = bytes.len();
        match change {
            Change::Insert(at, new) => {
                let at = place(len, at);
                bytes.splice(at..at, new.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = place(len, at);
                bytes.drain(at..(at + count).min(len));
            }
            Change::Copy(from, count, to) => {
                let from = place(len, from);
                let piece = bytes[from..(from + count).min(len)].to_vec();
                let to = place(len, to);
                bytes.splice(to..to, piece);
            }
            Change::Splice(seed, from, to, count) => {
                let other = seed.get(seeds);
                let from = place(other.len(), from);
                let piece = other[from..(from + count).min(other.len())].to_vec();
                let to = place(len, to);
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

#[test]
fn mutated_seeds_do_no_harm() {
    for (target, run) in entry::TARGETS {
        let seeds = seeds(target);
        seeds.iter().for_each(|seed| run(seed));
        let inputs = (any::<Index>(), prop::collection::vec(change(), 1..8));
        let mut runner =
            TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
        let result = runner.run(&inputs, |(seed, changes)| {
            let bytes = mutate(&seeds, seed, &changes);
            entry::run(target, &bytes);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{target}: {error}"));
    }
}

/// A seed that is refused for another reason than it was made for would test nothing.
#[test]
fn seeds_build() {
    for (target, _) in entry::TARGETS {
        assert!(!seeds(target).is_empty(), "{target} has no seeds");
    }
}
