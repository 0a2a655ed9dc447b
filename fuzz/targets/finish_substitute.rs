//! Fuzzes the substitution of variables: `[object, variables]` as JSON. Whatever they are, nothing may panic.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::collections::BTreeMap;

use oracle::{Allowance, hold};
use roadstead_finish::{Limits, Substitution, Variables};
use serde_json::Value;

const ALLOWANCE: Allowance = Allowance { bytes: 3_000, nanos: 50_000 };
/// Much comes of little by design, within these.
const LIMITS: Limits = Limits { bytes: 1 << 18, memory: 4 << 20, work: 1 << 18 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Ok((object, values)) = serde_json::from_slice::<(Value, BTreeMap<String, String>)>(bytes) else { return };
    let mut variables = Variables::default();
    for (name, value) in &values {
        variables.set(name, value, name.len() % 2 == 0);
    }
    for strict in [true, false] {
        let substitution =
            Substitution { always: true, strict, limits: LIMITS, ..Substitution::of(&variables) };
        if let Err(error) = substitution.apply(vec![object.clone()]) {
            // What is said of it goes into a condition.
            let _ = error.to_string();
        }
    }
}));
