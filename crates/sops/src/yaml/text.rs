//! From bytes to characters, of those that YAML has.

use crate::error::Error;
use crate::format::Tally;

/// The text of a file in UTF-8, or in UTF-16 with a byte order mark.
pub(super) fn decode(file: &[u8], tally: &Tally<'_>) -> Result<String, Error> {
    let text = match file {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(file.to_vec()).ok(),
    };
    let text = text.ok_or_else(|| tally.malformed("not valid UTF-8 or UTF-16"))?;
    let mut line = 1;
    for c in text.chars() {
        line += usize::from(c == '\n');
        if !is_allowed(c) {
            return Err(tally.malformed(format!("line {line}: control characters are not allowed")));
        }
    }
    Ok(text)
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair))).collect::<Result<_, _>>().ok()
}

fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}
