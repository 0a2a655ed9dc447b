//! Where a submodule is, and what may be shown to whoever is there. What `.gitmodules` says is anyone's.
//!
//! A URL is one that a source could have, or relative to that of the repository that names it. Everything else that Git would take
//! is refused by its name: options, programs, files, paths of this machine.

use super::request::{GitReference, GitRequest};
use super::url::{Location, is_scp};

/// Submodules of one repository, in all levels.
pub(super) const MOST: usize = 100;
/// Levels of submodules, as Git's library in Flux has it.
pub(super) const MOST_DEEP: usize = 10;
const MOST_URL: usize = 2_048;

/// The URL of a submodule that the repository at `parent` calls `written`, or why it is refused.
pub(super) fn resolve(parent: &str, written: &str) -> Result<String, String> {
    if written.is_empty() || written.len() > MOST_URL {
        return Err(format!("its URL is empty or longer than {MOST_URL} bytes"));
    }
    if written.contains(char::is_control) {
        return Err("its URL holds control characters".to_owned());
    }
    let shown = crate::attempt::shown_url(written);
    if written.starts_with('-') {
        return Err(format!("its URL `{shown}` would be an option of Git's"));
    }
    if written.starts_with("./") || written.starts_with("../") {
        let url = beside(parent, written);
        return url.ok_or_else(|| {
            format!("its URL `{shown}` leads out of the server of the repository that names it")
        });
    }
    let word =
        written.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '+' | '.')).next();
    let word = word.unwrap_or_default();
    if written[word.len()..].starts_with("::") {
        return Err(format!("its URL begins with `{word}::`, which would run a program"));
    }
    if let Some((scheme, _)) = written.split_once("://") {
        return match scheme.to_ascii_lowercase().as_str() {
            "https" | "http" | "ssh" => Ok(written.to_owned()),
            _ => Err(format!(
                "its URL begins with `{}://`; it must be `https`, `http` or `ssh`",
                crate::tree::shown(scheme)
            )),
        };
    }
    if is_scp(written) {
        return Ok(written.to_owned());
    }
    Err(format!("its URL `{shown}` is a path of the machine that fetches it"))
}

/// What a relative URL leads to from `parent`; none where that is not on the same server, or no repository.
fn beside(parent: &str, relative: &str) -> Option<String> {
    // What stays, whatever is climbed.
    let path_at = match parent.find("://") {
        Some(at) => at + 3 + parent[at + 3..].find('/')? + 1,
        None => {
            let at = parent.find(':')? + 1;
            at + usize::from(parent[at..].starts_with('/'))
        }
    };
    let (server, path) = parent.split_at(path_at);
    let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    for name in relative.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    (!names.is_empty()).then(|| format!("{server}{}", names.join("/")))
}

/// The request for a submodule's `commit`, and whether it is at another server than `source`: then it gets no credentials.
pub(super) fn request(
    source: &GitRequest,
    origin: &Location,
    url: String,
    commit: &str,
) -> Result<(GitRequest, Location, bool), super::GitError> {
    let mut request = GitRequest {
        url,
        reference: GitReference::Commit { id: commit.to_owned(), branch: None },
        known: None,
        known_server: super::KnownServer::default(),
        verify: None,
        sparse: Vec::new(),
        ignore: None,
        allow_file: false,
        recurse_submodules: false,
        include: Vec::new(),
        ..source.clone()
    };
    let location = Location::of_submodule(&request)?;
    let elsewhere = !is_same_server(origin, &location);
    if elsewhere {
        (request.credentials, request.identity) = (None, None);
    }
    Ok((request, location, elsewhere))
}

/// Whether both are at the same host, by the same scheme and port.
fn is_same_server(one: &Location, other: &Location) -> bool {
    match (one, other) {
        (Location::Http(one), Location::Http(other)) => {
            one.scheme() == other.scheme()
                && one.host_str() == other.host_str()
                && one.port_or_known_default() == other.port_or_known_default()
        }
        (Location::Ssh(one), Location::Ssh(other)) => one.authority == other.authority,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_urls_lead_to_the_same_server() {
        for (parent, relative, found) in [
            ("https://git.example/a/b.git", "../c.git", "https://git.example/a/c.git"),
            ("https://git.example/a/b.git/", "../../d/c", "https://git.example/d/c"),
            ("https://git.example:8443/a/b", "./c", "https://git.example:8443/a/b/c"),
            ("ssh://me@git.example/a/b", "../c", "ssh://me@git.example/a/c"),
            ("git@git.example:a/b.git", "../c.git", "git@git.example:a/c.git"),
            ("git@git.example:/srv/b.git", "../c.git", "git@git.example:/srv/c.git"),
        ] {
            assert_eq!(resolve(parent, relative).unwrap(), found, "{parent} {relative}");
        }
        for (parent, relative) in [
            ("https://git.example/a", "../../c"),
            ("https://git.example/a", "../"),
            ("https://git.example/a", "../../evil.example/c"),
            ("git@git.example:b.git", "../../c"),
            ("git@git.example:b.git", "../../other.example:c"),
        ] {
            let told = resolve(parent, relative).unwrap_err();
            assert!(told.contains("leads out of the server"), "{parent} {relative}: {told}");
        }
    }

    #[test]
    fn what_git_would_act_on_is_refused_by_name() {
        for (url, why) in [
            ("-u./payload", "option"),
            ("--upload-pack=touch /tmp/x", "option"),
            ("ext::sh -c touch% /tmp/x", "`ext::`"),
            ("fd::17", "`fd::`"),
            ("file:///etc", "`file://`"),
            ("FILE:///etc", "`FILE://`"),
            ("git://git.example/x", "`git://`"),
            ("git+ssh://git.example/x", "`git+ssh://`"),
            ("/srv/git/x", "a path of the machine"),
            ("x/y", "a path of the machine"),
            ("-oProxyCommand=x:y", "option"),
            ("git@git.example:-x", "a path of the machine"),
            ("-oProxyCommand=x@git.example:y", "option"),
            ("git@-oProxyCommand=x:y", "a path of the machine"),
            ("https://git.example/x\nurl = y", "control"),
            ("", "empty"),
        ] {
            let told = resolve("https://git.example/a/b", url).unwrap_err();
            assert!(told.contains(why), "{url}: {told}");
        }
        let secret = resolve("https://git.example/a", "/srv/u:hunter2@x").unwrap_err();
        assert!(!secret.contains("hunter2"), "{secret}");
        for url in [
            "https://git.example/x",
            "HTTP://git.example/x",
            "ssh://git@git.example/x",
            "git@git.example:x",
            "h:x/y",
        ] {
            assert_eq!(resolve("https://git.example/a/b", url).unwrap(), url);
        }
    }

    #[test]
    fn credentials_go_to_the_same_server_only() {
        let at = |url: &str| Location::of_submodule(&GitRequest::new(url)).unwrap();
        for (one, other, same) in [
            ("https://git.example/a", "https://git.example:443/b", true),
            ("https://git.example/a", "https://GIT.example/b", true),
            ("https://git.example/a", "http://git.example/b", false),
            ("http://git.example/a", "https://git.example/b", false),
            ("https://git.example/a", "https://git.example:8443/b", false),
            ("https://git.example/a", "https://sub.git.example/b", false),
            ("https://git.example/a", "ssh://git@git.example/b", false),
            ("ssh://git@git.example/a", "git@git.example:b", true),
            ("ssh://git@git.example:2222/a", "git@git.example:b", false),
        ] {
            assert_eq!(is_same_server(&at(one), &at(other)), same, "{one} {other}");
        }
    }
}
