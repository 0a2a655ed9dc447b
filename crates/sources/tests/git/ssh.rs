//! Against a real `sshd` with the system's `git` behind it, with keys made by `ssh-keygen`.

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use roadstead_model::Reason;
use roadstead_sources::git::SshCredentials;
use roadstead_sources::{
    AttemptError, Credentials, GitError, GitLimits, GitReference, GitRequest, Measure, Outcome, Secret, fetch,
};
use roadstead_test_gitserver::{Commit, Repository, SshKey, SshServer, install_crypto};
use tokio_util::sync::CancellationToken;

use crate::kit::{by, error, fetched, fetched_again, files, way_to};

/// A server, its repository, a key that it lets in, and what is known of its own.
struct Kit {
    server: SshServer,
    repository: Repository,
    key: SshKey,
}

impl Kit {
    fn start() -> Self {
        Self::of(SshServer::start().unwrap())
    }

    fn of(server: SshServer) -> Self {
        install_crypto();
        let repository = server.add_repository("app.git").unwrap();
        repository.commit("main", "1", &Commit::new().file("a/app.yaml", "kind: A\n")).unwrap();
        let key = SshKey::make(&["-t", "ed25519"], "").unwrap();
        server.authorize(&key).unwrap();
        Self { server, repository, key }
    }

    fn login(&self) -> SshCredentials {
        SshCredentials {
            identity: Secret::new(self.key.identity.clone()),
            passphrase: None,
            known_hosts: self.server.scan().unwrap(),
        }
    }

    fn request(&self) -> GitRequest {
        self.request_with(self.login())
    }

    fn request_with(&self, login: SshCredentials) -> GitRequest {
        GitRequest {
            reference: GitReference::Branch("main".to_owned()),
            credentials: Some(Credentials::Ssh(login)),
            timeout: Duration::from_secs(30),
            guard: way_to(&[self.server.address()]),
            ..GitRequest::new(self.server.url("app.git"))
        }
    }

    fn request_knowing(&self, known_hosts: String) -> GitRequest {
        self.request_with(SshCredentials { known_hosts, ..self.login() })
    }

    /// How often somebody logged in.
    fn logins(&self) -> usize {
        self.server.log().iter().filter(|line| line.starts_with("Accepted publickey")).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_tags_and_commits_over_one_connection_each() {
    let kit = Kit::start();
    let one = kit.repository.git(["rev-parse", "main"], &[], b"").unwrap();
    kit.repository.annotated_tag("v1", &one).unwrap();
    let two = kit.repository.commit("main", "2", &Commit::new().file("b", "two")).unwrap();
    for (reference, revision, wanted) in [
        (GitReference::Branch("main".to_owned()), format!("main@sha1:{two}"), &["a/app.yaml", "b"][..]),
        (GitReference::Tag("v1".to_owned()), format!("v1@sha1:{one}"), &["a/app.yaml"]),
        (GitReference::Commit { id: one.clone(), branch: None }, format!("sha1:{one}"), &["a/app.yaml"]),
    ] {
        let before = kit.logins();
        let fetched = fetched(GitRequest { reference, ..kit.request() }).await;
        assert_eq!(fetched.revision.to_string(), revision);
        assert_eq!(files(&fetched), wanted);
        assert_eq!(kit.logins(), before + 1, "{}", kit.server.log().join("\n"));
    }
    let nothing = GitRequest { reference: GitReference::Branch("none".to_owned()), ..kit.request() };
    assert!(matches!(error(nothing).await, GitError::ReferenceNotFound { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_repository_is_one_listing() {
    let kit = Kit::start();
    let request = kit.request();
    // The second time it is known what the server says of itself.
    let first = fetched_again(request.clone()).await;
    for _ in 0..2 {
        let request = GitRequest { known: Some(first.revision.clone()), ..request.clone() };
        let outcome = fetch(request, &CancellationToken::new()).await.unwrap();
        assert!(
            matches!(&outcome, Outcome::Unchanged(revision) if *revision == first.revision),
            "{outcome:?}"
        );
    }
    assert_eq!(kit.logins(), 3);
    let two = kit.repository.commit("main", "2", &Commit::new().file("b", "two")).unwrap();
    let second = fetched_again(GitRequest { known: Some(first.revision), ..request }).await;
    assert_eq!(second.revision.content(), Some(two.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_speaks_the_old_protocol_only() {
    let kit = Kit::of(SshServer::start_with(&[&["-t", "ed25519"]], &[]).unwrap());
    let one = kit.repository.git(["rev-parse", "main"], &[], b"").unwrap();
    kit.repository.annotated_tag("v1", &one).unwrap();
    let big: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    kit.repository.commit("main", "2", &Commit::new().file("big", big)).unwrap();
    let main = fetched(kit.request()).await;
    assert_eq!(files(&main), ["a/app.yaml", "big"]);
    let request = GitRequest { known: Some(main.revision.clone()), ..kit.request() };
    assert!(matches!(fetch(request, &CancellationToken::new()).await.unwrap(), Outcome::Unchanged(_)));
    let tag = fetched(GitRequest { reference: GitReference::Tag("v1".to_owned()), ..kit.request() }).await;
    assert_eq!(tag.revision.to_string(), format!("v1@sha1:{one}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_kinds_and_formats_log_in() {
    let kit = Kit::start();
    for (kind, passphrase) in [
        (&["-t", "ed25519"][..], "pass phräse"),
        (&["-t", "rsa", "-b", "2048"], ""),
        (&["-t", "rsa", "-b", "2048"], "secret"),
        (&["-t", "rsa", "-b", "2048", "-m", "PEM"], ""),
        (&["-t", "rsa", "-b", "2048", "-m", "PEM"], "secret"),
        (&["-t", "rsa", "-b", "2048", "-m", "PKCS8"], ""),
        (&["-t", "ecdsa", "-b", "256"], ""),
        (&["-t", "ecdsa", "-b", "384"], "secret"),
        (&["-t", "ecdsa", "-b", "521"], ""),
        (&["-t", "ecdsa", "-b", "256", "-m", "PEM"], ""),
        (&["-t", "ecdsa", "-b", "384", "-m", "PKCS8"], ""),
    ] {
        let key = SshKey::make(kind, passphrase).unwrap();
        kit.server.authorize(&key).unwrap();
        let login = |passphrase: Option<&str>| {
            kit.request_with(SshCredentials {
                identity: Secret::new(key.identity.clone()),
                passphrase: passphrase.map(Secret::from),
                ..kit.login()
            })
        };
        let passed = Some(passphrase).filter(|text| !text.is_empty());
        let outcome = fetch(login(passed), &CancellationToken::new()).await;
        assert!(matches!(outcome, Ok(Outcome::Fetched(_))), "{kind:?}: {outcome:?}");
        if passed.is_some() {
            let none = error(login(None)).await;
            assert!(none.to_string().contains("`password`"), "{none}");
            let wrong = error(login(Some("wr0ng-0ne"))).await;
            assert!(matches!(wrong, GitError::LoginUnusable { .. }), "{wrong:?}");
            assert!(wrong.to_string().contains("not the one of the key"), "{wrong}");
            assert_eq!(
                (none.reason(), wrong.reason()),
                (Reason::AuthenticationFailed, Reason::AuthenticationFailed)
            );
            let told = format!("{wrong} {wrong:?} {none:?} {:?}", login(Some("wr0ng-0ne")));
            assert!(!told.contains("wr0ng") && !told.contains(&key.identity[40..80]), "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_let_in_is_named_by_its_fingerprint() {
    let kit = Kit::start();
    for kind in [&["-t", "ed25519"][..], &["-t", "rsa", "-b", "2048"]] {
        let other = SshKey::make(kind, "").unwrap();
        let login = SshCredentials { identity: Secret::new(other.identity), ..kit.login() };
        let refused = error(kit.request_with(login)).await;
        assert!(matches!(refused, GitError::KeyNotAccepted { partial: false, .. }), "{refused:?}");
        assert_eq!(refused.reason(), Reason::AuthenticationFailed);
        let text = refused.to_string();
        assert!(
            text.contains("SHA256:") && text.contains(kit.server.user()) && text.contains("deploy key"),
            "{text}"
        );
    }
    let without = error(GitRequest { credentials: None, ..kit.request() }).await;
    assert!(without.to_string().contains("`identity` and `known_hosts`"), "{without}");
    assert_eq!(without.reason(), Reason::AuthenticationFailed);
    // A password is not for SSH, and a key not for HTTP.
    let basic = Credentials::Basic { username: "git".to_owned(), password: "pw".into() };
    let basic = error(GitRequest { credentials: Some(basic), ..kit.request() }).await;
    assert!(matches!(basic, GitError::LoginUnusable { .. }), "{basic:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_who_known_hosts_says() {
    let mut kit = Kit::start();
    let scanned = kit.server.scan().unwrap();
    let port = kit.server.address().port();
    let key = scanned.lines().find(|line| !line.starts_with('#')).unwrap();
    let key = key.split_once(' ').unwrap().1;
    let own = [
        format!("[127.0.0.1]:{port} {key}"),
        format!("# comment\n\n  [127.0.0.1]:{port}   {key} comment\r\n"),
        format!("[other]:{port},[127.0.0.?]:{port} {key}"),
        format!("*,!other.example {key}"),
    ];
    for known in own {
        let outcome = fetch(kit.request_knowing(known.clone()), &CancellationToken::new()).await;
        assert!(matches!(outcome, Ok(Outcome::Fetched(_))), "{known}: {outcome:?}");
    }
    // Names that are hashed by OpenSSH itself.
    let hashed = ssh_keygen_hashed(&scanned);
    assert!(hashed.contains("|1|") && !hashed.contains("127.0.0.1"), "{hashed}");
    fetched(kit.request_knowing(hashed)).await;

    for (known, word) in [
        (String::new(), "key is unknown"),
        (format!("127.0.0.1 {key}"), "key is unknown"),
        (format!("[127.0.0.2]:{port} {key}"), "key is unknown"),
        (format!("*,![127.0.0.1]:{port} {key}"), "key is unknown"),
        (format!("@revoked * {key}\n[127.0.0.1]:{port} {key}"), "key is revoked"),
        (format!("[127.0.0.1]:{port} {key}\n@revoked other.example {key}"), "key is revoked"),
    ] {
        let refused = error(kit.request_knowing(known.clone())).await;
        assert!(matches!(refused, GitError::HostUntrusted { .. }), "{known}: {refused:?}");
        assert_eq!(refused.reason(), Reason::GitOperationFailed);
        let text = refused.to_string();
        assert!(text.contains(word) && text.contains(&format!("ssh-keyscan -p {port} 127.0.0.1")), "{text}");
    }
    let broken = error(kit.request_knowing(format!("{scanned}\n[127.0.0.1]:{port} ssh-ed25519"))).await;
    assert!(broken.to_string().contains("`known_hosts`"), "{broken}");
    assert_eq!(broken.reason(), Reason::AuthenticationFailed);

    // Another key, and one of another kind.
    let logins = kit.logins();
    kit.server.renew_host_keys(&[&["-t", "ed25519"]]).unwrap();
    let changed = error(kit.request_knowing(scanned.clone())).await;
    assert!(
        changed.to_string().contains("key mismatch") && changed.to_string().contains("SHA256:"),
        "{changed}"
    );
    kit.server.renew_host_keys(&[&["-t", "ecdsa", "-b", "256"]]).unwrap();
    let changed = error(kit.request_knowing(scanned)).await;
    assert!(changed.to_string().contains("key mismatch"), "{changed}");
    assert_eq!(kit.logins(), logins, "it logged in at a host that it does not trust");
    fetched(kit.request()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kinds_of_keys_that_are_known_are_asked_for() {
    let kinds: [&[&str]; 5] = [
        &["-t", "ed25519"],
        &["-t", "rsa", "-b", "2048"],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "384"],
        &["-t", "ecdsa", "-b", "521"],
    ];
    let kit = Kit::of(SshServer::start_with(&kinds, &["AcceptEnv GIT_PROTOCOL"]).unwrap());
    let port = kit.server.address().port();
    for index in 0..kinds.len() {
        let public = std::fs::read_to_string(kit.server.host_key(index).with_extension("pub")).unwrap();
        let known = format!("[127.0.0.1]:{port} {public}");
        let outcome = fetch(kit.request_knowing(known), &CancellationToken::new()).await;
        assert!(matches!(outcome, Ok(Outcome::Fetched(_))), "{public}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_certificate() {
    let mut kit = Kit::start();
    let port = kit.server.address().port();
    let authority = tempfile::tempdir().unwrap();
    let ca = authority.path().join("ca");
    keygen(&["-q", "-t", "ed25519", "-N", "", "-f", ca.to_str().unwrap()]);
    let public = std::fs::read_to_string(ca.with_extension("pub")).unwrap();
    let known = format!("@cert-authority [127.0.0.1]:{port} {public}");
    // It has none yet.
    let none = error(kit.request_knowing(known.clone())).await;
    assert!(none.to_string().contains("key mismatch"), "{none}");

    let host = kit.server.host_key(0);
    let sign = |principals: &str, validity: &str| {
        let host = host.with_extension("pub");
        let args = ["-q", "-s", ca.to_str().unwrap(), "-h", "-I", "host", "-n", principals, "-V", validity];
        keygen(&[&args[..], &[host.to_str().unwrap()]].concat());
    };
    sign("127.0.0.1", "-1d:+1d");
    let certificate = format!("HostCertificate {}-cert.pub", host.display());
    kit.server.restart_with(1, &[certificate]).unwrap();
    fetched(kit.request_knowing(known.clone())).await;
    // Whoever trusts the key alone, still does.
    let key = std::fs::read_to_string(host.with_extension("pub")).unwrap();
    fetched(kit.request_knowing(format!("[127.0.0.1]:{port} {key}"))).await;
    // Another authority's, and a revoked one's.
    keygen(&["-q", "-t", "ed25519", "-N", "", "-f", authority.path().join("other").to_str().unwrap()]);
    let other = std::fs::read_to_string(authority.path().join("other.pub")).unwrap();
    let refused = error(kit.request_knowing(format!("@cert-authority * {other}"))).await;
    assert!(refused.to_string().contains("key mismatch"), "{refused}");
    let refused = error(kit.request_knowing(format!("{known}@revoked * {public}"))).await;
    assert!(refused.to_string().contains("revoked"), "{refused}");
    for (principals, validity, word) in
        [("git.example", "-1d:+1d", "for other hosts"), ("127.0.0.1", "-2d:-1d", "expired")]
    {
        sign(principals, validity);
        kit.server.restart_with(1, &[]).unwrap();
        let refused = error(kit.request_knowing(known.clone())).await;
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_not_there_and_paths_with_anything_in_them() {
    let kit = Kit::start();
    let missing = error(GitRequest { url: kit.server.url("none.git"), ..kit.request() }).await;
    assert!(matches!(missing, GitError::NotServed { .. }), "{missing:?}");
    assert!(missing.to_string().contains("does not appear to be a git repository"), "{missing}");
    assert!(!missing.is_transient());
    let odd = "it's $(touch x) `id` !! %41 \u{e4}.git";
    let repository = kit.server.add_repository(odd).unwrap();
    repository.commit("main", "odd", &Commit::new().file("odd", "1")).unwrap();
    let encoded = odd.replace('%', "%25").replace(' ', "%20").replace('`', "%60");
    let fetched = fetched(GitRequest { url: kit.server.url(&encoded), ..kit.request() }).await;
    assert_eq!(files(&fetched), ["odd"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_sends_is_bounded() {
    let kit = Kit::start();
    let noise: Vec<u8> = (0..500_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    kit.repository.commit("main", "2", &Commit::new().file("noise", noise)).unwrap();
    for index in 0..200 {
        kit.repository.tag(&format!("t{index}"), "main").unwrap();
    }
    let limits = GitLimits { transfer_bytes: 100_000, ..GitLimits::default() };
    let large = error(GitRequest { limits, ..kit.request() }).await;
    assert!(matches!(large, GitError::TooLarge { measure: Measure::TransferBytes, .. }), "{large:?}");
    // All references come with the greeting of the old protocol.
    let old = Kit::of(SshServer::start_with(&[&["-t", "ed25519"]], &[]).unwrap());
    for index in 0..200 {
        old.repository.tag(&format!("t{index}"), "main").unwrap();
    }
    let limits = GitLimits { advertisement_bytes: 5_000, ..GitLimits::default() };
    let many = error(GitRequest { limits, ..old.request() }).await;
    assert!(matches!(many, GitError::TooLarge { measure: Measure::AdvertisementBytes, .. }), "{many:?}");
}

/// A server that is not an SSH server: sends `bytes` to whoever connects, and waits.
fn fake(bytes: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Whoever gives up first.
            let _ = stream.write_all(bytes);
            held.push(stream);
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_none_and_addresses_that_are_not_allowed() {
    let kit = Kit::start();
    let at = |address: std::net::SocketAddr, guard| {
        let scanned = kit.server.scan().unwrap();
        let known_hosts =
            scanned.replace(&kit.server.address().port().to_string(), &address.port().to_string());
        GitRequest {
            url: format!("ssh://git@{address}/app.git"),
            timeout: Duration::from_secs(2),
            guard,
            ..kit.request_knowing(known_hosts)
        }
    };
    let silent = fake(b"");
    let late = error(at(silent, way_to(&[silent]))).await;
    assert!(matches!(late, GitError::Attempt(AttemptError::Timeout { phase: "connecting", .. })), "{late:?}");
    let half = fake(b"SSH-2.0-fake\r\n");
    let late = error(at(half, way_to(&[half]))).await;
    assert!(matches!(late, GitError::Attempt(AttemptError::Timeout { .. })), "{late:?}");
    let web = fake(b"HTTP/1.1 400 Bad Request\r\n\r\n\x00\x00\x00\x00\x00\x00\x00\x00");
    let none = error(at(web, way_to(&[web]))).await;
    assert!(
        matches!(
            none,
            GitError::Attempt(AttemptError::Timeout { .. })
                | GitError::Attempt(AttemptError::Unreachable { .. })
        ),
        "{none:?}"
    );

    let refused = error(GitRequest { guard: by(&[] as &[&str]), ..kit.request() }).await;
    assert!(matches!(refused, GitError::Attempt(AttemptError::AddressRefused { .. })), "{refused:?}");
    assert!(refused.to_string().contains("--allow-network git=127.0.0.1/32"), "{refused}");
    // Of a whole network it is not told what listens where.
    let coarse = || by(&["127.0.0.0/8"]);
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let other_key =
        kit.request_knowing(format!("* {}", SshKey::make(&["-t", "ed25519"], "").unwrap().public));
    let mut texts = Vec::new();
    for request in [
        at(closed, coarse()),
        at(silent, coarse()),
        at(half, coarse()),
        GitRequest { guard: coarse(), ..other_key },
    ] {
        let url = request.url.clone();
        let error = error(request).await;
        assert!(matches!(error, GitError::Attempt(AttemptError::NotReached { .. })), "{error:?}");
        texts.push(error.to_string().replace(&url, "URL").replace(&roadstead_shown(&url), "URL"));
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:#?}");
    // Who is who they should be is told all.
    let missing = GitRequest { guard: coarse(), url: kit.server.url("none.git"), ..kit.request() };
    assert!(matches!(error(missing).await, GitError::NotServed { .. }));
}

/// A URL without its user.
fn roadstead_shown(url: &str) -> String {
    GitRequest::new(url).shown_url()
}

fn keygen(args: &[&str]) {
    let output = std::process::Command::new("ssh-keygen").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A `known_hosts` with its names hashed.
fn ssh_keygen_hashed(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known_hosts");
    std::fs::write(&path, text).unwrap();
    keygen(&["-H", "-f", path.to_str().unwrap()]);
    std::fs::read_to_string(&path).unwrap()
}
