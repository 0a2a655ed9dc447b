//! What is fetched, and what it costs.

use roadstead_model::Digest;
use roadstead_sources::bucket::{BucketStore, fetch_with};
use roadstead_sources::{BucketError, BucketRequest, Entry, Fetched, InProcess, Outcome, TreeLimits, unpack};
use tokio_util::sync::CancellationToken;

use crate::server::{Fault, Server};

pub(crate) const STORES: [BucketStore; 3] = [BucketStore::S3, BucketStore::Gcs, BucketStore::Azure];

pub(crate) async fn fetch(request: BucketRequest) -> Result<Outcome, BucketError> {
    fetch_with(request, &InProcess::default(), &CancellationToken::new()).await
}

pub(crate) async fn fetched(request: BucketRequest) -> Fetched {
    match fetch(request).await.unwrap() {
        Outcome::Fetched(fetched) => *fetched,
        Outcome::Unchanged(revision) => panic!("unchanged at {revision}"),
    }
}

pub(crate) fn files(fetched: &Fetched) -> Vec<(String, String)> {
    let tree = unpack(&fetched.artifact.bytes, &TreeLimits::default()).unwrap();
    let text = |entry: &Entry| match entry {
        Entry::File { bytes, .. } => String::from_utf8(bytes.clone()).unwrap(),
        Entry::Symlink { target } => format!("-> {target}"),
    };
    tree.iter().map(|(path, entry)| (path.clone(), text(entry))).collect()
}

fn names(fetched: &Fetched) -> Vec<String> {
    files(fetched).into_iter().map(|(name, _)| name).collect()
}

fn unchanged(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unchanged(_))
}

#[tokio::test]
async fn a_bucket_becomes_an_artifact_and_an_unchanged_one_costs_a_list() {
    for store in STORES {
        let server = Server::start(store, true).await;
        server.put("deploy/config.yaml", "one");
        server.put("a b/ü+%2e.txt", "two");
        server.put("folder/", "");
        let first = fetched(server.request()).await;
        assert_eq!(
            files(&first),
            [
                ("a b/ü+%2e.txt".to_owned(), "two".to_owned()),
                ("deploy/config.yaml".to_owned(), "one".to_owned())
            ]
        );
        let index = "a b/ü+%2e.txt e2\ndeploy/config.yaml e1\n";
        assert_eq!(first.revision.to_string(), Digest::of(index.as_bytes()).to_string(), "{store:?}");
        assert_eq!((first.artifact.files, first.artifact.unpacked_bytes), (2, 6));
        assert_eq!(first.artifact.digest, Digest::of(&first.artifact.bytes));
        server.seen();
        let request = || BucketRequest { known: Some(first.revision.clone()), ..server.request() };
        assert!(unchanged(&fetch(request()).await.unwrap()));
        let whats = server.whats();
        assert_eq!(whats.len(), 1, "a list and nothing else: {whats:?}");
        // One object is another one: a new revision, and all of it.
        server.put("deploy/config.yaml", "three");
        let second = fetched(request()).await;
        assert_ne!(second.revision, first.revision);
        assert_eq!(files(&second)[1].1, "three");
        // The same content put again has another etag, and so the same artifact.
        server.put("deploy/config.yaml", "three");
        let third = fetched(BucketRequest { known: Some(second.revision.clone()), ..server.request() }).await;
        assert_ne!(third.revision, second.revision);
        assert_eq!(third.artifact.digest, second.artifact.digest);
        let pinned = BucketRequest { pinned: Some(first.revision.clone()), ..server.request() };
        let error = fetch(pinned).await.unwrap_err().to_string();
        assert!(error.contains("cannot be fetched any more"), "{error}");
    }
}

#[tokio::test]
async fn lists_of_many_pages_and_a_prefix() {
    for store in STORES {
        let server = Server::start(store, false).await;
        for number in 0..25 {
            server.put(&format!("apps/{number:02}.yaml"), &number.to_string());
        }
        server.put("other.yaml", "other");
        server.page(7);
        let all = fetched(server.request()).await;
        assert_eq!(all.artifact.files, 26, "{store:?}");
        let lists =
            server.whats().into_iter().filter(|what| what.contains('?') && !what.contains("alt=media"));
        assert_eq!(lists.count(), 4);
        let some = fetched(BucketRequest { prefix: Some("apps/1".to_owned()), ..server.request() }).await;
        assert_eq!(names(&some), (10..20).map(|number| format!("apps/{number}.yaml")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn patterns_of_the_root_and_the_spec_leave_objects_out() {
    let server = Server::start(BucketStore::S3, false).await;
    for key in [
        "keep.yaml",
        "logo.png",
        ".git/config",
        "docs/a.md",
        "docs/keep.md",
        "apps/x.md",
        "apps/.sourceignore",
    ] {
        server.put(key, key);
    }
    // No defaults, and a nested file with patterns is a file.
    assert_eq!(fetched(server.request()).await.artifact.files, 7);
    server.put(".sourceignore", "docs/\n!docs/keep.md\n*.png\n");
    let by_file = fetched(server.request()).await;
    let kept =
        [".git/config", ".sourceignore", "apps/.sourceignore", "apps/x.md", "docs/keep.md", "keep.yaml"];
    assert_eq!(names(&by_file), kept);
    let ignore = Some("*.md\n.git/\n".to_owned());
    let by_both = fetched(BucketRequest { ignore, ..server.request() }).await;
    assert_eq!(names(&by_both), [".sourceignore", "apps/.sourceignore", "keep.yaml"]);
    // Of the root, also where only a part of the bucket is taken.
    let prefix = Some("docs/".to_owned());
    let part = fetched(BucketRequest { prefix, ..server.request() }).await;
    assert_eq!(names(&part), [".sourceignore", "docs/keep.md"]);
    // What is left out is not received.
    let received = server.whats().into_iter().filter(|what| what.ends_with("docs/a.md")).count();
    assert_eq!(received, 1);
}

#[tokio::test]
async fn an_empty_bucket_is_an_artifact_and_a_missing_one_is_said_so() {
    let server = Server::start(BucketStore::S3, false).await;
    let empty = fetched(server.request()).await;
    assert_eq!(empty.revision.to_string(), Digest::of(b"").to_string());
    assert_eq!(files(&empty), []);
    let missing = BucketRequest { bucket: "missing".to_owned(), ..server.request() };
    let error = fetch(missing).await.unwrap_err();
    assert_eq!(error.to_string(), "bucket 'missing' not found");
    assert_eq!(error.reason().as_str(), "BucketOperationFailed");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn what_changes_between_the_list_and_the_objects_is_listed_again() {
    for store in STORES {
        let server = Server::start(store, false).await;
        server.put("a", "old");
        server.put("b", "b");
        server.fault(Fault::After("a".to_owned(), Some("new"), 1));
        let found = fetched(server.request()).await;
        assert_eq!(files(&found), [("a".to_owned(), "new".to_owned()), ("b".to_owned(), "b".to_owned())]);
        assert_eq!(found.revision.to_string(), Digest::of(b"a e3\nb e2\n").to_string());
        // An object that is gone leaves the list.
        server.fault(Fault::After("b".to_owned(), None, 1));
        let found = fetched(server.request()).await;
        assert_eq!(names(&found), ["a"]);
        assert_eq!(found.revision.to_string(), Digest::of(b"a e3\n").to_string());
        // One that never stands still is tried again later.
        server.fault(Fault::After("a".to_owned(), Some("newer"), 100));
        let error = fetch(server.request()).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        let start = "fetch from bucket 'apps' failed: failed to get 'a' object: it was replaced";
        assert!(error.to_string().starts_with(start), "{error}");
    }
}

#[tokio::test]
async fn many_objects_come_at_once_over_few_connections() {
    let server = Server::start(BucketStore::S3, true).await;
    for number in 0..300 {
        server.put(&format!("{number:03}"), &"x".repeat(1_000 + number));
    }
    let found = fetched(server.request()).await;
    assert_eq!(found.artifact.files, 300);
    assert!(server.connections() <= 12, "{} connections", server.connections());
    for (number, (name, text)) in files(&found).into_iter().enumerate() {
        assert_eq!((name, text.len()), (format!("{number:03}"), 1_000 + number));
    }
}
