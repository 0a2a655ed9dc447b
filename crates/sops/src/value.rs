//! Encrypted values: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::error::{ValueProblem, shown};
use crate::gcm::{self, Unopened};
use crate::keys::DataKey;
use crate::number;
use crate::time::Time;
use crate::tree::{Comment, Text, Value};

/// What every encrypted value begins with.
pub(crate) const START: &[u8] = b"ENC[AES256_GCM,data:";

/// As Go decodes it: what is left over in the last character does not matter.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The parts of an encrypted value.
struct Parts<'t> {
    data: &'t [u8],
    iv: &'t [u8],
    tag: &'t [u8],
    kind: &'t [u8],
}

/// Takes an encrypted value apart. The last place that fits is taken for each name, and what follows the last bracket of
/// the first line does not count.
fn parts(text: &[u8]) -> Option<Parts<'_>> {
    let rest = text.strip_prefix(START)?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    let (line, _) = split_last(line, b"]")?;
    let (line, kind) = split_last(line, b",type:")?;
    let (line, tag) = split_last(line, b",tag:")?;
    let (data, iv) = split_last(line, b",iv:")?;
    Some(Parts { data, iv, tag, kind })
}

/// Splits at the last place where something stands before the separator, and, for a name, after it.
fn split_last<'t>(text: &'t [u8], separator: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let after = usize::from(separator.len() > 1);
    let last = text.len().checked_sub(separator.len() + after)?;
    let at = (1..=last).rev().find(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(separator)))?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}

fn decode(text: &[u8], part: &'static str) -> Result<Vec<u8>, ValueProblem> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    BASE64.decode(text).map_err(|_| ValueProblem::Base64(part))
}

/// Opens a value that stands at the place which `additional` names.
pub(crate) fn open(text: &[u8], key: &DataKey, additional: &[u8]) -> Result<Value, ValueProblem> {
    if text.is_empty() {
        return Ok(Value::text(""));
    }
    let parts = parts(text).ok_or(ValueProblem::NotCiphertext)?;
    let mut sealed = decode(parts.data, "data")?;
    let nonce = decode(parts.iv, "iv")?;
    sealed.extend(decode(parts.tag, "tag")?);
    if nonce.is_empty() {
        return Err(ValueProblem::NotAuthentic);
    }
    let opened = gcm::open(key.expose(), &nonce, additional, &sealed).map_err(|error| match error {
        Unopened::KeyLength(length) => ValueProblem::KeyLength(length),
        Unopened::NotAuthentic => ValueProblem::NotAuthentic,
    })?;
    typed(opened, parts.kind)
}

fn typed(mut opened: Zeroizing<Vec<u8>>, kind: &[u8]) -> Result<Value, ValueProblem> {
    let text = std::str::from_utf8(&opened).unwrap_or("\u{fffd}");
    match kind {
        // Files of SOPS 1 have the last one.
        b"str" | b"bytes" => Ok(Value::Text(Text::new(std::mem::take(&mut *opened)))),
        b"comment" => Ok(Value::Comment(Comment::new(Text::new(std::mem::take(&mut *opened))))),
        b"int" => integer(text).map(Value::Int).ok_or(ValueProblem::Conversion("an integer")),
        b"float" => number::parse_float(text).map(Value::Float).ok_or(ValueProblem::Conversion("a float")),
        b"bool" => boolean(text).map(Value::Bool).ok_or(ValueProblem::Conversion("a boolean")),
        b"time" => Time::rfc3339(text).map(Value::Time).ok_or(ValueProblem::Conversion("a timestamp")),
        other => Err(ValueProblem::Type(shown(&String::from_utf8_lossy(other)))),
    }
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// A boolean as Go's `strconv` reads it.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_are_taken_greedily() {
        let text = b"ENC[AES256_GCM,data:a,iv:b,iv:c,tag:d,type:e]f]g\nx]";
        let parts = parts(text).unwrap();
        assert_eq!((parts.data, parts.iv), (&b"a,iv:b"[..], &b"c"[..]));
        assert_eq!((parts.tag, parts.kind), (&b"d"[..], &b"e]f"[..]));
    }

    #[test]
    fn what_is_no_encrypted_value() {
        for text in [
            "x",
            "ENC[AES256_GCM,data:,iv:b,tag:d,type:e]",
            "ENC[AES256_GCM,data:a,iv:,tag:d,type:e]",
            "ENC[AES256_GCM,data:a,iv:b,tag:,type:e]",
            "ENC[AES256_GCM,data:a,iv:b,tag:d,type:]",
            "ENC[AES256_GCM,data:a,iv:b,tag:d,type:e",
            " ENC[AES256_GCM,data:a,iv:b,tag:d,type:e]",
            "ENC[AES256_GCM,data:a,iv:b\n,tag:d,type:e]",
        ] {
            assert!(parts(text.as_bytes()).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn as_the_regular_expression_does(text in "(data|,iv:|,tag:|,type:|a|\\]|\n){0,12}") {
            let pattern = r"^ENC\[AES256_GCM,data:(.+),iv:(.+),tag:(.+),type:(.+)\]";
            let regex = regex::Regex::new(pattern).unwrap();
            let text = format!("ENC[AES256_GCM,data:{text}");
            let expected = regex.captures(&text).map(|found| {
                [1, 2, 3, 4].map(|index| found.get(index).unwrap().as_str().as_bytes().to_vec())
            });
            let got = parts(text.as_bytes()).map(|parts| {
                [parts.data.to_vec(), parts.iv.to_vec(), parts.tag.to_vec(), parts.kind.to_vec()]
            });
            prop_assert_eq!(got, expected);
        }
    }
}
