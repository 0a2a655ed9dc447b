//! Encryption at rest: AES-256-GCM under a key that never lies in the database.
//!
//! A sealed value is bound to its place (its *context*, such as a resource's uid), so that a row cannot be swapped for
//! another one's.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::mac::{Row, Signer};
use crate::{StoreError, TokenCheck};

/// The first byte of a sealed value: which key and algorithm. Rotation adds others.
const VERSION: u8 = 1;

/// A 256-bit key. Does not print.
pub struct Key(Zeroizing<[u8; 32]>);

impl Key {
    /// From 32 bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new random key.
    ///
    /// # Errors
    /// Where the operating system gives no randomness.
    pub fn generate() -> Result<Self, StoreError> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| StoreError::Seal { what: "make a key" })?;
        Ok(Self(bytes))
    }

    /// From the text of a key file.
    ///
    /// # Errors
    /// Where it is not 32 bytes in base64.
    pub fn from_base64(text: &str) -> Result<Self, StoreError> {
        let what = "read a key";
        let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| StoreError::Seal { what })?);
        let bytes: [u8; 32] = bytes.as_slice().try_into().map_err(|_| StoreError::Seal { what })?;
        Ok(Self::new(bytes))
    }

    /// The text of a key file.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(*self.0))
    }

    /// The bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Seals and opens values, and signs rows.
pub struct Sealer {
    key: RandomizedNonceKey,
    tokens: TokenCheck,
    signer: Signer,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

impl Sealer {
    /// With this key.
    ///
    /// # Errors
    /// Never for a key of 32 bytes; the library's type says it may.
    pub fn new(key: &Key) -> Result<Self, StoreError> {
        let (tokens, signer) = (TokenCheck::new(key), Signer::new(key));
        let key = RandomizedNonceKey::new(&AES_256_GCM, key.expose())
            .map_err(|_| StoreError::Seal { what: "take the key file's key" })?;
        Ok(Self { key, tokens, signer })
    }

    /// The check of tokens, under a key of its own.
    pub(crate) fn tokens(&self) -> &TokenCheck {
        &self.tokens
    }

    /// The MAC of a row.
    pub(crate) fn sign(&self, row: &Row) -> Vec<u8> {
        self.signer.sign(row)
    }

    /// Whether a row bears its MAC.
    pub(crate) fn bears(&self, row: &Row, mac: Option<&[u8]>) -> bool {
        self.signer.is_signed(row, mac)
    }

    /// Whether a row bears its MAC, so that a hub with this key wrote it. Where it does not, the log says so.
    pub(crate) fn is_signed(&self, what: &'static str, row: &Row, mac: Option<&[u8]>) -> bool {
        let signed = self.signer.is_signed(row, mac);
        if !signed {
            tracing::error!(
                what,
                "a row of the database was not written by a hub with this key: it is ignored"
            );
        }
        signed
    }

    /// Encrypts `plain` for the place that `context` names.
    ///
    /// # Errors
    /// Where the operating system gives no randomness.
    pub fn seal(&self, what: &'static str, context: &[u8], plain: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut sealed = plain.to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(context), &mut sealed)
            .map_err(|_| StoreError::Seal { what })?;
        let mut out = Vec::with_capacity(1 + NONCE_LEN + sealed.len());
        out.push(VERSION);
        out.extend_from_slice(nonce.as_ref());
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Decrypts what [`Sealer::seal`] made for the same context.
    ///
    /// # Errors
    /// Where the key, the context or the bytes are not those that it was sealed with.
    pub fn open(
        &self,
        what: &'static str,
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let fail = || StoreError::Seal { what };
        let rest = sealed.strip_prefix(&[VERSION]).ok_or_else(fail)?;
        let (nonce, body) = rest.split_at_checked(NONCE_LEN).ok_or_else(fail)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| fail())?;
        let mut body = Zeroizing::new(body.to_vec());
        let length = self.key.open_in_place(nonce, Aad::from(context), &mut body).map_err(|_| fail())?.len();
        body.truncate(length);
        Ok(body)
    }

    /// As [`Sealer::open`], without a second copy of the bytes; what it gives is not wiped when it is dropped.
    ///
    /// # Errors
    /// As [`Sealer::open`].
    pub fn open_in_place(
        &self,
        what: &'static str,
        context: &[u8],
        mut sealed: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let fail = || StoreError::Seal { what };
        let rest = sealed.strip_prefix(&[VERSION]).ok_or_else(fail)?;
        let (nonce, _) = rest.split_at_checked(NONCE_LEN).ok_or_else(fail)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| fail())?;
        let head = 1 + NONCE_LEN;
        let body = sealed.get_mut(head..).ok_or_else(fail)?;
        let length = self.key.open_in_place(nonce, Aad::from(context), body).map_err(|_| fail())?.len();
        sealed.truncate(head + length);
        sealed.drain(..head);
        Ok(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Sealer};

    #[test]
    fn opens_only_in_its_own_place() {
        let sealer = Sealer::new(&Key::generate().unwrap()).unwrap();
        let sealed = sealer.seal("test", b"here", b"hush").unwrap();
        assert!(!sealed.windows(4).any(|part| part == b"hush"));
        assert_eq!(sealer.open("test", b"here", &sealed).unwrap().as_slice(), b"hush");
        assert!(sealer.open("test", b"there", &sealed).is_err());
        assert_eq!(sealer.open_in_place("test", b"here", sealed.clone()).unwrap(), b"hush");
        assert!(sealer.open_in_place("test", b"there", sealed.clone()).is_err());
        let other = Sealer::new(&Key::generate().unwrap()).unwrap();
        assert!(other.open("test", b"here", &sealed).is_err());
        for length in 0..sealed.len() {
            assert!(sealer.open("test", b"here", &sealed[..length]).is_err());
            assert!(sealer.open_in_place("test", b"here", sealed[..length].to_vec()).is_err());
        }
    }
}
