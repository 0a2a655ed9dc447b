//! Credentials of registries, as Docker's configuration file has them (`kubernetes.io/dockerconfigjson`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_outbound::Secret;
use serde::Deserialize;

use super::name::RepositoryName;

/// Docker's own registry is filed under its old address.
const DOCKER_KEYS: [&str; 3] = ["index.docker.io", "docker.io", "registry-1.docker.io"];

/// How to log in at a registry. Sent to that registry, and to the token service that it names.
#[derive(Debug, Clone)]
pub enum RegistryLogin {
    /// A name and a password.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// A token that the registry's token service changes for another one.
    Identity(Secret),
}

/// Docker's configuration file, as far as it is about registries.
#[derive(Deserialize)]
struct Config {
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
struct Entry {
    #[serde(default)]
    auth: Secret,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: Secret,
    #[serde(default, alias = "identityToken")]
    identitytoken: Secret,
}

/// The logins of a Secret, each under the registry, or the part of it, that it is for.
#[derive(Debug, Clone, Default)]
pub struct RegistryLogins(Vec<(String, RegistryLogin)>);

impl RegistryLogins {
    /// Reads `.dockerconfigjson`, or with `bare` the older `.dockercfg`, which is what the other has in `auths`.
    ///
    /// # Errors
    /// What is wrong with it, without anything of what it holds but hosts.
    pub fn parse(text: &str, bare: bool) -> Result<Self, String> {
        let unreadable = |error: serde_json::Error| {
            // Its own text shows a part of what was read.
            format!("is not JSON of the expected form (line {}, column {})", error.line(), error.column())
        };
        let auths = if bare {
            serde_json::from_str(text).map_err(unreadable)?
        } else {
            serde_json::from_str::<Config>(text).map_err(unreadable)?.auths
        };
        let mut logins = Vec::new();
        for (key, entry) in auths {
            if let Some(login) =
                entry.login().map_err(|why| format!("`{}`: {why}", crate::tree::shown(&key)))?
            {
                logins.push((normalized(&key), login));
            }
        }
        // The longest first: it is the closest.
        logins.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        Ok(Self(logins))
    }

    /// Adds those of another Secret. Where both have one for the same registry, what is there already comes first.
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
        // What is equally close stays in its order.
        self.0.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
    }

    /// Whether one of them is sent to the registry of this URL.
    #[must_use]
    pub fn are_for(&self, url: &str, insecure: bool) -> bool {
        RepositoryName::parse(url, insecure).is_ok_and(|repository| self.of(&repository).is_some())
    }

    /// One login for every registry: for a program that was given a name and a password.
    #[must_use]
    pub fn everywhere(login: RegistryLogin) -> Self {
        Self(vec![("*".to_owned(), login)])
    }

    /// The login for a repository: of those for its host, the one with the longest path that leads to it.
    pub(super) fn of(&self, repository: &RepositoryName) -> Option<&RegistryLogin> {
        let host = repository.host();
        let is_docker = DOCKER_KEYS.contains(&host.as_str());
        let matches = |key: &str| {
            let (of_host, path) = key.split_once('/').unwrap_or((key, ""));
            let same = key == "*" || is_host(of_host, &host) || is_docker && DOCKER_KEYS.contains(&of_host);
            let beneath = repository.path.strip_prefix(path);
            same && (path.is_empty() || beneath.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        };
        self.0.iter().find(|(key, _)| matches(key)).map(|(_, login)| login)
    }
}

impl Entry {
    fn login(self) -> Result<Option<RegistryLogin>, &'static str> {
        if !self.identitytoken.is_empty() {
            return Ok(Some(RegistryLogin::Identity(self.identitytoken)));
        }
        if !self.username.is_empty() || !self.password.is_empty() {
            return Ok(Some(RegistryLogin::Basic { username: self.username, password: self.password }));
        }
        if self.auth.is_empty() {
            return Ok(None);
        }
        // Exposed to be taken apart.
        let decoded = STANDARD.decode(self.auth.expose().trim()).map_err(|_| "`auth` is not base64")?;
        let pair = String::from_utf8(decoded).map_err(|_| "`auth` is not text")?;
        let pair = zeroize::Zeroizing::new(pair);
        let (username, password) =
            pair.split_once(':').ok_or("`auth` is not a name and a password with a colon between them")?;
        let password = Secret::new(password.trim_end_matches('\0').to_owned());
        Ok(Some(RegistryLogin::Basic { username: username.to_owned(), password }))
    }
}

/// `https://index.docker.io/v1/` and the like are hosts with something around them.
fn normalized(key: &str) -> String {
    let key = key.trim();
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let bare = bare.trim_end_matches('/');
    let bare = bare.strip_suffix("/v1").or_else(|| bare.strip_suffix("/v2")).unwrap_or(bare);
    match bare.split_once('/') {
        Some((host, path)) => format!("{}/{path}", host.to_ascii_lowercase()),
        None => bare.to_ascii_lowercase(),
    }
}

/// Whether a host is meant; `*` stands for one part of a name.
fn is_host(pattern: &str, host: &str) -> bool {
    if pattern == host || pattern.strip_suffix(":443") == Some(host) {
        return true;
    }
    let (mut pattern, mut host) = (pattern.split('.'), host.split('.'));
    loop {
        match (pattern.next(), host.next()) {
            (None, None) => return true,
            (Some("*"), Some(part)) if !part.contains(':') => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RegistryLogin, RegistryLogins};
    use crate::oci::name::RepositoryName;

    fn who(logins: &RegistryLogins, url: &str) -> Option<String> {
        match logins.of(&RepositoryName::parse(url, false).unwrap())? {
            RegistryLogin::Basic { username, password } => Some(format!("{username}:{}", password.expose())),
            RegistryLogin::Identity(token) => Some(token.expose().to_owned()),
        }
    }

    #[test]
    fn the_closest_entry_for_the_host_is_taken() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "ZG9ja2VyOnB3"},
            "ghcr.io": {"username": "all", "password": "a"},
            "ghcr.io/org": {"username": "org", "password": "b"},
            "ghcr.io/org/app": {"username": "app", "password": "c"},
            "*.example.com": {"username": "any", "password": "d"},
            "registry.example:5000": {"identitytoken": "token"},
            "empty.example": {}
        }, "credsStore": "desktop"}"#;
        let logins = RegistryLogins::parse(config, false).unwrap();
        for (url, expected) in [
            ("oci://docker.io/nginx", Some("docker:pw")),
            ("oci://ghcr.io/other/app", Some("all:a")),
            ("oci://ghcr.io/organ/app", Some("all:a")),
            ("oci://ghcr.io/org/other", Some("org:b")),
            ("oci://ghcr.io/org/app", Some("app:c")),
            ("oci://eu.example.com/app", Some("any:d")),
            ("oci://a.eu.example.com/app", None),
            ("oci://registry.example:5000/app", Some("token")),
            ("oci://registry.example/app", None),
            ("oci://empty.example/app", None),
            ("oci://evil-ghcr.io/org/app", None),
        ] {
            assert_eq!(who(&logins, url).as_deref(), expected, "{url}");
        }
        let older = RegistryLogins::parse(r#"{"ghcr.io": {"auth": "dTpw"}}"#, true).unwrap();
        assert_eq!(who(&older, "oci://ghcr.io/a/b").as_deref(), Some("u:p"));
    }

    #[test]
    fn logins_of_several_secrets_are_one_list() {
        let of = |text: &str| RegistryLogins::parse(&format!("{{\"auths\": {{{text}}}}}"), false).unwrap();
        let mut all = of(r#""ghcr.io": {"username": "own", "password": "a"}, "quay.io": {}"#);
        all.extend(of(r#""ghcr.io": {"username": "second", "password": "b"}, "ghcr.io/org": {"username": "org", "password": "c"}"#));
        all.extend(of(r#""registry.example": {"username": "third", "password": "d"}"#));
        for (url, expected) in [
            ("oci://ghcr.io/app", Some("own:a")),
            ("oci://ghcr.io/org/app", Some("org:c")),
            ("oci://registry.example/app", Some("third:d")),
            ("oci://quay.io/app", None),
        ] {
            assert_eq!(who(&all, url).as_deref(), expected, "{url}");
            assert_eq!(all.are_for(url, false), expected.is_some(), "{url}");
        }
        assert!(!all.are_for("https://ghcr.io/app", false), "it is not a registry");
    }

    #[test]
    fn what_cannot_be_read_is_told_without_what_it_holds() {
        for (config, why) in [
            ("{\"auths\": {\"ghcr.io\": {\"password\": [\"hunter2\"]}}}", "line 1"),
            ("hunter2", "line 1"),
            ("{\"auths\": {\"ghcr.io\": {\"auth\": \"hunter2!\"}}}", "`ghcr.io`: `auth` is not base64"),
            ("{\"auths\": {\"ghcr.io\": {\"auth\": \"aHVudGVyMg==\"}}}", "colon"),
        ] {
            let error = RegistryLogins::parse(config, false).unwrap_err();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
    }
}
