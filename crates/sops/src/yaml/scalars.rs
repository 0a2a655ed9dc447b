//! Scalars as they are written: their text, tag and style.
//!
//! go-yaml writes each value twice: alone, and then what it reads of that in its place. A value has the style that the first
//! of these gave it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroize as _;

use super::analyze::Allowed;
use super::resolve::is_text;
use super::scan::Style;

/// A scalar.
pub(super) struct Scalar<'t> {
    pub(super) text: Cow<'t, str>,
    /// With the exclamation marks.
    pub(super) tag: Option<&'static str>,
    pub(super) style: Style,
    pub(super) allowed: Allowed,
}

impl Drop for Scalar<'_> {
    fn drop(&mut self) {
        if let Cow::Owned(text) = &mut self.text {
            text.zeroize();
        }
    }
}

/// A value that is not a string, and is written without quotes.
pub(super) fn plain(text: String) -> Scalar<'static> {
    let allowed = Allowed::of(&text);
    Scalar { text: Cow::Owned(text), tag: None, style: Style::Plain, allowed }
}

/// A text, or bytes that are none.
pub(super) fn of_text(bytes: &[u8]) -> Scalar<'_> {
    let Ok(text) = std::str::from_utf8(bytes) else { return of_bytes(bytes) };
    let allowed = Allowed::of(text);
    let wanted = match () {
        () if text.contains('\n') => Style::Literal,
        () if is_text(text) && !is_base_60(text) && !is_old_bool(text) => Style::Plain,
        () => Style::Double,
    };
    let style = match wanted {
        // Behind a tab no reader would find the indentation, and SOPS itself writes null.
        Style::Literal if allowed.block && !text.starts_with('\t') => Style::Literal,
        Style::Plain if allowed.plain => Style::Plain,
        Style::Plain if allowed.single_quoted => Style::Single,
        _ => Style::Double,
    };
    // Read again without quotes, this is a merge and no text.
    let tag = (style == Style::Plain && text == "<<").then_some("!!merge");
    Scalar { text: Cow::Borrowed(text), tag, style, allowed }
}

/// Base64, in lines of 70 characters where it is longer than that.
fn of_bytes(bytes: &[u8]) -> Scalar<'static> {
    const LINE: usize = 70;
    let mut encoded = STANDARD.encode(bytes);
    let mut text = String::with_capacity(encoded.len() + encoded.len() / LINE + 1);
    let several = encoded.len() >= LINE;
    for line in encoded.as_bytes().chunks(LINE) {
        text.extend(line.iter().copied().map(char::from));
        if several {
            text.push('\n');
        }
    }
    encoded.zeroize();
    let allowed = Allowed::of(&text);
    let style = if several { Style::Literal } else { Style::Plain };
    Scalar { text: Cow::Owned(text), tag: Some("!!binary"), style, allowed }
}

/// What YAML 1.1 reads as a boolean.
fn is_old_bool(text: &str) -> bool {
    matches!(
        text,
        "y" | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "on"
            | "On"
            | "ON"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "off"
            | "Off"
            | "OFF"
    )
}

/// What YAML 1.1 reads as a number to the base 60: `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let mut parts = whole.split(':');
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let first = parts.next().unwrap_or_default();
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !digits(first) || !fraction.is_none_or(digits) {
        return false;
    }
    let mut count = 0;
    let sixties = parts.all(|part| {
        count += 1;
        matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
    });
    sixties && count > 0
}
