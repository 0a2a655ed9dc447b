//! A bucket of the operator's, which objects are put into, read from and removed from.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use roadstead_outbound::{Client, ClientError, Guard, SendError};
use roadstead_signing::sha256;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::error::{BadObject, BucketError};
use crate::keys::{Credential, Keys};
use crate::place::{Place, is_bucket, is_region};
use crate::{list, sign};

const AGENT: &str = concat!("roadstead/", env!("CARGO_PKG_VERSION"));
/// Bytes that are read of an answer that says no, and of one that says yes and nothing else.
const MOST_ANSWER: u64 = 16 << 10;
/// Bytes of a page of a list.
const MOST_PAGE: u64 = 8 << 20;
/// Objects that are asked for in a page.
const PAGE: &str = "1000";
/// Bytes of what a server calls its next page.
const MOST_NEXT: usize = 4 << 10;
/// Connections that are kept for the next requests.
const IDLE: usize = 8;
/// Of an object that is read: its buffer begins no larger, whatever its length is said to be.
const FIRST_BUFFER: u64 = 1 << 20;
/// Tries of a request whose credentials were refused.
const TRIES: usize = 2;
const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

/// Which bucket it is, and how it is asked.
#[derive(Debug)]
pub struct BucketOptions {
    /// Its name.
    pub bucket: String,
    /// What all keys in it begin with, without `/` at an end; empty for none.
    pub prefix: String,
    /// Its server, `https://HOST[:PORT]`; Amazon's where it is not said.
    pub endpoint: Option<Url>,
    /// Its region; that of Amazon's host, or us-east-1, where it is not said.
    pub region: Option<String>,
    /// PEM of authorities to trust besides the system's.
    pub ca: Option<Vec<u8>>,
    /// Who asks.
    pub credential: Credential,
    /// For how long it is asked.
    pub limits: Limits,
}

/// How long a request may take: what comes or goes in drips is given up as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Any request.
    pub request: Duration,
    /// Each of so many bytes that it moves adds a second.
    pub bytes_per_second: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: Duration::from_secs(30), bytes_per_second: 1 << 20 }
    }
}

/// A page of the names in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// They, without the prefix.
    pub names: Vec<String>,
    /// What the next page is called; none after the last.
    pub next: Option<String>,
}

/// A bucket of the operator's.
pub struct Bucket {
    place: Place,
    prefix: String,
    /// For messages.
    shown: String,
    client: Client,
    keys: Keys,
    limits: Limits,
    /// Why it is unavailable; none while it works.
    lost: Mutex<Option<String>>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bucket").field(&self.shown).finish()
    }
}

/// Where a bucket is, of which only that is known so far: which host a way out has to lead to.
///
/// # Errors
/// The options name no bucket that there could be.
fn place(options: &BucketOptions) -> Result<Place, BucketError> {
    let setting = |why: String| BucketError::Setting(why);
    let bucket = &options.bucket;
    if !is_bucket(bucket) {
        return Err(setting(format!("'{bucket}' is not the name of a bucket")));
    }
    let region = options.region.as_deref();
    if let Some(odd) = region.filter(|region| !is_region(region)) {
        return Err(setting(format!("'{odd}' is not the name of a region")));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    let prefix = &options.prefix;
    if prefix.len() > 512
        || !prefix.chars().all(fine)
        || !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | ".."))
    {
        return Err(setting(format!(
            "'{prefix}' is not a prefix: want letters, digits and .-_ with / between them"
        )));
    }
    let server = match (&options.endpoint, region) {
        (Some(endpoint), _) => endpoint.clone(),
        (None, Some(region)) => {
            let end = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            Url::parse(&format!("https://s3.{region}.{end}/")).map_err(|error| setting(error.to_string()))?
        }
        (None, None) => {
            Url::parse("https://s3.amazonaws.com/").map_err(|error| setting(error.to_string()))?
        }
    };
    let is_plain = server.username().is_empty() && server.password().is_none();
    let is_whole = server.path() == "/" && server.query().is_none() && server.fragment().is_none();
    if !is_plain || !is_whole || !server.has_host() || !matches!(server.scheme(), "https" | "http") {
        return Err(setting("the endpoint is not https://HOST[:PORT]".to_owned()));
    }
    Place::new(server, bucket, region).map_err(setting)
}

impl BucketOptions {
    /// The server that requests go to, with the bucket's name where that is a part of its host.
    ///
    /// # Errors
    /// They name no bucket that there could be.
    pub fn server(&self) -> Result<Url, BucketError> {
        place(self).map(|place| place.server)
    }
}

impl Bucket {
    /// By this way out. Nothing is asked yet.
    ///
    /// # Errors
    /// The options name no bucket that there could be, or certificates that cannot be used.
    pub fn new(options: BucketOptions, guard: Guard) -> Result<Self, BucketError> {
        let place = place(&options)?;
        let BucketOptions { bucket, prefix, ca, credential, limits, .. } = options;
        let client = Client::for_many(guard, ca.as_deref(), None, IDLE).map_err(|error| {
            BucketError::Setting(match error {
                ClientError::Authority(why) | ClientError::Identity(why) => {
                    format!("the certificates that are to be used: {why}")
                }
                ClientError::Tls(why) => why,
            })
        })?;
        let shown = format!("s3://{bucket}{}{prefix}", if prefix.is_empty() { "" } else { "/" });
        let (keys, lost) = (Keys::new(credential), Mutex::default());
        Ok(Self { place, prefix, shown, client, keys, limits, lost })
    }

    /// Its URL, `s3://BUCKET[/PREFIX]`.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Why it is unavailable; none while it works.
    #[must_use]
    pub fn outage(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts an object there; in the place of one of that name.
    ///
    /// # Errors
    /// [`BucketError`]; it may be there or not then.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BucketError> {
        let (url, until) = (self.object(name)?, self.until(bytes.len() as u64));
        let asked = bytes.clone();
        let hash = tokio::task::spawn_blocking(move || sha256(&asked)).await;
        let hash = hash.map_err(|error| self.malformed(&error.to_string()))?;
        let done = self.ask(Method::PUT, &url, (bytes, &hash), until).await;
        self.told(async { self.said_yes(done?, until).await }.await)
    }

    /// An object, which has so many bytes.
    ///
    /// # Errors
    /// [`BucketError`] where nobody knows; [`BadObject`] where what is there is not it.
    pub async fn get(&self, name: &str, bytes: u64) -> Result<Result<Vec<u8>, BadObject>, BucketError> {
        let (url, until) = (self.object(name)?, self.until(bytes));
        let read = async {
            let response = self.ask(Method::GET, &url, (Bytes::new(), &sha256(b"")), until).await?;
            if response.status() == StatusCode::NOT_FOUND {
                // A bucket that is not there says so, too, and says nothing of its objects.
                return match self.refusal(response, until).await {
                    BucketError::Refused { code: Some(code), .. } if code == "NoSuchKey" => {
                        Ok(Err(BadObject::Missing))
                    }
                    refused => Err(refused),
                };
            }
            if response.status() != StatusCode::OK {
                return Err(self.refusal(response, until).await);
            }
            self.whole(response, bytes, until).await
        };
        self.told(read.await)
    }

    /// Removes an object; it is well if there is none.
    ///
    /// # Errors
    /// [`BucketError`].
    pub async fn remove(&self, name: &str) -> Result<(), BucketError> {
        let (url, until) = (self.object(name)?, self.until(0));
        let done = self.ask(Method::DELETE, &url, (Bytes::new(), &sha256(b"")), until).await;
        let done = async {
            let response = done?;
            if response.status() != StatusCode::NOT_FOUND {
                return self.said_yes(response, until).await;
            }
            match self.refusal(response, until).await {
                BucketError::Refused { code: Some(code), .. } if code == "NoSuchKey" => Ok(()),
                refused => Err(refused),
            }
        };
        self.told(done.await)
    }

    /// A page of the names that begin so: the one that the last page called `next`, or the first.
    ///
    /// # Errors
    /// [`BucketError`].
    pub async fn names(&self, begin: &str, next: Option<&str>) -> Result<Names, BucketError> {
        self.told(self.page(begin, next, PAGE).await)
    }

    /// Asks whether it is there.
    ///
    /// # Errors
    /// [`BucketError`].
    pub async fn probe(&self) -> Result<(), BucketError> {
        self.told(self.page("", None, "1").await).map(drop)
    }

    async fn page(&self, begin: &str, next: Option<&str>, most: &str) -> Result<Names, BucketError> {
        let (key, until) = (self.key(begin), self.until(MOST_PAGE));
        let url = self.place.list(&key, next, most).map_err(|why| self.malformed(&why))?;
        let response = self.ask(Method::GET, &url, (Bytes::new(), &sha256(b"")), until).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(response, until).await);
        }
        let text = self.read(response, MOST_PAGE, until).await?;
        let own = self.key("");
        let mut names = Vec::new();
        let next = list::read(text.as_slice(), &mut |object| {
            // What is not asked for is not ours.
            if object.key.starts_with(&key) {
                names.extend(object.key.strip_prefix(&own).map(str::to_owned));
            }
            Ok(())
        });
        let next = next.map_err(|why| self.malformed(&why))?;
        if next.as_ref().is_some_and(|next| next.len() > MOST_NEXT) {
            return Err(self.malformed("its next page has a long name"));
        }
        Ok(Names { names, next })
    }

    fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    fn object(&self, name: &str) -> Result<Url, BucketError> {
        self.place.object(&self.key(name)).map_err(|why| self.malformed(&why))
    }

    fn until(&self, bytes: u64) -> Instant {
        let rate = self.limits.bytes_per_second.max(1);
        Instant::now() + self.limits.request + Duration::from_secs(bytes / rate)
    }

    fn malformed(&self, why: &str) -> BucketError {
        BucketError::Malformed { bucket: self.shown.clone(), why: why.to_owned() }
    }

    fn too_slow(&self) -> BucketError {
        BucketError::TooSlow { bucket: self.shown.clone(), seconds: self.limits.request.as_secs() }
    }

    /// Sends a request, once more where credentials that were given out are not taken any more.
    async fn ask(
        &self,
        method: Method,
        url: &Url,
        (body, hash): (Bytes, &str),
        until: Instant,
    ) -> Result<Response<Incoming>, BucketError> {
        for _ in 1..TRIES {
            let response = self.once(&method, url, (body.clone(), hash), until).await?;
            if !matches!(response.status().as_u16(), 400 | 401 | 403) {
                return Ok(response);
            }
            let refused = self.refusal(response, until).await;
            if !(refused.is_about_keys() && self.keys.forget()) {
                return Err(refused);
            }
        }
        self.once(&method, url, (body, hash), until).await
    }

    async fn once(
        &self,
        method: &Method,
        url: &Url,
        (body, hash): (Bytes, &str),
        until: Instant,
    ) -> Result<Response<Incoming>, BucketError> {
        let keys = timeout_at(until, self.keys.get(&self.place.region)).await;
        let keys = keys.map_err(|_| self.too_slow())?;
        let keys = keys.map_err(|error| BucketError::credentials(&self.shown, &error))?;
        let unusable =
            |why: &str| BucketError::Credentials { bucket: self.shown.clone(), why: why.to_owned() };
        if keys.session.is_some() && url.scheme() == "http" {
            // The bytes are sealed and a signature is good for one request; whoever has this is somebody for hours.
            return Err(unusable("the token of a session is not sent over plain HTTP: use https"));
        }
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if *method == Method::PUT {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        }
        sign(&keys, (method, url), hash, &mut headers, &self.place.region, Timestamp::now())
            .ok_or_else(|| unusable("they have characters that no header may have"))?;
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(map) = request.headers_mut() {
            *map = headers;
        }
        let request = request.body(Full::new(body)).map_err(|error| self.malformed(&error.to_string()))?;
        let sent = timeout_at(until, self.client.send(request)).await.map_err(|_| self.too_slow())?;
        sent.map_err(|error| BucketError::Unreachable { bucket: self.shown.clone(), why: why(&error) })
    }

    /// That it was done.
    async fn said_yes(&self, response: Response<Incoming>, until: Instant) -> Result<(), BucketError> {
        if !response.status().is_success() {
            return Err(self.refusal(response, until).await);
        }
        // To its end, so that the connection serves the next one.
        self.read(response, MOST_ANSWER, until).await.map(drop)
    }

    /// The bytes of an object, as many as it has.
    async fn whole(
        &self,
        response: Response<Incoming>,
        bytes: u64,
        until: Instant,
    ) -> Result<Result<Vec<u8>, BadObject>, BucketError> {
        let said = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if said.is_some_and(|said: u64| said != bytes) {
            return Ok(Err(BadObject::OtherLength));
        }
        let mut whole = Vec::with_capacity(usize::try_from(bytes.min(FIRST_BUFFER)).unwrap_or(0));
        let mut body = response.into_body();
        while let Some(frame) = timeout_at(until, body.frame()).await.map_err(|_| self.too_slow())? {
            let frame = frame.map_err(|error| self.broken(&error))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() as u64 + data.len() as u64 > bytes {
                return Ok(Err(BadObject::OtherLength));
            }
            if whole.capacity() - whole.len() < data.len() {
                // At once to what it has, and never beyond: so much is set aside for it.
                let left = usize::try_from(bytes).unwrap_or(usize::MAX) - whole.len();
                whole.reserve_exact(left);
            }
            whole.extend_from_slice(&data);
        }
        Ok(if whole.len() as u64 == bytes { Ok(whole) } else { Err(BadObject::OtherLength) })
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        most: u64,
        until: Instant,
    ) -> Result<Vec<u8>, BucketError> {
        let (mut body, mut text) = (response.into_body(), Vec::new());
        while let Some(frame) = timeout_at(until, body.frame()).await.map_err(|_| self.too_slow())? {
            let frame = frame.map_err(|error| self.broken(&error))?;
            let Ok(data) = frame.into_data() else { continue };
            if text.len() as u64 + data.len() as u64 > most {
                return Err(self.malformed(&format!("it is longer than {most} bytes")));
            }
            text.extend_from_slice(&data);
        }
        Ok(text)
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> BucketError {
        BucketError::Unreachable { bucket: self.shown.clone(), why: innermost(error) }
    }

    /// What an answer that says no says. Only words of the server's that can be a code are repeated.
    async fn refusal(&self, response: Response<Incoming>, until: Instant) -> BucketError {
        let status = response.status().as_u16();
        let region = response.headers().get(REGION).and_then(|value| value.to_str().ok());
        let region = region.filter(|region| is_region(region) && *region != self.place.region);
        let region = region.map(|region| format!("; it is in the region {region}"));
        let text = self.read(response, MOST_ANSWER, until).await.unwrap_or_default();
        let fine = |code: &String| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphabetic());
        let code = list::refusal(text.as_slice()).filter(fine);
        let hint = match (region, &code) {
            (Some(region), _) => region,
            (None, None) if (300..400).contains(&status) => "; redirects are not followed".to_owned(),
            _ => String::new(),
        };
        BucketError::Refused { bucket: self.shown.clone(), status, code, hint }
    }

    /// Notes whether it works, in one line when it goes and one when it comes back.
    fn told<T>(&self, result: Result<T, BucketError>) -> Result<T, BucketError> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match (&result, lost.is_some()) {
            (Err(error), false) => {
                tracing::error!(
                    bucket = self.shown,
                    error = error.to_string(),
                    "lost the artifact store: what has to be read from it or stored there is tried again until it is back"
                );
                *lost = Some(error.to_string());
            }
            (Err(error), true) => *lost = Some(error.to_string()),
            (Ok(_), true) => {
                *lost = None;
                tracing::info!(bucket = self.shown, "the artifact store is back");
            }
            (Ok(_), false) => {}
        }
        drop(lost);
        result
    }
}

/// For the operator, who named the address.
fn why(error: &SendError) -> String {
    error.refusal.as_ref().map_or_else(|| innermost(&*error.source), ToString::to_string)
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
