//! The way to a server: straight, or through the proxy that the environment names for it (`HTTPS_PROXY`, `NO_PROXY`; by
//! CONNECT, so that TLS goes from end to end all the same).

use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;

/// A proxy on the way. Does not print: it may have a password.
pub struct Proxy {
    uri: Uri,
    auth: Option<HeaderValue>,
}

/// A proxy of a kind that is not spoken to.
#[derive(Debug, thiserror::Error)]
#[error("the proxy in the environment has scheme `{0}`, which is not supported: want http://HOST:PORT")]
pub struct UnusableProxy(String);

impl Proxy {
    /// The proxy on the way to a server, if there is one.
    ///
    /// # Errors
    /// Where it is not of the scheme `http`.
    pub fn to(server: &Uri) -> Result<Option<Self>, UnusableProxy> {
        Self::by(&Matcher::from_env(), server)
    }

    fn by(matcher: &Matcher, server: &Uri) -> Result<Option<Self>, UnusableProxy> {
        let Some(intercept) = matcher.intercept(server) else { return Ok(None) };
        match intercept.uri().scheme_str() {
            Some("http") => {
                Ok(Some(Self { uri: intercept.uri().clone(), auth: intercept.basic_auth().cloned() }))
            }
            other => Err(UnusableProxy(other.unwrap_or_default().to_owned())),
        }
    }

    /// A connector that goes through it.
    pub(crate) fn tunnel(self, patience: Duration) -> Tunnel<HttpConnector> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(patience));
        let tunnel = Tunnel::new(self.uri, connector);
        match self.auth {
            Some(auth) => tunnel.with_auth(auth),
            None => tunnel,
        }
    }

    /// For a client of requests.
    ///
    /// # Errors
    /// Where its address is none.
    pub(crate) fn for_requests(self) -> reqwest::Result<reqwest::Proxy> {
        let proxy = reqwest::Proxy::all(self.uri.to_string())?;
        Ok(match self.auth {
            Some(auth) => proxy.custom_http_auth(auth),
            None => proxy,
        })
    }

    /// Its address, without a password.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::client::proxy::matcher::Matcher;

    use super::Proxy;

    fn way(proxy: &str, server: &'static str) -> Result<Option<String>, String> {
        let matcher = Matcher::builder().https(proxy.to_owned()).no("10.0.0.0/8,.internal,127.0.0.1").build();
        let way = Proxy::by(&matcher, &http::Uri::from_static(server));
        way.map(|proxy| proxy.map(|proxy| proxy.uri().to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_environment_says() {
        let proxied = Ok(Some("http://proxy.example:3128/".to_owned()));
        assert_eq!(way("http://proxy.example:3128", "https://hub.example:7443"), proxied);
        assert_eq!(way("proxy.example:3128", "https://hub.example:7443"), proxied, "http is what is meant");
        for near in ["https://10.1.2.3:7443", "https://hub.internal:7443", "https://127.0.0.1:1"] {
            assert_eq!(way("http://proxy.example:3128", near), Ok(None));
        }
        assert_eq!(way("", "https://hub.example:7443"), Ok(None));
        let with_password = way("http://ann:hunter2@proxy.example:3128", "https://hub.example:7443");
        assert!(with_password.is_ok_and(|uri| uri.is_some_and(|uri| !uri.contains("hunter2"))));
        let refused = way("socks5://proxy.example:1080", "https://hub.example:7443").expect_err("no CONNECT");
        assert!(refused.contains("socks5"), "{refused}");
    }
}
