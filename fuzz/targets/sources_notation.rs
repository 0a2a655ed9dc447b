//! Fuzzes the readers of notation's signatures that a registry sends: lists of referrers, manifests and envelopes; the first byte says
//! which.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use oracle::{Allowance, hold};
use roadstead_sources::oci::{NotationTrust, Verification};
use roadstead_sources::{Line, read};
use serde_json::json;

/// An envelope in CBOR has items of many times its bytes, all of them bounded; and a chain of ten is verified, twice.
const ALLOWANCE: Allowance = Allowance { bytes: 4_000, nanos: 100_000 };
const STEPS: [&str; 3] = ["NotationReferrers", "NotationManifests", "Envelopes"];
/// Of what the image's manifest is here.
const MANIFEST: &[u8] = b"manifest";
const IMAGE: &str = "sha256:05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f";
const SIGNED: &str = include_str!("../../crates/sources/tests/oci/notation/signed.json");
const POLICY: &str = r#"{"version": "1.0", "trustPolicies": [{"name": "own", "registryScopes": ["*"],
    "signatureVerification": {"level": "audit", "override": {"authenticity": "enforce"}},
    "trustStores": ["ca:a", "signingAuthority:a"], "trustedIdentities": ["x509.subject:C=DE,ST=Berlin,O=Example\\, Ltd"]}]}"#;

fn trust() -> &'static Verification {
    static TRUST: std::sync::LazyLock<Verification> = std::sync::LazyLock::new(|| {
        let signed: serde_json::Value = serde_json::from_str(SIGNED).expect("it is JSON");
        let root = signed["certificates"]["root"].as_str().expect("a root");
        let entries = [("trustpolicy.json", POLICY.into()), ("root.crt", root.into())];
        Verification::Notation(NotationTrust::of_entries(&entries).expect("a policy"))
    });
    &TRUST
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let trust = trust();
    hold(bytes, ALLOWANCE, |bytes| {
        let Some((which, sent)) = bytes.split_first() else { return };
        let step = STEPS[usize::from(*which) % STEPS.len()];
        let order = json!({ "Oci": { "Signatures": {
            "step": step, "answers": 2, "most": 1 << 20, "image": IMAGE, "trust": trust,
        } } });
        let answers = [MANIFEST.to_vec(), sent.to_vec()];
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
        assert!(step != "Envelopes" || reply.contains("Unverified"), "{step}: {reply}");
    });
});
