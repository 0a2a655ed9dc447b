//! Encryption at rest: AES-256-GCM under a key that never lies in the database.
//!
//! A sealed value is bound to its place (its *context*, such as a resource's uid), so that a row cannot be swapped for
//! another one's. It begins with a version: 1 and the value of the key that the database began with, or 2, the id of another
//! key of the key file and the value. New values are sealed with the newest key that all replicas have (`key_state.rs`).

mod key;
mod ring;

use std::sync::{Arc, PoisonError, RwLock};

use zeroize::Zeroizing;

pub(crate) use key::Derived;
pub use key::{Key, KeyId};
use ring::Ring;
pub(crate) use ring::{KnownKey, derived_place};

use crate::mac::Row;
use crate::{StoreError, TokenCheck};

/// Bytes behind a value that authenticate it.
const TAG: usize = 16;

/// Seals and opens values, and signs rows.
pub struct Sealer(RwLock<Arc<Ring>>);

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
        Self::with_keys(std::slice::from_ref(key))
    }

    /// With the keys of a key file, the newest first.
    ///
    /// # Errors
    /// Where there is none, or one is there twice.
    pub fn with_keys(keys: &[Key]) -> Result<Self, StoreError> {
        Ok(Self(RwLock::new(Arc::new(Ring::new(keys)?))))
    }

    fn ring(&self) -> Arc<Ring> {
        // Whoever holds the lock only copies a pointer, so nothing is ever half written.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, ring: Ring) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }

    /// Takes in what the database knows of keys.
    pub(crate) fn attach(&self, known: &[KnownKey]) -> Result<(), StoreError> {
        let ring = self.ring();
        if ring.knows(known) {
            return Ok(());
        }
        self.set(ring.attached(known, None)?);
        Ok(())
    }

    /// Takes these keys in place of those that there were; on an error all stays as it was.
    pub(crate) fn replace(&self, keys: &[Key], known: &[KnownKey]) -> Result<(), StoreError> {
        let before = self.ring();
        self.set(Ring::new(keys)?.attached(known, Some(&before))?);
        Ok(())
    }

    /// The ids of the key file's keys, the newest first.
    #[must_use]
    pub fn ids(&self) -> Vec<KeyId> {
        self.ring().ids().collect()
    }

    /// The same, that which seals now first.
    pub(crate) fn ids_in_order(&self) -> Vec<KeyId> {
        self.ring().ids_in_order().collect()
    }

    /// The key that seals and signs now.
    pub(crate) fn writer(&self) -> KeyId {
        self.ring().writer()
    }

    /// The key that the database began with.
    pub(crate) fn base(&self) -> Option<KeyId> {
        self.ring().base()
    }

    /// The key that is to seal once all replicas have it.
    pub(crate) fn awaited(&self) -> Option<KeyId> {
        self.ring().awaited()
    }

    /// What values begin with that are sealed with the key which seals now.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        self.ring().prefix()
    }

    /// What is derived from a key of the file, sealed by the key itself.
    pub(crate) fn derived_by_itself(&self, id: KeyId) -> Result<Vec<u8>, StoreError> {
        let what = "seal what is derived from a key";
        let ring = self.ring();
        let derived = ring.derive(id).ok_or(StoreError::Seal { what })?;
        ring.seal_by(id, what, &derived_place(id), &derived.to_bytes(None))
    }

    /// The keys derived from one that the database knows.
    pub(crate) fn derived_of(&self, known: &KnownKey) -> Result<(Derived, Option<i64>), StoreError> {
        self.ring().derived_of(known)
    }

    /// Which key of the file opens a value in one of these places.
    pub(crate) fn opener_of(&self, places: &[&[u8]], sealed: &[u8]) -> Option<KeyId> {
        self.ring().opener_of(places, sealed)
    }

    /// The check of tokens, under keys of its own.
    pub(crate) fn tokens(&self) -> Arc<TokenCheck> {
        Arc::clone(self.ring().tokens())
    }

    /// The MAC of a row.
    pub(crate) fn sign(&self, row: &Row) -> Vec<u8> {
        self.ring().sign(row)
    }

    /// A MAC that stays the same while keys come and go.
    pub(crate) fn sign_stably(&self, row: &Row) -> Vec<u8> {
        self.ring().sign_stably(row)
    }

    /// Which key of the file has made this row's MAC.
    pub(crate) fn signer_of(&self, row: &Row, mac: Option<&[u8]>) -> Option<KeyId> {
        self.ring().signer_of(row, mac)
    }

    /// Whether a row bears its MAC.
    pub(crate) fn bears(&self, row: &Row, mac: Option<&[u8]>) -> bool {
        self.signer_of(row, mac).is_some()
    }

    /// The same of the audit log, whose MACs stay: one by a retired key counts in the batches of that key's time.
    pub(crate) fn bears_in(&self, batch: Option<i64>, row: &Row, mac: Option<&[u8]>) -> bool {
        let ring = self.ring();
        ring.signer_of(row, mac).is_some() || batch.is_some_and(|batch| ring.was_signed(row, mac, batch))
    }

    /// Whether a row bears its MAC, so that a hub with this key wrote it. Where it does not, the log says so.
    pub(crate) fn is_signed(&self, what: &'static str, row: &Row, mac: Option<&[u8]>) -> bool {
        let signed = self.bears(row, mac);
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
        self.ring().seal(what, context, plain)
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
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let plain = self.ring().open(what, context, &mut bytes)?.len();
        let head = bytes.len() - plain - TAG;
        bytes.copy_within(head..head + plain, 0);
        bytes.truncate(plain);
        Ok(bytes)
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
        let plain = self.ring().open(what, context, &mut sealed)?.len();
        let head = sealed.len() - plain - TAG;
        sealed.truncate(head + plain);
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
