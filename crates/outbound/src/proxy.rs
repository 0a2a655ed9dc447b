//! The way through a proxy: by CONNECT, over TLS to the proxy where its URL says so, or by SOCKS5.

use std::borrow::Cow;
use std::fmt;
use std::str::Utf8Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::percent_decode_str;
use roadstead_model::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

use crate::connect::ConnectError;
use crate::host::{Authority, Host, Scheme};
use crate::policy::Detail;
use crate::socks::{self, Login};
use crate::wire::Wire;

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
        let authority =
            Authority::of_uri(found.uri()).ok_or_else(|| unusable("it is not a URL of a host"))?;
        let over_tls = match authority.scheme {
            Scheme::Http => false,
            Scheme::Https => true,
            Scheme::Other => {
                return Err(unusable(
                    "only http://HOST:PORT and https://HOST:PORT are supported in the environment's proxy settings",
                ));
            }
        };
        Ok(Some(ProxyServer {
            host: authority.host,
            port: authority.port,
            speech: Speech::Http { auth: found.basic_auth().cloned(), over_tls },
        }))
    }

    /// The `Proxy-Authorization` of a request that is sent to the proxy whole.
    pub(crate) fn authorization(&self, to: &Authority) -> Option<HeaderValue> {
        match self.on_the_way(to).ok().flatten()?.speech {
            Speech::Http { auth, .. } => auth,
            Speech::Socks(_) => None,
        }
    }
}

/// A proxy. Does not print its password.
#[derive(Clone)]
pub struct ProxyServer {
    host: Host,
    port: u16,
    speech: Speech,
}

/// What is spoken with a proxy, with what it is shown.
#[derive(Clone)]
enum Speech {
    /// HTTP's CONNECT.
    Http { auth: Option<HeaderValue>, over_tls: bool },
    /// SOCKS5.
    Socks(Option<Login>),
}

/// Where a SOCKS proxy listens if its URL does not say so.
const SOCKS_PORT: u16 = 1080;

impl ProxyServer {
    /// The proxy of an `http` or an `https` URL; none for any other.
    #[must_use]
    pub fn of_url(url: &Url) -> Option<Self> {
        let over_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let auth = match login_of(url).ok()? {
            Some((username, password)) => {
                let pair = Secret::new(format!("{username}:{}", password.expose()));
                let text = Secret::new(format!("Basic {}", STANDARD.encode(pair.expose())));
                let mut value = HeaderValue::try_from(text.expose()).ok()?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let to = Authority::of_url(url)?;
        Some(Self { host: to.host, port: to.port, speech: Speech::Http { auth, over_tls } })
    }

    /// The proxy of an `http`, an `https` or a `socks5` URL; none for any other.
    #[must_use]
    pub fn of_any_url(url: &Url) -> Option<Self> {
        if url.scheme() != "socks5" {
            return Self::of_url(url);
        }
        let login = match login_of(url).ok()? {
            Some((username, password)) => Some(Login::new(username, password)?),
            None => None,
        };
        let (host, port) = (Host::parse(url.host_str()?)?, url.port().unwrap_or(SOCKS_PORT));
        Some(Self { host, port, speech: Speech::Socks(login) })
    }

    /// Whether it passes on connections of any kind, as SOCKS proxies do: those for HTTP commonly let it be TLS at port 443 only.
    #[must_use]
    pub fn is_for_any_protocol(&self) -> bool {
        matches!(self.speech, Speech::Socks(_))
    }

    /// Whether it is spoken to over TLS.
    pub(crate) fn is_over_tls(&self) -> bool {
        matches!(self.speech, Speech::Http { over_tls: true, .. })
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

/// The user name and the password of a URL, if there are some, as they are meant.
fn login_of(url: &Url) -> Result<Option<(String, Secret)>, Utf8Error> {
    if url.username().is_empty() {
        return Ok(None);
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    let password = decoded(url.password().unwrap_or_default())?;
    Ok(Some((decoded(url.username())?, Secret::new(password))))
}

/// Asks the proxy for a connection. The error says what it answered.
pub(crate) async fn ask_for(stream: &mut Wire, to: &Authority, proxy: &ProxyServer) -> Result<(), String> {
    match &proxy.speech {
        Speech::Http { auth, .. } => by_connect(stream, to, auth.as_ref()).await,
        Speech::Socks(login) => socks::ask_for(stream, to, login.as_ref()).await,
    }
}

async fn by_connect(stream: &mut Wire, to: &Authority, auth: Option<&HeaderValue>) -> Result<(), String> {
    let mut head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes();
    if let Some(auth) = auth {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(auth.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
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
