//! Keys of users, as NATS writes them: base32 of a prefix that says whose key it is, 32 bytes, and a checksum.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use zeroize::Zeroizing;

/// The first five bits of a seed (`S`), and of a user's key (`U`).
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;
/// Characters of a seed.
const SEED_LENGTH: usize = 58;
const KEY_BYTES: usize = 32;

/// Not the seed of a user's key. Nothing of what was given stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the seed of a user's nkey: want SU and 56 more characters, as `nsc` and `nk` write them")]
pub struct BadKey;

/// A user's key, which signs what a server says. It does not print.
pub struct UserKey {
    pair: Ed25519KeyPair,
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey")
    }
}

impl UserKey {
    /// Reads a seed.
    ///
    /// # Errors
    /// It is none, or not that of a user.
    pub fn parse(seed: &str) -> Result<Self, BadKey> {
        let seed = seed.trim();
        if seed.len() != SEED_LENGTH {
            return Err(BadKey);
        }
        let bytes = BASE32_NOPAD.decode(seed.as_bytes()).map(Zeroizing::new).map_err(|_| BadKey)?;
        let (body, sum) = bytes.split_last_chunk::<2>().ok_or(BadKey)?;
        if checksum(body) != u16::from_le_bytes(*sum) {
            return Err(BadKey);
        }
        let (prefix, key) = body.split_first_chunk::<2>().ok_or(BadKey)?;
        // The kind of key stands in the three bits after the seed's five, and in the first five of the next byte.
        let kind = (prefix[0] << 5) | (prefix[1] >> 3);
        if prefix[0] & 0b1111_1000 != SEED || kind != USER || key.len() != KEY_BYTES {
            return Err(BadKey);
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(key).map_err(|_| BadKey)?;
        Ok(Self { pair })
    }

    /// The public key: `U` and 55 more characters.
    #[must_use]
    pub fn public(&self) -> String {
        let mut bytes = vec![USER];
        bytes.extend_from_slice(self.pair.public_key().as_ref());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        BASE32_NOPAD.encode(&bytes)
    }

    /// What a server wants to see of a nonce.
    #[must_use]
    pub fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()).as_ref())
    }
}

/// CRC-16 of the polynomial x¹⁶+x¹²+x⁵+1, from zero, as XMODEM has it.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u16;
    for byte in bytes {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
    use proptest::prelude::*;

    use super::*;

    /// A seed of these bytes.
    fn seed(kind: u8, key: &[u8]) -> String {
        let mut bytes = vec![SEED | (kind >> 5), kind << 3];
        bytes.extend_from_slice(key);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        BASE32_NOPAD.encode(&bytes)
    }

    /// As NATS' documentation of its keys has it.
    #[test]
    fn a_published_key_is_read() {
        let key = UserKey::parse("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY").unwrap();
        assert_eq!(key.public(), "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4");
        assert_eq!(format!("{key:?}"), "UserKey");
    }

    #[test]
    fn checksums_are_those_of_xmodem() {
        assert_eq!(checksum(b"123456789"), 0x31c3);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn what_is_no_users_seed_is_refused_without_being_shown() {
        let good = seed(USER, &[7; 32]);
        assert!(UserKey::parse(&format!(" {good}\n")).is_ok());
        let mut swapped = good.clone().into_bytes();
        swapped[20] = if swapped[20] == b'A' { b'B' } else { b'A' };
        for bad in [
            String::new(),
            good.to_lowercase(),
            good[..57].to_owned(),
            format!("{good}A"),
            String::from_utf8(swapped).unwrap(),
            // An account's, and a public key.
            seed(0, &[7; 32]),
            UserKey::parse(&good).unwrap().public(),
        ] {
            let why = UserKey::parse(&bad).unwrap_err().to_string();
            assert!(bad.is_empty() || !why.contains(&bad), "{why}");
        }
    }

    proptest! {
        #[test]
        fn what_is_signed_is_by_the_key_that_is_shown(key: [u8; 32], nonce in "[ -~]{0,64}") {
            let user = UserKey::parse(&seed(USER, &key)).unwrap();
            let public = BASE32_NOPAD.decode(user.public().as_bytes()).unwrap();
            let signature = URL_SAFE_NO_PAD.decode(user.sign(&nonce)).unwrap();
            let known = UnparsedPublicKey::new(&ED25519, &public[1..33]);
            prop_assert!(known.verify(nonce.as_bytes(), &signature).is_ok());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            let _ = UserKey::parse(&text);
        }
    }
}
