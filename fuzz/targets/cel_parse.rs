//! Fuzzes the parser of CEL expressions, which users write in `readyExpr` and `healthCheckExprs`.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_cel::Expression;

const ALLOWANCE: Allowance = Allowance { bytes: 6_000, nanos: 100_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = Expression::parse(text) {
        // What is said of it goes into a condition.
        let _ = error.to_string();
    }
}));
