//! What the same one does again and again: the first time is written at once, what follows within a while is one entry that says
//! how often.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use roadstead_model::{AuditEntry, AuditOrigin};

use super::impersonated;

/// What is counted at one time. What is beyond is written each time, so that nothing goes unseen.
const MOST: usize = 4_096;
/// Of these, one user's.
const OF_ONE_USER: usize = 512;

/// Who did what from where, apart from the request.
type Key = [String; 8];

#[derive(Default)]
struct Counted {
    known: HashMap<Key, Repeated>,
    of_user: HashMap<String, usize>,
}

struct Repeated {
    entry: AuditEntry,
    until: Timestamp,
    more: i64,
}

/// What is being counted.
#[derive(Default)]
pub(super) struct Repeats(Mutex<Counted>);

fn key(entry: &AuditEntry) -> Key {
    let AuditEntry { username, impersonator, verb, kind, namespace, name, origin, .. } = entry;
    let taken = impersonated::key(entry);
    [username, impersonator, &taken, verb, kind, namespace, name, &origin.address].map(Clone::clone)
}

impl Repeats {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        // A panic while it is held leaves the counts whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an entry is to be written now. Where it is not it has been counted; what is like it is counted for `period` from the
    /// first one on.
    pub(super) fn is_first(&self, entry: &AuditEntry, now: Timestamp, period: SignedDuration) -> bool {
        let mut counted = self.lock();
        let Counted { known, of_user } = &mut *counted;
        let full = known.len() >= MOST;
        match known.entry(key(entry)) {
            Entry::Occupied(mut present) => {
                let present = present.get_mut();
                present.more = present.more.saturating_add(1);
                false
            }
            Entry::Vacant(place) => {
                let own = of_user.get(&entry.username).copied().unwrap_or(0);
                if !full && own < OF_ONE_USER {
                    let origin = AuditOrigin { request: String::new(), ..entry.origin.clone() };
                    let entry = AuditEntry { origin, ..entry.clone() };
                    of_user.insert(entry.username.clone(), own + 1);
                    place.insert(Repeated {
                        entry,
                        until: now.saturating_add(period).unwrap_or(now),
                        more: 0,
                    });
                }
                true
            }
        }
    }

    /// What was to be written could not be: what is like it is not known, unless it was counted meanwhile and is told of by that.
    pub(super) fn forget(&self, entry: &AuditEntry) {
        let mut counted = self.lock();
        let key = key(entry);
        if counted.known.get(&key).is_some_and(|known| known.more == 0) {
            counted.known.remove(&key);
            counted.leave(&entry.username);
        }
    }

    /// What was counted and whose time is over, or all.
    pub(super) fn take(&self, now: Timestamp, all: bool) -> Vec<AuditEntry> {
        let mut counted = self.lock();
        let over: Vec<Key> = counted
            .known
            .iter()
            .filter(|(_, one)| all || one.until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        let mut entries = Vec::new();
        for key in over {
            let Some(Repeated { entry, more, .. }) = counted.known.remove(&key) else { continue };
            counted.leave(&entry.username);
            if more > 0 {
                entries.push(AuditEntry { times: more, ..entry });
            }
        }
        entries
    }
}

impl Counted {
    fn leave(&mut self, username: &str) {
        if let Some(own) = self.of_user.get_mut(username) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                self.of_user.remove(username);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    fn read(user: &str, name: &str) -> AuditEntry {
        AuditEntry {
            username: user.to_owned(),
            verb: "get".into(),
            name: name.to_owned(),
            ..AuditEntry::default()
        }
    }

    #[test]
    fn what_is_repeated_is_one_entry_more() {
        let (repeats, start) = (Repeats::default(), Timestamp::UNIX_EPOCH);
        assert!(repeats.is_first(&read("alice", "s"), start, MINUTE));
        for _ in 0..41 {
            assert!(!repeats.is_first(&read("alice", "s"), start, MINUTE));
        }
        assert!(repeats.is_first(&read("bob", "s"), start, MINUTE));
        assert!(repeats.take(start, false).is_empty());
        let entries = repeats.take(start + MINUTE, false);
        assert_eq!(entries.iter().map(|entry| entry.times).collect::<Vec<_>>(), [41]);
        assert!(repeats.is_first(&read("alice", "s"), start + MINUTE, MINUTE), "another minute");
        repeats.forget(&read("alice", "s"));
        assert!(repeats.is_first(&read("alice", "s"), start + MINUTE, MINUTE), "it was not written");
        assert!(!repeats.is_first(&read("alice", "s"), start + MINUTE, MINUTE));
        repeats.forget(&read("alice", "s"));
        assert_eq!(repeats.take(start + MINUTE, true).len(), 1, "who was counted meanwhile is told of");
    }

    #[test]
    fn whoever_reads_much_takes_no_more_memory_and_goes_unseen_nowhere() {
        let (repeats, start) = (Repeats::default(), Timestamp::UNIX_EPOCH);
        for number in 0..20_000 {
            let name = number.to_string();
            assert!(repeats.is_first(&read("mallory", &name), start, MINUTE));
            assert!(repeats.is_first(&read(&format!("user-{name}"), "s"), start, MINUTE));
        }
        assert_eq!(repeats.lock().known.len(), MOST);
        assert!(repeats.lock().of_user["mallory"] <= OF_ONE_USER);
        assert!(repeats.is_first(&read("mallory", "19999"), start, MINUTE), "written each time");
        repeats.take(start, true);
        assert!(repeats.lock().known.is_empty() && repeats.lock().of_user.is_empty());
    }
}
