//! Regular expressions as Go writes them (RE2), for the `regex` crate.
//!
//! The two are nearly the same language. Where they differ, a pattern is rewritten to mean what it means in Go, or refused:
//! `\d`, `\w`, `\s` and `\b` know ASCII only; a brace that begins no repetition and a bracket within brackets stand for
//! themselves; `&&`, `--` and `~~` within brackets are plain characters; `\<` is a `<`; `\Q…\E` quotes.

use regex::{Regex, RegexBuilder};

/// The most repetitions that Go takes.
const MOST_REPEATS: u32 = 1000;
/// How much of a pattern a message shows, in characters.
const MOST_SHOWN: usize = 512;

/// Why a text is not a regular expression. The messages are at most a few kilobytes long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Compiled, it takes more memory than it may.
    #[error("the regular expression '{pattern}' is too large")]
    TooLarge {
        /// The pattern, shortened where it is long.
        pattern: String,
    },
    /// It has something that is not valid, or that is not supported.
    #[error("error parsing regexp: {problem}: '{pattern}'")]
    Invalid {
        /// The pattern, shortened where it is long.
        pattern: String,
        /// What is wrong.
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
/// The text is not a regular expression in Go's syntax, uses what is not supported (`\C`, `\B`, octal numbers), or is too large.
pub fn compile(pattern: &str, limits: Limits) -> Result<Regex, PatternError> {
    /// Of nested groups.
    const MOST_NESTING: u32 = 100;
    let built = RegexBuilder::new(&translated(pattern)?)
        .size_limit(limits.program)
        .dfa_size_limit(limits.tables)
        .nest_limit(MOST_NESTING)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooLarge { pattern: shown(pattern) },
        other => {
            // The last line of the library's message says what is wrong; those before it draw the place.
            let message = other.to_string();
            let problem = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            invalid(pattern, problem)
        }
    })
}

fn shown(pattern: &str) -> String {
    match pattern.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

fn invalid(pattern: &str, problem: &str) -> PatternError {
    PatternError::Invalid { pattern: shown(pattern), problem: problem.chars().take(200).collect() }
}

/// A pattern of Go's, in the words of the `regex` crate.
fn translated(pattern: &str) -> Result<String, PatternError> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\\' => escape(rest, false, &mut out),
            '[' => class(rest, &mut out),
            '(' if rest.starts_with("(?") => group(rest, &mut out),
            '{' => repetition(rest, &mut out),
            c => {
                out.push(c);
                Ok(c.len_utf8())
            }
        }
        .map_err(|problem| invalid(pattern, problem))?;
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(out)
}

/// What begins with a backslash, within brackets or not; gives its length.
fn escape(text: &str, in_class: bool, out: &mut String) -> Result<usize, &'static str> {
    const UNSUPPORTED: &str = "invalid or unsupported escape sequence";
    let Some(c) = text[1..].chars().next() else { return Err("trailing backslash at end of expression") };
    match c {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str(r"[\t\n\f\r ]"),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'a' | 'f' | 'n' | 'r' | 't' | 'v' => out.extend(['\\', c]),
        'p' | 'P' | 'x' => return Ok(long_escape(text, out)),
        'b' if !in_class => out.push_str(r"(?-u:\b)"),
        'A' | 'z' if !in_class => out.extend(['\\', c]),
        'Q' if !in_class => {
            let quoted = text[2..].split(r"\E").next().unwrap_or_default();
            out.push_str(&regex::escape(quoted));
            return Ok((2 + quoted.len() + 2).min(text.len()));
        }
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => literal(c, out),
        _ => return Err(UNSUPPORTED),
    }
    Ok(2)
}

/// `\pL`, `\p{Greek}`, `\x41` and `\x{41}`, which the library checks.
fn long_escape(text: &str, out: &mut String) -> usize {
    let end = match text.as_bytes().get(2) {
        Some(b'{') => text.find('}').map_or(text.len(), |end| end + 1),
        _ => text.char_indices().nth(3).map_or(text.len(), |(end, _)| end),
    };
    out.push_str(&text[..end]);
    end
}

/// A character that stands for itself.
fn literal(c: char, out: &mut String) {
    if "\\.+*?()|[]{}^$#&-~".contains(c) {
        out.push('\\');
    }
    out.push(c);
}

/// What is in brackets.
fn class(text: &str, out: &mut String) -> Result<usize, &'static str> {
    out.push('[');
    let mut at = 1;
    if text[at..].starts_with('^') {
        out.push('^');
        at += 1;
    }
    let first = at;
    while let Some(c) = text[at..].chars().next() {
        match c {
            ']' if at > first => {
                out.push(']');
                return Ok(at + 1);
            }
            '\\' => {
                at += escape(&text[at..], true, out)?;
                continue;
            }
            '[' if text[at..].starts_with("[:") && text[at + 2..].contains(":]") => {
                let name = text[at..].split_inclusive(":]").next().unwrap_or_default();
                out.push_str(name);
                at += name.len();
                continue;
            }
            '-' if text[at + 1..].starts_with('-') => {
                return Err("two hyphens in brackets are not supported");
            }
            // What makes a range, or stands for itself at an end: the library has the same rule.
            '-' => out.push('-'),
            c => literal(c, out),
        }
        at += c.len_utf8();
    }
    Err("missing closing ]")
}

/// What begins with `(?`: of the flags, only those that Go has.
fn group(text: &str, out: &mut String) -> Result<usize, &'static str> {
    let after = &text[2..];
    let end = match after.chars().next() {
        Some('P' | '<') => 2,
        _ => {
            let flags = after.find([':', ')']).ok_or("missing argument to (?")?;
            if !after[..flags].chars().all(|flag| "imsU-".contains(flag)) {
                return Err("invalid or unsupported Perl syntax");
            }
            2 + flags
        }
    };
    out.push_str(&text[..end]);
    Ok(end)
}

/// A brace, which begins a repetition or stands for itself.
fn repetition(text: &str, out: &mut String) -> Result<usize, &'static str> {
    let inner = text[1..].split_once('}').map(|(inner, _)| inner);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let bounds = inner.map(|inner| inner.split_once(',').unwrap_or((inner, "")));
    let (Some(inner), Some((least, most))) = (inner, bounds) else {
        out.push_str(r"\{");
        return Ok(1);
    };
    if least.is_empty() || !digits(least) || !digits(most) {
        out.push_str(r"\{");
        return Ok(1);
    }
    let fits = |number: &str| number.is_empty() || number.parse::<u32>().is_ok_and(|n| n <= MOST_REPEATS);
    if !fits(least) || !fits(most) {
        return Err("invalid repeat count");
    }
    out.push_str(&text[..inner.len() + 2]);
    Ok(inner.len() + 2)
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
            assert!(compile(pattern, LIMITS).is_err(), "{pattern}");
        }
    }

    #[test]
    fn patterns_are_bounded() {
        assert!(matches!(compile("((a{100}){100}){100}", LIMITS), Err(PatternError::TooLarge { .. })));
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
