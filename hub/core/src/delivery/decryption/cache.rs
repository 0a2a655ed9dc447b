//! Data keys that were unwrapped, so that none is unwrapped again while nothing changed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use roadstead_model::Digest;
use roadstead_sops::DataKey;

/// How many of each half are kept. A key takes some 200 bytes.
const HALF: usize = 10_000;

/// Data keys by what they were unwrapped with (which Secret, in which version) and what they were wrapped as. In two halves: when the
/// newer one is full, the older one goes. Keys are wiped when they go.
#[derive(Default)]
pub(in super::super) struct KeyCache(Mutex<Halves>);

#[derive(Default)]
struct Halves {
    newer: HashMap<(Digest, Digest), DataKey>,
    older: HashMap<(Digest, Digest), DataKey>,
}

impl KeyCache {
    pub(super) fn get(&self, by: &str, wrapped: Digest) -> Option<DataKey> {
        let key = (Digest::of(by.as_bytes()), wrapped);
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = halves.newer.get(&key) {
            return Some(found.clone());
        }
        let found = halves.older.remove(&key)?;
        halves.add(key, found.clone());
        Some(found)
    }

    pub(super) fn put(&self, by: &str, wrapped: Digest, found: DataKey) {
        let key = (Digest::of(by.as_bytes()), wrapped);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(key, found);
    }
}

impl Halves {
    fn add(&mut self, key: (Digest, Digest), found: DataKey) {
        if self.newer.len() >= HALF {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, found);
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let cache = KeyCache::default();
        let wrapped = |index: usize| Digest::of(index.to_string().as_bytes());
        let key = |index: usize| DataKey::new(Zeroizing::new(index.to_string().into_bytes()));
        for index in 0..3 * HALF {
            cache.put("uid@1", wrapped(index), key(index));
            assert_eq!(cache.get("uid@1", wrapped(0)), Some(key(0)), "at {index}");
        }
        assert_eq!(cache.get("uid@1", wrapped(1)), None);
        assert_eq!(cache.get("uid@2", wrapped(0)), None, "by another version of the Secret");
        let halves = cache.0.lock().expect("no panic");
        assert!(halves.newer.len() + halves.older.len() <= 2 * HALF);
    }
}
