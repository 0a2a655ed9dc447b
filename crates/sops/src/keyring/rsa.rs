//! RSA private keys, used by aws-lc alone: the time that the `rsa` crate takes to decrypt depends on the key.
//!
//! That crate reads keys, and computes what an encoding of one wants beyond its primes.

use aws_lc_rs::rsa::PrivateDecryptingKey;
use rsa::pkcs8::EncodePrivateKey as _;
use rsa::traits::PublicKeyParts as _;

/// Bits of a modulus, as aws-lc takes them.
const BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A key as aws-lc has it.
pub(super) fn native(key: &rsa::RsaPrivateKey) -> Result<PrivateDecryptingKey, String> {
    let bits = key.n().bits();
    if !BITS.contains(&bits) {
        return Err(format!(
            "an RSA key of {bits} bits is not supported: it must have {} to {}",
            BITS.start(),
            BITS.end()
        ));
    }
    let document = key.to_pkcs8_der().map_err(|_| "not a valid RSA key".to_owned())?;
    PrivateDecryptingKey::from_pkcs8(document.as_bytes()).map_err(|_| "not a valid RSA key".to_owned())
}
