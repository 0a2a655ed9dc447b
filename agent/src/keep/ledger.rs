//! What was taken back of what is kept, in a Secret of its own. Taking something out of the Secret that holds it writes all that this one
//! holds, so that waits until there is more to write; a line here is small, and a dispatch waits for no more than that. Pure.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use roadstead_model::{ApplierUid, Attempt, HubEpoch};

use super::slots::SLOTS;

/// The Secret that has it, by its number: one that nothing is kept in.
pub(super) const SLOT: usize = SLOTS - 1;

/// How the keys begin; the applier follows. An agent of an earlier version passes over them.
const PREFIX: &str = "taken-back.";

/// So many lines it has at most: each is some hundred bytes, and an apiserver takes 1 MiB of a Secret.
const MOST: usize = 4_000;

/// The epoch and number of an attempt.
type Fence = (HubEpoch, Attempt);

/// By a line that cannot be read nothing of its applier counts.
const NOTHING: Fence = (HubEpoch(i64::MAX), Attempt(i64::MAX));

/// What is written: the value of a key, or that it goes.
pub(super) type Lines = BTreeMap<String, Option<Vec<u8>>>;

/// Of some appliers, the oldest attempt that counts: what is kept of an older one was taken back.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    lines: BTreeMap<ApplierUid, Fence>,
    /// Of these the line is not written yet, or is to go.
    pending: BTreeMap<ApplierUid, Option<Fence>>,
}

impl Ledger {
    /// Takes an entry that was found in its Secret; false where it is none of a ledger.
    pub(super) fn found(&mut self, key: &str, value: &[u8]) -> bool {
        let Some(applier) = key.strip_prefix(PREFIX).and_then(|applier| applier.parse().ok()) else {
            return false;
        };
        self.lines.insert(ApplierUid(applier), parse(value).unwrap_or(NOTHING));
        true
    }

    /// Whether what is kept of an attempt counts.
    pub(super) fn counts(&self, applier: ApplierUid, fence: Fence) -> bool {
        self.lines.get(&applier).is_none_or(|oldest| *oldest <= fence)
    }

    /// Nothing of an attempt before this one counts, once what is [pending](Self::take) is written. False where there is no room for that.
    pub(super) fn take_back(&mut self, applier: ApplierUid, oldest: Fence) -> bool {
        if self.lines.len() >= MOST && !self.lines.contains_key(&applier) {
            return false;
        }
        self.lines.insert(applier, oldest);
        self.pending.insert(applier, Some(oldest));
        true
    }

    /// Forgets the lines of appliers of which nothing older is there any more. They go with the next line that is written.
    pub(super) fn settle(&mut self, is_leaving: impl Fn(ApplierUid) -> bool) {
        let Self { lines, pending } = self;
        lines.retain(|applier, _| {
            let stays = is_leaving(*applier) || pending.get(applier).is_some_and(Option::is_some);
            if !stays {
                pending.insert(*applier, None);
            }
            stays
        });
    }

    /// What is not written yet.
    pub(super) fn take(&mut self) -> BTreeMap<ApplierUid, Option<Fence>> {
        std::mem::take(&mut self.pending)
    }

    /// What was taken could not be written. What came meanwhile is newer.
    pub(super) fn give_back(&mut self, taken: BTreeMap<ApplierUid, Option<Fence>>) {
        for (applier, line) in taken {
            self.pending.entry(applier).or_insert(line);
        }
    }
}

/// As it stands in the Secret.
pub(super) fn lines(taken: &BTreeMap<ApplierUid, Option<Fence>>) -> Lines {
    let line = |(applier, fence): (&ApplierUid, &Option<Fence>)| {
        let text = fence.map(|(HubEpoch(epoch), Attempt(attempt))| format!("{epoch}.{attempt}").into_bytes());
        (format!("{PREFIX}{}", applier.0), text)
    };
    taken.iter().map(line).collect()
}

/// The values of a Secret's patch.
pub(super) fn values(lines: Lines) -> serde_json::Map<String, serde_json::Value> {
    let value = |value: Option<Vec<u8>>| {
        value.map_or(serde_json::Value::Null, |value| serde_json::json!(ByteString(value)))
    };
    lines.into_iter().map(|(key, line)| (key, value(line))).collect()
}

fn parse(value: &[u8]) -> Option<Fence> {
    let (epoch, attempt) = std::str::from_utf8(value).ok()?.split_once('.')?;
    Some((HubEpoch(epoch.parse().ok()?), Attempt(attempt.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn applier(number: u128) -> ApplierUid {
        ApplierUid(Uuid::from_u128(number))
    }

    fn fence(attempt: i64) -> Fence {
        (HubEpoch(2), Attempt(attempt))
    }

    /// The same, read from what was written.
    fn read(stored: &BTreeMap<String, Vec<u8>>) -> Ledger {
        let mut ledger = Ledger::default();
        for (key, value) in stored {
            assert!(ledger.found(key, value), "{key}");
        }
        ledger
    }

    fn write(ledger: &mut Ledger, stored: &mut BTreeMap<String, Vec<u8>>) {
        for (key, line) in lines(&ledger.take()) {
            match line {
                Some(line) => drop(stored.insert(key, line)),
                None => drop(stored.remove(&key)),
            }
        }
    }

    #[test]
    fn what_is_older_than_what_was_taken_back_does_not_count_after_a_restart() {
        let (mut ledger, mut stored) = (Ledger::default(), BTreeMap::new());
        assert!(ledger.take_back(applier(1), fence(7)));
        write(&mut ledger, &mut stored);
        let ledger = read(&stored);
        assert!(!ledger.counts(applier(1), fence(6)));
        assert!(!ledger.counts(applier(1), (HubEpoch(1), Attempt(9))), "of an epoch before");
        assert!(ledger.counts(applier(1), fence(7)) && ledger.counts(applier(1), fence(8)));
        assert!(ledger.counts(applier(2), fence(1)));
    }

    #[test]
    fn a_line_goes_once_nothing_older_is_there_and_not_before() {
        let (mut ledger, mut stored) = (Ledger::default(), BTreeMap::new());
        for number in 1..=3 {
            assert!(ledger.take_back(applier(number), fence(1)));
        }
        write(&mut ledger, &mut stored);
        // Of the first something is on its way out; the second is taken back once more.
        assert!(ledger.take_back(applier(2), fence(2)));
        ledger.settle(|leaving| leaving == applier(1));
        write(&mut ledger, &mut stored);
        let ledger = read(&stored);
        assert!(!ledger.counts(applier(1), fence(0)) && !ledger.counts(applier(2), fence(1)));
        assert!(ledger.counts(applier(3), fence(0)));
        assert_eq!(stored.len(), 2);
    }

    #[test]
    fn what_could_not_be_written_is_written_later_unless_newer_came() {
        let (mut ledger, mut stored) = (Ledger::default(), BTreeMap::new());
        assert!(ledger.take_back(applier(1), fence(1)) && ledger.take_back(applier(2), fence(1)));
        let taken = ledger.take();
        assert!(ledger.take_back(applier(1), fence(2)));
        ledger.give_back(taken);
        write(&mut ledger, &mut stored);
        let ledger = read(&stored);
        assert!(!ledger.counts(applier(1), fence(1)) && !ledger.counts(applier(2), fence(0)));
    }

    #[test]
    fn it_is_bounded_and_what_is_there_can_be_renewed() {
        let mut ledger = Ledger::default();
        let taken =
            (0..2 * MOST as u128).filter(|number| ledger.take_back(applier(*number), fence(1))).count();
        assert_eq!(taken, MOST);
        assert!(ledger.take_back(applier(0), fence(2)));
        let bytes: usize = lines(&ledger.take())
            .iter()
            .map(|(key, line)| key.len() + line.as_ref().map_or(0, Vec::len))
            .sum();
        assert!(bytes < 512 * 1024, "{bytes}");
    }

    #[test]
    fn by_what_cannot_be_read_nothing_counts() {
        let mut ledger = Ledger::default();
        let key = format!("{PREFIX}{}", applier(1).0);
        for value in ["", "1", "1.x", "1.2.3"] {
            assert!(ledger.found(&key, value.as_bytes()));
            assert!(!ledger.counts(applier(1), fence(i64::MAX - 1)), "{value}");
        }
        // Parts of what is kept, and what somebody else put there.
        for other in ["11111111-1111-1111-1111-111111111111.1.2.0.1", "taken-back.", "taken-back.x", "notes"]
        {
            assert!(!ledger.found(other, b"1.1"), "{other}");
        }
    }
}
