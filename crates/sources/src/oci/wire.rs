//! The wire to a registry, over the guarded way out: HTTP with limits, redirects that are followed without credentials, and
//! credentials that go to the registry and its token service only. What comes is kept as it is and checked against its digest; of all that
//! a registry says, only heads of answers and the token service's word are read here.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION};
use http::header::{USER_AGENT, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_model::{Digest, Hasher};
use roadstead_outbound::{Client, ClientError, SendError, Trail, credentials_belong, secret_header};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::challenge::{Challenge, may_have_credentials};
use super::error::OciError;
use super::known::Pass;
use super::login::RegistryLogin;
use super::name::RepositoryName;
use super::request::OciRequest;
use crate::attempt::{
    Answer, AttemptError, Body, Spool, Stop, TrustedBy, chain, check_for_a_limit, shown_url,
};
use crate::tree::Measure;

/// An answer of so many bytes stays in memory; a larger one goes to a file.
const SMALL: usize = 64 << 10;
/// Pages of tags; each has a thousand where the registry does as it is asked.
const MOST_PAGES: usize = 1_000;
const PAGE: usize = 1_000;
/// Bytes of a token service's answer.
const MOST_TOKEN: usize = 64 << 10;
/// How long a token is used where its service does not say, and at most.
const TOKEN_SECONDS: u64 = 60;
const MOST_TOKEN_SECONDS: u64 = 3_600;
pub(super) const AGENT: &str = concat!("roadstead/", env!("CARGO_PKG_VERSION"));
const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// What a manifest can be.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// A wire to one repository, for one attempt.
pub(super) struct Wire<'a> {
    pub(super) request: &'a OciRequest,
    pub(super) stop: &'a Stop,
    client: Client,
    pub(super) name: RepositoryName,
    login: Option<&'a RegistryLogin>,
    spool: Spool,
}

/// How much may come, and what it is.
pub(super) struct Bound {
    pub(super) measure: Measure,
    pub(super) limit: u64,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: roadstead_outbound::Secret,
    #[serde(default)]
    access_token: roadstead_outbound::Secret,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl<'a> Wire<'a> {
    pub(super) fn new(
        request: &'a OciRequest,
        name: RepositoryName,
        stop: &'a Stop,
    ) -> Result<Self, OciError> {
        let url = || request.shown_url();
        let login = request.logins.of(&name);
        if login.is_some() && request.insecure && !request.plain_http_credentials {
            return Err(OciError::PlainCredentials { url: url() });
        }
        let client =
            Client::as_someone(request.guard.clone(), request.ca.as_deref(), request.identity.as_ref());
        let client = client.map_err(|error| match error {
            ClientError::Authority(detail) | ClientError::Identity(detail) => {
                OciError::CertificatesUnusable { url: url(), detail }
            }
            ClientError::Tls(detail) => OciError::Internal { url: url(), detail },
        })?;
        stop.hide_behind(client.veil());
        let spool = Spool::new(request.scratch.clone(), request.disk.clone());
        Ok(Self { request, stop, client, name, login, spool })
    }

    fn url(&self) -> String {
        self.request.shown_url()
    }

    pub(super) fn internal(&self, detail: &dyn std::fmt::Display) -> OciError {
        OciError::Internal { url: self.url(), detail: detail.to_string() }
    }

    pub(super) fn corrupt(&self, detail: impl Into<String>) -> OciError {
        OciError::Corrupt { url: self.url(), detail: detail.into() }
    }

    pub(super) fn at(&self, tail: &str) -> Result<Url, OciError> {
        // All of it is of characters that stand in a path as they are.
        let joined = self.name.registry.join(&format!("v2/{}/{tail}", self.name.path));
        joined.map_err(|error| self.internal(&error))
    }

    /// The repository's lists of tags, one JSON document after the other.
    pub(super) async fn tags(&mut self) -> Result<Answer, OciError> {
        self.stop.enter("listing tags");
        let limit = self.request.limits.list_bytes;
        let first = self.at(&format!("tags/list?n={PAGE}"))?;
        let mut sink = Sink::default();
        let mut page = first.clone();
        for _ in 0..MOST_PAGES {
            let response = self.send(&Method::GET, &page, "application/json", "such repository").await?;
            let next = next_page(response.headers());
            let bound = Bound { measure: Measure::ListBytes, limit };
            self.receive(response, &mut sink, &bound, None).await?;
            let Some(next) = next else { return self.answer(sink).await };
            let next = page.join(&next).map_err(|_| self.corrupt("its list of tags goes on at no URL"))?;
            // Credentials and questions are for this repository.
            if next.origin() != first.origin() || next.path() != first.path() || next == page {
                return Err(self.corrupt("its list of tags goes on elsewhere"));
            }
            page = next;
        }
        let url = self.url();
        Err(OciError::TooLarge { url, measure: Measure::ListPages, limit: MOST_PAGES as u64, path: None })
    }

    /// The digest of what a tag names, if the registry says it without sending it.
    pub(super) async fn head(&mut self, tag: &str) -> Result<Option<Digest>, OciError> {
        self.stop.enter("looking up the tag");
        let url = self.at(&format!("manifests/{tag}"))?;
        let response = match self.send(&Method::HEAD, &url, MANIFESTS, &format!("tag `{tag}`")).await {
            Ok(response) => response,
            Err(OciError::Status { status: 400 | 405 | 501, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let said = response.headers().get(DIGEST).and_then(|value| value.to_str().ok());
        let digest = said.map(str::parse).transpose();
        digest.map_err(|error| self.corrupt(format!("the digest of tag `{tag}`: {error}")))
    }

    /// A manifest, by its tag or digest, and what its digest is.
    pub(super) async fn manifest(
        &mut self,
        reference: &str,
        expected: Option<Digest>,
    ) -> Result<(Digest, Answer), OciError> {
        self.stop.enter("receiving the manifest");
        let url = self.at(&format!("manifests/{reference}"))?;
        let what =
            if expected.is_some() { format!("manifest {reference}") } else { format!("tag `{reference}`") };
        let response = self.send(&Method::GET, &url, MANIFESTS, &what).await?;
        let bound = Bound { measure: Measure::ManifestBytes, limit: self.request.limits.manifest_bytes };
        let (mut sink, mut hasher) = (Sink::default(), Hasher::default());
        self.receive(response, &mut sink, &bound, Some(&mut hasher)).await?;
        let digest = hasher.finish();
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(self.corrupt(format!("for manifest {expected} it sent one with digest {digest}")));
        }
        Ok((digest, self.answer(sink).await?))
    }

    /// A layer of so many bytes.
    pub(super) async fn blob(&mut self, digest: Digest, size: u64) -> Result<Answer, OciError> {
        self.stop.enter("receiving the layer");
        let limit = self.request.limits.layer_bytes;
        if size > limit {
            let (url, measure) = (self.url(), Measure::TransferBytes);
            return Err(OciError::TooLarge { url, measure, limit, path: None });
        }
        let url = self.at(&format!("blobs/{digest}"))?;
        let response = self.send(&Method::GET, &url, "*/*", &format!("layer {digest}")).await?;
        let (mut sink, mut hasher) = (Sink::default(), Hasher::default());
        // One byte more than it should have is seen as such.
        let bound = Bound { measure: Measure::TransferBytes, limit: size };
        let received = self.receive(response, &mut sink, &bound, Some(&mut hasher)).await;
        let wrong =
            || self.corrupt(format!("layer {digest} does not have the {size} bytes that its manifest says"));
        match received {
            Err(OciError::TooLarge { .. }) => return Err(wrong()),
            other => other?,
        }
        if sink.length != size {
            return Err(wrong());
        }
        let came = hasher.finish();
        if came != digest {
            return Err(self.corrupt(format!("for layer {digest} it sent one with digest {came}")));
        }
        self.answer(sink).await
    }

    /// Takes an answer's body.
    pub(super) async fn receive(
        &mut self,
        response: Response<Incoming>,
        sink: &mut Sink,
        bound: &Bound,
        mut hasher: Option<&mut Hasher>,
    ) -> Result<(), OciError> {
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                OciError::Attempt(AttemptError::Unreachable {
                    url: self.url(),
                    phase: self.stop.phase(),
                    detail: chain(&error),
                })
            })?;
            let Ok(bytes) = frame.into_data() else { continue };
            sink.length += bytes.len() as u64;
            if sink.length > bound.limit {
                let Bound { measure, limit } = *bound;
                return Err(OciError::TooLarge { url: self.url(), measure, limit, path: None });
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(&bytes);
            }
            self.keep(sink, &bytes).await?;
        }
        Ok(())
    }

    async fn keep(&mut self, sink: &mut Sink, bytes: &Bytes) -> Result<(), OciError> {
        if sink.file.is_none() && sink.memory.len() + bytes.len() <= SMALL {
            sink.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let room = self.spool.make_room(sink.memory.len() + bytes.len());
        room.map_err(|_| OciError::NoDisk { url: self.url() })?;
        if sink.file.is_none() {
            let file = self.spool.file().map_err(|error| self.no_folder(&error))?;
            sink.file = Some(tokio::fs::File::from_std(file));
        }
        let memory = std::mem::take(&mut sink.memory);
        if let Some(file) = &mut sink.file {
            for part in [memory.as_slice(), bytes] {
                file.write_all(part).await.map_err(|error| self.no_folder(&error))?;
            }
        }
        Ok(())
    }

    pub(super) async fn answer(&self, sink: Sink) -> Result<Answer, OciError> {
        let body = match sink.file {
            None => Body::Memory(sink.memory),
            Some(mut file) => {
                file.flush().await.map_err(|error| self.no_folder(&error))?;
                Body::File(std::sync::Arc::new(file.into_std().await))
            }
        };
        Ok(Answer { heading: String::new(), body })
    }

    fn no_folder(&self, error: &std::io::Error) -> OciError {
        self.internal(&format!("temporary folder: {error}"))
    }

    /// Sends a request to the registry, and shows it who asks where it wants to know. `what` is what a 404 means.
    pub(super) async fn send(
        &mut self,
        method: &Method,
        url: &Url,
        accept: &str,
        what: &str,
    ) -> Result<Response<Incoming>, OciError> {
        let mut asked = false;
        loop {
            let pass = self.request.known_registry.pass(Instant::now());
            let (response, at_home) = self.follow(method, url, accept, pass.as_ref()).await?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && at_home && !asked {
                asked = true;
                let challenge = challenge(response.headers());
                // To the end, so that the connection can be used again; an answer that has none is cut.
                drop(response);
                self.show_who_asks(challenge, status).await?;
                continue;
            }
            if status == StatusCode::UNAUTHORIZED && at_home {
                self.request.known_registry.keep(None);
            }
            return self.accept(response, what);
        }
    }

    fn accept(&self, response: Response<Incoming>, what: &str) -> Result<Response<Incoming>, OciError> {
        let (url, status) = (self.url(), response.status());
        let code = status.as_u16();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(code)),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Err(OciError::NotFound { url, what: what.to_owned(), status: code })
            }
            status if !status.is_success() => {
                Err(OciError::Status { url, phase: self.stop.phase(), status: code })
            }
            _ => Ok(response),
        }
    }

    fn refused(&self, status: u16) -> OciError {
        OciError::Auth { url: self.url(), status, had_credentials: self.login.is_some() }
    }

    /// Sends it on to where the answers say, with credentials for the registry itself only. Tells whether the registry is where
    /// the answer is from.
    async fn follow(
        &self,
        method: &Method,
        url: &Url,
        accept: &str,
        pass: Option<&HeaderValue>,
    ) -> Result<(Response<Incoming>, bool), OciError> {
        let mut trail = Trail::new(url.clone());
        loop {
            let at_home = credentials_belong(&self.name.registry, trail.current());
            let mut headers = HeaderMap::new();
            let accept = HeaderValue::from_str(accept).map_err(|error| self.internal(&error))?;
            headers.insert(ACCEPT, accept);
            if let Some(pass) = pass.filter(|_| at_home) {
                headers.insert(AUTHORIZATION, pass.clone());
            }
            let response = self.request_once(method, trail.current(), headers, Bytes::new()).await?;
            if !response.status().is_redirection() {
                return Ok((response, at_home));
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let location = location.unwrap_or_default().to_owned();
            trail
                .step(&location)
                .map_err(|refused| AttemptError::of_redirect(self.url(), &location, refused.to_string()))?;
        }
    }

    async fn request_once(
        &self,
        method: &Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, OciError> {
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let mut sent = Request::builder().method(method.clone()).uri(url.as_str());
        if let Some(map) = sent.headers_mut() {
            *map = headers;
        }
        let sent = sent.body(Full::new(body)).map_err(|error| self.internal(&error))?;
        let response = self.client.send(sent).await.map_err(|error| self.unreachable(&error))?;
        check_for_a_limit(|| self.url(), &response)?;
        Ok(response)
    }

    fn unreachable(&self, error: &SendError) -> OciError {
        AttemptError::of_sending(self.url(), TrustedBy::CertSecretRef, self.stop.phase(), error).into()
    }

    /// Does what a challenge asks for; what comes of it is kept for this request and those to come.
    async fn show_who_asks(&self, challenge: Option<Challenge>, status: StatusCode) -> Result<(), OciError> {
        let pass = match (challenge, self.login) {
            (Some(Challenge::Basic), Some(RegistryLogin::Basic { username, password })) => {
                // Exposed to become a header, which is marked as sensitive and is part of no message.
                Pass { header: self.basic(username, password.expose())?, until: None }
            }
            (Some(Challenge::Bearer { realm, service, .. }), login) => {
                self.token(&realm, &service, login).await?
            }
            _ => return Err(self.refused(status.as_u16())),
        };
        self.request.known_registry.keep(Some(pass));
        Ok(())
    }

    fn basic(&self, username: &str, password: &str) -> Result<HeaderValue, OciError> {
        let pair = zeroize::Zeroizing::new(format!("{username}:{password}"));
        let text = zeroize::Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
        secret_header(&text).map_err(|_| self.internal(&"the credentials cannot be sent"))
    }

    /// A token of the service at `realm`, to pull from this repository and for nothing else, whatever the challenge asks for.
    async fn token(
        &self,
        realm: &str,
        service: &str,
        login: Option<&RegistryLogin>,
    ) -> Result<Pass, OciError> {
        self.stop.enter("asking for a token");
        let fails = |why: String, transient| OciError::TokenService { url: self.url(), why, transient };
        let shown = shown_url(realm);
        let mut realm = Url::parse(realm).map_err(|_| fails(format!("`{shown}` is not a URL"), false))?;
        let is_plain = realm.scheme() == "http" && self.name.registry.scheme() == "http";
        if !is_plain && realm.scheme() != "https" {
            return Err(fails(format!("`{shown}` is not asked: tokens are had over https"), false));
        }
        if !realm.username().is_empty() || realm.password().is_some() {
            return Err(fails(format!("`{shown}` is not asked: its URL holds credentials"), false));
        }
        if login.is_some() && !may_have_credentials(&self.name.registry, &realm) {
            let why =
                "is not asked: it is elsewhere, and a registry without TLS does not say where credentials go";
            return Err(fails(format!("`{shown}` {why}"), false));
        }
        let scope = format!("repository:{}:pull", self.name.path);
        let mut headers = HeaderMap::new();
        let (method, body) = match login {
            Some(RegistryLogin::Identity(token)) => {
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                headers.insert(CONTENT_TYPE, form);
                let body = url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "roadstead")
                    .append_pair("service", service)
                    .append_pair("scope", &scope)
                    // Exposed to be sent.
                    .append_pair("refresh_token", token.expose())
                    .finish();
                (Method::POST, Bytes::from(body))
            }
            other => {
                if let Some(RegistryLogin::Basic { username, password }) = other {
                    headers.insert(AUTHORIZATION, self.basic(username, password.expose())?);
                }
                let mut query = realm.query_pairs_mut();
                if !service.is_empty() {
                    query.append_pair("service", service);
                }
                query.append_pair("scope", &scope);
                drop(query);
                (Method::GET, Bytes::new())
            }
        };
        let response = self.request_once(&method, &realm, headers, body).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(self.refused(response.status().as_u16()));
            }
            status if !status.is_success() => {
                let transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                return Err(fails(format!("`{shown}` answered HTTP {}", status.as_u16()), transient));
            }
            _ => {}
        }
        let answer = http_body_util::Limited::new(response.into_body(), MOST_TOKEN).collect().await;
        let answer = answer.map_err(|_| fails(format!("`{shown}` sends too much, or breaks off"), true))?;
        let answer: TokenAnswer = serde_json::from_slice(&answer.to_bytes())
            .map_err(|_| fails(format!("what `{shown}` answered is not a token"), false))?;
        let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
        if token.is_empty() {
            return Err(fails(format!("what `{shown}` answered is not a token"), false));
        }
        let text = zeroize::Zeroizing::new(format!("Bearer {}", token.expose()));
        let header = secret_header(&text)
            .map_err(|_| fails(format!("`{shown}` sent a token that cannot be sent"), false))?;
        let seconds = answer.expires_in.unwrap_or(TOKEN_SECONDS).min(MOST_TOKEN_SECONDS);
        // Not up to its last moment.
        let until = Some(Instant::now() + Duration::from_secs(seconds) * 4 / 5);
        Ok(Pass { header, until })
    }
}

/// What is being received.
#[derive(Default)]
pub(super) struct Sink {
    memory: Vec<u8>,
    file: Option<tokio::fs::File>,
    length: u64,
}

fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let all: Vec<&str> =
        headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    Challenge::parse(&all.join(", "))
}

/// `Link: </v2/…>; rel="next"`.
pub(super) fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    links.flat_map(|line| line.split(',')).find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters
            .split(';')
            .any(|one| matches!(one.trim().to_ascii_lowercase().as_str(), "rel=\"next\"" | "rel=next"));
        is_next.then(|| target.to_owned())
    })
}
