//! The repository that a Provider of a Git service stands for, the service's API, and what of an event goes into a commit's status.

use percent_encoding::percent_decode_str;
use roadstead_model::Secret;
use serde::Serialize;
use url::Url;

use crate::event::Event;
use crate::providers::PROGRESSING;
use crate::request::{Method, Request};
use crate::rollout::{RolloutFacts, Verdict};
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of a status' description: GitHub takes no more.
const DESCRIPTION: usize = 140;
/// Characters of its id.
const CONTEXT: usize = 255;
/// What services want to know of who asks them: GitHub answers nobody else.
const AGENT: &str = "roadstead";

/// A repository of a Git service.
pub(crate) struct Repository {
    /// The service: scheme, host and port.
    pub(crate) site: Url,
    /// The path, without `.git`.
    pub(crate) path: Vec<String>,
}

impl Repository {
    /// The repository of the target's address, which may be any form that one is cloned by: of SSH, it is that host's HTTPS.
    pub(crate) fn of(target: &Target) -> Result<Self, Unsendable> {
        const WANTED: Unsendable =
            Unsendable::Address("the URL of a repository, such as https://HOST/OWNER/NAME");
        let given = target.address.expose().trim();
        if given.is_empty() {
            return Err(Unsendable::Missing("no address is set, neither in the spec nor in its Secret"));
        }
        // `git@HOST:OWNER/NAME` does not parse as a URL.
        let short =
            given.split_once(':').filter(|(host, path)| !host.contains('/') && !path.starts_with("//"));
        let url = match short {
            Some((host, path)) => format!("ssh://{host}/{}", path.trim_start_matches('/')),
            None => given.to_owned(),
        };
        let url = Url::parse(&url).map_err(|_| WANTED)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(WANTED)?;
        let site = match (url.scheme(), url.port()) {
            ("ssh", _) => format!("https://{host}"),
            (scheme @ ("http" | "https"), Some(port)) => format!("{scheme}://{host}:{port}"),
            (scheme @ ("http" | "https"), None) => format!("{scheme}://{host}"),
            _ => return Err(WANTED),
        };
        let path = url.path().trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let name = |part: &str| {
            // Escaped once more where it is asked for.
            let name = percent_decode_str(part).decode_utf8().ok()?.into_owned();
            let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
            is_name.then_some(name)
        };
        let path = path.split('/').map(name).collect::<Option<Vec<_>>>().ok_or(WANTED)?;
        Ok(Self { site: Url::parse(&site).map_err(|_| WANTED)?, path })
    }

    /// Owner and name, of services that know no deeper paths.
    pub(crate) fn owner_and_name(&self) -> Result<[&str; 2], Unsendable> {
        match self.path.as_slice() {
            [owner, name] => Ok([owner, name]),
            _ => Err(Unsendable::Address("the URL of a repository: want https://HOST/OWNER/NAME")),
        }
    }

    /// The service's API below these segments.
    pub(crate) fn api(&self, below: &[&str], credential: (&'static str, Secret)) -> Api {
        Api { base: joined(&self.site, below), credential, query: &[] }
    }
}

/// The API of a service.
pub(crate) struct Api {
    pub(crate) base: Url,
    /// A header and its value.
    credential: (&'static str, Secret),
    /// What each request says in its query.
    pub(crate) query: &'static [(&'static str, &'static str)],
}

impl Api {
    /// Asks for what is there.
    pub(crate) fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Request {
        self.with_headers(Request::get(self.url(path, query)))
    }

    /// Sends a JSON body.
    pub(crate) fn send(&self, method: Method, path: &[&str], body: &impl Serialize) -> Request {
        self.with_headers(Request { method, ..Request::json(self.url(path, &[]), body) })
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = joined(&self.base, path);
        if !(self.query.is_empty() && query.is_empty()) {
            url.query_pairs_mut().extend_pairs(self.query).extend_pairs(query);
        }
        url
    }

    fn with_headers(&self, request: Request) -> Request {
        let request = request.header("Accept", "application/json").header("User-Agent", AGENT);
        let (name, value) = &self.credential;
        request.credential(name, value.clone())
    }
}

/// A URL with these segments at its end, each of them escaped.
fn joined(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    // URLs of a host always have segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

/// The status that an event gives a commit.
pub(crate) struct Status {
    /// The commit, in hex.
    pub(crate) commit: String,
    /// What tells it from other statuses of the commit.
    pub(crate) context: String,
    /// What it says.
    pub(crate) description: String,
    /// And in one word.
    pub(crate) verdict: Verdict,
}

impl Status {
    pub(crate) fn of(target: &Target, event: &Event) -> Result<Self, Unsendable> {
        let (said, verdict) = match &event.rollout {
            Some(rollout) => (event.message.replace(char::is_control, " "), rollout.verdict),
            None if event.reason == PROGRESSING => (event.reason_in_words(), Verdict::Pending),
            None if event.is_error() => (event.reason_in_words(), Verdict::Failure),
            None => (event.reason_in_words(), Verdict::Success),
        };
        Ok(Self {
            commit: commit(event)?,
            context: context(target, event)?,
            description: text::cut(&said, DESCRIPTION),
            verdict,
        })
    }

    /// Its id where a service takes 40 characters: in hex.
    pub(crate) fn key(&self) -> String {
        text::sha1(self.context.as_bytes())
    }
}

/// The commit that an event is about.
fn commit(event: &Event) -> Result<String, Unsendable> {
    let named = ["commit", "originRevision", "revision"].iter().find_map(|key| event.metadata.get(*key));
    let named = named.ok_or(Unsendable::Event("the event names no commit"))?;
    hash(named).ok_or(Unsendable::Event("the revision of the event is not a commit"))
}

/// The commit that a revision names, in hex.
pub(crate) fn hash(revision: &str) -> Option<String> {
    let hash = revision.rsplit([':', '/']).next().unwrap_or_default();
    let is_hash = matches!(hash.len(), 40 | 64) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.to_lowercase())
}

/// What tells the status of a rollout from others of the commit: the Alert, the environment, and which Provider it is, which no other Alert of
/// that name has.
fn rollout_context(target: &Target, event: &Event, rollout: &RolloutFacts) -> String {
    let provider = target.uid.split('-').next().unwrap_or_default();
    let parts = ["roadstead", &event.involved_object.name].into_iter();
    let parts = parts.chain(rollout.environment.as_deref()).chain([provider]);
    let context = parts.collect::<Vec<_>>().join("/");
    match context.chars().count() {
        0..=CONTEXT => context,
        // Two long names are still two.
        _ => format!("roadstead/{}", text::sha1(context.as_bytes())),
    }
}

/// What tells the status of an object of a cluster's Flux from others of the commit.
fn relayed_context(target: &Target, event: &Event) -> String {
    let provider = target.uid.split('-').next().unwrap_or_default();
    let path = event.unique_path().to_lowercase();
    let context = format!("{path}/{provider}");
    match context.chars().count() {
        0..=CONTEXT => context,
        // Of long names, each is another one still.
        _ => format!("{}/{provider}", text::sha1(path.as_bytes())),
    }
}

/// What tells a status from others of the commit: what the Provider says, else the object, and which Provider it is. An object
/// of another namespace than the Provider's is named with it, since there may be one of that name in each; and one of a cluster's Flux with
/// the cluster, whatever the Provider says.
fn context(target: &Target, event: &Event) -> Result<String, Unsendable> {
    let context = match (&target.status_id, &event.rollout, &event.relayed_from) {
        (Some(id), _, Some(cluster)) => format!("{id}/{cluster}"),
        (Some(id), ..) => id.clone(),
        (None, Some(rollout), _) => rollout_context(target, event, rollout),
        (None, None, Some(_)) => relayed_context(target, event),
        (None, None, None) => {
            let object = &event.involved_object;
            let provider = target.uid.split('-').next().unwrap_or_default();
            let name = match object.namespace == target.namespace {
                true => object.name.clone(),
                false => format!("{}/{}", object.namespace, object.name),
            };
            format!("{}/{name}/{provider}", object.kind).to_lowercase()
        }
    };
    if context.is_empty() || context.chars().count() > CONTEXT {
        return Err(Unsendable::Event("the id of the commit status is empty, or longer than 255 characters"));
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Result<String, Unsendable> {
        let target = Target { address: address.into(), ..Target::default() };
        Repository::of(&target).map(|repository| format!("{}{}", repository.site, repository.path.join("/")))
    }

    #[test]
    fn each_form_of_an_address_is_the_same_repository() {
        for address in [
            "https://git.test/o/r",
            "https://git.test/o/r.git",
            "https://someone:secret@git.test/o/r/",
            "ssh://git@git.test:2222/o/r.git",
            "git@git.test:o/r.git",
            "git@git.test:/o/r",
            " https://git.test/o/r\n",
        ] {
            assert_eq!(of(address).as_deref(), Ok("https://git.test/o/r"), "{address}");
        }
        assert_eq!(of("https://git.test/a%20b/c").as_deref(), Ok("https://git.test/a b/c"));
        assert_eq!(of("http://git.test:8080/a/b/c").as_deref(), Ok("http://git.test:8080/a/b/c"));
        for wrong in [
            "",
            "git.test/o/r",
            "ftp://git.test/o/r",
            "https://git.test",
            "https://git.test/o//r",
            "https://git.test/o/%2e%2e",
            "https://git.test/o/%2f",
        ] {
            assert!(of(wrong).is_err(), "{wrong}: {:?}", of(wrong));
        }
    }

    #[test]
    fn a_segment_stays_one_whatever_is_in_it() {
        let base = Url::parse("https://git.test/api").unwrap();
        assert_eq!(joined(&base, &["a/b", "..", "c?d#e"]).as_str(), "https://git.test/api/a%2Fb/c%3Fd%23e");
    }
}
