//! Stores that lie, send without end, or say nothing.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use roadstead_sources::bucket::{BucketLimits, BucketLogin, BucketStore, Why, fetch_with};
use roadstead_sources::{
    AttemptError, BucketError, BucketRequest, Desk, Ended, Engine, InProcess, TreeLimits,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fetch::{STORES, fetch, fetched, files};
use crate::server::{Fault, Server, way_to};

async fn error(request: BucketRequest) -> BucketError {
    fetch(request).await.map(|outcome| panic!("{outcome:?}")).unwrap_err()
}

fn limited(server: &Server, change: impl FnOnce(&mut BucketLimits)) -> BucketRequest {
    let mut request = server.request();
    change(&mut request.limits);
    request
}

#[tokio::test]
async fn everything_is_bounded() {
    let server = Server::start(BucketStore::S3, false).await;
    for key in ["a", "b/c/d", "e"] {
        server.put(key, &"x".repeat(1_000));
    }
    let tree = |change: fn(&mut TreeLimits)| move |limits: &mut BucketLimits| change(&mut limits.tree);
    for (request, said, reason) in [
        (limited(&server, |limits| limits.keys = 2), "2 objects in the bucket", "BucketOperationFailed"),
        (limited(&server, |limits| limits.page_bytes = 50), "50 bytes of lists", "BucketOperationFailed"),
        (limited(&server, |limits| limits.list_bytes = 50), "50 bytes of lists", "BucketOperationFailed"),
        (limited(&server, |limits| limits.index_bytes = 50), "50 bytes of keys", "BucketOperationFailed"),
        (limited(&server, |limits| limits.artifact_bytes = 50), "50 bytes packed", "StorageOperationFailed"),
        (limited(&server, tree(|tree| tree.entries = 2)), "2 files", "StorageOperationFailed"),
        (
            limited(&server, tree(|tree| tree.file_bytes = 999)),
            "999 bytes in one file",
            "StorageOperationFailed",
        ),
        (
            limited(&server, tree(|tree| tree.total_bytes = 2_999)),
            "2999 bytes in all",
            "StorageOperationFailed",
        ),
        (limited(&server, tree(|tree| tree.depth = 2)), "2 folders deep", "StorageOperationFailed"),
        (limited(&server, tree(|tree| tree.path_bytes = 4)), "4 bytes in one path", "StorageOperationFailed"),
    ] {
        let error = error(request).await;
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert_eq!(error.reason().as_str(), reason, "{error}");
    }
    // Nothing of what is too large was asked for.
    let objects =
        server.whats().into_iter().filter(|what| ["/a", "/d", "/e"].iter().any(|end| what.ends_with(end)));
    assert_eq!(objects.count(), 3, "only the artifact's size shows itself when it is packed");
}

#[tokio::test]
async fn lists_end() {
    let server = Server::start(BucketStore::S3, false).await;
    server.fault(Fault::Endless);
    let by_pages = error(limited(&server, |limits| limits.pages = 20)).await;
    assert!(by_pages.to_string().contains("more than 20 pages of objects"), "{by_pages}");
    server.fault(Fault::Circle);
    let circle = error(server.request()).await;
    assert!(circle.to_string().contains("its list of objects does not end"), "{circle}");
    server.fault(Fault::Endless);
    let started = Instant::now();
    let request = BucketRequest { timeout: Duration::from_secs(1), ..server.request() };
    let by_time = error(BucketRequest {
        limits: BucketLimits { pages: usize::MAX, ..BucketLimits::default() },
        ..request
    })
    .await;
    assert!(matches!(*by_time.why, Why::Attempt(AttemptError::Timeout { .. })), "{by_time}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn lists_that_lie_are_refused() {
    let server = Server::start(BucketStore::S3, false).await;
    let list = |inner: &str| format!("<ListBucketResult>{inner}</ListBucketResult>");
    let object = |key: &str, etag: &str, size: &str| {
        format!("<Contents><Key>{key}</Key><ETag>{etag}</ETag><Size>{size}</Size></Contents>")
    };
    for (text, said) in [
        (String::new(), "not a list of objects"),
        ("<html><body>log in</body></html>".to_owned(), "not a list of objects"),
        (list(&object("a", "e", "1"))[..60].to_owned(), "invalid"),
        (list(&object("a", "e", "1").repeat(2)), "'a' stands in it twice"),
        (list(&object("a", "", "1")), "'a' has no valid etag"),
        (list(&object("a", "e", "-1")), "'a' has no valid size"),
        (list(&object("a", "e", "99999999999")), "bytes in one file"),
        (list("<IsTruncated>true</IsTruncated>"), "does not say how it goes on"),
        (format!("<!DOCTYPE x [<!ENTITY a \"b\">]>{}", list("&a;")), "declares types"),
        ("<a>".repeat(1_000), "deep"),
    ] {
        server.fault(Fault::List(text));
        let error = error(server.request()).await;
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
    server.fault(Fault::List(list(&object("other", "e", "1"))));
    let error = error(BucketRequest { prefix: Some("apps/".to_owned()), ..server.request() }).await;
    assert!(error.to_string().contains("without the prefix"), "{error}");
}

#[tokio::test]
async fn objects_have_the_size_that_is_listed() {
    for store in STORES {
        let server = Server::start(store, false).await;
        server.put("a", "right");
        for lie in ["wrong!", "shor", ""] {
            server.fault(Fault::Content(lie.into()));
            let error = error(server.request()).await;
            let start = "fetch from bucket 'apps' failed: failed to get 'a' object: the server sent something invalid";
            assert!(error.to_string().starts_with(start), "{error}");
            assert!(error.is_transient());
        }
    }
}

/// Names that some systems take for devices, or for each other, are names here: none of them becomes that of a file.
#[tokio::test]
async fn keys_are_names_in_an_artifact_only() {
    let server = Server::start(BucketStore::S3, false).await;
    let keys =
        ["A.yaml", "CON", "NUL.txt", "a.yaml", "aux/x", "dev/null", "e\u{301}", "x. ", "x:y", "\u{e9}"];
    for key in keys {
        server.put(key, key);
    }
    let found = fetched(server.request()).await;
    assert_eq!(files(&found), keys.map(|key| (key.to_owned(), key.to_owned())));
    server.put("a.yaml/b", "x");
    let error = error(server.request()).await;
    assert!(error.to_string().contains("`a.yaml/b` occurs twice, or lies beneath a file"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_without_credentials_and_only_where_the_policy_lets_them() {
    let (server, other) =
        (Server::start(BucketStore::S3, false).await, Server::start(BucketStore::S3, false).await);
    for one in [&server, &other] {
        one.put("a", "a");
    }
    let login = || BucketLogin::AccessKey { id: "id".to_owned(), secret: "hunter2".into() };
    let request = || BucketRequest { login: login(), ..server.request() };
    server.fault(Fault::ObjectsAt(other.url()));
    let refused = error(request()).await;
    assert!(matches!(*refused.why, Why::Attempt(AttemptError::AddressRefused { .. })), "{refused}");
    assert_eq!(refused.reason().as_str(), "URLInvalid");
    assert!(other.seen().is_empty());
    let guard = way_to(&[server.address, other.address]);
    let found = fetched(BucketRequest { guard, ..request() }).await;
    assert_eq!(found.artifact.files, 1);
    assert!(
        server.seen().iter().all(|seen| seen.authorization().starts_with("AWS4-HMAC-SHA256 Credential=id/"))
    );
    let seen = other.seen();
    assert!(!seen.is_empty() && seen.iter().all(|seen| seen.authorization().is_empty()), "{seen:?}");
    for (to, said) in [
        ("http://169.254.169.254".to_owned(), "169.254.169.254"),
        ("ftp://127.0.0.1".to_owned(), "leaves https"),
        ("http://user:hunter2@127.0.0.1".to_owned(), "holds credentials"),
        (server.url(), "redirect loop"),
    ] {
        server.fault(Fault::ObjectsAt(to));
        let error = error(request()).await.to_string();
        assert!(error.contains(said) && !error.contains("hunter2"), "{said}: {error}");
    }
}

#[tokio::test]
async fn servers_that_fail_hang_or_are_not_trusted() {
    let server = Server::start(BucketStore::S3, true).await;
    server.put("a", "a");
    let code = "<Error><Code>SignatureDoesNotMatch</Code><Message>hunter2</Message></Error>";
    server.fault(Fault::Status(403, code.to_owned()));
    let denied = error(server.request()).await;
    let said = "failed to confirm existence of 'apps' bucket: the server answered HTTP 403 (SignatureDoesNotMatch); there are \
                no credentials in `spec.secretRef`";
    assert_eq!(denied.to_string(), said);
    assert_eq!(denied.reason().as_str(), "BucketOperationFailed");
    for (status, body, said, transient) in [
        (503, "<Error><Code>SlowDown</Code></Error>".to_owned(), "HTTP 503 (SlowDown)", true),
        (500, "<Error><Code>hunter2</Code></Error>".to_owned(), "HTTP 500", true),
        (400, "x".repeat(1 << 20), "HTTP 400", false),
        (204, String::new(), "HTTP 204", false),
    ] {
        server.fault(Fault::Status(status, body));
        let error = error(server.request()).await;
        let text = error.to_string();
        assert!(text.ends_with(said) && !text.contains("hunter2"), "{text}");
        assert_eq!(error.is_transient(), transient, "{text}");
    }
    server.fault(Fault::Hang);
    let request = BucketRequest { timeout: Duration::from_millis(300), ..server.request() };
    let slow = error(request).await;
    assert_eq!(
        slow.to_string(),
        format!("`{}/apps` was not fetched within 300ms (while listing the bucket)", server.url())
    );
    let strange = error(BucketRequest { ca: None, ..server.request() }).await;
    assert!(strange.to_string().contains("spec.certSecretRef"), "{strange}");
}

/// Notes what readers are told; one that was taken over brings this list of objects, and says this.
#[derive(Default)]
struct Readers {
    orders: Mutex<Vec<Vec<u8>>>,
    list: Option<Vec<u8>>,
    instead: Option<serde_json::Value>,
}

#[async_trait]
impl Engine for Readers {
    async fn admit(&self, about: &str) -> Result<(), Ended> {
        self.orders.lock().unwrap().push(about.as_bytes().to_vec());
        Ok(())
    }

    async fn run(&self, about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
        self.orders.lock().unwrap().push(order.clone());
        if let Some(reply) = &self.instead {
            return Ok(reply.to_string().into_bytes());
        }
        match &self.list {
            Some(list) if String::from_utf8_lossy(&order).contains("\"Index\"") => {
                desk.begin();
                let room = [&[2][..], &(list.len() as u64).to_le_bytes()].concat();
                desk.answer(&room).await.unwrap();
                desk.answer(&[&[3][..], list].concat()).await.unwrap();
                Ok(b"\"Indexed\"".to_vec())
            }
            _ => InProcess::default().run(about, order, desk).await,
        }
    }
}

/// A list of objects as readers bring it.
fn noted(objects: &[(&str, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, size) in objects {
        for text in [key, "e1"] {
            bytes.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for number in [*size, 0, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    bytes
}

#[tokio::test]
async fn a_reader_is_told_no_url_and_no_credentials_and_what_it_says_is_checked() {
    let server = Server::start(BucketStore::S3, true).await;
    server.put("a", "a");
    server.put(".sourceignore", "*.md");
    let login = BucketLogin::AccessKey { id: "identity".to_owned(), secret: "hunter2".into() };
    let request = BucketRequest { login, ..server.request() };
    let (readers, cancel) = (Readers::default(), CancellationToken::new());
    fetch_with(request.clone(), &readers, &cancel).await.unwrap();
    let orders = readers.orders.into_inner().unwrap();
    assert!(orders.len() >= 5, "a page, the list and the artifact");
    for order in orders {
        let text = String::from_utf8(order).unwrap();
        for word in ["127.0.0.1", "apps", "identity", "hunter2", "AWS4"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
    // One that was taken over.
    server.seen();
    let honest = Readers { list: Some(noted(&[("a", 1)])), ..Readers::default() };
    fetch_with(request.clone(), &honest, &cancel).await.unwrap();
    for list in [
        noted(&[("../../other/a", 1)]),
        noted(&[("/a", 1)]),
        noted(&[("a", 1), ("a", 1)]),
        noted(&[("a", u64::MAX)]),
        noted(&[("a", 1)])[1..].to_vec(),
        vec![0xff; 1_000],
    ] {
        server.seen();
        let readers = Readers { list: Some(list.clone()), ..Readers::default() };
        fetch_with(request.clone(), &readers, &cancel).await.unwrap_err();
        let whats = server.whats();
        assert!(
            whats.iter().all(|what| what.contains("/apps?") || what.ends_with(".sourceignore")),
            "{whats:?}"
        );
    }
    for reply in [
        json!({ "Next": { "next": "../../x?y", "has_patterns": false } }),
        json!("Indexed"),
        json!({ "Packed": { "files": 1, "unpacked_bytes": 1 } }),
        json!({ "Code": "hunter2" }),
        json!("nothing"),
    ] {
        let readers = Readers { instead: Some(reply.clone()), ..Readers::default() };
        assert!(fetch_with(request.clone(), &readers, &cancel).await.is_err(), "{reply}");
    }
    server.fault(Fault::Status(403, String::new()));
    let readers = Readers { instead: Some(json!({ "Code": "hunter2" })), ..Readers::default() };
    let error = fetch_with(request, &readers, &cancel).await.unwrap_err();
    assert!(error.to_string().ends_with("the server answered HTTP 403"), "{error}");
}
