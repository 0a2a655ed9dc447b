//! `cargo xtask threats`: every test that `docs/threat-model.md` names exists, and every line of its tables names one or says
//! that none holds it.
//!
//! A test is named as `path/from/the/root.rs::name` in backticks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

const DOCUMENT: &str = "docs/threat-model.md";
/// What a line says that no test holds.
const NO_TEST: &str = "no test";

/// Checks the document.
///
/// # Errors
/// Names each line that is wrong.
pub(crate) fn run(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("read {DOCUMENT}"))?;
    let mut sources: BTreeMap<String, Option<String>> = BTreeMap::new();
    let wrong = check(&text, |path| {
        sources.entry(path.to_owned()).or_insert_with(|| fs::read_to_string(root.join(path)).ok()).clone()
    });
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{DOCUMENT}:\n{}", wrong.join("\n"));
}

fn check(text: &str, mut source: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut named = 0;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let number = number + 1;
        let tests: Vec<(&str, &str)> = line.split('`').skip(1).step_by(2).filter_map(test_name).collect();
        if tests.is_empty() && !line.contains(NO_TEST) {
            wrong.push(format!("line {number} names no test, and does not say \"{NO_TEST}\""));
        }
        for (path, name) in tests {
            named += 1;
            match source(path) {
                None => wrong.push(format!("line {number}: {path} not found")),
                Some(code) if !is_test(&code, path, name) => {
                    wrong.push(format!("line {number}: {path} has no test {name}"));
                }
                Some(_) => {}
            }
        }
    }
    if named == 0 {
        wrong.push("it names no test at all".to_owned());
    }
    wrong
}

/// A row of a table with a statement: not its head, nor the line below that.
fn is_row(line: &str) -> bool {
    line.starts_with("| ")
        && !line.starts_with("| may")
        && !line.starts_with("| ---")
        && !line.starts_with("|---")
}

fn test_name(quoted: &str) -> Option<(&str, &str)> {
    let (path, name) = quoted.split_once("::")?;
    (path.ends_with(".rs") || path.ends_with(".ts") || path.ends_with(".go")).then_some((path, name))
}

/// Whether `code` has a test function of this name: in Rust an attribute that makes it a test stands before it, or a program
/// with a `main` of its own has it in its list.
fn is_test(code: &str, path: &str, name: &str) -> bool {
    if !path.ends_with(".rs") {
        return code.contains(name);
    }
    let is_listed = code.contains(&format!("(\"{name}\", {name})"));
    code.match_indices(&format!("fn {name}(")).any(|(at, _)| {
        code[..at]
            .lines()
            .rev()
            .skip_while(|line| matches!(line.trim(), "" | "async"))
            .take_while(|line| line.trim_start().starts_with(['#', '/']) || line.trim().ends_with(")]"))
            .any(|line| line.contains("test"))
            // Those of property tests are in a macro, which gives them the attribute.
            || code[..at].contains("proptest!")
            || is_listed
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    const CODE: &str = "/// Says.\n#[test]\nfn holds() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn holds_too() {}\n\nfn helper() {}\n\nconst TESTS: &[Test] = &[(\"listed\", listed)];\nfn listed() {}\n";

    fn checked(row: &str) -> Vec<String> {
        let text = format!("| may not | held by |\n|---|---|\n{row}\n");
        check(&text, |path| (path == "a/b.rs").then(|| CODE.to_owned()))
    }

    #[test]
    fn takes_tests_that_exist() {
        assert!(checked("| read | `a/b.rs::holds`, `a/b.rs::holds_too`, `a/b.rs::listed` |").is_empty());
    }

    #[test]
    fn refuses_what_is_no_test() {
        assert_eq!(checked("| read | `a/b.rs::helper` |"), ["line 3: a/b.rs has no test helper"]);
        assert_eq!(checked("| read | `a/b.rs::gone` |"), ["line 3: a/b.rs has no test gone"]);
        assert_eq!(checked("| read | `a/c.rs::holds` |"), ["line 3: a/c.rs not found"]);
        assert_eq!(checked("| read | nothing |").len(), 2);
    }
}
