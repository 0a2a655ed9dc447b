//! Numbers as Go's `strconv` writes and reads them.

/// The digits of a number that is neither infinite nor not a number, and where the point is in them.
struct Decimal {
    negative: bool,
    digits: String,
    /// How many digits stand before the point.
    point: i32,
}

/// The fewest digits that are read back as the same number.
fn decimal(number: f64) -> Decimal {
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa.replace('.', "");
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    Decimal { negative: number.is_sign_negative(), digits, point }
}

/// `NaN`, `+Inf` or `-Inf`, for what is one of these.
fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        _ if number.is_finite() => None,
        _ if number > 0.0 => Some("+Inf"),
        _ => Some("-Inf"),
    }
}

/// Without an exponent, whatever the size.
pub(crate) fn plain(number: f64) -> String {
    special(number).map_or_else(|| format!("{number}"), str::to_owned)
}

/// With an exponent where the number is below 0.0001, or a million and more; `e` is its letter.
pub(crate) fn general(number: f64, e: char) -> String {
    if let Some(text) = special(number) {
        return text.to_owned();
    }
    let exponent = if number == 0.0 { 0 } else { decimal(number).point - 1 };
    if (-4..6).contains(&exponent) { plain(number) } else { scientific(number, e, 2) }
}

/// As `encoding/json` writes it.
pub(crate) fn json(number: f64) -> Option<String> {
    if !number.is_finite() {
        return None;
    }
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        return Some(scientific(number, 'e', 1));
    }
    Some(plain(number))
}

/// As a variable or in an INI file: what would look like an integer gets a point.
pub(crate) fn variable(number: f64) -> String {
    let text = general(number, 'G').replace('G', "E");
    let looks_whole = text.strip_prefix('-').unwrap_or(&text).bytes().all(|byte| byte.is_ascii_digit());
    if looks_whole { text + ".0" } else { text }
}

fn scientific(number: f64, e: char, exponent_digits: usize) -> String {
    let Decimal { negative, digits, point } = decimal(number);
    let sign = if negative { "-" } else { "" };
    let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
    let dot = if rest.is_empty() { "" } else { "." };
    let exponent = point - 1;
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{dot}{rest}{e}{exponent_sign}{:0exponent_digits$}", exponent.abs())
}

/// Reads a float: decimal or hexadecimal, with underscores between digits, or the name of one that is not finite. Nothing
/// where it is not one or is out of range.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let (sign, bare) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    if bare.eq_ignore_ascii_case("inf") || bare.eq_ignore_ascii_case("infinity") {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let hex = bare.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
    if !underscores_fit(bare, hex) {
        return None;
    }
    let bare = bare.replace('_', "");
    let number = if hex { hexadecimal(bare.get(2..)?)? } else { decimal_float(&bare)? };
    number.is_finite().then_some(sign * number)
}

/// An underscore stands between digits, or between a prefix and a digit.
fn underscores_fit(text: &str, hex: bool) -> bool {
    let bytes = text.as_bytes();
    let is_digit =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_digit() || hex && byte.is_ascii_hexdigit());
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let after_prefix = hex && at == 2;
        let before = after_prefix || at > 0 && is_digit(bytes.get(at - 1));
        before && is_digit(bytes.get(at + 1))
    })
}

fn decimal_float(text: &str) -> Option<f64> {
    // Rust reads what Go reads, and names that were looked at before.
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    begins.then(|| text.parse().ok()).flatten()
}

/// A mantissa in hexadecimal and a power of two, which has to be there.
fn hexadecimal(text: &str) -> Option<f64> {
    /// More digits than this say nothing that a float could hold.
    const MOST: usize = 64;
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.len() + fraction.len();
    let valid = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits == 0 || digits > MOST || !valid(whole) || !valid(fraction) {
        return None;
    }
    let exponent_digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if exponent_digits.is_empty() || !exponent_digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    // The first 30 digits and one bit for what is behind them: rounding to 53 bits then is as exact as it can be.
    let mut value: u128 = 0;
    let mut dropped = 0;
    for digit in whole.chars().chain(fraction.chars()).filter_map(|digit| digit.to_digit(16)) {
        if value >> 120 == 0 {
            value = value << 4 | u128::from(digit);
        } else {
            value |= u128::from(digit != 0);
            dropped += 4;
        }
    }
    scale(value, exponent.checked_add(dropped)?)
}

/// `value` times two to the `exponent`, rounded once.
fn scale(value: u128, exponent: i32) -> Option<f64> {
    if value == 0 {
        return Some(0.0);
    }
    let bits = 128 - i32::try_from(value.leading_zeros()).ok()?;
    // The place of the last bit that a float of this size can hold.
    let last = (bits.checked_add(exponent)? - 53).max(-1074);
    let shift = last.checked_sub(exponent)?;
    let kept = if shift <= 0 {
        value
    } else if shift > 127 {
        0
    } else {
        let half = 1_u128 << (shift - 1);
        let (kept, rest) = (value >> shift, value & ((half << 1) - 1));
        kept + u128::from(rest > half || rest == half && kept & 1 == 1)
    };
    let place = if shift <= 0 { exponent } else { last };
    // Exact: it has 53 bits at most, or is smaller than that by `shift`.
    let number = kept as f64 * 2_f64.powi(place.max(-1000)) * 2_f64.powi((place + 1000).min(0));
    number.is_finite().then_some(number)
}

/// An integer as `strconv.ParseInt` reads it with base 0: `0x`, `0o` and `0b` in either case, `0` alone for octal, and `_` between digits or
/// behind a prefix.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, unsigned.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, unsigned.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, unsigned.get(2..)?),
        [b'0', _, ..] => (8, unsigned.get(1..)?),
        _ => (10, unsigned),
    };
    // A prefix is as good as a digit before an underscore.
    let mut may_follow = radix != 10;
    for byte in digits.bytes() {
        if byte == b'_' && !may_follow {
            return None;
        }
        may_follow = byte != b'_';
    }
    let digits = digits.replace('_', "");
    // A sign is none of the digits.
    if !may_follow || !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let number = i128::from(u64::from_str_radix(&digits, radix).ok()?);
    i64::try_from(if negative { -number } else { number }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_writes_them() {
        let cases = [
            (1.0, "1", "1", "1", "1.0"),
            (-0.0, "-0", "-0", "-0", "-0.0"),
            (2.5, "2.5", "2.5", "2.5", "2.5"),
            (1e6, "1000000", "1e+06", "1000000", "1E+06"),
            (999_999.5, "999999.5", "999999.5", "999999.5", "999999.5"),
            (1_234_567.0, "1234567", "1.234567e+06", "1234567", "1.234567E+06"),
            (123_456.0, "123456", "123456", "123456", "123456.0"),
            (0.0001, "0.0001", "0.0001", "0.0001", "0.0001"),
            (0.00001, "0.00001", "1e-05", "0.00001", "1E-05"),
            (1e-7, "0.0000001", "1e-07", "1e-7", "1E-07"),
            (1e21, "1000000000000000000000", "1e+21", "1e+21", "1E+21"),
            (-1.5e300, "", "-1.5e+300", "-1.5e+300", "-1.5E+300"),
        ];
        for (number, as_plain, as_general, as_json, as_variable) in cases {
            if !as_plain.is_empty() {
                assert_eq!(plain(number), as_plain);
            }
            assert_eq!(general(number, 'e'), as_general);
            assert_eq!(json(number).as_deref(), Some(as_json));
            assert_eq!(variable(number), as_variable);
        }
        assert_eq!(plain(f64::INFINITY), "+Inf");
        assert_eq!(variable(f64::NAN), "NaN");
        assert_eq!(json(f64::NAN), None);
    }

    #[test]
    fn as_go_reads_them() {
        let cases = [
            ("1_000", 1000.0),
            ("0x1_0p-2", 4.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("0X1P+3", 8.0),
            ("-0x1.8p1", -3.0),
            ("0x1p-1074", 5e-324),
            ("0x0.8p-1074", 0.0),
            ("0x1.8p-1074", 1e-323),
            ("0x1fffffffffffffp0", 9_007_199_254_740_991.0),
            ("0x3ffffffffffffffp0", 288_230_376_151_711_740.0),
            ("+infinity", f64::INFINITY),
            ("-Inf", f64::NEG_INFINITY),
        ];
        for (text, number) in cases {
            assert_eq!(parse_float(text), Some(number), "{text}");
        }
        assert!(parse_float("nan").unwrap().is_nan());
        for text in
            ["", "+nan", "1__0", "_1", "1_", "0x1p", "0x1", "1e", "1e400", "1.2.3", "in", " 1", "0x1p2000"]
        {
            assert_eq!(parse_float(text), None, "{text}");
        }
    }

    /// What Go 1.26 says of each with `strconv.ParseInt(text, 0, 64)`.
    #[test]
    fn integers_as_go_reads_them() {
        let read = [
            ("2", 2),
            ("+2", 2),
            ("-1", -1),
            ("0x2", 2),
            ("0X2", 2),
            ("0o2", 2),
            ("0O2", 2),
            ("0b10", 2),
            ("0B10", 2),
            ("02", 2),
            ("1_0", 10),
            ("0_2", 2),
            ("0x_2", 2),
            ("0b_1_0", 2),
            ("0", 0),
            ("00", 0),
            ("-0x2", -2),
            ("+0b1", 1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, number) in read {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        for text in [
            "08",
            "_1",
            "1_",
            "1__0",
            "0x",
            "9223372036854775808",
            "18446744073709551616",
            " 2",
            "2 ",
            "2.0",
            "1e1",
            "0x-2",
            "",
            "٢",
            "0_",
            "0__2",
            "0o_",
            "-",
            "+",
            "--2",
            "0b2",
            "0xg",
        ] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
