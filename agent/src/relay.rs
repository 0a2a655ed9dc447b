//! The port to which Flux's controllers in the cluster report events: `--events-listen`. The events go to the hub, which matches them with its
//! Alerts. The port accepts what Flux's notification-controller accepts, but each request must bear a token.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use roadstead_listener::{Pace, Paces};
use roadstead_model::{ObjectRef, RelayedEvent, Secret};
use roadstead_proto::limits::{MAX_RELAYED_METADATA, MAX_RELAYED_METADATA_BYTES, bounded};
use roadstead_proto::v1;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Meters, Told};
use crate::outbox::Relayed;
use crate::port::{Port, plain};

/// Connections at once; the oldest makes room for one more.
const CONNECTIONS: usize = 16;
/// Bytes of an event: Flux bounds messages to 39,000 characters, and each connection may hold one.
const BODY: usize = 256 * 1024;
/// How long an answer waits for the hub to store the event. Flux waits for five seconds, and then sends it again.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is logged that the token cannot be read.
const LINES: Pace = Pace { at_once: 3, then: Duration::from_secs(60) };
/// Bytes of a token.
const TOKEN: std::ops::RangeInclusive<usize> = 16..=4_096;

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("read the token in {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too short to be safe, or too long.
    #[error("the token in {} must have 16 to 4096 bytes", path.display())]
    Length {
        /// The file.
        path: PathBuf,
    },
}

/// The file with the token that each request must bear. It may change at any time.
#[derive(Debug, Clone)]
pub(crate) struct TokenFile(pub(crate) PathBuf);

impl TokenFile {
    /// What is in it now.
    pub(crate) async fn read(&self) -> Result<Secret, TokenError> {
        let path = self.0.clone();
        let read = async {
            let file = tokio::fs::File::open(&path).await?;
            let mut text = String::new();
            // One more, so that a longer one is noticed.
            file.take(*TOKEN.end() as u64 + 2).read_to_string(&mut text).await?;
            Ok(text)
        };
        let text = read.await.map_err(|source| TokenError::Unreadable { path: path.clone(), source })?;
        let token = Secret::new(text.trim().to_owned());
        if TOKEN.contains(&token.expose().len()) { Ok(token) } else { Err(TokenError::Length { path }) }
    }
}

/// Accepts events until `stop`.
pub(crate) async fn serve(
    relayed: Arc<Relayed>,
    token: TokenFile,
    meters: Meters,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let port = Port { listener, name: "events", connections: CONNECTIONS };
    // Whoever reaches the port could have a line written as often as they like.
    let unreadable = Arc::new(Paces::new(LINES));
    let answer = move |request| {
        let (relayed, token, meters) = (Arc::clone(&relayed), token.clone(), meters.clone());
        let unreadable = Arc::clone(&unreadable);
        async move {
            let mut response = match take(&relayed, &token, &unreadable, &meters, request).await {
                Ok(()) => plain(StatusCode::ACCEPTED, ""),
                Err(refusal) => {
                    meters.told(Told::Refused);
                    refusal.into_response()
                }
            };
            // Each event is a connection: nothing is told into one that is about to be closed.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    port.serve(answer, stop).await;
}

/// Why an event is not taken.
struct Refusal(StatusCode, String);

impl Refusal {
    fn into_response(self) -> Response<String> {
        let Self(status, why) = self;
        let mut response = plain(status, format!("{why}\n"));
        if status == StatusCode::UNAUTHORIZED {
            let realm = HeaderValue::from_static("Basic realm=\"roadstead-agent\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, realm);
        }
        response
    }
}

async fn take(
    relayed: &Relayed,
    token: &TokenFile,
    unreadable: &Paces<()>,
    meters: &Meters,
    request: Request<Incoming>,
) -> Result<(), Refusal> {
    let refuse = |status, why: &str| Refusal(status, why.to_owned());
    if request.uri().path() != "/" {
        return Err(refuse(StatusCode::NOT_FOUND, "post events to /"));
    }
    if request.method() != Method::POST {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed"));
    }
    let token = token.read().await.map_err(|error| {
        if let Some(left_out) = unreadable.next(()) {
            let error = roadstead_model::chain(&error);
            tracing::error!(error, left_out, "events from Flux are refused: the token cannot be read");
        }
        refuse(StatusCode::SERVICE_UNAVAILABLE, "the listener's token cannot be read")
    })?;
    let given = request.headers().get(AUTHORIZATION).and_then(given);
    if given.is_none_or(|given| !is_same(&given, &token)) {
        return Err(refuse(
            StatusCode::UNAUTHORIZED,
            "the listener's token is required, as a bearer token or as the password of basic authentication",
        ));
    }
    let body = Limited::new(request.into_body(), BODY).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return Refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("an event must be at most {BODY} bytes long"),
            );
        }
        refuse(StatusCode::BAD_REQUEST, "the request body could not be read")
    })?;
    let event = read(&body.to_bytes()).map_err(|why| Refusal(StatusCode::BAD_REQUEST, why))?;
    // One of severity `trace` is for nobody else.
    let Some(event) = event else { return Ok(()) };
    let Ok(answered) = relayed.add(event) else {
        return Err(refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many events wait for the hub: try again later",
        ));
    };
    if let Some(answered) = answered
        && let Ok(Ok(false)) = tokio::time::timeout(PATIENCE, answered).await
    {
        return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "the hub refused the event"));
    }
    meters.told(Told::Taken);
    Ok(())
}

/// The token of a header: of `Bearer TOKEN`, or the password of `Basic`, which is what Flux sends for `http://NAME:TOKEN@…`.
fn given(header: &HeaderValue) -> Option<Secret> {
    let (scheme, value) = header.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Secret::new(value.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Secret::new(String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?);
    decoded.expose().split_once(':').map(|(_, token)| Secret::new(token.to_owned()))
}

/// In a time that says nothing of where they differ.
fn is_same(given: &Secret, token: &Secret) -> bool {
    // Exposed to be compared.
    given.expose().as_bytes().ct_eq(token.expose().as_bytes()).into()
}

/// An event as Flux's controllers write it, `event.toolkit.fluxcd.io/v1beta1`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FluxEvent {
    involved_object: Involved,
    severity: String,
    timestamp: String,
    message: String,
    reason: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    reporting_controller: String,
    #[serde(default)]
    reporting_instance: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Involved {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
    namespace: String,
    #[serde(default)]
    uid: String,
}

/// Reads an event; none where it is one that is not told on.
fn read(body: &[u8]) -> Result<Option<RelayedEvent>, String> {
    let event: FluxEvent = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an event as Flux sends it: {error}"))?;
    let is_error = match event.severity.as_str() {
        "error" => true,
        "info" => false,
        "trace" => return Ok(None),
        _ => return Err("severity must be trace, info or error".to_owned()),
    };
    let Involved { api_version, kind, name, namespace, uid } = event.involved_object;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let object = ObjectRef { group: group.to_owned(), version: version.to_owned(), kind, namespace, name };
    let mut metadata = BTreeMap::new();
    let mut room = MAX_RELAYED_METADATA_BYTES;
    for (key, value) in event.metadata.unwrap_or_default() {
        let (key, value) = (bounded(&key), bounded(&value));
        let Some(left) = room.checked_sub(key.len() + value.len()) else { continue };
        if metadata.len() < MAX_RELAYED_METADATA {
            room = left;
            metadata.insert(key, value);
        }
    }
    let event = RelayedEvent {
        object,
        uid,
        is_error,
        timestamp: event.timestamp,
        message: bounded(&event.message),
        reason: event.reason,
        reporting_controller: event.reporting_controller,
        reporting_instance: event.reporting_instance,
        metadata,
    };
    // What the hub would not read is refused here, where whoever tells it hears why.
    RelayedEvent::try_from(v1::RelayedEvent::from(event)).map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event() -> Value {
        json!({
            "involvedObject": { "kind": "Kustomization", "namespace": "apps", "name": "web", "uid": "1",
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "7" },
            "severity": "error", "timestamp": "2026-01-01T00:00:00Z", "message": "it\u{7} fails",
            "reason": "BuildFailed", "metadata": { "kustomize.toolkit.fluxcd.io/revision": "main@sha1:a" },
            "reportingController": "kustomize-controller", "reportingInstance": "kustomize-controller-1",
        })
    }

    #[test]
    fn an_event_is_read_as_flux_writes_it() {
        let read_as = |event: &Value| read(event.to_string().as_bytes());
        let plain = read_as(&event()).unwrap().unwrap();
        assert_eq!(plain.object.to_string(), "Kustomization/apps/web");
        assert_eq!((plain.is_error, plain.message.as_str()), (true, "it  fails"));
        assert_eq!(plain.metadata["kustomize.toolkit.fluxcd.io/revision"], "main@sha1:a");
        let with = |field: &str, value: Value| {
            let mut event = event();
            *event.pointer_mut(field).unwrap() = value;
            read_as(&event)
        };
        assert_eq!(with("/severity", json!("trace")), Ok(None));
        for (field, value, says) in [
            ("/severity", json!("bad"), "severity"),
            ("/reason", json!(""), "reason"),
            ("/involvedObject/namespace", json!(""), "namespace"),
            ("/involvedObject/name", json!("a/b"), "name"),
            ("/involvedObject/kind", json!(null), "kind"),
            ("/involvedObject/apiVersion", json!(""), "version"),
            ("/timestamp", json!("x".repeat(1000)), "timestamp"),
            ("/metadata", json!([]), "metadata"),
        ] {
            let refused = with(field, value).unwrap_err();
            assert!(refused.contains(says) || refused.contains("not an event"), "{field}: {refused}");
        }
        let long = with("/message", json!("é".repeat(39_000))).unwrap().unwrap();
        assert!(long.message.len() <= 16 * 1024 && long.message.ends_with('…'));
        let many: BTreeMap<String, String> =
            (0..2_000).map(|count| (format!("event.toolkit.fluxcd.io/{count}"), "x".repeat(100))).collect();
        let many = with("/metadata", json!(many)).unwrap().unwrap();
        assert!((1..=MAX_RELAYED_METADATA).contains(&many.metadata.len()));
        assert!(read(b"[[[").is_err() && read("[".repeat(200_000).as_bytes()).is_err());
    }

    #[test]
    fn a_token_is_given_in_either_form_and_must_be_the_same() {
        let of = |text: String| given(&HeaderValue::from_str(&text).unwrap());
        let token = Secret::new("0123456789abcdef".to_owned());
        for (header, is_right) in [
            ("Bearer 0123456789abcdef".to_owned(), true),
            (format!("Basic {}", STANDARD.encode("flux:0123456789abcdef")), true),
            (format!("basic {}", STANDARD.encode(":0123456789abcdef")), true),
            ("Bearer 0123456789abcdeg".to_owned(), false),
            ("Bearer 0123456789abcde".to_owned(), false),
            (format!("Basic {}", STANDARD.encode("0123456789abcdef")), false),
            ("Basic !".to_owned(), false),
            ("Digest 0123456789abcdef".to_owned(), false),
            ("0123456789abcdef".to_owned(), false),
        ] {
            assert_eq!(of(header.clone()).is_some_and(|given| is_same(&given, &token)), is_right, "{header}");
        }
    }

    #[tokio::test]
    async fn a_short_token_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile(folder.path().join("token"));
        assert!(matches!(file.read().await, Err(TokenError::Unreadable { .. })));
        for (text, is_one) in
            [("short\n", false), ("0123456789abcdef\n", true), (&*"x".repeat(4_097), false), ("", false)]
        {
            std::fs::write(&file.0, text).unwrap();
            assert_eq!(file.read().await.is_ok(), is_one, "{text}");
        }
    }
}
