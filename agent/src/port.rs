//! A port of the agent's own: HTTP without TLS, for the cluster's own network. Whoever reaches it can make the agent hold a few small
//! connections for a few seconds, and nothing more.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// So long may a request's head take, and all of a connection.
pub(crate) const HEAD: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(30);
/// Bytes of what comes that are held.
const BUFFER: usize = 16 * 1024;

/// A port, and how many connections it holds at once: the oldest makes room for one more.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    /// The listener's name in the log.
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
}

impl Port {
    /// Serves until `stop`.
    pub(crate) async fn serve<F, A>(self, answer: F, stop: CancellationToken)
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<String>> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let mut open = VecDeque::new();
        loop {
            let (stream, _) = tokio::select! {
                accepted = roadstead_listener::accept(&self.listener, self.name) => accepted,
                () = stop.cancelled() => return,
            };
            while connections.try_join_next().is_some() {}
            open.retain(|task: &tokio::task::AbortHandle| !task.is_finished());
            if open.len() >= self.connections
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            let answer = answer.clone();
            open.push_back(connections.spawn(async move {
                // One that is cut is its client's affair.
                let _ = timeout(CONNECTION, connection(answer, stream)).await;
            }));
        }
    }
}

async fn connection<F, A>(answer: F, stream: TcpStream) -> Result<(), hyper::Error>
where
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Response<String>>,
{
    let answer = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

/// An answer for people.
pub(crate) fn plain(status: StatusCode, text: impl Into<String>) -> Response<String> {
    with_type(status, "text/plain; charset=utf-8", text)
}

/// An answer of this media type.
pub(crate) fn with_type(
    status: StatusCode,
    media: &'static str,
    text: impl Into<String>,
) -> Response<String> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
