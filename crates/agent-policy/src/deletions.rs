//! How many deletions there were within the last hour, minute by minute.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Minutes for which a deletion counts.
const WINDOW: i64 = 60;

/// The count of deletions, as it is kept in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deletions {
    /// By the minute since 1970.
    minutes: BTreeMap<i64, u32>,
}

impl Deletions {
    /// How many count at `minute` (since 1970). What seems to be of the future, since a clock was put back, counts too.
    #[must_use]
    pub fn count(&self, minute: i64) -> u32 {
        let recent = self.minutes.range(minute.saturating_sub(WINDOW - 1)..);
        recent.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Counts up to `wanted` further deletions, as many as `limit` leaves room for; gives how many these are.
    pub fn reserve(&mut self, minute: i64, wanted: u32, limit: u32) -> u32 {
        self.minutes.retain(|at, _| *at > minute.saturating_sub(WINDOW));
        let granted = wanted.min(limit.saturating_sub(self.count(minute)));
        if granted > 0 {
            let count = self.minutes.entry(minute).or_default();
            *count = count.saturating_add(granted);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Deletions;

    #[test]
    fn an_hour_later_there_is_room_again() {
        let mut deletions = Deletions::default();
        assert_eq!(deletions.reserve(1000, 3, 5), 3);
        assert_eq!(deletions.reserve(1010, 3, 5), 2);
        assert_eq!(deletions.reserve(1059, 1, 5), 0);
        assert_eq!(deletions.reserve(1060, 9, 5), 3);
        assert_eq!(deletions.reserve(1000, 1, 5), 0, "a clock that was put back gives nothing");
        let text = serde_json::to_string(&deletions).expect("JSON");
        assert_eq!(serde_json::from_str::<Deletions>(&text).expect("JSON"), deletions);
    }

    proptest! {
        #[test]
        fn within_any_hour_there_are_never_more_than_the_limit(
            asked in proptest::collection::vec((0_i64..40, 0_u32..20), 1..60), limit in 0_u32..30,
        ) {
            let (mut deletions, mut minute, mut granted) = (Deletions::default(), 0, Vec::new());
            for (later, wanted) in asked {
                minute += later;
                granted.push((minute, deletions.reserve(minute, wanted, limit)));
            }
            for (at, _) in &granted {
                let within = granted.iter().filter(|(other, _)| (*at - 59..=*at).contains(other));
                prop_assert!(within.map(|(_, count)| count).sum::<u32>() <= limit);
            }
        }
    }
}
