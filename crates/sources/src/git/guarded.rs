//! The wire over the guarded way out: HTTP with deadlines, limits, redirects that are followed to the same repository
//! only, and credentials that go to their own server only. What comes is kept as it is; nothing here reads it.

use std::io::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_outbound::{Client, ClientError, SendError, Trail, credentials_belong, secret_header};
use tokio::runtime::Runtime;
use url::Url;

use super::error::GitError;
use super::request::{Credentials, GitRequest};
use super::unread::Phase;
use super::wire::{Ask, What};
use crate::attempt::{Answer, Body, Spool, Stop, chain, shown_url, untrusted};
use crate::tree::Measure;

/// An answer of so many bytes stays in memory; a larger one, and any pack, goes to a file.
const SMALL: usize = 64 << 10;
/// Servers look whether it begins so.
const AGENT: &str = concat!("git/roadstead-", env!("CARGO_PKG_VERSION"));
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");

/// A wire to one server, for one attempt.
pub(super) struct GuardedWire {
    /// Taken out only when dropped.
    runtime: Option<Runtime>,
    client: Client,
    stop: Stop,
    shown_url: String,
    /// Where credentials belong.
    origin: Url,
    authorization: Option<HeaderValue>,
    /// Where the repository is, after a redirect.
    base_url: String,
    /// For what the server can do and its references.
    advertisement: Allowance,
    packs: Allowance,
    spool: Spool,
    has_asked: bool,
}

/// How many bytes may come.
struct Allowance {
    measure: Measure,
    limit: u64,
    left: u64,
}

impl Allowance {
    fn new(measure: Measure, limit: u64) -> Self {
        Self { measure, limit, left: limit }
    }
}

impl Drop for GuardedWire {
    fn drop(&mut self) {
        // A look-up of a name may still be in the system's hands, for longer than we have time.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl GuardedWire {
    pub(super) fn new(url: &Url, request: &GitRequest, stop: &Stop) -> Result<Self, GitError> {
        let shown_url = request.shown_url();
        let internal = |detail: String| GitError::Internal { url: request.shown_url(), detail };
        if request.credentials.is_some() && url.scheme() == "http" && !request.plain_http_credentials {
            return Err(GitError::PlainCredentials { url: shown_url });
        }
        let authorization = request.credentials.as_ref().map(authorization).transpose();
        let authorization = authorization.map_err(|why| internal(why.to_owned()))?;
        let client = Client::new(request.guard.clone(), request.ca.as_deref());
        let client = client.map_err(|error| match error {
            ClientError::Authority(detail) => GitError::CaUnusable { url: request.shown_url(), detail },
            ClientError::Identity(detail) | ClientError::Tls(detail) => internal(detail),
        })?;
        stop.hide_behind(client.veil());
        // A runtime of its own: what one server does to it is felt by nobody else.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| internal(error.to_string()))?;
        Ok(Self {
            runtime: Some(runtime),
            client,
            stop: stop.clone(),
            shown_url,
            origin: url.clone(),
            authorization,
            base_url: url.as_str().to_owned(),
            advertisement: Allowance::new(Measure::AdvertisementBytes, request.limits.advertisement_bytes),
            packs: Allowance::new(Measure::TransferBytes, request.limits.transfer_bytes),
            spool: Spool::new(request.scratch.clone(), request.disk.clone()),
            has_asked: false,
        })
    }

    /// Waits for `future` as long as there is time.
    fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, GitError> {
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
        // Becomes a timeout where that is the cause.
        result.ok_or_else(|| GitError::Cancelled { url: url() })
    }

    fn unreachable(&self, error: &SendError) -> GitError {
        let url = self.shown_url.clone();
        if let Some(refusal) = &error.refusal {
            return GitError::AddressRefused { url, refusal: Box::new(refusal.clone()) };
        }
        let detail = chain(error.source.as_ref());
        if error.veiled {
            return GitError::not_reached(url, &detail);
        }
        match untrusted(error.source.as_ref()) {
            Some(detail) => GitError::Untrusted { url, detail },
            None => GitError::Unreachable { url, phase: self.stop.phase(), detail },
        }
    }

    /// Whether the repository is elsewhere than its URL says.
    pub(super) fn was_redirected(&self) -> bool {
        self.base_url != self.origin.as_str()
    }

    /// Asks, and keeps what is answered.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer, GitError> {
        let (phase, is_pack) = match ask {
            Ask::Greeting => (Phase::Connecting, false),
            Ask::UploadPack { what: What::References, .. } => (Phase::Listing, false),
            Ask::UploadPack { what: What::Pack(_), .. } => (Phase::Receiving, true),
        };
        // Whatever is asked first, the connection is what may fail.
        let first = !std::mem::replace(&mut self.has_asked, true);
        self.stop.enter(if first { Phase::Connecting } else { phase }.text());
        let internal = |error: io::Error| GitError::Internal {
            url: self.shown_url.clone(),
            detail: format!("temporary folder: {error}"),
        };
        let mut file = None;
        if is_pack {
            file = Some(self.spool.file().map_err(internal)?);
        }
        let response = self.exchange(ask)?;
        let heading = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let heading = heading.unwrap_or_default().chars().take(200).collect();
        let mut body = response.into_body();
        let mut memory = Vec::new();
        while let Some(bytes) = self.next(&mut body, is_pack)? {
            let internal = |error: io::Error| GitError::Internal {
                url: self.shown_url.clone(),
                detail: format!("temporary folder: {error}"),
            };
            if file.is_some() || memory.len() + bytes.len() > SMALL {
                let more = bytes.len() + memory.len();
                self.spool.make_room(more).map_err(|_| GitError::NoDisk { url: self.shown_url.clone() })?;
            }
            match &mut file {
                Some(file) => file.write_all(&bytes).map_err(internal)?,
                None => {
                    memory.extend_from_slice(&bytes);
                    if memory.len() > SMALL {
                        let mut large = self.spool.file().map_err(internal)?;
                        large.write_all(&std::mem::take(&mut memory)).map_err(internal)?;
                        file = Some(large);
                    }
                }
            }
        }
        let body = file.map_or(Body::Memory(memory), |file| Body::File(Arc::new(file)));
        Ok(Answer { heading, body })
    }

    /// Sends a request, and gives the answer after the redirects that may be followed.
    fn exchange(&mut self, ask: &Ask) -> Result<Response<Incoming>, GitError> {
        let internal = |detail: String| GitError::Internal { url: self.shown_url.clone(), detail };
        let slash = if self.base_url.ends_with('/') { "" } else { "/" };
        let tail = match ask {
            Ask::Greeting => "info/refs?service=git-upload-pack",
            Ask::UploadPack { .. } => "git-upload-pack",
        };
        let tail = format!("{slash}{tail}");
        let url = format!("{}{tail}", self.base_url);
        let mut trail = Trail::new(Url::parse(&url).map_err(|error| internal(error.to_string()))?);
        let (method, headers, body) = parts(ask);
        loop {
            let credentials = self.authorization.as_ref();
            let credentials = credentials.filter(|_| credentials_belong(&self.origin, trail.current()));
            let mut sent = Request::builder().method(method.clone()).uri(trail.current().as_str());
            if let Some(map) = sent.headers_mut() {
                map.clone_from(&headers);
                if let Some(credentials) = credentials {
                    map.insert(AUTHORIZATION, credentials.clone());
                }
            }
            let had_credentials = credentials.is_some();
            let sent = sent.body(Full::new(body.clone())).map_err(|error| internal(error.to_string()))?;
            let response = self.wait(self.client.send(sent))?.map_err(|error| self.unreachable(&error))?;
            if !response.status().is_redirection() {
                return self.accept(response, had_credentials);
            }
            self.base_url = self.redirect(&method, &tail, &mut trail, &response)?;
        }
    }

    fn accept(
        &self,
        response: Response<Incoming>,
        had_credentials: bool,
    ) -> Result<Response<Incoming>, GitError> {
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

    /// Goes on to where the answer says, if that is allowed: for the first question only, never from https to http, and
    /// never away from the same request on another base (as Git has it), so that a server cannot use us to ask others for
    /// something of its choice.
    fn redirect(
        &self,
        method: &Method,
        tail: &str,
        trail: &mut Trail,
        response: &Response<Incoming>,
    ) -> Result<String, GitError> {
        let location =
            response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let refuse = |why: &str| GitError::RedirectRefused {
            url: self.shown_url.clone(),
            to: shown_url(location),
            why: why.to_owned(),
        };
        if method != Method::GET {
            return Err(refuse("only a repository's first answer may redirect"));
        }
        let next = trail.step(location).map_err(|refused| refuse(&refused.to_string()))?;
        let base = next.as_str().strip_suffix(tail);
        base.map(str::to_owned).ok_or_else(|| refuse("it leads to something other than a Git repository"))
    }

    /// The next bytes of an answer; none at its end.
    fn next(&mut self, body: &mut Incoming, is_pack: bool) -> Result<Option<Bytes>, GitError> {
        loop {
            let Some(frame) = self.wait(body.frame())? else { return Ok(None) };
            let frame = frame.map_err(|error| GitError::Unreachable {
                url: self.shown_url.clone(),
                phase: self.stop.phase(),
                detail: chain(&error),
            })?;
            let Ok(bytes) = frame.into_data() else { continue };
            let allowance = if is_pack { &mut self.packs } else { &mut self.advertisement };
            allowance.left =
                allowance.left.checked_sub(bytes.len() as u64).ok_or_else(|| GitError::TooLarge {
                    url: self.shown_url.clone(),
                    measure: allowance.measure,
                    limit: allowance.limit,
                    path: None,
                })?;
            return Ok(Some(bytes));
        }
    }
}

/// What a question is as a request.
fn parts(ask: &Ask) -> (Method, HeaderMap, Bytes) {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let (method, version, body) = match ask {
        Ask::Greeting => (Method::GET, Some(2), Bytes::new()),
        Ask::UploadPack { version, body, .. } => {
            let kind = HeaderValue::from_static("application/x-git-upload-pack-request");
            headers.insert(CONTENT_TYPE, kind);
            headers.insert(ACCEPT, HeaderValue::from_static("application/x-git-upload-pack-result"));
            (Method::POST, *version, Bytes::copy_from_slice(body))
        }
    };
    // The oldest version that names itself is not named in a header.
    if let Some(value) = version.and_then(|version| format!("version={version}").try_into().ok()) {
        headers.insert(GIT_PROTOCOL, value);
    }
    (method, headers, body)
}

/// Exposed to become a header, which is marked as sensitive and is part of no message.
fn authorization(credentials: &Credentials) -> Result<HeaderValue, &'static str> {
    use base64::Engine as _;
    let text = match credentials {
        Credentials::Basic { username, password } => {
            let pair = format!("{username}:{}", password.expose());
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        }
        Credentials::Bearer(token) => format!("Bearer {}", token.expose()),
    };
    let text = zeroize::Zeroizing::new(text);
    secret_header(&text).map_err(|_| "the token has characters that cannot be sent")
}
