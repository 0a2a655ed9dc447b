//! Fuzzes the reader of artifacts: bytes as they are, and as the tar inside a gzip of ours, which a fuzzer would hardly
//! find by itself.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_sources::{TreeLimits, pack, unpack};

/// Deflate makes up to 1,032 bytes of one; what is kept of them is bounded by the limits below.
const ALLOWANCE: Allowance = Allowance { bytes: 4_000, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let limits =
        TreeLimits { entries: 1_000, file_bytes: 1 << 20, total_bytes: 4 << 20, ..TreeLimits::default() };
    if let Ok(tree) = unpack(bytes, &limits) {
        let packed = pack(&tree).expect("what was unpacked can be packed");
        assert_eq!(unpack(&packed.bytes, &limits).ok(), Some(tree));
    }
}));
