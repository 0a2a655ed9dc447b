//! The wire to a Helm repository over HTTP, over the guarded way out. What comes is kept as it is; only heads of answers are read here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_model::{Digest, Hasher};
use roadstead_outbound::{Client, ClientError, Trail, credentials_belong, secret_header};
use url::Url;
use zeroize::Zeroizing;

use super::error::Why;
use super::request::{HelmBounds, HelmServer};
use crate::attempt::{
    AttemptError, Kept, KeptAnswer, NotKept, Stop, TrustedBy, chain, check_for_a_limit, shown_url,
};
use crate::file::Validator;
use crate::tree::Measure;

const AGENT: &str = concat!("roadstead/", env!("CARGO_PKG_VERSION"));

/// A wire to one repository and what its index names, for one attempt.
pub(super) struct Wire<'a> {
    server: &'a HelmServer,
    bounds: &'a HelmBounds,
    stop: &'a Stop,
    client: Client,
    /// The repository.
    home: Url,
    in_files: bool,
}

/// What came.
pub(super) enum Came {
    /// What the caller has.
    Unchanged,
    /// A file.
    File(Box<Received>),
}

/// A file.
pub(super) struct Received {
    pub(super) kept: KeptAnswer,
    pub(super) digest: Digest,
    pub(super) validator: Option<Validator>,
}

impl<'a> Wire<'a> {
    pub(super) fn new(
        server: &'a HelmServer,
        bounds: &'a HelmBounds,
        stop: &'a Stop,
        home: Url,
    ) -> Result<Self, Why> {
        let client = Client::as_someone(server.guard.clone(), server.ca.as_deref(), server.identity.as_ref());
        let client = client.map_err(|error| match error {
            ClientError::Authority(detail) | ClientError::Identity(detail) => {
                Why::Unusable(format!("the certificates that are to be used: {detail}"))
            }
            ClientError::Tls(detail) => Why::Internal(detail),
        })?;
        stop.hide_behind(client.veil());
        Ok(Self { server, bounds, stop, client, home, in_files: false })
    }

    /// The same, of which nothing that comes stays in memory.
    pub(super) fn in_files(self) -> Self {
        Self { in_files: true, ..self }
    }

    /// Asks for a file of at most so many bytes. Credentials go to the repository's own server, or, where they are passed on, to that
    /// of `url`; never to where either redirects.
    pub(super) async fn get(
        &self,
        url: &Url,
        known: Option<&Validator>,
        (measure, limit): (Measure, u64),
    ) -> Result<Came, Why> {
        let (response, had_credentials) = self.follow(url, known).await?;
        let (shown, status) = (shown_url(url.as_str()), response.status());
        match status {
            StatusCode::NOT_MODIFIED if known.is_some() => return Ok(Came::Unchanged),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(Why::Denied { url: shown, status: status.as_u16(), had_credentials });
            }
            StatusCode::OK => {}
            _ => return Err(Why::Status { url: shown, status: status.as_u16() }),
        }
        let validator = Validator::of_answer(response.headers());
        let kept = Kept::new(self.bounds.scratch.clone(), self.bounds.disk.clone());
        let mut kept = if self.in_files { kept.in_file() } else { kept };
        let (mut hasher, mut body) = (Hasher::default(), response.into_body());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| AttemptError::Unreachable {
                url: shown.clone(),
                phase: self.stop.phase(),
                detail: chain(&error),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if kept.length() + data.len() as u64 > limit {
                return Err(Why::TooLarge { measure, limit, path: None });
            }
            hasher.update(&data);
            kept.take(&data).await.map_err(|error| match error {
                NotKept::NoDisk => Why::NoDisk,
                NotKept::Io(_) => Why::Internal(error.to_string()),
            })?;
        }
        let kept = kept.into_answer().await;
        let kept = kept.map_err(|error| Why::Internal(format!("temporary folder: {error}")))?;
        Ok(Came::File(Box::new(Received { kept, digest: hasher.finish(), validator })))
    }

    /// Sends a request on to where the answers say; tells whether the last one had credentials.
    async fn follow(&self, url: &Url, known: Option<&Validator>) -> Result<(Response<Incoming>, bool), Why> {
        let origin = if self.server.pass_credentials { url } else { &self.home };
        let mut trail = Trail::new(url.clone());
        loop {
            let at = trail.current();
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
            if let Some(known) = known {
                known.put_into(&mut headers);
            }
            let login = self.server.login.as_ref().filter(|_| credentials_belong(origin, at));
            if let Some(login) = login {
                if at.scheme() == "http" && !self.server.plain_http_credentials {
                    return Err(Why::PlainCredentials { url: shown_url(at.as_str()) });
                }
                // Exposed to become a header, which is marked as sensitive and is part of no message.
                let pair = Zeroizing::new(format!("{}:{}", login.username, login.password.expose()));
                let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
                let value = secret_header(&text);
                let value = value.map_err(|_| Why::Unusable("the credentials cannot be sent".to_owned()))?;
                headers.insert(AUTHORIZATION, value);
            }
            let had_credentials = login.is_some();
            let response = self.send(at, headers).await?;
            let is_elsewhere =
                response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED;
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let Some(location) = location.filter(|_| is_elsewhere).map(str::to_owned) else {
                return Ok((response, had_credentials));
            };
            let shown = shown_url(url.as_str());
            trail
                .step(&location)
                .map_err(|refused| AttemptError::of_redirect(shown, &location, refused.to_string()))?;
        }
    }

    async fn send(&self, url: &Url, headers: HeaderMap) -> Result<Response<Incoming>, Why> {
        let mut sent = Request::builder().method(Method::GET).uri(url.as_str());
        if let Some(map) = sent.headers_mut() {
            *map = headers;
        }
        let sent = sent.body(Full::new(Bytes::new())).map_err(|error| Why::Internal(error.to_string()))?;
        let shown = || shown_url(url.as_str());
        let response = self.client.send(sent).await.map_err(|error| {
            AttemptError::of_sending(shown(), TrustedBy::CertSecretRef, self.stop.phase(), &error)
        })?;
        check_for_a_limit(shown, &response)?;
        Ok(response)
    }
}
