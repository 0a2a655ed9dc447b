//! The way through a proxy, by CONNECT.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

use crate::connect::ConnectError;
use crate::host::{Authority, Host, Scheme};
use crate::policy::Detail;

/// The longest head of a proxy's answer, in bytes.
const MAX_HEAD: usize = 8 * 1024;

/// The proxies that the environment names for its destinations: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`.
#[derive(Debug)]
pub struct Proxies(Matcher);

impl Proxies {
    /// Those of this process.
    #[must_use]
    pub fn from_env() -> Self {
        Self(Matcher::from_env())
    }

    /// None for any destination.
    #[must_use]
    pub fn none() -> Self {
        Self(Matcher::builder().build())
    }

    /// One for everything but these hosts (comma-separated, as in `NO_PROXY`).
    #[must_use]
    pub fn all_through(proxy: &str, except: &str) -> Self {
        Self(Matcher::builder().all(proxy).no(except).build())
    }

    /// The proxy on the way to a server, if there is one.
    pub(crate) fn on_the_way(&self, to: &Authority) -> Result<Option<ProxyServer>, ConnectError> {
        let scheme = match to.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Other => return Ok(None),
        };
        let Ok(uri) = format!("{scheme}://{to}/").parse::<Uri>() else { return Ok(None) };
        let Some(found) = self.0.intercept(&uri) else { return Ok(None) };
        let unusable = |why: &str| ConnectError::Proxy {
            proxy: found.uri().host().unwrap_or_default().to_owned(),
            detail: Detail::Full,
            why: why.to_owned(),
        };
        if found.uri().scheme_str() != Some("http") {
            return Err(unusable("only http://HOST:PORT is supported in the environment's proxy settings"));
        }
        let authority =
            Authority::of_uri(found.uri()).ok_or_else(|| unusable("it is not a URL of a host"))?;
        Ok(Some(ProxyServer {
            host: authority.host,
            port: authority.port,
            auth: found.basic_auth().cloned(),
        }))
    }

    /// The `Proxy-Authorization` of a request that is sent to the proxy whole.
    pub(crate) fn authorization(&self, to: &Authority) -> Option<HeaderValue> {
        self.on_the_way(to).ok().flatten()?.auth
    }
}

/// A proxy. Does not print its password.
#[derive(Clone)]
pub struct ProxyServer {
    host: Host,
    port: u16,
    auth: Option<HeaderValue>,
}

impl ProxyServer {
    /// The proxy of an `http` URL; none for any other.
    #[must_use]
    pub fn of_url(url: &Url) -> Option<Self> {
        if url.scheme() != "http" {
            return None;
        }
        let auth = (!url.username().is_empty()).then(|| {
            let pair = format!("{}:{}", url.username(), url.password().unwrap_or_default());
            let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let to = Authority::of_url(url)?;
        Some(Self { host: to.host, port: to.port, auth: auth.flatten() })
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyServer({self})")
    }
}

/// Asks the proxy for a connection. The error says what it answered.
pub(crate) async fn ask_for(
    stream: &mut TcpStream,
    to: &Authority,
    proxy: &ProxyServer,
) -> Result<(), String> {
    let mut head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes();
    if let Some(auth) = &proxy.auth {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(auth.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::with_capacity(256);
    // A byte at a time: what comes after the head is not the proxy's any more.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_HEAD {
            return Err("its answer is too long".to_owned());
        }
        answer.push(stream.read_u8().await.map_err(|_| "it closed the connection".to_owned())?);
    }
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    match words.next() {
        Some([b'2', ..]) if version.starts_with(b"HTTP/1.") => Ok(()),
        Some(status) if version.starts_with(b"HTTP/1.") => Err(format!(
            "it answered {}",
            String::from_utf8_lossy(status).chars().take(3).collect::<String>()
        )),
        _ => Err("its answer is not HTTP".to_owned()),
    }
}
