//! What the API's connections cost, whose they are, and bodies that do not move: those that clients send and those that
//! they do not take.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use roadstead_budget::{MemoryBudget, PoolName};
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::Identity;
use roadstead_listener::{Bounds, Connection, Connections, Cost, Costs, Full, Party, UnderWay};
use roadstead_model::Digest;
use tokio::time::{Instant, Sleep};

use crate::ApiOptions;

/// What an anonymous connection is charged, in bytes: TLS state, buffers, a request's headers. An estimate.
const ANONYMOUS: u64 = 24 * 1024;
/// What other connections are charged, with requests that are under way and answers that wait. An estimate, too.
const KNOWN: u64 = 40 * 1024;
/// So long an anonymous connection has to make itself known before it may have to go for another.
const GRACE: Duration = Duration::from_millis(250);
/// Requests of an anonymous connection at once: a browser asks for the dashboard's few files.
const MOST_ANONYMOUS_REQUESTS: usize = 24;
/// One user has this part of the connections that there may be.
const USERS_SHARE: usize = 4;
/// An answer goes to the connection in pieces of at most this size: what it has taken cannot be seen to wait.
const PIECE: usize = 16 * 1024;

/// The books of the API's connections.
pub(crate) fn connections(options: &ApiOptions, budget: &MemoryBudget) -> Arc<Connections> {
    let (unauthenticated, known) =
        (budget.pool(PoolName::Unauthenticated), budget.pool(PoolName::Connections));
    let fit = |bytes: u64, each: u64| usize::try_from(bytes / each).unwrap_or(usize::MAX);
    let places = options.connections.min(known_connections(budget));
    let bounds = Bounds {
        known: places,
        // A quarter of the memory is left for what they send.
        anonymous: options.anonymous.min(fit(unauthenticated.size() / 4 * 3, ANONYMOUS)),
        per_party: places / USERS_SHARE,
        full: Full::RefuseNew,
        grace: GRACE,
    };
    let costs = Costs {
        anonymous: Cost { pool: unauthenticated.clone(), bytes: ANONYMOUS },
        known: Cost { pool: known.clone(), bytes: KNOWN },
    };
    Connections::new(bounds, costs)
}

/// So many connections of callers of Receivers there may be at once, and what fits into an eighth of the memory for those without
/// credentials: the API's have three quarters of it.
const CALLERS: usize = 64;

/// The books of the connections to the listener on which nothing but Receivers is called: nobody there says who it is before it
/// calls.
pub(crate) fn callers(budget: &MemoryBudget) -> Arc<Connections> {
    let (pool, anonymous) = (budget.pool(PoolName::Unauthenticated), callers_within(budget));
    let bounds = Bounds { known: 0, anonymous, per_party: 0, full: Full::RefuseNew, grace: GRACE };
    let cost = Cost { pool: pool.clone(), bytes: ANONYMOUS };
    Connections::new(bounds, Costs { anonymous: cost.clone(), known: cost })
}

/// How many connections of callers there is memory for, on a listener of their own.
#[must_use]
pub fn callers_within(budget: &MemoryBudget) -> usize {
    let size = budget.pool(PoolName::Unauthenticated).size();
    let fit = usize::try_from(size / 8 / ANONYMOUS).unwrap_or(usize::MAX);
    CALLERS.min(fit).max(1)
}

/// How many connections of those who have said who they are there is memory for.
#[must_use]
pub fn known_connections(budget: &MemoryBudget) -> usize {
    usize::try_from(budget.pool(PoolName::Connections).size() / KNOWN).unwrap_or(usize::MAX)
}

/// Whose a connection is: what the name of the first user on it becomes. Nobody finds a name that becomes another's number.
fn party(who: &Identity) -> Party {
    let digest = Digest::of(who.username.as_bytes());
    digest.as_bytes().iter().take(16).fold(0, |number, byte| number << 8 | Party::from(*byte))
}

/// Notes that a request on this connection came with a good token.
pub(crate) async fn authenticated(connection: &Connection, who: &Identity) -> Result<(), HubError> {
    connection
        .known(party(who))
        .await
        .map_err(|why| HubError::TooMany(format!("Too many requests, please try again later: {why}")))
}

/// Ends the connection where nobody has said who it is and too much is under way on it.
pub(crate) fn check(connection: &Connection) {
    if connection.under_way() > MOST_ANONYMOUS_REQUESTS && connection.is_anonymous() {
        connection.end();
    }
}

/// A response's body, whose request is under way until it has been sent. What the client does not take of it is seen by its
/// connection.
pub(crate) struct Counted {
    body: Body,
    /// Of the last frame, what was not passed on.
    rest: Bytes,
    under_way: UnderWay,
}

impl Counted {
    pub(crate) fn new(body: Body, under_way: UnderWay) -> Self {
        // From here on whoever does not ask for it keeps it waiting.
        under_way.offer();
        Self { body, rest: Bytes::new(), under_way }
    }

    fn piece(&mut self) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.under_way.offer();
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return self.piece();
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            // All that there is so far was asked for.
            self.under_way.taken();
            return Poll::Pending;
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                self.rest = data;
                self.piece()
            }
            Some(Ok(Err(trailers))) => Poll::Ready(Some(Ok(trailers))),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        let upper = hint.upper().map(|upper| upper + rest);
        hint.set_lower(hint.lower() + rest);
        if let Some(upper) = upper {
            hint.set_upper(upper);
        }
        hint
    }
}

/// A body that fails where it is not there some time after it was first asked for: until then the hub keeps it waiting.
pub(crate) struct Timed {
    body: Body,
    limit: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub(crate) fn new(body: Body, limit: Duration) -> Self {
        Self { body, limit, deadline: None }
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
        let until = Instant::now() + self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
