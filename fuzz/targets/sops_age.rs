//! Fuzzes age files, given without their armor, for an identity that is known.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oracle::{Allowance, hold};
use roadstead_sops::{KeyProvider as _, KeyRing, MasterKey};

const ALLOWANCE: Allowance = Allowance { bytes: 1_000, nanos: 200_000 };

fn ring() -> &'static KeyRing {
    static RING: OnceLock<KeyRing> = OnceLock::new();
    RING.get_or_init(|| {
        let mut ring = KeyRing::default();
        let identity = include_bytes!("../../crates/sops/tests/age/key.agekey");
        assert_eq!(ring.add("key.agekey", identity), Ok(true));
        ring
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let body = lines.join("\n");
    let enc = format!("-----BEGIN AGE ENCRYPTED FILE-----\n{body}\n-----END AGE ENCRYPTED FILE-----\n");
    if let Err(error) = ring().unwrap(&MasterKey::Age { recipient: String::new(), enc }) {
        assert!(error.to_string().len() < 4096);
    }
    // And the reader of identities, which users give.
    let _ = KeyRing::default().add("x.agekey", bytes);
    let _ = KeyRing::default().add_ssh("x", bytes);
}));
