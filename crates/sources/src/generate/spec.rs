//! What is asked of a generator: sources by their aliases, and artifacts that are composed of them. What can be wrong with it
//! whatever the sources hold is found here.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::glob::{Glob, GlobError, Signs, is_pattern, listed};

/// The most artifacts of one generator, with all that its pattern comes to.
pub const MOST_PRODUCTS: usize = 1_000;
/// The longest name of an object.
const MOST_NAME: usize = 253;
/// The longest value of a label.
const MOST_LABEL: usize = 63;

/// What is done with a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// It replaces what is there.
    #[default]
    Overwrite,
    /// As YAML, it is merged into what is there.
    Merge,
    /// As a tar.gz, it is unpacked.
    Extract,
}

/// Copies files of a source into an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// `@alias/` and a path or a pattern.
    pub from: String,
    /// `@artifact/` and a path.
    pub to: String,
    /// Patterns of what is left out.
    pub exclude: Vec<String>,
    /// What is done with each file.
    pub strategy: Strategy,
}

/// An artifact that is composed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// What is copied, one after the other.
    pub copy: Vec<Copy>,
}

/// What is wrong with what is asked, or with what a pattern comes to: it stays so until somebody changes something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A text is not of the form that it is to have.
    #[error("{field} '{}' must be {want}", crate::tree::shown(text))]
    Form {
        /// Which text.
        field: &'static str,
        /// It.
        text: String,
        /// What it should be.
        want: &'static str,
    },
    /// A path leads out of where it begins.
    #[error("{field} '{}' leads out of its root", crate::tree::shown(text))]
    Outside {
        /// Which text.
        field: &'static str,
        /// It.
        text: String,
    },
    /// There is no source of that alias.
    #[error("{field}: there is no source with the alias '{}'", crate::tree::shown(alias))]
    NoSource {
        /// Which text names it.
        field: &'static str,
        /// The alias.
        alias: String,
    },
    /// A pattern that is none.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// What stands in braces is not what may stand there.
    #[error("'{}': {why}", crate::tree::shown(text))]
    Capture {
        /// The text.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// What a folder is called cannot be a label's value.
    #[error(
        "folder '{}' gives '{}' for {{{name}}}, which cannot be the value of a label",
        crate::tree::shown(folder),
        crate::tree::shown(value)
    )]
    Label {
        /// The folder.
        folder: String,
        /// What stands in its name.
        value: String,
        /// For what.
        name: String,
    },
    /// A name that an object cannot have.
    #[error("'{}' is not a valid name of an ExternalArtifact", crate::tree::shown(name))]
    Name {
        /// The name.
        name: String,
    },
    /// Two artifacts would have one name.
    #[error("{} would both be called '{}'", listed(&[of.0.as_str(), of.1.as_str()]), crate::tree::shown(name))]
    SameName {
        /// The name.
        name: String,
        /// What both are made of.
        of: (String, String),
    },
    /// More than are made.
    #[error("more than {MOST_PRODUCTS} artifacts")]
    TooMany,
}

/// What is copied from where to where.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) alias: String,
    pub(super) from: From,
    /// The folder or the file; empty is the root.
    pub(super) to: String,
    pub(super) to_folder: bool,
    pub(super) exclude: Vec<Exclude>,
    pub(super) strategy: Strategy,
}

#[derive(Debug, Clone)]
pub(super) enum From {
    /// A file or a folder; empty is the root.
    Path(String),
    Pattern {
        text: String,
        glob: Glob,
    },
}

/// What is left out.
#[derive(Debug, Clone)]
pub(super) struct Exclude {
    pub(super) glob: Glob,
    /// It has one name: it is asked about the last name of a path, too.
    pub(super) bare: bool,
}

impl Copy {
    /// As it is carried out.
    ///
    /// # Errors
    /// Where it is not of the form that it is to have.
    pub(super) fn read(&self) -> Result<Operation, SpecError> {
        let (alias, from) = at("from", &self.from)?;
        let from_path = clean("from", &self.from, from)?;
        let (artifact, to) = at("to", &self.to)?;
        if artifact != "artifact" {
            let (field, text, want) = ("to", self.to.clone(), "'@artifact/' and a path");
            return Err(SpecError::Form { field, text, want });
        }
        let from = if is_pattern(from) {
            let signs = if self.strategy == Strategy::Extract { Signs::Double } else { Signs::Simple };
            From::Pattern { text: from_path, glob: Glob::parse(from, signs)? }
        } else {
            From::Path(from_path)
        };
        let exclude = self.exclude.iter().map(|pattern| {
            let glob = Glob::parse(pattern, Signs::Double)?;
            Ok(Exclude { glob, bare: !pattern.contains('/') })
        });
        Ok(Operation {
            alias: alias.to_owned(),
            from,
            to_folder: to.ends_with('/'),
            to: clean("to", &self.to, to)?,
            exclude: exclude.collect::<Result<_, SpecError>>()?,
            strategy: self.strategy,
        })
    }
}

/// The alias and the rest of `@alias/rest`.
fn at<'a>(field: &'static str, text: &'a str) -> Result<(&'a str, &'a str), SpecError> {
    let parts = text.strip_prefix('@').and_then(|rest| rest.split_once('/'));
    let want = "'@', an alias, '/' and a path";
    parts.ok_or_else(|| SpecError::Form { field, text: text.to_owned(), want })
}

/// A path without `.` and empty names; refused where it would climb.
fn clean(field: &'static str, whole: &str, path: &str) -> Result<String, SpecError> {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    let climbs = names.iter().any(|name| *name == ".." || name.contains(['\0', '\\']) && !is_pattern(path));
    if path.starts_with('/') || climbs {
        return Err(SpecError::Outside { field, text: whole.to_owned() });
    }
    Ok(names.join("/"))
}

/// Whether a text can be an object's name: DNS labels with dots between.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    text.len() <= MOST_NAME && text.split('.').all(is_label)
}

fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= MOST_LABEL
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// What is wrong with artifacts whatever the sources hold: forms, aliases, patterns, names that stand twice.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(aliases: &[&str], pattern: Option<&str>, outputs: &[Output]) -> Result<(), SpecError> {
    let named = |field, alias: &str| {
        let found = aliases.contains(&alias);
        if found { Ok(()) } else { Err(SpecError::NoSource { field, alias: alias.to_owned() }) }
    };
    let captures = match pattern {
        None => Vec::new(),
        Some(pattern) => {
            let (alias, folders) = at("pathPattern", pattern)?;
            named("pathPattern", alias)?;
            captures_of(folders)?
        }
    };
    let sample: BTreeMap<String, String> = captures.into_iter().map(|name| (name, "a".to_owned())).collect();
    let mut names: BTreeMap<&str, ()> = BTreeMap::new();
    for output in outputs {
        if names.insert(&output.name, ()).is_some() {
            let of = (output.name.clone(), output.name.clone());
            return Err(SpecError::SameName { name: output.name.clone(), of });
        }
        let made = match pattern {
            None => output.clone(),
            Some(_) => rendered(output, &sample, &sample)?,
        };
        if !is_name(&made.name) {
            return Err(SpecError::Name { name: output.name.clone() });
        }
        for copy in &made.copy {
            named("from", &copy.read()?.alias)?;
        }
    }
    Ok(())
}

/// An artifact with what its folder's name gives for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) output: Output,
    /// Which of those that are asked for.
    pub(super) index: usize,
    pub(super) labels: BTreeMap<String, String>,
}

/// The alias of the source in which a pattern looks for folders.
pub(super) fn alias_of(pattern: &str) -> Result<&str, SpecError> {
    Ok(at("pathPattern", pattern)?.0)
}

/// The artifacts for each folder of the source that matches the pattern.
pub(super) fn expand<'a>(
    pattern: &str,
    outputs: &[Output],
    folders: impl Iterator<Item = &'a str>,
) -> Result<Vec<Wanted>, SpecError> {
    let (_, text) = at("pathPattern", pattern)?;
    let names = captures_of(text)?;
    let matcher = matcher(text)?;
    let (mut all, mut taken): (Vec<Wanted>, BTreeMap<String, String>) = (Vec::new(), BTreeMap::new());
    for folder in folders {
        let Some(found) = matcher.captures(folder) else { continue };
        let raw: BTreeMap<String, String> = names
            .iter()
            .filter_map(|name| Some((name.clone(), found.name(name)?.as_str().to_owned())))
            .collect();
        let lower: BTreeMap<String, String> =
            raw.iter().map(|(name, value)| (name.clone(), value.to_lowercase())).collect();
        if let Some((name, value)) = lower.iter().find(|(_, value)| !is_label_value(value)) {
            let (folder, value, name) = (folder.to_owned(), value.clone(), name.clone());
            return Err(SpecError::Label { folder, value, name });
        }
        for (index, output) in outputs.iter().enumerate() {
            let output = rendered(output, &lower, &raw)?;
            if !is_name(&output.name) {
                return Err(SpecError::Name { name: output.name });
            }
            if let Some(other) = taken.insert(output.name.clone(), folder.to_owned()) {
                return Err(SpecError::SameName { name: output.name, of: (other, folder.to_owned()) });
            }
            all.push(Wanted { output, index, labels: lower.clone() });
            if all.len() > MOST_PRODUCTS {
                return Err(SpecError::TooMany);
            }
        }
    }
    Ok(all)
}

/// A regular expression for the folders that match. What stands in braces is one name, or a part of one.
fn matcher(text: &str) -> Result<Regex, SpecError> {
    let mut expression = String::from("^");
    pieces(text, |piece| match piece {
        Piece::Plain(plain) => expression.push_str(&regex::escape(plain)),
        Piece::Capture(name) => {
            expression.push_str("(?P<");
            expression.push_str(name);
            expression.push_str(">[^/]+)");
        }
    })?;
    expression.push('$');
    let capture = |why: regex::Error| SpecError::Capture { text: text.to_owned(), why: why.to_string() };
    Regex::new(&expression).map_err(capture)
}

/// The names in braces, each once.
fn captures_of(text: &str) -> Result<Vec<String>, SpecError> {
    let (mut names, mut twice): (Vec<String>, Option<String>) = (Vec::new(), None);
    pieces(text, |piece| {
        if let Piece::Capture(name) = piece {
            if names.iter().any(|other| other == name) {
                twice = Some(name.to_owned());
            }
            names.push(name.to_owned());
        }
    })?;
    match twice {
        None => Ok(names),
        Some(name) => {
            Err(SpecError::Capture { text: text.to_owned(), why: format!("{{{name}}} appears twice") })
        }
    }
}

/// An artifact with values for what stands in braces: in its name in lower case, in paths as they are.
fn rendered(
    output: &Output,
    lower: &BTreeMap<String, String>,
    raw: &BTreeMap<String, String>,
) -> Result<Output, SpecError> {
    let copy = output
        .copy
        .iter()
        .map(|copy| Ok(Copy { from: filled(&copy.from, raw)?, to: filled(&copy.to, raw)?, ..copy.clone() }));
    Ok(Output { name: filled(&output.name, lower)?, copy: copy.collect::<Result<_, SpecError>>()? })
}

fn filled(text: &str, values: &BTreeMap<String, String>) -> Result<String, SpecError> {
    let (mut out, mut unknown) = (String::new(), None);
    pieces(text, |piece| match piece {
        Piece::Plain(plain) => out.push_str(plain),
        Piece::Capture(name) => match values.get(name) {
            Some(value) => out.push_str(value),
            None => unknown = Some(name.to_owned()),
        },
    })?;
    match unknown {
        None => Ok(out),
        Some(name) => {
            let why = format!("{{{name}}} is not in spec.pathPattern");
            Err(SpecError::Capture { text: text.to_owned(), why })
        }
    }
}

enum Piece<'a> {
    Plain(&'a str),
    Capture(&'a str),
}

fn pieces<'a>(text: &'a str, mut take: impl FnMut(Piece<'a>)) -> Result<(), SpecError> {
    let wrong = |why: &str| SpecError::Capture { text: text.to_owned(), why: why.to_owned() };
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (plain, found) = rest.split_at(at);
        take(Piece::Plain(plain));
        let inner = found.strip_prefix('{').ok_or_else(|| wrong("it has a `}` without a `{` before it"))?;
        let (name, after) =
            inner.split_once('}').ok_or_else(|| wrong("it has a `{` without a `}` after it"))?;
        let begins = name.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_');
        if !begins || !name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_') {
            return Err(wrong(
                "the name in braces must consist of letters, digits and `_`, and must not begin with a digit",
            ));
        }
        take(Piece::Capture(name));
        rest = after;
    }
    take(Piece::Plain(rest));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(name: &str, from: &str, to: &str) -> Output {
        let (from, to) = (from.to_owned(), to.to_owned());
        let copy = vec![Copy { from, to, exclude: Vec::new(), strategy: Strategy::Overwrite }];
        Output { name: name.to_owned(), copy }
    }

    #[test]
    fn what_is_wrong_is_told_before_anything_is_read() {
        let fine = output("web", "@repo/apps/web/**", "@artifact/");
        assert_eq!(check(&["repo"], None, std::slice::from_ref(&fine)), Ok(()));
        for (outputs, said) in [
            (vec![output("web", "apps/web", "@artifact/")], "from 'apps/web'"),
            (vec![output("web", "@repo", "@artifact/")], "from '@repo'"),
            (vec![output("web", "@repo/../secrets", "@artifact/")], "leads out of its root"),
            (vec![output("web", "@repo//etc/passwd", "@artifact/")], "leads out of its root"),
            (vec![output("web", "@repo/a/../../b*", "@artifact/")], "leads out of its root"),
            (vec![output("web", "@repo/apps", "@artifact/../../other")], "leads out of its root"),
            (vec![output("web", "@repo/apps", "@artifact//etc")], "leads out of its root"),
            (vec![output("web", "@repo/apps", "@elsewhere/")], "must be '@artifact/'"),
            (vec![output("web", "@other/apps", "@artifact/")], "no source with the alias 'other'"),
            (vec![output("web", "@repo/[a", "@artifact/")], "unclosed `[`"),
            (vec![output("Web", "@repo/a", "@artifact/")], "not a valid name"),
            (vec![fine.clone(), fine.clone()], "would both be called 'web'"),
        ] {
            let why = check(&["repo"], None, &outputs).unwrap_err().to_string();
            assert!(why.contains(said), "{said}: {why}");
        }
    }

    #[test]
    fn a_pattern_makes_each_artifact_for_each_folder() {
        let outputs = [
            output("{env}-{app}", "@repo/apps/{app}/{env}/**", "@artifact/"),
            output("all-{app}-{env}", "@repo/x", "@artifact/{app}/"),
        ];
        let folders =
            ["apps", "apps/Web", "apps/Web/dev", "apps/Web/prod", "apps/db/dev", "apps/db/dev/more"];
        let made = expand("@repo/apps/{app}/{env}", &outputs, folders.into_iter()).unwrap();
        let names: Vec<&str> = made.iter().map(|one| one.output.name.as_str()).collect();
        assert_eq!(names, ["dev-web", "all-web-dev", "prod-web", "all-web-prod", "dev-db", "all-db-dev"]);
        // In names it is in lower case, in paths as it is.
        assert_eq!(made[0].output.copy[0].from, "@repo/apps/Web/dev/**");
        assert_eq!(made[0].labels["app"], "web");
        assert_eq!(check(&["repo"], Some("@repo/apps/{app}/{env}"), &outputs), Ok(()));
        // What looks like a sign of a pattern is none.
        assert!(
            expand("@repo/a*/{app}", &[output("{app}", "@repo/x", "@artifact/")], folders.into_iter())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn what_a_pattern_comes_to_has_names_that_objects_can_have() {
        let one = |pattern: &str, output: Output, folder: &str| {
            let folders = [folder, "apps/web"];
            expand(pattern, &[output], folders.into_iter()).unwrap_err().to_string()
        };
        let named = || output("{app}", "@repo/apps/{app}", "@artifact/");
        assert!(one("@repo/apps/{app}", named(), "apps/WEB").contains("would both be called 'web'"));
        assert!(one("@repo/apps/{app}", named(), "apps/_x").contains("cannot be the value of a label"));
        assert!(one("@repo/apps/{app}", named(), "apps/a_b").contains("not a valid name"));
        assert!(
            one("@repo/apps/{app}", output("same", "@repo/x", "@artifact/"), "apps/a").contains("'same'")
        );
        let many: Vec<String> = (0..=MOST_PRODUCTS).map(|number| format!("apps/a{number}")).collect();
        let refused = expand("@repo/apps/{app}", &[named()], many.iter().map(String::as_str));
        assert_eq!(refused, Err(SpecError::TooMany));
        for (pattern, said) in [
            ("@repo/apps/{app", "without a `}`"),
            ("@repo/apps/app}", "without a `{`"),
            ("@repo/apps/{}", "in braces"),
            ("@repo/apps/{1a}", "in braces"),
            ("@repo/{a}/{a}", "appears twice"),
            ("@repo/{b}", "{app} is not in spec.pathPattern"),
            ("@other/{app}", "no source with the alias 'other'"),
            ("apps/{app}", "pathPattern 'apps/{app}'"),
        ] {
            let why = check(&["repo"], Some(pattern), &[named()]).unwrap_err().to_string();
            assert!(why.contains(said), "{said}: {why}");
        }
    }
}
