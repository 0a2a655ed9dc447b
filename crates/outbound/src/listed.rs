//! Hosts by name: for what an operator turns on for some of them only, whatever addresses they have.

use std::fmt;
use std::str::FromStr;

use crate::host::{Authority, Host};
use crate::rule::{BadRule, Target, target};

/// A host that an operator lists, at one of its ports or at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedHost {
    host: Host,
    port: Option<u16>,
}

/// The hosts that an operator lists by a flag. Nothing else is connected to by a guard that is held to them, redirects included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedHosts {
    hosts: Vec<ListedHost>,
    flag: &'static str,
}

impl ListedHosts {
    /// These; `flag` is what they are listed by.
    #[must_use]
    pub fn new(hosts: Vec<ListedHost>, flag: &'static str) -> Self {
        Self { hosts, flag }
    }

    /// Whether this host is listed.
    ///
    /// # Errors
    /// [`Unlisted`], which says what would list it.
    pub fn check(&self, to: &Authority) -> Result<(), Unlisted> {
        let is_it =
            |listed: &ListedHost| listed.host == to.host && listed.port.is_none_or(|port| port == to.port);
        if self.hosts.iter().any(is_it) {
            return Ok(());
        }
        Err(Unlisted { host: to.host.clone(), flag: self.flag })
    }
}

/// A host that is not listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is not among the hosts that the operator lists: start the hub with {flag} {host} to allow it"
)]
pub struct Unlisted {
    /// The host.
    pub host: Host,
    /// What it would be listed by.
    pub flag: &'static str,
}

impl FromStr for ListedHost {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let text = text.trim();
        if text.contains('/') {
            return Err(BadRule::Host(text.to_owned()));
        }
        let (host, port) = target(text)?;
        let host = match host {
            // A purpose or a pattern in it would match nothing, and nobody would be told.
            Target::Name(name) if !name.chars().all(is_of_a_name) => {
                return Err(BadRule::Host(text.to_owned()));
            }
            Target::Name(name) => Host::Name(name),
            Target::Network(network) => Host::Ip(network.addr()),
        };
        Ok(Self { host, port })
    }
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

impl fmt::Display for ListedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => write!(f, "{}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use url::Url;

    use super::*;
    use crate::{ConnectError, Guard, Policy, Purpose};

    fn listed(hosts: &[&str]) -> ListedHosts {
        ListedHosts::new(hosts.iter().map(|host| host.parse().unwrap()).collect(), "--remote-bases")
    }

    fn check(hosts: &[&str], url: &str) -> Result<(), Unlisted> {
        listed(hosts).check(&Authority::of_url(&Url::parse(url).unwrap()).unwrap())
    }

    #[test]
    fn a_host_is_listed_in_any_notation_and_nothing_else_with_it() {
        for (host, url) in [
            ("github.com", "https://github.com/a/b"),
            ("GitHub.com", "https://github.com:8443/a"),
            ("github.com:443", "https://GITHUB.com./a"),
            ("127.0.0.1", "https://0x7f.1/a"),
            ("[::1]:8443", "https://[::1]:8443/"),
        ] {
            assert_eq!(check(&[host], url), Ok(()), "{host} {url}");
        }
        for (host, url) in [
            ("github.com", "https://raw.github.com/a"),
            ("raw.github.com", "https://github.com/a"),
            ("github.com:443", "https://github.com:8443/a"),
            ("github.com", "https://github.com.example/"),
            ("127.0.0.1", "https://127.0.0.2/"),
        ] {
            assert!(check(&[host], url).is_err(), "{host} {url}");
        }
        let told = check(&[], "https://github.com/a").unwrap_err().to_string();
        assert!(told.contains("--remote-bases github.com"), "{told}");
    }

    #[tokio::test]
    async fn a_guard_connects_to_listed_hosts_only_whatever_its_policy_allows() {
        let hosts = Arc::new(listed(&["127.0.0.1:1"]));
        let guard = Guard::new(Arc::new(Policy::everything()), Purpose::Git).only_to(hosts);
        let to = |url: &str| Authority::of_url(&Url::parse(url).unwrap()).unwrap();
        assert!(guard.check(&to("https://127.0.0.1:1/")).await.is_ok());
        let refused = guard.connect(&to("https://127.0.0.1:2/")).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Unlisted(_)), "{refused}");
        // The name is not even looked up.
        let refused = guard.check(&to("https://nowhere.invalid/")).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Unlisted(_)), "{refused}");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "https://github.com",
            "10.0.0.0/8",
            "github.com/org",
            "a b",
            "github.com:0",
            "git=github.com",
            "*.github.com",
        ] {
            assert!(text.parse::<ListedHost>().is_err(), "{text}");
        }
        assert_eq!("github.com:8443".parse::<ListedHost>().unwrap().to_string(), "github.com:8443");
    }
}
