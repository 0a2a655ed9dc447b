//! Durations as Kubernetes writes them: Go's `1h30m`, `2m0.5s`, `1.436096591s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that reads and prints as Go's `time.Duration` does. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(pub Duration);

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: want numbers with units, such as `30s`, `5m` or `1h30m`")]
pub struct DurationError(String);

/// Go's durations are signed 64-bit nanoseconds.
const MOST: u64 = i64::MAX as u64;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || DurationError(text.chars().take(64).collect());
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest.is_empty() || rest.len() > 64 {
            return Err(refuse());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
            let (number, tail) = rest.split_at(end);
            let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let nanos =
                UNITS.iter().find(|(name, _)| *name == unit).map(|(_, nanos)| *nanos).ok_or_else(refuse)?;
            total = total.checked_add(scaled(number, nanos).ok_or_else(refuse)?).ok_or_else(refuse)?;
            rest = tail;
        }
        if total > MOST {
            return Err(refuse());
        }
        Ok(Self(Duration::from_nanos(total)))
    }
}

/// `number` (digits, perhaps a point and more digits) times `unit`, in whole nanoseconds.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut nanos = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(unit)? };
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        nanos = nanos.checked_add(u64::from(digit - b'0') * scale)?;
    }
    (nanos <= MOST).then_some(nanos)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 1_000_000_000 {
            let (unit, size) = match nanos {
                0..1_000 => ("ns", 1),
                1_000..1_000_000 => ("µs", 1_000),
                _ => ("ms", 1_000_000),
            };
            return write!(f, "{}{unit}", decimal(nanos, size));
        }
        let (hours, minutes) = (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % 60_000_000_000, 1_000_000_000))
    }
}

/// `nanos / size` with as many decimals as it needs.
fn decimal(nanos: u128, size: u128) -> String {
    let (whole, rest) = (nanos / size, nanos % size);
    if rest == 0 {
        return whole.to_string();
    }
    let width = size.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::GoDuration;
    use std::time::Duration;

    #[test]
    fn reads_and_prints_as_go() {
        for (text, nanos, printed) in [
            ("1.436096591s", 1_436_096_591, "1.436096591s"),
            ("5m", 300_000_000_000, "5m0s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("1h30m5.5s", 5_405_500_000_000, "1h30m5.5s"),
            ("250ms", 250_000_000, "250ms"),
            ("1.5ms", 1_500_000, "1.5ms"),
            ("0", 0, "0s"),
        ] {
            let duration: GoDuration = text.parse().expect(text);
            assert_eq!(duration.0, Duration::from_nanos(nanos), "{text}");
            assert_eq!(duration.to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "5", "m", "5x", "-5m", "1.2.3s", ".s", "99999999999999999999h", "1 h", "2000000h2000000h"]
        {
            assert!(text.parse::<GoDuration>().is_err(), "{text} was taken");
        }
    }
}
