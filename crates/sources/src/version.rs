//! Semantic versions and ranges of them, as Flux reads both: tags that are versions, and constraints in the grammar of its Go
//! library, which is neither cargo's nor npm's.
//!
//! Constraints of a group (between spaces or commas) must all hold, groups (between `||`) are alternatives. A prerelease is
//! taken only where some constraint of the same group names one. Build metadata counts for nothing.

use std::cmp::Ordering;
use std::fmt;

/// Bytes of a constraint.
const MOST_BYTES: usize = 1_024;

/// A semantic version: three numbers, and perhaps a prerelease and build metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    /// Empty for a release.
    prerelease: String,
    build: String,
}

impl Version {
    /// Reads a tag. A `v` before it is left out; anything that is not exactly three numbers, or has spaces, is not a version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = match text.split_once('+') {
            Some((text, build)) if is_identifiers(build) => (text, build),
            Some(_) => return None,
            None => (text, ""),
        };
        let (numbers, prerelease) = match text.split_once('-') {
            Some((numbers, prerelease)) if is_identifiers(prerelease) => (numbers, prerelease),
            Some(_) => return None,
            None => (text, ""),
        };
        // A number among the identifiers of a prerelease is compared as one, and so has one spelling.
        let odd = |part: &str| part.len() > 1 && part.starts_with('0') && is_number(part);
        if prerelease.split('.').any(odd) {
            return None;
        }
        let mut parts = numbers.split('.');
        let mut next = || parts.next().filter(|part| is_number(part))?.parse().ok();
        let numbers = [next()?, next()?, next()?];
        if parts.next().is_some() {
            return None;
        }
        Some(Self { numbers, prerelease: prerelease.to_owned(), build: build.to_owned() })
    }

    /// Reads a version that may lack numbers, as Helm's own checks do: `1.2` is 1.2.0.
    #[must_use]
    pub fn coerced(text: &str) -> Option<Self> {
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let more = match numbers.split('.').count() {
            1 => ".0.0",
            2 => ".0",
            _ => "",
        };
        Self::parse(&format!("{numbers}{more}{rest}"))
    }

    /// The same version with other build metadata, in the place of what it has.
    ///
    /// # Errors
    /// Where that cannot be build metadata.
    pub fn with_build(&self, build: &str) -> Result<Self, ImproperConstraint> {
        if is_identifiers(build) {
            Ok(Self { build: build.to_owned(), ..self.clone() })
        } else {
            Err(ImproperConstraint(crate::tree::shown(build)))
        }
    }

    /// Which of the two comes first. Build metadata is not looked at.
    #[must_use]
    pub fn precedence(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => by_identifiers(&self.prerelease, &other.prerelease),
            }
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

fn is_identifiers(text: &str) -> bool {
    text.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'))
}

fn by_identifiers(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        let order = match (one.next(), other.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(other)) => match (is_number(one), is_number(other)) {
                // Without leading zeros the longer number is the greater one, however many digits it has.
                (true, true) => one.len().cmp(&other.len()).then_with(|| one.cmp(other)),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (false, false) => one.cmp(other),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Why a text is not a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("improper constraint: \"{0}\"")]
pub struct ImproperConstraint(String);

/// A range of versions.
#[derive(Debug, Clone)]
pub struct Constraint {
    groups: Vec<Vec<Bound>>,
}

impl Constraint {
    /// Reads a range: `>=1.2.0 <2.0.0`, `~1.2`, `1.x || >=2.5.0-0`, `1.2 - 1.5`.
    ///
    /// # Errors
    /// Where it is none.
    pub fn parse(text: &str) -> Result<Self, ImproperConstraint> {
        let improper = |text: &str| ImproperConstraint(crate::tree::shown(text));
        if text.len() > MOST_BYTES {
            return Err(improper(text));
        }
        let groups = text.split("||").map(|group| Scanner(group).group().ok_or_else(|| improper(group)));
        Ok(Self { groups: groups.collect::<Result<_, _>>()? })
    }

    /// Whether a version lies in it.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            let prereleases = group.iter().any(|bound| !bound.version.prerelease.is_empty());
            (version.prerelease.is_empty() || prereleases) && group.iter().all(|bound| bound.holds(version))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    AtLeast,
    AtMost,
    Tilde,
    Caret,
}

/// How much of a bound's version is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Given {
    Nothing,
    Major,
    Minor,
    All,
}

/// One comparison. What is not given of its version is zero.
#[derive(Debug, Clone)]
struct Bound {
    operator: Operator,
    version: Version,
    given: Given,
}

impl Bound {
    fn holds(&self, version: &Version) -> bool {
        let order = version.precedence(&self.version);
        let [major, minor, patch] = version.numbers;
        let [own_major, own_minor, own_patch] = self.version.numbers;
        match self.operator {
            Operator::Equal if self.given == Given::All => order.is_eq(),
            Operator::Equal | Operator::Tilde => {
                let same_minor = minor == own_minor || self.given == Given::Major;
                let anything =
                    self.version.numbers == [0; 3] && matches!(self.given, Given::All | Given::Nothing);
                order.is_ge() && (anything || major == own_major && same_minor)
            }
            Operator::NotEqual => match self.given {
                Given::Major => major != own_major,
                Given::Minor => {
                    let same = major == own_major && minor == own_minor;
                    let prereleases = [version, &self.version].iter().any(|one| !one.prerelease.is_empty());
                    !same || prereleases && version.prerelease != self.version.prerelease
                }
                Given::Nothing | Given::All => order.is_ne(),
            },
            Operator::Greater => match self.given {
                Given::All => order.is_gt(),
                // `>1.2` begins with 1.3.0, and `>1` with 2.0.0.
                Given::Major => major > own_major,
                Given::Minor => (major, minor) > (own_major, own_minor),
                // The library reads `*` as 0.0.0 here, and means what it says.
                Given::Nothing => order.is_gt(),
            },
            Operator::Less => order.is_lt(),
            Operator::AtLeast => order.is_ge(),
            Operator::AtMost => match self.given {
                Given::All => order.is_le(),
                // Where nothing is given that is 0.0.x: the library reads `*` as 0.0 here.
                Given::Minor | Given::Nothing => (major, minor) <= (own_major, own_minor),
                Given::Major => major <= own_major,
            },
            Operator::Caret => {
                // The leftmost number that is not zero stays.
                let stays = if own_major > 0 || self.given == Given::Major {
                    major == own_major
                } else if own_minor > 0 || self.given == Given::Minor {
                    (major, minor) == (0, own_minor)
                } else {
                    (major, minor, patch) == (0, 0, own_patch)
                };
                order.is_ge() && stays
            }
        }
    }
}

/// Reads a group from its front.
struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    fn skip_spaces(&mut self) -> bool {
        let rest = self.0.trim_start_matches(is_space);
        let some = rest.len() < self.0.len();
        self.0 = rest;
        some
    }

    fn take(&mut self, text: &str) -> bool {
        self.0.strip_prefix(text).map(|rest| self.0 = rest).is_some()
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !wanted(c)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    /// The bounds of a group: one at least, with spaces or a comma between them.
    fn group(mut self) -> Option<Vec<Bound>> {
        let mut bounds = Vec::new();
        self.skip_spaces();
        loop {
            let operator = self.operator();
            self.skip_spaces();
            let (version, given) = self.version()?;
            let spaced = self.skip_spaces();
            if spaced && self.0.starts_with('-') {
                // A range from one version to another, both of them in it.
                self.take("-");
                let last = (operator.is_none() && self.skip_spaces()).then(|| self.version())??;
                bounds.push(Bound { operator: Operator::AtLeast, version, given });
                bounds.push(Bound { operator: Operator::AtMost, version: last.0, given: last.1 });
                let spaced = self.skip_spaces();
                if self.0.is_empty() {
                    return Some(bounds);
                }
                if !self.separated(spaced) {
                    return None;
                }
                continue;
            }
            bounds.push(Bound { operator: operator.unwrap_or(Operator::Equal), version, given });
            if self.0.is_empty() {
                return Some(bounds);
            }
            if !self.separated(spaced) {
                return None;
            }
        }
    }

    /// Whether another bound may follow here.
    fn separated(&mut self, spaced: bool) -> bool {
        let comma = self.take(",");
        self.skip_spaces();
        comma || spaced
    }

    fn operator(&mut self) -> Option<Operator> {
        // The longer ones first.
        const ALL: [(&str, Operator); 11] = [
            ("!=", Operator::NotEqual),
            (">=", Operator::AtLeast),
            ("=>", Operator::AtLeast),
            ("<=", Operator::AtMost),
            ("=<", Operator::AtMost),
            ("~>", Operator::Tilde),
            ("=", Operator::Equal),
            (">", Operator::Greater),
            ("<", Operator::Less),
            ("~", Operator::Tilde),
            ("^", Operator::Caret),
        ];
        ALL.iter().find(|(text, _)| self.take(text)).map(|(_, operator)| *operator)
    }

    /// A version of which parts may be left out, or be `x`, `X` or `*`.
    fn version(&mut self) -> Option<(Version, Given)> {
        self.take("v");
        let mut numbers = [0; 3];
        let mut given = Given::Nothing;
        for (index, reached) in [Given::Major, Given::Minor, Given::All].into_iter().enumerate() {
            if index > 0 && !self.take(".") {
                break;
            }
            let part = self.take_while(|c| c.is_ascii_digit() || matches!(c, 'x' | 'X' | '*'));
            let wild = matches!(part, "x" | "X" | "*");
            if !wild && !is_number(part) {
                return None;
            }
            // What comes behind an `x` counts for nothing.
            if !wild && given as usize == index {
                *numbers.get_mut(index)? = part.parse().ok()?;
                given = reached;
            }
        }
        let identifier = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let prerelease = if self.take("-") { Some(self.take_while(identifier)) } else { None };
        let build = if self.take("+") { Some(self.take_while(identifier)) } else { None };
        if [prerelease, build].into_iter().flatten().any(|text| !is_identifiers(text)) {
            return None;
        }
        let [major, minor, patch] = numbers;
        let prerelease = prerelease.map(|text| format!("-{text}")).unwrap_or_default();
        let version = Version::parse(&format!("{major}.{minor}.{patch}{prerelease}"))?;
        Some((version, given))
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}')
}

#[cfg(test)]
mod tests {
    use super::{Constraint, Version};

    fn matching(constraint: &str, versions: &[&str]) -> Vec<String> {
        let constraint = Constraint::parse(constraint).unwrap();
        let taken = |text: &&&str| constraint.matches(&Version::parse(text).unwrap());
        versions.iter().filter(taken).map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn what_is_no_version_is_none() {
        for text in [
            "v1",
            "1.2",
            "1.2.3.4",
            "1.2.3-01",
            "1.2.3-",
            "1.2.3+",
            " 1.2.3",
            "latest",
            "",
            "1.2.99999999999999999999",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert_eq!(Version::parse("v01.2.3-rc.1+b").unwrap().to_string(), "1.2.3-rc.1+b");
    }

    /// Each operator with each form of a version, as the library has it by which Flux reads ranges (`tests/semver/regenerate.sh`).
    #[test]
    fn ranges_are_those_of_the_library_of_flux() {
        let mut lines = include_str!("../tests/semver/rows.txt").lines();
        let versions: Vec<Version> =
            lines.next().unwrap().split(' ').map(|text| Version::parse(text).unwrap()).collect();
        let mut wrong = Vec::new();
        for line in lines {
            let (wanted, text) = line.split_once(' ').unwrap();
            let found = match Constraint::parse(text) {
                Ok(range) => versions.iter().map(|one| if range.matches(one) { '1' } else { '0' }).collect(),
                Err(_) => "-".to_owned(),
            };
            if found != wanted {
                wrong.push(format!("{text}: {found}, and not {wanted}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn prereleases_are_taken_where_one_of_the_group_is_named() {
        let versions = ["1.2.3-alpha.1", "1.3.0", "2.0.0-rc.1"];
        assert_eq!(matching(">=1.0.0", &versions), ["1.3.0"]);
        assert_eq!(matching(">=1.0.0 <2.0.0-0", &versions), ["1.2.3-alpha.1", "1.3.0"]);
        assert_eq!(matching("1.2.3 || >=1.3.0-0", &versions), ["1.3.0", "2.0.0-rc.1"]);
    }

    #[test]
    fn parts_that_are_left_out_make_ranges() {
        let versions = ["1.1.9", "1.2.0", "1.2.10", "1.3.0", "2.0.0"];
        assert_eq!(matching(">1.2", &versions), ["1.3.0", "2.0.0"]);
        assert_eq!(matching("<=1.2", &versions), ["1.1.9", "1.2.0", "1.2.10"]);
        assert_eq!(matching("!=1.2", &versions), ["1.1.9", "1.3.0", "2.0.0"]);
        assert_eq!(matching("1.2 - 1.3", &versions), ["1.2.0", "1.2.10", "1.3.0"]);
        assert_eq!(matching("^1.2.0, !=1.3.0", &versions), ["1.2.0", "1.2.10"]);
    }

    #[test]
    fn what_is_no_constraint_is_refused() {
        for text in ["", "latest", "1.2.3.4", ">>1", "==1", "!1.2.3", "<>1", "1,", ">=1.2.3<2.0.0", "1 -"] {
            let error = Constraint::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("improper constraint: \"{text}\""));
        }
        // Of several groups, the one that is wrong.
        assert_eq!(Constraint::parse("1 || x y").unwrap_err().to_string(), "improper constraint: \" x y\"");
    }
}
