//! The server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::backend::{self, Answer};
use crate::fault::Fault;
use crate::repository::{Repository, init_bare};
use crate::tls::Authority;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; by default a free port of the loopback interface.
    pub listen: SocketAddr,
    /// The folder of repositories; by default a temporary one.
    pub root: Option<PathBuf>,
    /// HTTPS with an authority of the server's own, or HTTP.
    pub tls: bool,
    /// Where the authority's certificate and key are kept (`ca.pem`, `ca.key`), so that clients trust the next server as
    /// well; by default nowhere.
    pub authority: Option<PathBuf>,
    /// The names and addresses in the server's certificate, besides that of `listen`.
    pub names: Vec<String>,
    /// Whether clients must show a certificate of the authority.
    pub certified: bool,
    /// User and password that everyone must give.
    pub login: Option<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            root: None,
            tls: true,
            authority: None,
            names: vec!["localhost".to_owned()],
            certified: false,
            login: None,
        }
    }
}

/// A request that the server saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `GET /app.git/info/refs?service=git-upload-pack`, and for Git's protocol 2 the command: `ls-refs` or `fetch`.
    pub what: String,
    /// Whether it carried an `Authorization` header.
    pub had_credentials: bool,
}

struct Shared {
    root: PathBuf,
    login: Mutex<Option<(String, String)>>,
    fault: Mutex<Fault>,
    seen: Mutex<Vec<Seen>>,
    /// Files that are served beside the repositories, by their paths.
    files: Mutex<HashMap<String, Bytes>>,
}

impl Shared {
    fn next_fault(&self) -> Fault {
        let mut fault = lock(&self.fault);
        match fault.clone() {
            Fault::Once(once) => {
                *fault = Fault::None;
                *once
            }
            fault => fault,
        }
    }
}

/// A Git server that serves until it is dropped.
pub struct GitServer {
    address: SocketAddr,
    authority: Option<Authority>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    /// Goes away with the server, if it was the server's.
    _folder: Option<TemporaryFolder>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GitServer {
    /// Serves on the runtime of the caller.
    ///
    /// # Errors
    /// If the port is taken, the folder cannot be made or the certificate not be signed.
    pub async fn start(options: Options) -> Result<Self> {
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("listening on {}", options.listen))?;
        let address = listener.local_addr()?;
        let authority = match (options.tls, &options.authority) {
            (false, _) => None,
            (true, None) => Some(Authority::new()?),
            (true, Some(folder)) => Some(Authority::kept_in(folder)?),
        };
        let mut names = options.names;
        names.push(address.ip().to_string());
        let tls =
            authority.as_ref().map(|authority| authority.config(&names, options.certified)).transpose()?;
        let (root, folder) = match options.root {
            Some(root) => (root, None),
            None => {
                let folder = TemporaryFolder::new()?;
                (folder.0.clone(), Some(folder))
            }
        };
        let shared = Arc::new(Shared {
            root,
            login: Mutex::new(options.login),
            fault: Mutex::default(),
            seen: Mutex::default(),
            files: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, tls.map(TlsAcceptor::from), Arc::clone(&shared)));
        Ok(Self { address, authority, shared, task, _folder: folder })
    }

    /// A certificate for a client and its key, in PEM; none over plain HTTP.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn client(&self) -> Result<Option<(String, String)>> {
        self.authority.as_ref().map(Authority::client).transpose()
    }

    /// What everyone must log in with from now on is what is told to this.
    pub fn gate(&self) -> impl Fn(&str, &str) + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |user, password| *lock(&shared.login) = Some((user.to_owned(), password.to_owned()))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the repository `name`.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.base_url())
    }

    /// The URL of all repositories, without a `/` at its end.
    #[must_use]
    pub fn base_url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate to trust, in PEM; `None` over plain HTTP.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.authority.as_ref().map(Authority::pem)
    }

    /// The folder of repositories.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Makes an empty repository, served at [`Self::url`] of `name` (`app.git`, say).
    ///
    /// # Errors
    /// If `git` fails.
    pub fn add_repository(&self, name: &str) -> Result<Repository> {
        init_bare(&self.shared.root.join(name))
    }

    /// Serves a plain file at [`Self::url`] of `name`, beside the repositories, with an entity tag.
    pub fn put_file(&self, name: &str, content: impl Into<Bytes>) {
        lock(&self.shared.files).insert(format!("/{name}"), content.into());
    }

    /// Misbehaves from the next request on.
    pub fn fault(&self, fault: Fault) {
        *lock(&self.shared.fault) = fault;
    }

    /// The requests since the last call.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut lock(&self.shared.seen))
    }

    /// Serves until the listener fails: for a process that does nothing else.
    ///
    /// # Errors
    /// If the server's task panicked.
    pub async fn serve(mut self) -> Result<()> {
        (&mut self.task).await.context("the server ended")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is removed when it goes out of scope.
pub(crate) struct TemporaryFolder(pub(crate) PathBuf);

impl TemporaryFolder {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("roadstead-gitserver-").tempdir()?;
        Ok(Self(folder.keep()))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // A `git` that was just told to end may still write: what is left lies in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Connections end with the server: the set aborts them when this task is aborted.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, say: give the connections time to end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        // As real servers do: an answer's second part does not wait until its first one is acknowledged.
        let _ = stream.set_nodelay(true);
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            match tls {
                None => connection(stream, shared).await,
                // A client that does not trust us breaks off, which is not a fault of ours.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>) {
    let service = hyper::service::service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move {
            let answer =
                answer(&shared, request).await.unwrap_or_else(|error| plain(500, format!("{error:#}\n")));
            Ok::<_, Infallible>(answer)
        }
    });
    // Clients break off in the middle; that is theirs to know.
    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Response<Channel>> {
    let (parts, body) = request.into_parts();
    let mut body = body.collect().await.context("reading the request")?.to_bytes().to_vec();
    let command = command(&body);
    let fault = shared.next_fault();
    let had_credentials = parts.headers.contains_key("authorization");
    let what = [parts.method.as_str(), &parts.uri.to_string(), command].join(" ").trim_end().to_owned();
    lock(&shared.seen).push(Seen { what, had_credentials });

    match &fault {
        Fault::HangBeforeAnswer => std::future::pending().await,
        Fault::Status(status) => return Ok(plain(*status, "fault\n".to_owned())),
        Fault::RetryAfter(status, after) => {
            let mut answer = plain(*status, "fault\n".to_owned());
            answer.headers_mut().insert("retry-after", after.parse()?);
            return Ok(answer);
        }
        Fault::WebPage => {
            let mut page = plain(200, "<html>Welcome</html>\n".to_owned());
            page.headers_mut().insert("content-type", "text/html".parse()?);
            return Ok(page);
        }
        Fault::Redirect(base) if parts.method == Method::GET => {
            return redirect(&format!("{base}{}", parts.uri));
        }
        Fault::RedirectTo(url) if parts.method == Method::GET => return redirect(url),
        Fault::EndlessReferences if command == "ls-refs" => return Ok(endless()),
        Fault::OtherPack(commit) if command == "fetch" => body = want_instead(&body, commit),
        _ => {}
    }
    let Ok(user) = login(shared, &parts) else {
        let mut answer = plain(401, "log in\n".to_owned());
        answer.headers_mut().insert("www-authenticate", "Basic realm=\"git\"".parse()?);
        return Ok(answer);
    };
    if let Some(file) = file(shared, &parts)? {
        return Ok(file);
    }
    let answer = backend::run(&shared.root, &parts, user.as_deref(), body).await?;
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let body =
        if command == "fetch" { spoiled(answer, &fault) } else { Channel::of([Ok(answer.body.into())]) };
    Ok(response.body(body)?)
}

/// The file that is asked for, if it is one.
fn file(shared: &Shared, parts: &Parts) -> Result<Option<Response<Channel>>> {
    let Some(content) = lock(&shared.files).get(parts.uri.path()).cloned() else { return Ok(None) };
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let is_known = parts.headers.get("if-none-match").is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer =
        if is_known { plain(304, String::new()) } else { Response::new(Channel::of([Ok(content)])) };
    answer.headers_mut().insert("etag", tag.parse()?);
    Ok(Some(answer))
}

/// The command of Git's protocol 2 that a request's body holds.
fn command(body: &[u8]) -> &'static str {
    let holds = |text: &[u8]| body.windows(text.len()).any(|window| window == text);
    if holds(b"command=ls-refs") {
        "ls-refs"
    } else if holds(b"command=fetch") {
        "fetch"
    } else {
        ""
    }
}

fn login(shared: &Shared, parts: &Parts) -> Result<Option<String>, ()> {
    let Some((user, password)) = lock(&shared.login).clone() else { return Ok(None) };
    let wanted = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    let given = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    if given.and_then(|given| given.strip_prefix("Basic ")) == Some(wanted.as_str()) {
        Ok(Some(user))
    } else {
        Err(())
    }
}

fn want_instead(body: &[u8], commit: &str) -> Vec<u8> {
    let mut out = body.to_vec();
    let mut at = 0;
    while let Some(found) = out[at..].windows(5).position(|window| window == b"want ") {
        at += found + 5;
        if let Some(id) = out.get_mut(at..at + commit.len()) {
            id.copy_from_slice(commit.as_bytes());
        }
    }
    out
}

/// The pack's answer with what `fault` does to it.
fn spoiled(answer: Answer, fault: &Fault) -> Channel {
    let mut body = answer.body;
    let half = body.len() / 2;
    match fault {
        Fault::TruncatePack => {
            body.truncate(half);
            Channel::of([Ok(body.into())])
        }
        Fault::CutInPack => {
            body.truncate(half);
            Channel::of([Ok(body.into()), Err(io::Error::other("cut"))])
        }
        Fault::CorruptPack => {
            // Behind the pack's header and its first object's: the answer's framing stays whole.
            if let Some(pack) = body.windows(4).position(|window| window == b"PACK")
                && let Some(byte) = body.get_mut(pack + 12 + 24)
            {
                *byte ^= 0x10;
            }
            Channel::of([Ok(body.into())])
        }
        Fault::HangInPack => {
            body.truncate(half);
            let (sender, channel) = Channel::new();
            tokio::spawn(async move {
                let _ = sender.send(Ok(body.into())).await;
                sender.closed().await;
            });
            channel
        }
        Fault::Trickle(pause) => {
            let (sender, channel) = Channel::new();
            let pause = *pause;
            tokio::spawn(async move {
                for byte in body {
                    if sender.send(Ok(vec![byte].into())).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
            });
            channel
        }
        _ => Channel::of([Ok(body.into())]),
    }
}

fn endless() -> Response<Channel> {
    let (sender, channel) = Channel::new();
    tokio::spawn(async move {
        for n in 0_u64.. {
            let line = format!("{} refs/heads/main-{n:020}\n", "1".repeat(40));
            let line = format!("{:04x}{line}", line.len() + 4);
            if sender.send(Ok(line.repeat(200).into())).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(channel);
    response.headers_mut().insert(
        "content-type",
        hyper::header::HeaderValue::from_static("application/x-git-upload-pack-result"),
    );
    response
}

fn redirect(to: &str) -> Result<Response<Channel>> {
    let mut answer = plain(302, String::new());
    answer.headers_mut().insert("location", to.parse()?);
    Ok(answer)
}

fn plain(status: u16, text: String) -> Response<Channel> {
    let mut response = Response::new(Channel::of([Ok(text.into())]));
    *response.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A body that is written while it is read.
struct Channel(mpsc::Receiver<io::Result<Bytes>>);

impl Channel {
    fn new() -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, receiver) = mpsc::channel(4);
        (sender, Self(receiver))
    }

    /// At most four parts, which is what the channel holds.
    fn of(parts: impl IntoIterator<Item = io::Result<Bytes>>) -> Self {
        let (sender, channel) = Self::new();
        for part in parts {
            // Room for all of them: the receiver is here.
            let _ = sender.try_send(part);
        }
        channel
    }
}

impl Body for Channel {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| part.map(Frame::data)))
    }
}
