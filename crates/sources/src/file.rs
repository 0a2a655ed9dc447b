//! One file at an HTTPS URL, fetched by nobody in particular.
//!
//! It is kept as it came: reading it is for a process that has no network. Where the server says how to ask whether it is still the
//! same one ([`Validator`]), that is a request without a body.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    ACCEPT, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, LOCATION, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_budget::{Pool, Reservation};
use roadstead_outbound::{Client, Guard, Trail};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::attempt::{
    AttemptError, Kept, Limited, Room, Stop, TrustedBy, chain, check_for_a_limit, shown_url,
};

const AGENT: &str = concat!("roadstead/", env!("CARGO_PKG_VERSION"));
/// Bytes of what a server calls one version of a file.
const MOST_VALIDATOR: usize = 512;

/// What a server calls the version of a file that it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validator {
    /// Its entity tag.
    Tag(String),
    /// When it was changed last.
    Modified(String),
}

impl Validator {
    /// The same as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Tag(text) => format!("etag {text}"),
            Self::Modified(text) => format!("modified {text}"),
        }
    }

    /// From [`Validator::to_text`].
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("etag", text) => Some(Self::Tag(text.to_owned())),
            ("modified", text) => Some(Self::Modified(text.to_owned())),
            _ => None,
        }
    }

    pub(crate) fn of_answer(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| {
            let text = headers.get(name)?.to_str().ok()?;
            (text.len() <= MOST_VALIDATOR).then(|| text.to_owned())
        };
        text(ETAG).map(Self::Tag).or_else(|| text(LAST_MODIFIED).map(Self::Modified))
    }

    pub(crate) fn put_into(&self, headers: &mut HeaderMap) {
        let (name, text) = match self {
            Self::Tag(text) => (IF_NONE_MATCH, text),
            Self::Modified(text) => (IF_MODIFIED_SINCE, text),
        };
        // One that cannot be sent costs an answer with a body.
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
}

/// A file that is asked for.
#[derive(Debug, Clone)]
pub struct FileRequest {
    /// Where it is: `https://`, without credentials.
    pub url: Url,
    /// The way out, which decides what may be connected to.
    pub guard: Guard,
    /// For all of it.
    pub timeout: Duration,
    /// Bytes that it may have.
    pub most_bytes: u64,
    /// Where room for it in memory is reserved, once it is there.
    pub room: Room,
    /// What all fetches may have of the disk for what servers send; unbounded without.
    pub disk: Option<Pool>,
    /// The version that the caller has.
    pub known: Option<Validator>,
}

/// What is at the URL.
pub enum FileOutcome {
    /// The version that the caller has.
    Unchanged,
    /// A file.
    Fetched(FetchedFile),
    /// Something else, or nothing: what the server said.
    NoFile(String),
}

/// A file.
pub struct FetchedFile {
    /// All of it.
    pub bytes: Vec<u8>,
    /// What its server calls it; none where it does not say.
    pub validator: Option<Validator>,
    /// What was reserved for it: free again once this is dropped.
    pub room: Reservation,
}

/// Why there is no answer. Every text names the URL, and none holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is none, or not in time.
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    /// The server is there, and fails.
    #[error("`{url}` answered HTTP {status}")]
    Status {
        /// The file.
        url: String,
        /// HTTP's status.
        status: u16,
    },
    /// It is too large.
    #[error("`{url}` has more than {limit} bytes")]
    TooLarge {
        /// The file.
        url: String,
        /// What is taken.
        limit: u64,
    },
    /// Something here does not work.
    #[error("fetching `{url}` failed on the hub's side: {detail}")]
    Internal {
        /// The file.
        url: String,
        /// What.
        detail: String,
    },
}

/// Asks for a file.
///
/// # Errors
/// A [`FileError`], within the request's timeout.
pub async fn fetch_file(request: &FileRequest, cancel: &CancellationToken) -> Result<FileOutcome, FileError> {
    let timeout = request.timeout;
    let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
    let work = Work { request, stop: &stop };
    let url = shown_url(request.url.as_str());
    let limited = Limited { kind: "file", url, trust: TrustedBy::System, timeout, stop: &stop, cancel };
    limited.run(work.fetch()).await
}

struct Work<'a> {
    request: &'a FileRequest,
    stop: &'a Stop,
}

impl Work<'_> {
    fn url(&self) -> String {
        shown_url(self.request.url.as_str())
    }

    fn internal(&self, detail: &dyn std::fmt::Display) -> FileError {
        FileError::Internal { url: self.url(), detail: detail.to_string() }
    }

    async fn fetch(&self) -> Result<FileOutcome, FileError> {
        self.stop.enter("connecting");
        let client = Client::new(self.request.guard.clone(), None).map_err(|error| self.internal(&error))?;
        self.stop.hide_behind(client.veil());
        let response = self.follow(&client).await?;
        self.stop.enter("receiving the file");
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && self.request.known.is_some() {
            return Ok(FileOutcome::Unchanged);
        }
        if status.is_server_error() {
            return Err(FileError::Status { url: self.url(), status: status.as_u16() });
        }
        if !status.is_success() {
            return Ok(FileOutcome::NoFile(format!("HTTP {}", status.as_u16())));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html")) {
            return Ok(FileOutcome::NoFile("a web page".to_owned()));
        }
        self.receive(response).await
    }

    async fn follow(&self, client: &Client) -> Result<Response<Incoming>, FileError> {
        let mut trail = Trail::new(self.request.url.clone());
        loop {
            let mut sent = Request::builder().method(Method::GET).uri(trail.current().as_str());
            if let Some(headers) = sent.headers_mut() {
                headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
                headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
                if let Some(known) = &self.request.known {
                    known.put_into(headers);
                }
            }
            let sent = sent.body(Full::new(Bytes::new())).map_err(|error| self.internal(&error))?;
            let response = client.send(sent).await.map_err(|error| {
                AttemptError::of_sending(self.url(), TrustedBy::System, self.stop.phase(), &error)
            })?;
            check_for_a_limit(|| self.url(), &response)?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let location = location.unwrap_or_default().to_owned();
            trail
                .step(&location)
                .map_err(|refused| AttemptError::of_redirect(self.url(), &location, refused.to_string()))?;
        }
    }

    async fn receive(&self, response: Response<Incoming>) -> Result<FileOutcome, FileError> {
        let limit = self.request.most_bytes;
        let validator = Validator::of_answer(response.headers());
        let mut kept = Kept::new(None, self.request.disk.clone());
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| AttemptError::Unreachable {
                url: self.url(),
                phase: self.stop.phase(),
                detail: chain(&error),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if kept.length() + data.len() as u64 > limit {
                return Err(FileError::TooLarge { url: self.url(), limit });
            }
            kept.take(&data).await.map_err(|error| self.internal(&error))?;
        }
        // Not before all is there: a server that takes its time holds no memory.
        let room = self.request.room.reserve(kept.length()).await.map_err(|error| self.internal(&error))?;
        let bytes = kept.into_bytes().await.map_err(|error| self.internal(&error))?;
        // Servers that forget to say that it is a web page.
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<') {
            return Ok(FileOutcome::NoFile("a web page".to_owned()));
        }
        Ok(FileOutcome::Fetched(FetchedFile { bytes, validator, room }))
    }
}
