//! Servers, as somebody writes them.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use roadstead_outbound::{Authority, Host, Scheme, Secret};
use url::Url;

use crate::login::Login;

/// Servers of one address.
const MOST: usize = 8;
/// The port of clients.
const PORT: u16 = 4222;

/// Servers of one cluster, of which any takes what is published.
#[derive(Debug, Clone)]
pub struct Servers(pub(crate) Vec<Server>);

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) to: Authority,
    /// Whether nothing is said to it but over TLS.
    pub(crate) is_secure: bool,
    /// As whom one logs in there, where its URL says so.
    pub(crate) login: Login,
}

/// Not an address of servers. What was given does not stand in it: it may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadServers {
    /// It has no form of one.
    #[error(
        "the address is not that of NATS servers: want nats://HOST[:PORT] or tls://HOST[:PORT], or up to 8 of them with commas"
    )]
    Form,
    /// It is of a way that is not spoken.
    #[error(
        "NATS over WebSockets (ws:// and wss://) is not supported: give the server's nats:// or tls:// address"
    )]
    WebSocket,
}

impl Servers {
    /// Reads `nats://HOST:PORT`, or several with commas between them.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<Self, BadServers> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() > MOST {
            return Err(BadServers::Form);
        }
        parts.into_iter().map(Server::parse).collect::<Result<Vec<_>, _>>().map(Self)
    }

    /// The URL of each, with its port and without a name and a password.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .map(|server| format!("{}://{}", if server.is_secure { "tls" } else { "nats" }, server.to))
    }

    /// Whether any of them is spoken with in the clear, unless it asks for TLS itself.
    #[must_use]
    pub fn may_be_clear(&self) -> bool {
        self.0.iter().any(|server| !server.is_secure)
    }

    /// Whether one of their URLs says as whom one logs in.
    #[must_use]
    pub fn have_logins(&self) -> bool {
        self.0.iter().any(|server| server.login.is_somebody())
    }
}

impl Server {
    fn parse(text: &str) -> Result<Self, BadServers> {
        let text = if text.contains("://") { text.to_owned() } else { format!("nats://{text}") };
        let url = Url::parse(&text).map_err(|_| BadServers::Form)?;
        let is_secure = match url.scheme() {
            "nats" => false,
            "tls" => true,
            "ws" | "wss" => return Err(BadServers::WebSocket),
            _ => return Err(BadServers::Form),
        };
        let bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        let host = url.host_str().filter(|host| !host.is_empty()).and_then(Host::parse);
        let Some(host) = host.filter(|_| bare) else { return Err(BadServers::Form) };
        let to = Authority { scheme: Scheme::Other, host, port: url.port().unwrap_or(PORT) };
        Ok(Self { to, is_secure, login: login(&url)? })
    }
}

fn login(url: &Url) -> Result<Login, BadServers> {
    let text = |part: &str| {
        percent_decode_str(part).decode_utf8().map(Cow::into_owned).map_err(|_| BadServers::Form)
    };
    Ok(match (url.username(), url.password()) {
        ("", None) => Login::Nobody,
        // As NATS' clients have it.
        (token, None) => Login::Token(Secret::new(text(token)?)),
        (username, Some(password)) => {
            Login::Password { username: text(username)?, password: Secret::new(text(password)?) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(text: &str) -> Result<Vec<String>, BadServers> {
        Servers::parse(text).map(|servers| servers.urls().collect())
    }

    #[test]
    fn servers_are_read_with_their_ports() {
        for (text, expected) in [
            ("nats://bus.test", vec!["nats://bus.test:4222"]),
            ("tls://bus.test:4443", vec!["tls://bus.test:4443"]),
            ("bus.test:4333", vec!["nats://bus.test:4333"]),
            ("nats://a.test, tls://B.test./", vec!["nats://a.test:4222", "tls://b.test:4222"]),
            ("nats://[::1]:4222", vec!["nats://[::1]:4222"]),
            ("nats://0x7f.1", vec!["nats://127.0.0.1:4222"]),
        ] {
            assert_eq!(urls(text), Ok(expected.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_of_servers_is_refused() {
        for bad in [
            "",
            "nats://",
            "http://a.test",
            "nats://a.test/x",
            "nats://a.test?x",
            "a.test,,b.test",
            "nats://a b",
        ] {
            assert_eq!(urls(bad), Err(BadServers::Form), "{bad}");
        }
        assert_eq!(urls("wss://a.test"), Err(BadServers::WebSocket));
        assert_eq!(urls(&["a.test"; 9].join(",")), Err(BadServers::Form));
    }

    #[test]
    fn an_address_may_say_as_whom_one_logs_in_and_does_not_print_it() {
        let servers = Servers::parse("nats://us%40er:can%3Aary@a.test,nats://canary@b.test").unwrap();
        assert!(matches!(&servers.0[0].login, Login::Password { username, password }
            if username == "us@er" && password.expose() == "can:ary"));
        assert!(matches!(&servers.0[1].login, Login::Token(token) if token.expose() == "canary"));
        assert!(servers.have_logins() && !format!("{servers:?}").contains("ary"));
        assert!(servers.urls().all(|url| !url.contains("ary")));
        assert!(!Servers::parse("nats://a.test").unwrap().have_logins());
    }
}
