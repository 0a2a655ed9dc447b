//! Labels and annotations in layers: what is there in many styles, what kustomizations set beside it, and what patches set over
//! both.

use std::fmt::Write as _;

use super::{Files, Random};

/// In the layers' objects and patches.
const VALUES: [&str; 18] = [
    "web",
    "'web'",
    "\"web\"",
    "5",
    "'5'",
    "\"6\"",
    "yes",
    "'yes'",
    "1.0",
    "2020-01-02",
    "'2020-01-02'",
    "~",
    "null",
    "!!str 5",
    "!!str '5'",
    "!t x",
    "true",
    "''",
];
/// In a kustomization.
const TEXTS: [&str; 8] = ["web", "\"5\"", "'yes'", "\"2020-01-02\"", "\"6\"", "other", "''", "\"1.0\""];
const KEYS: [&str; 3] = ["app", "b", "c"];

fn pairs(random: &mut Random, values: &[&str], most: usize) -> String {
    let mut out = Vec::new();
    for key in &KEYS[..1 + random.below(KEYS.len())] {
        if out.len() < most && random.one_in(2) {
            out.push(format!("{key}: {}", random.pick(values)));
        }
    }
    format!("{{{}}}", out.join(", "))
}

/// A mapping in a line, or not there.
fn line(random: &mut Random, indent: &str, key: &str, values: &[&str]) -> String {
    match random.below(6) {
        0..2 => String::new(),
        2 => {
            format!("{indent}{key}:\n{indent}  app: >-\n{indent}    {}\n", random.pick(&["web", "5", "a b"]))
        }
        3 => format!("{indent}{key}:\n{indent}  app: {}\n", random.pick(values)),
        _ => format!("{indent}{key}: {}\n", pairs(random, values, 3)),
    }
}

/// An object, or a patch of one.
fn object(random: &mut Random, kind: &str, name: &str, values: &[&str]) -> String {
    let version = match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" => "apps/v1",
        "Job" => "batch/v1",
        _ => "v1",
    };
    let mut out = format!("apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}\n");
    out += &line(random, "  ", "labels", values);
    if random.one_in(3) {
        out += &line(random, "  ", "annotations", values);
    }
    match kind {
        "ConfigMap" => {}
        "Service" => {
            let _ = write!(out, "spec:\n  ports: []\n{}", line(random, "  ", "selector", values));
        }
        _ => {
            out += "spec:\n  x: y\n";
            if random.one_in(2) {
                let _ = write!(out, "  selector:\n    y: z\n{}", line(random, "    ", "matchLabels", values));
            }
            if random.one_in(2) {
                let _ = write!(
                    out,
                    "  template:\n    metadata:\n      y: z\n{}",
                    line(random, "      ", "labels", values)
                );
            }
        }
    }
    out
}

/// The tree of a seed.
pub(crate) fn tree(seed: u64) -> Files {
    let random = &mut Random::new(seed);
    let kind =
        random.pick(&["Deployment", "Deployment", "StatefulSet", "DaemonSet", "Job", "Service", "ConfigMap"]);
    let name = "a";
    let layers = 1 + random.below(3);
    let mut files: Files = Vec::new();
    for layer in 0..layers {
        let dir = if layer + 1 == layers { String::new() } else { format!("l{layer}/") };
        let below = match (layer, dir.is_empty()) {
            (0, _) => "o.yaml".to_owned(),
            (_, true) => format!("l{}", layer - 1),
            (_, false) => format!("../l{}", layer - 1),
        };
        let mut text = format!("resources: [{below}]\n");
        if layer == 0 {
            files.push((format!("{dir}o.yaml"), object(random, kind, name, &VALUES)));
        }
        match random.below(5) {
            0 => {}
            1..3 => {
                let _ = writeln!(text, "commonLabels: {}", pairs(random, &TEXTS, 2));
            }
            _ => {
                let include = random.pick(&["", "", ", includeSelectors: true", ", includeTemplates: true"]);
                let _ = writeln!(text, "labels: [{{pairs: {}{include}}}]", pairs(random, &TEXTS, 2));
            }
        }
        if random.one_in(4) {
            let _ = writeln!(text, "commonAnnotations: {}", pairs(random, &TEXTS, 2));
        }
        if random.one_in(2) {
            files.push((format!("{dir}p.yaml"), object(random, kind, name, &VALUES)));
            text += random
                .pick(&["patches: [{path: p.yaml}]\n", "patches: [{path: p.yaml, target: {name: a}}]\n"]);
        }
        if random.one_in(6) {
            const FIELDS: [&str; 5] = [
                "metadata.labels",
                "metadata.labels.app",
                "metadata.labels.b",
                "spec.template.metadata.labels",
                "spec.selector.matchLabels.app",
            ];
            let (from, to) = (random.pick(&FIELDS), random.pick(&FIELDS));
            let create = random.pick(&["", ", options: {create: true}"]);
            let _ = writeln!(
                text,
                "replacements: [{{source: {{name: a, fieldPath: {from}}}, targets: [{{select: {{name: a}}, fieldPaths: [{to}]{create}}}]}}]"
            );
        }
        files.push((format!("{dir}kustomization.yaml"), text));
    }
    files
}
