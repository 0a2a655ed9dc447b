//! `/fleet/v1/sources/KIND/NAMESPACE/NAME/artifact`: the artifacts of a source, by their digest, revision or time.

use std::convert::Infallible;
use std::ops::Range;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::views::{ArtifactHead, WhichArtifact};

use crate::Api;
use crate::compress::Packed;
use crate::request::Query;

/// Bytes that are written at once.
const PART: usize = 64 * 1024;
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
    if is_known(headers, &tag) {
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

/// Whether the client has it.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
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
    // A branch may have any name that Git allows.
    if let Ok(revision) = HeaderValue::from_str(&head.revision) {
        response.headers_mut().insert(REVISION, revision);
    }
    let stored = head.stored.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    insert(&mut response, header::LAST_MODIFIED, &stored)?;
    Ok(response)
}

fn insert(response: &mut Response, name: header::HeaderName, text: &str) -> Result<(), HubError> {
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
            assert_eq!(is_known(&headers(&[("if-none-match", sent)]), "\"a\""), known, "{sent}");
        }
    }
}
