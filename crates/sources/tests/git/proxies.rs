//! Git over SSH through a SOCKS5 proxy, against a real `sshd`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roadstead_outbound::ProxyServer;
use roadstead_sources::git::SshCredentials;
use roadstead_sources::{AttemptError, Credentials, GitError, GitReference, GitRequest, Secret};
use roadstead_test_gitserver::{Commit, SshKey, SshServer, install_crypto};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{by, error, fetched, files};

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
