//! Sealed builds: what was made of inputs that the hub decrypted. Their bytes are in memory only, for as long as there is room, and are
//! made again where they are asked for later. The database has their names.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use roadstead_model::Digest;

/// Bytes of all of them: as much as one group may have.
const MAX_BYTES: usize = super::job::MAX_PACKED_BYTES;

/// One that could not be made again is not tried for so long: an agent may ask as often as it likes.
const PAUSE: Duration = Duration::from_secs(30);
/// Of how many that is known.
const MOST_TRIED: usize = 1_000;

/// A packed group.
struct Held {
    digest: Digest,
    packed: Bytes,
    /// What of its inputs somebody should look at.
    warnings: Vec<String>,
}

impl Held {
    /// Bytes of memory.
    fn size(&self) -> usize {
        self.packed.len() + self.warnings.iter().map(String::len).sum::<usize>()
    }
}

#[derive(Default)]
pub(super) struct SealedBuilds {
    /// Packed groups, least recently used first.
    held: Mutex<VecDeque<Held>>,
    /// Which were asked for and not there, and when, the oldest first.
    tried: Mutex<VecDeque<(Digest, Instant)>>,
}

impl SealedBuilds {
    pub(super) fn put(&self, digest: Digest, packed: Bytes, warnings: Vec<String>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|other| other.digest != digest);
        held.push_back(Held { digest, packed, warnings });
        let mut bytes: usize = held.iter().map(Held::size).sum();
        while bytes > MAX_BYTES {
            let Some(dropped) = held.pop_front() else { break };
            bytes -= dropped.size();
        }
    }

    pub(super) fn get(&self, digest: Digest) -> Option<Bytes> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|other| other.digest == digest)?;
        let found = held.remove(at)?;
        let packed = found.packed.clone();
        held.push_back(found);
        Some(packed)
    }

    /// What of the inputs of one somebody should look at; none where it is not there.
    pub(super) fn warnings(&self, digest: Digest) -> Option<Vec<String>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        Some(held.iter().find(|one| one.digest == digest)?.warnings.clone())
    }

    /// Whether one may be made that is not there. From now on it may not for a while.
    pub(super) fn may_make(&self, digest: Digest, now: Instant) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.retain(|(_, at)| now.saturating_duration_since(*at) < PAUSE);
        if tried.iter().any(|(other, _)| *other == digest) || tried.len() >= MOST_TRIED {
            return false;
        }
        tried.push_back((digest, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays() {
        let sealed = SealedBuilds::default();
        let digest = |index: usize| Digest::of(&[u8::try_from(index).expect("small")]);
        for index in 0..4 {
            sealed.put(digest(index), Bytes::from(vec![0; MAX_BYTES / 3]), Vec::new());
            assert!(sealed.get(digest(0)).is_some(), "at {index}");
        }
        assert!(sealed.get(digest(1)).is_none() && sealed.get(digest(3)).is_some());
    }

    #[test]
    fn what_cannot_be_made_is_not_tried_again_and_again() {
        let (sealed, now) = (SealedBuilds::default(), Instant::now());
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        assert!(sealed.may_make(one, now) && !sealed.may_make(one, now) && sealed.may_make(other, now));
        assert!(sealed.may_make(one, now + PAUSE));
    }
}
