//! What a dispatch waits for is followed from when it begins to wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use roadstead_apply::HealthRules;
use roadstead_model::{ObjectRef, Purpose};
use tokio::time::Instant;

use super::work::{On, Record, Work};
use crate::cluster::Cluster;
use crate::health::Awaited;

impl<C: Cluster> Work<'_, C> {
    /// These are waited for: they are watched from now on.
    pub(super) fn follow(&self, on: &On<'_, C>, objects: &[ObjectRef], record: &Record) {
        if on.dispatch.spec.purpose != Purpose::Reconcile {
            return;
        }
        let applied: BTreeSet<&ObjectRef> = record.applied.values().flatten().collect();
        let (own, foreign) = objects.iter().cloned().partition(|object| applied.contains(object));
        // They parsed when the dispatch began.
        let rules = HealthRules::new(&on.dispatch.spec.health).ok().filter(|rules| !rules.is_empty());
        let awaited = Awaited { dispatch: on.dispatch, own, foreign };
        self.healths.awaits(awaited, rules.map(Arc::new), Instant::now());
    }
}
