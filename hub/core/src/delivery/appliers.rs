//! The kinds that deploy, each in a file of its own.

mod kustomization;
#[cfg(debug_assertions)]
mod rehearsal;

use crate::delivery::applier::Applier;

/// All of them.
pub(super) const ALL: &[&dyn Applier] = &[
    &kustomization::Kustomizations,
    #[cfg(debug_assertions)]
    &rehearsal::Rehearsals,
];
