//! Which repository a URL names: `oci://registry.example.com[:port]/path`.

use url::Url;

/// Bytes of a URL.
const MOST_URL: usize = 2_048;
/// Bytes of a repository's path, as registries have it.
const MOST_PATH: usize = 255;
/// Docker's registry has names of its own.
const DOCKER: [&str; 2] = ["docker.io", "registry-1.docker.io"];
const DOCKER_REGISTRY: &str = "index.docker.io";
/// Where it keeps repositories whose names have one part.
const DOCKER_LIBRARY: &str = "library";

/// A repository of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepositoryName {
    /// The registry's root: `https://registry.example.com/`.
    pub(super) registry: Url,
    /// `org/app`.
    pub(super) path: String,
}

impl RepositoryName {
    /// Reads a URL; `plain` is whether the registry is spoken to without TLS.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(url: &str, plain: bool) -> Result<Self, String> {
        if url.len() > MOST_URL {
            return Err(format!("it is longer than {MOST_URL} bytes"));
        }
        let rest = url.strip_prefix("oci://").ok_or("the scheme must be `oci`; want `oci://host/path`")?;
        let (host, path) = rest.split_once('/').ok_or("it names no repository; want `oci://host/path`")?;
        let scheme = if plain { "http" } else { "https" };
        if host.is_empty() || host.contains(['\\', '?', '#', '%']) || host.chars().any(char::is_whitespace) {
            return Err("it has no valid host".to_owned());
        }
        if host.contains('@') {
            return Err(
                "it holds credentials; put them into the Secret that `spec.secretRef` names".to_owned()
            );
        }
        let host = if DOCKER.contains(&host) { DOCKER_REGISTRY } else { host };
        let registry = Url::parse(&format!("{scheme}://{host}/"));
        let registry = registry.map_err(|_| "it is not a URL; want `oci://host/path`")?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if let Some((_, digest)) = path.split_once('@') {
            return Err(format!(
                "URL must not contain a digest; remove '@{digest}' and use `spec.ref.digest`"
            ));
        }
        if let Some((_, tag)) = path.split_once(':') {
            return Err(format!("URL must not contain a tag; remove ':{tag}' and use `spec.ref.tag`"));
        }
        if path.len() > MOST_PATH {
            return Err(format!("the repository's path is longer than {MOST_PATH} bytes"));
        }
        if !path.split('/').all(is_part) {
            let want =
                "lower-case letters, digits and single separators (`.`, `_`, `-`) in each of its parts";
            return Err(format!("`{path}` is not the path of a repository: want {want}"));
        }
        let path = if host == DOCKER_REGISTRY && !path.contains('/') {
            format!("{DOCKER_LIBRARY}/{path}")
        } else {
            path.to_owned()
        };
        Ok(Self { registry, path })
    }

    /// The host, with its port where there is one, as credentials are filed under.
    pub(super) fn host(&self) -> String {
        let host = self.registry.host_str().unwrap_or_default();
        self.registry.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

/// Letters and digits, with separators between them only: so it is neither empty nor `..`.
fn is_part(part: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(plain) && part.bytes().next_back().is_some_and(plain);
    ends && part.bytes().all(|c| plain(c) || matches!(c, b'.' | b'_' | b'-')) && !part.contains("..")
}

/// Whether a text is a tag.
pub(super) fn is_tag(text: &str) -> bool {
    let first = text.bytes().next();
    text.len() <= 128
        && first.is_some_and(|c| c.is_ascii_alphanumeric() || c == b'_')
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::RepositoryName;

    fn parse(url: &str) -> Result<(String, String), String> {
        RepositoryName::parse(url, false).map(|name| (name.registry.to_string(), name.path))
    }

    #[test]
    fn a_url_names_a_registry_and_a_path() {
        for (url, registry, path) in [
            ("oci://ghcr.io/org/app", "https://ghcr.io/", "org/app"),
            ("oci://Registry.Example:5000/a/b_c/d-e.f/", "https://registry.example:5000/", "a/b_c/d-e.f"),
            ("oci://[::1]:5000/app", "https://[::1]:5000/", "app"),
            ("oci://docker.io/nginx", "https://index.docker.io/", "library/nginx"),
            ("oci://docker.io/org/app", "https://index.docker.io/", "org/app"),
        ] {
            assert_eq!(parse(url), Ok((registry.to_owned(), path.to_owned())), "{url}");
        }
        let plain = RepositoryName::parse("oci://registry.example/app", true).unwrap();
        assert_eq!(plain.registry.as_str(), "http://registry.example/");
    }

    #[test]
    fn other_urls_are_refused() {
        for (url, why) in [
            ("registry.example/charts", "must be `oci`"),
            ("https://registry.example/charts", "must be `oci`"),
            ("oci://registry.example", "no repository"),
            ("oci:///app", "no valid host"),
            ("oci://user:hunter2@registry.example/app", "holds credentials"),
            ("oci://registry.example/app:1.0", "remove ':1.0'"),
            ("oci://registry.example/app@sha256:abc", "remove '@sha256:abc'"),
            ("oci://registry.example/", "not the path"),
            ("oci://registry.example/../app", "not the path"),
            ("oci://registry.example/a//b", "not the path"),
            ("oci://registry.example/App", "not the path"),
            ("oci://registry.example/a?b", "not the path"),
            ("oci://registry.example\\evil/a", "no valid host"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
