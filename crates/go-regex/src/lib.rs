//! Regular expressions as Go writes them (RE2), for the `regex` crate.
//!
//! The two are nearly the same language. A pattern is read by Go's rules, and written in another form so that it means the same here: see
//! `translate`. What Go does not take is not valid; what Go takes and is not known here is refused as such, never read as
//! something else.

mod class;
mod escape;
mod translate;

use regex::{Regex, RegexBuilder, bytes};

use translate::{Fault, Flavour, translated};

/// How much of a pattern a message shows, in characters.
const MOST_SHOWN: usize = 512;
/// Of nested groups. Go takes a thousand.
const MOST_NESTING: u32 = 100;

/// Why a text is not a regular expression. The messages are at most a few kilobytes long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Compiled, it takes more memory than it may.
    #[error("the regular expression '{pattern}' is too large")]
    TooLarge {
        /// The pattern, shortened where it is long.
        pattern: String,
    },
    /// Go does not take it either.
    #[error("error parsing regexp: {problem}: '{pattern}'")]
    Invalid {
        /// The pattern, shortened where it is long.
        pattern: String,
        /// What is wrong.
        problem: String,
    },
    /// Go knows something in it that is not known here.
    #[error("the regular expression '{pattern}' is not supported: {problem}")]
    Unsupported {
        /// The pattern, shortened where it is long.
        pattern: String,
        /// What is not known.
        problem: String,
    },
}

/// How much memory a compiled pattern may take, in bytes. Its time for each byte of a text is bounded by its size.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of the program.
    pub program: usize,
    /// Of the tables that are filled while a text is looked at.
    pub tables: usize,
}

/// Compiles a pattern. How long it may be is for the caller to say.
///
/// # Errors
/// The text is not a regular expression in Go's syntax, uses what is not supported (`\B`, which [`compile_bytes`] has), or is too large.
pub fn compile(pattern: &str, limits: Limits) -> Result<Regex, PatternError> {
    let built = RegexBuilder::new(&of(pattern, Flavour::Text)?)
        .size_limit(limits.program)
        .dfa_size_limit(limits.tables)
        .nest_limit(MOST_NESTING)
        .build();
    built.map_err(|error| unbuilt(pattern, &error))
}

/// Compiles a pattern that looks at bytes, which should be those of a text.
///
/// # Errors
/// The text is not a regular expression in Go's syntax, uses what is not supported, or is too large.
pub fn compile_bytes(pattern: &str, limits: Limits) -> Result<bytes::Regex, PatternError> {
    let built = bytes::RegexBuilder::new(&of(pattern, Flavour::Bytes)?)
        .size_limit(limits.program)
        .dfa_size_limit(limits.tables)
        .nest_limit(MOST_NESTING)
        .build();
    built.map_err(|error| unbuilt(pattern, &error))
}

fn of(pattern: &str, flavour: Flavour) -> Result<String, PatternError> {
    translated(pattern, flavour).map_err(|fault| match fault {
        Fault::Invalid(problem) => {
            PatternError::Invalid { pattern: shown(pattern), problem: problem.to_owned() }
        }
        Fault::Unsupported(problem) => {
            PatternError::Unsupported { pattern: shown(pattern), problem: problem.to_owned() }
        }
    })
}

/// Why the library does not take what Go does take.
fn unbuilt(pattern: &str, error: &regex::Error) -> PatternError {
    if let regex::Error::CompiledTooBig(_) = error {
        return PatternError::TooLarge { pattern: shown(pattern) };
    }
    // The last line of the library's message says what is wrong; those before it draw the place.
    let message = error.to_string();
    let problem = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
    PatternError::Unsupported { pattern: shown(pattern), problem: problem.chars().take(200).collect() }
}

fn shown(pattern: &str) -> String {
    match pattern.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { program: 64 << 10, tables: 64 << 10 };

    fn is_match(pattern: &str, text: &str) -> bool {
        compile(pattern, LIMITS).expect(pattern).is_match(text)
    }

    #[test]
    fn what_is_written_otherwise_means_what_it_means_in_go() {
        for (pattern, yes, no) in [
            (r"^\d$", "1", "١"),
            (r"^\w$", "a", "é"),
            (r"^\W$", "é", "a"),
            (r"^\s$", " ", "\u{b}"),
            (r"^[\d\-x]$", "-", "y"),
            (r"^[^\d]$", "x", "1"),
            (r"^[[a]$", "[", "b"),
            (r"^[a&&b]$", "&", "c"),
            (r"^[a~~b]$", "~", "c"),
            (r"^[]a]$", "]", "b"),
            (r"^[[:alpha:]_]$", "_", "1"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^${NAME}", "", "x"),
            (r"\bfoo\b", "a foo", "éfoox"),
            (r"^\Qa.b\E.$", "a.bc", "axbc"),
            (r"^\<$", "<", "x"),
            (r"(?i)^abc$", "ABC", "ab"),
            (r"^(?P<n>a)(?:b)$", "ab", "a"),
            (r"^\x41\x{42}\pL$", "ABé", "AB1"),
            (r"^a b#c$", "a b#c", "abc"),
        ] {
            if pattern != "^${NAME}" {
                assert!(is_match(pattern, yes), "{pattern} on {yes:?}");
            }
            assert!(!is_match(pattern, no), "{pattern} on {no:?}");
        }
    }

    #[test]
    fn what_go_does_not_take_is_refused() {
        for pattern in
            ["(", "[a", r"\q", r"\1", r"\C", "(?x)a", "(?u)a", "(?=a)", "a{1001}", "\\", r"\u{41}", "a**b["]
        {
            let error = compile(pattern, LIMITS).unwrap_err();
            assert!(matches!(error, PatternError::Invalid { .. }), "{pattern}: {error}");
        }
    }

    #[test]
    fn what_only_go_knows_is_said_to_be_unsupported() {
        for pattern in
            [r"a\B", "(?P<1>a)", "(?P<n>a)(?P<n>b)", "a(?i)*", r"\x{D800}", "((((((((((a{2}))))))))))(?U)+"]
        {
            let error = compile(pattern, LIMITS).unwrap_err();
            assert!(matches!(error, PatternError::Unsupported { .. }), "{pattern}: {error}");
        }
        assert!(compile_bytes(r"a\Ba", LIMITS).unwrap().is_match(b"aa"));
    }

    #[test]
    fn patterns_are_bounded() {
        assert!(matches!(compile(r"((\pL{10}){10}){10}", LIMITS), Err(PatternError::TooLarge { .. })));
        for nested in ["(", "(?:", "(a"] {
            let error = compile(&nested.repeat(4000), LIMITS).unwrap_err().to_string();
            assert!(error.len() < 4096, "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_pattern_panics(pattern in "\\PC{0,40}") {
            let _ = compile(&pattern, LIMITS);
        }

        #[test]
        fn no_pattern_of_few_characters_panics(pattern in "[\\\\\\[\\](){}?:^a1,Qp&~<>*-]{0,24}") {
            let _ = compile(&pattern, LIMITS);
        }
    }
}
