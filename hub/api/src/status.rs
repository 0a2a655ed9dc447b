//! Errors as Kubernetes' `Status` objects: the one place where a domain error gets an HTTP status.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use roadstead_hub_core::{Address, HubError};
use serde_json::{Value, json};

use crate::questions::AUTHENTICATION;
use crate::request::write_continue;

/// (HTTP status, Kubernetes' reason)
fn code(error: &HubError) -> (StatusCode, &'static str) {
    match error {
        HubError::NotFound { .. } => (StatusCode::NOT_FOUND, "NotFound"),
        HubError::AlreadyExists { .. } => (StatusCode::CONFLICT, "AlreadyExists"),
        HubError::Conflict { .. } | HubError::ApplyConflict { .. } => (StatusCode::CONFLICT, "Conflict"),
        HubError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        HubError::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
        HubError::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        HubError::Forbidden(_) => (StatusCode::FORBIDDEN, "Forbidden"),
        HubError::UnsupportedMediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
        HubError::Gone(_) | HubError::PageGone(_) => (StatusCode::GONE, "Expired"),
        HubError::TooLargeVersion { .. } => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
        HubError::TooMany(_) => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        HubError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        HubError::Timeout(_) => (StatusCode::REQUEST_TIMEOUT, "Timeout"),
        HubError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        HubError::Store(_) if error.outage().is_some() => {
            (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
        }
        HubError::Store(_) | HubError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    }
}

/// The `Status` of an error on an object.
pub(crate) fn status(error: &HubError, address: Option<&Address>) -> (StatusCode, Value) {
    let (code, reason) = code(error);
    let message = if code == StatusCode::INTERNAL_SERVER_ERROR {
        // Logged once, here; what is inside is not the client's business.
        tracing::error!(error = error as &dyn std::error::Error, ?address, "a request failed");
        "Internal error occurred: see the hub's log".to_owned()
    } else if let Some(why) = error.outage() {
        // The outage has its line in the log; the requests that it meets have none.
        away(why)
    } else {
        error.to_string()
    };
    let mut details = serde_json::Map::new();
    if let HubError::ApplyConflict { causes, .. } = error {
        let cause = |(field, message): &(String, String)| json!({ "reason": "FieldManagerConflict", "message": message, "field": field });
        details.insert("causes".to_owned(), causes.iter().map(cause).collect());
    } else if let Some(address) = address {
        let kind = address.kind.get();
        let name = Some(address.name.as_str()).filter(|name| !name.is_empty());
        if let Some(name) = name.or_else(|| error.object_name()) {
            details.insert("name".to_owned(), name.into());
        }
        if !address.version.group.is_empty() {
            details.insert("group".to_owned(), address.version.group.into());
        }
        let named = if reason == "Invalid" { kind.kind } else { kind.plural };
        details.insert("kind".to_owned(), named.into());
    }
    if let HubError::Invalid { causes, .. } = error {
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        details.insert("causes".to_owned(), causes.into());
    }
    if let HubError::TooLargeVersion { .. } = error {
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        details.insert("causes".to_owned(), json!([cause]));
    }
    if let Some(seconds) = retry_after(error) {
        details.insert("retryAfterSeconds".to_owned(), seconds.into());
    }
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    if let HubError::PageGone(next) = error {
        status["metadata"]["continue"] = write_continue(next).into();
    }
    if !details.is_empty() {
        status["details"] = details.into();
    }
    (code, status)
}

/// What is said while the database is away.
pub(crate) fn away(why: &str) -> String {
    format!("the hub's database is not available: {why}; please try again later")
}

/// After how many seconds the same request may do.
fn retry_after(error: &HubError) -> Option<u64> {
    let later =
        matches!(error, HubError::TooLargeVersion { .. } | HubError::TooMany(_) | HubError::Unavailable(_));
    (later || error.outage().is_some()).then_some(1)
}

/// Beside a response: what is wrong with the database, which is why it is a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatabaseRefuses(pub(crate) &'static str);

/// Beside a response: why somebody may not do what they asked for.
#[derive(Debug, Clone)]
struct Forbids(String);

/// Why somebody may not do what they asked for, where a response says so.
pub(crate) fn why(response: &Response) -> String {
    response.extensions().get().map_or_else(String::new, |Forbids(why)| why.clone())
}

/// An error as a response.
pub(crate) fn response(error: &HubError, address: Option<&Address>) -> Response {
    let (code, status) = status(error, address);
    let mut response = (code, Json(status)).into_response();
    if let HubError::Forbidden(why) = error {
        response.extensions_mut().insert(Forbids(why.clone()));
    }
    if let Some(why) = error.outage() {
        response.extensions_mut().insert(DatabaseRefuses(why));
    }
    if let Some(seconds) = retry_after(error) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if matches!(error, HubError::TooLarge(_) | HubError::Timeout(_)) {
        // What is still to come of the body is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An error as a response, about an object of Kubernetes' authentication that is not stored.
pub(crate) fn response_about(error: &HubError, kind: &str, name: &str) -> Response {
    let (code, mut status) = status(error, None);
    status["details"]["kind"] = kind.into();
    status["details"]["group"] = AUTHENTICATION.into();
    if !name.is_empty() {
        status["details"]["name"] = name.into();
    }
    (code, Json(status)).into_response()
}

/// A failure that is none of the domain's.
pub(crate) fn simple(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": {}, "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}

/// A path that nothing is served on, with what to do instead where that is known.
pub(crate) fn not_found(instead: Option<&str>) -> Response {
    let message = "the server could not find the requested resource";
    let message = instead.map_or_else(|| message.to_owned(), |instead| format!("{message}: {instead}"));
    simple(StatusCode::NOT_FOUND, "NotFound", &message)
}
