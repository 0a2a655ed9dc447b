//! Git over SSH through a SOCKS5 proxy, against a real `sshd`; and over HTTPS through a proxy that is spoken to over TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roadstead_outbound::ProxyServer;
use roadstead_sources::git::SshCredentials;
use roadstead_sources::{AttemptError, Credentials, GitError, GitReference, GitRequest, Secret};
use roadstead_test_gitserver::{Authority, Commit, SshKey, SshServer, install_crypto};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::kit::{Kit, by, error, fetched, files};

/// A proxy that passes on to wherever it is asked, and tells where that was.
async fn socks() -> (SocketAddr, Arc<Mutex<Vec<SocketAddr>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move { pass_on(stream, &seen).await });
        }
    });
    (at, asked)
}

async fn pass_on(mut from: TcpStream, seen: &Mutex<Vec<SocketAddr>>) -> std::io::Result<()> {
    let mut greeting = [0; 3];
    from.read_exact(&mut greeting).await?;
    assert_eq!(greeting, [5, 1, 0]);
    from.write_all(&[5, 0]).await?;
    let mut head = [0; 4];
    from.read_exact(&mut head).await?;
    assert_eq!(head, [5, 1, 0, 1]);
    let address = Ipv4Addr::from(from.read_u32().await?);
    let to = SocketAddr::from((address, from.read_u16().await?));
    seen.lock().unwrap().push(to);
    let mut server = TcpStream::connect(to).await?;
    from.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    tokio::io::copy_bidirectional(&mut from, &mut server).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_goes_through_a_socks_proxy() {
    install_crypto();
    let server = SshServer::start().unwrap();
    let repository = server.add_repository("app.git").unwrap();
    let commit = repository.commit("main", "1", &Commit::new().file("a", "1")).unwrap();
    let key = SshKey::make(&["-t", "ed25519"], "").unwrap();
    server.authorize(&key).unwrap();
    let (at, asked) = socks().await;
    let login = SshCredentials {
        identity: Secret::new(key.identity.clone()),
        passphrase: None,
        known_hosts: server.scan().unwrap(),
    };
    let proxy = ProxyServer::of_any_url(&format!("socks5://{at}").parse().unwrap()).unwrap();
    let request = |rules: &[String]| GitRequest {
        reference: GitReference::Branch("main".to_owned()),
        credentials: Some(Credentials::Ssh(login.clone())),
        timeout: Duration::from_secs(30),
        guard: by(rules).through(proxy.clone()),
        ..GitRequest::new(server.url("app.git"))
    };
    let (to_server, to_proxy) = (server.address().to_string(), at.to_string());
    let found = fetched(request(&[to_server.clone(), to_proxy.clone()])).await;
    assert_eq!(found.revision.to_string(), format!("main@sha1:{commit}"));
    assert_eq!(files(&found), ["a"]);
    assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), [server.address()]);
    // Both ends are judged: the proxy's own address, and the one that it would connect to.
    for rules in [[to_server], [to_proxy]] {
        let told = error(request(&rules)).await;
        assert!(
            matches!(told, GitError::Attempt(AttemptError::AddressRefused { .. })),
            "{rules:?}: {told:?}"
        );
    }
    assert!(asked.lock().unwrap().is_empty());
}

/// A proxy that takes CONNECT over TLS, leads everything to `target`, and tells the heads that it was sent.
async fn over_tls(authority: &Authority, target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let acceptor = TlsAcceptor::from(authority.server_config(&["127.0.0.1".to_owned()]).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await?);
                }
                seen.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
                let mut way = TcpStream::connect(target).await?;
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                stream.flush().await?;
                tokio::io::copy_bidirectional(&mut stream, &mut way).await
            });
        }
    });
    (at, heads)
}

#[tokio::test(flavor = "multi_thread")]
async fn https_goes_through_a_proxy_that_is_spoken_to_over_tls() {
    let kit = Kit::start(true, None).await;
    kit.repository
        .commit("main", "1", &Commit::new().file("a", "1").file("b", "2".repeat(200_000).as_str()))
        .unwrap();
    let authority = Authority::new().unwrap();
    let (at, heads) = over_tls(&authority, kit.server.address()).await;
    let proxy = ProxyServer::of_any_url(&format!("https://me:hunter2@{at}").parse().unwrap()).unwrap();
    let servers = kit.server.ca_pem().unwrap();
    let request = |ca: String| {
        let guard = by(&[kit.server.address().to_string(), at.to_string()]).through(proxy.clone());
        GitRequest { guard, ca: Some(ca.into_bytes()), ..kit.request("main") }
    };
    let found = fetched(request(format!("{servers}{}", authority.pem()))).await;
    assert_eq!(files(&found), ["a", "b"]);
    let connect = format!("CONNECT {} HTTP/1.1\r\n", kit.server.address());
    let asked = std::mem::take(&mut *heads.lock().unwrap());
    assert!(!asked.is_empty() && asked.iter().all(|head| head.starts_with(&connect)), "{asked:?}");
    assert!(asked[0].contains("Proxy-Authorization: Basic bWU6aHVudGVyMg=="), "{asked:?}");
    // Whom the server is trusted by is whom the proxy is trusted by, and it is said which of the two is not.
    let told = error(request(servers.to_owned())).await.to_string();
    assert!(told.contains(&format!("the proxy {at}: TLS with it: invalid peer certificate")), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    assert!(heads.lock().unwrap().is_empty());
}
