//! Fuzzes `whole_build` of `fuzz/kustomize.rs`.
#![no_main]

#[path = "../kustomize.rs"]
mod entry;
#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};

const ALLOWANCE: Allowance = Allowance { bytes: 3_000, nanos: 100_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| entry::run("whole_build", bytes)));
