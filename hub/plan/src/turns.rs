//! Turns for what namespaces ask for: some of a namespace's Kustomizations are reconciled as soon as somebody asks for it, the others
//! one after the other, so that a namespace with a thousand of them does not take the hub from all others.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::ApplierUid;

/// So many of a namespace are reconciled as soon as they are asked for;
const AT_ONCE: u32 = 50;
/// the others one after the other, one in so long.
const EVERY: Duration = Duration::from_millis(200);
/// Who does not come for its turn within this loses it.
const KEPT: Duration = Duration::from_secs(60);
/// With more namespaces, those that nobody waits for are forgotten.
const NAMESPACES: usize = 1_000;

/// Whose turn it is, by namespace.
#[derive(Debug, Default)]
pub struct Turns(HashMap<String, Namespace>);

#[derive(Debug)]
struct Namespace {
    /// When all turns that were given would be over, were they taken one after the other.
    over: Timestamp,
    /// The turns of those that wait.
    waiting: HashMap<ApplierUid, Timestamp>,
}

impl Turns {
    /// Takes a turn for this applier of the namespace.
    ///
    /// # Errors
    /// When it is its turn, where that is later. It stays so until it comes for it.
    pub fn take(&mut self, namespace: &str, applier: ApplierUid, now: Timestamp) -> Result<(), Timestamp> {
        if self.0.len() > NAMESPACES {
            self.0.retain(|_, own| own.over > now);
        }
        let new = || Namespace { over: now, waiting: HashMap::new() };
        let own = self.0.entry(namespace.to_owned()).or_insert_with(new);
        own.waiting.retain(|_, turn| *turn + KEPT > now);
        if let Some(turn) = own.waiting.get(&applier).copied() {
            if now < turn {
                return Err(turn);
            }
            own.waiting.remove(&applier);
            return Ok(());
        }
        own.over = own.over.max(now) + EVERY;
        let turn = own.over - EVERY * AT_ONCE;
        if turn <= now {
            return Ok(());
        }
        own.waiting.insert(applier, turn);
        Err(turn)
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

    #[test]
    fn some_go_at_once_and_the_others_one_after_the_other() {
        let mut turns = Turns::default();
        for number in 0..50 {
            assert_eq!(turns.take("greedy", applier(number), at(0)), Ok(()), "{number}");
        }
        assert_eq!(turns.take("greedy", applier(50), at(0)), Err(at(200)));
        assert_eq!(turns.take("greedy", applier(51), at(0)), Err(at(400)));
        // Who asks again does not lose its turn, and gets no second one.
        assert_eq!(turns.take("greedy", applier(50), at(100)), Err(at(200)));
        assert_eq!(turns.take("other", applier(52), at(100)), Ok(()));
        assert_eq!(turns.take("greedy", applier(51), at(399)), Err(at(400)));
        assert_eq!(turns.take("greedy", applier(51), at(400)), Ok(()));
        assert_eq!(turns.take("greedy", applier(50), at(400)), Ok(()));
        assert_eq!(turns.take("greedy", applier(51), at(400)), Err(at(600)));
        // After a while as many go at once as before.
        for number in 0..50 {
            assert_eq!(turns.take("greedy", applier(number), at(20_000)), Ok(()), "{number}");
        }
    }

    #[test]
    fn what_nobody_comes_for_is_forgotten() {
        let mut turns = Turns::default();
        for number in 0..60 {
            let _ = turns.take("greedy", applier(number), at(0));
        }
        assert_eq!(turns.0["greedy"].waiting.len(), 10);
        assert_eq!(turns.take("greedy", applier(99), at(70_000)), Ok(()));
        assert!(turns.0["greedy"].waiting.is_empty());
        for number in 0..=NAMESPACES {
            assert_eq!(turns.take(&number.to_string(), applier(1), at(80_000)), Ok(()));
        }
        assert_eq!(turns.take("last", applier(1), at(90_000)), Ok(()));
        assert_eq!(turns.0.len(), 1);
    }
}
