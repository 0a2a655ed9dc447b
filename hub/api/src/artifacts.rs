//! `/fleet/v1/sources/KIND/NAMESPACE/NAME/artifact`: the artifacts of a source, by their digest, revision or time; and the next one of
//! an ExternalArtifact, from whoever uploads it.

use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{StreamExt as _, future};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use roadstead_api::KindId;
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::sources::Claimed;
use roadstead_hub_core::views::{ArtifactHead, WhichArtifact};

use roadstead_model::Digest;

use crate::Api;
use crate::bodies::cut;
use crate::compress::Packed;
use crate::request::Query;

/// Bytes that are written at once.
const PART: usize = 64 * 1024;
/// So long may an upload's body take.
pub(crate) const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// By which clients say the digest of what they send (RFC 9530), and get that of what they are sent; the last one is what that
/// replaced (RFC 3230).
const REPR_DIGEST: &str = "repr-digest";
const CONTENT_DIGEST: &str = "content-digest";
const DIGEST: &str = "digest";
/// The revision that an artifact was made of.
const REVISION: &str = "roadstead-revision";

pub(crate) async fn answer(
    api: &Api,
    who: &Identity,
    source: (&str, &str, &str),
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response, HubError> {
    let which = which(query)?;
    let head = api.hub.views.artifact(who, source, &which).await?;
    let tag = format!("\"{}\"", head.digest);
    if is_known(headers, &tag, head.stored) {
        return told(&head, &tag, StatusCode::NOT_MODIFIED.into_response());
    }
    // Held until the last byte is taken.
    let memory = api.bodies.set_aside(head.bytes)?;
    let bytes = api.hub.views.artifact_bytes(&head).await?;
    let length = bytes.len();
    let mut response = match asked_range(headers, &tag, length) {
        Asked::All => streamed(bytes, 0..length, memory, StatusCode::OK),
        Asked::Part(range) => {
            let said = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let mut response = streamed(bytes, range, memory, StatusCode::PARTIAL_CONTENT);
            insert(&mut response, header::CONTENT_RANGE, &said)?;
            response
        }
        Asked::Outside => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            insert(&mut response, header::CONTENT_RANGE, &format!("bytes */{length}"))?;
            response
        }
    };
    response.extensions_mut().insert(Packed);
    told(&head, &tag, response)
}

/// What [`answer`] would say, without the bytes.
pub(crate) async fn head(
    api: &Api,
    who: &Identity,
    source: (&str, &str, &str),
    parts: &Parts,
) -> Result<Response, HubError> {
    let which = which(&Query::parse(&parts.uri)?)?;
    let found = api.hub.views.artifact(who, source, &which).await?;
    let tag = format!("\"{}\"", found.digest);
    let is_known = is_known(&parts.headers, &tag, found.stored);
    let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = told(&found, &tag, status.into_response())?;
    response.extensions_mut().insert(Packed);
    Ok(response)
}

/// Whether a request may have a body that takes its time.
pub(crate) fn is_upload(request: &Request) -> bool {
    let path = request.uri().path();
    request.method() == Method::PUT && path.starts_with("/fleet/v1/sources/") && path.ends_with("/artifact")
}

/// Takes an artifact that is uploaded.
pub(crate) async fn take(
    api: &Api,
    who: &Identity,
    (kind, namespace, name): (&str, &str, &str),
    request: Request,
) -> Result<Response, HubError> {
    if kind != KindId::ExternalArtifact.get().kind {
        let why =
            format!("artifacts are uploaded for ExternalArtifacts only: of a {kind} the hub fetches them");
        return Err(HubError::BadRequest(why));
    }
    // Whoever may not do it is told nothing else of what they sent.
    who.authorize("update", KindId::ExternalArtifact.get(), "artifact", namespace, name)?;
    let query = Query::parse(request.uri())?;
    let claimed = claimed(&query, request.headers())?;
    let length =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let most = api.hub.sources.most_of_an_upload()?;
    // What says beforehand that it is too large is not even begun.
    if length.is_some_and(|length: u64| length > most) {
        return Err(HubError::TooLarge(format!("an artifact has {most} bytes at most")));
    }
    let pieces = request.into_body().into_data_stream();
    let pieces = pieces.map(|piece| piece.map_err(|error| cut(&error))).filter(|piece| {
        // Frames without bytes cost a task each.
        future::ready(piece.as_ref().map_or(true, |bytes| !bytes.is_empty()))
    });
    let artifact = api.hub.sources.upload(who, (namespace, name), &claimed, pieces).await?;
    let location = artifact.url.clone();
    let mut response = (StatusCode::CREATED, Json(artifact)).into_response();
    insert(&mut response, header::ETAG, &format!("\"{}\"", claimed.digest))?;
    if !location.is_empty() {
        insert(&mut response, header::LOCATION, &location)?;
    }
    Ok(response)
}

/// What a client says of what it uploads: the digest in the query or in a header.
fn claimed(query: &Query, headers: &HeaderMap) -> Result<Claimed, HubError> {
    let bad = |why: &str| HubError::BadRequest(why.to_owned());
    let revision = query.get("revision");
    if revision.is_empty() {
        return Err(bad("revision: say which one it is, such as ?revision=main@sha1:0d27ef21…"));
    }
    let revision = revision.parse().map_err(|error| HubError::BadRequest(format!("revision: {error}")))?;
    let mut given = Vec::new();
    if !query.get("digest").is_empty() {
        let digest = query.get("digest").parse();
        given.push(digest.map_err(|_| bad("digest: want sha256: and 64 hexadecimal digits"))?);
    }
    for name in [REPR_DIGEST, CONTENT_DIGEST, DIGEST] {
        for value in headers.get_all(name) {
            let text = value.to_str().unwrap_or_default();
            given.extend(
                sha256_of(text).map_err(|()| bad(&format!("header {name}: its sha-256 cannot be read")))?,
            );
        }
    }
    match given.as_slice() {
        [] => Err(bad("say the artifact's digest: ?digest=sha256:…, or the header Repr-Digest: sha-256=:…:")),
        [first, others @ ..] if others.iter().all(|other| other == first) => {
            Ok(Claimed { revision, digest: *first })
        }
        _ => Err(bad("several digests are given, and they differ")),
    }
}

/// The SHA-256 of a header with digests; none where it has others only.
fn sha256_of(text: &str) -> Result<Option<Digest>, ()> {
    for one in text.split(',') {
        let Some((algorithm, value)) = one.split_once('=') else { continue };
        if !algorithm.trim().eq_ignore_ascii_case("sha-256") {
            continue;
        }
        let value = value.split(';').next().unwrap_or_default().trim().trim_matches(':');
        let bytes = BASE64.decode(value).map_err(|_| ())?;
        return Ok(Some(Digest::from_bytes(bytes.try_into().map_err(|_| ())?)));
    }
    Ok(None)
}

fn which(query: &Query) -> Result<WhichArtifact, HubError> {
    let (digest, revision, at) = (query.get("digest"), query.get("revision"), query.get("at"));
    let bad = |what: &str, want: &str| HubError::BadRequest(format!("{what}: want {want}"));
    match (digest, revision, at) {
        ("", "", "") => Ok(WhichArtifact::Current),
        (digest, "", "") => {
            let digest = digest.parse().map_err(|_| bad("digest", "sha256: and 64 hexadecimal digits"))?;
            Ok(WhichArtifact::Digest(digest))
        }
        ("", revision, "") => {
            let revision =
                revision.parse().map_err(|_| bad("revision", "one such as main@sha1:0d27ef21…"))?;
            Ok(WhichArtifact::Revision(revision))
        }
        ("", "", at) => {
            let at = at.parse().map_err(|_| bad("at", "a time such as 2026-01-02T03:04:05Z"))?;
            Ok(WhichArtifact::At(at))
        }
        _ => Err(HubError::BadRequest("give one of digest, revision and at".to_owned())),
    }
}

/// Whether the client has it: by its tag, or, where the client names none, since it was stored no later than the client says.
fn is_known(headers: &HeaderMap, tag: &str, stored: Timestamp) -> bool {
    if !headers.contains_key(header::IF_NONE_MATCH) {
        let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
        let since = since.and_then(|text| DateTimeParser::new().parse_timestamp(text.trim()).ok());
        return since.is_some_and(|since| stored.as_second() <= since.as_second());
    }
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|line| line.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// What of the bytes is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    All,
    Part(Range<usize>),
    Outside,
}

/// One range, as RFC 9110 has it; whoever asks for several gets all, which is allowed.
fn asked_range(headers: &HeaderMap, tag: &str, length: usize) -> Asked {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    // Of another artifact than the client has a part of, a part is of no use.
    if text(header::IF_RANGE).is_some_and(|has| has != tag) {
        return Asked::All;
    }
    let Some(range) = text(header::RANGE).and_then(|range| range.strip_prefix("bytes=")) else {
        return Asked::All;
    };
    let Some((first, last)) = range.split_once('-') else { return Asked::All };
    let range = match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Ok(first), Err(_)) if last.trim().is_empty() => first..length,
        (Err(_), Ok(last)) if first.trim().is_empty() => length.saturating_sub(last)..length,
        _ => return Asked::All,
    };
    if range.start < range.end { Asked::Part(range) } else { Asked::Outside }
}

/// Bytes that are written as they are taken, and the memory with them.
fn streamed(
    bytes: Vec<u8>,
    range: Range<usize>,
    memory: impl Send + 'static,
    status: StatusCode,
) -> Response {
    let length = range.len();
    let bytes = Bytes::from(bytes).slice(range);
    let parts = futures::stream::unfold((bytes, memory), |(mut left, memory)| async move {
        if left.is_empty() {
            return None;
        }
        let part = left.split_to(left.len().min(PART));
        Some((Ok::<_, Infallible>(part), (left, memory)))
    });
    let mut response = (status, Body::from_stream(parts)).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

fn told(head: &ArtifactHead, tag: &str, mut response: Response) -> Result<Response, HubError> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    insert(&mut response, header::ETAG, tag)?;
    let sha256 = BASE64.encode(head.digest.as_bytes());
    insert(&mut response, HeaderName::from_static(REPR_DIGEST), &format!("sha-256=:{sha256}:"))?;
    insert(&mut response, HeaderName::from_static(DIGEST), &format!("sha-256={sha256}"))?;
    // A branch may have any name that Git allows.
    if let Ok(revision) = HeaderValue::from_str(&head.revision) {
        response.headers_mut().insert(REVISION, revision);
    }
    let stored = head.stored.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    insert(&mut response, header::LAST_MODIFIED, &stored)?;
    Ok(response)
}

fn insert(response: &mut Response, name: HeaderName, text: &str) -> Result<(), HubError> {
    let value = HeaderValue::from_str(text).map_err(|error| HubError::Internal(error.to_string()))?;
    response.headers_mut().insert(name, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn parts_are_as_they_are_asked_for() {
        let asked = |range: &str| asked_range(&headers(&[("range", range)]), "\"a\"", 100);
        assert_eq!(asked("bytes=0-9"), Asked::Part(0..10));
        assert_eq!(asked("bytes=90-"), Asked::Part(90..100));
        assert_eq!(asked("bytes=-10"), Asked::Part(90..100));
        assert_eq!(asked("bytes=-1000"), Asked::Part(0..100));
        assert_eq!(asked("bytes=90-1000"), Asked::Part(90..100));
        assert_eq!(asked("bytes=0-18446744073709551615"), Asked::Part(0..100));
        for outside in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(asked(outside), Asked::Outside, "{outside}");
        }
        for all in ["", "bytes", "bytes=", "bytes=-", "bytes=9-0", "bytes=0-1,5-6", "lines=0-9", "bytes=a-b"]
        {
            assert_eq!(asked(all), Asked::All, "{all}");
        }
        let of_another = headers(&[("range", "bytes=0-9"), ("if-range", "\"b\"")]);
        assert_eq!(asked_range(&of_another, "\"a\"", 100), Asked::All);
        let of_this = headers(&[("range", "bytes=0-9"), ("if-range", "\"a\"")]);
        assert_eq!(asked_range(&of_this, "\"a\"", 100), Asked::Part(0..10));
        assert_eq!(asked_range(&headers(&[]), "\"a\"", 100), Asked::All);
    }

    #[test]
    fn what_a_client_has_is_not_sent_again() {
        for (sent, known) in
            [("\"a\"", true), ("\"b\", W/\"a\"", true), ("*", true), ("\"b\"", false), ("", false)]
        {
            let stored = "2026-01-01T00:00:00.5Z".parse().unwrap();
            let sent_since = ("if-modified-since", "Sat, 01 Jan 2028 00:00:00 GMT");
            for headers in
                [headers(&[("if-none-match", sent)]), headers(&[("if-none-match", sent), sent_since])]
            {
                assert_eq!(is_known(&headers, "\"a\"", stored), known, "{sent}");
            }
        }
    }

    #[test]
    fn what_has_not_changed_since_is_not_sent_again() {
        let stored: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
        for (since, known) in [
            ("Thu, 01 Jan 2026 00:00:00 GMT", true),
            ("Wed, 31 Dec 2025 23:59:59 GMT", false),
            ("yesterday", false),
        ] {
            assert_eq!(
                is_known(&headers(&[("if-modified-since", since)]), "\"a\"", stored),
                known,
                "{since}"
            );
        }
        assert!(!is_known(&headers(&[]), "\"a\"", stored));
    }

    #[test]
    fn a_digest_is_given_in_one_way_or_another() {
        let (digest, other) = (Digest::of(b"a"), Digest::of(b"b"));
        let base64 = |digest: &Digest| BASE64.encode(digest.as_bytes());
        let repr = format!("sha-512=:AAAA:, sha-256=:{}:", base64(&digest));
        let older = format!("SHA-256={}", base64(&digest));
        let claim = |uri: &str, given: &[(&'static str, &str)]| {
            claimed(&Query::parse(&uri.parse().unwrap()).unwrap(), &headers(given))
        };
        let by_query = format!("/?revision=1.0.0&digest={digest}");
        for (uri, given) in [
            (by_query.as_str(), vec![]),
            ("/?revision=1.0.0", vec![("repr-digest", repr.as_str())]),
            ("/?revision=1.0.0", vec![("content-digest", repr.as_str())]),
            ("/?revision=1.0.0", vec![("digest", older.as_str())]),
            (by_query.as_str(), vec![("repr-digest", repr.as_str()), ("digest", older.as_str())]),
        ] {
            let claimed = claim(uri, &given).unwrap();
            assert_eq!(
                (claimed.digest, claimed.revision.to_string().as_str()),
                (digest, "1.0.0"),
                "{uri} {given:?}"
            );
        }
        let differs = format!("sha-256=:{}:", base64(&other));
        for (uri, given, said) in [
            ("/?revision=1.0.0", vec![], "say the artifact's digest"),
            ("/?revision=1.0.0", vec![("repr-digest", "sha-512=:AAAA:")], "say the artifact's digest"),
            ("/?revision=1.0.0", vec![("repr-digest", "sha-256=:AAAA:")], "cannot be read"),
            ("/?revision=1.0.0&digest=sha1:00", vec![], "64 hexadecimal digits"),
            (by_query.as_str(), vec![("repr-digest", differs.as_str())], "they differ"),
            (&format!("/?digest={digest}"), vec![], "say which one it is"),
            (&format!("/?digest={digest}&revision=main"), vec![], "is not a revision"),
        ] {
            let why = claim(uri, &given).unwrap_err().to_string();
            assert!(why.contains(said), "{said}: {why}");
        }
    }
}
