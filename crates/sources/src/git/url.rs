//! Which URLs a source may have.

use std::path::PathBuf;

use url::Url;

use super::error::GitError;
use super::request::GitRequest;

/// Where a repository is.
#[derive(Debug, Clone)]
pub(super) enum Location {
    Http(Url),
    File(PathBuf),
}

impl Location {
    /// Reads the request's URL and reference and refuses what is not allowed, before anything is asked of anyone.
    pub(super) fn parse(request: &GitRequest) -> Result<Self, GitError> {
        let refuse = |why: &str| Err(GitError::UrlRefused { url: request.shown_url(), why: why.to_owned() });
        if request.url.len() > 2_048 {
            return refuse("it is longer than 2048 bytes");
        }
        let Ok(url) = Url::parse(&request.url) else {
            return refuse("it is not a URL; want `https://host/path`");
        };
        let location = match url.scheme() {
            "https" | "http" => Self::Http(url.clone()),
            "file" if !request.allow_file => {
                return refuse("`file://` is for development: the hub takes it with `--dev` only");
            }
            "file" => match url.to_file_path() {
                Ok(path) => Self::File(path),
                Err(()) => return refuse("a `file://` URL is `file:///` and an absolute path"),
            },
            "ssh" => return refuse("`ssh://` is not supported yet; use `https://`"),
            _ => return refuse("the scheme must be `https` or `http`"),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("it holds credentials; put them into the Secret that `spec.secretRef` names");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse("a Git URL has no `?` and no `#`");
        }
        request.reference.check(&request.shown_url())?;
        Ok(location)
    }
}

#[cfg(test)]
mod tests {
    use super::{GitRequest, Location};

    fn refusal(url: &str) -> String {
        match Location::parse(&GitRequest::new(url)) {
            Ok(location) => panic!("{location:?} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn refusals_say_why_and_keep_secrets() {
        assert!(refusal("https://user:hunter2@git.example/x").contains("holds credentials"));
        assert!(refusal("file:///srv/git").contains("--dev"));
        assert!(refusal("ssh://git@git.example/x").contains("not supported yet"));
        assert!(refusal("git@git.example:x").contains("not a URL"));
        assert!(refusal("ext::sh -c true").contains("refused"));
        assert!(refusal("https://git.example/x?token=hunter2").contains('?'));
        for url in [
            "https://user:hunter2@git.example/x",
            "https://hunter2@git.example/x",
            "https://git.example/x?token=hunter2",
            "hunter2@git.example:x",
            "ftp://u:hunter2@h",
            "https://u:hunter2@[bad/x",
        ] {
            assert!(!refusal(url).contains("hunter2"), "{}", refusal(url));
        }
    }
}
