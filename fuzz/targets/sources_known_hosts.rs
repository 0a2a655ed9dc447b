//! Fuzzes `known_hosts`: a host, a zero byte, and the text that says which keys it may show.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_sources::git::known_hosts::KnownHosts;

const ALLOWANCE: Allowance = Allowance { bytes: 100, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (Some(host), Some(text)) = (parts.next(), parts.next()) else { return };
    let (Ok(host), Ok(text)) = (std::str::from_utf8(host), std::str::from_utf8(text)) else { return };
    // As names of hosts are.
    if host.len() > 253 {
        return;
    }
    let Ok(known) = KnownHosts::parse(text) else { return };
    for port in [22, 2222] {
        let trust = known.trust(host, port);
        assert_eq!(trust.is_known().is_ok(), !trust.keys().is_empty() || trust.has_authorities());
        for key in trust.keys() {
            // What is known is believed, unless somebody revoked it.
            let _ = trust.check_key(key);
        }
    }
}));
