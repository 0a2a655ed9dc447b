//! Connections: which of them are idle, which do not take what is sent to them or send what they have begun, and how
//! they are ended.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

/// All connections.
pub(crate) struct Connections {
    begin: Instant,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<State>>>,
}

struct State {
    requests: Mutex<Requests>,
    end: CancellationToken,
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
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Connections {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), next: AtomicU64::new(0), open: Mutex::default() }
    }

    pub(crate) fn register(self: &Arc<Self>) -> Registered {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let requests = Requests { under_way: 0, since: Instant::now() };
        let state = Arc::new(State { requests: Mutex::new(requests), end: CancellationToken::new() });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&state));
        Registered { connections: Arc::clone(self), id, connection: Connection(state) }
    }

    /// Ends the connection that has been idle for longest, to make room for a new one. Nothing where all are busy.
    pub(crate) fn evict(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = open.values().filter(|state| !state.end.is_cancelled());
        let idle = idle.filter_map(|state| Some((Connection(Arc::clone(state)).idle_since()?, state)));
        if let Some((since, state)) = idle.min_by_key(|(since, _)| *since) {
            tracing::debug!(age = ?(since - self.begin), "an idle connection makes room");
            state.end.cancel();
        }
    }
}

impl Connection {
    fn requests(&self) -> std::sync::MutexGuard<'_, Requests> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Resolves once nothing has been under way for `limit`.
    pub(crate) async fn idle_for(&self, limit: Duration) {
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

/// A stream whose other side has to take what is sent to it: a write that stands still for too long fails.
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: None }
    }

    fn watched<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.deadline = None;
            return poll;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.watched(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP stream's flush does nothing, so it says nothing about the other side.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
