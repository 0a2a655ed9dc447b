//! What an applier's dispatches mean for each other. Pure.

use roadstead_model::{Attempt, DispatchKey, HubEpoch};

/// What to do with a dispatch that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is under way: start it.
    Start,
    /// It is newer than what is under way, which is to end at the next safe place; then start it.
    Supersede,
    /// It is under way, or about to be.
    UnderWay,
    /// It is done: tell its end again.
    Done,
    /// A newer one was seen, or another one of the same attempt.
    Stale,
}

/// What is known of one applier.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// The newest that was seen.
    pub seen: Option<(HubEpoch, Attempt)>,
    /// The one that is carried out.
    pub running: Option<&'a DispatchKey>,
    /// The one that starts when that has ended.
    pub queued: Option<&'a DispatchKey>,
    /// The last one that ended.
    pub finished: Option<&'a DispatchKey>,
    /// Whether it is begun again where it is asked for again: it was cancelled, and so not done, or what it read is not kept.
    pub begins_again: bool,
}

impl Known<'_> {
    /// Judges `new`.
    #[must_use]
    pub fn judge(&self, new: &DispatchKey) -> Verdict {
        if self.queued == Some(new) || (self.queued.is_none() && self.running == Some(new)) {
            return Verdict::UnderWay;
        }
        if self.queued.is_none() && self.running.is_none() && self.finished == Some(new) {
            return if self.begins_again { Verdict::Start } else { Verdict::Done };
        }
        if self.seen.is_some_and(|seen| new.fence() <= seen) {
            return Verdict::Stale;
        }
        if self.running.is_some() { Verdict::Supersede } else { Verdict::Start }
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Verdict};
    use roadstead_model::{ApplierUid, Attempt, Digest, DispatchKey, Generation, HubEpoch};

    fn key(epoch: i64, attempt: i64) -> DispatchKey {
        DispatchKey {
            epoch: HubEpoch(epoch),
            applier: ApplierUid(uuid::Uuid::nil()),
            generation: Generation(1),
            attempt: Attempt(attempt),
            digest: Some(Digest::of(b"[]")),
        }
    }

    #[test]
    fn the_first_starts_and_a_newer_one_supersedes() {
        assert_eq!(Known::default().judge(&key(1, 1)), Verdict::Start);
        let one = key(1, 1);
        let known = Known { seen: Some(one.fence()), running: Some(&one), ..Known::default() };
        assert_eq!(known.judge(&one), Verdict::UnderWay);
        assert_eq!(known.judge(&key(1, 2)), Verdict::Supersede);
        assert_eq!(
            known.judge(&key(2, 1)),
            Verdict::Supersede,
            "a later epoch counts more than a later attempt"
        );
        let two = key(1, 2);
        let known =
            Known { seen: Some(two.fence()), running: Some(&one), queued: Some(&two), ..Known::default() };
        assert_eq!(known.judge(&two), Verdict::UnderWay);
        assert_eq!(known.judge(&one), Verdict::Stale, "it is being ended in favour of the newer one");
        assert_eq!(known.judge(&key(1, 3)), Verdict::Supersede);
    }

    #[test]
    fn what_is_done_is_told_again_and_what_is_older_is_stale() {
        let two = key(1, 2);
        let known = Known { seen: Some(two.fence()), finished: Some(&two), ..Known::default() };
        assert_eq!(known.judge(&two), Verdict::Done);
        assert_eq!(known.judge(&key(1, 1)), Verdict::Stale);
        assert_eq!(known.judge(&key(0, 9)), Verdict::Stale);
        let other = DispatchKey { digest: None, ..two.clone() };
        assert_eq!(known.judge(&other), Verdict::Stale, "the same attempt with another build");
        assert_eq!(known.judge(&key(1, 3)), Verdict::Start);
        let known = Known { begins_again: true, ..known };
        assert_eq!(known.judge(&two), Verdict::Start, "what was cancelled is not done");
        assert_eq!(known.judge(&key(1, 1)), Verdict::Stale);
    }
}
