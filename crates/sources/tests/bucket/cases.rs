//! The cases beside the repository (`../shared/source-cases/bucket.json`). Where `../shared` is not there, the test says so and tests
//! nothing.

use roadstead_sources::bucket::BucketStore;
use serde_json::Value;

use crate::fetch::{fetch, fetched, files};
use crate::server::{Fault, Server};
use crate::source_cases::{source_cases, tell};

fn cases() -> Option<Value> {
    let files = source_cases("buckets")?;
    Some(serde_json::from_slice(&files["bucket.json"]).unwrap())
}

/// A list as Google's JSON has it, which says keys and etags as they are.
fn listed(objects: &[(&str, &str)]) -> Fault {
    let items: Vec<Value> = objects
        .iter()
        .map(|(key, etag)| serde_json::json!({ "name": key, "etag": etag, "size": "1" }))
        .collect();
    Fault::List(serde_json::json!({ "items": items }).to_string())
}

#[tokio::test]
async fn revisions_are_those_of_flux() {
    let Some(cases) = cases() else { return };
    let server = Server::start(BucketStore::Gcs, false).await;
    let mut run = 0;
    for case in cases["index"].as_array().unwrap() {
        let objects: Vec<(&str, &str)> = case["objects"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, etag)| (key.as_str(), etag.as_str().unwrap()))
            .collect();
        let expected = case["revision"].as_str().unwrap();
        server.fault(listed(&objects));
        // The objects themselves are not there: it is the list that is compared.
        let known = Some(expected.parse().unwrap());
        let outcome = fetch(roadstead_sources::BucketRequest { known, ..server.request() }).await.unwrap();
        assert!(matches!(outcome, roadstead_sources::Outcome::Unchanged(_)), "{case}: {outcome:?}");
        run += 1;
    }
    tell(format_args!("bucket.json: {run} lists"));
}

#[tokio::test]
async fn hostile_keys_stay_beneath_the_root() {
    let Some(cases) = cases() else { return };
    let server = Server::start(BucketStore::Gcs, false).await;
    let mut refused = Vec::new();
    for key in cases["hostile_keys"].as_array().unwrap() {
        let key = key.as_str().unwrap();
        server.put(key, "x");
        match fetch(server.request()).await {
            Ok(_) => {
                let found = fetched(server.request()).await;
                assert!(files(&found).iter().all(|(name, _)| name == key), "{key}: {:?}", files(&found));
            }
            Err(error) => {
                assert_eq!(error.reason().as_str(), "BucketOperationFailed", "{error}");
                assert!(
                    error.to_string().starts_with("indexation of objects from bucket 'apps' failed: "),
                    "{error}"
                );
                assert!(!error.is_transient(), "{error}");
                // Nothing was asked for by that name.
                assert!(
                    server
                        .whats()
                        .iter()
                        .all(|what| what.contains("maxResults") || what.contains(".sourceignore"))
                );
                refused.push(key.to_owned());
            }
        }
        server.seen();
        server.remove(key);
    }
    let expected = ["../x", "a/../../x", "/etc/x", "a//b", "a/./b", "..", "a\0b", "C:\\x"];
    assert_eq!(refused, expected);
}
