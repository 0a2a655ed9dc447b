//! Git's smart HTTP as we want it: gix speaks the protocol, this brings the bytes.
//!
//! gix's own transport cannot be told of deadlines, limits, bearer tokens or a stricter rule for redirects, so this is a
//! second implementation of its `Http` trait. Every wait (for a name, a connection, a header, a byte) ends when the
//! request's time is up or it is cancelled.
//!
//! What failed is kept here, typed, for the caller: on its way through the protocol's layers an error becomes text.

use std::any::Any;
use std::io::{self, BufRead, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Certificate, Method, Response, StatusCode, Url};
use tokio::runtime::Runtime;

use super::error::{GitError, chain};
use super::request::{Credentials, GitRequest};
use super::stop::Stop;
use crate::tree::Measure;

const MOST_REDIRECTS: usize = 5;

/// Brings bytes from one server, for one attempt. Clones share everything.
#[derive(Clone)]
pub(super) struct Client {
    wire: Arc<Mutex<Wire>>,
}

struct Wire {
    /// Taken out only when dropped.
    runtime: Option<Runtime>,
    client: reqwest::Client,
    stop: Stop,
    shown_url: String,
    /// Where credentials belong.
    origin: Url,
    credentials: Option<Credentials>,
    /// Where the repository turned out to be.
    redirected: Option<String>,
    /// How many more bytes may come, and what to say when they do.
    left: u64,
    measure: (Measure, u64),
    failure: Option<GitError>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A look-up of a name may still be in the system's hands, for longer than we have time.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Client {
    pub(super) fn new(url: &Url, request: &GitRequest, stop: &Stop) -> Result<Self, GitError> {
        let shown_url = request.shown_url();
        let internal = |detail: String| GitError::Internal { url: request.shown_url(), detail };
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(internal("no TLS provider is installed in this process".to_owned()));
        }
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(request.timeout);
        if !request.system_proxy {
            builder = builder.no_proxy();
        }
        if let Some(pem) = &request.ca {
            builder = builder.tls_certs_merge(authorities(pem, &shown_url)?);
        }
        // Some certificates are read only here.
        let client = builder.build().map_err(|error| match untrusted(&error) {
            Some(detail) => GitError::CaUnusable { url: request.shown_url(), detail },
            None => internal(chain(&error)),
        })?;
        // A runtime of its own: what one server does to it is felt by nobody else.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| internal(error.to_string()))?;
        let limit = request.limits.advertisement_bytes;
        let wire = Wire {
            runtime: Some(runtime),
            client,
            stop: stop.clone(),
            shown_url,
            origin: url.clone(),
            credentials: request.credentials.clone(),
            redirected: None,
            left: limit,
            measure: (Measure::AdvertisementBytes, limit),
            failure: None,
        };
        Ok(Self { wire: Arc::new(Mutex::new(wire)) })
    }

    /// From now on `limit` more bytes may come.
    pub(super) fn allow(&self, measure: Measure, limit: u64) {
        let mut wire = self.lock();
        wire.left = limit;
        wire.measure = (measure, limit);
    }

    /// What failed first, if it was ours to notice.
    pub(super) fn take_failure(&self) -> Option<GitError> {
        self.lock().failure.take()
    }

    fn lock(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(
        &self,
        method: Method,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<Arc<Mutex<Exchange>>> {
        let url = Url::parse(url).map_err(gix::Error::from_error)?;
        let pending = Pending {
            method,
            url,
            base_url: base_url.to_owned(),
            headers: header_map(headers),
            body: Vec::new(),
        };
        Ok(Arc::new(Mutex::new(Exchange { client: self.clone(), state: State::Pending(Box::new(pending)) })))
    }
}

fn authorities(pem: &[u8], url: &str) -> Result<Vec<Certificate>, GitError> {
    let unusable = |detail: &str| GitError::CaUnusable { url: url.to_owned(), detail: detail.to_owned() };
    if pem.len() > 1 << 20 {
        return Err(unusable("it is larger than 1 MiB"));
    }
    let found = Certificate::from_pem_bundle(pem).map_err(|error| unusable(&chain(&error)))?;
    if found.is_empty() {
        return Err(unusable("there is no certificate in it"));
    }
    Ok(found)
}

fn header_map(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        if let Some((name, value)) = line.as_ref().split_once(':')
            && let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name.trim()), HeaderValue::try_from(value.trim()))
        {
            map.append(name, value);
        }
    }
    map
}

/// A request that is sent when the first byte of its answer is wanted: gix writes the body after it asked for the answer.
struct Pending {
    method: Method,
    url: Url,
    base_url: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

enum State {
    Pending(Box<Pending>),
    Running(Response),
    Ended,
}

struct Exchange {
    client: Client,
    state: State,
}

impl Exchange {
    /// Sends the request if it is not sent, and gives the headers of its answer.
    fn start(&mut self) -> io::Result<Option<&HeaderMap>> {
        if matches!(self.state, State::Pending(_))
            && let State::Pending(pending) = std::mem::replace(&mut self.state, State::Ended)
        {
            let mut wire = self.client.lock();
            match wire.send(*pending) {
                Ok(response) => self.state = State::Running(response),
                Err(error) => return Err(wire.fail(error)),
            }
        }
        Ok(match &self.state {
            State::Running(response) => Some(response.headers()),
            State::Pending(_) | State::Ended => None,
        })
    }

    /// The next bytes of the answer; empty at its end.
    fn chunk(&mut self) -> io::Result<Vec<u8>> {
        self.start()?;
        let State::Running(response) = &mut self.state else { return Ok(Vec::new()) };
        let mut wire = self.client.lock();
        match wire.receive(response) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => {
                drop(wire);
                self.state = State::Ended;
                Ok(Vec::new())
            }
            Err(error) => Err(wire.fail(error)),
        }
    }
}

impl Wire {
    /// Keeps `error`, unless there was one before, and gives what gix shall see of it.
    fn fail(&mut self, error: GitError) -> io::Error {
        let text = error.to_string();
        self.failure.get_or_insert(error);
        io::Error::other(text)
    }

    /// Waits for `future` as long as there is time.
    fn wait<T>(&self, future: impl Future<Output = reqwest::Result<T>>) -> Result<T, GitError> {
        let url = || self.shown_url.clone();
        let Some(runtime) = &self.runtime else {
            return Err(GitError::Internal { url: url(), detail: "the connection is gone".to_owned() });
        };
        let stopped = self.stop.stopped();
        let result = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stopped => None,
                result = future => Some(result),
            }
        });
        match result {
            // Becomes a timeout where that is the cause.
            None => Err(GitError::Cancelled { url: url() }),
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(self.unreachable(error)),
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> GitError {
        let error = error.without_url();
        let url = self.shown_url.clone();
        match untrusted(&error) {
            Some(detail) => GitError::Untrusted { url, detail },
            None => GitError::Unreachable { url, phase: self.stop.phase(), detail: chain(&error) },
        }
    }

    fn send(&mut self, mut pending: Pending) -> Result<Response, GitError> {
        for _ in 0..=MOST_REDIRECTS {
            let mut builder = self
                .client
                .request(pending.method.clone(), pending.url.clone())
                .headers(pending.headers.clone());
            let mut had_credentials = false;
            if let Some(credentials) =
                self.credentials.as_ref().filter(|_| belongs(&self.origin, &pending.url))
            {
                had_credentials = true;
                // Exposed to become a header, which is marked as sensitive and is part of no message.
                builder = match credentials {
                    Credentials::Basic { username, password } => {
                        builder.basic_auth(username, Some(password.expose()))
                    }
                    Credentials::Bearer(token) => builder.bearer_auth(token.expose()),
                };
            }
            if pending.method == Method::POST {
                builder = builder.body(std::mem::take(&mut pending.body));
            }
            let response = self.wait(builder.send())?;
            if !response.status().is_redirection() {
                return self.accept(response, had_credentials);
            }
            self.redirect(&mut pending, &response)?;
        }
        Err(GitError::RedirectRefused {
            url: self.shown_url.clone(),
            to: super::url::shown(pending.url.as_str()),
            why: "that is one redirect too many",
        })
    }

    fn accept(&self, response: Response, had_credentials: bool) -> Result<Response, GitError> {
        let url = self.shown_url.clone();
        let status = response.status();
        let code = status.as_u16();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(GitError::Auth { url, status: code, had_credentials })
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Err(GitError::RepositoryNotFound { url, status: code })
            }
            status if !status.is_success() => {
                Err(GitError::Status { url, phase: self.stop.phase(), status: code })
            }
            _ => Ok(response),
        }
    }

    /// Points `pending` to where the answer says, if that is allowed: for the first question only, never from https to
    /// http, and never away from the same request on another base (as Git has it), so that a server cannot use us to ask
    /// others for something of its choice.
    fn redirect(&mut self, pending: &mut Pending, response: &Response) -> Result<(), GitError> {
        let location =
            response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let refuse = |why| {
            Err(GitError::RedirectRefused {
                url: self.shown_url.clone(),
                to: super::url::shown(location),
                why,
            })
        };
        let Ok(next) = pending.url.join(location) else { return refuse("it is no URL") };
        if pending.method != Method::GET {
            return refuse("only a repository's first answer may redirect");
        }
        if !next.username().is_empty() || next.password().is_some() {
            return refuse("it holds credentials");
        }
        if !(next.scheme() == "https" || next.scheme() == "http" && pending.url.scheme() == "http") {
            return refuse("it leaves https");
        }
        let tail = pending.url.as_str().strip_prefix(&pending.base_url).unwrap_or_default();
        let Some(base) = next.as_str().strip_suffix(tail).filter(|_| !tail.is_empty()) else {
            return refuse("it leads to something other than a Git repository");
        };
        pending.base_url = base.to_owned();
        self.redirected = Some(base.to_owned());
        pending.url = next;
        Ok(())
    }

    fn receive(&mut self, response: &mut Response) -> Result<Option<Vec<u8>>, GitError> {
        loop {
            let Some(bytes) = self.wait(response.chunk())? else { return Ok(None) };
            let (measure, limit) = self.measure;
            self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| GitError::TooLarge {
                url: self.shown_url.clone(),
                measure,
                limit,
                path: None,
            })?;
            // An empty chunk is not the end, which an empty answer would say.
            if !bytes.is_empty() {
                return Ok(Some(bytes.into()));
            }
        }
    }
}

/// Whether credentials for `origin` may go to `url`: the same server, and not less protected.
fn belongs(origin: &Url, url: &Url) -> bool {
    let same_port = origin.port_or_known_default() == url.port_or_known_default();
    let upgraded = origin.scheme() == "http"
        && url.scheme() == "https"
        && origin.port().is_none()
        && url.port().is_none();
    origin.host_str() == url.host_str() && (origin.scheme() == url.scheme() && same_port || upgraded)
}

/// What is wrong with the server's certificate, if that is why there is no connection.
fn untrusted(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref::<rustls::Error>() {
            return Some(match why {
                rustls::CertificateError::UnknownIssuer => "its issuer is not known here".to_owned(),
                rustls::CertificateError::Other(other) => chain(other),
                why => why.to_string(),
            });
        }
        // An io::Error does not count what it wraps as its source.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
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
        let exchange = self.exchange(Method::GET, url, base_url, headers)?;
        Ok(GetResponse { headers: Headers::new(&exchange), body: Body::new(exchange) })
    }

    fn post(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Headers, Body, PostBody>> {
        let exchange = self.exchange(Method::POST, url, base_url, headers)?;
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
            State::Running(_) | State::Ended => Err(io::Error::other("the request is sent already")),
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
            if let Some(headers) = lock(&self.exchange).start()? {
                for (name, value) in headers {
                    for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
                        lines.extend_from_slice(part);
                    }
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

#[cfg(test)]
mod tests {
    use super::{Url, belongs};

    #[test]
    fn credentials_go_to_their_own_server_only() {
        let belongs = |a: &str, b: &str| belongs(&Url::parse(a).unwrap(), &Url::parse(b).unwrap());
        assert!(belongs("https://git.example/a", "https://git.example/b"));
        assert!(belongs("https://git.example/a", "https://git.example:443/b"));
        assert!(belongs("http://git.example/a", "https://git.example/a"));
        assert!(!belongs("https://git.example/a", "http://git.example/a"));
        assert!(!belongs("https://git.example/a", "https://git.example:8443/a"));
        assert!(!belongs("http://git.example:8080/a", "https://git.example:8443/a"));
        assert!(!belongs("https://git.example/a", "https://evil.example/a"));
        assert!(!belongs("https://git.example/a", "https://sub.git.example/a"));
    }
}
