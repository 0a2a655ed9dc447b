//! Numbers of bytes as people write them.

/// Why a text is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a number of bytes: want 536870912, 512Mi or 2Gi")]
pub struct SizeError {
    text: String,
}

const SUFFIXES: [(&str, u64); 9] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("", 1),
];

/// Reads a number of bytes as Kubernetes' quantities write whole ones: `1073741824`, `512Mi`, `1G`.
///
/// # Errors
/// [`SizeError`] for anything else, and for more than fit into 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let bad = || SizeError { text: text.to_owned() };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[digits.len()..];
    let (_, unit) = SUFFIXES.iter().find(|(name, _)| *name == suffix).ok_or_else(bad)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, want) in [
            ("0", 0),
            ("1024", 1024),
            ("512Mi", 512 << 20),
            ("1Gi", 1 << 30),
            ("1G", 1_000_000_000),
            ("2k", 2_000),
        ] {
            assert_eq!(parse_size(text), Ok(want));
        }
        for bad in ["", "Mi", "-1", "1.5Gi", "1 Gi", "1GiB", "1Xi", "0x10", "99999999999Ti", "+1", "1²"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
