//! The rules by which `sops` chooses keys for new files.

use std::path::Path;

use roadstead_go_regex::{Limits as PatternLimits, compile};
use roadstead_kustomize::yaml::{Dialect, read_documents};
use serde_json::Value as Json;

use super::{Report, files};

const NAME: &str = ".sops.yaml";
/// Bytes of such a file.
const BYTES: usize = 1 << 20;
/// Memory of one compiled expression.
const MEMORY: usize = 1 << 20;

/// Reports rules that match none of the files beneath theirs.
pub(super) fn check(dir: &Path, listed: &[String], report: &mut Report) {
    for path in listed.iter().filter(|path| *path == NAME || path.ends_with("/.sops.yaml")) {
        let base = path.strip_suffix(NAME).unwrap_or_default();
        let below: Vec<&str> = listed
            .iter()
            .filter(|other| *other != path)
            .filter_map(|other| other.strip_prefix(base))
            .collect();
        let Some(bytes) = files::read(dir, path, BYTES) else { continue };
        let documents = read_documents(&bytes, Dialect::Object, &roadstead_kustomize::Limits::default());
        let Ok(documents) = documents else {
            report.problem(path, "it is not valid YAML");
            continue;
        };
        let config =
            documents.into_iter().next().map(|document| document.value.to_json()).unwrap_or_default();
        for (index, rule) in config["creation_rules"].as_array().into_iter().flatten().enumerate() {
            if let Some(problem) = problem(rule, &below) {
                report.problem(path, &format!("creation rule {}: {problem}", index + 1));
            }
        }
    }
}

fn problem(rule: &Json, files: &[&str]) -> Option<String> {
    // Without an expression, a rule is for all files.
    let pattern = rule["path_regex"].as_str().filter(|pattern| !pattern.is_empty())?;
    match compile(pattern, PatternLimits { program: MEMORY, tables: MEMORY }) {
        Err(error) => Some(format!("path_regex is not valid: {error}")),
        Ok(regex) if files.iter().any(|file| regex.is_match(file)) => None,
        Ok(_) => Some(format!("path_regex '{}' matches no file", pattern.escape_debug())),
    }
}
