//! An object store in memory that speaks S3 over plain HTTP and lies on demand. It checks no signature: that is for real ones
//! ([`crate::ObjectStore`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a [`FakeS3`] does wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum S3Fault {
    /// Nothing.
    #[default]
    None,
    /// It answers everything so, with this code.
    Refuses(u16, &'static str),
    /// It leads everybody elsewhere.
    Redirects(String),
    /// It keeps what it is sent, and says nothing.
    HoldsPuts,
    /// It says nothing at all.
    Hangs,
    /// Of what is read one bit is another one.
    Changes,
    /// What is read is a byte longer, and says so.
    Longer,
    /// What is read breaks off in the middle.
    BreaksOff,
    /// What is read comes byte by byte.
    Drips,
    /// What is read has no length, and no end.
    Endless,
    /// Lists are this text.
    Lists(&'static str),
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    fault: S3Fault,
    /// Names of a page.
    page: usize,
    seen: Vec<String>,
}

/// The store; it serves until it is dropped.
pub struct FakeS3 {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for FakeS3 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeS3 {
    /// Starts it, with nothing in it.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State { page: 1_000, ..State::default() }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // Who breaks off is of no interest here.
                tokio::spawn(async move { serve(stream, &state).await.ok() });
            }
        });
        Ok(Self { address, state, task })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lies like this from now on.
    pub fn fault(&self, fault: S3Fault) {
        self.with(|state| state.fault = fault);
    }

    /// Lists so many names in a page.
    pub fn page(&self, names: usize) {
        self.with(|state| state.page = names);
    }

    /// The keys of all objects, as `BUCKET/KEY`.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.with(|state| state.objects.keys().cloned().collect())
    }

    /// What an object has.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.with(|state| state.objects.get(key).cloned())
    }

    /// Puts an object there.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        self.with(|state| state.objects.insert(key.to_owned(), bytes.to_vec()));
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        self.with(|state| state.objects.remove(key));
    }

    /// The requests since the last call: `GET /BUCKET/KEY`.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.with(|state| std::mem::take(&mut state.seen))
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    body: Vec<u8>,
}

async fn read(stream: &mut TcpStream) -> Result<Request> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let end = loop {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "no request");
        bytes.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let body = bytes.split_off(end);
    let head = String::from_utf8(bytes)?;
    let length = head.lines().filter_map(|line| line.split_once(':'));
    let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.next().map_or(Ok(0), |(_, value)| value.trim().parse())?;
    let mut body = body;
    while body.len() < length {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "half a body");
        body.extend_from_slice(buffer.get(..read).unwrap_or_default());
    }
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().context("a method")?, words.next().context("a target")?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), body })
}

async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> Result<()> {
    let request = read(&mut stream).await?;
    let fault = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.push(format!("{} {}", request.method, request.path));
        state.fault.clone()
    };
    match &fault {
        S3Fault::Refuses(status, code) => {
            let text = format!("<Error><Code>{code}</Code></Error>");
            return answer(&mut stream, *status, "", text.as_bytes()).await;
        }
        S3Fault::Redirects(to) => {
            return answer(&mut stream, 307, &format!("location: {to}\r\n"), b"").await;
        }
        S3Fault::Hangs => std::future::pending::<()>().await,
        _ => {}
    }
    let key = request.path.trim_start_matches('/').to_owned();
    let is_list = request.method == "GET" && request.query.contains("list-type=2");
    if is_list {
        let text = list(state, &key, &request.query, &fault);
        return answer(&mut stream, 200, "", text.as_bytes()).await;
    }
    let found = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match request.method.as_str() {
            "PUT" => {
                state.objects.insert(key, request.body);
                None
            }
            "DELETE" => {
                state.objects.remove(&key);
                None
            }
            _ => Some(state.objects.get(&key).cloned()),
        }
    };
    match found {
        None if fault == S3Fault::HoldsPuts && request.method == "PUT" => std::future::pending().await,
        None => answer(&mut stream, 200, "", b"").await,
        Some(None) => answer(&mut stream, 404, "", b"<Error><Code>NoSuchKey</Code></Error>").await,
        Some(Some(bytes)) => send(&mut stream, bytes, &fault).await,
    }
}

async fn send(stream: &mut TcpStream, mut bytes: Vec<u8>, fault: &S3Fault) -> Result<()> {
    let head =
        |length: usize| format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    match fault {
        S3Fault::Changes => {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }
        S3Fault::Longer => bytes.push(0),
        S3Fault::BreaksOff => {
            stream.write_all(head(bytes.len()).as_bytes()).await?;
            stream.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default()).await?;
            return Ok(());
        }
        S3Fault::Drips => {
            stream.write_all(head(bytes.len()).as_bytes()).await?;
            for byte in bytes {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            return Ok(());
        }
        S3Fault::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await?;
            loop {
                stream.write_all(&[0; 64 << 10]).await?;
            }
        }
        _ => {}
    }
    answer(stream, 200, "", &bytes).await
}

async fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) -> Result<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    Ok(stream.flush().await?)
}

fn list(state: &Mutex<State>, bucket: &str, query: &str, fault: &S3Fault) -> String {
    if let S3Fault::Lists(text) = fault {
        return (*text).to_owned();
    }
    let given = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.replace("%2F", "/")).next()
    };
    let (prefix, after) = (given("prefix").unwrap_or_default(), given("continuation-token"));
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let own = format!("{bucket}/");
    let keys = state.objects.keys().filter_map(|key| key.strip_prefix(&own));
    let mut keys = keys
        .filter(|key| key.starts_with(&prefix) && after.as_deref().is_none_or(|after| *key > after))
        .peekable();
    let page: Vec<&str> = keys.by_ref().take(state.page).collect();
    let mut text = "<ListBucketResult>".to_owned();
    for key in &page {
        // Writing to a text cannot fail.
        let _ = write!(text, "<Contents><Key>{key}</Key><Size>1</Size></Contents>");
    }
    if let (Some(_), Some(last)) = (keys.peek(), page.last()) {
        let _ = write!(
            text,
            "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
        );
    }
    text + "</ListBucketResult>"
}
