//! What is known of a cluster's objects without asking for them: how each was applied, and how it was seen since.

use roadstead_model::{Digest, FieldDrift, ObjectRef};

use crate::{Footprint, Scope};

/// Keeps how objects were applied, and is told by watches how they stand. An engine that has one sends no request for an object
/// that stands as it was applied.
pub trait Ledger: Send + Sync {
    /// Whether the object was last applied as `sent`, and stands so, as far as can be known right now. Called before anything
    /// is asked about the object: from here on, what is seen of it counts.
    fn stands(&self, object: &ObjectRef, sent: &Digest) -> bool;

    /// Whether the object was last applied as something else than `sent`; none where that is not known.
    fn was_other(&self, object: &ObjectRef, sent: &Digest) -> Option<bool>;

    /// How the object was applied last, if it stands so by all that was seen of it since and nobody shares its fields; none where any of
    /// that is not known. What was seen may be a moment old.
    fn as_applied(&self, object: &ObjectRef) -> Option<AsApplied>;

    /// Whether it wants to know how objects differ.
    fn wants_differences(&self) -> bool;

    /// How the object differs from what is to be sent, where that is [wanted](Self::wants_differences).
    fn differs(&self, object: &ObjectRef, difference: Difference);

    /// The object was applied, or found to be as it would be applied.
    fn note(&self, object: &ObjectRef, applied: Applied);
}

/// How an object was applied.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The digest of what was sent, or would have been.
    pub sent: Digest,
    /// What tells of it from here on.
    pub scope: Scope,
    /// Who has what of it.
    pub footprint: Footprint,
    /// Whether it is as it was sent; else it was left as it is, as it asks for itself.
    pub is_as_sent: bool,
    /// Others have fields of it that are as they were sent, and could change them without a trace in `managedFields`.
    pub is_shared: bool,
}

/// How an object was applied last, that stands so since.
#[derive(Debug, Clone)]
pub struct AsApplied {
    /// The digest of what was sent; none where an agent before this one sent it, which kept no digests.
    pub sent: Option<Digest>,
    /// Who had what of it.
    pub footprint: Footprint,
    /// The newest resource version in which it was seen to stand so, as a number; 0 where it is not a number.
    pub version: u64,
}

/// How an object differs from what is to be sent.
#[derive(Debug, Clone)]
pub struct Difference {
    /// What tells of it.
    pub scope: Scope,
    /// It is not there.
    pub missing: bool,
    /// Which fields do. Those of an object that has to be recreated are not known.
    pub fields: Vec<FieldDrift>,
    /// Who else has any of those fields.
    pub managers: Vec<String>,
    /// Who has what of it; none where it is missing.
    pub footprint: Option<Footprint>,
}
