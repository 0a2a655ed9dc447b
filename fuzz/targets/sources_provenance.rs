//! Fuzzes the reader of what lies beside a chart and says who packed it: an OpenPGP message in the clear.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use oracle::{Allowance, hold};
use roadstead_sources::helm::HelmLimits;
use roadstead_sources::{Line, read};
use serde_json::json;

/// A text of YAML becomes events and values; its signatures are tried with the key.
const ALLOWANCE: Allowance = Allowance { bytes: 10_000, nanos: 200_000 };
/// Of a key whose private half is gone; it signed the seeds, which are of other charts.
const KEY: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEawwgoRYJKwYBBAHaRw8BAQdA3gZpZvpGVp3s57qm4g95hFDsVDOhWt38/OMU\n3S+AND60EWEgPGFAZXhhbXBsZS5jb20+iJAEExYIADgWIQRtSplSP5U4g1VDBDs1\nAz7Jwfcc2QUCawwgoQIbAwULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAKCRA1Az7J\nwfcc2bX3AQDO1ETO8DDOPw87h0/L1qUlu2a7scRjEdhJZNYAJAAE+QEA+g3jKxms\nFCjuPglPve/qb5mwFOuu4sWeMx8kQzH80wA=\n=8Civ\n-----END PGP PUBLIC KEY BLOCK-----\n";
/// Of what came in the place of a chart.
const CHART: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let making = json!({ "values": { "paths": [], "ignore_missing": false }, "build_metadata": null });
    let keys = json!([["a.asc", { "OpenPgp": [KEY] }]]);
    let wanted = json!({
        "keys": keys, "name": "app", "version": "1.0.0", "file": null, "digest": CHART, "now": 1_800_000_000_u64,
    });
    let order = json!({ "Helm": { "limits": HelmLimits::default(), "what": { "Packed": [making, wanted] } } });
    let answers = [Vec::new(), bytes.to_vec()];
    let line = Line::new(move |question| {
        let Some((1, rest)) = question.split_first() else { return Ok(Vec::new()) };
        let answer = rest.first().and_then(|number| answers.get(usize::from(*number)));
        let from = rest.get(1..9).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes);
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        Ok(answer.and_then(|answer| answer.get(from..)).unwrap_or_default().to_vec())
    });
    let reply = read(order.to_string().as_bytes(), Path::new("/nonexistent"), &line, &AtomicBool::new(false));
    assert!(!reply.is_empty(), "an order that cannot be read");
    let reply = String::from_utf8(reply).expect("a reply is JSON");
    // Nobody signed this chart, so that it is not even unpacked.
    assert!(reply.contains("Verify") || reply.contains("TooLarge"), "{reply}");
}));
