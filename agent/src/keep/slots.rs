//! Which Secret has which part of what is kept. Pure.

use std::collections::{BTreeMap, HashMap};

use roadstead_model::{ApplierUid, Attempt, HubEpoch};

use super::withdrawn;

/// How many Secrets there are: their names stand in the agent's Role.
pub(super) const SLOTS: usize = 16;

/// How many bytes one has: an apiserver takes 1 MiB of a Secret.
pub(super) const SLOT_BYTES: usize = 900 * 1024;

/// The largest part of what is kept of one applier.
const PART_BYTES: usize = 256 * 1024;

/// So far one is filled before the next one is begun: what several appliers leave is one write then. Beyond it they share the bytes
/// equally, since each write of a Secret is one of all that it holds.
const FILLED: usize = 64 * 1024;

/// What a key takes besides its value.
const KEY_BYTES: usize = 128;

/// The key of one part: whose it is, of which dispatch, and which part of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PartKey {
    pub(super) applier: ApplierUid,
    pub(super) fence: (HubEpoch, Attempt),
    pub(super) index: usize,
    pub(super) count: usize,
}

impl PartKey {
    /// As it stands in a Secret.
    pub(super) fn text(&self) -> String {
        let Self { applier, fence: (HubEpoch(epoch), Attempt(attempt)), index, count } = self;
        format!("{}.{epoch}.{attempt}.{index}.{count}", applier.0)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('.');
        let applier = ApplierUid(words.next()?.parse().ok()?);
        let fence = (HubEpoch(words.next()?.parse().ok()?), Attempt(words.next()?.parse().ok()?));
        let (index, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let most = SLOTS * SLOT_BYTES / PART_BYTES;
        (words.next().is_none() && index < count && count <= most).then_some(Self {
            applier,
            fence,
            index,
            count,
        })
    }
}

/// What is to be written: the value of a key, or that it goes; by slot.
pub(super) type Changes = Vec<(usize, PartKey, Option<Vec<u8>>)>;

/// Where the parts are.
#[derive(Debug, Default)]
pub(super) struct Slots {
    used: [usize; SLOTS],
    parts: HashMap<ApplierUid, BTreeMap<PartKey, (usize, usize)>>,
}

impl Slots {
    /// Takes a part that was found in a slot.
    pub(super) fn found(&mut self, slot: usize, key: PartKey, bytes: usize) {
        let bytes = bytes + KEY_BYTES;
        if let Some(used) = self.used.get_mut(slot) {
            *used += bytes;
            self.parts.entry(key.applier).or_default().insert(key, (slot, bytes));
        }
    }

    /// Whether there is anything of an applier.
    pub(super) fn has(&self, applier: ApplierUid) -> bool {
        self.parts.contains_key(&applier)
    }

    /// All appliers of which there is something.
    pub(super) fn appliers(&self) -> Vec<ApplierUid> {
        self.parts.keys().copied().collect()
    }

    /// Takes all of an applier out.
    pub(super) fn remove(&mut self, applier: ApplierUid) -> Changes {
        let parts = self.parts.remove(&applier).unwrap_or_default();
        parts
            .into_iter()
            .map(|(key, (slot, bytes))| {
                self.used[slot] = self.used[slot].saturating_sub(bytes);
                (slot, key, None)
            })
            .collect()
    }

    /// The slot for so many more bytes: the fullest that they do not fill, and the emptiest where they fill all. None of them is
    /// [that of the marks](withdrawn::SLOT), where an agent of an earlier version may have put something.
    fn slot_for(&self, bytes: usize) -> usize {
        let fits = |slot: &usize| self.used[*slot] + bytes <= FILLED;
        let fullest = (0..withdrawn::SLOT).rev().filter(fits).max_by_key(|slot| self.used[*slot]);
        fullest.or_else(|| (0..withdrawn::SLOT).min_by_key(|slot| self.used[*slot])).unwrap_or_default()
    }

    /// Puts what is kept of an applier where there is room; none, and nothing of it is there any more, where there is not
    /// enough.
    pub(super) fn put(
        &mut self,
        applier: ApplierUid,
        fence: (HubEpoch, Attempt),
        kept: &[u8],
    ) -> (Changes, bool) {
        let mut changes = self.remove(applier);
        let parts: Vec<&[u8]> = kept.chunks(PART_BYTES).collect();
        let count = parts.len();
        let mut placed = Vec::with_capacity(count);
        for (index, part) in parts.into_iter().enumerate() {
            let key = PartKey { applier, fence, index, count };
            let bytes = part.len() + KEY_BYTES;
            let slot = self.slot_for(bytes);
            if self.used[slot] + bytes > SLOT_BYTES {
                self.remove(applier);
                return (changes, false);
            }
            self.used[slot] += bytes;
            self.parts.entry(applier).or_default().insert(key, (slot, bytes));
            placed.push((slot, key, Some(part.to_vec())));
        }
        changes.extend(placed);
        (changes, true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use roadstead_model::{ApplierUid, Attempt, HubEpoch};
    use uuid::Uuid;

    use super::{Changes, PART_BYTES, PartKey, SLOT_BYTES, SLOTS, Slots, withdrawn};

    fn applier(number: u128) -> ApplierUid {
        ApplierUid(Uuid::from_u128(number))
    }

    fn fence(attempt: i64) -> (HubEpoch, Attempt) {
        (HubEpoch(1), Attempt(attempt))
    }

    type Stored = BTreeMap<usize, BTreeMap<String, Vec<u8>>>;

    fn write(stored: &mut Stored, changes: Changes) {
        for (slot, key, value) in changes {
            let slot = stored.entry(slot).or_default();
            match value {
                Some(value) => slot.insert(key.text(), value),
                None => slot.remove(&key.text()),
            };
        }
    }

    #[test]
    fn what_is_put_is_there_in_one_version_and_within_the_bounds() {
        let (mut slots, mut stored) = (Slots::default(), Stored::new());
        for round in 0..3 {
            for number in 0..40 {
                let kept = vec![b'x'; (number * 37_000) % (PART_BYTES + PART_BYTES / 2) + 1];
                let (changes, fits) = slots.put(applier(number as u128), fence(round), &kept);
                write(&mut stored, changes);
                assert!(fits, "{round} {number}");
            }
        }
        for (slot, values) in &stored {
            let bytes: usize = values.values().map(Vec::len).sum();
            assert!(*slot < withdrawn::SLOT && bytes <= SLOT_BYTES, "{slot}: {bytes}");
            for key in values.keys().map(|key| PartKey::parse(key).expect("a key")) {
                assert_eq!(key.fence, fence(2));
            }
        }
        // Read again, nothing is lost.
        let mut again = Slots::default();
        for (slot, values) in &stored {
            for (key, value) in values {
                again.found(*slot, PartKey::parse(key).expect("a key"), value.len());
            }
        }
        assert_eq!(again.used, slots.used);
        for number in 0..40 {
            write(&mut stored, again.remove(applier(number)));
        }
        assert!(stored.values().all(BTreeMap::is_empty));
        assert_eq!(again.used, [0; SLOTS]);
    }

    #[test]
    fn what_is_small_is_written_together() {
        let (mut slots, mut stored) = (Slots::default(), Stored::new());
        for number in 0..40 {
            write(&mut stored, slots.put(applier(number), fence(1), &[b'x'; 1024]).0);
        }
        assert_eq!(stored.keys().collect::<Vec<_>>(), [&0]);
        for number in 40..2_000 {
            write(&mut stored, slots.put(applier(number), fence(1), &[b'x'; 1024]).0);
        }
        let [kept @ .., marks] = slots.used;
        assert_eq!(marks, 0, "that of the marks");
        let (least, most) = (kept.iter().min(), kept.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least < 2_048), "{:?}", slots.used);
    }

    #[test]
    fn what_does_not_fit_leaves_nothing() {
        let mut slots = Slots::default();
        let all = vec![b'x'; SLOTS * SLOT_BYTES];
        let (changes, fits) = slots.put(applier(1), fence(1), &all);
        assert!(!fits && changes.is_empty());
        assert_eq!(slots.used, [0; SLOTS]);
        let (_, fits) = slots.put(applier(1), fence(1), b"small");
        assert!(fits);
        let (changes, fits) = slots.put(applier(1), fence(2), &all);
        assert!(!fits && matches!(changes.as_slice(), [(_, _, None)]), "the older one goes");
        assert!(!slots.has(applier(1)));
    }

    #[test]
    fn other_keys_are_not_parts() {
        for text in
            ["", "a", "a.b.c.d.e", &format!("{}.1.1.1.1", Uuid::nil()), &format!("{}.1.1.0.1.2", Uuid::nil())]
        {
            assert_eq!(PartKey::parse(text), None, "{text}");
        }
    }
}
