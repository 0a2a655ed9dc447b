//! What a dispatch waits for is followed from when it begins to wait; where it waits for nothing, what it applies from when that begins.

use std::collections::BTreeSet;

use roadstead_model::{ObjectRef, StepKind};
use tokio::time::Instant;

use super::work::{On, Record, Work};
use crate::cluster::Cluster;
use crate::health::Awaited;

impl<C: Cluster> Work<'_, C> {
    /// These are waited for: they are watched from now on.
    pub(super) fn follow(&self, on: &On<'_, C>, objects: &[ObjectRef], record: &Record) {
        let applied: BTreeSet<&ObjectRef> = record.applied.values().flatten().collect();
        let (own, foreign) = objects.iter().cloned().partition(|object| applied.contains(object));
        self.healths.awaits(Awaited { dispatch: on.dispatch, is_asked: true, own, foreign }, Instant::now());
    }

    /// These are about to be applied: they are watched from now on, where they are not going to be waited for.
    pub(super) fn follow_unasked(&self, on: &On<'_, C>, objects: &[ObjectRef]) {
        let mut steps = on.dispatch.spec.steps.iter();
        if !steps.any(|step| matches!(step.kind, StepKind::Wait { .. } | StepKind::Hook { .. })) {
            let (own, foreign) = (objects.iter().cloned().collect(), BTreeSet::new());
            let awaited = Awaited { dispatch: on.dispatch, is_asked: false, own, foreign };
            self.healths.awaits(awaited, Instant::now());
        }
    }
}
