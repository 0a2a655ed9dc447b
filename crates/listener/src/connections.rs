//! Connections: whose they are, which of them are idle, and how they are ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many connections there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of clients that have shown who they are.
    pub known: usize,
    /// Of those that have not, besides.
    pub strangers: usize,
    /// Of one party.
    pub per_party: usize,
}

/// Who a client is, where the listener tells clients apart: a cluster's uid, say.
pub type Party = u128;

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Stranger,
    Known(Option<Party>),
}

/// All connections of a listener.
#[derive(Debug)]
pub struct Connections {
    bounds: Bounds,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    strangers: usize,
    entries: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    requests: Mutex<Requests>,
    end: CancellationToken,
}

#[derive(Debug)]
struct Requests {
    under_way: usize,
    /// Since when there are none, or since when there is one.
    since: Instant,
}

/// One connection, as its task and its requests know it.
#[derive(Debug, Clone)]
pub struct Connection {
    all: Arc<Connections>,
    id: u64,
    state: Arc<State>,
}

/// A connection's place; given up, and the connection's end signalled, when dropped.
#[derive(Debug)]
pub struct Registered {
    connection: Connection,
}

impl Registered {
    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Connection { all, id, state } = &self.connection;
        let mut open = all.lock();
        if let Some(entry) = open.entries.remove(id)
            && entry.standing == Standing::Stranger
        {
            open.strangers -= 1;
        }
        drop(open);
        state.end.cancel();
    }
}

impl Open {
    /// The connection that makes room where one of `standing` has to: the one that has been idle for longest; with
    /// `busy_too`, if all are busy, the oldest of those.
    fn candidate(&self, of: impl Fn(Standing) -> bool, not: u64, busy_too: bool) -> Option<&Arc<State>> {
        let candidates = self
            .entries
            .iter()
            .filter(|(id, entry)| **id != not && of(entry.standing) && !entry.state.end.is_cancelled());
        let ranked = candidates.filter_map(|(id, entry)| {
            let requests = entry.state.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let is_busy = requests.under_way > 0;
            (busy_too || !is_busy).then_some(((is_busy, requests.since, *id), &entry.state))
        });
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, state)| state)
    }
}

impl Connections {
    /// None yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Entries are whole at any time: a panic elsewhere does not spoil them.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, as a stranger's. Where strangers have no place left, the one that has been idle for longest
    /// is ended.
    #[must_use]
    pub fn admit(self: &Arc<Self>) -> Registered {
        let mut open = self.lock();
        let id = open.next;
        open.next += 1;
        if open.strangers >= self.bounds.strangers.max(1)
            && let Some(state) = open.candidate(|standing| standing == Standing::Stranger, id, true)
        {
            tracing::debug!("a stranger's connection makes room");
            state.end.cancel();
        }
        let requests = Requests { under_way: 0, since: Instant::now() };
        let state = Arc::new(State { requests: Mutex::new(requests), end: CancellationToken::new() });
        let entry = Entry { standing: Standing::Stranger, state: Arc::clone(&state) };
        open.entries.insert(id, entry);
        open.strangers += 1;
        Registered { connection: Connection { all: Arc::clone(self), id, state } }
    }

    /// Connections at this moment: of those who are known, and of strangers.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let open = self.lock();
        (open.entries.len() - open.strangers, open.strangers)
    }
}

impl Connection {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.state.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its client has shown who it is. Where its party has too many connections, the oldest of them is ended; where there
    /// are too many of all, the one that has been idle for longest. False where all are busy: then this one is ended.
    #[must_use]
    pub fn known(&self, party: Option<Party>) -> bool {
        let mut open = self.all.lock();
        let known = Standing::Known(party);
        match open.entries.get_mut(&self.id) {
            Some(entry) if entry.standing == Standing::Stranger => entry.standing = known,
            Some(entry) => {
                entry.standing = known;
                return true;
            }
            None => return false,
        }
        open.strangers -= 1;
        if party.is_some() {
            let is_of_party = |entry: &&Entry| entry.standing == known && !entry.state.end.is_cancelled();
            if open.entries.values().filter(is_of_party).count() > self.all.bounds.per_party.max(1)
                && let Some(state) = open.candidate(|standing| standing == known, self.id, true)
            {
                tracing::debug!("an older connection of the same client makes room");
                state.end.cancel();
                return true;
            }
        }
        let bound = self.all.bounds.known.max(1);
        let stays = |entry: &&Entry| entry.standing != Standing::Stranger && !entry.state.end.is_cancelled();
        // Counted one by one only where those that are ending may make the difference.
        if open.entries.len() - open.strangers <= bound
            || open.entries.values().filter(stays).count() <= bound
        {
            return true;
        }
        if let Some(state) = open.candidate(|standing| standing != Standing::Stranger, self.id, false) {
            tracing::debug!("an idle connection makes room");
            state.end.cancel();
            return true;
        }
        drop(open);
        self.end();
        false
    }

    /// Since when nothing is under way; none where something is.
    #[must_use]
    pub fn idle_since(&self) -> Option<Instant> {
        let requests = self.requests();
        (requests.under_way == 0).then_some(requests.since)
    }

    /// Ends the connection, whatever is under way on it.
    pub fn end(&self) {
        self.state.end.cancel();
    }

    /// Resolves once the connection is to end.
    pub async fn ended(&self) {
        self.state.end.cancelled().await;
    }

    /// As [`Connection::ended`], for whoever cannot borrow.
    pub fn end_token(&self) -> CancellationToken {
        self.state.end.clone()
    }

    /// Resolves once nothing has been under way for `limit`.
    pub async fn idle_for(&self, limit: Duration) {
        loop {
            let wait = match self.idle_since() {
                Some(since) if since.elapsed() >= limit => return,
                Some(since) => limit.saturating_sub(since.elapsed()),
                None => limit,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a request until the value is dropped.
    #[must_use]
    pub fn request(&self) -> UnderWay {
        let mut requests = self.requests();
        requests.under_way += 1;
        requests.since = Instant::now();
        drop(requests);
        UnderWay(self.clone())
    }
}

/// A request that is under way.
#[derive(Debug)]
pub struct UnderWay(Connection);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut requests = self.0.requests();
        requests.under_way = requests.under_way.saturating_sub(1);
        requests.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(registered: &Registered) -> bool {
        registered.connection().end_token().is_cancelled()
    }

    fn connections(known: usize, strangers: usize, per_party: usize) -> Arc<Connections> {
        Connections::new(Bounds { known, strangers, per_party })
    }

    #[tokio::test]
    async fn strangers_take_places_from_strangers_only() {
        let all = connections(2, 2, 9);
        let known = all.admit();
        assert!(known.connection().known(None));
        let strangers: Vec<Registered> = (0..5).map(|_| all.admit()).collect();
        let gone: Vec<bool> = strangers.iter().map(ended).collect();
        assert_eq!(gone, [true, true, true, false, false]);
        assert!(!ended(&known));
        drop(strangers);
        assert_eq!(all.count(), (1, 0));
    }

    #[tokio::test]
    async fn a_full_house_of_known_ones_ends_who_is_idle_and_else_refuses() {
        let all = connections(2, 9, 9);
        let (busy, idle, late, last) = (all.admit(), all.admit(), all.admit(), all.admit());
        let _request = busy.connection().request();
        assert!(busy.connection().known(Some(1)) && idle.connection().known(Some(2)));
        assert!(late.connection().known(Some(3)));
        assert!(ended(&idle) && !ended(&busy) && !ended(&late));
        drop(idle);
        let _other = late.connection().request();
        assert!(!last.connection().known(Some(4)));
        assert!(ended(&last) && !ended(&busy) && !ended(&late));
    }

    #[tokio::test]
    async fn a_party_has_its_own_bound_and_its_newest_stays() {
        let all = connections(10, 9, 2);
        let (first, second, third, other) = (all.admit(), all.admit(), all.admit(), all.admit());
        let _busy = first.connection().request();
        let _too = second.connection().request();
        assert!(first.connection().known(Some(1)) && second.connection().known(Some(1)));
        assert!(other.connection().known(Some(2)) && third.connection().known(Some(1)));
        assert!(ended(&first) && !ended(&second) && !ended(&third) && !ended(&other));
    }

    #[tokio::test]
    async fn idleness_begins_with_the_end_of_the_last_request() {
        let all = connections(2, 2, 2);
        let one = all.admit();
        let admitted = one.connection().idle_since().unwrap();
        let (request, other) = (one.connection().request(), one.connection().request());
        drop(request);
        assert!(one.connection().idle_since().is_none());
        drop(other);
        assert!(one.connection().idle_since().unwrap() >= admitted);
        one.connection().idle_for(Duration::ZERO).await;
    }
}
