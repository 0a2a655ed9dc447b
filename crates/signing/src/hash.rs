//! What signatures are made of.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// The HMAC-SHA256 of `message`.
#[must_use]
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec())
}

/// The SHA-256 of `bytes`, in small hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Small hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
