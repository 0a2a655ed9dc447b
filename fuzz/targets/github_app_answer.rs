//! Fuzzes what the GitHub API answers to who asks for a token of an App.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};

const ALLOWANCE: Allowance = Allowance { bytes: 100, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Ok(now) = jiff::Timestamp::from_second(1_800_000_000) else { return };
    if let Ok(given) = roadstead_github_app::read_token(bytes, now) {
        assert!(!given.lasts.is_zero() && given.lasts.as_secs() <= 3_600);
        assert!(given.token.expose().bytes().all(|byte| byte.is_ascii_graphic()));
    }
}));
