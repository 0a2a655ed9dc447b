//! What is asked of a Git repository.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gix::bstr::ByteSlice;
use roadstead_budget::Pool;
use roadstead_cloud::CloudIdentity;
use roadstead_model::Revision;
use roadstead_outbound::{ClientIdentity, Guard, Policy, Purpose};
use serde::{Deserialize, Serialize};

use super::app::AppLogin;
use super::error::GitError;
use super::include::Include;
use super::known::KnownServer;
use super::ssh::SshCredentials;
use super::verify::Verification;
use crate::attempt::{Room, TrustedBy};
use crate::tree::TreeLimits;
use crate::version::{Constraint, Version};
use roadstead_outbound::Secret;

/// Which commit is wanted: `spec.ref` of a GitRepository. Where several fields are set, Flux's order is commit, name, tag,
/// semver, branch (its documentation has the two in the middle the other way round); [`GitReference::from_spec`] keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GitReference {
    /// The tip of a branch, by its short name.
    Branch(String),
    /// A tag, light or annotated, by its short name.
    Tag(String),
    /// The newest tag in a range of versions.
    SemVer(String),
    /// A reference by its full name: `refs/pull/420/head`, say, or `HEAD`.
    Name(String),
    /// What `git fetch` makes of a name that does not say what it is the name of: a full name, a tag or a branch, in this order.
    Short(String),
    /// A commit by its full id; the branch is for the revision's text only.
    Commit {
        /// 40 hexadecimal digits.
        id: String,
        /// The branch that it is expected on.
        branch: Option<String>,
    },
}

impl Default for GitReference {
    /// Flux's default.
    fn default() -> Self {
        Self::Branch("master".to_owned())
    }
}

impl GitReference {
    /// From the fields of `spec.ref`; empty ones count as absent.
    #[must_use]
    pub fn from_spec(
        branch: Option<&str>,
        tag: Option<&str>,
        semver: Option<&str>,
        name: Option<&str>,
        commit: Option<&str>,
    ) -> Self {
        let given = |field: Option<&str>| field.filter(|text| !text.is_empty()).map(str::to_owned);
        if let Some(id) = given(commit) {
            return Self::Commit { id: id.to_ascii_lowercase(), branch: given(branch) };
        }
        given(name)
            .map(Self::Name)
            .or_else(|| given(tag).map(Self::Tag))
            .or_else(|| given(semver).map(Self::SemVer))
            .or_else(|| given(branch).map(Self::Branch))
            .unwrap_or_default()
    }

    /// What `git fetch` fetches by this word: a commit by its full id, or a reference; the server's default where it is empty.
    #[must_use]
    pub fn of_word(word: &str) -> Self {
        let is_commit = word.len() == 40 && word.bytes().all(|c| c.is_ascii_hexdigit());
        match word {
            "" | "HEAD" => Self::Name("HEAD".to_owned()),
            id if is_commit => Self::Commit { id: id.to_ascii_lowercase(), branch: None },
            name => Self::Short(name.to_owned()),
        }
    }

    /// The full names to look for among the server's references; the first that is there is meant.
    pub(super) fn full_names(&self) -> Vec<String> {
        match self {
            Self::Branch(name) => vec![format!("refs/heads/{name}")],
            Self::Tag(name) => vec![format!("refs/tags/{name}")],
            Self::Name(name) => vec![unpeeled(name).to_owned()],
            Self::Short(name) if name.starts_with("refs/") => vec![name.clone()],
            Self::Short(name) => ["refs", "refs/tags", "refs/heads"].map(|at| format!("{at}/{name}")).into(),
            Self::SemVer(_) | Self::Commit { .. } => Vec::new(),
        }
    }

    /// The revision of a commit that it leads to; of a range of versions, by way of `tag`. None where they do not fit.
    pub(super) fn revision(&self, tag: Option<&str>, commit: &str) -> Option<Revision> {
        let label = match self {
            Self::Branch(name) | Self::Tag(name) | Self::Name(name) | Self::Short(name) => name,
            Self::SemVer(range) => tag.filter(|tag| is_in_range(tag, range))?,
            Self::Commit { branch, .. } => branch.as_deref().unwrap_or_default(),
        };
        Revision::git(label, commit).ok()
    }

    /// The revision, where it is known without asking.
    pub(super) fn pinned(&self) -> Option<Revision> {
        match self {
            Self::Commit { id, .. } => self.revision(None, id),
            _ => None,
        }
    }

    /// Refuses what no server should be asked for.
    pub(super) fn check(&self, url: &str) -> Result<(), GitError> {
        let refuse = |why: &str| {
            Err(GitError::ReferenceRefused {
                url: url.to_owned(),
                reference: self.to_string(),
                why: why.to_owned(),
            })
        };
        match self {
            Self::SemVer(range) => match Constraint::parse(range) {
                Ok(_) => Ok(()),
                Err(error) => refuse(&format!("semver parse error: {error}")),
            },
            Self::Commit { id, .. } => {
                if id.len() == 40 && id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
                    Ok(())
                } else {
                    refuse("a commit is named by its full id of 40 hexadecimal digits")
                }
            }
            Self::Name(name) if name.starts_with('/') || name.ends_with('/') => {
                refuse("Git refs cannot begin or end with a slash '/'")
            }
            Self::Name(name) if name != "HEAD" && !name.starts_with("refs/") => {
                refuse("`ref.name` is a full name: `refs/heads/main`, say")
            }
            Self::Branch(_) | Self::Tag(_) | Self::Name(_) | Self::Short(_) => {
                let names = self.full_names();
                if names.iter().all(|name| is_valid(name)) {
                    Ok(())
                } else {
                    refuse("that is not a valid name of a Git reference")
                }
            }
        }
    }
}

/// The tag whose commit `refs/tags/x^{}` is, which servers list beside it; any other name as it is. The revision keeps the name as it was
/// asked for.
pub(super) fn unpeeled(name: &str) -> &str {
    name.strip_suffix("^{}").filter(|tag| tag.starts_with("refs/tags/")).unwrap_or(name)
}

/// Whether a reference may be called so.
pub(super) fn is_valid(full_name: &str) -> bool {
    full_name.len() <= 1_024 && gix::validate::reference::name(full_name.as_bytes().as_bstr()).is_ok()
}

fn is_in_range(tag: &str, range: &str) -> bool {
    let fits = |range: Constraint| Version::parse(tag).is_some_and(|version| range.matches(&version));
    is_valid(&format!("refs/tags/{tag}")) && Constraint::parse(range).is_ok_and(fits)
}

impl std::fmt::Display for GitReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "branch `{name}`"),
            Self::Tag(name) => write!(f, "tag `{name}`"),
            Self::SemVer(range) => write!(f, "version `{range}`"),
            Self::Name(name) | Self::Short(name) => write!(f, "reference `{name}`"),
            Self::Commit { id, .. } => write!(f, "commit `{id}`"),
        }
    }
}

/// How to log in at the server. Sent to the URL's own host, port and scheme only, whatever redirects say.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// HTTP basic authentication: `username` and `password` of the Secret.
    Basic {
        /// Some servers take any, beside a token as password.
        username: String,
        /// The password or token.
        password: Secret,
    },
    /// `bearerToken` of the Secret.
    Bearer(Secret),
    /// A key, and the hosts to show it to.
    Ssh(SshCredentials),
    /// A GitHub App, which is given a token for each fetch.
    App(Box<AppLogin>),
}

/// How much a repository may make us read, keep and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitLimits {
    /// Bytes of all answers of the server together.
    pub transfer_bytes: u64,
    /// Bytes of the server's capabilities and references; about a hundred for each reference.
    pub advertisement_bytes: u64,
    /// Git objects in the pack, and entries looked at in the tree (those that are left out included).
    pub objects: u32,
    /// Bytes of one Git object, also of one that is left out of the artifact.
    pub object_bytes: u64,
    /// What the artifact may hold.
    pub tree: TreeLimits,
    /// Bytes of the artifact as it is packed.
    pub artifact_bytes: u64,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            transfer_bytes: 512 << 20,
            advertisement_bytes: 16 << 20,
            objects: 500_000,
            object_bytes: 64 << 20,
            tree: TreeLimits::default(),
            artifact_bytes: 256 << 20,
        }
    }
}

/// One fetch of one repository.
#[derive(Debug, Clone)]
pub struct GitRequest {
    /// `https://…` or `http://…`, without credentials in it; `ssh://…`, with a user at most; `file:///…` with [`Self::allow_file`].
    pub url: String,
    /// Which commit.
    pub reference: GitReference,
    /// How to log in, if needed.
    pub credentials: Option<Credentials>,
    /// Who logs in, where nothing else says how.
    pub cloud: Option<CloudIdentity>,
    /// Whether they may be sent over plain HTTP, where anyone on the way can read them.
    pub plain_http_credentials: bool,
    /// PEM of certificate authorities to trust besides the system's.
    pub ca: Option<Vec<u8>>,
    /// Where whoever asks says by what an HTTPS server is trusted, for messages.
    pub trusted_by: TrustedBy,
    /// The certificate to show to servers that ask for one.
    pub identity: Option<ClientIdentity>,
    /// Whether `file://` is allowed: for development on one machine only, since it reads whatever the process may read.
    pub allow_file: bool,
    /// The way out, which decides what may be connected to.
    pub guard: Guard,
    /// For the whole attempt, from the first packet to the packed artifact.
    pub timeout: Duration,
    /// Bounds.
    pub limits: GitLimits,
    /// Where room for the artifact is reserved, before its first byte is taken; it is held with what is fetched
    /// ([`super::Fetched::room`]). Without, none is asked for.
    pub room: Option<Room>,
    /// What all fetches may have of the disk for what servers send; unbounded without.
    pub disk: Option<Pool>,
    /// The revision whose artifact the caller has. Leave it out to get the artifact in any case: when `ignore` changed.
    pub known: Option<Revision>,
    /// What is known of the server from earlier looks with the same URL and reference; what this one learns is kept there.
    pub known_server: KnownServer,
    /// What is to be signed, and by whom.
    pub verify: Option<Verification>,
    /// The folders that are taken; all where there are none.
    pub sparse: Vec<String>,
    /// `spec.ignore`.
    pub ignore: Option<String>,
    /// Whether submodules are fetched as well, and theirs.
    pub recurse_submodules: bool,
    /// The artifacts that are put into this one, one after the other.
    pub include: Vec<Include>,
    /// Where the temporary folder is made; the system's place for such if `None`.
    pub scratch: Option<PathBuf>,
}

impl GitRequest {
    /// A request for Flux's default branch with default limits and a timeout of 60 seconds, which reaches the public
    /// internet alone.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            reference: GitReference::default(),
            credentials: None,
            cloud: None,
            plain_http_credentials: false,
            ca: None,
            trusted_by: TrustedBy::SecretRef,
            identity: None,
            allow_file: false,
            guard: Guard::new(Arc::new(Policy::default()), Purpose::Git),
            timeout: Duration::from_secs(60),
            limits: GitLimits::default(),
            room: None,
            disk: None,
            known: None,
            known_server: KnownServer::default(),
            verify: None,
            sparse: Vec::new(),
            ignore: None,
            recurse_submodules: false,
            include: Vec::new(),
            scratch: None,
        }
    }

    /// The URL, fit for messages: whatever looks like credentials is left out.
    #[must_use]
    pub fn shown_url(&self) -> String {
        crate::attempt::shown_url(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::GitReference;

    #[test]
    fn flux_precedence() {
        let commit = "A1afe267b54f38b46b487f6e938a6fd508278c07";
        let all = GitReference::from_spec(Some("b"), Some("t"), Some(">1"), Some("refs/x"), Some(commit));
        assert_eq!(all, GitReference::Commit { id: commit.to_lowercase(), branch: Some("b".to_owned()) });
        assert_eq!(
            GitReference::from_spec(Some("b"), Some("t"), Some(">1"), Some("refs/x"), None),
            GitReference::Name("refs/x".to_owned())
        );
        assert_eq!(
            GitReference::from_spec(Some("b"), Some("t"), Some(">1"), None, Some("")),
            GitReference::Tag("t".to_owned())
        );
        assert_eq!(
            GitReference::from_spec(Some("b"), None, Some(">1"), None, None),
            GitReference::SemVer(">1".to_owned())
        );
        assert_eq!(
            GitReference::from_spec(None, None, None, None, None),
            GitReference::Branch("master".to_owned())
        );
    }

    #[test]
    fn a_word_is_what_git_fetches_by_it() {
        let commit = "A1afe267b54f38b46b487f6e938a6fd508278c07";
        let id = commit.to_lowercase();
        assert_eq!(GitReference::of_word(commit), GitReference::Commit { id, branch: None });
        assert_eq!(GitReference::of_word(""), GitReference::Name("HEAD".to_owned()));
        let names = |word: &str| GitReference::of_word(word).full_names();
        assert_eq!(names("v1"), ["refs/v1", "refs/tags/v1", "refs/heads/v1"]);
        assert_eq!(names("refs/pull/1/head"), ["refs/pull/1/head"]);
    }

    #[test]
    fn bad_references_are_refused() {
        for bad in [
            GitReference::Short("a b".to_owned()),
            GitReference::Short("../x".to_owned()),
            GitReference::Branch("a b".to_owned()),
            GitReference::Branch("../x".to_owned()),
            GitReference::Branch(String::new()),
            GitReference::Tag("x\ny".to_owned()),
            GitReference::Tag("x".repeat(2_000)),
            GitReference::Name("main".to_owned()),
            GitReference::Name("/refs/heads/main".to_owned()),
            GitReference::Name("refs/heads/main/".to_owned()),
            GitReference::Name("/".to_owned()),
            GitReference::Name("refs/heads/main^{}".to_owned()),
            GitReference::Name("refs/tags/^{}".to_owned()),
            GitReference::Name("refs/tags/v1^{}^{}".to_owned()),
            GitReference::Name("refs/tags/v1^{commit}".to_owned()),
            GitReference::Tag("v1^{}".to_owned()),
            GitReference::SemVer("newest".to_owned()),
            GitReference::SemVer(String::new()),
            GitReference::Commit { id: "abc".to_owned(), branch: None },
            GitReference::Commit { id: "g".repeat(40), branch: None },
        ] {
            assert!(bad.check("https://git").is_err(), "{bad} was taken");
        }
        for good in [
            GitReference::Branch("release/1.0".to_owned()),
            GitReference::Tag("v1.0.0-rc.1".to_owned()),
            GitReference::Name("refs/pull/1/head".to_owned()),
            GitReference::Name("HEAD".to_owned()),
            GitReference::Name("refs/tags/v1^{}".to_owned()),
            GitReference::SemVer(">=1 <2".to_owned()),
        ] {
            assert!(good.check("https://git").is_ok(), "{good} was refused");
        }
    }
}
