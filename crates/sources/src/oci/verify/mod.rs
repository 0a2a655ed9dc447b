//! Signatures of artifacts in a registry: as cosign makes them, by keys that a user trusts or by whom an authority knows (`keyless`),
//! and as notation makes them (`notation`).
//!
//! Two forms of cosign's are looked for: bundles (version 0.3), which refer to what they sign, and those of older versions, which lie
//! at a tag that is named by its digest. Whoever may push to a repository decides what lies there; so how much is looked at is
//! bounded, and whatever was signed names the digest of what it is about, which is compared in both forms.
//!
//! What a registry sent for this is read by the reader (`reading`), as all that it sends; `find` asks the registry for it.

mod bundle;
mod certificate;
mod der;
mod find;
mod hash;
mod keyless;
mod keys;
mod notation;
mod payload;
pub(super) mod reading;
mod referrers;
mod timestamp;

use roadstead_model::Digest;
use serde::{Deserialize, Serialize};

pub(super) use find::Proof;
pub use keyless::{Identity, Keyless, TrustedRoot};
pub use keys::CosignKeys;
pub use notation::NotationTrust;
pub(super) use notation::revocation::{Inquiry, MOST_ANSWER, MOST_LIST};

/// Who is to have signed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Verification {
    /// One of these keys.
    Cosign(CosignKeys),
    /// Somebody with a certificate that a trust policy takes.
    Notation(NotationTrust),
    /// One of these identities, for whom these authorities and logs vouch.
    Keyless(Keyless),
}

impl Verification {
    /// What verifies, as messages have it.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        match self {
            Self::Cosign(_) => "cosign",
            Self::Notation(_) => "notation",
            Self::Keyless(_) => "cosign keyless",
        }
    }

    /// What is trusted: anything else has another digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        // Texts and lists of them: they always become JSON.
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// Why a signature does not count. Made of untrusted bytes: for a message, it is made plain first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Unfit(String);

impl Unfit {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

#[cfg(test)]
mod tests;
