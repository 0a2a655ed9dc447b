//! A hook: a group that runs to its end between other steps, and is removed by its policy.

use std::collections::BTreeSet;
use std::pin::Pin;

use futures::future::MaybeDone;
use roadstead_apply::{Event, Run};
use roadstead_model::{HookPolicy, ObjectRef, Stage};
use roadstead_proto::Failure;
use tokio::time::Instant;

use super::work::{Fetched, On, Record, Work, failure};
use crate::cluster::{Cluster, Until};

impl<C: Cluster> Work<'_, C> {
    /// Runs a hook. What an earlier run of it left is removed first: a Job that has ended does not run again.
    pub(super) async fn hook<B: Future<Output = Option<Fetched>>>(
        &self,
        on: &On<'_, C>,
        ahead: Pin<&mut MaybeDone<B>>,
        group: usize,
        policy: HookPolicy,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let ready = self.make_ready(on, ahead, group, deadline, record).await?;
        let objects = ready.objects.clone();
        let left: Vec<ObjectRef> =
            objects.iter().filter(|object| record.inventory.contains(object)).cloned().collect();
        if !left.is_empty() {
            self.remove_only(on, &left, record).await?;
            self.until(on, &left, Until::Gone, deadline, record).await?;
        }
        self.write(on, group, ready, deadline, record).await?;
        let ended = self.until(on, &objects, Until::Done, deadline, record).await;
        let removes = match (&ended, policy) {
            (Ok(()), HookPolicy::Succeeded) => true,
            // What was cancelled has not failed.
            (Err(failure), HookPolicy::Failed) => !failure.cancelled,
            _ => false,
        };
        if removes {
            let removed = self.remove_only(on, &objects, record).await;
            record.applied.insert(group, Vec::new());
            // Why it failed says more than that it could not be removed.
            ended.and(removed)
        } else {
            ended
        }
    }

    /// Deletes these, and nothing else of what is owned.
    async fn remove_only(
        &self,
        on: &On<'_, C>,
        objects: &[ObjectRef],
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let objects: BTreeSet<&ObjectRef> = objects.iter().collect();
        let keep: Vec<ObjectRef> =
            record.inventory.iter().filter(|object| !objects.contains(object)).cloned().collect();
        self.remove(on, &keep, record).await
    }

    /// Waits for objects, within the time that the dispatch has.
    pub(super) async fn until(
        &self,
        on: &On<'_, C>,
        objects: &[ObjectRef],
        until: Until,
        deadline: &mut Option<Instant>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let by = *deadline.get_or_insert_with(|| Instant::now() + on.dispatch.spec.timeout);
        on.tell(self.outbox, Stage::Wait);
        let mut progress = on.teller(self.outbox);
        let mut tell = |event: Event| {
            if let Event::Health { object, health } = &event
                && until == Until::Healthy
            {
                self.healths.waits_for(&on.dispatch.key, object, health, Instant::now());
            }
            progress(event);
        };
        let mut run = Run::new(by, on.cancel.clone(), &mut tell);
        let waited = on.cluster.wait(objects, until, &mut run).await;
        record.spent(waited.timing.stage, waited.timing.micros);
        waited.error.map_or(Ok(()), |error| Err(failure(&error)))
    }
}
