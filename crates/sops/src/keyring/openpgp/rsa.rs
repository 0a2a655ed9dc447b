//! Session keys that RSA wraps, unwrapped by aws-lc instead of rPGP.
//!
//! Whoever may have files decrypted could learn a session key of others from which of many altered messages have valid padding
//! (Bleichenbacher's attack). So one without it goes on with a random session key, and all that can go wrong after that
//! is one answer.

use aws_lc_rs::rsa::Pkcs1PrivateDecryptingKey;
use pgp::composed::PlainSessionKey;
use pgp::crypto::sym::SymmetricKeyAlgorithm;
use pgp::types::{EskType, Mpi, PlainSecretParams, PublicParams, SecretParams};
use rsa::BigUint;
use rsa::traits::PublicKeyParts as _;
use zeroize::Zeroizing;

use super::super::rsa::native;

/// What is said of every message that an RSA key does not open.
pub(super) const NOT_OPENED: &str =
    "the session key cannot be unwrapped, or the message was changed after it was encrypted";

/// An RSA key.
pub(super) struct Key(Pkcs1PrivateDecryptingKey);

/// A secret key's RSA part: none if it is of another kind or protected by a passphrase.
pub(super) fn key(public: &PublicParams, secret: &SecretParams) -> Option<Result<Key, String>> {
    let (PublicParams::RSA(public), SecretParams::Plain(PlainSecretParams::RSA(secret))) = (public, secret)
    else {
        return None;
    };
    let invalid = || "not a valid RSA key".to_owned();
    let (d, p, q, u) = secret.to_bytes();
    let [d, p, q, _] = [d, p, q, u].map(Zeroizing::new);
    let number = |bytes: &Zeroizing<Vec<u8>>| BigUint::from_bytes_be(bytes);
    let (n, e) = (public.key.n().clone(), public.key.e().clone());
    let whole = rsa::RsaPrivateKey::from_components(n, e, number(&d), vec![number(&p), number(&q)]);
    let native = whole.map_err(|_| invalid()).and_then(|key| native(&key));
    Some(native.and_then(|key| Pkcs1PrivateDecryptingKey::new(key).map(Key).map_err(|_| invalid())))
}

impl Key {
    /// The session key, or a random one in its place.
    pub(super) fn unwrap(&self, wrapped: &Mpi, kind: EskType) -> Option<PlainSessionKey> {
        let random = random(kind)?;
        Some(self.decrypt(wrapped).and_then(|held| parse(&held, kind)).unwrap_or(random))
    }

    fn decrypt(&self, wrapped: &Mpi) -> Option<Zeroizing<Vec<u8>>> {
        let size = self.0.key_size_bytes();
        let zeros = size.checked_sub(wrapped.len())?;
        // A number is written without the zeros that it begins with.
        let padded: Vec<u8> = std::iter::repeat_n(0, zeros).chain(wrapped.as_ref().iter().copied()).collect();
        let mut out = Zeroizing::new(vec![0; self.0.min_output_size()]);
        let length = self.0.decrypt(&padded, &mut out).ok()?.len();
        out.truncate(length);
        Some(out)
    }
}

/// Splits what was wrapped (RFC 9580, section 5.1.3): the algorithm, in messages of the older kind, the key, and its checksum.
fn parse(held: &[u8], kind: EskType) -> Option<PlainSessionKey> {
    let (rest, sum) = held.split_last_chunk::<2>()?;
    let checked = |key: &[u8]| {
        let own = key.iter().fold(0_u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
        own == u16::from_be_bytes(*sum)
    };
    match kind {
        EskType::V3_4 => {
            let (algorithm, key) = rest.split_first()?;
            let sym_alg = SymmetricKeyAlgorithm::from(*algorithm);
            let fits = !key.is_empty() && key.len() == sym_alg.key_size();
            (fits && checked(key)).then(|| PlainSessionKey::V3_4 { sym_alg, key: key.into() })
        }
        EskType::V6 => checked(rest).then(|| PlainSessionKey::V6 { key: rest.into() }),
    }
}

/// Opens nothing. None where there is no randomness.
fn random(kind: EskType) -> Option<PlainSessionKey> {
    let mut bytes = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(bytes.as_mut_slice()).ok()?;
    let key = bytes.as_slice().into();
    Some(match kind {
        EskType::V3_4 => PlainSessionKey::V3_4 { sym_alg: SymmetricKeyAlgorithm::AES256, key },
        EskType::V6 => PlainSessionKey::V6 { key },
    })
}
