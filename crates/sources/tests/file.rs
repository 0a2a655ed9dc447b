//! Single files: what is asked of their servers, and what those may do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::Pool;
use roadstead_outbound::{Guard, ListedHosts, Policy, Purpose};
use roadstead_sources::file::{FileError, FileOutcome, FileRequest, Validator, fetch_file};
use roadstead_sources::{AttemptError, Room};
use roadstead_test_gitserver::{Fault, GitServer, Options, install_crypto};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const MOST: u64 = 256 << 10;

fn request(url: &str) -> FileRequest {
    install_crypto();
    let policy = Policy::new(vec!["git=127.0.0.0/8".parse().unwrap()]);
    FileRequest {
        url: url.parse().unwrap(),
        guard: Guard::new(Arc::new(policy), Purpose::Git),
        timeout: Duration::from_secs(20),
        most_bytes: MOST,
        room: Room { pool: Pool::new("test", 2 * MOST), copies: 2 },
        disk: None,
        known: None,
    }
}

async fn fetch(request: &FileRequest) -> Result<FileOutcome, FileError> {
    fetch_file(request, &CancellationToken::new()).await
}

async fn server() -> GitServer {
    GitServer::start(Options { tls: false, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn a_file_is_sent_again_only_where_it_changed() {
    let server = server().await;
    // More than stays in memory while it comes.
    let content = "a: b\n".repeat(40_000);
    server.put_file("dir/a.yaml", content.clone());
    let mut request = request(&server.url("dir/a.yaml"));
    let Ok(FileOutcome::Fetched(fetched)) = fetch(&request).await else { panic!("no file") };
    assert_eq!(fetched.bytes, content.as_bytes());
    assert_eq!(request.room.pool.used(), (2 * content.len() as u64).next_multiple_of(1024));
    let text = fetched.validator.as_ref().unwrap().to_text();
    request.known = Validator::of_text(&text);
    assert_eq!(request.known, fetched.validator);
    drop(fetched);
    assert_eq!(request.room.pool.used(), 0);
    assert!(matches!(fetch(&request).await, Ok(FileOutcome::Unchanged)));
    server.put_file("dir/a.yaml", "c: d\n");
    let Ok(FileOutcome::Fetched(fetched)) = fetch(&request).await else { panic!("no file") };
    assert_eq!(fetched.bytes, b"c: d\n");
    assert_ne!(fetched.validator, request.known);
    assert!(server.take_seen().iter().all(|seen| !seen.had_credentials));
}

#[tokio::test]
async fn what_is_no_file_is_told_from_what_fails() {
    let server = server().await;
    let no_file = async |name: &str| match fetch(&request(&server.url(name))).await {
        Ok(FileOutcome::NoFile(what)) => what,
        Ok(_) => panic!("{name} is a file"),
        Err(error) => panic!("{name}: {error}"),
    };
    assert_eq!(no_file("none.yaml").await, "HTTP 404");
    server.put_file("page.yaml", "\n <html>hello</html>");
    assert_eq!(no_file("page.yaml").await, "a web page");
    server.fault(Fault::WebPage);
    assert_eq!(no_file("none.yaml").await, "a web page");
    server.fault(Fault::Status(502));
    let error = fetch(&request(&server.url("a.yaml"))).await.err().unwrap();
    assert!(matches!(error, FileError::Status { status: 502, .. }), "{error}");
    server.fault(Fault::RetryAfter(429, "60".to_owned()));
    let error = fetch(&request(&server.url("a.yaml"))).await.err().unwrap();
    assert!(matches!(error, FileError::Attempt(AttemptError::RateLimited { .. })), "{error}");
    // Wherever it leads, the host must be one that may be asked.
    server.fault(Fault::RedirectTo("http://169.254.169.254/latest".to_owned()));
    let error = fetch(&request(&server.url("a.yaml"))).await.err().unwrap();
    assert!(error.to_string().contains("--allow-network git=169.254.169.254/32"), "{error}");
    let mut listed = request(&server.url("a.yaml"));
    let hosts = ListedHosts::new(vec!["127.0.0.1".parse().unwrap()], "--remote-bases");
    listed.guard = listed.guard.only_to(Arc::new(hosts));
    server.fault(Fault::RedirectTo("http://127.0.0.2/a.yaml".to_owned()));
    let error = fetch(&listed).await.err().unwrap();
    assert!(error.to_string().contains("--remote-bases 127.0.0.2"), "{error}");
    server.fault(Fault::RedirectTo(server.url("a.yaml")));
    let error = fetch(&request(&server.url("a.yaml"))).await.err().unwrap();
    assert!(matches!(error, FileError::Attempt(AttemptError::RedirectRefused { .. })), "{error}");
}

/// A server that answers everybody with `head`, and then with `part` again and again.
async fn endless(head: &'static str, part: &'static [u8], pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let mut next = head.as_bytes();
                while stream.write_all(next).await.is_ok() {
                    tokio::time::sleep(pause).await;
                    next = part;
                }
            });
        }
    });
    format!("http://{address}/a.yaml")
}

#[tokio::test]
async fn what_does_not_end_is_cut() {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let url = endless(head, &[b'#'; 16 << 10], Duration::ZERO).await;
    let request_of = request(&url);
    let error = fetch(&request_of).await.err().unwrap();
    assert!(matches!(error, FileError::TooLarge { limit: MOST, .. }), "{error}");
    assert_eq!(request_of.room.pool.used(), 0);
    // A byte now and then, or none at all, and no memory is set aside meanwhile.
    let url = endless(head, b"#", Duration::from_millis(50)).await;
    let slow = FileRequest { timeout: Duration::from_secs(1), ..request(&url) };
    let (done, used) = tokio::join!(fetch(&slow), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        slow.room.pool.used()
    });
    let error = done.err().unwrap();
    assert!(matches!(error, FileError::Attempt(AttemptError::Timeout { .. })), "{error}");
    assert_eq!(used, 0);
    let server = server().await;
    server.fault(Fault::HangBeforeAnswer);
    let slow = FileRequest { timeout: Duration::from_secs(1), ..request(&server.url("a.yaml")) };
    let error = fetch(&slow).await.err().unwrap();
    assert!(error.to_string().contains("a.yaml"), "{error}");
}
