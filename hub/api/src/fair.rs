//! Who may have how much under way: requests in turns between users, watches up to a number.
//!
//! Requests beyond what runs at once wait in a queue of their user's; when one ends, the queues take turns. So whoever
//! sends a thousand requests waits for his own, and another's single one is next.
//!
//! Changes have a queue of their own, of which fewer run at once. What runs at once shares the processors and the database, and so does
//! all the work that nobody sends requests for: reconciliations and what agents report. Whoever changes objects all the time has little
//! more of them than these few.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::Method;
use roadstead_hub_core::HubError;
use tokio::sync::oneshot;

/// Who waits longer than this for his turn is told to come back.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whose queue it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    user: String,
    /// It is the queue for POST, PUT, PATCH and DELETE, and not the one for all other requests.
    changes: bool,
}

impl Asker {
    pub(crate) fn of(user: &str, method: &Method) -> Self {
        let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method);
        Self { user: user.to_owned(), changes }
    }
}

/// The queues.
pub(crate) struct Turns {
    /// How many requests run at once.
    limit: usize,
    /// How many of them may be one user's, so that slow ones of one leave room for others.
    share: usize,
    /// How many changes of one user run at once.
    changes: usize,
    /// How many wait in one queue.
    waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    queues: HashMap<Asker, Queue>,
    /// Those who wait, in the order of their turns.
    order: VecDeque<Asker>,
}

#[derive(Default)]
struct Queue {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to run; ends with the value.
pub(crate) struct Turn {
    /// None where it was not given to anyone.
    turns: Option<Arc<Turns>>,
    asker: Asker,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            let mut state = turns.state();
            state.left(&self.asker);
            turns.pass_on(&mut state);
        }
    }
}

impl State {
    fn entered(&mut self, asker: &Asker) {
        self.running += 1;
        self.queues.entry(asker.clone()).or_default().running += 1;
    }

    fn left(&mut self, asker: &Asker) {
        self.running = self.running.saturating_sub(1);
        if let Some(queue) = self.queues.get_mut(asker) {
            queue.running = queue.running.saturating_sub(1);
            if queue.running == 0 && queue.waiting.is_empty() {
                self.queues.remove(asker);
            }
        }
    }
}

impl Turns {
    pub(crate) fn new(limit: usize, changes: usize, waiting: usize) -> Self {
        let limit = limit.max(1);
        let share = (limit * 3 / 4).max(1);
        Self { limit, share, changes: changes.clamp(1, share), waiting, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of this queue run at once.
    fn share_of(&self, asker: &Asker) -> usize {
        if asker.changes { self.changes } else { self.share }
    }

    /// Waits for a turn in this queue.
    pub(crate) async fn take(self: &Arc<Self>, asker: &Asker) -> Result<Turn, HubError> {
        let too_many =
            |why: &str| HubError::TooMany(format!("Too many requests, please try again later: {why}"));
        let granted = {
            let mut state = self.state();
            let own = state.queues.get(asker).map_or(0, |queue| queue.running);
            if state.running < self.limit && own < self.share_of(asker) && state.order.is_empty() {
                state.entered(asker);
                return Ok(Turn { turns: Some(Arc::clone(self)), asker: asker.clone() });
            }
            let queue = state.queues.entry(asker.clone()).or_default();
            // Those who went away while they waited do not count.
            queue.waiting.retain(|waiter| !waiter.is_closed());
            if queue.waiting.len() >= self.waiting {
                return Err(too_many("the limit of requests that wait for one user is reached"));
            }
            let (sender, granted) = oneshot::channel();
            queue.waiting.push_back(sender);
            if !state.order.contains(asker) {
                state.order.push_back(asker.clone());
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
            let Some(asker) = state.order.pop_front() else { return };
            let Some(queue) = state.queues.get_mut(&asker) else { continue };
            if queue.running >= self.share_of(&asker) {
                state.order.push_back(asker);
                looked_at += 1;
                continue;
            }
            let Some(waiter) = queue.waiting.pop_front() else {
                if queue.running == 0 {
                    state.queues.remove(&asker);
                }
                continue;
            };
            let goes_on = !queue.waiting.is_empty();
            match waiter.send(Turn { turns: Some(Arc::clone(self)), asker: asker.clone() }) {
                Ok(()) => {
                    state.entered(&asker);
                    looked_at = 0;
                }
                // He went away: his turn is nobody's, and must not end as one.
                Err(mut turn) => turn.turns = None,
            }
            if goes_on {
                state.order.push_back(asker);
            } else if state.queues.get(&asker).is_some_and(|queue| queue.running == 0) {
                state.queues.remove(&asker);
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

    fn reads(user: &str) -> Asker {
        Asker::of(user, &Method::GET)
    }

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn users_take_turns() {
        let turns = Arc::new(Turns::new(1, 1, 100));
        let first = turns.take(&reads("greedy")).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for user in ["greedy", "greedy", "greedy", "modest"] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let turn = turns.take(&reads(user)).await.unwrap();
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
        assert_eq!((state.running, state.queues.len(), state.order.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn one_user_leaves_room_and_has_a_bounded_queue() {
        let turns = Arc::new(Turns::new(4, 3, 2));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(turns.take(&reads("greedy")).await.unwrap());
        }
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move { turns.take(&reads("greedy")).await.map(drop) })
            })
            .collect();
        settle().await;
        assert!(matches!(turns.take(&reads("greedy")).await, Err(HubError::TooMany(_))));
        // Whoever goes away makes room in the queue.
        waiting[0].abort();
        settle().await;
        let modest = turns.take(&reads("modest")).await.unwrap();
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
    async fn changes_of_one_user_are_few_at_once_and_keep_nothing_else_waiting() {
        let turns = Arc::new(Turns::new(8, 2, 10));
        let changes = |user| Asker::of(user, &Method::PATCH);
        let mut held = Vec::new();
        for method in [Method::POST, Method::DELETE] {
            held.push(turns.take(&Asker::of("greedy", &method)).await.unwrap());
        }
        let third = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take(&changes("greedy")).await })
        };
        settle().await;
        assert!(!third.is_finished());
        // What the same user reads, and what others change, goes on.
        let others = [reads("greedy"), changes("modest"), changes("modest")];
        for other in &others {
            let turn = tokio::time::timeout(Duration::from_secs(5), turns.take(other)).await;
            held.push(turn.unwrap().unwrap());
        }
        assert!(!third.is_finished());
        held.remove(0);
        let third = tokio::time::timeout(Duration::from_secs(5), third).await.unwrap().unwrap();
        drop((held, third));
        assert_eq!(turns.state().running, 0);
    }

    #[tokio::test]
    async fn a_turn_given_to_someone_who_went_away_is_not_lost() {
        let turns = Arc::new(Turns::new(1, 1, 10));
        let first = turns.take(&reads("a")).await.unwrap();
        let gone = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take(&reads("b")).await.map(drop) })
        };
        settle().await;
        gone.abort();
        settle().await;
        drop(first);
        tokio::time::timeout(Duration::from_secs(5), turns.take(&reads("c"))).await.unwrap().unwrap();
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
