//! Which files of a source stay out of its artifact: section 3 of `../shared/spec/source-v1.md`.
//!
//! Git's own files are left out in any case. What Flux leaves out besides (media, archives, settings of other tools) is, unless the user
//! has a pattern anywhere. Then come the `.sourceignore` files from the root down, and then `spec.ignore`; the last pattern that matches decides.
//! A pattern that matches a folder matches what lies in it, and (other than in Git) a later `!pattern` can take a file back in although
//! its folder is left out.

use std::sync::Arc;

use crate::glob::NameGlob;
use crate::tree::{Measure, TreeError, too_large};

/// The name of the file that holds a source's own patterns.
pub const FILE_NAME: &str = ".sourceignore";

/// Bytes of one list of patterns.
const MOST_BYTES: usize = 256 << 10;
/// Patterns that are in force at one place.
const MOST_PATTERNS: usize = 2_000;
/// Bytes of one pattern.
const MOST_PATTERN_BYTES: usize = 512;

/// Git's own files.
const GIT: &str = "\
.git/
.gitignore
.gitmodules
.gitattributes
";

/// The place of these among the rules.
const BY_DEFAULT: usize = 1;
/// What Flux leaves out where nobody says otherwise: media and archives, other tools' settings.
const DEFAULTS: &str = "\
*.jpg
*.jpeg
*.gif
*.png
*.wmv
*.flv
*.tar.gz
*.zip
.github/
.circleci/
.travis.yml
.gitlab-ci.yml
appveyor.yml
.drone.yml
cloudbuild.yaml
codeship-services.yml
codeship-steps.yml
**/.goreleaser.yml
**/.sops.yaml
**/.flux.yaml
";

/// Patterns of one file, and the folder they are relative to.
#[derive(Debug)]
struct Rules {
    /// Empty, or a path that ends with `/`.
    base: String,
    patterns: Vec<Pattern>,
}

/// The patterns in force in one folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ignore {
    /// Those that came first are asked last.
    rules: Vec<Arc<Rules>>,
    /// `spec.ignore`: asked before all others.
    last: Option<Arc<Rules>>,
    /// Whether the defaults are among the rules.
    defaults: bool,
    /// What decides about this folder, and so about what lies in it, unless something stronger does. With it, no path
    /// needs to be looked at again for each folder that it lies in.
    inherited: Option<Verdict>,
}

/// The strongest pattern that matches a path or a folder that it lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// Which rules, which pattern of them; the greater overrules the less.
    strength: (usize, usize),
    excluded: bool,
}

impl Ignore {
    /// Git's own files, the defaults, and `spec.ignore` if there is one: where that has a pattern, the defaults do not hold.
    ///
    /// # Errors
    /// [`TreeError::TooLarge`] if there are too many patterns.
    pub fn new(spec: Option<&str>) -> Result<Self, TreeError> {
        let mut all = Self::without_defaults(spec)?;
        for (at, patterns) in [GIT, DEFAULTS].into_iter().enumerate() {
            let rules = Rules::parse(String::new(), patterns.as_bytes(), "default exclusions")?;
            all.rules.insert(at, Arc::new(rules));
        }
        all.defaults = true;
        let has_own = all.last.as_ref().is_some_and(|rules| !rules.patterns.is_empty());
        Ok(if has_own { all.without_those_by_default() } else { all })
    }

    /// Those of `spec.ignore` alone: of a bucket.
    ///
    /// # Errors
    /// [`TreeError::TooLarge`] if there are too many patterns.
    pub fn without_defaults(spec: Option<&str>) -> Result<Self, TreeError> {
        let last =
            spec.map(|text| Rules::parse(String::new(), text.as_bytes(), "spec.ignore")).transpose()?;
        Ok(Self { rules: Vec::new(), last: last.map(Arc::new), defaults: false, inherited: None })
    }

    /// Whether the defaults hold, as far as is known: a pattern anywhere in the source ends that for all of it.
    #[must_use]
    pub fn has_defaults(&self) -> bool {
        self.defaults
    }

    /// The same for a source that has patterns of its own somewhere.
    #[must_use]
    pub fn without_those_by_default(&self) -> Self {
        let mut all = self.clone();
        // Their place stays: the strength of what others decided goes by it.
        if let Some(rules) = all.rules.get_mut(BY_DEFAULT).filter(|_| self.defaults) {
            *rules = Arc::new(Rules { base: String::new(), patterns: Vec::new() });
            all.inherited = all.inherited.filter(|verdict| verdict.strength.0 != BY_DEFAULT);
        }
        all.defaults = false;
        all
    }

    /// The patterns in force in `folder` (the one that these are for: empty for the root, without a `/` at its end) when
    /// it holds a `.sourceignore` with `content`. Where that has a pattern, the defaults do not hold.
    ///
    /// # Errors
    /// [`TreeError::TooLarge`] if there are too many patterns.
    pub fn with_file(&self, folder: &str, content: &[u8]) -> Result<Self, TreeError> {
        let base = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let rules = Rules::parse(base.clone(), content, &format!("{base}{FILE_NAME}"))?;
        let mut all = if rules.patterns.is_empty() { self.clone() } else { self.without_those_by_default() };
        all.rules.push(Arc::new(rules));
        if all.rules.iter().map(|rules| rules.patterns.len()).sum::<usize>() > MOST_PATTERNS {
            return Err(too_large(Measure::Patterns, MOST_PATTERNS as u64, Some(folder)));
        }
        Ok(all)
    }

    /// What decides about `path`, which lies directly in the folder that these patterns are for.
    #[must_use]
    pub fn look(&self, path: &str, is_folder: bool) -> Option<Verdict> {
        let ranked = self.rules.iter().enumerate().rev();
        let mut all = self.last.iter().map(|rules| (usize::MAX, rules)).chain(ranked);
        let weakest = self.inherited.map_or((0, 0), |verdict| verdict.strength);
        let own = all.find_map(|(rank, rules)| {
            let (index, excluded) = if rank < weakest.0 { None } else { rules.decide(path, is_folder) }?;
            Some(Verdict { strength: (rank, index), excluded })
        });
        own.max(self.inherited)
    }

    /// Whether `path`, which lies directly in the folder that these patterns are for, stays out.
    #[must_use]
    pub fn excludes(&self, path: &str, is_folder: bool) -> bool {
        self.look(path, is_folder).is_some_and(|verdict| verdict.excluded)
    }

    /// The patterns for the folder that lies in this one and that `verdict` is about.
    #[must_use]
    pub fn inside(&self, verdict: Option<Verdict>) -> Self {
        Self { inherited: verdict, ..self.clone() }
    }

    /// Whether a folder that this is the verdict about need not be looked into: it is left out by `spec.ignore`, which overrules what files in
    /// it say, and takes nothing back.
    #[must_use]
    pub fn is_out_for_good(&self, verdict: Option<Verdict>) -> bool {
        let by_spec = verdict.is_some_and(|verdict| verdict.excluded && verdict.strength.0 == usize::MAX);
        by_spec && self.last.iter().all(|rules| !rules.patterns.iter().any(|pattern| pattern.takes_back))
    }

    /// Whether a folder that stays out need not be looked into: no pattern that is known could take anything in it back.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !self
            .rules
            .iter()
            .chain(&self.last)
            .any(|rules| rules.patterns.iter().any(|pattern| pattern.takes_back))
    }
}

/// Decides about paths that come without their folders, by patterns of the root alone.
#[derive(Debug)]
pub(crate) struct Walk {
    root: Ignore,
    /// The folders on the way to the last path: what lies in one folder often comes in one piece.
    folders: Vec<(String, Ignore)>,
}

impl Walk {
    pub(crate) fn new(root: Ignore) -> Self {
        Self { root, folders: Vec::new() }
    }

    /// Whether the file at `path` stays out. It costs memory for each folder that it lies in.
    pub(crate) fn excludes(&mut self, path: &str) -> bool {
        let is_beneath = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        while self.folders.last().is_some_and(|(folder, _)| !is_beneath(folder)) {
            self.folders.pop();
        }
        let known = self.folders.last().map_or(0, |(folder, _)| folder.len() + 1);
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at >= known) {
            let folder = &path[..at];
            let above = self.folders.last().map_or(&self.root, |(_, ignore)| ignore);
            let inside = above.inside(above.look(folder, true));
            self.folders.push((folder.to_owned(), inside));
        }
        self.folders.last().map_or(&self.root, |(_, ignore)| ignore).excludes(path, false)
    }
}

impl Verdict {
    /// Whether the path stays out.
    #[must_use]
    pub fn excluded(self) -> bool {
        self.excluded
    }
}

impl Rules {
    fn parse(base: String, content: &[u8], name: &str) -> Result<Self, TreeError> {
        if content.len() > MOST_BYTES {
            return Err(too_large(Measure::FileBytes, MOST_BYTES as u64, Some(name)));
        }
        let mut patterns = Vec::new();
        for line in content.split(|byte| *byte == b'\n') {
            let Some(pattern) = Pattern::parse(line) else { continue };
            if line.len() > MOST_PATTERN_BYTES {
                return Err(too_large(Measure::Patterns, MOST_PATTERN_BYTES as u64, Some(name)));
            }
            patterns.push(pattern);
            if patterns.len() > MOST_PATTERNS {
                return Err(too_large(Measure::Patterns, MOST_PATTERNS as u64, Some(name)));
            }
        }
        Ok(Self { base, patterns })
    }

    /// The last pattern that matches `path`, and whether it leaves it out.
    fn decide(&self, path: &str, is_folder: bool) -> Option<(usize, bool)> {
        let names: Vec<&str> = path.strip_prefix(&self.base)?.split('/').collect();
        let mut all = self.patterns.iter().enumerate().rev();
        let (index, pattern) = all.find(|(_, pattern)| pattern.matches(&names, is_folder))?;
        Some((index, !pattern.takes_back))
    }
}

/// One pattern.
#[derive(Debug)]
struct Pattern {
    names: Vec<Name>,
    /// `!`: what it matches stays in.
    takes_back: bool,
    /// It ends with a slash.
    is_for_folders: bool,
    /// It has another slash, and so is for paths from where it stands on.
    is_anchored: bool,
}

/// What stands between slashes.
#[derive(Debug)]
enum Name {
    Nothing,
    /// Any number of names.
    Any,
    Like(NameGlob),
    /// Two stars in a longer name, or something malformed: matches nothing.
    Never,
}

impl Pattern {
    /// Reads a line; none where it has no pattern.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A pattern that is not UTF-8 matches no path that is.
        let line = String::from_utf8_lossy(line);
        if line.starts_with('#') || line.trim().is_empty() {
            return None;
        }
        let (text, takes_back) = line.strip_prefix('!').map_or((&*line, false), |rest| (rest, true));
        let text = if text.ends_with("\\ ") { text } else { text.trim_end_matches(' ') };
        let (text, is_for_folders) = text.strip_suffix('/').map_or((text, false), |rest| (rest, true));
        let is_anchored = text.contains('/');
        let like = |name: &str| NameGlob::parse(name).map_or(Name::Never, Name::Like);
        let anchored = |name: &str| match name {
            "" => Name::Nothing,
            "**" => Name::Any,
            name if name.contains("**") => Name::Never,
            name => like(name),
        };
        let names = if is_anchored { text.split('/').map(anchored).collect() } else { vec![like(text)] };
        Some(Self { names, takes_back, is_for_folders, is_anchored })
    }

    /// Whether it matches a path, or a folder that the path lies in.
    fn matches(&self, path: &[&str], is_folder: bool) -> bool {
        let left = if self.is_anchored { self.left_of(path) } else { self.left_of_a_name(path) };
        left.is_some_and(|left| left > 0 || is_folder || !self.is_for_folders)
    }

    /// How many names of a path lie beneath the first one that is like the pattern.
    fn left_of_a_name(&self, path: &[&str]) -> Option<usize> {
        let [Name::Like(glob)] = self.names.as_slice() else { return None };
        let at = path.iter().position(|name| glob.matches(name))?;
        Some(path.len() - at - 1)
    }

    /// How many names of a path lie beneath what the pattern matches of it. After `**` the first name that is like the next one is
    /// taken, and no later one is tried: as in Flux.
    fn left_of(&self, path: &[&str]) -> Option<usize> {
        let (mut rest, mut is_matched, mut crosses) = (path, false, false);
        for (at, name) in self.names.iter().enumerate() {
            match name {
                Name::Nothing => crosses = false,
                Name::Any if at + 1 == self.names.len() => break,
                Name::Any => crosses = true,
                Name::Never => return None,
                Name::Like(_) if rest.is_empty() => return None,
                Name::Like(glob) if crosses => {
                    let found = rest.iter().position(|name| glob.matches(name));
                    is_matched = found.is_some();
                    rest = found.map_or(&[], |found| &rest[found + 1..]);
                    crosses = false;
                }
                Name::Like(glob) => {
                    let (first, beneath) = rest.split_first()?;
                    if !glob.matches(first) {
                        return None;
                    }
                    (rest, is_matched) = (beneath, true);
                }
            }
        }
        is_matched.then_some(rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Ignore, Walk};

    /// The decision about `path`, folder by folder.
    fn excludes(ignore: &Ignore, path: &str, is_folder: bool) -> bool {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        let inside = folders.fold(ignore.clone(), |ignore, folder| ignore.inside(ignore.look(folder, true)));
        inside.excludes(path, is_folder)
    }

    fn kept(ignore: &Ignore, paths: &[&str]) -> Vec<String> {
        paths.iter().filter(|path| !excludes(ignore, path, false)).map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn defaults() {
        let ignore = Ignore::new(None).unwrap();
        let paths = [
            ".git/config",
            ".github/workflows/ci.yaml",
            ".gitignore",
            "docs/logo.png",
            "a/.sops.yaml",
            "releases/x.tar.gz",
            "app/kustomization.yaml",
            "app/png",
            "git/config",
        ];
        assert_eq!(kept(&ignore, &paths), ["app/kustomization.yaml", "app/png", "git/config"]);
        assert!(ignore.is_final());
    }

    #[test]
    fn everything_but_one_folder() {
        let ignore = Ignore::new(Some("# all\n/*\n!/deploy\n/deploy/**/*.md\n")).unwrap();
        let paths = [
            "README.md",
            "src/main.rs",
            "deploy/a.yaml",
            "deploy/x/b.yaml",
            "deploy/x/README.md",
            "x/deploy/a",
        ];
        assert_eq!(kept(&ignore, &paths), ["deploy/a.yaml", "deploy/x/b.yaml"]);
        assert!(excludes(&ignore, "src", true) && !excludes(&ignore, "deploy", true));
        assert!(!ignore.is_final());
    }

    #[test]
    fn sourceignore_overrules_defaults_and_spec_overrules_both() {
        // The defaults hold for nothing of a source that has a pattern anywhere.
        let ignore = Ignore::new(None).unwrap().with_file("", b"!*.png\n*.txt\n").unwrap();
        assert_eq!(kept(&ignore, &["a.png", "b.txt", "c.jpg", ".gitignore"]), ["a.png", "c.jpg"]);
        let ignore = Ignore::new(Some("!b.txt")).unwrap().with_file("", b"!*.png\n*.txt\n").unwrap();
        assert_eq!(kept(&ignore, &["a.png", "b.txt", "x/b.txt", "y.txt"]), ["a.png", "b.txt", "x/b.txt"]);
    }

    #[test]
    fn a_file_can_be_taken_back_from_a_folder_that_is_left_out() {
        let ignore = Ignore::new(Some("dir/\n!dir/keep.txt\n")).unwrap();
        assert_eq!(kept(&ignore, &["dir/a.txt", "dir/keep.txt", "x/dir/keep.txt"]), ["dir/keep.txt"]);
        // What is always left out is weaker than the `!` for the folder.
        let ignore = Ignore::new(Some("!/settings")).unwrap();
        assert_eq!(
            kept(&ignore, &[".gitignore", "settings/.gitignore", "settings/x/.gitignore"]),
            ["settings/.gitignore", "settings/x/.gitignore"]
        );
    }

    #[test]
    fn sourceignore_of_a_folder_holds_there_only() {
        let ignore = Ignore::new(None).unwrap().with_file("apps", b"/tmp\n*.bak\n").unwrap();
        let paths = ["tmp/a", "apps/tmp/a", "apps/x/tmp/a", "a.bak", "apps/x/a.bak"];
        assert_eq!(kept(&ignore, &paths), ["tmp/a", "apps/x/tmp/a", "a.bak"]);
    }

    #[test]
    fn a_bucket_has_no_defaults_and_paths_come_in_any_order() {
        let ignore = Ignore::without_defaults(Some("/b/\n!/b/keep/\n*.md")).unwrap();
        let mut walk = Walk::new(ignore.with_file("", b"/a/\n*.png\n").unwrap());
        let kept: Vec<&str> = [
            ".git/config",
            "x.jpg",
            "b/keep/x",
            "a/x",
            "b/x",
            "x.png",
            "b/keep/y/z",
            "b/keep/y.md",
            "c/a/x",
            "ab/x",
            "b/keeps",
        ]
        .into_iter()
        .filter(|path| !walk.excludes(path))
        .collect();
        assert_eq!(kept, [".git/config", "x.jpg", "b/keep/x", "b/keep/y/z", "c/a/x", "ab/x"]);
    }

    #[test]
    fn too_many_patterns_are_refused() {
        assert!(Ignore::new(Some(&"x\n".repeat(3_000))).is_err());
        assert!(Ignore::new(Some(&"x".repeat(1_000))).is_err());
        assert!(Ignore::new(Some(&" ".repeat(1 << 20))).is_err());
    }

    #[test]
    fn a_hostile_pattern_does_not_hang() {
        let ignore = Ignore::new(Some(&format!("{}b", "*a".repeat(200)))).unwrap();
        let started = std::time::Instant::now();
        assert!(!excludes(&ignore, &"a".repeat(1_000), false));
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
    }
}
