//! Messages as they are written in earnest, and which of them have one cause.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};

use roadstead_notify::{Cause, Event};
use serde_json::json;

fn cause(line: &str) -> Cause {
    let [name, cluster, message] = line.splitn(3, '|').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let event: Event = serde_json::from_value(json!({
        "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name,
            "namespace": "apps", "uid": "1" },
        "severity": "error", "timestamp": "2026-08-07T10:00:00Z", "message": message, "reason": "ReconciliationFailed",
        "reportingController": "c",
    }))
    .unwrap();
    Cause::of(&event, Some(cluster).filter(|cluster| !cluster.is_empty()))
}

#[test]
fn those_of_one_cause_are_together_and_no_others() {
    let text = include_str!("causes.txt");
    let paragraphs: Vec<Vec<&str>> = text
        .split("\n\n")
        .map(|part| part.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect())
        .filter(|lines: &Vec<&str>| !lines.is_empty())
        .collect();
    let mut of = BTreeMap::<String, BTreeSet<usize>>::new();
    let mut texts = BTreeMap::<usize, BTreeSet<String>>::new();
    for (index, lines) in paragraphs.iter().enumerate() {
        for line in lines {
            let cause = cause(line);
            of.entry(cause.digest.hex()).or_default().insert(index);
            texts.entry(index).or_default().insert(cause.text);
        }
    }
    let merged: Vec<_> = of.values().filter(|paragraphs| paragraphs.len() > 1).collect();
    let parted: Vec<_> = texts.values().filter(|texts| texts.len() > 1).collect();
    assert!(
        merged.is_empty() && parted.is_empty(),
        "wrongly together: {merged:?}\nwrongly apart: {parted:#?}"
    );
    let messages: usize = paragraphs.iter().map(Vec::len).sum();
    assert!(paragraphs.len() > 80 && messages >= 200, "{messages} in {}", paragraphs.len());
}
