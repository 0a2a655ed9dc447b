//! `.helmignore`: which files of a folder do not belong to the chart in it. Pure.
//!
//! Other than in a `.gitignore` the first pattern that says something decides, and one with a `!` leaves out all that it does *not*
//! match.

use crate::glob::{Glob, Signs};
use crate::tree::shown;

/// The name of the file.
pub(super) const FILE_NAME: &str = ".helmignore";
/// Bytes and patterns of one.
pub(super) const MOST_BYTES: u64 = 64 << 10;
const MOST_PATTERNS: usize = 1_000;
/// Files that are left out of the templates, whatever the file says.
const ALWAYS: &str = "templates/.?*";

/// The patterns of one folder.
#[derive(Debug)]
pub(super) struct Rules(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    glob: Glob,
    negated: bool,
    /// It is for folders only.
    folders: bool,
    /// It is about the last name of a path only.
    base: bool,
}

impl Rules {
    /// Reads patterns.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.trim_start_matches('\u{feff}').lines();
        let mut patterns = Vec::new();
        for line in lines.chain([ALWAYS]) {
            if let Some(pattern) = Pattern::parse(line.trim())? {
                patterns.push(pattern);
            }
            if patterns.len() > MOST_PATTERNS {
                return Err(format!("{FILE_NAME} has more than {MOST_PATTERNS} patterns"));
            }
        }
        Ok(Self(patterns))
    }

    /// Whether a path stays out.
    pub(super) fn excludes(&self, path: &str, is_folder: bool) -> bool {
        for pattern in &self.0 {
            if pattern.negated {
                if pattern.folders && !is_folder || !pattern.matches(path) {
                    return true;
                }
                continue;
            }
            if pattern.folders && !is_folder {
                continue;
            }
            if pattern.matches(path) {
                return true;
            }
        }
        false
    }
}

impl Pattern {
    fn parse(line: &str) -> Result<Option<Self>, String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        if line.contains("**") {
            return Err("double-star (**) syntax is not supported".to_owned());
        }
        let malformed = || format!("syntax error in pattern `{}` of {FILE_NAME}", shown(line));
        let (negated, rest) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (folders, rest) = rest.strip_suffix('/').map_or((false, rest), |rest| (true, rest));
        let (base, rest) = match rest.strip_prefix('/') {
            Some(rest) => (false, rest),
            None => (!rest.contains('/'), rest),
        };
        let glob = Glob::parse(rest, Signs::Simple).map_err(|_| malformed())?;
        Ok(Some(Self { glob, negated, folders, base }))
    }

    fn matches(&self, path: &str) -> bool {
        let name = if self.base { path.rsplit('/').next().unwrap_or(path) } else { path };
        self.glob.matches(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Rules;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z*?!/#.\\[\\]^\\\\\\-\\n ]{0,40}", path in "[a-z./]{0,20}") {
            if let Ok(rules) = Rules::parse(&text) {
                rules.excludes(&path, false);
                rules.excludes(&path, true);
            }
        }
    }

    #[test]
    fn the_first_pattern_that_says_something_decides() {
        let excluded =
            |text: &str, path: &str| Rules::parse(text).unwrap().excludes(path, path.ends_with("dir"));
        for (text, path, is) in [
            ("helm.txt", "helm.txt", true),
            ("helm.*", "helm.txt", true),
            ("helm.*", "rudder.txt", false),
            ("*.txt", "tiller.txt", true),
            ("*.txt", "cargo/a.txt", true),
            ("cargo/*.txt", "cargo/a.txt", true),
            ("cargo/*.*", "mast/a.txt", false),
            ("/a.txt", "a.txt", true),
            ("/a.txt", "cargo/a.txt", false),
            ("cargodir/", "cargodir", true),
            ("a.txt/", "a.txt", false),
            ("# a\n\n  helm.txt  ", "helm.txt", true),
            ("!helm.txt", "helm.txt", false),
            ("!helm.txt", "tiller.txt", true),
            ("!*.txt\ntiller.txt", "tiller.txt", true),
            ("", "templates/.dotfile", true),
            ("", "templates/a.yaml", false),
        ] {
            assert_eq!(excluded(text, path), is, "{text:?} {path}");
        }
        assert!(Rules::parse("a/**").unwrap_err().contains("double-star"));
        assert!(Rules::parse("[").unwrap_err().contains("syntax error"));
        assert!(Rules::parse(&"a\n".repeat(2_000)).is_err());
    }
}
