//! The port that Prometheus reads, with nothing in it that is secret.

use std::future::ready;

use http::{Method, Request, Response, StatusCode};
use roadstead_meters::MEDIA_TYPE;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Meters;
use crate::port::{Port, plain, with_type};

/// Connections at once; the oldest makes room for one more.
const CONNECTIONS: usize = 8;

/// Serves until `stop`.
pub(crate) async fn serve(meters: Meters, listener: TcpListener, stop: CancellationToken) {
    let port = Port { listener, name: "metrics", connections: CONNECTIONS };
    port.serve(move |request| ready(answer(&meters, &request)), stop).await;
}

fn answer<B>(meters: &Meters, request: &Request<B>) -> Response<String> {
    match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET) => match meters.text() {
            Ok(text) => with_type(StatusCode::OK, MEDIA_TYPE, text),
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
        },
        ("/metrics", _) => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n"),
        _ => plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::HEAD;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

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
