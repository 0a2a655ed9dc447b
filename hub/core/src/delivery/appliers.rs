//! The kinds that deploy, each in a file of its own.

mod kustomization;

use crate::delivery::applier::Applier;

/// All of them.
pub(super) const ALL: &[&dyn Applier] = &[&kustomization::Kustomizations];
