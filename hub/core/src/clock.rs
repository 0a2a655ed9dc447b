//! Time, injected, so that tests set it.

use std::time::Duration;

use jiff::Timestamp;
pub(crate) use roadstead_hub_plan::MOST_APART;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Notices that the clock is put back, by the time that passes beside it.
#[derive(Debug)]
pub struct PutBack(Timestamp);

impl PutBack {
    /// Looks at the clock for the first time.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(now)
    }

    /// Whether it was put back since it was looked at last, so long ago.
    pub fn since(&mut self, passed: Duration, now: Timestamp) -> bool {
        let before = std::mem::replace(&mut self.0, now);
        before.saturating_add(passed).is_ok_and(|expected| now < expected - MOST_APART)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_clock_that_is_put_back_is_noticed_once() {
        let at = |seconds| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let mut put_back = PutBack::new(at(10_000));
        for (passed, now, expected) in [
            (5, 10_005, false),
            // Replicas and NTP are some seconds apart.
            (5, 9_990, false),
            (5, 6_395, true),
            (5, 6_400, false),
            // Put forward, and stopped for an hour.
            (5, 10_005, false),
            (3_600, 13_605, false),
            (3_600, 13_605, true),
        ] {
            assert_eq!(put_back.since(Duration::from_secs(passed), at(now)), expected, "{now}");
        }
    }
}
