//! Fuzzes the readers of what Helm repositories send: indexes, in YAML and JSON, the choice of a version, and packed charts; the first byte
//! says which.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::sync::atomic::AtomicBool;

use oracle::{Allowance, hold};
use roadstead_sources::helm::HelmLimits;
use roadstead_sources::{Line, read};
use serde_json::json;

/// A text of YAML becomes events, values and JSON; a chart's files lie on the disk.
const ALLOWANCE: Allowance = Allowance { bytes: 10_000, nanos: 200_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, sent)) = bytes.split_first() else { return };
    let values = |paths: &[&str]| json!({ "paths": paths, "ignore_missing": true });
    let what = match which % 4 {
        0 => json!("Index"),
        1 => json!({ "Choose": [{ "chart": "app", "version": "" }] }),
        2 => json!({ "Packed": [{ "values": values(&[]), "build_metadata": null }, null] }),
        _ => json!({ "Packed": [{ "values": values(&["values.yaml", "a.yaml"]), "build_metadata": "7" }, null] }),
    };
    let mut limits = HelmLimits { versions: 1_000, index_artifact_bytes: 1 << 20, values_memory: 8 << 20, ..HelmLimits::default() };
    limits.chart.total_bytes = 1 << 20;
    let order = json!({ "Helm": { "limits": limits, "what": what } });
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
    let Ok(folder) = tempfile::tempdir() else { return };
    let reply = read(order.to_string().as_bytes(), folder.path(), &line, &AtomicBool::new(false));
    assert!(!reply.is_empty(), "an order that cannot be read");
}));
