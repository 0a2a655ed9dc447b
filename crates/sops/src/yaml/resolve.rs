//! What a scalar means: the rules of go-yaml 3 where nothing says what is wanted.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::parse::CORE;
use super::scan::Style;
use crate::number::parse_float;
use crate::time::Time;
use crate::tree::{Text, Value};

/// The meaning of a scalar.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    Value(Value),
    /// An integer that SOPS cannot take.
    TooLarge,
    /// It is not what its tag says.
    NotAsTagged,
}

/// Why a scalar without quotes is what it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plain {
    Text,
    Null,
    Bool(bool),
    Int(i64),
    Unsigned,
    Float(f64),
    Time(Time),
}

/// Is a text without quotes read as a text?
pub(super) fn is_text(text: &str) -> bool {
    plain(text, true) == Plain::Text
}

/// Reads a scalar.
pub(super) fn scalar(text: &str, style: Style, tag: Option<&str>) -> Meaning {
    let as_text = || Meaning::Value(Value::text(text));
    let tag = tag.filter(|tag| *tag != "!");
    let Some(tag) = tag else {
        return if style == Style::Plain { meaning(plain(text, true), text) } else { as_text() };
    };
    match tag.strip_prefix(CORE) {
        Some("binary") => binary(text),
        Some("int") => match plain(text, false) {
            value @ (Plain::Int(_) | Plain::Unsigned) => meaning(value, text),
            _ => Meaning::NotAsTagged,
        },
        Some("float") => match plain(text, false) {
            Plain::Float(number) => Meaning::Value(Value::Float(number)),
            Plain::Int(number) => Meaning::Value(Value::Float(number as f64)),
            _ => Meaning::NotAsTagged,
        },
        Some("bool") => match plain(text, false) {
            Plain::Bool(flag) => Meaning::Value(Value::Bool(flag)),
            _ => Meaning::NotAsTagged,
        },
        Some("null") => match plain(text, false) {
            Plain::Null => Meaning::Value(Value::Null),
            _ => Meaning::NotAsTagged,
        },
        Some("timestamp") => match plain(text, true) {
            Plain::Time(time) => Meaning::Value(Value::Time(time)),
            _ => Meaning::NotAsTagged,
        },
        // A text, or something that nobody knows, which is taken as it stands.
        _ => as_text(),
    }
}

fn meaning(plain: Plain, text: &str) -> Meaning {
    Meaning::Value(match plain {
        Plain::Text => Value::text(text),
        Plain::Null => Value::Null,
        Plain::Bool(flag) => Value::Bool(flag),
        Plain::Int(number) => Value::Int(number),
        Plain::Unsigned => return Meaning::TooLarge,
        Plain::Float(number) => Value::Float(number),
        Plain::Time(time) => Value::Time(time),
    })
}

/// As Go decodes it: line breaks do not count.
fn binary(text: &str) -> Meaning {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    ENGINE.decode(text).map_or(Meaning::NotAsTagged, |bytes| Meaning::Value(Value::Text(Text::new(bytes))))
}

/// `times`: may it be a timestamp?
fn plain(text: &str, times: bool) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Bool(true),
        "false" | "False" | "FALSE" => return Plain::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Plain::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Plain::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Plain::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'.') => parse_float(text).map_or(Plain::Text, Plain::Float),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let time = if times { Time::yaml(text) } else { None };
            time.map_or_else(|| number(text), Plain::Time)
        }
        _ => Plain::Text,
    }
}

fn number(text: &str) -> Plain {
    let text = text.replace('_', "");
    if let Some(number) = integer(&text) {
        return number;
    }
    if is_float(&text)
        && let Some(number) = parse_float(&text)
    {
        return Plain::Float(number);
    }
    // A sign between prefix and digits is an accident of the way go-yaml reads these.
    for (prefix, radix) in [("0b", 2), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return i64::from_str_radix(digits, radix).map_or(Plain::Text, Plain::Int);
        }
    }
    Plain::Text
}

/// An integer as Go's `strconv` reads it with base 0: prefixes `0x`, `0o`, `0b`, and `0` for octal.
fn integer(text: &str) -> Option<Plain> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, digits.get(2..)?),
        Some("0o") => (8, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        Some(_) if digits.starts_with('0') => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return i64::try_from(-i128::from(number)).ok().map(Plain::Int);
    }
    match i64::try_from(number) {
        Ok(number) => Some(Plain::Int(number)),
        // Only a number without a sign may pass the signed range.
        Err(_) if text.starts_with('+') => None,
        Err(_) => Some(Plain::Unsigned),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    let mantissa_fits = digits(whole)
        && fraction.is_none_or(digits)
        && (!whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty()));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    mantissa_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars() {
        let cases = [
            ("0x10", Plain::Int(16)),
            ("0o17", Plain::Int(15)),
            ("017", Plain::Int(15)),
            ("08", Plain::Float(8.0)),
            ("0b101", Plain::Int(5)),
            ("-0b101", Plain::Int(-5)),
            ("1_000", Plain::Int(1000)),
            ("+1", Plain::Int(1)),
            ("-9223372036854775808", Plain::Int(i64::MIN)),
            ("9223372036854775808", Plain::Unsigned),
            ("18446744073709551616", Plain::Float(18_446_744_073_709_551_616.0)),
            ("1e3", Plain::Float(1000.0)),
            (".5", Plain::Float(0.5)),
            ("1.", Plain::Float(1.0)),
            ("yes", Plain::Text),
            ("<<", Plain::Text),
            (".", Plain::Text),
            ("-", Plain::Text),
            ("1e", Plain::Text),
            ("0x", Plain::Text),
            ("12:30:45", Plain::Text),
            ("", Plain::Null),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text, true), expected, "{text}");
        }
        assert!(matches!(plain("2001-12-14", true), Plain::Time(_)));
        assert_eq!(plain("2001-12-14", false), Plain::Text);
    }

    #[test]
    fn tags() {
        let tag = |name: &str| Some(format!("{CORE}{name}"));
        let read = |text, style, name| scalar(text, style, tag(name).as_deref());
        assert_eq!(read("5", Style::Plain, "str"), Meaning::Value(Value::text("5")));
        assert_eq!(read("5", Style::Double, "int"), Meaning::Value(Value::Int(5)));
        assert_eq!(read("5", Style::Plain, "float"), Meaning::Value(Value::Float(5.0)));
        assert_eq!(read("aGk=", Style::Plain, "binary"), Meaning::Value(Value::text("hi")));
        assert_eq!(read("x", Style::Plain, "int"), Meaning::NotAsTagged);
        assert_eq!(read("%", Style::Plain, "binary"), Meaning::NotAsTagged);
        assert_eq!(scalar("5", Style::Plain, Some("!x")), Meaning::Value(Value::text("5")));
        assert_eq!(scalar("5", Style::Plain, Some("!")), Meaning::Value(Value::Int(5)));
    }
}
