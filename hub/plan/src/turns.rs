//! Turns for what namespaces ask for: some of a namespace's Kustomizations are reconciled as soon as somebody asks for it, the others
//! one after the other, so that a namespace with a thousand of them does not take the hub from all others. The longer a reconciliation
//! takes the hub, since it is busy, the fewer there are at once, and the longer the others wait.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::ApplierUid;

use crate::schedule::has_happened;

/// Kustomizations of a namespace that are reconciled as soon as they are asked for, where the hub is not busy.
const AT_ONCE: u32 = 50;
/// The least and the longest time between those that follow.
const EVERY: Duration = Duration::from_millis(200);
const EVERY_AT_MOST: Duration = Duration::from_secs(1);
/// In between, so many times what one of them takes: a namespace that never stops asking has the hub for a fifth of the time.
const SHARE: u32 = 5;
/// So far ahead of its time a turn can be: of a hub that is not busy, those that are at once.
const AHEAD: Duration = Duration::from_millis(EVERY.as_millis() as u64 * AT_ONCE as u64);
/// For so long a turn can be taken.
const KEPT: Duration = Duration::from_secs(60);
/// With more namespaces, those that have all their turns left are forgotten.
const NAMESPACES: usize = 1_000;

/// Whose turn it is, by namespace.
#[derive(Debug, Default)]
pub struct Turns {
    of: HashMap<String, Namespace>,
    /// When one was last asked for.
    asked: Option<Timestamp>,
}

#[derive(Debug)]
struct Namespace {
    /// The time between turns.
    pace: Duration,
    /// Turns that were taken and not used yet.
    running: u32,
    /// When all turns that were given would be over, were they taken one after the other.
    over: Timestamp,
    given: HashMap<ApplierUid, Turn>,
}

#[derive(Debug)]
struct Turn {
    at: Timestamp,
    /// When it was taken, the beginning of the newest attempt that somebody had asked for. Once there is a newer one, the turn is
    /// used up.
    taken: Option<Option<Timestamp>>,
}

impl Turns {
    /// Takes a turn for this applier of the namespace; `newest` is when its newest attempt began that somebody asked for. A turn
    /// serves until an attempt comes of it: a build may have to be waited for first. Each time it is taken, [`Self::used`] is to follow.
    ///
    /// # Errors
    /// When it is its turn, where that is later. It stays so until it comes for it.
    pub fn take(
        &mut self,
        namespace: &str,
        applier: ApplierUid,
        newest: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        // The clock was put back: what was given is for times that are to come again.
        if self.asked.replace(now).is_some_and(|asked| !has_happened(asked, now)) {
            self.of.clear();
        }
        if self.of.len() > NAMESPACES {
            self.of.retain(|_, own| own.over > now);
        }
        let new = || Namespace { pace: EVERY, running: 0, over: now, given: HashMap::new() };
        let own = self.of.entry(namespace.to_owned()).or_insert_with(new);
        own.given.retain(|_, turn| turn.at + KEPT > now);
        match own.given.get_mut(&applier) {
            Some(turn) if now < turn.at => return Err(turn.at),
            Some(turn) if turn.taken.is_none_or(|before| before == newest) => {
                turn.taken = Some(newest);
                own.running += 1;
                return Ok(());
            }
            _ => {}
        }
        own.over = own.over.max(now) + own.pace;
        let at = (own.over - AHEAD).max(now);
        if at > now {
            own.given.insert(applier, Turn { at, taken: None });
            return Err(at);
        }
        own.given.insert(applier, Turn { at, taken: Some(newest) });
        own.running += 1;
        Ok(())
    }

    /// Takes note that a turn of the namespace was used, for so long. Turns that are given already stay as they are.
    pub fn used(&mut self, namespace: &str, time: Duration) {
        if let Some(own) = self.of.get_mut(namespace) {
            // What slows a namespace down beside others is not itself.
            let time = time / own.running.max(1);
            own.running = own.running.saturating_sub(1);
            // One that is slow by chance says little.
            own.pace = ((own.pace * 3 + time * SHARE) / 4).clamp(EVERY, EVERY_AT_MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn applier(number: u128) -> ApplierUid {
        ApplierUid(Uuid::from_u128(number))
    }

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + milliseconds).expect("it is in range")
    }

    /// Takes a turn for an applier whose every turn leads to an attempt.
    fn take(turns: &mut Turns, namespace: &str, number: u128, milliseconds: i64) -> Result<(), Timestamp> {
        turns.take(namespace, applier(number), Some(at(milliseconds)), at(milliseconds))
    }

    #[test]
    fn some_go_at_once_and_the_others_one_after_the_other() {
        let mut turns = Turns::default();
        for number in 0..50 {
            assert_eq!(take(&mut turns, "greedy", number, 0), Ok(()), "{number}");
        }
        assert_eq!(take(&mut turns, "greedy", 50, 0), Err(at(200)));
        assert_eq!(take(&mut turns, "greedy", 51, 0), Err(at(400)));
        // Who asks again does not lose its turn, and gets no second one.
        assert_eq!(take(&mut turns, "greedy", 50, 100), Err(at(200)));
        assert_eq!(take(&mut turns, "other", 52, 100), Ok(()));
        assert_eq!(take(&mut turns, "greedy", 51, 399), Err(at(400)));
        assert_eq!(take(&mut turns, "greedy", 51, 400), Ok(()));
        assert_eq!(take(&mut turns, "greedy", 50, 400), Ok(()));
        assert_eq!(take(&mut turns, "greedy", 51, 401), Err(at(600)));
        // After a while as many go at once as before.
        for number in 0..50 {
            assert_eq!(take(&mut turns, "greedy", number, 20_000), Ok(()), "{number}");
        }
    }

    #[test]
    fn a_busy_hub_gives_fewer_turns() {
        let mut turns = Turns::default();
        let used =
            |turns: &mut Turns, milliseconds| turns.used("greedy", Duration::from_millis(milliseconds));
        for number in 0..40 {
            assert_eq!(take(&mut turns, "greedy", number, 0), Ok(()), "{number}");
        }
        // That one of forty takes long says nothing about the hub.
        used(&mut turns, 1_200);
        assert_eq!(turns.of["greedy"].pace, EVERY);
        for _ in 1..40 {
            used(&mut turns, 0);
        }
        // One after the other takes long.
        for number in 0_u32..30 {
            assert_eq!(
                take(&mut turns, "greedy", number.into(), 20_000 + i64::from(number) * 1_000),
                Ok(()),
                "{number}"
            );
            used(&mut turns, 600);
        }
        assert_eq!(turns.of["greedy"].pace, EVERY_AT_MOST);
        let now = 100_000;
        for number in 0..10 {
            assert_eq!(take(&mut turns, "greedy", number, now), Ok(()), "{number}");
        }
        assert_eq!(take(&mut turns, "greedy", 10, now), Err(at(now + 1_000)));
        // A hub that is not busy any more gives them as before.
        for _ in 0..30 {
            used(&mut turns, 10);
        }
        assert_eq!(turns.of["greedy"].pace, EVERY);
    }

    #[test]
    fn a_turn_serves_until_an_attempt_comes_of_it() {
        let mut turns = Turns::default();
        for number in 0..50 {
            assert_eq!(take(&mut turns, "greedy", number, 0), Ok(()), "{number}");
        }
        let mut come = |newest: i64, now: i64| turns.take("greedy", applier(60), Some(at(newest)), at(now));
        assert_eq!(come(-10, 0), Err(at(200)));
        // Its build is waited for, pass after pass.
        for now in [200, 300, 5_000] {
            assert_eq!(come(-10, now), Ok(()), "{now}");
        }
        for number in 100..150 {
            let _ = take(&mut turns, "greedy", number, 5_050);
        }
        // The next request needs another one.
        assert!(turns.take("greedy", applier(60), Some(at(5_001)), at(5_100)).is_err());
    }

    #[test]
    fn a_clock_that_is_put_back_takes_no_turns_away() {
        const HOUR: i64 = 3_600_000;
        let mut turns = Turns::default();
        for number in 0..60 {
            let _ = take(&mut turns, "greedy", number, HOUR);
        }
        assert!(take(&mut turns, "greedy", 55, HOUR - 1_000).is_err(), "some seconds do not count");
        assert_eq!(take(&mut turns, "greedy", 55, 0), Ok(()));
        assert_eq!(take(&mut turns, "greedy", 60, 1), Ok(()));
    }

    #[test]
    fn what_nobody_comes_for_is_forgotten() {
        let mut turns = Turns::default();
        for number in 0..60 {
            let _ = take(&mut turns, "greedy", number, 0);
        }
        assert_eq!(turns.of["greedy"].given.len(), 60);
        assert_eq!(take(&mut turns, "greedy", 99, 70_000), Ok(()));
        assert_eq!(turns.of["greedy"].given.len(), 1);
        for number in 0..=NAMESPACES {
            assert_eq!(take(&mut turns, &number.to_string(), 1, 80_000), Ok(()));
        }
        assert_eq!(take(&mut turns, "last", 1, 90_000), Ok(()));
        assert_eq!(turns.of.len(), 1);
    }
}
