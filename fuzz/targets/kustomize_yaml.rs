//! Fuzzes `yaml` of `fuzz/kustomize.rs`.
#![no_main]

#[path = "../kustomize.rs"]
mod entry;
#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};

const ALLOWANCE: Allowance = Allowance { bytes: 400, nanos: 20_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| entry::run("yaml", bytes)));
