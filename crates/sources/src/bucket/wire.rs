//! The wire to an object store, over the guarded way out: HTTP with limits, redirects that are followed without credentials, and
//! signatures for the bucket's own server only. What comes is kept as it is; only heads of answers are read here.

use http::header::{
    ACCEPT_ENCODING, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, LOCATION, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use roadstead_outbound::{Client, ClientError, ClientIdentity, SendError, Trail, credentials_belong};
use url::Url;

use super::error::Why;
use super::index::{Listed, Span, plain_etag};
use super::place::{Place, is_region};
use super::received::{self, Received};
use super::request::{BucketRequest, BucketStore};
use super::sign::{Signer, azure_version, sign};
use crate::attempt::{AttemptError, TrustedBy, chain, check_for_a_limit, shown_url};
use crate::ignore::FILE_NAME;
use crate::tree::Measure;

pub(super) const AGENT: &str = concat!("roadstead/", env!("CARGO_PKG_VERSION"));
/// What is tried on the wire: the step that it is for is told before it.
const ASKING: &str = "asking the server";
/// Bytes that are read of an answer that says no.
const MOST_REFUSAL: u64 = 16 << 10;
const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");
const GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");

/// A client by the request's way out.
pub(super) fn client(
    request: &BucketRequest,
    ca: Option<&[u8]>,
    identity: Option<&ClientIdentity>,
    idle: usize,
) -> Result<Client, Why> {
    let client = Client::for_many(request.guard.clone(), ca, identity, idle);
    client.map_err(|error| match error {
        ClientError::Authority(detail) | ClientError::Identity(detail) => {
            Why::Unusable(format!("the certificates that are to be used: {detail}"))
        }
        ClientError::Tls(detail) => Why::Internal(detail),
    })
}

/// What is told of a server that gave no answer.
pub(super) fn unreachable(shown: &str, error: &SendError) -> Why {
    AttemptError::of_sending(shown.to_owned(), TrustedBy::CertSecretRef, ASKING, error).into()
}

/// What came of asking for something.
pub(super) enum Came {
    /// It is there.
    Whole,
    /// It is not, or no longer.
    Gone,
    /// The server says no; what it says lies there.
    No { status: u16, answer: Span },
}

/// A wire to one bucket, for one attempt.
pub(super) struct Wire<'a> {
    request: &'a BucketRequest,
    client: Client,
    place: Place,
    signer: Signer,
}

impl<'a> Wire<'a> {
    pub(super) fn new(
        request: &'a BucketRequest,
        client: Client,
        place: Place,
        signer: Signer,
    ) -> Result<Self, Why> {
        let is_plain = place.server.scheme() == "http";
        if is_plain && signer.is_sent() && !request.plain_http_credentials {
            return Err(Why::PlainCredentials { url: request.shown_url() });
        }
        Ok(Self { request, client, place, signer })
    }

    /// Whether requests bear credentials.
    pub(super) fn is_someone(&self) -> bool {
        self.signer.is_someone()
    }

    /// A page of the list of objects.
    pub(super) async fn page(&mut self, next: Option<&str>, to: &mut Received) -> Result<Came, Why> {
        let prefix = self.request.prefix.clone().unwrap_or_default();
        let limits = &self.request.limits;
        let of_page = (Measure::ObjectListBytes, limits.page_bytes);
        let mut moved = false;
        loop {
            let url = self.place.list(self.request.store, &prefix, next).map_err(Why::Refused)?;
            let response = self.send(url, None).await?;
            if !moved && self.moves(&response)? {
                moved = true;
                continue;
            }
            return keep(response, of_page, to).await;
        }
    }

    /// The file with patterns.
    pub(super) async fn patterns(&self, to: &mut Received) -> Result<Came, Why> {
        let url = self.place.object(self.request.store, FILE_NAME, 0).map_err(Why::Internal)?;
        let most = self.request.limits.tree.file_bytes;
        keep(self.send(url, None).await?, (Measure::FileBytes, most), to).await
    }

    /// An object as it was listed, into a place that is made for its bytes. Says whether it is still there.
    pub(super) async fn object(
        &self,
        object: &Listed,
        to: &received::Place,
        at: u64,
    ) -> Result<Option<()>, Got> {
        let url = self.place.object(self.request.store, &object.key, object.generation);
        let url = url.map_err(|why| Got::Failed(Why::Internal(why)))?;
        let response = self.send(url, Some(&object.etag)).await.map_err(Got::Failed)?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            StatusCode::PRECONDITION_FAILED | StatusCode::NOT_MODIFIED => {
                return Err(Got::Failed(Why::Changed));
            }
            status if status != StatusCode::OK => return Err(Got::No(response)),
            _ => {}
        }
        if is_other(response.headers(), object) {
            return Err(Got::Failed(Why::Changed));
        }
        let wrong = || {
            Got::Failed(Why::Corrupt(format!("it does not have the {} bytes that are listed", object.size)))
        };
        let (mut body, mut writer, mut length) = (response.into_body(), to.writer(at), 0_u64);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Got::Failed(self.broken(&error)))?;
            let Ok(bytes) = frame.into_data() else { continue };
            length += bytes.len() as u64;
            if length > object.size {
                return Err(wrong());
            }
            writer.write(&bytes).await.map_err(Got::Failed)?;
        }
        if length != object.size {
            return Err(wrong());
        }
        writer.flush().await.map_err(Got::Failed)?;
        Ok(Some(()))
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> Why {
        AttemptError::Unreachable { url: self.request.shown_url(), phase: ASKING, detail: chain(error) }
            .into()
    }

    /// Whether the server says that the bucket is in another region; requests go there from now on.
    fn moves(&mut self, response: &Response<Incoming>) -> Result<bool, Why> {
        if self.request.store != BucketStore::S3 || response.status().is_success() {
            return Ok(false);
        }
        let region = response.headers().get(REGION).and_then(|value| value.to_str().ok());
        let Some(region) = region.filter(|region| is_region(region) && *region != self.place.region) else {
            return Ok(false);
        };
        self.place = Place::of(self.request, Some(region)).map_err(Why::Refused)?;
        self.request.known_bucket.is_in(region);
        Ok(true)
    }

    /// Sends a request on to where the answers say, with credentials for the bucket's server only.
    async fn send(&self, url: Url, etag: Option<&str>) -> Result<Response<Incoming>, Why> {
        let mut trail = Trail::new(url);
        loop {
            let mut url = trail.current().clone();
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            if let (Some(etag), BucketStore::S3 | BucketStore::Azure) = (etag, self.request.store) {
                let quoted = HeaderValue::from_str(&format!("\"{}\"", plain_etag(etag)));
                headers.insert(IF_MATCH, quoted.map_err(|_| Why::Corrupt("its etag is invalid".to_owned()))?);
            }
            match self.request.store {
                BucketStore::Azure => azure_version(&mut headers),
                // Objects as they are stored, so that they have the size that is listed.
                BucketStore::Gcs => {
                    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
                }
                BucketStore::S3 => {}
            }
            if credentials_belong(&self.place.server, &url) {
                sign(&self.signer, &mut url, &mut headers, &self.place, Timestamp::now())
                    .map_err(|why| Why::Unusable(why.0.to_owned()))?;
            }
            let mut sent = Request::builder().method(Method::GET).uri(url.as_str());
            if let Some(map) = sent.headers_mut() {
                *map = headers;
            }
            let sent = sent.body(Full::default()).map_err(|error| Why::Internal(error.to_string()))?;
            let response = self.client.send(sent).await;
            let response = response.map_err(|error| unreachable(&self.request.shown_url(), &error))?;
            check_for_a_limit(|| self.request.shown_url(), &response)?;
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let Some(location) = location.filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            let to = shown_url(location);
            trail.step(location).map_err(|refused| Why::RedirectRefused { to, why: refused.to_string() })?;
        }
    }

    /// Keeps what an answer says that is not what was asked for.
    pub(super) async fn refusal(&self, response: Response<Incoming>, to: &mut Received) -> Result<Came, Why> {
        keep(response, (Measure::TransferBytes, MOST_REFUSAL), to).await
    }
}

/// Why an object did not come.
pub(super) enum Got {
    Failed(Why),
    No(Response<Incoming>),
}

/// Whether what comes is another object than the one that was listed.
fn is_other(headers: &HeaderMap, object: &Listed) -> bool {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    match text(&GENERATION) {
        // Google's etag of what an object holds is another one than that of the list.
        Some(generation) => generation.parse() != Ok(object.generation),
        None => text(&ETAG).is_some_and(|etag| plain_etag(etag) != plain_etag(&object.etag)),
    }
}

async fn keep(
    response: Response<Incoming>,
    (measure, limit): (Measure, u64),
    to: &mut Received,
) -> Result<Came, Why> {
    let (status, offset) = (response.status(), to.end());
    let limit = if status == StatusCode::OK { limit } else { MOST_REFUSAL };
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
        return Ok(Came::Gone);
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Why::Corrupt(format!("it breaks off: {}", chain(&error))))?;
        let Ok(bytes) = frame.into_data() else { continue };
        if to.end() - offset + bytes.len() as u64 > limit {
            if status != StatusCode::OK {
                break;
            }
            return Err(Why::TooLarge { measure, limit, path: None });
        }
        to.append(bytes).await?;
    }
    if status == StatusCode::OK {
        return Ok(Came::Whole);
    }
    Ok(Came::No { status: status.as_u16(), answer: to.since(offset) })
}
