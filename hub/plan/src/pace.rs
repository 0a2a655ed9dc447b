//! How often a Kustomization is attempted because somebody changes it or asks for it: a few times at once, then at a steady pace.
//! Whoever asks a thousand times a second takes no more of the hub than that.

use std::time::Duration;

use jiff::Timestamp;

/// Attempts that begin as soon as they are asked for.
pub(crate) const AT_ONCE: usize = 4;
/// The time between those that follow.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// When the next attempt may begin, of those that began at these times, newest first.
pub(crate) fn next(began: &[Timestamp]) -> Option<Timestamp> {
    let (newest, oldest) = (began.first()?, began.get(AT_ONCE - 1)?);
    let quiet = EVERY * u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
    Some((*newest + EVERY).min(*oldest + quiet))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// When attempts begin that are asked for at these times, in milliseconds.
    fn begun(asked: &[i64]) -> Vec<i64> {
        let mut began: Vec<i64> = Vec::new();
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).expect("it is in range");
        for asked in asked {
            // One that waits answers all who ask meanwhile.
            if began.last().is_some_and(|last| last >= asked) {
                continue;
            }
            let newest: Vec<Timestamp> = began.iter().rev().take(AT_ONCE).copied().map(at).collect();
            began.push(next(&newest).map_or(*asked, |next| next.as_millisecond().max(*asked)));
        }
        began
    }

    #[test]
    fn some_begin_at_once_and_then_one_after_the_other() {
        let often: Vec<i64> = (1..=20_000).collect();
        assert_eq!(begun(&often), [1, 2, 3, 4, 5_004, 10_004, 15_004, 20_004]);
        // After a while in which nobody asks, some begin at once again.
        assert_eq!(
            begun(&[1, 2, 3, 4, 5, 40_001, 40_002, 40_003, 40_004, 40_005]),
            [1, 2, 3, 4, 5_004, 40_001, 40_002, 40_003, 40_004, 45_004]
        );
        // Who asks now and then does not wait.
        let rarely: Vec<i64> = (1..100).map(|number| number * 5_000).collect();
        assert_eq!(begun(&rarely), rarely);
    }

    proptest! {
        #[test]
        fn nobody_waits_long_and_nobody_has_many(mut asked in prop::collection::vec(0_i64..120_000, 0..400)) {
            asked.sort_unstable();
            let began = begun(&asked);
            let every = i64::try_from(EVERY.as_millis()).expect("it is small");
            for asked in asked {
                let answered = began.iter().find(|began| **began >= asked);
                prop_assert!(answered.is_some_and(|began| *began <= asked + every));
            }
            for first in &began {
                let within = began.iter().filter(|began| (*first..first + 10 * every).contains(began)).count();
                prop_assert!(within <= AT_ONCE + 10);
            }
        }
    }
}
