//! Fuzzes the reader of kubeconfigs that users put into Secrets.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_kubeconfig::{Access, Allowed};

const ALLOWANCE: Allowance = Allowance { bytes: 400, nanos: 10_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    if let Err(refusal) = Access::read(bytes, &Allowed::default()) {
        // What is said of it goes into a condition.
        assert!(refusal.to_string().len() < 4096);
    }
}));
