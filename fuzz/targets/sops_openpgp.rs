//! Fuzzes OpenPGP messages, given without their armor, for a key that is known, and keyrings.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oracle::{Allowance, hold};
use roadstead_sops::{KeyProvider as _, KeyRing, MasterKey};

/// The tables of bzip2 alone have four megabytes, and a private key may be used for each hidden recipient.
const ALLOWANCE: Allowance = Allowance { bytes: 40_000, nanos: 5_000_000 };

fn ring() -> &'static KeyRing {
    static RING: OnceLock<KeyRing> = OnceLock::new();
    RING.get_or_init(|| {
        let mut ring = KeyRing::default();
        let key = include_bytes!("../../crates/sops/tests/openpgp/key.asc");
        assert_eq!(ring.add("key.asc", key), Ok(true));
        ring
    })
}

fn armored(kind: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN PGP {kind}-----\n\n{}\n-----END PGP {kind}-----\n", STANDARD.encode(bytes))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let key = MasterKey::Pgp { fingerprint: String::new(), enc: armored("MESSAGE", bytes) };
    if let Err(error) = ring().unwrap(&key) {
        assert!(error.to_string().len() < 4096);
    }
    let _ = KeyRing::default().add("x.asc", armored("PRIVATE KEY BLOCK", bytes).as_bytes());
}));
