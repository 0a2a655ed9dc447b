//! What is known of a cluster's objects without asking for them: how each was applied, and how it was seen since.

use roadstead_model::{Digest, ObjectRef};

use crate::{Footprint, Scope};

/// Keeps how objects were applied, and is told by watches how they stand. An engine that has one sends no request for an object
/// that stands as it was applied.
pub trait Ledger: Send + Sync {
    /// Whether the object was last applied as `sent`, and stands so, as far as can be known right now. Called before anything
    /// is asked about the object: from here on, what is seen of it counts.
    fn stands(&self, object: &ObjectRef, sent: &Digest) -> bool;

    /// Whether the object was last applied as something else than `sent`; none where that is not known.
    fn was_other(&self, object: &ObjectRef, sent: &Digest) -> Option<bool>;

    /// Whether the fields are wanted where an object differed.
    fn tells_fields(&self) -> bool;

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
    /// Where it differed, as JSON pointers, as far as it was there and was changed; if the ledger [wants them](Ledger::tells_fields).
    pub fields: Vec<String>,
}
