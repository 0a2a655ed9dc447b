//! One connection: what is under way on it, and its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connections::{Connections, Party, Refused};

#[derive(Debug)]
pub(crate) struct State {
    requests: Mutex<Requests>,
    pub(crate) end: CancellationToken,
}

#[derive(Debug)]
struct Requests {
    next: u64,
    under_way: usize,
    /// Since when there are none, or since when there is one.
    since: Instant,
    /// Since when a part of an answer waits for the client to take it, by request.
    offered: HashMap<u64, Instant>,
}

impl State {
    pub(crate) fn new() -> Self {
        let requests = Requests { next: 0, under_way: 0, since: Instant::now(), offered: HashMap::new() };
        Self { requests: Mutex::new(requests), end: CancellationToken::new() }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        // Whole at any time: a panic elsewhere does not spoil it.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is under way, and since when it is as it is.
    pub(crate) fn occupation(&self) -> (bool, Instant) {
        let requests = self.requests();
        (requests.under_way > 0, requests.since)
    }
}

/// One connection, as its task and its requests know it.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) all: Arc<Connections>,
    pub(crate) id: u64,
    pub(crate) state: Arc<State>,
}

impl Connection {
    /// Its client has shown who it is. Where its party has too many connections, or there are too many of all, or no memory
    /// for one more, another one has to go: of a party the one that has been idle for longest (where all are busy, what
    /// [`Full`](crate::Full) says), of all the one that has been idle for longest, or else the oldest of the party that has
    /// most. Waits a little until it has gone.
    ///
    /// # Errors
    /// [`Refused`] where there is no room. It stays an anonymous client's.
    pub async fn known(&self, party: Party) -> Result<(), Refused> {
        self.all.make_known(self.id, party).await
    }

    /// Whether nobody has said yet who is there.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.all.is_anonymous(self.id)
    }

    /// Requests that are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.state.requests().under_way
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
    #[must_use]
    pub fn end_token(&self) -> CancellationToken {
        self.state.end.clone()
    }

    /// Resolves once nothing has been under way for `limit`, or for `anonymous` where nobody has said who is there.
    pub async fn idle_for(&self, limit: Duration, anonymous: Duration) {
        loop {
            let limit = if self.is_anonymous() { limit.min(anonymous) } else { limit };
            let wait = match self.state.occupation() {
                (false, since) if since.elapsed() >= limit => return,
                (false, since) => limit.saturating_sub(since.elapsed()),
                (true, _) => limit,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Resolves once a part of an answer has waited for `limit` until the client takes it.
    pub async fn stalled_for(&self, limit: Duration) {
        loop {
            let oldest = self.state.requests().offered.values().min().copied();
            let waited = oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed());
            if waited >= limit {
                return;
            }
            tokio::time::sleep(limit - waited).await;
        }
    }

    /// Counts a request until the value is dropped.
    #[must_use]
    pub fn request(&self) -> UnderWay {
        let mut requests = self.state.requests();
        let id = requests.next;
        requests.next += 1;
        requests.under_way += 1;
        requests.since = Instant::now();
        drop(requests);
        UnderWay { connection: self.clone(), id }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub struct UnderWay {
    connection: Connection,
    id: u64,
}

impl UnderWay {
    /// From now on a part of its answer waits until the client takes it.
    pub fn offer(&self) {
        self.connection.state.requests().offered.insert(self.id, Instant::now());
    }

    /// The client has taken all that there is so far.
    pub fn taken(&self) {
        self.connection.state.requests().offered.remove(&self.id);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut requests = self.connection.state.requests();
        requests.offered.remove(&self.id);
        requests.under_way = requests.under_way.saturating_sub(1);
        requests.since = Instant::now();
    }
}
