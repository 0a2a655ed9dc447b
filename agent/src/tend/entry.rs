//! One object that was applied: how, how it was seen since, and when it may be corrected.

use std::time::Duration;

use roadstead_apply::{Applied, Footprint, Standing};
use roadstead_model::{Digest, ObjectRef};
use tokio::time::Instant;

use super::Watch;

/// So long something that was seen is waited with: what one command does comes as several events, and of many objects at once.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The least time between two corrections of an object that is changed again and again; it doubles up to the last.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(600);

/// An object that was left in peace for so long, and for twice its last delay, is corrected at once again.
const PEACE: Duration = Duration::from_secs(60);

/// Where an object was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// In a list.
    List,
    /// By a watch.
    Watch,
}

/// What it means that an object was seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing: it is not known yet, or this is old.
    Nothing,
    /// There is nothing to be corrected.
    Stands,
    /// It is to be corrected, with who has written.
    Changed(Vec<String>),
}

/// What is known of one object.
#[derive(Debug)]
pub(super) struct Entry {
    /// By what it is watched; none before it was applied.
    pub(super) watch: Option<Watch>,
    applied: Option<Known>,
    /// What was seen last, where that is newer than what was applied.
    seen: Option<Footprint>,
    pub(super) standing: Standing,
    corrections: Corrections,
}

/// How it was applied.
#[derive(Debug)]
struct Known {
    sent: Digest,
    is_as_sent: bool,
    footprint: Footprint,
}

/// How often it was corrected lately.
#[derive(Debug, Default)]
struct Corrections {
    count: u32,
    last: Option<Instant>,
}

impl Corrections {
    fn delay(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => FIRST_DELAY.saturating_mul(1 << (count - 1).min(20)).min(LAST_DELAY),
        }
    }

    fn add(&mut self, now: Instant) {
        let peace = PEACE.max(self.delay() * 2);
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > peace) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    fn not_before(&self, now: Instant) -> Instant {
        let allowed = self.last.map_or(now, |last| last + self.delay());
        allowed.max(now + DEBOUNCE)
    }
}

impl Default for Entry {
    /// One of which nothing is known yet; what is seen of it is kept.
    fn default() -> Self {
        Self {
            watch: None,
            applied: None,
            seen: None,
            standing: Standing::Changed,
            corrections: Corrections::default(),
        }
    }
}

impl Entry {
    /// Whether it was applied as `sent` and stands so.
    pub(super) fn stands(&self, sent: &Digest) -> bool {
        self.standing == Standing::AsApplied
            && self.applied.as_ref().is_some_and(|known| known.is_as_sent && known.sent == *sent)
    }

    pub(super) fn was_other(&self, sent: &Digest) -> Option<bool> {
        self.applied.as_ref().map(|known| known.sent != *sent)
    }

    /// It was applied. What was seen of it before counts where it is newer: another may have written at once.
    pub(super) fn note(&mut self, watch: Watch, applied: Applied) {
        let Applied { sent, footprint, is_as_sent, .. } = applied;
        self.seen = self.seen.take().filter(|seen| footprint.is_older_than(seen));
        self.standing = self.seen.as_ref().map_or(Standing::AsApplied, |seen| footprint.compare(seen));
        self.watch = Some(watch);
        self.applied = Some(Known { sent, is_as_sent, footprint });
    }

    /// It was seen. A watch may still tell of what was there before it was applied; what a list has is there.
    pub(super) fn see(&mut self, seen: Footprint, from: From) -> News {
        let Some(Known { footprint, .. }) = &self.applied else {
            self.seen = Some(seen);
            return News::Nothing;
        };
        let is_older = seen.is_older_than(footprint);
        if from == From::Watch && is_older {
            return News::Nothing;
        }
        self.standing = match footprint.compare(&seen) {
            // It may come from a backup, or the list was begun before our last write, of which the watch then tells.
            Standing::AsApplied if is_older => Standing::Changed,
            standing => standing,
        };
        let news = match self.standing {
            Standing::Changed => {
                News::Changed(footprint.writers_since(&seen).into_iter().map(ToOwned::to_owned).collect())
            }
            Standing::AsApplied | Standing::Leaving | Standing::Taken => News::Stands,
        };
        self.seen = (self.standing != Standing::AsApplied).then_some(seen);
        news
    }

    /// It is gone. Whether it is to be created again now: a Job that has run to its end is removed after a while, and is not to run
    /// again before the next reconciliation. Its metadata does not tell whether it has, so this holds for all Jobs.
    pub(super) fn gone(&mut self, object: &ObjectRef) -> bool {
        let is_job = (object.group.as_str(), object.kind.as_str()) == ("batch", "Job");
        self.seen = None;
        self.standing = if is_job { Standing::Taken } else { Standing::Changed };
        !is_job && self.applied.is_some()
    }

    /// Whether it is to be corrected, as far as is known.
    pub(super) fn is_suspect(&self) -> bool {
        self.applied.is_some() && self.standing == Standing::Changed
    }

    /// From when on it may be corrected.
    pub(super) fn not_before(&self, now: Instant) -> Instant {
        self.corrections.not_before(now)
    }

    /// It was corrected, or that was tried.
    pub(super) fn was_corrected(&mut self, now: Instant) {
        self.corrections.add(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Corrections, DEBOUNCE, LAST_DELAY};

    #[test]
    fn who_fights_is_met_more_and_more_slowly_until_there_is_peace() {
        let (mut corrections, mut now) = (Corrections::default(), Instant::now());
        assert_eq!(corrections.not_before(now), now + DEBOUNCE);
        for seconds in [1, 2, 4, 8, 16] {
            corrections.add(now);
            let next = corrections.not_before(now);
            assert_eq!(next - now, Duration::from_secs(seconds));
            now = next;
        }
        for _ in 0..100 {
            corrections.add(now);
            now = corrections.not_before(now);
        }
        assert_eq!(corrections.delay(), LAST_DELAY);
        now += LAST_DELAY * 2 + Duration::from_secs(1);
        corrections.add(now);
        assert_eq!(corrections.not_before(now) - now, Duration::from_secs(1));
    }
}
