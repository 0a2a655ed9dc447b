//! Git's smart HTTP over answers that are there already: gix speaks the protocol, and what it would ask beyond them is noted.
//!
//! gix's own transport wants a network; so this is a second implementation of its `Http` trait.

use std::any::Any;
use std::io::{self, BufRead, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};

use super::symrefs::Symrefs;
use super::wire::{Ask, What};
use crate::attempt::{Line, Question};

/// The answers of one server. Clones share everything.
#[derive(Clone)]
pub(super) struct Client {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    line: Line,
    /// The number of the first answer.
    first: usize,
    /// The content types of the answers that are there.
    headings: Vec<String>,
    /// How many requests were made: only the last one's answer can be read.
    made: usize,
    /// What the requests from now on are for.
    what: What,
    /// What is to be asked that was not.
    wanted: Option<Ask>,
}

impl Client {
    pub(super) fn new(first: usize, headings: Vec<String>, line: Line) -> Self {
        let shared = Shared { line, first, headings, made: 0, what: What::References, wanted: None };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Says what the requests from now on are for.
    pub(super) fn asks_for(&self, what: What) {
        self.lock().what = what;
    }

    /// What is to be asked before there is anything to say.
    pub(super) fn take_wanted(&self) -> Option<Ask> {
        self.lock().wanted.take()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(&self, state: State) -> Arc<Mutex<Exchange>> {
        Arc::new(Mutex::new(Exchange { client: self.clone(), state }))
    }
}

impl Shared {
    /// The number of the request's answer, where there is one.
    fn ask(&mut self, ask: Ask) -> io::Result<usize> {
        let number = self.made;
        if number >= self.headings.len() {
            self.wanted.get_or_insert(ask);
            return Err(io::Error::other("this is not answered yet"));
        }
        self.made += 1;
        Ok(number)
    }
}

/// A request is made when the first byte of its answer is wanted: gix writes the body after it asked for the answer.
enum State {
    Greeting,
    UploadPack {
        version: Option<u8>,
        body: Vec<u8>,
    },
    /// `symrefs` is for the answer to the greeting.
    Answered {
        heading: String,
        number: usize,
        offset: u64,
        symrefs: Option<Symrefs>,
    },
    Ended,
}

struct Exchange {
    client: Client,
    state: State,
}

impl Exchange {
    /// Makes the request if it is not made, and gives the content type of its answer.
    fn start(&mut self) -> io::Result<&str> {
        if matches!(self.state, State::Greeting | State::UploadPack { .. }) {
            let mut shared = self.client.lock();
            let ask = match std::mem::replace(&mut self.state, State::Ended) {
                State::UploadPack { version, body } => {
                    Ask::UploadPack { what: shared.what.clone(), version, body }
                }
                _ => Ask::Greeting,
            };
            let symrefs = matches!(ask, Ask::Greeting).then(Symrefs::default);
            let number = shared.ask(ask)?;
            let heading = shared.headings.get(number).cloned().unwrap_or_default();
            self.state = State::Answered { heading, number, offset: 0, symrefs };
        }
        Ok(match &self.state {
            State::Answered { heading, .. } => heading,
            _ => "",
        })
    }

    /// The next bytes of the answer; empty at its end.
    fn chunk(&mut self) -> io::Result<Vec<u8>> {
        self.start()?;
        let State::Answered { number, offset, symrefs, .. } = &mut self.state else { return Ok(Vec::new()) };
        let shared = self.client.lock();
        let mut bytes = if *number + 1 == shared.made {
            shared.line.ask(&Question::Answer { number: shared.first + *number, offset: *offset })?
        } else {
            Vec::new()
        };
        drop(shared);
        *offset += bytes.len() as u64;
        symrefs.iter_mut().for_each(|symrefs| symrefs.hide_in(&mut bytes));
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
        _url: &str,
        _base_url: &str,
        _headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Headers, Body>> {
        let exchange = self.exchange(State::Greeting);
        Ok(GetResponse { headers: Headers::new(&exchange), body: Body::new(exchange) })
    }

    fn post(
        &mut self,
        _url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Headers, Body, PostBody>> {
        let version = headers.into_iter().find_map(|line| {
            let (name, value) = line.as_ref().split_once(':')?;
            let version = value.trim().strip_prefix("version=")?;
            name.eq_ignore_ascii_case("git-protocol").then(|| version.parse().ok())?
        });
        let exchange = self.exchange(State::UploadPack { version, body: Vec::new() });
        Ok(PostResponse {
            post_body: PostBody(Arc::clone(&exchange)),
            headers: Headers::new(&exchange),
            body: Body::new(exchange),
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    // Whoever asks the server knows where the repository went.
    fn redirected_base_url(&self) -> Option<String> {
        None
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
            State::UploadPack { body, .. } => {
                body.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            _ => Err(io::Error::other("the request is made already")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The answer's headers, as far as they are looked at: its content type.
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
            let line = format!("content-type: {}\n", lock(&self.exchange).start()?);
            self.lines = Some(Cursor::new(line.into_bytes()));
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
