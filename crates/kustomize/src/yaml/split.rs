//! A file as texts that are read apart.

use super::read::ReadError;
use crate::run::{self, Bytes};

/// A part of a text, with the lines before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'t> {
    pub(super) text: &'t str,
    pub(super) line: usize,
}

/// The text that bytes are: UTF-8 without characters that YAML does not have.
pub(super) fn text(bytes: &[u8]) -> Result<&str, ReadError> {
    let error = |at: usize, message: &str| {
        let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
        Err(ReadError { line, message: message.into() })
    };
    let text = match simdutf8::compat::from_utf8(bytes) {
        Ok(text) => text,
        Err(wrong) => return error(wrong.valid_up_to(), "not valid UTF-8"),
    };
    if let Some(at) = control_character(bytes) {
        return error(at, "control characters are not allowed");
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The first character that YAML does not have.
fn control_character(bytes: &[u8]) -> Option<usize> {
    const SUSPECT: Bytes<5, 2> = Bytes([0x0b, 0x0c, 0x7f, 0xc2, 0xef], [(0, 8), (0x0e, 0x1f)]);
    let mut from = 0;
    loop {
        let at = from + run::len(&bytes[from..], &SUSPECT);
        if at == bytes.len() {
            return None;
        }
        let wrong = match bytes[at] {
            0xc2 => matches!(bytes.get(at + 1), Some(0x80..=0x84 | 0x86..=0x9f)),
            0xef => matches!(bytes.get(at + 1..at + 3), Some([0xbf, 0xbe | 0xbf])),
            _ => true,
        };
        if wrong {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The parts between lines that start with `---`, as kustomize takes a file of objects apart before it reads any.
pub(super) fn parts(text: &str) -> impl Iterator<Item = Result<Part<'_>, ReadError>> {
    let mut left = Some(Part { text, line: 0 });
    std::iter::from_fn(move || {
        let Part { text, line } = left.take()?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((end, next)) = separator(text) else { return Some(Ok(Part { text, line })) };
        let lines = text[..end].bytes().filter(|b| *b == b'\n').count();
        let said = text[end + 3..next].trim();
        if !said.is_empty() && !said.starts_with('#') {
            return Some(Err(ReadError {
                line: line + lines + 1,
                message: "invalid document separator".into(),
            }));
        }
        left = Some(Part { text: &text[next..], line: line + lines + 1 });
        Some(Ok(Part { text: &text[..end], line }))
    })
}

/// Where the first line begins that separates, and where it ends.
fn separator(text: &str) -> Option<(usize, usize)> {
    let at = text.find("\n---")? + 1;
    // The last line separates nothing from nothing if it has no end.
    let end = text[at..].find('\n')?;
    Some((at, at + end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_parted() {
        let all = |text| parts(text).map(|part| part.map(|part| (part.text, part.line))).collect::<Vec<_>>();
        assert_eq!(all("a\n---\nb\n--- # c\nd"), [Ok(("a\n", 0)), Ok(("b\n", 2)), Ok(("d", 4))]);
        assert_eq!(all("---\na\n---\n---\nb\n---"), [Ok(("---\na\n", 0)), Ok(("---\nb\n---", 3))]);
        assert_eq!(all("a\r\n---\r\nb"), [Ok(("a\r\n", 0)), Ok(("b", 2))]);
        assert!(all("a\n--- b\nc")[0].is_err());
        assert!(all("a\n----\nc")[0].is_err());
    }

    #[test]
    fn characters_that_are_refused() {
        for (bytes, line) in [(&b"a\nb\0"[..], 2), (b"a\x7f", 1), ("\u{81}".as_bytes(), 1), (b"\xff", 1)] {
            assert_eq!(text(bytes).unwrap_err().line, line, "{bytes:?}");
        }
        assert_eq!(text("\u{feff}\t\u{85}\u{a0}é\r\n".as_bytes()).unwrap(), "\t\u{85}\u{a0}é\r\n");
    }
}
