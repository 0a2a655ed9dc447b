//! The way through proxies that are spoken to over TLS.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::*;

/// `user:hunter2`, as HTTP sends it.
const LOGIN: &str = "dXNlcjpodW50ZXIy";
const GRANTED: &str = "HTTP/1.1 200 OK\r\n\r\nhello";

/// A proxy that takes TLS only, with a certificate of its own authority.
struct Secure {
    at: SocketAddr,
    authority: String,
    /// The heads that it was sent, inside TLS.
    asked: Arc<Mutex<Vec<String>>>,
    /// All that it was sent, as it came over the network.
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Secure {
    /// One whose certificate is for this name or address, and that answers each head with this; with nothing, where that is empty.
    async fn start(name: &str, answer: &'static str) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&own, &issuer).unwrap();
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));

        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = listener.local_addr().unwrap();
        let heads = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, heads) = (acceptor.clone(), Arc::clone(&heads));
                tokio::spawn(async move { serve(acceptor, stream, &heads, answer).await });
            }
        });
        let at = overheard(behind, Arc::clone(&seen)).await;
        Self { at, authority, asked, seen }
    }

    fn url(&self) -> String {
        format!("https://user:hunter2@{}", self.at)
    }

    fn chosen(&self) -> ProxyServer {
        ProxyServer::of_any_url(&self.url().parse().unwrap()).unwrap()
    }

    /// A guard of a user who chose it, and trusts this.
    fn guard(&self, ca: Option<&str>) -> Guard {
        let guard = guard(policy(&["127.0.0.1"]), Script::new(&[])).through(self.chosen());
        guard.trusting(ca.map(str::as_bytes))
    }

    /// Whether nothing but TLS went over the network, and no CONNECT was heard.
    fn heard_nothing(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        let is_shown = |text: &str| seen.windows(text.len()).any(|part| part == text.as_bytes());
        !self.asked.lock().unwrap().iter().any(|head| head.contains("HTTP/1.1"))
            && seen.first() == Some(&22)
            && !["CONNECT", "Proxy-Authorization", LOGIN, "github.example"].into_iter().any(is_shown)
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, heads: &Mutex<Vec<String>>, answer: &str) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    heads.lock().unwrap().push(String::from_utf8(head).unwrap());
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.flush().await;
    if answer.is_empty() {
        // Until the other side gives up.
        let _ = stream.read_u8().await;
    }
    let _ = stream.shutdown().await;
}

/// Passes on what comes, and keeps a copy of it.
async fn overheard(to: SocketAddr, seen: Arc<Mutex<Vec<u8>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut from, mut back) = stream.into_split();
            let (mut answers, mut server) = TcpStream::connect(to).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut chunk).await {
                    seen.lock().unwrap().extend_from_slice(&chunk[..count]);
                    if server.write_all(&chunk[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    at
}

fn github() -> Authority {
    to(Scheme::Https, "github.example", 443)
}

#[tokio::test]
async fn what_a_proxy_is_asked_and_shown_is_inside_tls() {
    let proxy = Secure::start("127.0.0.1", GRANTED).await;
    let connection = proxy.guard(Some(&proxy.authority)).connect(&github()).await.unwrap();
    assert!(!connection.to_http_proxy);
    assert_eq!(said(connection).await, "hello", "not a byte of the tunnel is lost");
    let head = std::mem::take(&mut *proxy.asked.lock().unwrap()).remove(0);
    assert!(head.starts_with("CONNECT github.example:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("Proxy-Authorization: Basic {LOGIN}\r\n")), "{head}");
    assert!(proxy.heard_nothing());
    // The proxy and what lies behind it are judged as ever.
    let nowhere = guard(Policy::default(), Script::new(&[])).through(proxy.chosen());
    assert!(matches!(nowhere.connect(&github()).await, Err(ConnectError::Refused(_))));
    let private = proxy.guard(Some(&proxy.authority)).connect(&to(Scheme::Https, "10.0.0.1", 443)).await;
    assert!(matches!(private, Err(ConnectError::Refused(_))));
    assert!(proxy.asked.lock().unwrap().is_empty());
}

/// Why there is no connection; nothing of it names the password.
async fn why(guard: Guard) -> String {
    let error = guard.connect(&github()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Proxy { .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("hunter2"));
    error.to_string()
}

#[tokio::test]
async fn a_proxy_that_is_not_the_one_that_was_meant_is_told_nothing() {
    let proxy = Secure::start("127.0.0.1", GRANTED).await;
    let other = Secure::start("proxy.example", GRANTED).await;
    let told = why(proxy.guard(None)).await;
    assert!(told.contains(&format!("the proxy {}: TLS with it: ", proxy.at)), "{told}");
    assert!(told.contains("UnknownIssuer"), "{told}");
    let told = why(proxy.guard(Some(&other.authority))).await;
    assert!(told.contains("invalid peer certificate"), "{told}");
    assert!(proxy.heard_nothing());
    let told = why(other.guard(Some(&other.authority))).await;
    assert!(told.contains("not valid for name"), "{told}");
    assert!(other.heard_nothing());
}

#[tokio::test]
async fn a_proxy_is_known_by_its_name() {
    let proxy = Secure::start("proxy.example", GRANTED).await;
    let url = format!("https://user:hunter2@proxy.example:{}", proxy.at.port());
    let chosen = ProxyServer::of_any_url(&url.parse().unwrap()).unwrap();
    let with = |ca| {
        let guard = guard(policy(&["127.0.0.1"]), Script::new(&[&["127.0.0.1"]]));
        guard.through(chosen.clone()).trusting(ca)
    };
    assert!(with(Some(proxy.authority.as_bytes())).connect(&github()).await.is_ok());
    assert!(with(None).connect(&github()).await.is_err());
}

#[tokio::test]
async fn a_proxy_without_tls_is_told_nothing() {
    let (at, asked) = proxy(GRANTED).await;
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let proxy = Secure { at: overheard(at, Arc::clone(&seen)).await, authority: String::new(), asked, seen };
    let quick = proxy.guard(None).with_patience(Duration::from_millis(500));
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    why(quick).await;
    assert!(proxy.heard_nothing());
}

#[tokio::test]
async fn a_proxy_that_does_not_answer_ends_in_time() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let silent = ProxyServer::of_any_url(&url.parse().unwrap()).unwrap();
    let guard = guard(policy(&["127.0.0.1"]), Script::new(&[])).through(silent);
    let told = why(guard.with_patience(Duration::from_millis(300))).await;
    assert!(told.ends_with("no answer in time"), "{told}");
    // One that speaks TLS, and then says nothing.
    let proxy = Secure::start("127.0.0.1", "").await;
    let told = why(proxy.guard(Some(&proxy.authority)).with_patience(Duration::from_secs(2))).await;
    assert!(told.ends_with("no answer in time"), "{told}");
    assert_eq!(proxy.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_happens_at_a_proxy_is_told_as_far_as_its_address_may_be() {
    let proxy = Secure::start("proxy.example", GRANTED).await;
    let told_with = |rule: String| {
        let guard = guard(policy(&[&rule]), Script::new(&[])).through(proxy.chosen());
        async move {
            let told = Mutex::new(Vec::new());
            let error = guard.connect_telling(&github(), |detail| told.lock().unwrap().push(detail)).await;
            (error.unwrap_err().detail(), told.into_inner().unwrap())
        }
    };
    let exact = told_with(format!("127.0.0.1:{}", proxy.at.port())).await;
    assert_eq!(exact, (Detail::Full, vec![Detail::Full]));
    assert_eq!(told_with("127.0.0.0/8".to_owned()).await, (Detail::Coarse, vec![Detail::Coarse]));
    // What happens behind it is not.
    let proxy = Secure::start("127.0.0.1", GRANTED).await;
    let exact = policy(&[&format!("127.0.0.1:{}", proxy.at.port())]);
    let guard = guard(exact, Script::new(&[])).through(proxy.chosen());
    let guard = guard.trusting(Some(proxy.authority.as_bytes()));
    let told = Mutex::new(Vec::new());
    guard.connect_telling(&github(), |detail| told.lock().unwrap().push(detail)).await.unwrap();
    assert_eq!(told.into_inner().unwrap(), [Detail::Full, Detail::Coarse]);
}

#[tokio::test]
async fn no_user_vouches_for_the_operators_proxy() {
    let proxy = Secure::start("127.0.0.1", GRANTED).await;
    let proxies = Arc::new(Proxies::all_through(&proxy.url(), ""));
    let guard = guard(Policy::default(), Script::new(&[])).with_proxies(proxies);
    let told = why(guard.trusting(Some(proxy.authority.as_bytes()))).await;
    assert!(told.contains("UnknownIssuer"), "{told}");
    assert!(proxy.heard_nothing());
}

/// Where the proxy of the test that started this process is.
const AT: &str = "OUTBOUND_TEST_PROXY";

/// Only a process that is started with it has an authority among the system's, so this is run again in one of its own.
#[tokio::test]
async fn the_operators_proxy_may_be_spoken_to_over_tls() {
    if let Ok(at) = std::env::var(AT) {
        return go_through_the_operators(&at).await;
    }
    let proxy = Secure::start("127.0.0.1", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &proxy.authority).unwrap();
    let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "tests::over_tls::the_operators_proxy_may_be_spoken_to_over_tls"]);
    let again = again.env("SSL_CERT_FILE", &file).env(AT, proxy.url()).output().await.unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    let heads = std::mem::take(&mut *proxy.asked.lock().unwrap());
    assert!(heads[0].starts_with("CONNECT github.example:443 HTTP/1.1\r\n"), "{heads:?}");
    // Over plain HTTP it is sent whole requests, over TLS all the same.
    assert!(heads[1].starts_with("GET http://plain.example/a HTTP/1.1\r\n"), "{heads:?}");
    assert_eq!(heads.len(), 2);
    for head in heads {
        assert!(
            head.to_lowercase().contains(&format!("proxy-authorization: basic {}", LOGIN.to_lowercase()))
        );
    }
    assert!(proxy.heard_nothing());
}

async fn go_through_the_operators(proxy: &str) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let proxies = Arc::new(Proxies::all_through(proxy, ""));
    let guard = guard(Policy::default(), Script::new(&[])).with_proxies(proxies);
    assert_eq!(said(guard.connect(&github()).await.unwrap()).await, "hello");
    let request = ::http::Request::get("http://plain.example/a").body(Full::<Bytes>::default()).unwrap();
    let answer = Client::new(guard, None).unwrap().send(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
}
