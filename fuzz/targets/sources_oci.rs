//! Fuzzes the readers of what registries send: lists of tags, manifests, layers as they are, and the tar inside a gzip of ours, which a
//! fuzzer would hardly find by itself; the first byte says which.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use oracle::{Allowance, hold};
use roadstead_sources::oci::OciLimits;
use roadstead_sources::{Line, read};
use serde_json::json;

/// A layer's files lie on the disk; deflate makes up to 1,032 bytes of one, which cost time.
const ALLOWANCE: Allowance = Allowance { bytes: 4_000, nanos: 100_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, sent)) = bytes.split_first() else { return };
    let mut limits = OciLimits { artifact_bytes: 4 << 20, ..OciLimits::default() };
    limits.tree.entries = 1_000;
    limits.tree.total_bytes = 4 << 20;
    let artifact = |manifests: usize, has_layer: bool| {
        json!({ "Artifact": {
            "manifests": manifests, "has_layer": has_layer, "media_type": null, "ignore": "*.md\n!/keep.md\n", "limits": limits,
        } })
    };
    let (what, answer) = match which % 4 {
        0 => {
            let range =
                json!({ "semver": ">=1.0.0-0", "filter": "^v?[0-9]", "is_of_charts": true, "most": 1_000 });
            (json!({ "Tags": range }), sent.to_vec())
        }
        1 => (artifact(1, false), sent.to_vec()),
        2 => (artifact(0, true), sent.to_vec()),
        _ => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(sent).expect("memory takes all");
            (artifact(0, true), packed.finish().expect("memory takes all"))
        }
    };
    let order = json!({ "Oci": what });
    let line = Line::new(move |question| {
        // Bytes of the answer from there on; whatever is brought is taken.
        let from = match question.split_first() {
            Some((1, rest)) => {
                rest.get(1..9).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes)
            }
            _ => None,
        };
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        Ok(answer.get(from..).unwrap_or_default().to_vec())
    });
    let Ok(folder) = tempfile::tempdir() else { return };
    let reply = read(order.to_string().as_bytes(), folder.path(), &line, &AtomicBool::new(false));
    assert!(!reply.is_empty(), "an order that cannot be read");
}));
