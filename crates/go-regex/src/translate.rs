//! A pattern of Go's, in the words of the `regex` crate.
//!
//! `\d`, `\w`, `\s` and `\b` know ASCII only; a brace that begins no repetition and a bracket within brackets stand for
//! themselves; `&&`, `--` and `~~` within brackets are plain characters; `\<` is a `<`; `\Q…\E` quotes; numbers of octal digits are
//! characters. Repetitions are not stacked, and nested ones do not multiply to more than a thousand.

use std::collections::HashSet;

use crate::class;
use crate::escape::{self, Class};

/// The most repetitions that Go takes, those around and within one another multiplied.
const MOST_REPEATS: u32 = 1000;

/// What the pattern is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Text,
    Bytes,
}

/// What is the matter with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// In Go, too.
    Invalid(&'static str),
    /// Here only.
    Unsupported(&'static str),
}

/// What a repetition would repeat: how often its parts are repeated already, at most.
#[derive(Debug, Clone, Copy)]
struct Atom {
    repeats: u32,
    /// It is the last that was written.
    adjacent: bool,
}

/// A group that is open, or all.
#[derive(Debug)]
struct Level {
    atom: Option<Atom>,
    /// The most of what stands before.
    repeats: u32,
}

impl Level {
    fn new() -> Self {
        Self { atom: None, repeats: 1 }
    }

    fn push(&mut self, repeats: u32) {
        self.pass();
        self.atom = Some(Atom { repeats, adjacent: true });
    }

    /// What is last cannot be repeated any more.
    fn pass(&mut self) {
        let last = self.atom.take();
        self.repeats = self.repeats.max(last.map_or(1, |atom| atom.repeats));
    }
}

struct Translation<'p> {
    rest: &'p str,
    out: String,
    flavour: Flavour,
    outer: Vec<Level>,
    level: Level,
    /// What was read last is a repetition.
    repeated: bool,
    names: HashSet<&'p str>,
}

pub(crate) fn translated(pattern: &str, flavour: Flavour) -> Result<String, Fault> {
    let mut translation = Translation {
        rest: pattern,
        out: String::with_capacity(pattern.len() + 16),
        flavour,
        outer: Vec::new(),
        level: Level::new(),
        repeated: false,
        names: HashSet::new(),
    };
    while let Some(c) = translation.rest.chars().next() {
        let repeated = translation.step(c)?;
        translation.repeated = repeated;
    }
    if translation.outer.is_empty() { Ok(translation.out) } else { Err(Fault::Invalid("missing closing )")) }
}

impl<'p> Translation<'p> {
    /// Reads one thing. Says whether it was a repetition.
    fn step(&mut self, c: char) -> Result<bool, Fault> {
        match c {
            '(' => self.open()?,
            ')' => self.close()?,
            '|' => {
                self.skip(1);
                self.out.push('|');
                self.level.pass();
            }
            '[' => {
                let taken = class::translated(self.rest, &mut self.out)?;
                self.skip(taken);
                self.level.push(1);
            }
            '\\' => self.backslash()?,
            '*' | '+' | '?' => {
                self.skip(1);
                self.repeat(c.encode_utf8(&mut [0; 4]), None)?;
                return Ok(true);
            }
            '{' => {
                let Some((bounds, length)) = bounds(self.rest) else {
                    self.literal('{');
                    return Ok(false);
                };
                let written = self.skip(length);
                self.repeat(written, Some(bounds))?;
                return Ok(true);
            }
            '^' | '$' | '.' => {
                self.skip(1);
                self.out.push(c);
                self.level.push(1);
            }
            c => self.literal(c),
        }
        Ok(false)
    }

    /// Goes on, and gives what was passed over.
    fn skip(&mut self, length: usize) -> &'p str {
        let (passed, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        passed
    }

    fn literal(&mut self, c: char) {
        self.skip(c.len_utf8());
        escape::write(c, &mut self.out);
        self.level.push(1);
    }

    fn open(&mut self) -> Result<(), Fault> {
        if self.rest.starts_with("(?") {
            return self.special();
        }
        self.skip(1);
        self.out.push('(');
        self.enter();
        Ok(())
    }

    fn enter(&mut self) {
        self.outer.push(std::mem::replace(&mut self.level, Level::new()));
    }

    fn close(&mut self) -> Result<(), Fault> {
        let outer = self.outer.pop().ok_or(Fault::Invalid("unexpected )"))?;
        self.skip(1);
        self.out.push(')');
        let mut inner = std::mem::replace(&mut self.level, outer);
        inner.pass();
        self.level.push(inner.repeats);
        Ok(())
    }

    /// What begins with `(?`: a name, or flags.
    fn special(&mut self) -> Result<(), Fault> {
        let after = self.rest.strip_prefix("(?P<").or_else(|| self.rest.strip_prefix("(?<"));
        // Go wants something behind the sign.
        if let Some(after) = after.filter(|after| !after.is_empty()) {
            let (name, _) = after.split_once('>').ok_or(Fault::Invalid("invalid named capture"))?;
            let valid = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(valid) {
                return Err(Fault::Invalid("invalid named capture"));
            }
            if name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(Fault::Unsupported("the name of a group begins with a digit"));
            }
            if !self.names.insert(name) {
                return Err(Fault::Unsupported("two groups have one name"));
            }
            self.skip(self.rest.len() - after.len() + name.len() + 1);
            self.out.extend(["(?P<", name, ">"]);
            self.enter();
            return Ok(());
        }
        let (flags, length, opens) = flags(self.rest)?;
        self.skip(length);
        if opens {
            self.out.extend(["(?", flags.as_str(), ":"]);
            self.enter();
            return Ok(());
        }
        if !flags.is_empty() {
            self.out.extend(["(?", flags.as_str(), ")"]);
            if let Some(atom) = &mut self.level.atom {
                atom.adjacent = false;
            }
        }
        Ok(())
    }

    fn backslash(&mut self) -> Result<(), Fault> {
        let after = self.rest.get(1..).unwrap_or_default();
        let written = match after.chars().next() {
            Some('A') => r"\A",
            Some('z') => r"\z",
            Some('b') => r"(?-u:\b)",
            // By bytes it would be found within a character, too: either of the other two is true between characters alone.
            Some('B') if self.flavour == Flavour::Bytes => r"(?:(?-u:\B)(?:\b|\B))",
            Some('B') => return Err(Fault::Unsupported(r"\B is not known here")),
            Some('Q') => {
                self.skip(2);
                let quoted = self.rest.split(r"\E").next().unwrap_or_default();
                quoted.chars().for_each(|c| self.literal(c));
                self.rest = self.rest.strip_prefix(r"\E").unwrap_or(self.rest);
                return Ok(());
            }
            _ => {
                let length = match escape::class(self.rest)? {
                    Some(Class { written, length }) => {
                        self.out.push_str(&written);
                        length
                    }
                    None => {
                        let (c, length) = escape::character(self.rest)?;
                        escape::write(escape::known(c)?, &mut self.out);
                        length
                    }
                };
                self.skip(length);
                self.level.push(1);
                return Ok(());
            }
        };
        self.skip(2);
        self.out.push_str(written);
        self.level.push(1);
        Ok(())
    }

    fn repeat(&mut self, written: &str, bounds: Option<Bounds>) -> Result<(), Fault> {
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.skip(1);
        }
        if self.repeated {
            return Err(Fault::Invalid("invalid nested repetition operator"));
        }
        let atom = self.level.atom.ok_or(Fault::Invalid("missing argument to repetition operator"))?;
        if !atom.adjacent {
            return Err(Fault::Unsupported("a repetition behind a setting of flags"));
        }
        let repeats = bounds.map_or(Some(atom.repeats), |bounds| bounds.around(atom.repeats));
        let repeats = repeats.ok_or(Fault::Invalid("invalid repeat count"))?;
        self.out.push_str(written);
        if lazy {
            self.out.push('?');
        }
        self.level.atom = Some(Atom { repeats, adjacent: true });
        Ok(())
    }
}

/// How often something is repeated; without an end, there is no most.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    least: Option<u32>,
    most: Option<Option<u32>>,
}

impl Bounds {
    /// How often that makes of what is within, which is repeated so often; none where that is too much.
    fn around(self, within: u32) -> Option<u32> {
        let fits = |number: Option<u32>| number.filter(|number| *number <= MOST_REPEATS);
        let least = fits(self.least)?;
        let most = match self.most {
            None => None,
            Some(most) => Some(fits(most).filter(|most| *most >= least)?),
        };
        if most == Some(0) {
            return Some(1);
        }
        let product = most.unwrap_or(least).max(1).saturating_mul(within);
        // Go looks at what is repeated twice or more only; what is not makes no more of it.
        (product <= MOST_REPEATS).then_some(product)
    }
}

/// What a brace begins, and its length; none where it begins no repetition. Numbers that are too large are none.
fn bounds(text: &str) -> Option<(Bounds, usize)> {
    let inner = text.strip_prefix('{')?;
    let (inner, _) = inner.split_once('}')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits && (text.len() == 1 || !text.starts_with('0'))).then(|| text.parse::<u32>().ok())
    };
    let length = inner.len() + 2;
    let bounds = match inner.split_once(',') {
        None => {
            let exactly = number(inner)?;
            Bounds { least: exactly, most: Some(exactly) }
        }
        Some((least, "")) => Bounds { least: number(least)?, most: None },
        Some((least, most)) => Bounds { least: number(least)?, most: Some(number(most)?) },
    };
    Some((bounds, length))
}

/// Flags as Go reads them: those that are set, and those that are not any more. Gives what to write, the length of what was
/// read, and whether it begins a group.
fn flags(text: &str) -> Result<(String, usize, bool), Fault> {
    const INVALID: Fault = Fault::Invalid("invalid or unsupported Perl syntax");
    let (mut set, mut unset) = (String::new(), String::new());
    let (mut negated, mut seen) = (false, false);
    for (at, c) in text.char_indices().skip(2) {
        match c {
            'i' | 'm' | 's' | 'U' => {
                let into = if negated { &mut unset } else { &mut set };
                if !into.contains(c) {
                    into.push(c);
                }
                seen = true;
            }
            '-' if !negated => (negated, seen) = (true, false),
            ':' | ')' if !negated || seen => {
                set.retain(|flag| !unset.contains(flag));
                let minus = if unset.is_empty() { "" } else { "-" };
                return Ok((format!("{set}{minus}{unset}"), at + 1, c == ':'));
            }
            _ => return Err(INVALID),
        }
    }
    Err(Fault::Invalid("missing argument to (?"))
}
