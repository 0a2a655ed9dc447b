//! Fuzzes `.sourceignore`: the patterns, a zero byte, and the path that they are asked about.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_sources::ignore::Ignore;

const ALLOWANCE: Allowance = Allowance { bytes: 400, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (Some(patterns), Some(path)) = (parts.next(), parts.next()) else { return };
    // As the walk of a tree makes them: no entry's name is empty.
    let Some(path) = std::str::from_utf8(path).ok().filter(|path| path.split('/').all(|name| !name.is_empty())) else {
        return;
    };
    if let Ok(ignore) = std::str::from_utf8(patterns).map_or(Ignore::new(None), |text| Ignore::new(Some(text))) {
        let _ = ignore.excludes(path, false);
        if let Ok(inner) = ignore.with_file("folder", patterns) {
            let _ = inner.excludes(path, true);
        }
    }
}));
