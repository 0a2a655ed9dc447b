//! Which redirects are followed, and where credentials go.

use url::Url;

/// The most redirects of one request.
const MOST: usize = 5;

/// Why a redirect is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefused {
    /// Not a URL.
    #[error("it is not a URL")]
    NoUrl,
    /// A user name or password in it.
    #[error("it holds credentials")]
    Credentials,
    /// Neither `http` nor `https`, or from `https` to `http`.
    #[error("it leaves https")]
    Scheme,
    /// To where the request was twice before: once is how some servers set a cookie.
    #[error("it is a redirect loop")]
    Circle,
    /// Too many.
    #[error("there are too many redirects (at most {MOST} are followed)")]
    TooMany,
}

/// The way of one request through redirects. Each connection on it is checked like the first.
#[derive(Debug, Clone)]
pub struct Trail {
    current: Url,
    /// All of it, `current` at the end.
    seen: Vec<Url>,
}

impl Trail {
    /// A way that begins here.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self { current: url.clone(), seen: vec![url] }
    }

    /// Where it is.
    #[must_use]
    pub fn current(&self) -> &Url {
        &self.current
    }

    /// Where a `Location` header leads, if that may be followed; the way goes on there.
    ///
    /// # Errors
    /// [`RedirectRefused`]; the way stays where it was.
    pub fn step(&mut self, location: &str) -> Result<&Url, RedirectRefused> {
        let mut next = self.current.join(location).map_err(|_| RedirectRefused::NoUrl)?;
        next.set_fragment(None);
        if !next.username().is_empty() || next.password().is_some() {
            return Err(RedirectRefused::Credentials);
        }
        if !(next.scheme() == "https" || next.scheme() == "http" && self.current.scheme() == "http") {
            return Err(RedirectRefused::Scheme);
        }
        if self.seen.len() > MOST {
            return Err(RedirectRefused::TooMany);
        }
        if self.seen.iter().filter(|seen| **seen == next).count() > 1 {
            return Err(RedirectRefused::Circle);
        }
        self.seen.push(next.clone());
        self.current = next;
        Ok(&self.current)
    }
}

/// Whether credentials for `origin` may go to `url`: the same server, and not less protected.
#[must_use]
pub fn credentials_belong(origin: &Url, url: &Url) -> bool {
    let same_port = origin.port_or_known_default() == url.port_or_known_default();
    let upgraded = origin.scheme() == "http"
        && url.scheme() == "https"
        && origin.port().is_none()
        && url.port().is_none();
    origin.host_str() == url.host_str() && (origin.scheme() == url.scheme() && same_port || upgraded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn credentials_go_to_their_own_server_only() {
        let belong = |a: &str, b: &str| credentials_belong(&url(a), &url(b));
        assert!(belong("https://git.example/a", "https://git.example/b"));
        assert!(belong("https://git.example/a", "https://git.example:443/b"));
        assert!(belong("http://git.example/a", "https://git.example/a"));
        assert!(!belong("https://git.example/a", "http://git.example/a"));
        assert!(!belong("https://git.example/a", "https://git.example:8443/a"));
        assert!(!belong("http://git.example:8080/a", "https://git.example:8443/a"));
        assert!(!belong("https://git.example/a", "https://evil.example/a"));
        assert!(!belong("https://git.example/a", "https://sub.git.example/a"));
    }

    #[test]
    fn redirects_to_other_schemes_with_credentials_and_in_circles_are_refused() {
        let refused = |from: &str, to: &str| Trail::new(url(from)).step(to).unwrap_err();
        for scheme in
            ["ftp://h/", "file:///etc/passwd", "gopher://h/", "ssh://h/", "javascript:1", "http://h/"]
        {
            assert_eq!(refused("https://git.example/a", scheme), RedirectRefused::Scheme, "{scheme}");
        }
        assert_eq!(refused("http://git.example/a", "ftp://h/"), RedirectRefused::Scheme);
        assert_eq!(refused("https://git.example/a", "https://u:p@h/"), RedirectRefused::Credentials);
        assert_eq!(refused("https://git.example/a", "https://[bad/"), RedirectRefused::NoUrl);

        let mut trail = Trail::new(url("http://a.example/1"));
        assert_eq!(trail.step("https://b.example/2").unwrap().as_str(), "https://b.example/2");
        assert_eq!(trail.step("3").unwrap().as_str(), "https://b.example/3");
        trail.step("/2#x").unwrap();
        trail.step("/3").unwrap();
        assert_eq!(trail.step("/2").unwrap_err(), RedirectRefused::Circle);
        trail.step("/6").unwrap();
        assert_eq!(trail.step("/7").unwrap_err(), RedirectRefused::TooMany);
        assert_eq!(trail.current().as_str(), "https://b.example/6");
    }
}
