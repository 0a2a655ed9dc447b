//! The way through SOCKS proxies, and logins at proxies.

use tokio::net::TcpStream;

use super::*;

/// A SOCKS proxy that takes whoever comes and grants what is asked for, and tells which host that is, and with which login.
async fn socks() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            grant(&mut stream, &seen).await.unwrap();
        }
    });
    (at, asked)
}

async fn text(stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut bytes).await?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

async fn grant(stream: &mut TcpStream, seen: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut ways = vec![0; usize::from(head[1])];
    stream.read_exact(&mut ways).await?;
    let mut login = String::new();
    if ways.contains(&2) {
        stream.write_all(&[5, 2]).await?;
        assert_eq!(stream.read_u8().await?, 1);
        let username = text(stream).await?;
        login = format!("{username}:{}@", text(stream).await?);
        stream.write_all(&[1, 0]).await?;
    } else {
        stream.write_all(&[5, 0]).await?;
    }
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
        _ => text(stream).await?,
    };
    let port = stream.read_u16().await?;
    seen.lock().unwrap().push(format!("{login}{host}:{port}"));
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    stream.write_all(b"hello").await
}

#[tokio::test]
async fn a_socks_proxy_is_a_host_like_any_other_and_looks_names_up() {
    let (at, asked) = socks().await;
    let chosen =
        |login: &str| ProxyServer::of_any_url(&format!("socks5://{login}{at}").parse().unwrap()).unwrap();
    let github = to(Scheme::Other, "github.example", 22);
    let refused = guard(Policy::default(), Script::new(&[])).through(chosen("")).connect(&github).await;
    assert!(matches!(refused, Err(ConnectError::Refused(_))));
    assert!(asked.lock().unwrap().is_empty());
    let allowed = |login: &str| guard(policy(&["127.0.0.1"]), Script::new(&[])).through(chosen(login));
    let connection = allowed("").connect(&github).await.unwrap();
    assert!(!connection.to_http_proxy);
    assert_eq!(said(connection).await, "hello", "not a byte of the tunnel is lost");
    assert!(allowed("").connect(&to(Scheme::Https, "8.8.8.8", 443)).await.is_ok());
    // What is not a host of the public internet is not asked for, whatever the proxy could reach.
    for host in ["10.0.0.1", "169.254.169.254", "0x7f.2", "[::ffff:10.0.0.1]"] {
        let refused = allowed("").connect(&to(Scheme::Https, host, 443)).await;
        assert!(matches!(refused, Err(ConnectError::Refused(_))), "{host}");
    }
    // A login as it is meant, not as a URL writes it.
    assert!(allowed("us%40er:p%3Ass%20w%2Frd@").connect(&github).await.is_ok());
    assert_eq!(
        *asked.lock().unwrap(),
        ["github.example:22", "8.8.8.8:443", "us@er:p:ss w/rd@github.example:22"]
    );
}

#[tokio::test]
async fn a_login_at_an_http_proxy_is_what_is_meant_and_not_what_a_url_writes() {
    let (at, asked) = proxy("HTTP/1.1 200 OK\r\n\r\n").await;
    let chosen =
        ProxyServer::of_any_url(&format!("http://us%40er:p%3Ass%20w%2Frd@{at}").parse().unwrap()).unwrap();
    let guard = guard(policy(&["127.0.0.1"]), Script::new(&[])).through(chosen);
    guard.connect(&to(Scheme::Https, "github.example", 443)).await.unwrap();
    let head = asked.lock().unwrap().pop().unwrap();
    // us@er:p:ss w/rd
    assert!(head.contains("Proxy-Authorization: Basic dXNAZXI6cDpzcyB3L3Jk\r\n"), "{head}");
}

#[test]
fn proxies_of_other_protocols_are_none() {
    for url in ["socks4://proxy.example", "socks5h://proxy.example", "ftp://proxy.example"] {
        assert!(ProxyServer::of_any_url(&url.parse().unwrap()).is_none(), "{url}");
    }
    let long = format!("socks5://{}:x@proxy.example", "u".repeat(256));
    assert!(ProxyServer::of_any_url(&long.parse().unwrap()).is_none());
    let url = "socks5://u:hunter2@proxy.example".parse().unwrap();
    let proxy = ProxyServer::of_any_url(&url).unwrap();
    assert_eq!(proxy.to_string(), "proxy.example:1080");
    assert!(proxy.is_for_any_protocol() && !format!("{proxy:?}").contains("hunter2"));
    assert!(ProxyServer::of_url(&url).is_none());
}
