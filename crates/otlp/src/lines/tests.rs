//! What becomes of a batch when the process ends.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Signal;

/// One line that waits, and what was done with it.
struct One {
    waiting: Option<String>,
    settled: tokio::sync::mpsc::UnboundedSender<(usize, u64)>,
}

impl Lines for One {
    async fn next(&mut self, _: usize) -> Vec<String> {
        match self.waiting.take() {
            Some(line) => vec![line],
            None => std::future::pending().await,
        }
    }

    fn ready(&mut self, _: usize) -> Vec<String> {
        self.waiting.take().into_iter().collect()
    }

    fn settle(&mut self, lines: &[String], lost: u64) {
        self.settled.send((lines.len(), lost)).unwrap();
    }
}

async fn request(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    stream.read_exact(&mut vec![0; length.parse().unwrap()]).await.unwrap();
}

async fn answer(stream: &mut TcpStream, status: u16) {
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
}

async fn exporter() -> (LineExporter, TcpListener) {
    // Another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = Destination::shared(&url, Signal::Logs).unwrap();
    (LineExporter::new(to, None, ("lines", "test"), Vec::new()).unwrap(), listener)
}

#[tokio::test]
async fn what_is_on_its_way_when_the_process_ends_arrives_once() {
    let (exporter, listener) = exporter().await;
    let (settled, mut done) = tokio::sync::mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let running = tokio::spawn(exporter.run(One { waiting: Some("{}".to_owned()), settled }, stop.clone()));
    let (mut stream, _) = listener.accept().await.unwrap();
    request(&mut stream).await;
    stop.cancel();
    // It has been told to end before the answer comes.
    tokio::task::yield_now().await;
    answer(&mut stream, 200).await;
    running.await.unwrap();
    assert_eq!(done.recv().await, Some((1, 0)));
    assert_eq!(done.recv().await, None, "it was sent twice");
}

#[tokio::test]
async fn what_waits_to_be_tried_again_is_tried_once_more_at_the_end() {
    let (exporter, listener) = exporter().await;
    let (settled, mut done) = tokio::sync::mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let running = tokio::spawn(exporter.run(One { waiting: Some("{}".to_owned()), settled }, stop.clone()));
    let (mut stream, _) = listener.accept().await.unwrap();
    request(&mut stream).await;
    answer(&mut stream, 503).await;
    stop.cancel();
    let (mut stream, _) = listener.accept().await.unwrap();
    request(&mut stream).await;
    answer(&mut stream, 200).await;
    running.await.unwrap();
    assert_eq!(done.recv().await, Some((1, 0)));
}
