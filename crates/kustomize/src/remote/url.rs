//! URLs of remote resources, read as kustomize reads them (`api/internal/git/repospec.go` and `IsRemoteFile` of its loader).

use std::time::Duration;

use crate::tree::TreePath;

/// Characters of a URL that are shown.
const MOST_SHOWN: usize = 300;
/// Parameters that may be shown.
const SHOWN: [&str; 4] = ["ref", "version", "submodules", "timeout"];

/// A remote resource as a kustomization names it.
///
/// An `http://` or `https://` URL may be that of a file and that of a repository. kustomize asks for the file first.
///
/// ```
/// use roadstead_kustomize::RemoteUrl;
///
/// let url = RemoteUrl::parse("github.com/org/repo//base?ref=v1").ok_or("a path")?;
/// assert_eq!(url.file, None);
/// let repository = url.repository.ok_or("no repository")?;
/// assert_eq!(repository.url, "https://github.com/org/repo");
/// assert_eq!((repository.path.as_str(), repository.reference.as_str()), ("base", "v1"));
/// assert!(RemoteUrl::parse("../base").is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// The URL of a file; none where it cannot be one.
    pub file: Option<String>,
    /// The repository; none where it cannot be one.
    pub repository: Option<RemoteRepository>,
}

/// A Git repository as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRepository {
    /// What Git is given.
    pub url: String,
    /// The directory in it.
    pub path: TreePath,
    /// A branch, a tag, a full name or a commit; empty for the repository's own default.
    pub reference: String,
    /// Whether its submodules are part of it.
    pub submodules: bool,
    /// How long one of Git's commands may take, where it says so.
    pub timeout: Option<Duration>,
}

impl RemoteUrl {
    /// `text` as messages may show it: without what may be credentials.
    ///
    /// ```
    /// use roadstead_kustomize::RemoteUrl;
    ///
    /// let shown = RemoteUrl::shown("https://me:secret@git.example.com/org/repo//base?ref=v1&token=secret");
    /// assert_eq!(shown, "https://git.example.com/org/repo//base?ref=v1");
    /// ```
    pub fn shown(text: &str) -> String {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let query = query.split('#').next().unwrap_or_default();
        let (scheme, rest) = place.split_once("://").map_or(("", place), |(scheme, rest)| (scheme, rest));
        let end = rest.find('/').unwrap_or(rest.len());
        // Behind an `@` in the path stands a part of the path.
        let rest = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
        let separator = if scheme.is_empty() { "" } else { "://" };
        let is_shown = |pair: &&str| SHOWN.contains(&pair.split('=').next().unwrap_or_default());
        let query: Vec<&str> = query.split('&').filter(is_shown).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("{scheme}{separator}{rest}{query}").chars().take(MOST_SHOWN).collect()
    }

    /// Reads what stands in the place of a path; none where that is a path.
    pub fn parse(text: &str) -> Option<Self> {
        let is_http = ["http://", "https://"].iter().any(|scheme| without_prefix(text, scheme).is_some());
        let file = is_http.then(|| text.to_owned());
        let repository = RemoteRepository::parse(text);
        (file.is_some() || repository.is_some()).then_some(Self { file, repository })
    }

    /// Whether it is certain without a question that a repository is meant: the path says where the repository ends.
    pub fn is_marked(&self) -> bool {
        let Some(file) = &self.file else { return self.repository.is_some() };
        let path = file.split('?').next().unwrap_or_default().splitn(4, '/').nth(3).unwrap_or_default();
        let ends = |name: &str| name.ends_with(".git");
        self.repository.is_some()
            && (path.contains("//") || path.contains("_git/") || path.split('/').any(ends))
    }
}

impl RemoteRepository {
    fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return None;
        }
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (host, rest) = host(place)?;
        let whole = host == "file://";
        let (repository, path) = split_at_mark(rest).or_else(|| split_by_length(rest, whole))?;
        let path =
            TreePath::new(path.strip_prefix('/').unwrap_or(path)).filter(|_| !repository.is_empty())?;
        let Query { reference, submodules, timeout } = Query::parse(query).unwrap_or_default();
        Some(Self { url: format!("{host}{repository}"), path, reference, submodules, timeout })
    }
}

/// The rest of `text` behind a prefix in lower case, whatever case it is written in.
fn without_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let start = text.get(..prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// What comes before the path, as Git is given it, and the path.
fn host(text: &str) -> Option<(String, &str)> {
    let text = without_prefix(text, "git::").unwrap_or(text);
    let schemes = ["ssh://", "https://", "http://", "file://"];
    let found = schemes.into_iter().find_map(|scheme| Some((scheme, without_prefix(text, scheme)?)));
    let (scheme, text) = found.unwrap_or(("", text));
    let is_user = |user: &&str| {
        user.starts_with(|c: char| c.is_ascii_alphabetic())
            && user.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let user = text.split_once('@').map_or("", |(user, _)| user);
    let user = if is_user(&user) { &text[..=user.len()] } else { "" };
    if scheme == "file://" {
        return Some((scheme.to_owned(), text));
    }
    let text = &text[user.len()..];
    let is_github = ["github.com/", "github.com:"].iter().any(|start| without_prefix(text, start).is_some());
    let is_scp = scheme.is_empty() && (!user.is_empty() || is_github);
    if scheme.is_empty() && !is_scp {
        return None;
    }
    let slash = text.find('/');
    let colon =
        text.find(':').filter(|colon| is_scp && slash.is_none_or(|slash| *colon > 0 && *colon < slash));
    let end = colon.or(slash)? + 1;
    let (host, rest) = text.split_at(end);
    if is_github {
        let host = if scheme == "ssh://" || !user.is_empty() {
            format!("{user}github.com:")
        } else {
            "https://github.com/".to_owned()
        };
        return Some((host, rest));
    }
    Some((format!("{scheme}{user}{host}"), rest))
}

/// Repository and path where something marks the end of the repository.
fn split_at_mark(text: &str) -> Option<(&str, &str)> {
    if let Some(at) = text.find("_git/") {
        let name = at + "_git/".len();
        let end = text[name..].find('/').map_or(text.len(), |slash| name + slash);
        return Some((&text[..end], text[end..].strip_prefix('/').unwrap_or_default()));
    }
    if let Some(at) = text.find("//") {
        return Some((&text[..at], &text[at + 2..]));
    }
    let end = text.find(".git")? + ".git".len();
    Some(text.split_at(end))
}

/// Repository and path where nothing marks it: the first two segments, or all.
fn split_by_length(text: &str, whole: bool) -> Option<(&str, &str)> {
    if whole {
        return Some((text, ""));
    }
    let mut slashes = text.match_indices('/').map(|(at, _)| at);
    slashes.next()?;
    Some(slashes.next().map_or((text, ""), |end| (&text[..end], &text[end + 1..])))
}

/// What the query says of how to fetch.
struct Query {
    reference: String,
    submodules: bool,
    timeout: Option<Duration>,
}

impl Default for Query {
    fn default() -> Self {
        Self { reference: String::new(), submodules: true, timeout: None }
    }
}

impl Query {
    /// None where a part of it is not readable: then kustomize reads none of it.
    fn parse(text: &str) -> Option<Self> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if pair.contains(';') {
                return None;
            }
            pairs.push((unescaped(key)?, unescaped(value)?));
        }
        let first = |wanted: &str| {
            let found = pairs.iter().find(|(key, _)| key == wanted);
            found.map_or("", |(_, value)| value.as_str())
        };
        let mut query = Self::default();
        let reference = [first("ref"), first("version")].into_iter().find(|text| !text.is_empty());
        reference.unwrap_or_default().clone_into(&mut query.reference);
        match first("submodules") {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => query.submodules = true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => query.submodules = false,
            _ => {}
        }
        query.timeout = duration(first("timeout"));
        Some(query)
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Seconds, or a duration as Go writes it. None for what is not longer than nothing.
fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    }
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end =
            rest[end..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| end + at);
        let unit = match &rest[end..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum += number * unit;
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(sum).ok().filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_url_or_none(text in "(git::|https://|github.com[:/]|ssh://)?[a-z@:/?&=._%;é-]{0,40}(_git/|//|\\.git)?.{0,20}") {
            if let Some(url) = RemoteUrl::parse(&text) {
                prop_assert!(url.file.is_some() || url.repository.is_some());
                url.is_marked();
            }
            RemoteUrl::shown(&text);
        }
    }

    /// What the real kustomize makes of each of `urls.txt`: `tests/remote/regenerate.sh`.
    const KUSTOMIZE: &str = include_str!("../../tests/remote/kustomize.txt");

    #[test]
    fn repositories_are_those_of_kustomize() {
        let urls = include_str!("../../tests/remote/urls.txt").lines().count();
        assert_eq!(KUSTOMIZE.lines().count(), urls, "run tests/remote/regenerate.sh");
        for line in KUSTOMIZE.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let found = RemoteRepository::parse(fields[0]);
            match (fields.as_slice(), found) {
                ([_, "local"], found) => assert_eq!(found, None, "{line}"),
                ([_, url, reference, submodules, path], Some(found)) => {
                    let wanted = if found.reference.is_empty() { "HEAD" } else { found.reference.as_str() };
                    assert_eq!((found.url.as_str(), wanted), (*url, *reference), "{line}");
                    assert_eq!(found.submodules, *submodules == "yes", "{line}");
                    assert_eq!(format!("/{}", found.path.as_str()), *path, "{line}");
                }
                (_, found) => panic!("{line}: {found:?}"),
            }
        }
    }

    #[test]
    fn timeouts_are_seconds_or_durations() {
        let timeout = |text: &str| {
            let url = format!("https://git.example.com/a/b?timeout={text}");
            RemoteRepository::parse(&url).unwrap().timeout.map_or(27.0, |timeout| timeout.as_secs_f64())
        };
        for (text, seconds) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("1m30s", 90.0),
            ("1.5h", 5400.0),
            ("0", 27.0),
            ("-5s", 27.0),
            ("soon", 27.0),
            ("5", 5.0),
            ("1d", 27.0),
            ("1e300h", 27.0),
        ] {
            assert!((timeout(text) - seconds).abs() < 1e-9, "{text}: {}", timeout(text));
        }
    }

    #[test]
    fn what_may_be_credentials_is_not_shown() {
        for text in [
            "https://hunter2@git.example.com/a/b",
            "https://u:hunter2@git.example.com/a/b?ref=v1",
            "https://git.example.com/a/b?token=hunter2&ref=v1",
            "https://git.example.com/a/b?ref=v1#hunter2",
            "hunter2@git.example.com:a/b",
            "u:hunter2@git.example.com:a/b",
            "ssh://git:hunter2@git.example.com/a/b",
        ] {
            let shown = RemoteUrl::shown(text);
            assert!(!shown.contains("hunter2") && shown.contains("git.example.com"), "{text}: {shown}");
        }
        assert_eq!(
            RemoteUrl::shown("https://h/a@v1/b?ref=x&submodules=0"),
            "https://h/a@v1/b?ref=x&submodules=0"
        );
    }

    #[test]
    fn files_and_repositories_are_told_apart_where_that_is_certain() {
        for (text, file, marked) in [
            ("https://github.com/org/repo//base?ref=v1", true, true),
            ("https://github.com/org/repo.git", true, true),
            ("https://github.com/org/repo.git/base", true, true),
            ("https://dev.azure.com/org/project/_git/repo", true, true),
            ("github.com/org/repo/base", false, true),
            ("git::https://git.example.com/org/repo", false, true),
            ("git@git.example.com:org/repo", false, true),
            ("https://github.com/org/repo/base?ref=v1", true, false),
            ("https://raw.githubusercontent.com/org/repo/v1/a.yaml", true, false),
            ("https://git.example.com/a.gitops/b.yaml", true, false),
            ("https://example.com/a.yaml", true, false),
        ] {
            let url = RemoteUrl::parse(text).unwrap();
            assert_eq!((url.file.is_some(), url.is_marked()), (file, marked), "{text}");
        }
        for path in ["base", "../base", "/etc/passwd", "git.example.com/a/b", "overlays/prod?ref=x", ""] {
            assert_eq!(RemoteUrl::parse(path), None, "{path}");
        }
    }
}
