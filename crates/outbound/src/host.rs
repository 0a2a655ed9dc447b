//! Where a connection goes: a host, in whichever notation it was written, and a port.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use url::{Host as UrlHost, Url};

/// A host: an address, or a name that has to be looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address, whichever notation it was written in: `127.1`, `0x7f.1`, `017700000001` and `2130706433` are one.
    Ip(IpAddr),
    /// A name, in lower case, in ASCII, and without a dot at its end.
    Name(String),
}

impl Host {
    /// Reads a host as browsers do, so that no notation of an address passes as a name. IPv6 with or without brackets.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Ip(address));
        }
        Some(match UrlHost::parse(text).ok()? {
            UrlHost::Ipv4(address) => Self::Ip(address.into()),
            UrlHost::Ipv6(address) => Self::Ip(address.into()),
            UrlHost::Domain(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                if name.is_empty() || name.len() > 253 {
                    return None;
                }
                Self::Name(name)
            }
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Ip(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// What is spoken there, as far as it decides about a proxy on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP in the clear.
    Http,
    /// HTTP over TLS.
    Https,
    /// Something else, SSH for one: no proxy of the environment is for it.
    Other,
}

/// A host and a port to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// What is spoken there.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl Authority {
    /// That of a URL; none where it has no host, or a scheme without a known port and none given.
    #[must_use]
    pub fn of_url(url: &Url) -> Option<Self> {
        let scheme = scheme(url.scheme());
        let port = url.port_or_known_default().or_else(|| (url.scheme() == "ssh").then_some(22))?;
        Some(Self { scheme, host: Host::parse(url.host_str()?)?, port })
    }

    /// That of a URI, as HTTP libraries have it.
    #[must_use]
    pub fn of_uri(uri: &Uri) -> Option<Self> {
        let scheme = scheme(uri.scheme_str().unwrap_or_default());
        let port = match (uri.port_u16(), scheme) {
            (Some(port), _) => port,
            (None, Scheme::Http) => 80,
            (None, Scheme::Https) => 443,
            (None, Scheme::Other) => return None,
        };
        Some(Self { scheme, host: Host::parse(uri.host()?)?, port })
    }
}

fn scheme(text: &str) -> Scheme {
    match text {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => Scheme::Other,
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
