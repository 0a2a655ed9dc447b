//! Where a repository's URL may lead, and what is told of what is there.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roadstead_model::Reason;
use roadstead_outbound::{Guard, Policy, Proxies, Purpose, Resolve};
use roadstead_sources::{AttemptError, Credentials, GitError, GitRequest};
use roadstead_test_gitserver::{Commit, Fault, GitServer, Options, install_crypto};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{Kit, by, error, fetched, files, quiet_files, way_to};

async fn plain_kit() -> Kit {
    let kit = Kit::start(false, None).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    kit
}

fn login() -> Option<Credentials> {
    Some(Credentials::Basic { username: "u".to_owned(), password: "hunter2".into() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_reaches_no_address_that_the_operator_does_not_allow() {
    let kit = plain_kit().await;
    let port = kit.server.address().port();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST.",
    ] {
        let says = |port: u16| {
            let url = format!("http://{host}:{port}/app.git");
            let request = GitRequest { guard: by(&["0.0.0.0/0", "::/0"]), url, ..kit.request("main") };
            async move {
                let error = error(request).await;
                assert!(
                    matches!(error, GitError::Attempt(AttemptError::AddressRefused { .. })),
                    "{host}: {error:?}"
                );
                assert_eq!(error.reason(), Reason::URLInvalid);
                error.to_string().replace(&port.to_string(), "PORT")
            }
        };
        let (open, closed) = (says(port).await, says(closed).await);
        assert_eq!(open, closed, "what is told depends on what is there");
        assert!(open.contains("--allow-network git="), "{open}");
    }
    assert_eq!(kit.server.take_seen(), []);
    // By each of these flags it is reached.
    for rule in ["127.0.0.1", "git=127.0.0.0/8", "127.1"] {
        let request = GitRequest { guard: by(&[rule]), ..kit.request("main") };
        assert_eq!(quiet_files(request).await, ["v"], "{rule}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_lead_to_no_address_that_the_operator_does_not_allow() {
    let target = plain_kit().await;
    let kit = plain_kit().await;
    let request = GitRequest { credentials: login(), plain_http_credentials: true, ..kit.request("main") };
    let port = target.server.address().port();
    for to in [
        format!("http://127.0.0.1:{port}"),
        format!("http://127.1:{port}"),
        format!("http://[::ffff:7f00:1]:{port}"),
        format!("http://localhost:{port}"),
        "http://169.254.169.254".to_owned(),
        "http://0xa9fea9fe".to_owned(),
        "http://[fd00:ec2::254]".to_owned(),
        "http://10.0.0.1".to_owned(),
    ] {
        kit.server.fault(Fault::Redirect(to.clone()));
        let error = error(request.clone()).await;
        assert!(matches!(error, GitError::Attempt(AttemptError::AddressRefused { .. })), "{to}: {error:?}");
    }
    kit.server.fault(Fault::RedirectTo("http://169.254.169.254/latest/meta-data/".to_owned()));
    assert!(matches!(error(request.clone()).await, GitError::Attempt(AttemptError::RedirectRefused { .. })));
    // From one to the other and back again.
    let both = GitRequest { guard: way_to(&[kit.server.address(), target.server.address()]), ..request };
    assert_eq!(target.server.take_seen(), []);
    kit.server.fault(Fault::Redirect(target.server.base_url()));
    target.server.fault(Fault::Redirect(kit.server.base_url()));
    let cycle = error(both.clone()).await;
    assert!(cycle.to_string().contains("redirect loop"), "{cycle}");
    // Where it is allowed, it is followed, and the credentials stay behind.
    target.server.fault(Fault::None);
    target.server.take_seen();
    assert_eq!(quiet_files(both).await, ["v"]);
    let seen = target.server.take_seen();
    assert!(!seen.is_empty() && seen.iter().all(|seen| !seen.had_credentials), "{seen:?}");
}

/// Gives other addresses at each look-up; the last ones for ever.
struct Script(Mutex<VecDeque<&'static [&'static str]>>);

impl Resolve for Script {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        let answer = answer.ok_or_else(|| io::Error::other("nobody knows it"));
        Box::pin(async { Ok(answer?.iter().map(|text| text.parse().unwrap()).collect()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_elsewhere_the_second_time_is_refused_then() {
    let kit = plain_kit().await;
    let port = kit.server.address().port();
    let with = |answers: &[&'static [&'static str]]| GitRequest {
        url: format!("http://rebinds.example:{port}/app.git"),
        guard: by(&[format!("127.0.0.1:{port}")])
            .with_resolver(Arc::new(Script(Mutex::new(answers.iter().copied().collect())))),
        ..kit.request("main")
    };
    let request = with(&[&["127.0.0.1"], &["127.0.0.3"]]);
    assert_eq!(files(&fetched(request.clone()).await), ["v"]);
    let error = error(request).await;
    assert!(matches!(error, GitError::Attempt(AttemptError::AddressRefused { .. })), "{error:?}");
    // Of mixed answers, whichever comes first.
    for mixed in [&["127.0.0.3", "127.0.0.1"] as &[&str], &["127.0.0.1", "10.0.0.1"]] {
        assert_eq!(files(&fetched(with(&[mixed])).await), ["v"]);
    }
}

/// A listener that does this with each connection.
async fn listener<F>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_an_allowed_network_does_not_depend_on_what_listens_there() {
    install_crypto();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = free.local_addr().unwrap();
    drop(free);
    let silent = listener(|stream| async move {
        let mut stream = stream;
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
    })
    .await;
    let babbling = listener(|mut stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
    })
    .await;
    let cutting = listener(|stream| async move { drop(stream) }).await;
    let trusted_by_others = GitServer::start(Options::default()).await.unwrap();
    let mut told = Vec::new();
    for (what, address) in [
        ("closed", closed),
        ("silent", silent),
        ("another protocol", babbling),
        ("cuts", cutting),
        ("an untrusted certificate", trusted_by_others.address()),
    ] {
        for scheme in ["http", "https"] {
            if what == "an untrusted certificate" && scheme == "http" {
                // It is closed in the handshake: as "cuts".
                continue;
            }
            let request = GitRequest {
                guard: by(&["127.0.0.0/8"]),
                timeout: Duration::from_millis(800),
                ..GitRequest::new(format!("{scheme}://{address}/app.git"))
            };
            let error = error(request).await;
            assert!(
                matches!(error, GitError::Attempt(AttemptError::NotReached { .. })),
                "{what}, {scheme}: {error:?}"
            );
            assert!(error.is_transient() && error.reason() == Reason::GitOperationFailed);
            let text = error.to_string().replace(&format!("{scheme}://{address}"), "URL");
            told.push((what, text));
        }
    }
    for (what, text) in &told {
        assert_eq!(*text, told[0].1, "{what}");
    }
    // Of one endpoint that the operator named with its port, all is told: there is nothing to look around in.
    let request =
        GitRequest { guard: way_to(&[closed]), ..GitRequest::new(format!("http://{closed}/app.git")) };
    let error = error(request).await;
    assert!(matches!(error, GitError::Attempt(AttemptError::Unreachable { .. })), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_not_sent_in_the_clear_unless_that_is_allowed() {
    let kit = plain_kit().await;
    for credentials in [login(), Some(Credentials::Bearer("hunter2".into()))] {
        let error = error(GitRequest { credentials, ..kit.request("main") }).await;
        assert!(matches!(error, GitError::PlainCredentials { .. }), "{error:?}");
        assert_eq!(error.reason(), Reason::AuthenticationFailed);
        assert!(error.to_string().contains("--allow-plain-http-credentials"), "{error}");
    }
    assert_eq!(kit.server.take_seen(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn alternates_are_never_followed() {
    let other = plain_kit().await;
    let kit = plain_kit().await;
    let info = kit.repository.path().join("objects/info");
    std::fs::create_dir_all(&info).unwrap();
    std::fs::write(info.join("http-alternates"), format!("{}/app.git/objects\n", other.server.base_url()))
        .unwrap();
    let guard = way_to(&[kit.server.address(), other.server.address()]);
    assert_eq!(quiet_files(GitRequest { guard: guard.clone(), ..kit.request("main") }).await, ["v"]);
    let asked: Vec<String> = kit.server.take_seen().into_iter().map(|seen| seen.what).collect();
    assert!(asked.iter().all(|what| what.contains("git-upload-pack")), "{asked:?}");
    // A server of files alone, by which Git would look for them, is not spoken to at all.
    let dumb = listener(|mut stream| async move {
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await;
        let line = format!("{}\trefs/heads/main\n", "1".repeat(40));
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{line}",
            line.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
        assert_eq!(stream.read(&mut head).await.unwrap_or_default(), 0, "it asks for more");
    })
    .await;
    let request = GitRequest { guard: way_to(&[dumb]), ..GitRequest::new(format!("http://{dumb}/app.git")) };
    let error = error(request).await;
    assert!(matches!(error, GitError::Corrupt { .. }), "{error:?}");
    assert_eq!(other.server.take_seen(), []);
}

/// A proxy that takes CONNECT and leads everything to `target`; tells the first lines.
async fn proxy(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = Arc::clone(&seen);
    let address = listener(move |mut stream| {
        let lines = Arc::clone(&lines);
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            let text = String::from_utf8_lossy(&head).into_owned();
            let connect = text.starts_with("CONNECT ");
            lines.lock().unwrap().push(text);
            let mut way = TcpStream::connect(target).await.unwrap();
            if connect {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            } else {
                way.write_all(&head).await.unwrap();
            }
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut way).await;
        }
    })
    .await;
    (address, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_behind_the_operators_proxy() {
    install_crypto();
    let options = Options { names: vec!["git.example".to_owned()], ..Options::default() };
    let server = GitServer::start(options).await.unwrap();
    let repository = server.add_repository("app.git").unwrap();
    repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let (address, seen) = proxy(server.address()).await;
    // A name that only the proxy knows.
    let nobody: Arc<dyn Resolve> = Arc::new(Script(Mutex::default()));
    let guard = |through: SocketAddr| {
        Guard::new(Arc::new(Policy::default()), Purpose::Git)
            .with_resolver(Arc::clone(&nobody))
            .with_proxies(Arc::new(Proxies::all_through(&format!("http://me:hunter2@{through}"), "")))
    };
    let request = |url: &str| GitRequest {
        guard: guard(address),
        url: url.to_owned(),
        ca: server.ca_pem().map(|pem| pem.as_bytes().to_vec()),
        ..GitRequest {
            reference: roadstead_sources::GitReference::Branch("main".to_owned()),
            ..GitRequest::new("")
        }
    };
    assert_eq!(quiet_files(request("https://git.example/app.git")).await, ["v"]);
    let lines = std::mem::take(&mut *seen.lock().unwrap());
    assert!(lines.iter().all(|line| line.starts_with("CONNECT git.example:443 HTTP/1.1")), "{lines:?}");
    for url in ["https://127.0.0.1/app.git", "https://git.internal/app.git", "https://10.0.0.1/app.git"] {
        let error = error(request(url)).await;
        assert!(matches!(error, GitError::Attempt(AttemptError::AddressRefused { .. })), "{url}: {error:?}");
    }
    assert!(seen.lock().unwrap().is_empty());
    // Over plain HTTP the proxy is sent whole requests, and its password with them.
    let plain = plain_kit().await;
    let (address, seen) = proxy(plain.server.address()).await;
    let request = GitRequest { guard: guard(address), ..request("http://git.example/app.git") };
    assert_eq!(quiet_files(request).await, ["v"]);
    let lines = std::mem::take(&mut *seen.lock().unwrap());
    assert!(lines[0].starts_with("GET http://git.example/app.git/info/refs"), "{lines:?}");
    assert!(lines[0].to_lowercase().contains("proxy-authorization: basic "), "{lines:?}");
}
