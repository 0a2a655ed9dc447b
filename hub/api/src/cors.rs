//! Whether scripts of web pages may read the API's answers: only those of origins that the operator names.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::Api;

pub(crate) async fn allow(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Some(origin) = allowed(&api.options.cors_origins, request.headers()) else {
        return next.run(request).await;
    };
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response =
        if preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if preflight {
        let (methods, names) = ("GET, POST, PUT, PATCH, DELETE", "authorization, content-type, accept");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

/// The request's origin, where it is one of these.
fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    origins
        .iter()
        .any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
        .then(|| origin.clone())
}
