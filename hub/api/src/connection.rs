//! Connections: which of them are idle, which have shown who they are, which do not take what is sent to them or send what
//! they have begun, and how they are ended.
//!
//! Until a connection has brought a request with a good token it is anonymous: its memory is of the share for requests
//! without credentials, and when places are short it goes before all others.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use roadstead_budget::{Exhausted, MemoryBudget, Pool, PoolName, Reservation};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// What an anonymous connection is charged, in bytes: TLS state, buffers, a request's headers. An estimate.
const ANONYMOUS: u64 = 24 * 1024;
/// What other connections are charged, with requests that are under way and answers that wait. An estimate, too.
const KNOWN: u64 = 40 * 1024;
/// So long an anonymous connection has to make itself known before it may have to go for another.
const GRACE: Duration = Duration::from_millis(250);
/// Requests of an anonymous connection at once: a browser asks for the dashboard's few files.
const MOST_ANONYMOUS_REQUESTS: usize = 24;

/// All connections.
pub(crate) struct Connections {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<State>>>,
    /// Of all connections.
    places: Arc<Semaphore>,
    /// Of anonymous ones.
    anonymous: Arc<Semaphore>,
    unauthenticated: Pool,
    known: Pool,
    /// A place has become free.
    freed: Notify,
}

struct State {
    peer: IpAddr,
    opened: Instant,
    standing: Mutex<Standing>,
    known: Pool,
    requests: Mutex<Requests>,
    end: CancellationToken,
}

/// What a connection holds by what is known of it.
enum Standing {
    Anonymous(#[expect(dead_code, reason = "held")] AnonymousPlace),
    Known(#[expect(dead_code, reason = "held")] Reservation),
    /// It is over; what is left of its requests holds nothing of it.
    Over,
}

struct AnonymousPlace {
    _place: OwnedSemaphorePermit,
    _memory: Reservation,
}

struct Requests {
    under_way: usize,
    /// Since when there are none, or since when there is one.
    since: Instant,
}

/// One connection, as its task and its requests know it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<State>);

/// Takes the connection off the list when its task ends.
pub(crate) struct Registered {
    connections: Arc<Connections>,
    id: u64,
    pub(crate) connection: Connection,
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.open().remove(&self.id);
        *self.connection.0.standing() = Standing::Over;
        drop(self.place.take());
        self.connections.freed.notify_one();
    }
}

impl Connections {
    pub(crate) fn new(most: usize, budget: &MemoryBudget) -> Self {
        let unauthenticated = budget.pool(PoolName::Unauthenticated).clone();
        // A quarter of it is left for what they send.
        let fit = usize::try_from(unauthenticated.size() * 3 / 4 / ANONYMOUS).unwrap_or(usize::MAX);
        Self {
            next: AtomicU64::new(0),
            open: Mutex::default(),
            places: Arc::new(Semaphore::new(most.max(1))),
            anonymous: Arc::new(Semaphore::new(fit.clamp(1, most.max(1)))),
            unauthenticated,
            known: budget.pool(PoolName::Connections).clone(),
            freed: Notify::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<State>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, for which another one may have to go. Waits where none can.
    pub(crate) async fn register(self: &Arc<Self>, peer: IpAddr) -> Registered {
        let (place, anonymous) = loop {
            let place = Arc::clone(&self.places).try_acquire_owned();
            let anonymous = self.anonymous_place();
            let short_of_all = place.is_err();
            if let (Ok(place), Some(anonymous)) = (place, anonymous) {
                break (place, anonymous);
            }
            self.evict(short_of_all);
            // Until the other one has gone, or has had its time.
            let _ = tokio::time::timeout(GRACE / 4, self.freed.notified()).await;
        };
        let state = Arc::new(State {
            peer,
            opened: Instant::now(),
            standing: Mutex::new(Standing::Anonymous(anonymous)),
            known: self.known.clone(),
            requests: Mutex::new(Requests { under_way: 0, since: Instant::now() }),
            end: CancellationToken::new(),
        });
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.open().insert(id, Arc::clone(&state));
        Registered { connections: Arc::clone(self), id, connection: Connection(state), place: Some(place) }
    }

    fn anonymous_place(&self) -> Option<AnonymousPlace> {
        let place = Arc::clone(&self.anonymous).try_acquire_owned().ok()?;
        let memory = self.unauthenticated.try_reserve(ANONYMOUS).ok()?;
        Some(AnonymousPlace { _place: place, _memory: memory })
    }

    /// Ends a connection to make room for a new one: the oldest anonymous one of the address that has most of these,
    /// whatever is under way on it; or else, where all places are taken, the one that has been idle for longest. None where
    /// the former are very new and the latter are busy.
    fn evict(&self, short_of_all: bool) {
        let open = self.open();
        let here = || open.values().filter(|state| !state.end.is_cancelled());
        let mut anonymous: HashMap<IpAddr, (usize, &Arc<State>)> = HashMap::new();
        for state in here().filter(|state| state.is_anonymous()) {
            let (count, oldest) = anonymous.entry(state.peer).or_insert((0, state));
            *count += 1;
            if state.opened < oldest.opened {
                *oldest = state;
            }
        }
        let ripe = anonymous.values().filter(|(_, oldest)| oldest.opened.elapsed() >= GRACE);
        let victim = ripe.max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(oldest.opened)));
        let idle = || {
            let idle = here().filter(|state| !state.is_anonymous());
            let idle = idle.filter_map(|state| Some((Connection(Arc::clone(state)).idle_since()?, state)));
            idle.min_by_key(|(since, _)| *since).map(|(_, state)| state)
        };
        let victim = match victim {
            Some((_, oldest)) => Some(*oldest),
            None if short_of_all && anonymous.is_empty() => idle(),
            None => None,
        };
        if let Some(state) = victim {
            tracing::debug!(peer = %state.peer, anonymous = state.is_anonymous(), age = ?state.opened.elapsed(),
                "a connection makes room");
            state.end.cancel();
        }
    }
}

impl State {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_anonymous(&self) -> bool {
        matches!(*self.standing(), Standing::Anonymous(_))
    }
}

impl Connection {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request on it came with a good token.
    ///
    /// # Errors
    /// Where there is no memory for one more such connection.
    pub(crate) fn authenticated(&self) -> Result<(), Exhausted> {
        let mut standing = self.0.standing();
        if let Standing::Anonymous(_) = *standing {
            *standing = Standing::Known(self.0.known.try_reserve(KNOWN)?);
        }
        Ok(())
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.is_anonymous()
    }

    /// Ends the connection where nobody has said who it is and too much is under way on it.
    pub(crate) fn check(&self) {
        let under_way = self.requests().under_way;
        if under_way > MOST_ANONYMOUS_REQUESTS && self.is_anonymous() {
            self.end();
        }
    }

    /// Since when nothing is under way; none where something is.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let requests = self.requests();
        (requests.under_way == 0).then_some(requests.since)
    }

    /// Ends the connection, whatever is under way on it.
    pub(crate) fn end(&self) {
        self.0.end.cancel();
    }

    pub(crate) async fn ended(&self) {
        self.0.end.cancelled().await;
    }

    /// Resolves once nothing has been under way for `limit`, or for `anonymous` where nobody has said who it is.
    pub(crate) async fn idle_for(&self, limit: Duration, anonymous: Duration) {
        loop {
            let limit = if self.is_anonymous() { limit.min(anonymous) } else { limit };
            let wait = match self.idle_since() {
                Some(since) if since.elapsed() >= limit => return,
                Some(since) => limit.saturating_sub(since.elapsed()),
                None => limit,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a request until the value is dropped.
    pub(crate) fn request(&self) -> UnderWay {
        let mut requests = self.requests();
        requests.under_way += 1;
        requests.since = Instant::now();
        drop(requests);
        UnderWay(self.clone())
    }
}

/// A request that is under way.
pub(crate) struct UnderWay(Connection);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut requests = self.0.requests();
        requests.under_way = requests.under_way.saturating_sub(1);
        requests.since = Instant::now();
    }
}

/// A response's body, whose request is under way until it has been sent.
pub(crate) struct Counted {
    body: Body,
    _under_way: UnderWay,
}

impl Counted {
    pub(crate) fn new(body: Body, under_way: UnderWay) -> Self {
        Self { body, _under_way: under_way }
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that fails where it is not there after some time.
pub(crate) struct Timed {
    body: Body,
    deadline: Pin<Box<Sleep>>,
}

impl Timed {
    pub(crate) fn new(body: Body, limit: Duration) -> Self {
        Self { body, deadline: Box::pin(tokio::time::sleep(limit)) }
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
