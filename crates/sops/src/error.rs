//! What can go wrong, said without any of what is secret.
//!
//! A message names the place of a value and never its content, decrypted or not; a key by what the file calls it. What is
//! taken from a file is shortened and has its control characters escaped.

use std::fmt;

use crate::Format;
use crate::keys::NoDataKey;

/// Why a file or an object was not decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not of its format.
    #[error("not valid {format}: {problem}")]
    Malformed {
        /// What it was read as.
        format: Format,
        /// What is wrong, and where.
        problem: String,
    },
    /// It is larger than it may be.
    #[error("too many {what}: the limit is {limit}")]
    TooLarge {
        /// What is too large or there too often.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// It has no metadata of SOPS.
    #[error(
        "no sops metadata found: this {format} file was not encrypted with sops, or its metadata was removed"
    )]
    NotEncrypted {
        /// What it was read as.
        format: Format,
    },
    /// Its metadata does not say what it has to.
    #[error("the sops metadata is not valid: {0}")]
    Metadata(String),
    /// Its data key could not be recovered.
    #[error("{0}")]
    NoDataKey(NoDataKey),
    /// A value does not open, or is not what its type says.
    #[error("cannot decrypt the value at {place}: {problem}")]
    Value {
        /// Where it is.
        place: Place,
        /// Why.
        problem: ValueProblem,
    },
    /// The values are not those that were encrypted.
    #[error("{0}")]
    Mac(MacProblem),
    /// It cannot be written in the format that was asked for.
    #[error("cannot write {place} as {format}: {problem}")]
    Emit {
        /// What it was to be written as.
        format: Format,
        /// What cannot be written.
        place: Place,
        /// Why.
        problem: &'static str,
    },
    /// It could be decrypted, or left as it is, and must not be used.
    #[error("{0}")]
    Refused(String),
}

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The format.
    Malformed,
    /// No metadata.
    NotEncrypted,
    /// The metadata.
    Metadata,
    /// The data key.
    NoKey,
    /// A value.
    Value,
    /// The MAC.
    Mac,
    /// The format of the output.
    Emit,
    /// What must not be used.
    Refused,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::NotEncrypted => "not-encrypted",
            Self::Metadata => "metadata",
            Self::NoKey => "no-key",
            Self::Value => "value",
            Self::Mac => "mac",
            Self::Emit => "emit",
            Self::Refused => "refused",
        })
    }
}

impl Error {
    /// What kind of error this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Malformed { .. } | Self::TooLarge { .. } => Class::Malformed,
            Self::NotEncrypted { .. } => Class::NotEncrypted,
            Self::Metadata(_) => Class::Metadata,
            Self::NoDataKey(_) => Class::NoKey,
            Self::Value { .. } => Class::Value,
            Self::Mac(_) => Class::Mac,
            Self::Emit { .. } => Class::Emit,
            Self::Refused(_) => Class::Refused,
        }
    }

    pub(crate) fn malformed(format: Format, problem: impl Into<String>) -> Self {
        Self::Malformed { format, problem: problem.into() }
    }
}

impl From<NoDataKey> for Error {
    fn from(error: NoDataKey) -> Self {
        Self::NoDataKey(error)
    }
}

/// Why a value does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// An encrypted value was due.
    #[error(
        "expected an encrypted value, found a string that is not of the form ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]"
    )]
    NotCiphertext,
    /// The same, where there is not even a string.
    #[error("expected an encrypted value, found {0}")]
    NotText(&'static str),
    /// A part is not base64.
    #[error("its {0} is not valid base64")]
    Base64(&'static str),
    /// The authentication failed.
    #[error(
        "authentication failed: it was modified, moved from another place, or encrypted with another data key"
    )]
    NotAuthentic,
    /// The same, where the data key comes of several shares: whose they are is not known any more.
    #[error(
        "authentication failed: it was modified, moved from another place, or encrypted with another data key. The data key was combined of \
         the shares of {0} key groups: if no other value opens either, one of these shares is wrong, which does not show before"
    )]
    NotAuthenticByShares(usize),
    /// The key cannot be one.
    #[error("the data key has {0} bytes, which is not a valid AES key length")]
    KeyLength(usize),
    /// A type that there is not.
    #[error("unknown type {0}")]
    Type(String),
    /// It opened to something else than its type says.
    #[error("the decrypted value is not {0}, although its type says so")]
    Conversion(&'static str),
    /// A comment where none can stand.
    #[error("it is of type comment, which is not allowed here")]
    Comment,
}

/// Why the MAC says that the values are not those that were encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MacProblem {
    /// There is none.
    #[error("the file has no MAC, so changes to it cannot be detected: encrypt it again with sops")]
    Missing,
    /// It does not open.
    #[error(
        "the file's MAC cannot be decrypted: mac or lastmodified was changed; restore the file, or encrypt it again with sops"
    )]
    Unreadable,
    /// It is of other values.
    #[error(
        "MAC mismatch: values were changed, added, removed or moved after the file was encrypted; restore the file, or review it and encrypt it again with sops"
    )]
    Mismatch,
}

/// Where a value is: its document, counted from 1, and the keys that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    document: usize,
    path: String,
}

impl Place {
    /// A place below keys, each ended by a colon.
    pub(crate) fn new(document: usize, path: &[u8]) -> Self {
        let path = path.strip_suffix(b":").unwrap_or(path);
        Self { document, path: shown_bytes(path) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "the top level")?;
        } else {
            write!(f, "{:?}", self.path)?;
        }
        if self.document > 1 { write!(f, " of document {}", self.document) } else { Ok(()) }
    }
}

/// A text of a file as a message may show it.
pub(crate) fn shown(text: &str) -> String {
    shown_to(text, 200)
}

/// The same, of so many characters.
pub(crate) fn shown_to(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).flat_map(escaped).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

fn shown_bytes(bytes: &[u8]) -> String {
    /// Enough for what is shown.
    const MOST: usize = 1000;
    shown(&String::from_utf8_lossy(bytes.get(..MOST).unwrap_or(bytes)))
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let escape = c.is_control().then(|| c.escape_default());
    let plain = escape.is_none().then_some(c);
    escape.into_iter().flatten().chain(plain)
}
