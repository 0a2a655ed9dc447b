//! Fuzzes the readers of what object stores send: pages of lists, in XML and JSON, and the list of objects that comes of them with
//! patterns; the first byte says which.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use oracle::{Allowance, hold};
use roadstead_sources::bucket::BucketLimits;
use roadstead_sources::{Line, read};
use serde_json::json;

/// An object has a path, an etag and folders with their patterns.
const ALLOWANCE: Allowance = Allowance { bytes: 4_000, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, sent)) = bytes.split_first() else { return };
    let store = ["S3", "Gcs", "Azure"][usize::from(*which) % 3];
    let whole = json!({ "offset": 0, "size": sent.len() });
    let what = match which / 3 % 3 {
        0 => json!({ "Page": whole }),
        1 => json!({ "Refusal": whole }),
        _ => json!({ "Index": { "pages": [whole], "prefix": "", "ignore": "*.md\n", "patterns": null } }),
    };
    let limits = BucketLimits { keys: 1_000, index_bytes: 1 << 20, ..BucketLimits::default() };
    let order = json!({ "Bucket": { "store": store, "limits": limits, "what": what } });
    let answer = sent.to_vec();
    let line = Line::new(move |question| {
        // Bytes of the answer from there on; whatever is brought is taken.
        let from = match question.split_first() {
            Some((1, rest)) => rest.get(1..9).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes),
            _ => None,
        };
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        Ok(answer.get(from..).unwrap_or_default().to_vec())
    });
    let reply = read(order.to_string().as_bytes(), Path::new("/nonexistent"), &line, &AtomicBool::new(false));
    assert!(!reply.is_empty(), "an order that cannot be read");
}));
