//! Fuzzes the patches: the first byte says of which form, then come the object, a zero byte and the patch. Whatever they
//! are, nothing may panic, and an object that is bounded stays so.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_body::{JSON, Patch, decode};

const ALLOWANCE: Allowance = Allowance { bytes: 1_000, nanos: 20_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((form, rest)) = bytes.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (Some(object), Some(patch)) = (parts.next(), parts.next()) else { return };
    let form = match form % 3 {
        0 => "application/json-patch+json",
        1 => "application/merge-patch+json",
        _ => "application/strategic-merge-patch+json",
    };
    let (Ok(object), Ok(patch)) = (decode(JSON, object), Patch::read(form, patch, 32 << 20)) else { return };
    if let Ok(patched) = patch.apply_to(object.value) {
        // The text's length shows that it did not grow without bounds.
        assert!(patched.to_string().len() < 8 << 20);
    }
}));
