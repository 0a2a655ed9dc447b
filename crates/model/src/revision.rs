//! Revisions of sources, as Flux writes them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest text of a revision: a Git reference has 1,024 bytes at most.
const MAX_LENGTH: usize = 2_048;

/// What a source held at one moment. One of Git, an OCI repository or a bucket is named by its content, under the name by which
/// that was found (`main@sha1:<commit>`, `latest@sha256:<digest>`, `sha256:<checksum>`); a chart by its version alone (`1.2.3`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision {
    /// The branch, tag or version; empty where only the content is known.
    reference: String,
    /// The hash of the content; none of a chart.
    content: Option<Content>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Content {
    algorithm: Algorithm,
    /// Its hexadecimal digits, as many as the algorithm has.
    hex: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Algorithm {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// How many hexadecimal digits a hash of it has.
    fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

/// Why a text is not a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a revision: want `<branch or tag>@<algorithm>:<digest>` or a version")]
pub struct RevisionError(String);

impl Revision {
    /// A Git commit, by its hexadecimal id, that was found at a branch or tag; at an empty one where it was asked for by its id. An id
    /// of 40 digits is SHA-1's, one of 64 of Git's other object format.
    ///
    /// # Errors
    /// Where it is not the id of a commit.
    pub fn git(reference: &str, commit: &str) -> Result<Self, RevisionError> {
        let of = |algorithm: Algorithm| algorithm.digits() == commit.len();
        let algorithm = [Algorithm::Sha1, Algorithm::Sha256].into_iter().find(|algorithm| of(*algorithm));
        match algorithm.filter(|_| is_hex(commit)) {
            Some(algorithm) => {
                let content = Some(Content { algorithm, hex: commit.to_owned() });
                Ok(Self { reference: reference.to_owned(), content })
            }
            None => Err(refused(commit)),
        }
    }

    /// The hexadecimal digits of the content's hash: of Git, the commit's id. None of a chart.
    #[must_use]
    pub fn content(&self) -> Option<&str> {
        self.content.as_ref().map(|content| content.hex.as_str())
    }

    /// As v1alpha1 writes it: `main/<commit>`.
    #[must_use]
    pub fn legacy(&self) -> String {
        match &self.content {
            None => self.reference.clone(),
            Some(Content { hex, .. }) if self.reference.is_empty() => hex.clone(),
            Some(Content { hex, .. }) => format!("{}/{hex}", self.reference),
        }
    }
}

/// As v1 writes it: `main@sha1:<commit>`, which is also how it is stored.
impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference)?;
        let Some(Content { algorithm, hex }) = &self.content else { return Ok(()) };
        let at = if self.reference.is_empty() { "" } else { "@" };
        write!(f, "{at}{}:{hex}", algorithm.name())
    }
}

impl FromStr for Revision {
    type Err = RevisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_LENGTH {
            return Err(refused(text));
        }
        // A reference may hold both signs.
        let (reference, content) = text.rsplit_once('@').unwrap_or(("", text));
        let Some((name, hex)) = content.split_once(':') else {
            if let Some(older) = older(text) {
                return Ok(older);
            }
            return if is_version(text) {
                Ok(Self { reference: text.to_owned(), content: None })
            } else {
                Err(refused(text))
            };
        };
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        match algorithm.filter(|algorithm| algorithm.digits() == hex.len() && is_hex(hex)) {
            Some(algorithm) => {
                let content = Some(Content { algorithm, hex: hex.to_owned() });
                Ok(Self { reference: reference.to_owned(), content })
            }
            None => Err(refused(text)),
        }
    }
}

/// What Flux wrote before its API had `@`: `BRANCH/COMMIT`, `HEAD/COMMIT` where there was no branch, or the commit alone. None where it is not that.
fn older(text: &str) -> Option<Revision> {
    let (reference, hex) = text.rsplit_once('/').unwrap_or(("HEAD", text));
    let is_commit = hex.len() == Algorithm::Sha1.digits() && is_hex(hex);
    let reference = if reference == "HEAD" { "" } else { reference };
    is_commit.then(|| Revision {
        reference: reference.to_owned(),
        content: Some(Content { algorithm: Algorithm::Sha1, hex: hex.to_owned() }),
    })
}

fn refused(text: &str) -> RevisionError {
    RevisionError(text.chars().take(200).collect())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Whether a chart could have this version: `1.2.3`, `v1.2.3`, `1.2.3-rc.1+build`.
fn is_version(text: &str) -> bool {
    let number = text.strip_prefix('v').unwrap_or(text);
    number.starts_with(|first: char| first.is_ascii_digit())
        && number.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'+' | b'_'))
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;

    const COMMIT: &str = "a1afe267b54f38b46b487f6e938a6fd508278c07";

    #[test]
    fn both_forms() {
        let revision = Revision::git("release/1@x", COMMIT).expect("a commit");
        assert_eq!(revision.legacy(), format!("release/1@x/{COMMIT}"));
        assert_eq!(revision.to_string(), format!("release/1@x@sha1:{COMMIT}"));
        assert_eq!(revision.to_string().parse(), Ok(revision));
        assert_eq!(Revision::git("", COMMIT).expect("a commit").to_string(), format!("sha1:{COMMIT}"));
        assert!(Revision::git("main", "a1afe26").is_err() && Revision::git("main", &"x".repeat(40)).is_err());
    }

    #[test]
    fn what_each_kind_of_source_says_comes_back_as_it_was() {
        let (sha256, sha512) = ("0f".repeat(32), "0f".repeat(64));
        let texts = [
            format!("main@sha1:{COMMIT}"),
            format!("main@sha256:{sha256}"),
            format!("refs/heads/a:b@{COMMIT}@sha1:{COMMIT}"),
            // An OCI repository by tag and by digest, a bucket, the index of a Helm repository.
            format!("6.0.1@sha256:{sha256}"),
            format!("latest@sha512:{sha512}"),
            format!("sha256:{sha256}"),
            "6.0.1".to_owned(),
            "v0.3.0-rc.1+kube.1-30".to_owned(),
        ];
        for text in texts {
            let revision: Revision = text.parse().expect("a revision");
            assert_eq!(revision.to_string(), text);
        }
        assert_eq!("6.0.1".parse::<Revision>().expect("a version").legacy(), "6.0.1");
    }

    #[test]
    fn older_forms_are_read() {
        for (older, now) in [
            (format!("main/{COMMIT}"), format!("main@sha1:{COMMIT}")),
            (format!("feature/x@y/{COMMIT}"), format!("feature/x@y@sha1:{COMMIT}")),
            (format!("HEAD/{COMMIT}"), format!("sha1:{COMMIT}")),
            (COMMIT.to_owned(), format!("sha1:{COMMIT}")),
        ] {
            assert_eq!(older.parse::<Revision>().expect("an older form").to_string(), now);
        }
        assert!(format!("main/{}", &COMMIT[1..]).parse::<Revision>().is_err());
    }

    #[test]
    fn what_is_no_revision_is_refused() {
        let long = format!("{}@sha1:{COMMIT}", "x".repeat(3_000));
        let md5 = format!("main@md5:{COMMIT}");
        for text in ["", "main", "v", "1.0 0", "main@sha1:xyz", "sha256:00", "main@", &md5, &long] {
            assert!(text.parse::<Revision>().is_err(), "{text} was taken");
        }
    }
}
