//! What agents' messages take of the hub's memory: reserved before their bytes are read, given back once they are handled.
//!
//! A message says how long it is before it comes. Whatever is too long to be small is let in only once as much as it
//! becomes is reserved, out of the session's share and of that of all sessions. Until then its bytes stay with the agent.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prost::bytes::{Buf as _, Bytes};
use roadstead_budget::{Exhausted, Pool, Reservation};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, http};

/// Messages up to this many bytes are covered by what a session reserves when it begins.
pub(crate) const SMALL: u64 = 1024;
/// What a session reserves when it begins: for small messages that are in hand, and for what is kept of the session.
pub(crate) const BASE: u64 = 64 * 1024;
/// What a byte of a message becomes while it is handled: read, converted, and bound to a statement.
const GROWTH: u64 = 6;
/// One session has this part of what all have.
const SHARE: u64 = 2;
/// A message that has begun to come is there within this time.
const WHOLE: Duration = Duration::from_secs(30);

/// How a gRPC message begins: whether it is compressed, and its length.
const HEADER: usize = 5;

/// What a message has reserved; nothing for a small one.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    _reserved: Option<(Reservation, Reservation)>,
}

/// The receipts of a session's messages, in their order, and when something was heard.
#[derive(Debug, Clone)]
pub(crate) struct Receipts(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    queue: VecDeque<Receipt>,
    /// When bytes came last.
    heard: Instant,
    /// When the message began that is not whole yet.
    begun: Option<Instant>,
    /// Memory is waited for, so nothing can be heard.
    waits: bool,
}

impl Receipts {
    fn new() -> Self {
        let state = State { queue: VecDeque::new(), heard: Instant::now(), begun: None, waits: false };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole at any time: a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receipt of the message that was read last.
    pub(crate) fn next(&self) -> Receipt {
        self.lock().queue.pop_front().unwrap_or_default()
    }

    /// Since when the agent has been silent: a part of a message counts, while the whole does not take too long.
    pub(crate) fn silent_since(&self) -> Instant {
        let state = self.lock();
        match state.begun {
            _ if state.waits => Instant::now(),
            Some(begun) if begun.elapsed() > WHOLE => begun,
            _ => state.heard,
        }
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<(Reservation, Reservation), Exhausted>> + Send>>;

/// The body of an agent's request: passes messages on as memory for them is there.
struct Metered {
    body: Body,
    session: Pool,
    sessions: Pool,
    receipts: Receipts,
    header: [u8; HEADER],
    /// Bytes of the header that have come.
    have: usize,
    /// Bytes of the message that have not.
    left: usize,
    /// Came, and was not passed on.
    data: Bytes,
    waiting: Option<Waiting>,
}

/// Has the request's messages reserve what they take, and puts their receipts into its extensions.
pub(crate) fn metered(request: http::Request<Body>, sessions: &Pool) -> http::Request<Body> {
    let receipts = Receipts::new();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(receipts.clone());
    let session = Pool::new("an agent's session", sessions.size() / SHARE);
    let sessions = sessions.clone();
    let (header, have, left, data) = ([0; HEADER], 0, 0, Bytes::new());
    let body = Metered { body, session, sessions, receipts, header, have, left, data, waiting: None };
    http::Request::from_parts(parts, Body::new(body))
}

impl Metered {
    /// The header is there: what comes behind it is let in, or memory for it is waited for.
    fn begin(&mut self) {
        let [_, length @ ..] = self.header;
        let length = u32::from_be_bytes(length);
        self.have = 0;
        self.left = usize::try_from(length).unwrap_or(usize::MAX);
        let mut state = self.receipts.lock();
        state.begun = (self.left > 0).then(Instant::now);
        if u64::from(length) <= SMALL {
            state.queue.push_back(Receipt::default());
            return;
        }
        state.waits = true;
        let wanted = (u64::from(length) * GROWTH).min(self.session.size());
        let (session, sessions) = (self.session.clone(), self.sessions.clone());
        self.waiting = Some(Box::pin(async move {
            let own = session.reserve(wanted).await?;
            Ok((sessions.reserve(wanted).await?, own))
        }));
    }

    /// What of the data belongs to the message that is coming.
    fn part(&mut self) -> Bytes {
        let part = self.data.split_to(self.left.min(self.data.len()));
        self.left -= part.len();
        let mut state = self.receipts.lock();
        state.heard = Instant::now();
        if self.left == 0 {
            state.begun = None;
        }
        drop(state);
        part
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes))));
        loop {
            if let Some(waiting) = &mut this.waiting {
                let reserved = ready!(waiting.as_mut().poll(context));
                this.waiting = None;
                let mut state = this.receipts.lock();
                (state.waits, state.heard, state.begun) = (false, Instant::now(), Some(Instant::now()));
                match reserved {
                    Ok(reserved) => state.queue.push_back(Receipt { _reserved: Some(reserved) }),
                    Err(error) => {
                        return Poll::Ready(Some(Err(Status::resource_exhausted(error.to_string()))));
                    }
                }
                drop(state);
                return frame(Bytes::copy_from_slice(&this.header));
            }
            if this.data.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => this.data = data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                    end => return Poll::Ready(end),
                }
            } else if this.left > 0 {
                return frame(this.part());
            } else {
                let come = (HEADER - this.have).min(this.data.len());
                this.header[this.have..this.have + come].copy_from_slice(&this.data[..come]);
                this.data.advance(come);
                this.have += come;
                if this.have == HEADER {
                    this.begin();
                    if this.waiting.is_none() {
                        return frame(Bytes::copy_from_slice(&this.header));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body_util::Full;

    use super::*;

    /// Messages of these lengths, as they come over the wire.
    fn wire(lengths: &[usize]) -> Bytes {
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.push(0);
            bytes.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
            bytes.extend(std::iter::repeat_n(7, *length));
        }
        bytes.into()
    }

    fn request(bytes: &Bytes, pool: &Pool) -> (Pin<Box<Body>>, Receipts) {
        let request = metered(http::Request::new(Body::new(Full::new(bytes.clone()))), pool);
        let receipts = request.extensions().get::<Receipts>().unwrap().clone();
        (Box::pin(request.into_body()), receipts)
    }

    async fn frame(body: &mut Pin<Box<Body>>) -> Option<Bytes> {
        let frame = poll_fn(|context| body.as_mut().poll_frame(context)).await?;
        frame.unwrap().into_data().ok()
    }

    #[tokio::test]
    async fn what_comes_is_passed_on_unchanged() {
        let pool = Pool::new("test", 1 << 20);
        let bytes = wire(&[0, 10, 3_000, 1, 0, 5_000]);
        let (mut body, receipts) = request(&bytes, &pool);
        let mut come = Vec::new();
        let mut held = Vec::new();
        while let Some(part) = frame(&mut body).await {
            come.extend_from_slice(&part);
        }
        assert_eq!(come, bytes);
        held.extend((0..6).map(|_| receipts.next()));
        assert_eq!(held.iter().filter(|receipt| receipt._reserved.is_some()).count(), 2);
        assert!(pool.used() >= 8_000 * GROWTH);
        drop(held);
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn a_large_message_waits_for_memory_before_its_bytes_are_read() {
        let pool = Pool::new("test", 1 << 20);
        let others = pool.try_reserve(1 << 20).unwrap();
        let (mut body, receipts) = request(&wire(&[10, 200_000]), &pool);
        assert_eq!(frame(&mut body).await.map(|part| part.len()), Some(HEADER));
        assert_eq!(frame(&mut body).await.map(|part| part.len()), Some(10));
        let waiting = tokio::time::timeout(Duration::from_millis(50), frame(&mut body)).await;
        assert!(waiting.is_err(), "a large message was let in without memory");
        // It is no silence of the agent's.
        assert!(receipts.lock().waits);
        drop(others);
        assert_eq!(frame(&mut body).await.map(|part| part.len()), Some(HEADER));
        assert!(frame(&mut body).await.is_some());
        // More than a session may have at once is charged with that.
        assert_eq!(pool.used(), (1 << 20) / SHARE);
    }
}
