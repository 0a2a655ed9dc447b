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
/// Of these, those of all users that one stands behind: whom somebody is taken for is his choice, and the accounts of a namespace are made by
/// whoever may.
const OF_ONE_BEHIND: usize = 256;
/// So many are counted by who is behind them.
const BEHIND: usize = 2 * TOLD_APART;
/// Said of what is beyond what is told apart.
const TOO_MANY: &str = "refused, too many to be recorded one by one";
/// How the users begin that service accounts are; the namespace and the name follow.
const ACCOUNT: &str = "system:serviceaccount:";

/// What was refused since it was written down last, and how often.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// By who is behind them.
    behind: BTreeMap<String, Behind>,
    /// How many are told apart.
    known: usize,
    /// There is no room, and of nobody more than one is told apart.
    is_even: bool,
    /// What could not be written the last time.
    unwritten: Vec<AuditEntry>,
    /// Of those for whom there is no room by themselves.
    others: u64,
}

/// What those were refused behind whom is one.
#[derive(Default)]
struct Behind {
    /// By user, who that really is and as what, verb, group, kind, namespace, name, why and from where.
    known: BTreeMap<[String; 10], (AuditEntry, u64)>,
    /// By user: how many of these are theirs.
    of_users: BTreeMap<String, usize>,
    /// What is beyond what is told apart.
    more: u64,
}

impl Behind {
    fn has_room(&self, user: &str) -> bool {
        self.known.len() < OF_ONE_BEHIND
            && self.of_users.get(user).is_none_or(|of_user| *of_user < OF_ONE_USER)
    }

    /// Has one that is told apart be counted only.
    fn give_way(&mut self) {
        if let Some((_, (entry, times))) = self.known.pop_last() {
            self.more += times;
            if let Some(of_user) = self.of_users.get_mut(&entry.username) {
                *of_user -= 1;
            }
        }
    }
}

impl Counted {
    /// Makes room for the first refusal of somebody: of those of whom most is told apart one gives way, unless of none there is more than one.
    fn make_room(&mut self) {
        let most = self.behind.values_mut().max_by_key(|behind| behind.known.len());
        match most.filter(|most| most.known.len() > 1) {
            Some(most) => {
                most.give_way();
                self.known -= 1;
            }
            None => self.is_even = true,
        }
    }
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
        let who = who_is_behind(&entry);
        // A panic while it is held leaves the counts whole.
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = &mut *counted;
        let has_none = match counted.behind.get(&who) {
            Some(behind) => behind.known.is_empty(),
            None if counted.behind.len() >= BEHIND => {
                counted.others += 1;
                return;
            }
            None => true,
        };
        if has_none && counted.known >= TOLD_APART && !counted.is_even {
            counted.make_room();
        }
        let behind = counted.behind.entry(who).or_default();
        let has_room = counted.known < TOLD_APART && behind.has_room(&entry.username);
        match behind.known.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().1 += 1,
            Entry::Vacant(place) if has_room => {
                *behind.of_users.entry(entry.username.clone()).or_default() += 1;
                place.insert((entry, 1));
                counted.known += 1;
            }
            Entry::Vacant(_) => behind.more += 1,
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
        for (username, behind) in counted.behind {
            entries.extend(behind.known.into_values().map(|(entry, times)| AuditEntry {
                times: i64::try_from(times).unwrap_or(i64::MAX),
                ..entry
            }));
            if behind.more > 0 {
                entries.push(AuditEntry {
                    outcome: AuditOutcome::Refused,
                    username,
                    detail: TOO_MANY.to_owned(),
                    times: i64::try_from(behind.more).unwrap_or(i64::MAX),
                    ..AuditEntry::default()
                });
            }
        }
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

/// Who chooses as whom he is refused: whoever asked to be taken for somebody else, whoever makes accounts in a namespace, or the user.
fn who_is_behind(entry: &AuditEntry) -> String {
    let who = if entry.impersonator.is_empty() { &entry.username } else { &entry.impersonator };
    match who.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':')) {
        Some((namespace, _)) => format!("{ACCOUNT}{namespace}"),
        None => who.clone(),
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

    #[test]
    fn whoever_is_refused_as_many_hides_no_other() {
        // As many as may be taken for others, or make accounts, and as many users each of them.
        let refusals = Refusals::default();
        for number in 0..40 {
            for user in 0..2_000 {
                let (taken, account) = (format!("user-{user}"), format!("{ACCOUNT}team-{number}:a-{user}"));
                refusals.count(AuditEntry {
                    impersonator: format!("mallory-{number}"),
                    ..refusal(&taken, &format!("no {number}"))
                });
                refusals.count(refusal(&account, "no"));
            }
        }
        refusals.count(refusal("alice", "the one that counts"));
        refusals.count(AuditEntry { impersonator: "bob".to_owned(), ..refusal("carol", "another one") });
        let entries = refusals.take();
        for (user, detail) in [("alice", "the one that counts"), ("carol", "another one")] {
            let told: Vec<_> = entries.iter().filter(|entry| entry.username == user).collect();
            assert!(told.len() == 1 && told[0].detail == detail && told[0].times == 1, "{told:?}");
        }
        // Whom somebody was taken for is nobody to count by; nothing is lost of how many there were.
        let of_one: Vec<_> = entries.iter().filter(|entry| entry.impersonator == "mallory-0").collect();
        assert!(!of_one.is_empty() && of_one.len() <= OF_ONE_BEHIND);
        assert!(entries.len() <= TOLD_APART + 80 + 2, "{}", entries.len());
        assert_eq!(entries.iter().map(|entry| entry.times).sum::<i64>(), 2 * 40 * 2_000 + 2);
    }
}
