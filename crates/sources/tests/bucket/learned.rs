//! What an attempt that fails has learned by then of what a bucket holds.

use roadstead_model::Digest;
use roadstead_sources::bucket::BucketStore;
use roadstead_sources::{BucketRequest, InProcess, Source as _};
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server};

/// What a fetch that must fail has learned.
async fn learned(request: &BucketRequest) -> Option<String> {
    let outcome = request.fetch(None, &InProcess::default(), &CancellationToken::new()).await;
    outcome.unwrap_err().learned.map(|learned| learned.revision.to_string())
}

#[tokio::test]
async fn what_is_listed_is_known_before_it_is_received() {
    let server = Server::start(BucketStore::S3, true).await;
    server.put("app.yaml", "one");
    let found = Some(Digest::of(b"app.yaml e1\n").to_string());
    server.fault(Fault::ObjectsAt("http://127.0.0.1:1/elsewhere".to_owned()));
    assert_eq!(learned(&server.request()).await, found);
    server.fault(Fault::None);
    let mut bounded = server.request();
    bounded.limits.artifact_bytes = 10;
    assert_eq!(learned(&bounded).await, found);
    for fault in [Fault::List("no list".to_owned()), Fault::Status(500, String::new())] {
        server.fault(fault);
        assert_eq!(learned(&server.request()).await, None);
    }
}
