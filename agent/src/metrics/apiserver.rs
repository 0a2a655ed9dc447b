//! Requests to the apiserver, counted on their way.

use std::task::{Context, Poll};
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use roadstead_meters::{StatusClass, label};
use tower::{Layer, Service};

use super::Meters;

label! {
    /// What a request does.
    pub(super) enum Verb of "verb" {
        Read = "read",
        Watch = "watch",
        /// A server-side apply, or another patch.
        Apply = "apply",
        /// Any write that is only tried.
        DryRun = "dry_run",
        Create = "create",
        Update = "update",
        Delete = "delete",
        Other = "other",
    }
}

impl Verb {
    fn of(method: &Method, uri: &Uri) -> Self {
        let has = |wanted: &str| uri.query().is_some_and(|query| query.split('&').any(|part| part == wanted));
        match *method {
            Method::GET if has("watch=true") || has("watch=1") => Self::Watch,
            Method::GET | Method::HEAD => Self::Read,
            _ if has("dryRun=All") => Self::DryRun,
            Method::PATCH => Self::Apply,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::DELETE => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// Counts the requests of a client.
#[derive(Debug, Clone)]
pub(crate) struct CountRequests(pub(crate) Meters);

impl<S> Layer<S> for CountRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, meters: self.0.clone() }
    }
}

/// See [`CountRequests`].
#[derive(Debug, Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    meters: Meters,
}

impl<S, B, R> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (verb, began) = (Verb::of(request.method(), request.uri()), Instant::now());
        let meters = self.meters.clone();
        let answered = self.inner.call(request).inspect(move |answer| {
            let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            meters.0.requests.at(verb, StatusClass::of(status)).inc();
            meters.0.requests_took.at(verb, ()).observe(began.elapsed());
        });
        answered.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_what_they_do() {
        let meters = Meters::default();
        let answer = |request: Request<()>| async move {
            match request.uri().path() {
                "/cut" => Err("cut"),
                _ => Ok(Response::builder().status(409).body(()).unwrap()),
            }
        };
        let mut client = CountRequests(meters.clone()).layer(tower::service_fn(answer));
        for (method, uri) in [
            ("PATCH", "/a?fieldManager=x&dryRun=All"),
            ("PATCH", "/a?fieldManager=dryRun"),
            ("GET", "/a?watch=true&allowWatchBookmarks=true"),
            ("GET", "/cut"),
        ] {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let _ = client.call(request).await;
        }
        let text = meters.text().unwrap();
        for (verb, code) in [("dry_run", "4xx"), ("apply", "4xx"), ("watch", "4xx"), ("read", "none")] {
            let line =
                format!("roadstead_agent_apiserver_requests_total{{verb=\"{verb}\",code=\"{code}\"}} 1");
            assert!(text.lines().any(|is| is == line), "no {line} in {text}");
        }
    }
}
