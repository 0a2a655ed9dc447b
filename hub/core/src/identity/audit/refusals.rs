//! What was refused, counted: whoever is refused all the time fills neither the memory nor the log.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

use roadstead_model::{AuditEntry, AuditOutcome};

use super::{impersonated, shorten};

/// Different refusals that are told apart between two writes. What comes beyond is counted only, so that whoever is refused
/// all the time fills neither the memory nor the log.
const TOLD_APART: usize = 2_048;
/// Of these, one user's: whoever is refused chooses what he is refused, and hides nobody else by that.
const OF_ONE_USER: usize = 64;
/// Said of what is beyond what is told apart.
const TOO_MANY: &str = "refused, too many to be recorded one by one";
/// What was refused since it was written down last, and how often.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// By user, who that really is and as what, verb, group, kind, namespace, name, why and from where.
    known: BTreeMap<[String; 10], (AuditEntry, u64)>,
    /// By user: how many of these are theirs.
    of_users: BTreeMap<String, usize>,
    /// What could not be written the last time.
    unwritten: Vec<AuditEntry>,
    /// By user: what is beyond what is told apart of one.
    more: BTreeMap<String, u64>,
    others: u64,
}

impl Refusals {
    pub(super) fn count(&self, mut entry: AuditEntry) {
        entry.outcome = AuditOutcome::Refused;
        shorten(&mut entry);
        let AuditEntry { username, impersonator, verb, group, kind, namespace, name, detail, origin, .. } =
            &entry;
        let (from, taken) = (&origin.address, impersonated::key(&entry));
        let key = [username, impersonator, &taken, verb, group, kind, namespace, name, detail, from]
            .map(Clone::clone);
        // A panic while it is held leaves the counts whole.
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = &mut *counted;
        let of_user = counted.of_users.get(&entry.username).copied().unwrap_or(0);
        let is_full = counted.known.len() >= TOLD_APART || of_user >= OF_ONE_USER;
        match counted.known.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().1 += 1,
            Entry::Vacant(place) if !is_full => {
                counted.of_users.insert(entry.username.clone(), of_user + 1);
                place.insert((entry, 1));
            }
            Entry::Vacant(_) => {
                let has_room = counted.more.len() < TOLD_APART;
                match counted.more.entry(entry.username) {
                    Entry::Occupied(mut more) => *more.get_mut() += 1,
                    Entry::Vacant(place) if has_room => drop(place.insert(1)),
                    Entry::Vacant(_) => counted.others += 1,
                }
            }
        }
    }

    /// Takes back what could not be written, for the next time. What is more than may wait is dropped, the newest first.
    pub(super) fn put_back(&self, entries: Vec<AuditEntry>) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.unwritten.extend(entries);
        counted.unwritten.truncate(TOLD_APART);
    }

    pub(super) fn take(&self) -> Vec<AuditEntry> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut entries = counted.unwritten;
        entries.extend(
            counted.known.into_values().map(|(entry, times)| AuditEntry {
                times: i64::try_from(times).unwrap_or(i64::MAX),
                ..entry
            }),
        );
        entries.extend(counted.more.into_iter().map(|(username, times)| AuditEntry {
            outcome: AuditOutcome::Refused,
            username,
            detail: TOO_MANY.to_owned(),
            times: i64::try_from(times).unwrap_or(i64::MAX),
            ..AuditEntry::default()
        }));
        if counted.others > 0 {
            entries.push(AuditEntry {
                outcome: AuditOutcome::Refused,
                detail: TOO_MANY.to_owned(),
                times: i64::try_from(counted.others).unwrap_or(i64::MAX),
                ..AuditEntry::default()
            });
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_TEXT;
    use super::*;

    fn refusal(user: &str, detail: &str) -> AuditEntry {
        AuditEntry { username: user.to_owned(), detail: detail.to_owned(), ..AuditEntry::default() }
    }

    #[test]
    fn a_flood_of_refusals_is_counted_and_takes_no_room() {
        let refusals = Refusals::default();
        for _ in 0..1_000 {
            refusals.count(refusal("mallory", "login"));
        }
        for user in 0..100_000 {
            refusals.count(refusal(&format!("user-{user}"), &"x".repeat(10_000)));
        }
        let entries = refusals.take();
        assert_eq!(entries.len(), 2 * TOLD_APART + 1);
        assert!(entries.iter().all(|entry| entry.outcome == AuditOutcome::Refused));
        assert!(entries.iter().all(|entry| entry.detail.len() <= MAX_TEXT + '…'.len_utf8()));
        assert!(entries.iter().any(|entry| entry.detail == "login" && entry.times == 1_000));
        let others = i64::try_from(100_000 - (TOLD_APART - 1) - TOLD_APART).unwrap();
        assert_eq!(entries[2 * TOLD_APART].times, others);
        assert!(refusals.take().is_empty());
        // What could not be written waits for the next time, and there is an end to that as well.
        for _ in 0..3 {
            refusals.put_back(entries.clone());
        }
        refusals.count(refusal("mallory", "login"));
        assert_eq!(refusals.take().len(), TOLD_APART + 1);
    }

    #[test]
    fn one_user_who_makes_up_paths_hides_no_other() {
        let refusals = Refusals::default();
        for path in 0..10_000 {
            refusals.count(AuditEntry { name: format!("/{path}"), ..refusal("mallory", "") });
        }
        refusals.count(refusal("alice", "no"));
        let entries = refusals.take();
        assert!(entries.iter().any(|entry| entry.username == "alice" && entry.detail == "no"), "{entries:?}");
        let of_mallory: Vec<_> = entries.iter().filter(|entry| entry.username == "mallory").collect();
        assert_eq!(of_mallory.len(), OF_ONE_USER + 1);
        let rest = i64::try_from(10_000 - OF_ONE_USER).unwrap();
        assert!(
            of_mallory.iter().any(|entry| entry.times == rest && entry.detail == TOO_MANY),
            "{of_mallory:?}"
        );
    }
}
