//! One object that was applied: how, how it was seen since, and when it may be corrected.

use std::time::Duration;

use roadstead_apply::{Applied, AsApplied, Footprint, Standing};
use roadstead_model::{Digest, ObjectRef};
use tokio::time::Instant;

use super::Watch;

/// So long something that was seen is waited with: what one command does comes as several events, and of many objects at once.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The least time between two corrections of an object that is changed again and again; it doubles up to the last.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(600);

/// An object that was corrected so often without peace is contended.
const CONTENDED: u32 = 5;
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
    /// As it differed when that was last reported, in place of correcting it.
    reported: Option<Reported>,
}

/// What an object looked like whose drift was reported; none where it was missing.
#[derive(Debug)]
struct Reported(Option<Footprint>);

/// How it was applied.
#[derive(Debug)]
struct Known {
    /// None where that is known of an agent before this one, which kept no digests of values.
    sent: Option<Digest>,
    is_as_sent: bool,
    is_shared: bool,
    footprint: Footprint,
}

impl Known {
    /// How it stands, now that it is `seen`.
    fn compare(&self, seen: &Footprint) -> Standing {
        match self.footprint.compare(seen) {
            Standing::AsApplied if self.is_shared && !self.footprint.has_same_values(seen) => {
                Standing::Changed
            }
            standing => standing,
        }
    }
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

    /// From when on it counts as left in peace; none where it was not corrected.
    fn peace(&self) -> Option<Instant> {
        self.last.map(|last| last + PEACE.max(self.delay() * 2))
    }

    fn add(&mut self, now: Instant) {
        if self.peace().is_some_and(|peace| now > peace) {
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
            reported: None,
        }
    }
}

impl Entry {
    /// One that an agent before this one has applied; how it stands since, its watch will tell.
    pub(super) fn restored(watch: Watch, footprint: Footprint, is_shared: bool) -> Self {
        let known = Known { sent: None, is_as_sent: true, is_shared, footprint };
        Self { watch: Some(watch), applied: Some(known), standing: Standing::AsApplied, ..Self::default() }
    }

    /// How it was applied, and whether others share its fields; none where that is not known.
    pub(super) fn applied(&self) -> Option<(&Footprint, bool)> {
        self.applied.as_ref().map(|known| (&known.footprint, known.is_shared))
    }

    /// As it was seen last, where it differs from what was applied.
    pub(super) fn seen(&self) -> Option<&Footprint> {
        self.seen.as_ref()
    }

    /// Whether it was applied as `sent` and stands so.
    pub(super) fn stands(&self, sent: &Digest) -> bool {
        self.standing == Standing::AsApplied
            && self
                .applied
                .as_ref()
                .is_some_and(|known| known.is_as_sent && known.sent.as_ref() == Some(sent))
    }

    /// Whether there is nothing to be asked about it: it stands as it was applied, or what differs is reported.
    pub(super) fn is_settled(&self) -> bool {
        self.standing == Standing::AsApplied || self.reported.is_some()
    }

    pub(super) fn was_other(&self, sent: &Digest) -> Option<bool> {
        self.applied.as_ref().and_then(|known| known.sent.as_ref()).map(|known| known != sent)
    }

    /// How it was applied last, where it stands so and nobody shares its fields.
    pub(super) fn as_applied(&self) -> Option<AsApplied> {
        let known = self.applied.as_ref().filter(|known| known.is_as_sent && !known.is_shared)?;
        let footprint = &known.footprint;
        let version = self.seen.as_ref().map_or(0, Footprint::version).max(footprint.version());
        (self.standing == Standing::AsApplied).then(|| AsApplied {
            sent: known.sent,
            footprint: footprint.clone(),
            version,
        })
    }

    /// It was applied. What was seen of it before counts where it is newer: another may have written at once.
    pub(super) fn note(&mut self, watch: Watch, applied: Applied) {
        let Applied { sent, footprint, is_as_sent, is_shared, .. } = applied;
        self.seen = self.seen.take().filter(|seen| footprint.is_older_than(seen));
        let known = Known { sent: Some(sent), is_as_sent, is_shared, footprint };
        self.standing = self.seen.as_ref().map_or(Standing::AsApplied, |seen| known.compare(seen));
        self.watch = Some(watch);
        self.reported = None;
        self.applied = Some(known);
    }

    /// It was seen. A watch may still tell of what was there before it was applied; what a list has is there.
    pub(super) fn see(&mut self, seen: Footprint, from: From) -> News {
        let Some(known) = &self.applied else {
            let is_news = match self.reported.take() {
                Some(Reported(Some(reported))) if reported.has_same_values(&seen) => {
                    self.reported = Some(Reported(Some(reported)));
                    false
                }
                Some(Reported(_)) => true,
                None => false,
            };
            self.seen = Some(seen);
            return if is_news { News::Changed(Vec::new()) } else { News::Nothing };
        };
        let footprint = &known.footprint;
        let is_older = seen.is_older_than(footprint);
        if from == From::Watch && is_older {
            return News::Nothing;
        }
        self.standing = match known.compare(&seen) {
            // It may come from a backup, or the list was begun before our last write, of which the watch then tells.
            Standing::AsApplied if is_older => Standing::Changed,
            standing => standing,
        };
        if let Some(Reported(Some(reported))) = &self.reported
            && self.standing == Standing::Changed
            && reported.has_same_values(&seen)
        {
            self.seen = Some(seen);
            return News::Nothing;
        }
        self.reported = None;
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
        if matches!(self.reported, Some(Reported(None))) {
            return false;
        }
        let was_reported = self.reported.take().is_some();
        !is_job && (self.applied.is_some() || was_reported)
    }

    /// That it differs was reported: nothing is asked about it until it changes again.
    pub(super) fn was_reported(&mut self, watch: Option<Watch>, footprint: Option<Footprint>) {
        self.watch = watch.or(self.watch.take());
        self.standing = Standing::Changed;
        self.reported = Some(Reported(footprint));
    }

    /// What was reported is to be corrected from now on; false where there is nothing of that kind.
    pub(super) fn correct_reported(&mut self) -> bool {
        self.reported.take().is_some()
    }

    /// Whether it is to be corrected, as far as is known.
    pub(super) fn is_suspect(&self) -> bool {
        self.applied.is_some() && self.standing == Standing::Changed && self.reported.is_none()
    }

    /// How often it was corrected without peace, where that is so often that somebody else must want it otherwise.
    pub(super) fn contended(&self, now: Instant) -> Option<u32> {
        let goes_on = self.corrections.peace().is_some_and(|peace| peace > now);
        (goes_on && self.corrections.count >= CONTENDED).then_some(self.corrections.count)
    }

    /// From when on it counts as left in peace.
    pub(super) fn peace(&self) -> Option<Instant> {
        self.corrections.peace()
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
