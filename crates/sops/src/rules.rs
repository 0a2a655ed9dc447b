//! Which values of a file are encrypted.
//!
//! Exactly one rule holds for a file. Most look at the names on the way to a value; two look at the comments before it and
//! before what it is in.

use regex::bytes::Regex;
use roadstead_go_regex::{Limits as PatternLimits, PatternError, compile_bytes};

use crate::error::Error;
use crate::limits::Limits;

/// What holds where a file names no rule.
pub(crate) const DEFAULT_SUFFIX: &str = "_unencrypted";

/// The rule of a file.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    matcher: Matcher,
    /// What matches is encrypted, and all else is not; or the other way round.
    encrypts: bool,
    comments: bool,
}

#[derive(Debug, Clone)]
enum Matcher {
    Suffix(Vec<u8>),
    /// None where the expression is none: then nothing matches, as in SOPS.
    Regex(Option<Regex>),
}

impl Matcher {
    fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Suffix(suffix) => text.ends_with(suffix),
            Self::Regex(regex) => {
                regex.as_ref().is_some_and(|regex| regex.is_match(String::from_utf8_lossy(text).as_bytes()))
            }
        }
    }
}

/// What is written in a file's metadata about it; empty texts say nothing.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) unencrypted_suffix: String,
    pub(crate) encrypted_suffix: String,
    pub(crate) unencrypted_regex: String,
    pub(crate) encrypted_regex: String,
    pub(crate) unencrypted_comment_regex: String,
    pub(crate) encrypted_comment_regex: String,
}

impl Rule {
    pub(crate) fn new(written: Written, limits: &Limits) -> Result<Self, Error> {
        let named = [
            (written.unencrypted_suffix, false, false, false),
            (written.encrypted_suffix, true, false, false),
            (written.unencrypted_regex, false, false, true),
            (written.encrypted_regex, true, false, true),
            (written.unencrypted_comment_regex, false, true, true),
            (written.encrypted_comment_regex, true, true, true),
        ];
        let mut named = named.into_iter().filter(|(text, ..)| !text.is_empty());
        let first = named.next().unwrap_or((DEFAULT_SUFFIX.to_owned(), false, false, false));
        if named.next().is_some() {
            return Err(Error::Metadata("more than one rule says which values are encrypted".into()));
        }
        let (text, encrypts, comments, is_regex) = first;
        let matcher =
            if is_regex { Matcher::Regex(regex(&text, limits)?) } else { Matcher::Suffix(text.into_bytes()) };
        Ok(Self { matcher, encrypts, comments })
    }

    /// Does a name on the way to a value match?
    pub(crate) fn matches_name(&self, name: &[u8]) -> bool {
        !self.comments && self.matcher.matches(name)
    }

    /// Does a comment before a value match?
    pub(crate) fn matches_comment(&self, comment: &[u8]) -> bool {
        self.comments && self.matcher.matches(comment)
    }

    /// Is a value encrypted for which something matched, or nothing did?
    pub(crate) fn selects(&self, matched: bool) -> bool {
        matched == self.encrypts
    }

    /// A comment that switches encryption on stays readable itself.
    pub(crate) fn skips_itself(&self) -> bool {
        self.comments && self.encrypts
    }
}

fn regex(pattern: &str, limits: &Limits) -> Result<Option<Regex>, Error> {
    if pattern.len() > limits.regex_bytes {
        return Err(Error::TooLarge { what: "bytes in a regular expression", limit: limits.regex_bytes });
    }
    let memory = PatternLimits { program: limits.regex_memory, tables: limits.regex_memory };
    match compile_bytes(pattern, memory) {
        Ok(regex) => Ok(Some(regex)),
        Err(PatternError::Invalid { .. }) => Ok(None),
        // To read it as matching nothing would leave encrypted what SOPS decrypts, or the reverse.
        Err(error @ (PatternError::TooLarge { .. } | PatternError::Unsupported { .. })) => {
            Err(Error::Metadata(error.to_string()))
        }
    }
}
