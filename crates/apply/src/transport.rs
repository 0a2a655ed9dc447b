//! Requests to the apiserver: as whom, how many at once, how long, how large an answer, and when again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use roadstead_model::ServiceAccount;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::engine::Options;

/// How large an answer may be. An object has at most 3 MiB; a list of one object, or a group's discovery, not much more.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// The first pause before a retry; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Sends requests. Clones share connections and the bound on requests under way.
#[derive(Clone)]
pub(crate) struct Transport {
    client: kube::Client,
    permits: Arc<Semaphore>,
    request_timeout: Duration,
    retry_for: Duration,
    identity: Option<Arc<Identity>>,
    /// Nothing is asked after it, and no answer awaited.
    deadline: Option<Instant>,
    /// Ends retries; what is under way still gets its answer, so that a write's result is known.
    cancel: CancellationToken,
}

/// Who is impersonated, and the header's value that says so.
struct Identity {
    account: ServiceAccount,
    user: HeaderValue,
}

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// What is asked.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// In which form objects are answered.
    pub(crate) form: Form,
}

/// In which form objects are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// Whole.
    #[default]
    Whole,
    /// Their metadata only, where the apiserver can do that.
    Metadata,
    /// The same of a list.
    MetadataList,
}

impl Form {
    fn accept(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Whole => "application/json",
            Self::Metadata => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
            }
            Self::MetadataList => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
            }
        })
    }
}

/// What was answered, with a status of 2xx.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) value: Value,
}

/// Why there is no such answer.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// The apiserver answered with a `Status`, or with something that is none.
    Status(Box<Status>),
    /// No answer, or one that cannot be used.
    Unreachable(String),
    /// The answer is larger than may be.
    TooLarge(String),
}

/// `metav1.Status`, as far as it is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) details: Option<Details>,
}

/// `metav1.StatusDetails`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Details {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after_seconds: u64,
}

/// `metav1.StatusCause`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Status(status) => &status.message,
            Self::Unreachable(why) | Self::TooLarge(why) => why,
        })
    }
}

impl Refusal {
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            Self::Unreachable(_) | Self::TooLarge(_) => None,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether it is refused since its namespace is being deleted.
    pub(crate) fn is_of_ending_namespace(&self) -> bool {
        let Self::Status(status) = self else { return false };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        status.code == 403 && causes.any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Whether it is the path that is not served, rather than the object that is not there: of an object the apiserver says its name.
    pub(crate) fn is_not_served(&self) -> bool {
        match self {
            Self::Status(status) => {
                status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
            }
            Self::Unreachable(_) | Self::TooLarge(_) => false,
        }
    }

    /// Whether the same request may be answered better a moment later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::TooLarge(_) => false,
            Self::Status(status) => match status.code {
                429 | 502 | 503 | 504 => true,
                // A typed patch that does not fit its schema is answered with 500 too, without a reason.
                500 => {
                    !status.reason.is_empty()
                        && !status.message.starts_with("failed to create typed patch object")
                }
                _ => false,
            },
        }
    }
}

impl Transport {
    pub(crate) fn new(client: kube::Client, options: &Options) -> Self {
        Self {
            client,
            permits: Arc::new(Semaphore::new(options.in_flight.max(1))),
            request_timeout: options.request_timeout,
            retry_for: options.retry_for,
            identity: None,
            deadline: None,
            cancel: CancellationToken::new(),
        }
    }

    /// The same for one run.
    pub(crate) fn until(&self, deadline: Instant, cancel: CancellationToken) -> Self {
        Self { deadline: Some(deadline), cancel, ..self.clone() }
    }

    /// `after` from now, or the deadline if that comes first.
    fn limit(&self, after: Duration) -> Instant {
        let limit = Instant::now() + after;
        self.deadline.map_or(limit, |deadline| deadline.min(limit))
    }

    pub(crate) fn impersonate(&self, account: ServiceAccount) -> Self {
        let ServiceAccount { namespace, name } = &account;
        // No groups: the apiserver adds a service account's own, and the right to impersonate groups would be the right to be
        // any group, system:masters included.
        let user = header(&format!("system:serviceaccount:{namespace}:{name}"));
        Self { identity: Some(Arc::new(Identity { account, user })), ..self.clone() }
    }

    pub(crate) fn identity(&self) -> Option<&ServiceAccount> {
        self.identity.as_ref().map(|identity| &identity.account)
    }

    /// Whether the run is cancelled or its time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Sends `call` until it is answered usefully or the time for retries is over.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, Refusal> {
        let give_up = self.limit(self.retry_for);
        let mut pause = FIRST_PAUSE;
        loop {
            let (refusal, asked) = match self.once(call).await {
                Ok(answer) => return Ok(answer),
                Err(refused) => refused,
            };
            // Jitter keeps those that were turned away together from coming back together.
            let wait = asked.unwrap_or_else(|| pause.mul_f64(rand::random_range(0.5..1.0)));
            if !refusal.is_passing() || Instant::now() + wait >= give_up {
                return Err(refusal);
            }
            tracing::debug!(method = %call.method, path = %call.path, ?wait, "the apiserver is asked again");
            tokio::select! {
                () = self.cancel.cancelled() => return Err(refusal),
                () = sleep(wait) => {}
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Sends `call` once; with a refusal comes how long the apiserver asks to wait.
    async fn once(&self, call: &Call) -> Result<Answer, (Refusal, Option<Duration>)> {
        let unreachable = |what: String| (Refusal::Unreachable(what), None);
        let exchange = async {
            let response = self.open(call).await.map_err(&unreachable)?;
            let status = response.status();
            let headers = response.headers().clone();
            let body = collect(response.into_body()).await.map_err(|refusal| (refusal, None))?;
            if !status.is_success() {
                return Err(refused(status, &headers, &body));
            }
            // The parser's message may hold a part of the answer, the answer may hold a Secret.
            let value = serde_json::from_slice(&body)
                .map_err(|_| unreachable("its answer is not JSON".to_owned()))?;
            Ok(Answer { status, value })
        };
        let limit = self.deadline.unwrap_or_else(|| Instant::now() + self.retry_for);
        let permit = timeout_at(limit, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(unreachable("the deadline passed before the request could be sent".to_owned()));
        };
        match timeout_at(self.limit(self.request_timeout), exchange).await {
            Ok(done) => done,
            Err(_) => Err(unreachable(format!("no response to {} in time", call.method))),
        }
    }

    /// Opens a watch: the answer's body is read by the caller, and holds no permit.
    pub(crate) async fn stream(&self, call: &Call) -> Result<Body, Refusal> {
        let opening = async {
            let response = self.open(call).await.map_err(Refusal::Unreachable)?;
            let (status, headers) = (response.status(), response.headers().clone());
            if status.is_success() {
                return Ok(response.into_body());
            }
            let body = collect(response.into_body()).await?;
            Err(refused(status, &headers, &body).0)
        };
        timeout_at(self.limit(self.request_timeout), opening)
            .await
            .unwrap_or_else(|_| Err(Refusal::Unreachable("the watch did not open in time".to_owned())))
    }

    async fn open(&self, call: &Call) -> Result<http::Response<Body>, String> {
        let mut request =
            Request::builder().method(&call.method).uri(&call.path).header(ACCEPT, call.form.accept());
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        if let Some(identity) = &self.identity {
            request = request.header(IMPERSONATE_USER, &identity.user);
        }
        let request = request.body(Body::from(call.body.clone())).map_err(|error| error.to_string())?;
        self.client.send(request).await.map_err(|error| bounded_chain(&error))
    }
}

/// A header's value; what cannot be one becomes a user that the apiserver will not know, never nobody.
fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("system:serviceaccount:invalid"))
}

/// The client's own message is `ServiceError: …` and little else, so all causes count; but what a server says is not
/// bounded by anyone else.
fn bounded_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = roadstead_model::chain(error);
    text.truncate(text.floor_char_boundary(500));
    text
}

async fn collect(mut body: Body) -> Result<Bytes, Refusal> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refusal::Unreachable(format!("its answer broke off: {}", bounded_chain(&error)))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > MAX_ANSWER {
            return Err(Refusal::TooLarge(format!("its answer has more than {MAX_ANSWER} bytes")));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The refusal that an answer is, and how long it asks to wait (at most ten seconds).
fn refused(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> (Refusal, Option<Duration>) {
    let mut status: Status = serde_json::from_slice(body).unwrap_or_default();
    status.code = code.as_u16();
    if status.message.is_empty() && status.reason.is_empty() {
        // A proxy, or the apiserver's "404 page not found".
        status.message = String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        if code.is_server_error() {
            status.reason = "Unknown".to_owned();
        }
    }
    status.message.truncate(status.message.floor_char_boundary(4096));
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let asked = header.or_else(|| status.details.as_ref().map(|d| d.retry_after_seconds)).filter(|s| *s > 0);
    let asked = asked.map(|seconds| Duration::from_secs(seconds.min(10)));
    (Refusal::Status(Box::new(status)), asked)
}
