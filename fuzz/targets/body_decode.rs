//! Fuzzes the decoders of API bodies: the first byte says which, the rest is the body. Whatever it is, nothing may panic,
//! and what was read as YAML or protobuf can be said as JSON and read again.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_body::{JSON, PROTOBUF, YAML, decode, decode_apply};

const ALLOWANCE: Allowance = Allowance { bytes: 400, nanos: 10_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((form, body)) = bytes.split_first() else { return };
    let read = match form % 4 {
        0 => decode(JSON, body),
        1 => decode(YAML, body),
        2 => decode(PROTOBUF, body),
        _ => decode_apply(body, 32 << 20),
    };
    if let Ok(read) = read {
        let again = decode(JSON, read.value.to_string().as_bytes()).expect("what is shown can be read");
        assert_eq!(again.value, read.value);
    }
}));
