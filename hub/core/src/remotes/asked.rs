//! What is asked for by a URL in a kustomization. Pure: what it says is anyone's.

use std::time::Duration;

use roadstead_kustomize::{RemoteRepository, RemoteUrl};
use roadstead_outbound::Authority;
use url::Url;

/// Bytes of a URL.
const MOST_URL: usize = 2_048;
/// How long one is checked, where the URL does not say, and at most.
const TIMEOUT: Duration = Duration::from_secs(60);
const MOST_TIMEOUT: Duration = Duration::from_secs(300);

/// A remote resource, as it is checked for all that name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What is the same for all of them: a URL again.
    pub(crate) key: String,
    /// Where it is.
    pub(crate) authority: Authority,
    /// What it is taken for.
    pub(super) as_what: AsWhat,
    pub(super) timeout: Duration,
}

/// What a URL may be that of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AsWhat {
    Repository(Repository),
    /// A file, or else a repository.
    File(Url, Option<Repository>),
}

/// A Git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    pub(super) url: String,
    /// What `git fetch` is given.
    pub(super) reference: String,
    pub(super) submodules: bool,
}

impl Asked {
    /// Reads a URL, or says why nothing is fetched by it; that does not show what may be a password.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("remote resource {:?} is refused: {why}", shown(text)));
        if text.len() > MOST_URL {
            return refuse(&format!("it is longer than {MOST_URL} bytes"));
        }
        let Some(remote) = RemoteUrl::parse(text) else {
            return refuse("it is neither an https:// URL nor a Git URL that kustomize knows");
        };
        let is_marked = remote.is_marked();
        let RemoteUrl { file, repository } = remote;
        let secure = |url: &String| url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
        let file = file.filter(|url| !is_marked && secure(url));
        let repository = repository.filter(|repository| secure(&repository.url));
        let Some(place) = file.as_ref().or(repository.as_ref().map(|repository| &repository.url)) else {
            return refuse(
                "remote resources are fetched over https:// only, and without credentials: neither SSH nor http://",
            );
        };
        let Ok(url) = Url::parse(place) else { return refuse("it is not a URL") };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(
                "it holds a user name or a password; remote resources are fetched without credentials",
            );
        }
        let Some(authority) = Authority::of_url(&url) else { return refuse("it has no host") };
        let wanted = repository.as_ref().and_then(|repository| repository.timeout);
        let timeout = wanted.unwrap_or(TIMEOUT).clamp(Duration::from_secs(1), MOST_TIMEOUT);
        let (key, as_what) = match (file, repository) {
            (None, Some(repository)) => (key(&repository), AsWhat::Repository(repository.into())),
            (_, repository) => (text.to_owned(), AsWhat::File(url, repository.map(Repository::from))),
        };
        Ok(Self { key, authority, as_what, timeout })
    }
}

impl From<RemoteRepository> for Repository {
    fn from(repository: RemoteRepository) -> Self {
        let RemoteRepository { url, reference, submodules, .. } = repository;
        Self { url, reference, submodules }
    }
}

/// The same repository at the same reference, whichever of its directories is meant.
fn key(repository: &RemoteRepository) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("ref", &repository.reference);
    if !repository.submodules {
        query.append_pair("submodules", "false");
    }
    if let Some(timeout) = repository.timeout {
        query.append_pair("timeout", &format!("{}ms", timeout.as_millis()));
    }
    format!("git::{}//?{}", repository.url, query.finish())
}

/// A URL as it may be shown.
pub(super) fn shown(text: &str) -> String {
    RemoteUrl::shown(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_a_repository_are_fetched_once() {
        let key = |text: &str| Asked::of(text).unwrap().key;
        let of_a = key("https://github.com/org/repo//a?ref=v1");
        for text in [
            "https://github.com/org/repo//b/c?ref=v1",
            "github.com/org/repo/a?ref=v1",
            "git::https://github.com/org/repo?version=v1",
            "http://github.com/org/repo//a?ref=v1&submodules=true",
        ] {
            assert_eq!(key(text), of_a, "{text}");
        }
        for text in [
            "https://github.com/org/repo//a",
            "https://github.com/org/repo//a?ref=v2",
            "https://github.com/org/repo//a?ref=v1&submodules=false",
            "https://github.com/org/repo.git//a?ref=v1",
            // Perhaps a file: its server is asked for it.
            "https://github.com/org/repo/a?ref=v1",
        ] {
            assert_ne!(key(text), of_a, "{text}");
        }
    }

    #[test]
    fn a_key_asks_for_the_same() {
        for text in [
            "https://github.com/org/repo//a?ref=v1",
            "https://git.example.com/a.git/b?ref=feature/one%20%26two&submodules=0&timeout=2m",
            "https://dev.azure.com/org/project/_git/repo/a",
            "https://raw.githubusercontent.com/org/repo/v1/a.yaml",
            "https://git.example.com:8443/a/b?ref=main",
        ] {
            let asked = Asked::of(text).unwrap();
            assert_eq!(Asked::of(&asked.key).unwrap(), asked, "{text}");
        }
    }

    #[test]
    fn what_is_not_fetched_is_refused_by_name() {
        for (text, why) in [
            ("git@github.com:org/repo", "neither SSH"),
            ("ssh://git@git.example.com/a/b", "neither SSH"),
            ("http://git.example.com/a/b", "nor http://"),
            ("http://example.com/a.yaml", "nor http://"),
            ("file:///srv/git", "over https:// only"),
            ("https://user:hunter2@git.example.com/a/b", "holds a user name or a password"),
            ("https://hunter2@git.example.com/a/b.git", "holds a user name or a password"),
            ("https://", "is not a URL"),
            ("../base", "neither an https:// URL"),
        ] {
            let told = Asked::of(text).unwrap_err();
            assert!(told.contains(why) && !told.contains("hunter2"), "{text}: {told}");
        }
        assert!(Asked::of(&format!("https://git.example.com/{}", "a".repeat(3_000))).is_err());
    }
}
