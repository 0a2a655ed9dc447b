//! What was taken back of what is kept, as marks in a Secret of their own. Taking something out of the Secret that holds it writes all that this
//! one holds, so that waits until there is more to write; a mark is small, and a dispatch waits for no more than that. Pure.
//!
//! A mark is a part of the newest attempt that does not count, with nothing in it. What cannot be read is in the way of all that is older, for agents of
//! earlier versions, too.

use std::collections::{BTreeMap, HashMap};

use roadstead_model::{ApplierUid, Attempt, HubEpoch};

use super::slots::{PartKey, SLOTS};

/// The Secret that has them, by its number: one that nothing is kept in.
pub(super) const SLOT: usize = SLOTS - 1;

/// So many marks there are at most: each takes some hundred bytes.
const MOST: usize = 4_000;

/// The epoch and number of an attempt.
type Fence = (HubEpoch, Attempt);

/// Marks that are not written as they are to be: whether each is to be there.
pub(super) type Marks = BTreeMap<PartKey, bool>;

/// Of some appliers, the newest attempt of which nothing counts any more, nor of any before it.
#[derive(Debug, Default)]
pub(super) struct Withdrawn {
    marks: HashMap<ApplierUid, Fence>,
    pending: Marks,
}

impl Withdrawn {
    /// Takes an entry that was found in [its Secret](SLOT); false where it is not a mark.
    pub(super) fn found(&mut self, key: PartKey, value: &[u8]) -> bool {
        if value.is_empty() {
            let mark = self.marks.entry(key.applier).or_insert(key.fence);
            *mark = key.fence.max(*mark);
        }
        value.is_empty()
    }

    /// Whether what is kept of an attempt counts.
    pub(super) fn counts(&self, applier: ApplierUid, fence: Fence) -> bool {
        self.marks.get(&applier).is_none_or(|newest| fence > *newest)
    }

    /// Nothing of an attempt before this one counts, once what is [pending](Self::take) is written. False where there is no room for that.
    pub(super) fn take_back(&mut self, applier: ApplierUid, (epoch, Attempt(attempt)): Fence) -> bool {
        if self.marks.len() >= MOST && !self.marks.contains_key(&applier) {
            return false;
        }
        let newest = (epoch, Attempt(attempt.saturating_sub(1)));
        if let Some(before) = self.marks.insert(applier, newest) {
            self.pending.insert(mark(applier, before), false);
        }
        self.pending.insert(mark(applier, newest), true);
        true
    }

    /// Forgets the marks of appliers of which nothing older is there any more. They go when what is [pending](Self::take) is written.
    pub(super) fn settle(&mut self, is_leaving: impl Fn(ApplierUid) -> bool) {
        let Self { marks, pending } = self;
        marks.retain(|applier, newest| {
            let key = mark(*applier, *newest);
            let stays = is_leaving(*applier) || pending.get(&key) == Some(&true);
            if !stays {
                pending.insert(key, false);
            }
            stays
        });
    }

    /// What is not written yet.
    pub(super) fn take(&mut self) -> Marks {
        std::mem::take(&mut self.pending)
    }

    /// What was taken could not be written. What came meanwhile is newer.
    pub(super) fn give_back(&mut self, taken: Marks) {
        for (key, is_there) in taken {
            self.pending.entry(key).or_insert(is_there);
        }
    }
}

/// The key of a mark.
fn mark(applier: ApplierUid, fence: Fence) -> PartKey {
    PartKey { applier, fence, index: 0, count: 1 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;

    fn applier(number: u128) -> ApplierUid {
        ApplierUid(Uuid::from_u128(number))
    }

    fn fence(attempt: i64) -> Fence {
        (HubEpoch(2), Attempt(attempt))
    }

    /// The keys of what a Secret has.
    type Stored = BTreeSet<String>;

    /// The same, read from what was written.
    fn read(stored: &Stored) -> Withdrawn {
        let mut withdrawn = Withdrawn::default();
        for key in stored {
            assert!(
                withdrawn.found(PartKey::parse(key).expect("a key of earlier versions, too"), b""),
                "{key}"
            );
        }
        withdrawn
    }

    fn write(withdrawn: &mut Withdrawn, stored: &mut Stored) {
        for (key, is_there) in withdrawn.take() {
            match is_there {
                true => stored.insert(key.text()),
                false => stored.remove(&key.text()),
            };
        }
    }

    #[test]
    fn what_is_older_than_what_was_taken_back_does_not_count_after_a_restart() {
        let (mut withdrawn, mut stored) = (Withdrawn::default(), Stored::new());
        for newest in [5, 7] {
            assert!(withdrawn.take_back(applier(1), fence(newest)));
            write(&mut withdrawn, &mut stored);
            assert_eq!(stored.len(), 1, "one mark takes the place of another: {stored:?}");
        }
        let withdrawn = read(&stored);
        assert!(!withdrawn.counts(applier(1), fence(6)));
        assert!(!withdrawn.counts(applier(1), (HubEpoch(1), Attempt(9))), "of an epoch before");
        assert!(withdrawn.counts(applier(1), fence(7)) && withdrawn.counts(applier(1), fence(8)));
        assert!(withdrawn.counts(applier(2), fence(1)));
    }

    #[test]
    fn a_mark_goes_once_nothing_older_is_there_and_not_before() {
        let (mut withdrawn, mut stored) = (Withdrawn::default(), Stored::new());
        for number in 1..=3 {
            assert!(withdrawn.take_back(applier(number), fence(1)));
        }
        write(&mut withdrawn, &mut stored);
        // Of the first something is on its way out; the second is taken back once more.
        assert!(withdrawn.take_back(applier(2), fence(2)));
        withdrawn.settle(|leaving| leaving == applier(1));
        write(&mut withdrawn, &mut stored);
        let withdrawn = read(&stored);
        assert!(!withdrawn.counts(applier(1), fence(0)) && !withdrawn.counts(applier(2), fence(1)));
        assert!(withdrawn.counts(applier(3), fence(0)));
        assert_eq!(stored.len(), 2);
    }

    #[test]
    fn what_could_not_be_written_is_written_later_unless_newer_came() {
        let (mut withdrawn, mut stored) = (Withdrawn::default(), Stored::new());
        assert!(withdrawn.take_back(applier(1), fence(1)) && withdrawn.take_back(applier(2), fence(1)));
        let taken = withdrawn.take();
        assert!(withdrawn.take_back(applier(1), fence(2)));
        withdrawn.give_back(taken);
        write(&mut withdrawn, &mut stored);
        assert_eq!(stored.len(), 2, "{stored:?}");
        let withdrawn = read(&stored);
        assert!(!withdrawn.counts(applier(1), fence(1)) && !withdrawn.counts(applier(2), fence(0)));
    }

    #[test]
    fn there_are_so_many_at_most_and_what_is_there_can_be_renewed() {
        let mut withdrawn = Withdrawn::default();
        let taken = (0..2 * MOST as u128).filter(|one| withdrawn.take_back(applier(*one), fence(1))).count();
        assert_eq!(taken, MOST);
        assert!(withdrawn.take_back(applier(0), fence(2)));
        let bytes: usize = withdrawn.take().keys().map(|key| key.text().len()).sum();
        assert!(bytes < 512 * 1024, "{bytes}");
    }

    #[test]
    fn what_an_earlier_version_kept_there_is_not_a_mark() {
        let mut withdrawn = Withdrawn::default();
        assert!(!withdrawn.found(mark(applier(1), fence(3)), b"kept"));
        assert!(withdrawn.counts(applier(1), fence(1)));
    }
}
