//! Requests, as monitoring counts them: by what they do and how they were answered, and by nothing that whoever asks can choose.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use roadstead_hub_core::Hub;
use roadstead_hub_core::meters::RequestVerb;

/// Counts the request once its answer begins.
pub(crate) async fn count(State(hub): State<Hub>, request: Request, next: Next) -> Response {
    let (began, verb) = (Instant::now(), verb(request.method(), request.uri()));
    let open = hub.meters().request_begins();
    let response = next.run(request).await;
    drop(open);
    hub.meters().request(verb, response.status().as_u16(), began.elapsed());
    response
}

fn verb(method: &Method, uri: &Uri) -> RequestVerb {
    let is_watch = |part: &str| matches!(part, "watch" | "watch=1" | "watch=true");
    match *method {
        Method::GET if uri.query().is_some_and(|query| query.split('&').any(is_watch)) => RequestVerb::Watch,
        Method::GET | Method::HEAD => RequestVerb::Read,
        Method::POST => RequestVerb::Create,
        Method::PUT | Method::PATCH => RequestVerb::Update,
        Method::DELETE => RequestVerb::Delete,
        _ => RequestVerb::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_what_they_do() {
        let of = |method, uri: &'static str| verb(&method, &Uri::from_static(uri));
        assert_eq!(of(Method::GET, "/api/v1/events?limit=5&watch=true"), RequestVerb::Watch);
        assert_eq!(of(Method::GET, "/api/v1/events?watch=false"), RequestVerb::Read);
        assert_eq!(of(Method::HEAD, "/"), RequestVerb::Read);
        assert_eq!(of(Method::PATCH, "/a?watch=true"), RequestVerb::Update);
        assert_eq!(of(Method::from_bytes(b"MADE-UP").unwrap(), "/"), RequestVerb::Other);
    }
}
