//! Fuzzes what is parsed out of texts of users: revisions, durations, digests, kinds.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_model::{Digest, GoDuration, Revision};

const ALLOWANCE: Allowance = Allowance { bytes: 100, nanos: 5_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(revision) = text.parse::<Revision>() {
        let shown = revision.to_string();
        assert_eq!(shown.parse::<Revision>().ok(), Some(revision), "{shown}");
    }
    if let Ok(duration) = text.parse::<GoDuration>() {
        let shown = duration.to_string();
        assert_eq!(shown.parse::<GoDuration>().ok(), Some(duration), "{shown}");
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
    }
}));
