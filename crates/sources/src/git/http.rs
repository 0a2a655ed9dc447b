//! Git's smart HTTP as we want it: gix speaks the protocol, a [`Wire`] brings the bytes.
//!
//! gix's own transport cannot be told of deadlines, limits, bearer tokens, guarded addresses or a stricter rule for
//! redirects, so this is a second implementation of its `Http` trait.

use std::any::Any;
use std::io::{self, BufRead, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};

use super::error::GitError;
use super::wire::{Wire, WireRequest};
use crate::tree::Measure;

/// Brings bytes from one server, for one attempt. Clones share everything.
#[derive(Clone)]
pub(super) struct Client {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    wire: Box<dyn Wire>,
    /// Where the repository turned out to be.
    redirected: Option<String>,
    /// Which request was sent last: only its answer can be read.
    sent: u64,
}

impl Client {
    pub(super) fn new(wire: Box<dyn Wire>) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { wire, redirected: None, sent: 0 })) }
    }

    /// From now on `limit` more bytes may come.
    pub(super) fn allow(&self, measure: Measure, limit: u64) {
        self.lock().wire.allow(measure, limit);
    }

    /// What failed first, if it was the wire's to notice.
    pub(super) fn take_failure(&self) -> Option<GitError> {
        self.lock().wire.take_failure()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(
        &self,
        post: bool,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Arc<Mutex<Exchange>> {
        let headers = headers.into_iter().filter_map(|line| {
            let (name, value) = line.as_ref().split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        });
        let pending = WireRequest {
            post,
            url: url.to_owned(),
            base_url: base_url.to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
        };
        Arc::new(Mutex::new(Exchange { client: self.clone(), state: State::Pending(Box::new(pending)) }))
    }
}

/// A request is sent when the first byte of its answer is wanted: gix writes the body after it asked for the answer.
enum State {
    Pending(Box<WireRequest>),
    Running { headers: Vec<(String, Vec<u8>)>, sent: u64 },
    Ended,
}

struct Exchange {
    client: Client,
    state: State,
}

impl Exchange {
    /// Sends the request if it is not sent, and gives the headers of its answer.
    fn start(&mut self) -> io::Result<&[(String, Vec<u8>)]> {
        if matches!(self.state, State::Pending(_))
            && let State::Pending(request) = std::mem::replace(&mut self.state, State::Ended)
        {
            let mut shared = self.client.lock();
            let head = shared.wire.send(*request)?;
            shared.sent += 1;
            if head.redirected.is_some() {
                shared.redirected = head.redirected;
            }
            self.state = State::Running { headers: head.headers, sent: shared.sent };
        }
        Ok(match &self.state {
            State::Running { headers, .. } => headers,
            State::Pending(_) | State::Ended => &[],
        })
    }

    /// The next bytes of the answer; empty at its end.
    fn chunk(&mut self) -> io::Result<Vec<u8>> {
        self.start()?;
        let State::Running { sent, .. } = self.state else { return Ok(Vec::new()) };
        let mut shared = self.client.lock();
        let bytes = if sent == shared.sent { shared.wire.receive()? } else { Vec::new() };
        drop(shared);
        if bytes.is_empty() {
            self.state = State::Ended;
        }
        Ok(bytes)
    }
}

impl Http for Client {
    type Headers = Headers;
    type ResponseBody = Body;
    type PostBody = PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Headers, Body>> {
        let exchange = self.exchange(false, url, base_url, headers);
        Ok(GetResponse { headers: Headers::new(&exchange), body: Body::new(exchange) })
    }

    fn post(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Headers, Body, PostBody>> {
        let exchange = self.exchange(true, url, base_url, headers);
        Ok(PostResponse {
            post_body: PostBody(Arc::clone(&exchange)),
            headers: Headers::new(&exchange),
            body: Body::new(exchange),
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.lock().redirected.clone()
    }
}

fn lock(exchange: &Mutex<Exchange>) -> MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The request's body, while it is written.
pub(super) struct PostBody(Arc<Mutex<Exchange>>);

impl Write for PostBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut lock(&self.0).state {
            State::Pending(pending) => {
                pending.body.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            State::Running { .. } | State::Ended => Err(io::Error::other("the request is sent already")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The answer's headers, a line each.
pub(super) struct Headers {
    exchange: Arc<Mutex<Exchange>>,
    lines: Option<Cursor<Vec<u8>>>,
}

impl Headers {
    fn new(exchange: &Arc<Mutex<Exchange>>) -> Self {
        Self { exchange: Arc::clone(exchange), lines: None }
    }

    fn lines(&mut self) -> io::Result<&mut Cursor<Vec<u8>>> {
        if self.lines.is_none() {
            let mut lines = Vec::new();
            for (name, value) in lock(&self.exchange).start()? {
                for part in [name.as_bytes(), b":", value, b"\n"] {
                    lines.extend_from_slice(part);
                }
            }
            self.lines = Some(Cursor::new(lines));
        }
        Ok(self.lines.get_or_insert_default())
    }
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lines()?.read(buffer)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.lines()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Some(lines) = &mut self.lines {
            lines.consume(amount);
        }
    }
}

/// The answer's body.
pub(super) struct Body {
    exchange: Arc<Mutex<Exchange>>,
    chunk: Cursor<Vec<u8>>,
}

impl Body {
    fn new(exchange: Arc<Mutex<Exchange>>) -> Self {
        Self { exchange, chunk: Cursor::default() }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.fill_buf()?.is_empty() {
            self.chunk = Cursor::new(lock(&self.exchange).chunk()?);
        }
        self.chunk.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.consume(amount);
    }
}
