//! What a text may be before it is given to the parser: short, and nested no deeper than the parser and all that walks
//! over its result have stack for.
//!
//! The parser descends into a text by recursion, and so does everything after it. Where a text nests is known without
//! parsing it: at brackets, and at operators that take what is before them as their operand (`a.b.c`, `1 + 2 + 3`).
//! This counts both, and counts rather too much than too little.

use crate::error::ParseProblem;

/// The most bytes of an expression.
pub(crate) const MOST_BYTES: usize = 16 << 10;
/// The most brackets within brackets.
const MOST_BRACKETS: usize = 24;
/// The most levels of brackets and operators together.
const MOST_LEVELS: usize = 128;

/// Where a text is at: within how many brackets, and how many operators of each are still open.
#[derive(Default)]
struct Depth {
    /// For each open bracket the operators since its last comma, `&&` or `||`; the first is the text outside of brackets.
    operators: Vec<usize>,
    levels: usize,
}

impl Depth {
    fn operator(&mut self) -> Result<(), ParseProblem> {
        if let Some(last) = self.operators.last_mut() {
            *last += 1;
        }
        self.levels += 1;
        self.check()
    }

    fn open(&mut self) -> Result<(), ParseProblem> {
        self.operator()?;
        self.operators.push(0);
        self.check()
    }

    fn close(&mut self) {
        self.separate();
        // A bracket too many is the parser's to complain about.
        if self.operators.len() > 1 {
            self.operators.pop();
        }
    }

    /// What is after a comma, or after `&&` and `||`, which the parser balances, is beside what was before, not below it.
    fn separate(&mut self) {
        if let Some(last) = self.operators.last_mut() {
            self.levels = self.levels.saturating_sub(std::mem::take(last));
        }
    }

    fn check(&self) -> Result<(), ParseProblem> {
        if self.operators.len() > MOST_BRACKETS + 1 || self.levels > MOST_LEVELS {
            return Err(ParseProblem::TooDeep);
        }
        Ok(())
    }
}

/// Refuses a text that is too long, or nested too deeply.
pub(crate) fn check(text: &str) -> Result<(), ParseProblem> {
    if text.len() > MOST_BYTES {
        return Err(ParseProblem::TooLong { most: MOST_BYTES });
    }
    let mut depth = Depth { operators: vec![0], levels: 0 };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | '[' | '{' => depth.open().map(|()| 1)?,
            ')' | ']' | '}' => {
                depth.close();
                1
            }
            ',' => {
                depth.separate();
                1
            }
            '&' | '|' if rest.starts_with("&&") || rest.starts_with("||") => {
                depth.separate();
                2
            }
            '/' if rest.starts_with("//") => comment(rest)?,
            '\'' | '"' => quoted(rest, false)?,
            // Flux does not have them, and what they may hold is one more thing to agree about with the parser.
            '`' => return Err(ParseProblem::Backtick),
            _ if first.is_ascii_alphabetic() || first == '_' => word(rest, &mut depth)?,
            // The point of a number is counted as an operator, which does no harm.
            _ if first.is_ascii_punctuation() => depth.operator().map(|()| 1)?,
            _ => first.len_utf8(),
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(())
}

/// The length of the comment that a text begins with. Where a lone carriage return leaves it is not left to opinion.
fn comment(text: &str) -> Result<usize, ParseProblem> {
    let line = text.split('\n').next().unwrap_or_default();
    if line.strip_suffix('\r').unwrap_or(line).contains('\r') {
        return Err(ParseProblem::CarriageReturn);
    }
    Ok(line.len())
}

/// The length of the escape sequence that a text begins with. One that there is not ends the string for the parser, and
/// what follows would be read as code.
fn escape(text: &str) -> Result<usize, ParseProblem> {
    let digits = |from: usize, count: usize, radix: u32| {
        let digits = text.as_bytes().get(from..from + count)?;
        digits.iter().all(|&byte| char::from(byte).is_digit(radix)).then_some(from + count)
    };
    match text.as_bytes().get(1) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'\\' | b'?' | b'"' | b'\'' | b'`') => Some(2),
        Some(b'x' | b'X') => digits(2, 2, 16),
        Some(b'u') => digits(2, 4, 16),
        Some(b'U') => digits(2, 8, 16),
        Some(b'0'..=b'3') => digits(2, 2, 8),
        _ => None,
    }
    .ok_or(ParseProblem::Escape)
}

/// The length of the word that a text begins with: a name, the operator `in`, or the prefix of a string with the string.
fn word(text: &str, depth: &mut Depth) -> Result<usize, ParseProblem> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name == "in" {
        depth.operator()?;
    }
    let raw = match name {
        "r" | "R" | "br" | "bR" | "Br" | "BR" => true,
        "b" | "B" => false,
        _ => return Ok(end),
    };
    if rest.starts_with(['\'', '"']) { Ok(end + quoted(rest, raw)?) } else { Ok(end) }
}

/// The length of the string that a text begins with.
fn quoted(text: &str, raw: bool) -> Result<usize, ParseProblem> {
    let quote = &text[..1];
    let triple = text.len() >= 3 && text.starts_with(&quote.repeat(3));
    let end = if triple { quote.repeat(3) } else { quote.to_owned() };
    let mut at = end.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(&end) {
            return Ok(at + end.len());
        }
        match c {
            '\\' if !raw => at += escape(&text[at..])?,
            '\n' | '\r' if !triple => return Err(ParseProblem::Unterminated),
            _ => at += c.len_utf8(),
        }
    }
    Err(ParseProblem::Unterminated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_nest_too_deeply() {
        for text in [
            "(",
            "[",
            "{",
            "f(",
            "a[",
            "a.all(x, ",
            "{1:",
            "!",
            "-",
            "a?b:",
            "a.b",
            "1+",
            "a==",
            ".b",
            "!-",
            "a in ",
        ] {
            let long = text.repeat(100_000);
            assert!(matches!(check(&long), Err(ParseProblem::TooLong { .. })), "{text}");
            let deep = text.repeat(160);
            assert!(matches!(check(&deep), Err(ParseProblem::TooDeep)), "{text}");
        }
    }

    #[test]
    fn texts_that_are_long_and_not_deep() {
        for text in
            ["1, ", "a.b.c == 'x' && ", "a || ", "'(((', ", "(a), ", "'\\'((((((', r'\\', ", "// ((((\n"]
        {
            let long = text.repeat(MOST_BYTES / text.len());
            assert!(check(&long).is_ok(), "{text}");
        }
    }

    #[test]
    fn brackets_in_strings_do_not_count_and_those_after_do() {
        let deep = "(".repeat(200);
        for ok in [
            format!("'{deep}'"),
            format!("\"\"\"{deep}\n'\"\"\""),
            format!("r'{deep}\\'"),
            format!("br\"{deep}\""),
        ] {
            assert!(check(&ok).is_ok(), "{ok}");
            assert!(check(&format!("{ok}{deep}")).is_err(), "{ok}");
        }
        // Not raw: the prefix is the end of a longer name.
        assert!(check(&format!("or'\\'{deep}'")).is_ok());
        assert!(check(&format!("rb'\\''{deep}'")).is_err());
        for bad in ["'a\nb'", "'a", "'''a''", "`a`", "'\\q'", "'\\x1'", "'\\400'", "'\\", "//\r'''\n"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check("// it's (\r\n'\\x41\\u0041\\U00000041\\101\\n'").is_ok());
    }
}
