//! A source's revision as a value; its text differs by API version.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A Git revision: where a commit was found, and the commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision {
    /// The branch or tag; empty where a commit was asked for by its id alone.
    pub reference: String,
    /// The commit's id, in hexadecimal digits.
    pub commit: String,
}

/// Why a text is not a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a revision: want `<branch|tag>@sha1:<commit>`")]
pub struct RevisionError(String);

impl Revision {
    /// As v1alpha1 writes it: `main/<commit>`.
    #[must_use]
    pub fn legacy(&self) -> String {
        if self.reference.is_empty() {
            self.commit.clone()
        } else {
            format!("{}/{}", self.reference, self.commit)
        }
    }
}

/// As v1 writes it: `main@sha1:<commit>`, which is also how it is stored.
impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.reference.is_empty() {
            write!(f, "{}@", self.reference)?;
        }
        // 40 digits are SHA-1; Git's other object format has 64.
        let algorithm = if self.commit.len() == 64 { "sha256" } else { "sha1" };
        write!(f, "{algorithm}:{}", self.commit)
    }
}

impl FromStr for Revision {
    type Err = RevisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || RevisionError(text.chars().take(200).collect());
        let (reference, id) = text.rsplit_once('@').unwrap_or(("", text));
        let (algorithm, commit) = id.split_once(':').ok_or_else(refuse)?;
        let length = match algorithm {
            "sha1" => 40,
            "sha256" => 64,
            _ => return Err(refuse()),
        };
        if commit.len() != length || !commit.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(refuse());
        }
        Ok(Self { reference: reference.to_owned(), commit: commit.to_owned() })
    }
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

    #[test]
    fn both_forms() {
        let commit = "a1afe267b54f38b46b487f6e938a6fd508278c07";
        let revision = Revision { reference: "release/1@x".to_owned(), commit: commit.to_owned() };
        assert_eq!(revision.legacy(), format!("release/1@x/{commit}"));
        assert_eq!(revision.to_string(), format!("release/1@x@sha1:{commit}"));
        assert_eq!(revision.to_string().parse(), Ok(revision));
    }

    #[test]
    fn what_is_no_revision_is_refused() {
        for text in ["", "main", "main@sha1:xyz", "main@md5:a1afe267b54f38b46b487f6e938a6fd508278c07"] {
            assert!(text.parse::<Revision>().is_err(), "{text} was taken");
        }
    }
}
