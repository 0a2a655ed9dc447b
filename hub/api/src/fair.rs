//! Who may have how much under way: requests in turns between users, watches up to a number.
//!
//! Requests beyond what runs at once wait in a queue of their user's; when one ends, the users take turns. So whoever
//! sends a thousand requests waits for his own, and another's single one is next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roadstead_hub_core::HubError;
use tokio::sync::oneshot;

/// Who waits longer than this for his turn is told to come back.
const PATIENCE: Duration = Duration::from_secs(15);

/// The queues.
pub(crate) struct Turns {
    /// How many requests run at once.
    limit: usize,
    /// How many of them may be one user's, so that slow ones of one leave room for others.
    share: usize,
    /// How many of one user wait.
    waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    users: HashMap<String, User>,
    /// Those who wait, in the order of their turns.
    order: VecDeque<String>,
}

#[derive(Default)]
struct User {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to run; ends with the value.
pub(crate) struct Turn {
    /// None where it was not given to anyone.
    turns: Option<Arc<Turns>>,
    user: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            let mut state = turns.state();
            state.left(&self.user);
            turns.pass_on(&mut state);
        }
    }
}

impl State {
    fn entered(&mut self, user: &str) {
        self.running += 1;
        self.users.entry(user.to_owned()).or_default().running += 1;
    }

    fn left(&mut self, user: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(entry) = self.users.get_mut(user) {
            entry.running = entry.running.saturating_sub(1);
            if entry.running == 0 && entry.waiting.is_empty() {
                self.users.remove(user);
            }
        }
    }
}

impl Turns {
    pub(crate) fn new(limit: usize, waiting: usize) -> Self {
        let limit = limit.max(1);
        let share = (limit * 3 / 4).max(1);
        Self { limit, share, waiting, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn of `user`'s.
    pub(crate) async fn take(self: &Arc<Self>, user: &str) -> Result<Turn, HubError> {
        let too_many =
            |why: &str| HubError::TooMany(format!("Too many requests, please try again later: {why}"));
        let granted = {
            let mut state = self.state();
            let own = state.users.get(user).map_or(0, |entry| entry.running);
            if state.running < self.limit && own < self.share && state.order.is_empty() {
                state.entered(user);
                return Ok(Turn { turns: Some(Arc::clone(self)), user: user.to_owned() });
            }
            let entry = state.users.entry(user.to_owned()).or_default();
            // Those who went away while they waited do not count.
            entry.waiting.retain(|waiter| !waiter.is_closed());
            if entry.waiting.len() >= self.waiting {
                return Err(too_many("the limit of requests that wait for one user is reached"));
            }
            let (sender, granted) = oneshot::channel();
            entry.waiting.push_back(sender);
            if !state.order.iter().any(|waiting| waiting == user) {
                state.order.push_back(user.to_owned());
            }
            self.pass_on(&mut state);
            granted
        };
        match tokio::time::timeout(PATIENCE, granted).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(too_many("the hub is busy")),
        }
    }

    /// Gives what is free to those whose turn it is.
    fn pass_on(self: &Arc<Self>, state: &mut State) {
        let mut looked_at = 0;
        while state.running < self.limit && looked_at < state.order.len() {
            let Some(user) = state.order.pop_front() else { return };
            let Some(entry) = state.users.get_mut(&user) else { continue };
            if entry.running >= self.share {
                state.order.push_back(user);
                looked_at += 1;
                continue;
            }
            let Some(waiter) = entry.waiting.pop_front() else {
                if entry.running == 0 {
                    state.users.remove(&user);
                }
                continue;
            };
            let goes_on = !entry.waiting.is_empty();
            match waiter.send(Turn { turns: Some(Arc::clone(self)), user: user.clone() }) {
                Ok(()) => {
                    state.entered(&user);
                    looked_at = 0;
                }
                // He went away: his turn is nobody's, and must not end as one.
                Err(mut turn) => turn.turns = None,
            }
            if goes_on {
                state.order.push_back(user);
            } else if state.users.get(&user).is_some_and(|entry| entry.running == 0) {
                state.users.remove(&user);
            }
        }
    }
}

/// How many watches there are.
pub(crate) struct Watches {
    limit: usize,
    per_user: usize,
    users: Mutex<HashMap<String, usize>>,
}

/// A watch's place; ends with the value.
pub(crate) struct WatchPlace {
    watches: Arc<Watches>,
    user: String,
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        let mut users = self.watches.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

impl Watches {
    pub(crate) fn new(limit: usize, per_user: usize) -> Self {
        Self { limit, per_user, users: Mutex::default() }
    }

    pub(crate) fn take(self: &Arc<Self>, user: &str) -> Result<WatchPlace, HubError> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = users.values().sum();
        let own = users.get(user).copied().unwrap_or(0);
        if all >= self.limit || own >= self.per_user {
            let (whose, count) = if own >= self.per_user { ("of yours", own) } else { ("in all", all) };
            return Err(HubError::TooMany(format!("there are {count} watches {whose} already")));
        }
        *users.entry(user.to_owned()).or_default() += 1;
        Ok(WatchPlace { watches: Arc::clone(self), user: user.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn users_take_turns() {
        let turns = Arc::new(Turns::new(1, 100));
        let first = turns.take("greedy").await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for user in ["greedy", "greedy", "greedy", "modest"] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let turn = turns.take(user).await.unwrap();
                order.lock().unwrap().push(user);
                drop(turn);
            }));
            settle().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["greedy", "modest", "greedy", "greedy"]);
        let state = turns.state();
        assert_eq!((state.running, state.users.len(), state.order.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn one_user_leaves_room_and_has_a_bounded_queue() {
        let turns = Arc::new(Turns::new(4, 2));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(turns.take("greedy").await.unwrap());
        }
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move { turns.take("greedy").await.map(drop) })
            })
            .collect();
        settle().await;
        assert!(matches!(turns.take("greedy").await, Err(HubError::TooMany(_))));
        // Whoever goes away makes room in the queue.
        waiting[0].abort();
        settle().await;
        let modest = turns.take("modest").await.unwrap();
        held.clear();
        drop(modest);
        for task in waiting {
            if let Ok(turn) = task.await {
                turn.unwrap();
            }
        }
        assert_eq!(turns.state().running, 0);
    }

    #[tokio::test]
    async fn a_turn_given_to_someone_who_went_away_is_not_lost() {
        let turns = Arc::new(Turns::new(1, 10));
        let first = turns.take("a").await.unwrap();
        let gone = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take("b").await.map(drop) })
        };
        settle().await;
        gone.abort();
        settle().await;
        drop(first);
        tokio::time::timeout(Duration::from_secs(5), turns.take("c")).await.unwrap().unwrap();
    }

    #[test]
    fn watches_are_counted() {
        let watches = Arc::new(Watches::new(3, 2));
        let held: Vec<_> = (0..2).map(|_| watches.take("a").unwrap()).collect();
        assert!(watches.take("a").is_err());
        let other = watches.take("b").unwrap();
        assert!(watches.take("c").is_err());
        drop((held, other));
        assert!(watches.take("a").is_ok());
        assert!(watches.users.lock().unwrap().is_empty());
    }
}
