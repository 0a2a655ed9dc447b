//! Corrections that wait until the hub has taken them in: in their order, and no more than so many. What is forgotten for want of room is counted.

use std::collections::BTreeMap;

use roadstead_model::ApplierUid;
use roadstead_proto::{Corrected, Correction};
use tokio::time::Instant;

use crate::tend;

/// How many corrected objects may wait to be told: some kilobytes each, with the fields that are named.
const MAX_OBJECTS: usize = 2_000;

/// How many bytes corrections take that wait to be told.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The number of the first correction of this process. Those of the process before it come before.
const FIRST: u64 = 1 << 32;

/// What waits to be told.
#[derive(Debug)]
pub(super) struct Corrections {
    /// By the number by which each is confirmed, which counts up.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    objects: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    /// With how long ago it began at `since`.
    correction: Correction,
    since: Instant,
    /// Whether it was sent in this session.
    sent: bool,
}

impl Waiting {
    fn told(&self, now: Instant) -> Correction {
        let ago = self.correction.ago.saturating_add(now.saturating_duration_since(self.since));
        Correction { ago, ..self.correction.clone() }
    }
}

/// Which corrections wait: equal where they are the same ones.
pub(crate) type Version = (u64, u64);

impl Default for Corrections {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), next: FIRST, objects: 0, bytes: 0 }
    }
}

impl Corrections {
    /// Adds what began at `since`; of very many, the oldest are forgotten. Says how many that were.
    pub(super) fn add(&mut self, correction: Correction, since: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.put(number, correction, since);
        self.forget_the_oldest()
    }

    /// Forgets as many as there is no room for, and says how many.
    fn forget_the_oldest(&mut self) -> u64 {
        let mut forgotten = 0;
        while (self.objects > MAX_OBJECTS || self.bytes > MAX_BYTES)
            && let Some((oldest, _)) = self.waiting.first_key_value()
        {
            let oldest = *oldest;
            // What it was to tell of others is told by the next one.
            forgotten += 1 + self.forget(oldest).map_or(0, |correction| correction.forgotten);
        }
        let unsent = self.waiting.values_mut().find(|waiting| !waiting.sent);
        if let Some(unsent) = unsent {
            unsent.correction.forgotten += forgotten;
        }
        forgotten
    }

    fn put(&mut self, number: u64, correction: Correction, since: Instant) {
        self.objects += correction.objects.len();
        self.bytes += bytes_of(&correction);
        self.waiting.insert(number, Waiting { correction, since, sent: false });
    }

    /// Goes on with what waited when the process before this one ended. It comes before all that happens in this one.
    pub(super) fn resume(&mut self, corrections: Vec<Correction>, now: Instant) {
        for (number, correction) in (0..FIRST).zip(corrections) {
            self.put(number, correction, now);
        }
        self.forget_the_oldest();
    }

    pub(super) fn forget(&mut self, number: u64) -> Option<Correction> {
        let Waiting { correction, .. } = self.waiting.remove(&number)?;
        self.objects -= correction.objects.len();
        self.bytes -= bytes_of(&correction);
        Some(correction)
    }

    pub(super) fn begin_session(&mut self) {
        self.waiting.values_mut().for_each(|waiting| waiting.sent = false);
    }

    pub(super) fn are_sent(&self) -> bool {
        self.waiting.values().all(|waiting| waiting.sent)
    }

    /// The next one of an applier that `is_free`. It counts as sent.
    pub(super) fn next(
        &mut self,
        now: Instant,
        is_free: impl Fn(ApplierUid) -> bool,
    ) -> Option<(u64, Correction)> {
        let is_next = |waiting: &Waiting| !waiting.sent && is_free(waiting.correction.key.applier);
        let (number, waiting) = self.waiting.iter_mut().find(|(_, waiting)| is_next(waiting))?;
        waiting.sent = true;
        Some((*number, waiting.told(now)))
    }

    /// Which ones wait; none where none does.
    pub(super) fn version(&self) -> Option<Version> {
        self.waiting.first_key_value().map(|(oldest, _)| (*oldest, self.next))
    }

    /// All of them, in their order.
    pub(super) fn all(&self, now: Instant) -> Vec<Correction> {
        self.waiting.values().map(|waiting| waiting.told(now)).collect()
    }
}

/// About how many bytes a correction takes in memory.
fn bytes_of(correction: &Correction) -> usize {
    let object = |object: &Corrected| tend::bytes_of(&object.fields) + 512;
    correction.objects.iter().map(object).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roadstead_model::{Action, Attempt, DispatchKey, Generation, HubEpoch, ObjectRef};
    use uuid::Uuid;

    use super::*;

    fn correction(name: &str, objects: usize) -> Correction {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "team".to_owned(),
            name: name.to_owned(),
        };
        let corrected =
            Corrected { object, action: Action::Configured, managers: Vec::new(), fields: Vec::new() };
        let key = DispatchKey {
            epoch: HubEpoch(1),
            applier: ApplierUid(Uuid::nil()),
            generation: Generation(1),
            attempt: Attempt(1),
            digest: None,
        };
        let objects = vec![corrected; objects];
        Correction { key, ago: Duration::ZERO, took: Duration::ZERO, objects, forgotten: 0 }
    }

    fn told(corrections: &mut Corrections, now: Instant) -> Vec<(String, u64)> {
        std::iter::from_fn(|| corrections.next(now, |_| true))
            .map(|(_, told)| (told.objects[0].object.name.clone(), told.forgotten))
            .collect()
    }

    #[test]
    fn what_is_forgotten_is_counted_by_the_oldest_that_is_told() {
        let now = Instant::now();
        let mut corrections = Corrections::default();
        for name in ["a", "b", "c"] {
            assert_eq!(corrections.add(correction(name, 900), now), u64::from(name == "c"));
        }
        // What told of the first one is forgotten itself.
        assert_eq!(corrections.add(correction("d", 900), now), 2);
        assert_eq!(told(&mut corrections, now), [("c".to_owned(), 2), ("d".to_owned(), 0)]);
        // What was sent is not changed any more.
        assert_eq!(corrections.add(correction("e", 900), now), 3);
        assert_eq!(told(&mut corrections, now), [("e".to_owned(), 3)]);
        corrections.begin_session();
        assert_eq!(told(&mut corrections, now), [("d".to_owned(), 0), ("e".to_owned(), 3)]);
    }

    #[test]
    fn another_process_goes_on_in_order() {
        let now = Instant::now();
        let mut before = Corrections::default();
        assert_eq!(before.version(), None);
        before.add(correction("a", 1), now);
        before.add(correction("b", 1), now + Duration::from_secs(5));
        let version = before.version();
        assert_eq!(before.version(), version);
        let kept = before.all(now + Duration::from_secs(60));
        assert_eq!(kept.iter().map(|one| one.ago.as_secs()).collect::<Vec<_>>(), [60, 55]);

        let mut after = Corrections::default();
        after.add(correction("c", 1), now);
        after.resume(kept, now);
        assert_ne!(after.version(), version);
        let later = now + Duration::from_secs(10);
        let ago: Vec<_> = after.all(later).into_iter().map(|one| one.ago.as_secs()).collect();
        assert_eq!(ago, [70, 65, 10]);
        let names: Vec<_> = told(&mut after, later).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        for number in [0, 1, FIRST] {
            after.forget(number);
        }
        assert_eq!(after.version(), None);
        assert_eq!((after.objects, after.bytes), (0, 0));
    }
}
