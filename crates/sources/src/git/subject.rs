//! What a commit is called where it is told of.

use std::borrow::Cow;

/// Characters of it.
const MOST_CHARS: usize = 50;
/// Bytes that hold so many characters and one more, whatever they are.
const MOST_BYTES: usize = 4 * (MOST_CHARS + 1);

/// The first line of a commit's message, for the event of its artifact: `stored artifact for commit '…'`. Of a longer one, as many
/// characters as Flux shows, and `...`. Nothing in it is a control character.
#[must_use]
pub fn subject(message: &[u8]) -> String {
    let line = message.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Of a line of megabytes no more is read than is shown.
    let start: Cow<'_, str> = String::from_utf8_lossy(&line[..line.len().min(MOST_BYTES)]);
    let mut rest = start.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    let mut shown: String = rest.by_ref().take(MOST_CHARS).collect();
    if rest.next().is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::subject;
    use crate::source_cases::{source_cases, tell};

    #[test]
    fn commits_are_called_as_flux_calls_them() {
        let Some(files) = source_cases("subjects of commits") else { return };
        let cases: Value = serde_json::from_slice(&files["revisions.json"]).unwrap();
        let cases = cases["event_subject"].as_array().unwrap();
        for case in cases {
            let (message, shown) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
            assert_eq!(subject(message.as_bytes()), shown);
        }
        tell(format_args!("revisions.json: {} subjects of commits as expected", cases.len()));
    }

    #[test]
    fn what_is_cut_are_characters_and_no_bytes() {
        for c in ['x', 'é', '你', '🌌'] {
            let exact = c.to_string().repeat(50);
            assert_eq!(subject(exact.as_bytes()), exact);
            assert_eq!(subject(format!("{exact}\r\n\nbody").as_bytes()), exact);
            assert_eq!(subject(format!("{exact}{c}").as_bytes()), format!("{exact}..."));
            assert_eq!(subject(c.to_string().repeat(1 << 20).as_bytes()), format!("{exact}..."));
        }
        assert_eq!(subject(b"a\x1b[2Jb\xff"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(subject(b"\ntitle"), "");
    }
}
