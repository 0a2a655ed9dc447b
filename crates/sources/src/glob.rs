//! Patterns of paths. What one path costs to match is bounded by the lengths of both, whatever the pattern is.

use std::fmt::Write as _;

/// The most that the alternatives of one pattern come to (`{a,b}{c,d}` are four).
const MOST_ALTERNATIVES: usize = 64;

/// Why a text is not a pattern that is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// A class or a group is not closed, a `}` closes none, or a `\` stands at the end.
    #[error("pattern '{0}' has an unclosed `[` or `{{`, an unmatched `}}`, or a `\\` at its end")]
    Unclosed(String),
    /// Its alternatives are too many.
    #[error("pattern '{0}' has more than {MOST_ALTERNATIVES} alternatives")]
    TooMany(String),
}

/// Which signs have a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signs {
    /// `*`, `?` and classes within one name, as Go's `filepath.Match` has them.
    Simple,
    /// Besides, `**` for any number of names, and `{a,b}`.
    Double,
}

/// Whether a text is a pattern, and not just a path.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

/// The path before the first name that is a pattern; empty for none.
pub(crate) fn fixed_part(pattern: &str) -> String {
    let fixed = pattern.split('/').filter(|name| !matches!(*name, "" | "."));
    fixed.take_while(|name| !is_pattern(name)).collect::<Vec<_>>().join("/")
}

/// A pattern.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    alternatives: Vec<Vec<Name>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// Any number of names.
    Any,
    Like(Vec<Sign>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sign {
    One(char),
    AnyOne,
    AnyMany,
    /// Apart, so that the others take little memory.
    Class(Box<Class>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A [`GlobError`].
    pub(crate) fn parse(text: &str, signs: Signs) -> Result<Self, GlobError> {
        let unclosed = || GlobError::Unclosed(shown(text));
        let texts = match signs {
            Signs::Simple => vec![text.to_owned()],
            Signs::Double => alternatives(text)?,
        };
        let alternatives = texts.iter().map(|text| {
            let names = text.split('/').filter(|name| !matches!(*name, "" | "."));
            let names = names.map(|name| match name {
                "**" if signs == Signs::Double => Some(Name::Any),
                name => read_name(name, signs).map(Name::Like),
            });
            names.collect::<Option<Vec<_>>>().ok_or_else(unclosed)
        });
        Ok(Self { alternatives: alternatives.collect::<Result<_, _>>()? })
    }

    /// Whether a path is one of those.
    #[must_use]
    pub(crate) fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        self.alternatives.iter().any(|pattern| matches(pattern, &names))
    }

    /// How many names the paths have that it can match; none where that is not fixed.
    pub(crate) fn depth(&self) -> Option<usize> {
        let mut depths =
            self.alternatives.iter().map(|pattern| (!pattern.contains(&Name::Any)).then_some(pattern.len()));
        let first = depths.next()??;
        depths.all(|depth| depth == Some(first)).then_some(first)
    }
}

/// A pattern of one name, as Go's `filepath.Match` has them.
#[derive(Debug)]
pub(crate) struct NameGlob(Names);

/// Which names are meant.
#[derive(Debug)]
enum Names {
    /// One alone, as with most patterns.
    One(Box<str>),
    Like(Vec<Sign>),
}

impl NameGlob {
    /// Reads a pattern; none where it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !text.contains(['*', '?', '[', '\\']) {
            return Some(Self(Names::One(text.into())));
        }
        read_name(text, Signs::Simple).map(|signs| Self(Names::Like(signs)))
    }

    /// Whether a name is one of those.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Names::One(own) => **own == *name,
            Names::Like(signs) => is_like(signs, name),
        }
    }
}

fn shown(text: &str) -> String {
    crate::tree::shown(text)
}

/// What a text with groups stands for.
fn alternatives(text: &str) -> Result<Vec<String>, GlobError> {
    let (mut done, mut open) = (Vec::new(), vec![text.to_owned()]);
    while let Some(one) = open.pop() {
        match first_group(&one).ok_or_else(|| GlobError::Unclosed(shown(text)))? {
            None => done.push(one),
            Some((before, parts, after)) => {
                open.extend(parts.iter().rev().map(|part| format!("{before}{part}{after}")));
            }
        }
        if done.len() + open.len() > MOST_ALTERNATIVES {
            return Err(GlobError::TooMany(shown(text)));
        }
    }
    Ok(done)
}

type Group<'a> = (&'a str, Vec<&'a str>, &'a str);

/// The outermost group that comes first, and what is around it; none at all where one is not closed, or a `}` closes none.
fn first_group(text: &str) -> Option<Option<Group<'_>>> {
    let (mut depth, mut start, mut from, mut parts) = (0_usize, 0, 0, Vec::new());
    let mut signs = text.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => drop(signs.next()?),
            // Braces in a class are literal.
            '[' => skip_class(&mut signs)?,
            '{' => {
                if depth == 0 {
                    (start, from) = (at, at + 1);
                }
                depth += 1;
            }
            ',' if depth == 1 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    parts.push(&text[from..at]);
                    return Some(Some((&text[..start], parts, &text[at + 1..])));
                }
            }
            _ => {}
        }
    }
    (depth == 0).then_some(None)
}

/// Moves past the end of a class; none where it has no end.
fn skip_class(signs: &mut std::str::CharIndices<'_>) -> Option<()> {
    loop {
        match signs.next()?.1 {
            '\\' => drop(signs.next()?),
            ']' => return Some(()),
            _ => {}
        }
    }
}

fn read_name(name: &str, meant: Signs) -> Option<Vec<Sign>> {
    let (mut signs, mut rest) = (Vec::new(), name.chars());
    while let Some(sign) = rest.next() {
        signs.push(match sign {
            // Several are as good as one.
            '*' if signs.last() == Some(&Sign::AnyMany) => continue,
            '*' => Sign::AnyMany,
            '?' => Sign::AnyOne,
            '\\' => Sign::One(rest.next()?),
            '[' => read_class(&mut rest, meant)?,
            sign => Sign::One(sign),
        });
    }
    Some(signs)
}

fn read_class(rest: &mut std::str::Chars<'_>, meant: Signs) -> Option<Sign> {
    let negates = |sign| sign == '^' || sign == '!' && meant == Signs::Double;
    let negated = rest.clone().next().is_some_and(negates);
    if negated {
        rest.next();
    }
    // Go's has neither of these as a bound.
    let bound = |rest: &mut std::str::Chars<'_>| match rest.next()? {
        '-' | ']' if meant == Signs::Simple => None,
        '\\' => rest.next(),
        sign => Some(sign),
    };
    let mut ranges = Vec::new();
    loop {
        let mut ahead = rest.clone();
        if ahead.next() == Some(']') && !ranges.is_empty() {
            *rest = ahead;
            return Some(Sign::Class(Box::new(Class { negated, ranges })));
        }
        let low = bound(rest)?;
        let mut ahead = rest.clone();
        let is_range = ahead.next() == Some('-') && (meant == Signs::Simple || ahead.next() != Some(']'));
        let mut high = low;
        if is_range {
            rest.next();
            high = bound(rest)?;
        }
        ranges.push((low, high));
    }
}

fn matches(pattern: &[Name], names: &[&str]) -> bool {
    // Which beginnings of the path the names so far can match.
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for name in pattern {
        let mut next = vec![false; names.len() + 1];
        match name {
            Name::Any => {
                let mut seen = false;
                for (at, reached) in reached.iter().enumerate() {
                    seen |= *reached;
                    next[at] = seen;
                }
            }
            Name::Like(signs) => {
                for (at, name) in names.iter().enumerate() {
                    next[at + 1] = reached[at] && is_like(signs, name);
                }
            }
        }
        reached = next;
        if !reached.contains(&true) {
            return false;
        }
    }
    reached[names.len()]
}

/// Whether one name is like a pattern. A `*` takes as little as it can, and more where the rest does not fit: of several, only the
/// last has to be tried again.
fn is_like(signs: &[Sign], name: &str) -> bool {
    let (mut ahead, mut sign) = (name.chars(), 0);
    // What lies ahead of the last `*`, and which sign comes after it.
    let mut retry: Option<(std::str::Chars<'_>, usize)> = None;
    loop {
        let mut rest = ahead.clone();
        let Some(first) = rest.next() else { break };
        match signs.get(sign) {
            Some(Sign::AnyMany) => {
                sign += 1;
                retry = Some((ahead.clone(), sign));
            }
            Some(one) if one.takes(first) => (ahead, sign) = (rest, sign + 1),
            _ => match &mut retry {
                Some((from, after)) => {
                    from.next();
                    (ahead, sign) = (from.clone(), *after);
                }
                None => return false,
            },
        }
    }
    signs[sign..].iter().all(|sign| *sign == Sign::AnyMany)
}

impl Sign {
    fn takes(&self, sign: char) -> bool {
        match self {
            Self::One(one) => *one == sign,
            Self::AnyOne => true,
            Self::AnyMany => false,
            Self::Class(class) => {
                class.ranges.iter().any(|(low, high)| (*low..=*high).contains(&sign)) != class.negated
            }
        }
    }
}

/// For messages: a list of names, the first few.
pub(crate) fn listed(names: &[&str]) -> String {
    const MOST: usize = 5;
    let mut text =
        names.iter().take(MOST).map(|name| format!("'{}'", shown(name))).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        // Writing to a text cannot fail.
        let _ = write!(text, " and {} more", names.len() - MOST);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn is(pattern: &str, signs: Signs, path: &str) -> bool {
        Glob::parse(pattern, signs).unwrap().matches(path)
    }

    #[test]
    fn one_name_at_a_time() {
        for (pattern, path, like) in [
            ("*.yaml", "a.yaml", true),
            ("*.yaml", ".yaml", true),
            ("*.yaml", "a/b.yaml", false),
            ("a/*/c", "a/b/c", true),
            ("a/**", "a/b", true),
            ("a/**", "a/b/c", false),
            ("**", "a", true),
            ("**", "a/b", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            // As the first one's own library has it, other than the second's.
            ("[!a]", "!", true),
            ("[!a]", "b", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axbxbx", false),
            ("{a,b}", "{a,b}", true),
            ("{a,b}", "a", false),
            ("", "a", false),
        ] {
            assert_eq!(is(pattern, Signs::Simple, path), like, "{pattern} {path}");
        }
    }

    #[test]
    fn simple_patterns_match_as_in_go() {
        for (pattern, name, matches) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("ab[c]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a/b", false),
            ("a[^a]b", "a☺b", true),
            ("[!x]", "x", true),
            ("", "", true),
            ("*x", "xxx", true),
            ("templates/.?*", "templates/.dotfile", true),
            ("templates/.?*", "templates/.", false),
        ] {
            assert_eq!(is(pattern, Signs::Simple, name), matches, "{pattern} {name}");
        }
        for pattern in ["[", "[^", "[a", "[]", "[a-", "[-x]", "a\\", "[x-]"] {
            assert!(Glob::parse(pattern, Signs::Simple).is_err(), "{pattern}");
        }
        let slow = Glob::parse(&"*a".repeat(200), Signs::Simple).unwrap();
        assert!(!slow.matches(&format!("{}b", "a".repeat(5_000))));
    }

    #[test]
    fn any_number_of_names_and_alternatives() {
        for (pattern, path, like) in [
            ("**/*.md", "README.md", true),
            ("**/*.md", "docs/a/b.md", true),
            ("docs/**", "docs", true),
            ("docs/**", "docs/a/b", true),
            ("docs/**", "doc", false),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "a/b/c", false),
            ("{docs,test}/*.{md,txt}", "test/a.txt", true),
            ("{docs,test}/*.{md,txt}", "test/a.rs", false),
            ("{a/b,c}/d", "a/b/d", true),
            ("{a,{b,c}}", "c", true),
            (r"\{a,b\}", "{a,b}", true),
            ("a**", "abc", true),
            ("[!a]", "b", true),
            ("{a,[}]}", "}", true),
            (r"a\}", "a}", true),
            ("[}]", "}", true),
        ] {
            assert_eq!(is(pattern, Signs::Double, path), like, "{pattern} {path}");
        }
    }

    #[test]
    fn what_has_no_end_is_none() {
        for pattern in ["[a", "a\\", "[]", "[^]", "{a,b", "a/[b/c", "{[a,b]", "a}", "{a,b}}", r"\{a,b}"] {
            assert!(matches!(Glob::parse(pattern, Signs::Double), Err(GlobError::Unclosed(_))), "{pattern}");
        }
        let many = "{a,b}".repeat(7);
        assert!(matches!(Glob::parse(&many, Signs::Double), Err(GlobError::TooMany(_))));
        assert!(Glob::parse(&"{a,b}".repeat(6), Signs::Double).is_ok());
        // However deep they nest.
        let deep = format!("{}a{}", "{a,".repeat(300), "}".repeat(300));
        assert!(matches!(Glob::parse(&deep, Signs::Double), Err(GlobError::TooMany(_))));
    }

    #[test]
    fn nothing_takes_long() {
        let began = Instant::now();
        let stars = format!("{}b", "*a".repeat(400));
        assert!(!is(&stars, Signs::Double, &"a".repeat(1_000)));
        let any = format!("{}/z", ["**"; 300].join("/"));
        assert!(!is(&any, Signs::Double, &["a"; 500].join("/")));
        let both = format!("{}/z", ["**/*a*a*a*"; 90].join("/"));
        assert!(!is(&both, Signs::Double, &["aaaaaaaaaaaaaaaa"; 64].join("/")));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    proptest! {
        #[test]
        fn simple_signs_mean_the_same_to_both(pattern in "[a-c*?/{},!^\\[\\]\\\\-]{0,24}", path in "[a-c/]{0,24}") {
            let (simple, double) = (Glob::parse(&pattern, Signs::Simple), Glob::parse(&pattern, Signs::Double));
            if let Ok(simple) = simple
                && !pattern.contains(['{', '}', '!'])
                && !pattern.contains("**")
            {
                prop_assert_eq!(simple.matches(&path), double.unwrap().matches(&path));
            }
        }

        #[test]
        fn a_path_matches_itself_where_no_sign_stands_in_it(path in "[a-z.]{1,5}(/[a-z]{1,5}){0,5}") {
            prop_assume!(path.split('/').all(|name| name != "."));
            prop_assert!(is(&path, Signs::Simple, &path) && is(&path, Signs::Double, &path));
            prop_assert!(is("**", Signs::Double, &path));
        }
    }
}
