//! A key of the key file, its id, and the keys that are derived from it.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use crate::StoreError;

/// What of a key its id is: a change of this is another id.
const ID: &[u8] = b"roadstead: id of a key, 1";
/// What of a key the key for MACs of rows is: a change of this is another key.
const ROWS: &[u8] = b"roadstead row MAC, version 1";
/// What of a key the key for the check of tokens is.
const TOKENS: &[u8] = b"roadstead: check of tokens, 1";

/// Bytes of a derived key.
const DERIVED: usize = 32;

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

    /// By what the database and people name it. It says nothing of the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let mut id = [0; KeyId::BYTES];
        let tag = hmac::sign(&hmac::Key::new(HMAC_SHA256, self.expose()), ID);
        id.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        KeyId(id)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// By what a key is named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; KeyId::BYTES]);

impl KeyId {
    /// Bytes of one in a sealed value.
    pub(crate) const BYTES: usize = 4;

    pub(crate) fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyId {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let wrong = |_| StoreError::Corrupt { what: "read a key's id", why: text.to_owned() };
        let number = u32::from_str_radix(text, 16).map_err(wrong)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// What is derived from a key to check tokens and rows: it outlives the key, and opens nothing. Does not print.
#[derive(Clone)]
pub(crate) struct Derived(Zeroizing<[u8; 2 * DERIVED]>);

impl Derived {
    pub(crate) fn of(key: &Key) -> Self {
        // HMAC as a pseudorandom function: what comes out says nothing of the key that secrets are sealed with.
        let key = hmac::Key::new(HMAC_SHA256, key.expose());
        let (tokens, rows) = (hmac::sign(&key, TOKENS), hmac::sign(&key, ROWS));
        let mut bytes = Zeroizing::new([0; 2 * DERIVED]);
        let parts = tokens.as_ref().iter().chain(rows.as_ref());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }

    pub(crate) fn tokens(&self) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, self.0.split_at(DERIVED).0)
    }

    pub(crate) fn rows(&self) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, self.0.split_at(DERIVED).1)
    }

    /// As it is kept once its key is retired: `upto` is the last batch of the audit log in which it counts; none before that.
    pub(crate) fn to_bytes(&self, upto: Option<i64>) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 * DERIVED + 8));
        bytes.extend_from_slice(self.0.as_slice());
        bytes.extend_from_slice(&upto.unwrap_or(-1).to_be_bytes());
        bytes
    }

    /// What [`Derived::to_bytes`] made.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<(Self, Option<i64>)> {
        let (keys, upto) = bytes.split_at_checked(2 * DERIVED)?;
        let upto = i64::from_be_bytes(upto.try_into().ok()?);
        let keys: [u8; 2 * DERIVED] = keys.try_into().ok()?;
        Some((Self(Zeroizing::new(keys)), (upto >= 0).then_some(upto)))
    }
}
