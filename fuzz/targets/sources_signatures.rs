//! Fuzzes the readers of signatures that a registry sends: lists of referrers, manifests, bundles and payloads; the first byte says
//! which.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use oracle::{Allowance, hold};
use roadstead_sources::{Line, read};
use serde_json::json;

/// A list has descriptors with texts and maps, all of them bounded; and a signature is tried with each key.
const ALLOWANCE: Allowance = Allowance { bytes: 4_000, nanos: 100_000 };
const STEPS: [&str; 5] = ["Referrers", "Manifests", "Payloads", "Bundles", "Old"];
/// Of what the image's manifest is here.
const MANIFEST: &[u8] = b"manifest";
const IMAGE: &str = "sha256:05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f";
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYZNE4oTcWBdJ5nYw5k6EmgBYGPac\nVZoTEtPAW8zpAQ6zgK9fCsLWVzB5sp4r6EmdZvNi4/zj0Nn2D7qKBenO6g==\n-----END PUBLIC KEY-----\n";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, sent)) = bytes.split_first() else { return };
    let step = STEPS[usize::from(*which) % STEPS.len()];
    let trust = json!({ "Cosign": [["a.pub", KEY]] });
    let order = json!({ "Oci": { "Signatures": {
        "step": step, "answers": 3, "most": 1 << 20, "image": IMAGE, "trust": trust,
    } } });
    let answers = [MANIFEST.to_vec(), sent.to_vec(), sent.to_vec()];
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
    // Nobody signed this image.
    assert!(!reply.contains("Verified") || reply.contains("Unverified"), "{step}: {reply}");
}));
