//! When something that did not arrive is tried again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The first wait, which doubles each time.
const FIRST: Duration = Duration::from_secs(2);
/// The longest of these: once a service is back, news comes within little more than that, and one that is away gets a request a minute from
/// each Alert.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest that a service may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// How long to wait after so many attempts, all of which failed; `seed` spreads it over a fifth, so that those who failed together do
/// not come back together.
#[must_use]
pub fn backoff(attempts: u32, seed: u64) -> Duration {
    let doubled = FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST);
    // The golden ratio spreads numbers that follow each other.
    let part = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    doubled + doubled * u32::try_from(part).unwrap_or_default() / (5 << 16)
}

/// How long a service asks to be left alone by its `Retry-After`: seconds, or a date. None for what is neither, or is past.
#[must_use]
pub fn after(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<u64>() {
        return Some(Duration::from_secs(seconds).min(LONGEST_ASKED));
    }
    let at = jiff::fmt::rfc2822::parse(header).ok()?.timestamp();
    let left: SignedDuration = at.duration_since(now);
    Some(Duration::try_from(left).ok()?.min(LONGEST_ASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_are_spread() {
        for (attempts, seconds) in [(0, 2), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (u32::MAX, 60)] {
            let least = Duration::from_secs(seconds);
            for seed in [0, 1, 2, u64::MAX] {
                let wait = backoff(attempts, seed);
                assert!(wait >= least && wait <= least.mul_f64(1.21), "{attempts}: {wait:?}");
            }
        }
        assert_ne!(backoff(5, 1), backoff(5, 2));
    }

    #[test]
    fn what_a_service_asks_for_is_seconds_or_a_date_and_bounded() {
        let now: Timestamp = "2026-08-07T10:00:00Z".parse().unwrap();
        for (header, expected) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("999999999", Some(3600)),
            ("Fri, 07 Aug 2026 10:02:00 GMT", Some(120)),
            ("Fri, 07 Aug 2026 09:00:00 GMT", None),
            ("Sat, 07 Aug 2027 10:00:00 GMT", Some(3600)),
            ("soon", None),
            ("-5", None),
            ("", None),
        ] {
            assert_eq!(after(header, now), expected.map(Duration::from_secs), "{header}");
        }
    }
}
