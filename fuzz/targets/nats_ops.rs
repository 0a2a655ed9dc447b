//! Fuzzes what a NATS server says to who publishes.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_nats::{Decoder, MAX_LINE, Op};

const ALLOWANCE: Allowance = Allowance { bytes: 100, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let mut decoder = Decoder::default();
    for piece in bytes.chunks(4 << 10) {
        decoder.push(piece);
        loop {
            match decoder.next_op() {
                Ok(Some(Op::Info(info))) => {
                    assert!(info.nonce.is_none_or(|nonce| nonce.len() <= MAX_LINE));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}));
