//! The wire over the guarded way out: HTTP with deadlines, limits, redirects that are followed to the same repository
//! only, and credentials that go to their own server only. What comes is kept as it is; nothing here reads it.

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_outbound::{Client, ClientError, SendError, Trail, credentials_belong, secret_header};
use url::Url;

use super::error::GitError;
use super::intake::Intake;
use super::own_runtime::OwnRuntime;
use super::request::{Credentials, GitRequest};
use super::unread::Phase;
use super::wire::{Ask, What};
use crate::attempt::{Answer, AttemptError, Stop, TrustedBy, chain, check_for_a_limit};

/// Servers look whether it begins so.
const AGENT: &str = concat!("git/roadstead-", env!("CARGO_PKG_VERSION"));
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");

/// A wire to one server, for one attempt.
pub(super) struct GuardedWire {
    own: OwnRuntime,
    client: Client,
    stop: Stop,
    shown_url: String,
    /// Where credentials belong.
    origin: Url,
    authorization: Option<HeaderValue>,
    trusted_by: TrustedBy,
    /// Where the repository is, after a redirect.
    base_url: String,
    intake: Intake,
    has_asked: bool,
}

impl GuardedWire {
    pub(super) fn new(
        url: &Url,
        request: &GitRequest,
        stop: &Stop,
        intake: Intake,
    ) -> Result<Self, GitError> {
        let shown_url = request.shown_url();
        let internal = |detail: String| GitError::Internal { url: request.shown_url(), detail };
        if request.credentials.is_some() && url.scheme() == "http" && !request.plain_http_credentials {
            return Err(GitError::PlainCredentials { url: shown_url });
        }
        let authorization = request.credentials.as_ref().map(authorization).transpose();
        let authorization = authorization.map_err(|why| internal(why.to_owned()))?;
        let (ca, identity) = (request.ca.as_deref(), request.identity.as_ref());
        let client = Client::as_someone(request.guard.clone(), ca, identity);
        let client = client.map_err(|error| match error {
            ClientError::Authority(detail) => GitError::CaUnusable { url: request.shown_url(), detail },
            ClientError::Identity(why) => GitError::LoginUnusable { url: request.shown_url(), why },
            ClientError::Tls(detail) => internal(detail),
        })?;
        stop.hide_behind(client.veil());
        Ok(Self {
            own: OwnRuntime::new(&shown_url, stop)?,
            client,
            stop: stop.clone(),
            shown_url,
            origin: url.clone(),
            authorization,
            trusted_by: request.trusted_by,
            base_url: url.as_str().to_owned(),
            intake,
            has_asked: false,
        })
    }

    fn unreachable(&self, error: &SendError) -> GitError {
        let url = self.shown_url.clone();
        AttemptError::of_sending(url, self.trusted_by, self.stop.phase(), error).into()
    }

    /// Whether the repository is elsewhere than its URL says.
    pub(super) fn was_redirected(&self) -> bool {
        self.base_url != self.origin.as_str()
    }

    pub(super) fn into_intake(self) -> Intake {
        self.intake
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
        let mut taken = self.intake.begin(is_pack)?;
        let response = self.exchange(ask)?;
        let heading = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let heading = heading.unwrap_or_default().chars().take(200).collect();
        let mut body = response.into_body();
        while let Some(bytes) = self.next(&mut body)? {
            self.intake.take(&mut taken, &bytes)?;
        }
        Ok(Answer { heading, body: taken.into_body() })
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
            let response =
                self.own.wait(self.client.send(sent))?.map_err(|error| self.unreachable(&error))?;
            check_for_a_limit(|| self.shown_url.clone(), &response)?;
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
        let refuse = |why: &str| {
            GitError::Attempt(AttemptError::of_redirect(self.shown_url.clone(), location, why.to_owned()))
        };
        if method != Method::GET {
            return Err(refuse("only a repository's first answer may redirect"));
        }
        let next = trail.step(location).map_err(|refused| refuse(&refused.to_string()))?;
        let base = next.as_str().strip_suffix(tail);
        base.map(str::to_owned).ok_or_else(|| refuse("it leads to something other than a Git repository"))
    }

    /// The next bytes of an answer; none at its end.
    fn next(&self, body: &mut Incoming) -> Result<Option<Bytes>, GitError> {
        loop {
            let Some(frame) = self.own.wait(body.frame())? else { return Ok(None) };
            let frame = frame.map_err(|error| {
                GitError::Attempt(AttemptError::Unreachable {
                    url: self.shown_url.clone(),
                    phase: self.stop.phase(),
                    detail: chain(&error),
                })
            })?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
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
        Credentials::Ssh(_) => return Err("an SSH key is not for HTTP"),
        Credentials::App(_) => return Err("there is no token of the GitHub App"),
    };
    let text = zeroize::Zeroizing::new(text);
    secret_header(&text).map_err(|_| "the token has characters that cannot be sent")
}
