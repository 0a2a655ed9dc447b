//! Fuzzes tokens and the keys that they are verified with: the first line is the token, what follows is the set of keys.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_oidc::{Configuration, Expected, Keys, MAX_TOKEN, SigningKey, Token, check};

const ALLOWANCE: Allowance = Allowance { bytes: 200, nanos: 20_000 };
/// Bytes of keys: of so many a signature may be tried for each key.
const MOST_KEYS: usize = 4096;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (text, keys) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let _ = Configuration::parse(&keys[..keys.len().min(MOST_KEYS)]);
    let _ = SigningKey::read(keys);
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(token) = Token::parse(text) else { return };
    assert!(text.len() <= MAX_TOKEN && Token::is_like(text), "it has another form");
    assert!(token.verify(&Keys::default()).is_err(), "it is signed by no key at all");
    let keys = Keys::parse(&keys[..keys.len().min(MOST_KEYS)]).unwrap_or_default();
    let Ok(claims) = token.verify(&keys) else { return };
    assert_eq!(claims["iss"], token.issuer(), "whom it is from is read in two ways");
    let expected = Expected { issuers: &[token.issuer()], audiences: &["hub"], now: 1_800_000_000 };
    let _ = check(&claims, &expected);
}));
