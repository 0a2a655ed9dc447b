//! The port that Prometheus reads: HTTP without TLS, for the cluster's own network, and with nothing in it that is secret. Whoever
//! reaches it can make the agent hold a few small connections for a few seconds, and nothing more.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use roadstead_meters::MEDIA_TYPE;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Meters;

/// Connections at once; the oldest makes room for one more.
const CONNECTIONS: usize = 8;
/// So long may a request's head take, and all of a connection.
const HEAD: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(30);
/// Bytes of what comes that are held.
const BUFFER: usize = 16 * 1024;

/// Serves until `stop`.
pub(crate) async fn serve(meters: Meters, listener: TcpListener, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    let mut open = VecDeque::new();
    loop {
        let (stream, _) = tokio::select! {
            accepted = roadstead_listener::accept(&listener, "metrics") => accepted,
            () = stop.cancelled() => return,
        };
        while connections.try_join_next().is_some() {}
        open.retain(|task: &tokio::task::AbortHandle| !task.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let meters = meters.clone();
        open.push_back(connections.spawn(async move {
            // One that is cut is its client's affair.
            let _ = timeout(CONNECTION, connection(meters, stream)).await;
        }));
    }
}

async fn connection(meters: Meters, stream: TcpStream) -> Result<(), hyper::Error> {
    let answer = service_fn(move |request| {
        let answer = answer(&meters, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

fn answer<B>(meters: &Meters, request: &Request<B>) -> Response<String> {
    let (status, kind, text) = match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET) => match meters.text() {
            Ok(text) => (StatusCode::OK, MEDIA_TYPE, text),
            Err(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the metrics cannot be written\n".to_owned())
            }
        },
        ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET is allowed\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, PLAIN, "metrics are at /metrics\n".to_owned()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn ask(address: std::net::SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn connections_that_say_nothing_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(serve(Meters::default(), listener, stop.clone()));
        let mut silent = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let text = ask(address, "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"), "{text}");
        let text = ask(address, "POST /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
        // The first have made room for others.
        let mut byte = [0];
        let read = timeout(HEAD / 2, silent[0].read(&mut byte)).await.expect("it is closed before its time");
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        stop.cancel();
        serving.await.unwrap();
    }
}
