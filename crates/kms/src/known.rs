//! Data keys that were unwrapped, so that none is unwrapped again while nothing changed.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use roadstead_sops::{DataKey, DataKeys, NoDataKey, WrappedKey};
use tokio::time::Instant;

use crate::provider::Keys;

/// How many of each half are kept. A key takes some 300 bytes with the names of what opened it, and 800 at most.
const HALF: usize = 10_000;

/// Data keys by what they were unwrapped with (which Secret, in which version) and what they were wrapped as. In two halves: when the
/// newer one is full, the older one goes. Keys are wiped when they go.
#[derive(Default)]
pub struct KnownKeys(Mutex<Halves>);

type Place = (String, [u8; 32]);

#[derive(Default)]
struct Halves {
    newer: HashMap<Place, DataKey>,
    older: HashMap<Place, DataKey>,
}

impl std::fmt::Debug for KnownKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownKeys").finish_non_exhaustive()
    }
}

impl KnownKeys {
    /// The key of what has this digest, where it was unwrapped by the same Secret in the same version.
    pub fn get(&self, by: &str, wrapped: [u8; 32]) -> Option<DataKey> {
        let place = (by.to_owned(), wrapped);
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = halves.newer.get(&place) {
            return Some(found.clone());
        }
        let found = halves.older.remove(&place)?;
        halves.add(place, found.clone());
        Some(found)
    }

    /// Keeps a key.
    pub fn put(&self, by: &str, wrapped: [u8; 32], found: DataKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add((by.to_owned(), wrapped), found);
    }
}

impl Halves {
    fn add(&mut self, place: Place, found: DataKey) {
        if self.newer.len() >= HALF {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(place, found);
    }
}

/// Master keys that are named at most of those that opened something.
pub const MOST_NAMED: usize = 20;

/// Keys that are asked for one file after the other, each within the bounds of one, and none twice. What opened is noted.
#[derive(Debug)]
pub struct AskedOnce<'k> {
    keys: &'k Keys,
    known: &'k KnownKeys,
    by: &'k str,
    until: Instant,
    opened_by: RefCell<BTreeSet<String>>,
}

impl<'k> AskedOnce<'k> {
    /// Asks `keys`, which are `by` a Secret in one version, for what was not `known` before. Key services are asked `until` then; what was
    /// unwrapped by then is known the next time.
    #[must_use]
    pub fn new(keys: &'k Keys, known: &'k KnownKeys, by: &'k str, until: Instant) -> Self {
        Self { keys, known, by, until, opened_by: RefCell::default() }
    }

    /// The master keys that opened what was asked for, as [`DataKey::opened_by`] names them; [so many](MOST_NAMED) at most.
    #[must_use]
    pub fn opened_by(self) -> BTreeSet<String> {
        self.opened_by.into_inner()
    }

    fn find(&self, wrapped: &WrappedKey) -> Result<DataKey, NoDataKey> {
        let digest = wrapped.digest();
        if let Some(found) = self.known.get(self.by, digest) {
            return Ok(found);
        }
        let found = self.keys.for_file_until(self.until).data_key(wrapped)?;
        self.known.put(self.by, digest, found.clone());
        Ok(found)
    }
}

impl DataKeys for AskedOnce<'_> {
    fn data_key(&self, wrapped: &WrappedKey) -> Result<DataKey, NoDataKey> {
        let found = self.find(wrapped)?;
        let mut noted = self.opened_by.borrow_mut();
        for name in found.opened_by() {
            if noted.len() < MOST_NAMED && !noted.contains(name) {
                noted.insert(name.clone());
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let known = KnownKeys::default();
        let wrapped = |index: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&index.to_be_bytes());
            digest
        };
        let key = |index: usize| DataKey::new(Zeroizing::new(index.to_string().into_bytes()));
        for index in 0..3 * HALF {
            known.put("uid@1", wrapped(index), key(index));
            assert_eq!(known.get("uid@1", wrapped(0)), Some(key(0)), "at {index}");
        }
        assert_eq!(known.get("uid@1", wrapped(1)), None);
        assert_eq!(known.get("uid@2", wrapped(0)), None, "by another version of the Secret");
        let halves = known.0.lock().expect("no panic");
        assert!(halves.newer.len() + halves.older.len() <= 2 * HALF);
    }
}
