//! Signatures of commits and annotated tags, by keys that a user trusts.
//!
//! What is verified are the bytes of the object as they came, of which its id was computed: nothing is written out again from
//! what was understood of them. An object that could be understood in two ways is refused, whoever signed it.

mod keys;
mod open_pgp;
mod payload;
mod ssh;

use std::time::{SystemTime, UNIX_EPOCH};

use gix::ObjectId;
use gix::objs::{Find, FindHeader, Kind};
use roadstead_model::Reason;
use serde::{Deserialize, Serialize};

use super::error::{GitError, git_chain};
use super::reader::Order;
use super::remote::Target;
use super::request::{GitReference, GitRequest, unpeeled};
use super::unread::Unread;
use super::{objects as found, wire};
use crate::attempt::plain;
use payload::Signed;

pub use keys::{PublicKeys, TrustedKeys};

/// What is to be signed, and by whom.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Verification {
    /// What.
    pub mode: VerificationMode,
    /// One of these is enough.
    pub keys: TrustedKeys,
}

/// What is to be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerificationMode {
    /// The commit.
    Head,
    /// The annotated tag.
    Tag,
    /// Both.
    TagAndHead,
}

impl VerificationMode {
    /// As the API has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Tag => "Tag",
            Self::TagAndHead => "TagAndHEAD",
        }
    }

    fn wants_tag(self) -> bool {
        self != Self::Head
    }

    fn wants_commit(self) -> bool {
        self != Self::Tag
    }
}

/// What was not signed as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fault {
    /// There is no annotated tag, or not the one that was asked for.
    Object,
    Tag,
    Commit,
}

impl Fault {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Object => Reason::InvalidGitObject,
            Self::Tag => Reason::InvalidTagSignature,
            Self::Commit => Reason::InvalidCommitSignature,
        }
    }
}

/// An object whose signature is good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verified {
    is_tag: bool,
    id: String,
    key: String,
}

/// The name of the tag that a reference is to, if it is to one; of a range of versions that is `chosen`.
fn tag_of<'a>(reference: &'a GitReference, chosen: Option<&'a str>) -> Option<&'a str> {
    match reference {
        GitReference::Tag(name) => Some(name),
        GitReference::Name(name) => unpeeled(name).strip_prefix("refs/tags/"),
        GitReference::SemVer(_) => chosen,
        GitReference::Branch(_) | GitReference::Short(_) | GitReference::Commit { .. } => None,
    }
}

impl Verification {
    /// Refuses what cannot be verified, whatever is there.
    pub(super) fn check(&self, request: &GitRequest) -> Result<(), GitError> {
        // Whichever is chosen in a range of versions is one.
        if self.mode.wants_tag() && tag_of(&request.reference, Some("any")).is_none() {
            return Err(GitError::Unverified {
                url: request.shown_url(),
                reason: Reason::InvalidVerificationMode,
                detail: format!(
                    "`spec.verify.mode` {} asks for a tag, and {} is none: set `spec.ref.tag` or `spec.ref.semver`",
                    self.mode.as_str(),
                    request.reference
                ),
            });
        }
        Ok(())
    }
}

/// Verifies what `order` asks for of the commit that `target` leads to.
pub(super) fn verify(
    objects: &(impl Find + FindHeader),
    target: &Target,
    commit: ObjectId,
    order: &Order,
) -> Result<Vec<Verified>, Unread> {
    let Some(Verification { mode, keys }) = &order.verify else { return Ok(Vec::new()) };
    let unverified = |fault, detail| Unread::Unverified {
        fault,
        detail,
        object: target.object.to_string(),
        tag: target.tag.clone(),
    };
    let mut verified = Vec::new();
    if mode.wants_tag() {
        let name = tag_of(&order.reference, target.tag.as_deref()).unwrap_or_default();
        let fault = |fault, detail: String| unverified(fault, format!("tag '{name}': {detail}"));
        let (kind, bytes) = object(objects, target.object, order)?;
        if kind != Kind::Tag {
            return Err(fault(Fault::Object, "it is not annotated, and so has no signature".to_owned()));
        }
        let signed = Signed::tag(&bytes).map_err(|why| fault(Fault::Object, why.to_owned()))?;
        // Otherwise an older tag could be served under a newer one's name.
        if signed.name.as_deref() != Some(name.as_bytes()) {
            return Err(fault(Fault::Object, "the signed object is a tag of another name".to_owned()));
        }
        let key = keys.verify(&signed, order.now).map_err(|why| fault(Fault::Tag, why))?;
        verified.push(Verified { is_tag: true, id: target.object.to_string(), key });
    }
    if mode.wants_commit() {
        let fault = |detail: String| unverified(Fault::Commit, format!("commit '{commit}': {detail}"));
        let (_, bytes) = object(objects, commit, order)?;
        let signed = Signed::commit(&bytes).map_err(|why| fault(why.to_owned()))?;
        let key = keys.verify(&signed, order.now).map_err(fault)?;
        verified.push(Verified { is_tag: false, id: commit.to_string(), key });
    }
    Ok(verified)
}

fn object(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    order: &Order,
) -> Result<(Kind, Vec<u8>), Unread> {
    // Its size, before it is unpacked.
    found::header(objects, id, order)?;
    let mut buffer = Vec::new();
    match objects.try_find(&id, &mut buffer) {
        Ok(Some(found)) => Ok((found.kind, found.data.to_vec())),
        Ok(None) => Err(found::corrupt(format!("object {id} is missing"))),
        Err(error) => Err(found::corrupt(git_chain(&error))),
    }
}

/// What a condition says of signatures that are good. None where a reader names something that cannot be.
pub(super) fn told(
    verified: &[Verified],
    request: &GitRequest,
    tag: Option<&str>,
    commit: &str,
) -> Option<String> {
    let wanted = request.verify.as_ref()?.mode;
    let kinds: Vec<bool> = verified.iter().map(|verified| verified.is_tag).collect();
    let expected: &[bool] = match wanted {
        VerificationMode::Head => &[false],
        VerificationMode::Tag => &[true],
        VerificationMode::TagAndHead => &[true, false],
    };
    if kinds != expected {
        return None;
    }
    let mut text = "verified signature of".to_owned();
    for Verified { is_tag, id, key } in verified {
        if !wire::is_object_id(id) || (!is_tag && id != commit) || key.len() > 100 {
            return None;
        }
        let key = plain(key);
        text += &match tag_of(&request.reference, tag).filter(|_| *is_tag) {
            Some(name) => format!("\n\t- tag '{name}@{id}' with key '{key}'"),
            None => format!("\n\t- commit '{id}' with key '{key}'"),
        };
    }
    Some(text)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    // Before that, no key is valid yet.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
