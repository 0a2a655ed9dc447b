//! Which URLs a source may have.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use roadstead_outbound::{Authority, Host};
use url::Url;

use super::error::GitError;
use super::request::GitRequest;
use super::sparse::Sparse;

/// Where a repository is.
#[derive(Debug, Clone)]
pub(super) enum Location {
    Http(Url),
    Ssh(SshUrl),
    File(PathBuf),
}

/// A repository that is reached over SSH.
#[derive(Debug, Clone)]
pub(super) struct SshUrl {
    pub(super) authority: Authority,
    pub(super) user: String,
    path: String,
}

impl SshUrl {
    /// What is wrong with it, or what it says.
    fn parse(url: &Url) -> Result<Self, &'static str> {
        const MOST_USER: usize = 256;
        if url.password().is_some() {
            return Err(
                "it holds a password; over SSH a key is used, in the Secret that `spec.secretRef` names",
            );
        }
        let authority = Authority::of_url(url).ok_or("it has no host that can be connected to")?;
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
            (!text.chars().any(char::is_control)).then_some(text)
        };
        let user = decoded(url.username()).ok_or("its user is not text")?;
        if user.len() > MOST_USER {
            return Err("its user is longer than 256 bytes");
        }
        let user = if user.is_empty() { "git".to_owned() } else { user };
        let path = decoded(url.path()).ok_or("its path is not text")?;
        if path.trim_matches('/').is_empty() {
            return Err("it names no repository: want `ssh://git@host/path`");
        }
        Ok(Self { authority, user, path })
    }

    /// Reads `user@host:path`, as Git writes it: the path is relative to the user's home, unless it begins with a `/`.
    fn of_scp(text: &str) -> Result<Self, &'static str> {
        let (place, path) = scp_parts(text).ok_or("it is neither a URL nor `user@host:path`")?;
        let url =
            Url::parse(&format!("ssh://{place}/-")).map_err(|_| "it has no host that can be connected to")?;
        let mut to = Self::parse(&url)?;
        path.clone_into(&mut to.path);
        Ok(to)
    }

    /// What is to be run there: by the server's shell, to which the path is one word whatever is in it.
    pub(super) fn command(&self) -> String {
        // A home folder is not beneath the root.
        let path = if self.path.starts_with("/~") { &self.path[1..] } else { self.path.as_str() };
        format!("git-upload-pack '{}'", path.replace('\'', r"'\''").replace('!', r"'\!'"))
    }

    /// The host as `known_hosts` has it.
    pub(super) fn host_in_file(&self) -> String {
        match &self.authority.host {
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => name.clone(),
        }
    }

    /// What asks the host for its keys.
    pub(super) fn scan(&self) -> String {
        let host = self.host_in_file();
        match self.authority.port {
            22 => format!("ssh-keyscan {host}"),
            port => format!("ssh-keyscan -p {port} {host}"),
        }
    }
}

/// Whether it is `user@host:path`, with a user or without.
pub(super) fn is_scp(text: &str) -> bool {
    scp_parts(text).is_some()
}

/// `user@host`, and the path.
fn scp_parts(text: &str) -> Option<(&str, &str)> {
    let start = text.find(['@', ':', '/']).filter(|at| text[*at..].starts_with('@')).map_or(0, |at| at + 1);
    // An address of version 6 has colons of its own.
    let end = if text[start..].starts_with('[') { start + text[start..].find(']')? } else { start };
    let colon = end + text[end..].find(':')?;
    let (place, path) = (&text[..colon], &text[colon + 1..]);
    let is_option = |part: &str| part.is_empty() || part.starts_with('-');
    let sound =
        !place.contains('/') && !is_option(&text[start..colon]) && !is_option(place) && !is_option(path);
    sound.then_some((place, path))
}

impl Location {
    /// Where a submodule is: as a source's URL, or `user@host:path`.
    pub(super) fn of_submodule(request: &GitRequest) -> Result<Self, GitError> {
        if request.url.contains("://") || !is_scp(&request.url) {
            return Self::parse(request);
        }
        SshUrl::of_scp(&request.url)
            .map(Self::Ssh)
            .map_err(|why| GitError::UrlRefused { url: request.shown_url(), why: why.to_owned() })
    }

    /// Reads the request's URL and reference and refuses what is not allowed, before anything is asked of anyone.
    pub(super) fn parse(request: &GitRequest) -> Result<Self, GitError> {
        let refuse = |why: &str| Err(GitError::UrlRefused { url: request.shown_url(), why: why.to_owned() });
        if request.url.len() > 2_048 {
            return refuse("it is longer than 2048 bytes");
        }
        let Ok(url) = Url::parse(&request.url) else {
            return refuse(
                "it is not a URL; want `https://host/path` or `ssh://git@host/path` (`git@host:path` is none, and a `:` after the host is followed by a port)",
            );
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
            "ssh" => match SshUrl::parse(&url) {
                Ok(to) => Self::Ssh(to),
                Err(why) => return refuse(why),
            },
            // Without a host that is not a scheme, but perhaps a user's name.
            other if url.has_host() => {
                return refuse(&format!(
                    "unknown transport '{other}': the scheme must be `https`, `http` or `ssh`"
                ));
            }
            _ => return refuse("the scheme must be `https`, `http` or `ssh`"),
        };
        if !matches!(location, Self::Ssh(_)) && (!url.username().is_empty() || url.password().is_some()) {
            return refuse("it holds credentials; put them into the Secret that `spec.secretRef` names");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse("a Git URL has no `?` and no `#`");
        }
        request.reference.check(&request.shown_url())?;
        let sparse = Sparse::check(&request.sparse);
        sparse.map_err(|why| GitError::Sparse { url: request.shown_url(), why })?;
        request.verify.as_ref().map_or(Ok(()), |verify| verify.check(request))?;
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
        assert!(refusal("ssh://git:hunter2@git.example/x").contains("password"));
        assert!(refusal("ssh://git@git.example/").contains("no repository"));
        assert!(refusal("ssh://git@git.example:org/x").contains("port"));
        assert!(refusal("ssh://git@git.example/a%0ab").contains("not text"));
        assert!(refusal("ssh:///srv/x").contains("no host"));
        assert!(refusal("git@git.example:x").contains("not a URL"));
        assert!(refusal("ext::sh -c true").contains("refused"));
        assert!(refusal("https://git.example/x?token=hunter2").contains('?'));
        for url in [
            "https://user:hunter2@git.example/x",
            "https://hunter2@git.example/x",
            "https://git.example/x?token=hunter2",
            "hunter2@git.example:x",
            "ftp://u:hunter2@h",
            "ssh://git:hunter2@git.example/x",
            "ssh://git:hunter2@git.example:org/x",
            "https://u:hunter2@[bad/x",
        ] {
            assert!(!refusal(url).contains("hunter2"), "{}", refusal(url));
        }
    }

    #[test]
    fn what_is_run_over_ssh_is_one_word() {
        let to = |url: &str| match Location::parse(&GitRequest::new(url)) {
            Ok(Location::Ssh(to)) => to,
            other => panic!("{other:?}"),
        };
        for (url, user, command, scan) in [
            ("ssh://git.example/a/b.git", "git", "git-upload-pack '/a/b.git'", "ssh-keyscan git.example"),
            ("ssh://me@Git.Example.:2222/a", "me", "git-upload-pack '/a'", "ssh-keyscan -p 2222 git.example"),
            ("ssh://a%20b@[::1]/~me/a", "a b", "git-upload-pack '~me/a'", "ssh-keyscan ::1"),
            (
                "ssh://h.example/a'$(b)!%20;c",
                "git",
                r"git-upload-pack '/a'\''$(b)'\!' ;c'",
                "ssh-keyscan h.example",
            ),
            ("ssh://h.example/--help", "git", "git-upload-pack '/--help'", "ssh-keyscan h.example"),
        ] {
            let to = to(url);
            assert_eq!((to.user.as_str(), to.command().as_str(), to.scan().as_str()), (user, command, scan));
        }
        let scp = |url: &str| match Location::of_submodule(&GitRequest::new(url)) {
            Ok(Location::Ssh(to)) => (to.user.clone(), to.command(), to.authority.port),
            other => panic!("{other:?}"),
        };
        let git = |command: &str| ("git".to_owned(), command.to_owned(), 22);
        assert_eq!(scp("git@git.example:a/b c.git"), git("git-upload-pack 'a/b c.git'"));
        assert_eq!(scp("git.example:/a'b"), git(r"git-upload-pack '/a'\''b'"));
        assert_eq!(scp("git@[::1]:a"), git("git-upload-pack 'a'"));
        // Whatever notation its address has, it is judged as that address.
        assert_eq!(to("ssh://git@2130706433/x").host_in_file(), "127.0.0.1");
    }
}
