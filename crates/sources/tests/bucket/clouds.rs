//! Buckets of clouds, which are asked by what a cloud gives out.

use roadstead_model::Reason;
use roadstead_sources::BucketRequest;
use roadstead_sources::bucket::{BucketLogin, BucketStore};

use crate::clouds_stand::{OUTSIDE, TokenStand};
use crate::fetch::{fetch, fetched};
use crate::server::{Fault, Server};

#[tokio::test]
async fn requests_are_signed_with_sessions_and_tokens_of_the_cloud() {
    for (cloud, store) in [("aws", BucketStore::S3), ("gcp", BucketStore::Gcs)] {
        let (server, stand) = (Server::start(store, true).await, TokenStand::new(&["right"]));
        server.put("a", "a");
        let identity = stand.identity(cloud, &[server.address]);
        let request = BucketRequest {
            login: BucketLogin::Cloud { identity, sts: None },
            region: Some("eu-west-1".to_owned()),
            ..server.request()
        };
        for _ in 0..2 {
            fetched(request.clone()).await;
        }
        assert_eq!(stand.server.requests(), 1, "{cloud}: what was given out is kept");
        for seen in server.seen() {
            if cloud == "gcp" {
                assert_eq!(seen.authorization(), "Bearer right");
                continue;
            }
            assert!(seen.authorization().starts_with("AWS4-HMAC-SHA256 Credential=ASIA/"), "{seen:?}");
            assert!(seen.authorization().contains("/eu-west-1/s3/"), "{seen:?}");
            assert_eq!(seen.headers["x-amz-security-token"], "session");
        }
    }
}

#[tokio::test]
async fn a_token_that_is_refused_is_asked_for_once_more() {
    for (cloud, store, status, code) in [
        ("gcp", BucketStore::Gcs, 401, "{}"),
        ("aws", BucketStore::S3, 400, "<Error><Code>ExpiredToken</Code></Error>"),
        ("aws", BucketStore::S3, 403, "<Error><Code>InvalidAccessKeyId</Code></Error>"),
    ] {
        let (server, stand) = (Server::start(store, true).await, TokenStand::new(&["wr0ng"]));
        server.fault(Fault::Status(status, code.to_owned()));
        let login = BucketLogin::Cloud { identity: stand.identity(cloud, &[server.address]), sts: None };
        let error = fetch(BucketRequest { login, ..server.request() }).await.unwrap_err();
        assert_eq!((stand.server.requests(), server.seen().len()), (2, 2), "{cloud} {code}: {error}");
        assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error}");
    }
    // One that may not read it is not asked again.
    let (server, stand) = (Server::start(BucketStore::S3, true).await, TokenStand::new(&["x"]));
    server.fault(Fault::Status(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()));
    let login = BucketLogin::Cloud { identity: stand.identity("aws", &[server.address]), sts: None };
    fetch(BucketRequest { login, ..server.request() }).await.unwrap_err();
    assert_eq!(stand.server.requests(), 1);
}

#[tokio::test]
async fn stores_and_token_services_that_are_not_of_the_cloud_get_nothing() {
    for (cloud, store) in [("aws", BucketStore::S3), ("gcp", BucketStore::Gcs)] {
        let (server, stand) = (Server::start(store, true).await, TokenStand::new(&["right"]));
        server.put("a", "a");
        let ask = async |known: bool, sts: Option<String>| {
            let known = if known { vec![server.address] } else { Vec::new() };
            let login = BucketLogin::Cloud { identity: stand.identity(cloud, &known), sts };
            fetch(BucketRequest { login, ..server.request() }).await.unwrap_err()
        };
        let mut errors = vec![ask(false, None).await];
        if cloud == "aws" {
            errors.push(ask(true, Some("https://sts.evil.example".to_owned())).await);
        }
        for error in errors {
            assert_eq!(error.reason(), Reason::InvalidProviderConfiguration, "{error}");
            assert!(!format!("{error} {error:?}").contains(OUTSIDE), "{error}");
        }
        assert_eq!((stand.server.requests(), server.seen().len()), (0, 0), "{cloud}");
    }
}
