//! What comes of a batch, by what a collector answers.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::Signal;
use crate::wire::{ExportServiceResponse, ExportTraceServiceRequest, PartialSuccess};

/// A collector with these answers, one for each connection, and the bodies that it was sent.
async fn collector(answers: Vec<(u16, Vec<u8>)>) -> (Exporter, Arc<Mutex<Vec<Vec<u8>>>>) {
    // Another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let got = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&got);
    tokio::spawn(async move {
        for (status, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            assert!(
                head.starts_with("post /v1/traces ") && head.contains("application/x-protobuf"),
                "{head}"
            );
            assert!(head.contains("x-tenant: blue"), "{head}");
            let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).await.unwrap();
            bodies.lock().unwrap().push(body);
            let length = answer.len();
            let head =
                format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &answer].concat()).await.unwrap();
        }
    });
    let to = Destination::shared(&url, Signal::Traces).unwrap().with_headers("x-tenant=blue").unwrap();
    (Exporter::new(to, None, vec![("service.name", "test".to_owned())]).unwrap(), got)
}

fn spans() -> Vec<Finished> {
    let context = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01".parse().unwrap();
    let now = Timestamp::now();
    vec![Finished::new(context, None, "one", (now, now)), Finished::new(context, None, "two", (now, now))]
}

#[tokio::test]
async fn a_batch_that_may_be_taken_later_is_sent_again() {
    let (mut exporter, got) = collector(vec![(503, Vec::new()), (200, Vec::new())]).await;
    exporter.deliver(spans()).await;
    let bodies = got.lock().unwrap().clone();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0], bodies[1]);
    let request = ExportTraceServiceRequest::decode(bodies[0].as_slice()).unwrap();
    let names: Vec<_> =
        request.resource_spans[0].scope_spans[0].spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!((exporter.collector.lost, exporter.collector.is_told), (0, false));
}

#[tokio::test]
async fn a_batch_that_will_never_be_taken_is_sent_once_and_counted() {
    let (mut exporter, got) = collector(vec![(400, Vec::new())]).await;
    exporter.deliver(spans()).await;
    assert_eq!(got.lock().unwrap().len(), 1);
    assert_eq!((exporter.collector.lost, exporter.collector.is_told), (2, true));
}

#[tokio::test]
async fn what_a_collector_rejects_of_a_batch_is_counted() {
    let partial = PartialSuccess { rejected: 1, error_message: "too old".to_owned() };
    let answer = ExportServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let (mut exporter, _) = collector(vec![(200, answer)]).await;
    exporter.deliver(spans()).await;
    assert_eq!((exporter.collector.lost, exporter.collector.is_told), (1, true));
}
