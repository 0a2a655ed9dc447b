//! The wire over the guarded way out: HTTP with deadlines, limits, redirects that are followed to the same repository
//! only, and credentials that go to their own server only.

use std::io;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_outbound::{Client, ClientError, SendError, Trail, credentials_belong, secret_header};
use tokio::runtime::Runtime;
use url::Url;

use super::error::{GitError, chain};
use super::request::{Credentials, GitRequest};
use super::stop::Stop;
use super::wire::{Wire, WireHead, WireRequest};
use crate::tree::Measure;

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
    answer: Option<Incoming>,
    /// How many more bytes may come, and what to say when they do.
    left: u64,
    measure: (Measure, u64),
    failure: Option<GitError>,
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
            ClientError::Tls(detail) => internal(detail),
        })?;
        stop.hide_behind(client.veil());
        // A runtime of its own: what one server does to it is felt by nobody else.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| internal(error.to_string()))?;
        let limit = request.limits.advertisement_bytes;
        Ok(Self {
            runtime: Some(runtime),
            client,
            stop: stop.clone(),
            shown_url,
            origin: url.clone(),
            authorization,
            answer: None,
            left: limit,
            measure: (Measure::AdvertisementBytes, limit),
            failure: None,
        })
    }

    /// Keeps `error`, unless there was one before, and gives what the protocol's layers shall see of it.
    fn fail(&mut self, error: GitError) -> io::Error {
        let text = error.to_string();
        self.failure.get_or_insert(error);
        io::Error::other(text)
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

    fn exchange(&mut self, request: WireRequest) -> Result<WireHead, GitError> {
        // The connection that it holds can be used again, or is closed.
        self.answer = None;
        let internal = |detail: String| GitError::Internal { url: self.shown_url.clone(), detail };
        let url = Url::parse(&request.url).map_err(|error| internal(error.to_string()))?;
        let headers = header_map(&request.headers);
        let mut trail = Trail::new(url);
        let mut base_url = request.base_url;
        let mut redirected = None;
        let body = Bytes::from(request.body);
        loop {
            let credentials = self.authorization.as_ref();
            let credentials = credentials.filter(|_| credentials_belong(&self.origin, trail.current()));
            let mut sent = Request::builder()
                .method(if request.post { Method::POST } else { Method::GET })
                .uri(trail.current().as_str());
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
                let (head, body) = self.accept(response, had_credentials)?.into_parts();
                self.answer = Some(body);
                let headers = head.headers.iter();
                let headers =
                    headers.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
                return Ok(WireHead { headers: headers.collect(), redirected });
            }
            self.redirect(request.post, &mut trail, &mut base_url, &response)?;
            redirected = Some(base_url.clone());
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
        post: bool,
        trail: &mut Trail,
        base_url: &mut String,
        response: &Response<Incoming>,
    ) -> Result<(), GitError> {
        let location =
            response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let refuse = |why: &str| GitError::RedirectRefused {
            url: self.shown_url.clone(),
            to: super::url::shown(location),
            why: why.to_owned(),
        };
        if post {
            return Err(refuse("only a repository's first answer may redirect"));
        }
        let tail = trail.current().as_str().strip_prefix(base_url.as_str()).unwrap_or_default().to_owned();
        let next = trail.step(location).map_err(|refused| refuse(&refused.to_string()))?;
        let Some(base) = next.as_str().strip_suffix(tail.as_str()).filter(|_| !tail.is_empty()) else {
            return Err(refuse("it leads to something other than a Git repository"));
        };
        *base_url = base.to_owned();
        Ok(())
    }

    fn next(&mut self) -> Result<Vec<u8>, GitError> {
        // Out of its place while it is waited for: the wait borrows this.
        let Some(mut answer) = self.answer.take() else { return Ok(Vec::new()) };
        loop {
            let Some(frame) = self.wait(answer.frame())? else { return Ok(Vec::new()) };
            let frame = frame.map_err(|error| GitError::Unreachable {
                url: self.shown_url.clone(),
                phase: self.stop.phase(),
                detail: chain(&error),
            })?;
            let Ok(bytes) = frame.into_data() else { continue };
            let (measure, limit) = self.measure;
            self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| GitError::TooLarge {
                url: self.shown_url.clone(),
                measure,
                limit,
                path: None,
            })?;
            // An empty frame is not the end, which an empty answer would say.
            if !bytes.is_empty() {
                self.answer = Some(answer);
                return Ok(bytes.into());
            }
        }
    }
}

impl Wire for GuardedWire {
    fn send(&mut self, request: WireRequest) -> io::Result<WireHead> {
        self.exchange(request).map_err(|error| self.fail(error))
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        self.next().map_err(|error| self.fail(error))
    }

    fn allow(&mut self, measure: Measure, limit: u64) {
        self.left = limit;
        self.measure = (measure, limit);
    }

    fn take_failure(&mut self) -> Option<GitError> {
        self.failure.take()
    }
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

fn header_map(headers: &[(String, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            map.append(name, value);
        }
    }
    map
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
