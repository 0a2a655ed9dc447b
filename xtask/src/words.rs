//! `cargo xtask words`: refuses words that were retired, so that code, messages and documents keep to the glossary in
//! ARCHITECTURE.md and to plain English.
//!
//! A rule is a regular expression over one line, and what to write instead. It looks at all text files under version control,
//! but at those that must stay as they are: migrations (their checksums are in databases), expected output of other
//! programs, and what is generated.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::process::Runner;

/// What is not written any more, and what is.
const RETIRED: &[(&str, &str)] = &[
    (r"\b(?:each|the next|another|scheduled|due) looks?(?:[^-\w]|$)", "a pass (of a controller)"),
    (r"\bLooker\b|\blook_at\(", "Controller, Queue, enqueue"),
    (r"\bAim\b", "AttemptInputs"),
    (
        r"\b[Ss]trangers?\b|\bStranger\b",
        "anonymous client (not signed in), or: untrusted (bytes, kubeconfig)",
    ),
    (r"\banew\b", "again, or: to start over"),
    (r"\bfrom 0 on\b", "a non-negative integer"),
    (r"\b(?:go|goes|going|leads?) in a circle\b", "cycle, to form a cycle"),
    (r"\b(?:stands|stood) at a version\b", "existed at a version"),
    (r"\bcame to nothing\b", "failed"),
    (r"\bdesign\.md\b|\bseed specification\b", "what it says: the document is not in this repository"),
];

/// `is no cluster` for `is not a cluster`. English has `there is no …`, `is no longer …` and `is no wider than …`, too.
const IS_NO: &str = r"(\w+)?\W?\b(?:is|are|was|were) no (\w+)";
const AFTER_IS_NO: &[&str] = &[
    "longer", "more", "less", "fewer", "wider", "older", "newer", "slower", "better", "such", "way", "need",
];

/// Extensions of files that people write.
const WRITTEN: &[&str] = &["rs", "md", "proto", "ts", "tsx", "yaml", "sh", "toml"];
/// Parts of paths that stay as they are.
const EXCEPTED: &[&str] =
    &["/cases/", "/generated/", "migrations/", "xtask/src/words.rs", "Cargo.lock", ".d.ts", "/vendor/"];

/// Checks every file under version control.
///
/// # Errors
/// Names each line that has a retired word.
pub(crate) fn run(root: &Path, runner: &Runner) -> Result<()> {
    let rules = Rules::new()?;
    let listed = runner.capture(Command::new("git").current_dir(root).arg("ls-files"))?;
    let mut wrong = Vec::new();
    for path in listed.lines().filter(|path| is_written(path)) {
        // One that is deleted and not yet committed is in the list, and has no words.
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some(instead) = rules.refuse(line) {
                wrong.push(format!("{path}:{}: {}\n    write: {instead}", number + 1, line.trim()));
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{} lines have retired words:\n{}", wrong.len(), wrong.join("\n"));
}

fn is_written(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| WRITTEN.contains(&extension))
        && !EXCEPTED.iter().any(|part| path.contains(part))
}

struct Rules {
    retired: Vec<(Regex, &'static str)>,
    is_no: Regex,
}

impl Rules {
    fn new() -> Result<Self> {
        let rule = |pattern: &str| Regex::new(pattern).with_context(|| format!("the rule {pattern}"));
        let retired = RETIRED.iter().map(|(pattern, instead)| Ok((rule(pattern)?, *instead)));
        Ok(Self { retired: retired.collect::<Result<_>>()?, is_no: rule(IS_NO)? })
    }

    /// What to write instead of what is in this line.
    fn refuse(&self, line: &str) -> Option<&'static str> {
        let retired = self.retired.iter().find(|(rule, _)| rule.is_match(line)).map(|(_, instead)| *instead);
        retired.or_else(|| self.has_is_no(line).then_some("is not a …, or: not found, must be …"))
    }

    fn has_is_no(&self, line: &str) -> bool {
        self.is_no.captures_iter(line).any(|found| {
            let there = found.get(1).is_some_and(|before| before.as_str().eq_ignore_ascii_case("there"));
            let after = found.get(2).map_or("", |after| after.as_str());
            !there && !AFTER_IS_NO.contains(&after)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Rules, is_written};

    #[test]
    fn refuses_retired_words() {
        let rules = Rules::new().unwrap();
        for line in [
            "/// A pass that is no pass.",
            "\"`{0}` is no digest\"",
            "// These are no names of objects.",
            "pub struct Aim {",
            "impl Looker for Sources {",
            "//! What is taken at the next look.",
            "// A stranger's connection.",
            "\"{key}: {text:?} must be from 0 on\"",
        ] {
            assert!(rules.refuse(line).is_some(), "{line}");
        }
    }

    #[test]
    fn takes_plain_words() {
        let rules = Rules::new().unwrap();
        for line in [
            "/// There is no such Cluster.",
            "// Where there are no more.",
            "\"resource version {0} is no longer kept\"",
            "it is no wider than the screen",
            "look up a Secret's clusters",
            "/// Gives other addresses at each look-up.",
        ] {
            assert_eq!(rules.refuse(line), None, "{line}");
        }
    }

    #[test]
    fn reads_what_people_write() {
        for path in ["hub/core/src/lib.rs", "README.md", "web/src/ui/Time.tsx", "proto/link.proto"] {
            assert!(is_written(path), "{path}");
        }
        for path in [
            "migrations/0001_first.sql",
            "crates/kustomize/cases/a/kustomization.yaml",
            "proto/src/generated/a.rs",
        ] {
            assert!(!is_written(path), "{path}");
        }
    }
}
