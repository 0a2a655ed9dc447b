//! A dispatch under its guard: what would be deleted is counted before anything is, and waits for a person's confirmation where it is more
//! than may go without.

use roadstead_agent_policy::Policy;
use roadstead_apply::Run;
use roadstead_model::{Guard, GuardMode, Held, ObjectRef, PendingDeletion, Stage, StepKind};
use roadstead_proto::Failure;
use tokio::time::Instant;

use super::work::{On, Record, Work, failed, failure, failure_while};
use crate::cluster::Cluster;

impl<C: Cluster> Work<'_, C> {
    /// Whether deleting what is owned and not in `keep` waits. What waits is recorded.
    pub(super) async fn waits(
        &self,
        on: &On<'_, C>,
        keep: &[ObjectRef],
        record: &mut Record,
    ) -> Result<bool, Box<Failure>> {
        let Some(guard) = &on.dispatch.spec.guard else { return Ok(false) };
        // As it was before: what this dispatch has applied is not what goes or stays. What came from Flux since is to go.
        let owned = on.dispatch.inventory.iter().chain(on.lost).chain(on.returned).chain(&record.claimed);
        let owned: Vec<ObjectRef> = owned.cloned().collect();
        let Some(held) = self.held(on, guard, &owned, Vec::new(), keep).await? else { return Ok(false) };
        record.held.push(held);
        Ok(true)
    }

    /// Whether the cluster's own policy lets so much be deleted at once, whoever has confirmed it on the hub. Whatever deletes asks this.
    pub(super) async fn are_within_the_policy(
        &self,
        on: &On<'_, C>,
        policy: &Policy,
        keep: &[ObjectRef],
        record: &Record,
    ) -> Result<(), Box<Failure>> {
        if !policy.bounds_deletions() {
            return Ok(());
        }
        // Of what is new nothing goes, and it does not make the share of what goes smaller.
        let owned = on.dispatch.inventory.iter().chain(on.lost).chain(on.returned).chain(&record.claimed);
        let owned: Vec<ObjectRef> = owned.cloned().collect();
        let deletions = self.pending(on, &owned, keep).await?;
        let checked = policy.check_deletions(&owned, keep, &deletions);
        checked.map_err(|refused| failed(Stage::Prune, refused.to_string()))
    }

    /// Fails a dispatch of which nothing is to be applied where its deletions would wait. `applied` is all that it is going to apply,
    /// once that is known.
    pub(super) async fn stops(
        &self,
        on: &On<'_, C>,
        group: usize,
        applied: &[ObjectRef],
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let Some(guard) = on.dispatch.spec.guard.as_ref().filter(|guard| guard.mode == GuardMode::Stop)
        else {
            return Ok(());
        };
        let steps = &on.dispatch.spec.steps;
        let prunes = steps.iter().any(|step| step.kind == StepKind::Prune);
        let is_last = group + 1 == on.dispatch.spec.groups.len();
        if !prunes || !is_last {
            return Ok(());
        }
        let coming = self.to_be_claimed(on, applied, record).await?;
        let coming_objects = coming.iter().map(|deletion| deletion.object.clone());
        let owned = on.dispatch.inventory.iter().chain(on.lost).chain(on.returned).cloned();
        let owned: Vec<ObjectRef> = owned.chain(coming_objects).collect();
        match self.held(on, guard, &owned, coming, applied).await? {
            None => Ok(()),
            Some(held) => {
                let why = format!("nothing was applied: {}", held.why);
                record.held.push(held);
                Err(failed(Stage::Prune, why))
            }
        }
    }

    /// The same where volumes would wait that have to be recreated.
    pub(super) async fn stops_for_volumes(
        &self,
        on: &On<'_, C>,
        prepared: &C::Ready,
        run: &mut Run<'_>,
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        if on.dispatch.spec.guard.as_ref().is_none_or(|guard| guard.mode != GuardMode::Stop) {
            return Ok(());
        }
        let held = on.cluster.volumes_held(prepared, run).await.map_err(|error| failure(&error))?;
        record.held.extend(held.iter().map(volume));
        let Some(first) = record.held.first().filter(|_| !held.is_empty()) else { return Ok(()) };
        let more = held.len() - 1;
        let more = if more > 0 { format!(", and {more} more like it") } else { String::new() };
        Err(failed(Stage::Prune, format!("nothing was applied: {}{more}", first.why)))
    }

    /// Whether deleting what of `inventory` is not in `keep` waits; of what is `coming` from Flux it is known already.
    async fn held(
        &self,
        on: &On<'_, C>,
        guard: &Guard,
        inventory: &[ObjectRef],
        coming: Vec<PendingDeletion>,
        keep: &[ObjectRef],
    ) -> Result<Option<Held>, Box<Failure>> {
        let mut deletions = self.pending(on, inventory, keep).await?;
        deletions.extend(coming);
        deletions.sort_by(|a, b| a.object.cmp(&b.object));
        deletions.dedup_by(|a, b| a.object == b.object);
        Ok(guard.holds(inventory, keep, &deletions))
    }

    /// What of `inventory` would be deleted.
    async fn pending(
        &self,
        on: &On<'_, C>,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
    ) -> Result<Vec<PendingDeletion>, Box<Failure>> {
        on.tell(self.outbox, Stage::Prune);
        let mut ignore = |_| ();
        let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut ignore);
        let deletions = on.cluster.deletions(on.dispatch.key.applier, inventory, keep, &mut run).await;
        deletions.map_err(|error| failure_while(Stage::Prune, &error))
    }
}

/// A volume that was not recreated.
pub(super) fn volume(deletion: &PendingDeletion) -> Held {
    let why = deletion.risk.as_deref().unwrap_or_default();
    Held {
        digest: roadstead_model::guard::digest_of(std::slice::from_ref(deletion)),
        why: format!("{} would be deleted to be recreated: it {why}", deletion.object),
        objects: vec![deletion.object.clone()],
        total: 1,
    }
}
