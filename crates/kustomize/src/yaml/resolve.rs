//! What a plain scalar means: the rules of go-yaml 2 and 3, which are neither YAML 1.1 nor 1.2.

use super::read::Dialect;
use crate::value::{NullForm, Num, Number, Value};

/// The meaning of a plain, untagged scalar.
pub(super) enum Plain {
    /// A value.
    Value(Value),
    /// A date, in RFC 3339 once it has passed through JSON.
    Timestamp(String),
    /// `.inf` and `.nan`, which JSON does not have.
    NotFinite,
    /// `<<`.
    Merge,
    /// Nothing special: text.
    Text,
}

/// Resolves a plain scalar.
pub(super) fn resolve(text: &str, dialect: Dialect) -> Plain {
    let Some(first) = text.bytes().next() else {
        return Plain::Value(Value::Null(NullForm::Empty));
    };
    match first {
        b'+' | b'-' | b'0'..=b'9' => {
            if matches!(text, "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF") {
                return Plain::NotFinite;
            }
            if let Some(date) = timestamp(text) {
                return Plain::Timestamp(date);
            }
            number(text, dialect)
        }
        b'.' => match text {
            ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => Plain::NotFinite,
            _ => match text.parse::<f64>() {
                Ok(f) if f.is_finite() => plain_number(text, Num::Float(f)),
                _ => Plain::Text,
            },
        },
        b'~' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'y' | b'Y' | b'o' | b'O' => word(text, dialect),
        b'<' if text == "<<" => Plain::Merge,
        _ => Plain::Text,
    }
}

/// Is a text without quotes text in an object?
pub(crate) fn is_text(text: &str) -> bool {
    matches!(resolve(text, Dialect::Object), Plain::Text)
}

fn word(text: &str, dialect: Dialect) -> Plain {
    match text {
        "null" => Plain::Value(Value::Null(NullForm::Written)),
        "~" => Plain::Value(Value::Null(NullForm::Tilde)),
        "Null" => Plain::Value(Value::Null(NullForm::Title)),
        "NULL" => Plain::Value(Value::Null(NullForm::Upper)),
        "true" | "True" | "TRUE" => Plain::Value(Value::Bool(true)),
        "false" | "False" | "FALSE" => Plain::Value(Value::Bool(false)),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if dialect == Dialect::Kustomization => {
            Plain::Value(Value::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if dialect == Dialect::Kustomization => {
            Plain::Value(Value::Bool(false))
        }
        _ => Plain::Text,
    }
}

fn plain_number(text: &str, num: Num) -> Plain {
    Plain::Value(Value::Number(Number { text: text.into(), num }))
}

fn number(text: &str, dialect: Dialect) -> Plain {
    let stripped;
    let plain = if text.contains('_') {
        stripped = text.replace('_', "");
        stripped.as_str()
    } else {
        text
    };
    if let Some(num) = integer(plain) {
        return plain_number(text, num);
    }
    if is_float(plain) {
        return match plain.parse::<f64>() {
            Ok(f) if f.is_finite() => plain_number(text, Num::Float(f)),
            // Out of range for a float: go-yaml takes it for text.
            _ => Plain::Text,
        };
    }
    // A sign after the prefix is an accident of go-yaml's way of parsing; both prefixes are handled by `integer` else.
    let signed = |prefix: &str, radix| {
        plain.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok())
    };
    if let Some(i) = signed("0b", 2) {
        return plain_number(text, Num::Int(i));
    }
    if dialect != Dialect::Kustomization
        && let Some(i) = signed("0o", 8)
    {
        return plain_number(text, Num::Int(i));
    }
    Plain::Text
}

/// An integer as Go's `strconv` reads it with base 0: prefixes `0x`, `0o`, `0b`, and `0` for octal.
fn integer(text: &str) -> Option<Num> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return (value <= 1 << 63).then(|| Num::Int((value as i64).wrapping_neg()));
    }
    // Only a number without a sign may pass the signed range.
    match i64::try_from(value) {
        Ok(i) => Some(Num::Int(i)),
        Err(_) if text.starts_with('+') => None,
        Err(_) => Some(Num::Uint(value)),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(rest);
    rest = &rest[whole..];
    if let Some(after) = rest.strip_prefix('.') {
        let fraction = digits(after);
        if whole == 0 && fraction == 0 {
            return false;
        }
        rest = &after[fraction..];
    } else if whole == 0 {
        return false;
    }
    if let Some(after) = rest.strip_prefix(['e', 'E']) {
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        let exponent = digits(after);
        return exponent > 0 && exponent == after.len();
    }
    rest.is_empty()
}

/// Takes one or two digits (or exactly `max` where `min == max`).
fn take(text: &mut &str, min: usize, max: usize) -> Option<u32> {
    let n = text.bytes().take(max).take_while(u8::is_ascii_digit).count();
    if n < min {
        return None;
    }
    let (digits, rest) = text.split_at(n);
    *text = rest;
    digits.parse().ok()
}

fn skip(text: &mut &str, c: char) -> Option<()> {
    *text = text.strip_prefix(c)?;
    Some(())
}

/// A timestamp in the forms that go-yaml knows, as RFC 3339.
fn timestamp(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[4] != b'-' || !bytes[..4].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut rest = text;
    let year = take(&mut rest, 4, 4)?;
    skip(&mut rest, '-')?;
    let month = take(&mut rest, 1, 2)?;
    skip(&mut rest, '-')?;
    let day = take(&mut rest, 1, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if day == 0 || day > days {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    let Some(separator) = rest.chars().next() else {
        return Some(format!("{date}T00:00:00Z"));
    };
    if !matches!(separator, 'T' | 't' | ' ') {
        return None;
    }
    rest = &rest[1..];
    let hour = take(&mut rest, 1, 2)?;
    skip(&mut rest, ':')?;
    let minute = take(&mut rest, 1, 2)?;
    skip(&mut rest, ':')?;
    let second = take(&mut rest, 1, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut fraction = String::new();
    if let Some(after) = rest.strip_prefix('.') {
        let n = after.bytes().take_while(u8::is_ascii_digit).count();
        if n == 0 {
            return None;
        }
        fraction = after[..n.min(9)].trim_end_matches('0').to_owned();
        rest = &after[n..];
    }
    let zone = if separator == ' ' {
        rest.is_empty().then(|| "Z".to_owned())?
    } else if rest == "Z" {
        "Z".to_owned()
    } else {
        zone(rest)?
    };
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}{dot}{fraction}{zone}"))
}

fn zone(text: &str) -> Option<String> {
    let (sign, mut rest) = (text.chars().next().filter(|c| matches!(c, '+' | '-'))?, &text[1..]);
    let hours = take(&mut rest, 2, 2)?;
    skip(&mut rest, ':')?;
    let minutes = take(&mut rest, 2, 2)?;
    if !rest.is_empty() || hours > 24 || minutes > 59 {
        return None;
    }
    Some(if hours == 0 && minutes == 0 { "Z".to_owned() } else { format!("{sign}{hours:02}:{minutes:02}") })
}

/// Would go-yaml 2 read this text back as text, if it were written plain?
pub(super) fn plain_is_text(text: &str) -> bool {
    let Some(first) = text.bytes().next() else {
        return false;
    };
    if !matches!(
        first,
        b'+' | b'-' | b'.' | b'0'
            ..=b'9' | b'~' | b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O'
    ) {
        return true;
    }
    matches!(resolve(text, Dialect::Kustomization), Plain::Text) && !is_base60(text)
}

/// Is a text something else by the rules of YAML 1.1, as go-yaml 2 has them?
pub(crate) fn is_other_in_1_1(text: &str) -> bool {
    !matches!(resolve(text, Dialect::Kustomization), Plain::Text | Plain::Merge)
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base60(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = rest.split(':');
    let Some(head) = parts.next() else { return false };
    if !head.starts_with(|c: char| c.is_ascii_digit())
        || !head.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        return false;
    }
    let mut parts = parts.peekable();
    let mut seen = false;
    while let Some(part) = parts.next() {
        let part = match (parts.peek(), part.split_once('.')) {
            (None, Some((whole, fraction))) => {
                if !fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
                    return false;
                }
                whole
            }
            _ => part,
        };
        let ok = match part.as_bytes() {
            [d] => d.is_ascii_digit(),
            [a, b] => (b'0'..=b'5').contains(a) && b.is_ascii_digit(),
            _ => false,
        };
        if !ok {
            return false;
        }
        seen = true;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> String {
        match resolve(text, Dialect::Object) {
            Plain::Value(value) => value.to_json().to_string(),
            Plain::Timestamp(text) => format!("date {text}"),
            Plain::NotFinite => "not finite".into(),
            Plain::Merge => "merge".into(),
            Plain::Text => "text".into(),
        }
    }

    #[test]
    fn scalars_of_objects() {
        for (text, want) in [
            ("yes", "text"),
            ("y", "text"),
            ("True", "true"),
            ("012", "10"),
            ("08", "8"),
            ("0o17", "15"),
            ("0x1F", "31"),
            ("0b11", "3"),
            ("1_000", "1000"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("1.5", "1.5"),
            (".5", "0.5"),
            ("-0", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.2.3", "text"),
            ("2020-01-02", "date 2020-01-02T00:00:00Z"),
            ("2020-1-2T3:4:5.60Z", "date 2020-01-02T03:04:05.6Z"),
            ("2020-01-02 03:04:05", "date 2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05+02:00", "date 2020-01-02T03:04:05+02:00"),
            ("2020-13-02", "text"),
            (".inf", "not finite"),
            ("~", "null"),
            ("<<", "merge"),
            ("-", "text"),
            ("+", "text"),
            ("0x", "text"),
        ] {
            assert_eq!(object(text), want, "{text}");
        }
    }

    #[test]
    fn what_must_be_quoted() {
        for text in ["y", "on", "1", "1.5", "null", "", "~", "1:20", "12:30:45.5", "2020-01-01", "0o7", ".5"]
        {
            assert!(!plain_is_text(text), "{text}");
        }
        for text in ["yep", "1.2.3", "a:b", "1:60", "12h", "-x", "0xg", "Nope", "v1", "<<"] {
            assert!(plain_is_text(text), "{text}");
        }
    }
}
