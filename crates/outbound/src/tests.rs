//! The rules, as tables; and connections between loopback addresses.

mod over_tls;
mod socks;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn policy(rules: &[&str]) -> Policy {
    Policy::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
}

fn check(policy: &Policy, purpose: Purpose, host: &str, port: u16) -> Result<Detail, Refusal> {
    let host = Host::parse(host).unwrap_or_else(|| panic!("{host} is a host"));
    let Host::Ip(address) = host else { panic!("{host} is an address") };
    let own = policy.is_reserved(address, port);
    policy.check(&Candidate { purpose, host: &host, address, port, own })
}

fn everything() -> Policy {
    policy(&["0.0.0.0/0", "::/0"])
}

#[test]
fn every_notation_of_an_address_is_that_address() {
    for (address, notations) in [
        (
            "127.0.0.1",
            &[
                "127.0.0.1",
                "127.0.0.1.",
                "127.1",
                "127.0.1",
                "0x7f.1",
                "0x7F.0x0.0x0.0x1",
                "0x7f000001",
                "2130706433",
                "017700000001",
                "0177.0.0.1",
                "0177.0.0.01",
                "00000177.1",
                "127.0.0.0x1",
                "１２７.０.０.１",
                "①②⑦.⓪.⓪.①",
                "127。0。0。1",
                "%31%32%37.0.0.1",
                "[::ffff:127.0.0.1]",
                "[::ffff:7f00:1]",
                "::ffff:127.0.0.1",
                "[::127.0.0.1]",
                "[64:ff9b::127.0.0.1]",
                "[64:ff9b::7f00:1]",
                "[2002:7f00:1::]",
                "[2002:7f00:1::1]",
            ] as &[&str],
        ),
        (
            "169.254.169.254",
            &[
                "169.254.169.254",
                "169.254.43518",
                "0xa9fea9fe",
                "2852039166",
                "0251.0376.0251.0376",
                "025177524776",
                "[::ffff:a9fe:a9fe]",
                "[64:ff9b::a9fe:a9fe]",
                "[2002:a9fe:a9fe::]",
                "[::169.254.169.254]",
            ],
        ),
        ("0.0.0.0", &["0", "0.0", "0x0", "00", "0.0.0.0", "[::ffff:0.0.0.0]", "[64:ff9b::]"]),
        ("10.1.2.3", &["10.66051", "0xa.1.2.3", "012.1.2.3", "167838211", "[::ffff:10.1.2.3]"]),
    ] {
        let address: IpAddr = address.parse().unwrap();
        for notation in notations {
            let Some(Host::Ip(read)) = Host::parse(notation) else { panic!("{notation} is not an address") };
            assert_eq!(underneath(read), address, "{notation}");
            let refused = check(&Policy::default(), Purpose::Git, notation, 443).unwrap_err().to_string();
            assert!(refused.contains(&format!("--allow-network git={address}/32")), "{notation}: {refused}");
            let single = policy(&[&format!("git={address}")]);
            assert!(check(&single, Purpose::Git, notation, 443).is_ok(), "{notation}");
        }
    }
}

#[test]
fn addresses_that_are_not_public_need_an_entry() {
    use Class::{LinkLocal, Loopback, Metadata, Private, Public, Unusable};
    for (class, addresses) in [
        (
            Loopback,
            &["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "::1", "::", "::7f00:1"] as &[&str],
        ),
        (LinkLocal, &["169.254.1.1", "fe80::1", "febf::1"]),
        (
            Metadata,
            &[
                "169.254.169.254",
                "169.254.170.2",
                "169.254.170.23",
                "100.100.100.200",
                "168.63.129.16",
                "192.0.0.192",
                "fd00:ec2::254",
                "fd20:ce::254",
                "::ffff:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
                "64:ff9b:1::a9fe:a9fe",
                "2002:a9fe:a9fe::",
            ],
        ),
        (
            Private,
            &[
                "10.0.0.1",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.1.1",
                "100.64.0.1",
                "198.18.0.1",
                "192.0.0.1",
                "192.88.99.1",
                "203.0.113.1",
                "fd00::1",
                "fec0::1",
                "2001:db8::1",
                "2001::1",
                "3fff::1",
                "64:ff9b:1::808:808",
                "64:ff9b::a00:1",
                "4000::1",
                "100::1",
                "::ffff:10.0.0.1",
            ],
        ),
        (Unusable, &["224.0.0.1", "240.0.0.1", "255.255.255.255", "ff02::1"]),
        (
            Public,
            &[
                "8.8.8.8",
                "203.0.114.7",
                "172.32.0.1",
                "2606:4700::1111",
                "64:ff9b::808:808",
                "2002:808:808::",
            ],
        ),
    ] {
        for address in addresses {
            assert_eq!(classify(address.parse().unwrap()), class, "{address}");
            let allowed = |policy: &Policy| check(policy, Purpose::Git, address, 443).is_ok();
            assert_eq!(allowed(&Policy::default()), class == Public, "{address}");
            // What is this machine's, the link's or a cloud's is in no wider entry.
            assert_eq!(allowed(&everything()), matches!(class, Public | Private), "{address}");
            let own = policy(&[address]);
            assert_eq!(allowed(&own), class != Unusable, "{address}");
        }
    }
}

#[test]
fn an_entry_of_its_own_is_one_within_the_range() {
    let allowed = |rule: &str, host: &str| check(&policy(&[rule]), Purpose::Git, host, 443).is_ok();
    for (rule, host) in [
        ("127.0.0.0/8", "127.0.0.2"),
        ("127.0.0.2", "127.0.0.2"),
        ("git=127.1", "127.0.0.1"),
        ("169.254.0.0/16", "169.254.7.7"),
        ("fe80::/10", "fe80::7"),
        ("[fd00:ec2::254]:443", "fd00:ec2::254"),
        ("::1", "::1"),
        ("10.0.0.0/8:443", "10.1.2.3"),
    ] {
        assert!(allowed(rule, host), "{rule} covers {host}");
    }
    for (rule, host) in [
        ("126.0.0.0/7", "127.0.0.1"),
        ("169.254.0.0/16", "169.254.169.254"),
        ("169.254.169.254/31", "169.254.169.254"),
        ("fc00::/7", "fd00:ec2::254"),
        ("::/127", "::1"),
        ("oci=10.0.0.0/8", "10.1.2.3"),
        ("10.0.0.0/8:8443", "10.1.2.3"),
        ("git.example", "10.1.2.3"),
    ] {
        assert!(!allowed(rule, host), "{rule} does not cover {host}");
    }
}

#[test]
fn entries_are_read_and_written() {
    for (text, shown) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("git=10.1.2.3", "git=10.1.2.3/32"),
        ("git=10.1.2.3:443", "git=10.1.2.3:443"),
        ("clusters=fd00::/8", "clusters=fd00::/8"),
        ("fd00::1", "fd00::1/128"),
        ("[fd00::1]", "fd00::1/128"),
        ("[fd00::1]:443", "[fd00::1]:443"),
        ("10.0.0.0/8:443", "10.0.0.0/8:443"),
        ("kms=Vault.Corp.:8200", "kms=vault.corp:8200"),
        ("git=localhost", "git=localhost"),
    ] {
        let rule: Rule = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rule.to_string(), shown);
        assert_eq!(shown.parse::<Rule>().unwrap(), rule);
    }
    for (text, part) in [
        ("gits=10.0.0.0/8", "not a purpose"),
        ("=10.0.0.0/8", "not a purpose"),
        ("10.0.0.0/33", "not a network"),
        ("host/8", "not a network"),
        ("host:0", "not a port"),
        ("host:99999", "not a port"),
        ("10.0.0.0/8:x", "not a port"),
        ("", "not an address"),
        ("git=", "not an address"),
        ("a b", "not an address"),
        ("https://git.corp/", "not a network"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn the_operators_own_endpoints_are_in_no_wider_entry() {
    let reserve = |mut policy: Policy| {
        policy.reserve(Host::parse("10.0.0.5").unwrap(), 5432);
        policy.reserve(Host::parse("[::ffff:10.0.0.6]").unwrap(), 5432);
        policy.reserve(Host::parse("8.8.8.8").unwrap(), 7443);
        policy
    };
    for rules in [&["10.0.0.0/8", "8.8.8.8"] as &[&str], &["10.0.0.5", "10.0.0.6/32"]] {
        let policy = reserve(policy(rules));
        for (host, port) in
            [("10.0.0.5", 5432), ("[::ffff:a00:5]", 5432), ("10.0.0.6", 5432), ("8.8.8.8", 7443)]
        {
            let refusal = check(&policy, Purpose::Git, host, port).unwrap_err().to_string();
            assert!(refusal.contains(&format!(":{port} to allow it")), "{refusal}");
        }
        assert!(check(&policy, Purpose::Git, "10.0.0.5", 443).is_ok());
        assert!(check(&policy, Purpose::Git, "8.8.8.8", 443).is_ok());
    }
    assert!(check(&reserve(policy(&["git=10.0.0.5:5432"])), Purpose::Git, "10.0.0.5", 5432).is_ok());
}

#[test]
fn a_name_of_an_entry_leads_to_private_addresses_and_not_into_the_machine() {
    let policy = policy(&["git=git.corp", "localhost"]);
    let check = |name: &str, address: &str| {
        let host = Host::parse(name).unwrap();
        let address = address.parse().unwrap();
        policy
            .check(&Candidate { purpose: Purpose::Git, host: &host, address, port: 443, own: false })
            .is_ok()
    };
    assert!(
        check("git.corp", "10.1.2.3") && check("GIT.corp.", "fd00::1") && check("localhost", "127.0.0.1")
    );
    for address in ["127.0.0.1", "::1", "169.254.169.254", "169.254.1.1", "0.0.0.0", "::ffff:127.0.0.1"] {
        assert!(!check("git.corp", address), "{address}");
    }
    assert!(!check("other.corp", "10.1.2.3") && !check("sub.git.corp", "10.1.2.3"));
}

#[test]
fn names_that_cannot_be_looked_up_are_judged_by_name() {
    let mut policy = policy(&["git=git.corp", "git=db.example:5432"]);
    policy.reserve(Host::Name("db.example".to_owned()), 5432);
    policy.reserve(Host::Name("hub.example".to_owned()), 7443);
    let check = |name: &str, port| policy.check_name(Purpose::Git, name, port);
    for name in [
        "localhost",
        "x.localhost",
        "metadata",
        "metadata.google.internal",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "printer.lan",
        "other.corp",
    ] {
        let refusal = check(name, 443).unwrap_err().to_string();
        assert!(refusal.contains(&format!("--allow-network git={name} ")), "{refusal}");
    }
    assert_eq!(check("git.corp", 443), Ok(Detail::Coarse));
    assert_eq!(check("github.com", 443), Ok(Detail::Full));
    assert_eq!(check("db.example", 5432), Ok(Detail::Full));
    assert!(check("hub.example", 7443).unwrap_err().to_string().contains("git=hub.example:7443"));
}

proptest! {
    /// However the bytes of an address are written, the same is decided.
    #[test]
    fn notations_do_not_matter(bits: u32) {
        let plain = Ipv4Addr::from(bits);
        let [a, b, c, d] = plain.octets();
        let low = u32::from_be_bytes([0, b, c, d]);
        let seen = |host: &str| {
            let refused = check(&everything(), Purpose::Git, host, 443).is_err();
            let Some(Host::Ip(address)) = Host::parse(host) else { panic!("{host}") };
            (underneath(address), refused)
        };
        let wanted = seen(&plain.to_string());
        for host in [
            format!("{bits}"),
            format!("{bits:#x}"),
            format!("0{bits:o}"),
            format!("{a}.{low}"),
            format!("0{a:o}.{b:#x}.{}", u32::from_be_bytes([0, 0, c, d])),
            format!("[::ffff:{plain}]"),
            format!("[64:ff9b::{plain}]"),
            format!("[2002:{:x}:{:x}::]", u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
        ] {
            prop_assert_eq!(seen(&host), wanted, "{}", host);
        }
    }

    /// No text of a rule, a host or a redirect panics, and no host that is read is empty.
    #[test]
    fn any_text(text in ".{0,60}") {
        let _ = text.parse::<Rule>();
        if let Some(Host::Name(name)) = Host::parse(&text) {
            prop_assert!(!name.is_empty() && name.parse::<IpAddr>().is_err());
        }
        let _ = Trail::new("https://git.example/a".parse().unwrap()).step(&text);
    }
}

/// Gives other addresses at each look-up; the last ones for ever.
struct Script(Mutex<VecDeque<Vec<IpAddr>>>);

impl Script {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers.iter().map(|one| one.iter().map(|text| text.parse().unwrap()).collect());
        Arc::new(Self(Mutex::new(answers.collect())))
    }
}

impl Resolve for Script {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("nobody knows it")) })
    }
}

fn to(scheme: Scheme, host: &str, port: u16) -> Authority {
    Authority { scheme, host: Host::parse(host).unwrap(), port }
}

/// A listener that says where it listens to whoever connects.
async fn server(address: &str, port: u16) -> u16 {
    let listener = TcpListener::bind((address, port)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(at.ip().to_string().as_bytes()).await;
        }
    });
    at.port()
}

async fn said(connection: Connection) -> String {
    let mut stream = connection.stream;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn guard(policy: Policy, resolver: Arc<dyn Resolve>) -> Guard {
    Guard::new(Arc::new(policy), Purpose::Git).with_resolver(resolver).with_patience(Duration::from_secs(5))
}

#[tokio::test]
async fn a_name_that_changes_is_judged_at_each_connection() {
    let port = server("127.0.0.2", 0).await;
    server("127.0.0.3", port).await;
    // As good as public, then not; each connection looks it up.
    let resolver = Script::new(&[&["127.0.0.2"], &["127.0.0.3"]]);
    let guard = guard(policy(&["127.0.0.2"]), resolver);
    let to = to(Scheme::Https, "rebinds.example", port);
    assert_eq!(said(guard.connect(&to).await.unwrap()).await, "127.0.0.2");
    let refused = connect(&to, &guard).await.unwrap_err();
    assert!(
        matches!(&refused, ConnectError::Refused(refusal) if refusal.entry.as_deref() == Some("127.0.0.3/32"))
    );
    assert!(!refused.to_string().contains("127.0.0.2"), "{refused}");
}

#[tokio::test]
async fn of_mixed_answers_only_the_allowed_ones_are_connected_to() {
    let port = server("127.0.0.3", 0).await;
    server("127.0.0.2", port).await;
    for answer in [&["127.0.0.2", "127.0.0.3"], &["127.0.0.3", "127.0.0.2"]] {
        let guard = guard(policy(&["127.0.0.2"]), Script::new(&[answer]));
        let connection = guard.connect(&to(Scheme::Https, "mixed.example", port)).await.unwrap();
        assert_eq!(said(connection).await, "127.0.0.2");
    }
}

#[tokio::test]
async fn a_refusal_says_the_same_of_open_and_closed_ports() {
    let open = server("127.0.0.4", 0).await;
    let free = TcpListener::bind("127.0.0.4:0").await.unwrap();
    let closed = free.local_addr().unwrap().port();
    drop(free);
    let guard = guard(everything(), Script::new(&[&["127.0.0.4"]]));
    for host in ["127.0.0.4", "0x7f.4", "[::ffff:127.0.0.4]", "named.example"] {
        let says = |port| {
            let guard = guard.clone();
            async move { guard.connect(&to(Scheme::Https, host, port)).await.unwrap_err().to_string() }
        };
        assert_eq!(says(open).await, says(closed).await);
    }
}

#[tokio::test]
async fn a_listener_on_all_addresses_is_reserved_on_each() {
    let port = server("0.0.0.0", 0).await;
    let mut reserved = policy(&["127.0.0.0/8", "0.0.0.0", "::1"]);
    reserved.reserve_local_port(port);
    let guard = guard(reserved, Script::new(&[&["127.0.0.1"]]));
    for host in ["127.0.0.1", "127.0.0.9", "0.0.0.0", "hub.example"] {
        let refused = guard.connect(&to(Scheme::Https, host, port)).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Refused(_)), "{host}: {refused}");
    }
}

#[tokio::test]
async fn a_reserved_name_is_reserved_wherever_it_leads() {
    let port = server("127.0.0.5", 0).await;
    let mut reserved = policy(&["127.0.0.0/8"]);
    reserved.reserve(Host::Name("db.example".to_owned()), port);
    let guard = guard(reserved, Script::new(&[&["127.0.0.5"]]));
    let refused = guard.connect(&to(Scheme::Https, "127.0.0.5", port)).await.unwrap_err();
    assert!(refused.to_string().contains(&format!("git=127.0.0.5:{port}")), "{refused}");
}

#[tokio::test]
async fn a_grace_ends_at_metadata_and_at_the_operators_own() {
    let port = server("127.0.0.6", 0).await;
    let mut reserved = Policy::default();
    reserved.reserve(Host::parse("127.0.0.7").unwrap(), port);
    let with = |host: &str| {
        guard(reserved.clone(), Script::new(&[&["127.0.0.6"]])).lenient_towards(to(Scheme::Https, host, port))
    };
    let old = with("127.0.0.6");
    assert_eq!(old.tolerated(), None);
    assert!(matches!(old.check(&to(Scheme::Https, "127.0.0.6", port)).await, Ok(())));
    old.connect(&to(Scheme::Https, "127.0.0.6", port)).await.unwrap();
    assert_eq!(old.tolerated().and_then(|refusal| refusal.entry).as_deref(), Some("127.0.0.6/32"));
    for host in ["127.0.0.7", "169.254.169.254"] {
        assert!(with(host).connect(&to(Scheme::Https, host, port)).await.is_err(), "{host}");
    }
    assert!(with("127.0.0.6").connect(&to(Scheme::Https, "127.0.0.8", port)).await.is_err());
    // Another port of the host, and a name that leads to this machine meanwhile.
    assert!(with("127.0.0.6").check(&to(Scheme::Https, "127.0.0.6", port ^ 1)).await.is_err());
    assert!(with("git.example").check(&to(Scheme::Https, "git.example", port)).await.is_err());
    let private = guard(reserved.clone(), Script::new(&[&["10.1.2.3"]]));
    let private = private.lenient_towards(to(Scheme::Https, "git.example", port));
    assert!(private.check(&to(Scheme::Https, "git.example", port)).await.is_ok());
}

/// A proxy that answers each CONNECT with this, and tells what was asked for.
async fn proxy(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            seen.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (at, asked)
}

#[tokio::test]
async fn behind_a_proxy_names_are_judged_too() {
    let (at, asked) = proxy("HTTP/1.1 200 OK\r\n\r\nhello").await;
    let proxies = Arc::new(Proxies::all_through(&format!("http://user:pass@{at}"), "direct.example"));
    let with = |resolver: Arc<dyn Resolve>| {
        guard(policy(&["git=git.corp"]), resolver).with_proxies(Arc::clone(&proxies))
    };
    let unknown = || with(Script::new(&[]));
    let connection = unknown().connect(&to(Scheme::Https, "github.example", 443)).await.unwrap();
    assert_eq!(said(connection).await, "hello", "not a byte of the tunnel is lost");
    let head = asked.lock().unwrap().pop().unwrap();
    assert!(head.starts_with("CONNECT github.example:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    assert!(unknown().connect(&to(Scheme::Https, "git.corp", 443)).await.is_ok());
    asked.lock().unwrap().clear();
    for host in ["metadata.google.internal", "kubernetes", "127.1", "169.254.169.254", "[::ffff:10.0.0.1]"] {
        let refused = unknown().connect(&to(Scheme::Https, host, 443)).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Refused(_)), "{host}: {refused}");
    }
    // Of a name that can be looked up here all addresses count: nobody knows which the proxy takes.
    for answer in [&["10.0.0.1"] as &[&str], &["8.8.8.8", "10.0.0.1"]] {
        let refused = with(Script::new(&[answer])).connect(&to(Scheme::Https, "a.example", 443)).await;
        assert!(matches!(refused, Err(ConnectError::Refused(_))));
    }
    assert!(asked.lock().unwrap().is_empty(), "the proxy was asked for what is refused");
    // What does not go through the proxy is judged as ever.
    let straight =
        with(Script::new(&[&["127.0.0.1"]])).connect(&to(Scheme::Https, "direct.example", 1)).await;
    assert!(matches!(straight, Err(ConnectError::Refused(_))));
}

#[tokio::test]
async fn the_proxys_own_address_is_checked() {
    let (at, asked) = proxy("HTTP/1.1 200 OK\r\n\r\n").await;
    let github = to(Scheme::Https, "github.example", 443);
    // One that the operator named may be on this machine, but not be the hub itself, nor hand out credentials.
    let mut reserved = Policy::default();
    reserved.reserve(Host::Ip(at.ip()), at.port());
    for (policy, proxy) in
        [(reserved, format!("http://{at}")), (Policy::default(), "http://169.254.169.254:80".to_owned())]
    {
        let proxies = Arc::new(Proxies::all_through(&proxy, ""));
        let refused = guard(policy, Script::new(&[])).with_proxies(proxies).connect(&github).await;
        assert!(matches!(refused, Err(ConnectError::Refused(_))), "{proxy}");
    }
    // One that a user chose is a host like any other.
    let chosen = || ProxyServer::of_url(&format!("http://{at}").parse().unwrap()).unwrap();
    let refused = guard(Policy::default(), Script::new(&[])).through(chosen()).connect(&github).await;
    assert!(matches!(refused, Err(ConnectError::Refused(_))));
    assert!(asked.lock().unwrap().is_empty());
    let allowed = guard(policy(&["127.0.0.1"]), Script::new(&[])).through(chosen());
    assert!(allowed.connect(&github).await.is_ok());
    assert!(allowed.connect(&to(Scheme::Https, "10.0.0.1", 443)).await.is_err());
}

#[tokio::test]
async fn a_proxy_that_refuses_or_babbles_is_named_without_its_password() {
    let long: &'static str = Box::leak("x".repeat(20_000).into_boxed_str());
    for (answer, part) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "it answered 403"),
        ("SSH-2.0-x\r\n\r\n", "not HTTP"),
        (long, "too long"),
    ] {
        let (at, _) = proxy(answer).await;
        let proxies = Arc::new(Proxies::all_through(&format!("http://user:hunter2@{at}"), ""));
        let guard = guard(Policy::default(), Script::new(&[])).with_proxies(proxies);
        let error = guard.connect(&to(Scheme::Https, "github.example", 443)).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
    let socks = Arc::new(Proxies::all_through("socks5://127.0.0.1:1", ""));
    let guard = guard(Policy::default(), Script::new(&[])).with_proxies(socks);
    let error = guard.connect(&to(Scheme::Https, "github.example", 443)).await.unwrap_err();
    assert!(error.to_string().contains("only http://"), "{error}");
}

#[tokio::test]
async fn an_address_that_does_not_answer_ends_in_time() {
    // A listener whose queue is full takes no further connection, and says nothing.
    let resolver = Script::new(&[&["127.0.0.1"]]);
    let quick = guard(policy(&["127.0.0.1"]), resolver).with_patience(Duration::from_millis(300));
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = free.local_addr().unwrap().port();
    drop(free);
    let error = quick.connect(&to(Scheme::Https, "a.example", closed)).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Failed { detail: Detail::Coarse, .. }), "{error:?}");
    let exact = guard(policy(&[&format!("127.0.0.1:{closed}")]), Script::new(&[&["127.0.0.1"]]));
    let error = exact.connect(&to(Scheme::Https, "a.example", closed)).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Failed { detail: Detail::Full, .. }), "{error:?}");
    assert!(matches!(
        guard(Policy::default(), Script::new(&[])).connect(&to(Scheme::Https, "nowhere.example", 1)).await,
        Err(ConnectError::Unresolved { .. })
    ));
}
