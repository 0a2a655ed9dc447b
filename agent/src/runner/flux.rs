//! Steps that have to do with a Flux in the same cluster: what its inventories hold becomes the applier's, and what the applier holds is given
//! back.

use std::collections::HashSet;

use roadstead_agent_policy::{Action, Object};
use roadstead_apply::{Run, flux};
use roadstead_model::{FluxKustomization, ObjectRef, PendingDeletion, Stage, StepKind};
use roadstead_proto::Failure;
use tokio::time::Instant;

use super::work::{On, Record, Work, failed, failure_while};
use crate::cluster::Cluster;

impl<C: Cluster> Work<'_, C> {
    /// Owns what these Kustomizations of Flux have applied and no group has: the next step that prunes deletes it, as far as the guard
    /// lets it. The hub knows of it before its label is written.
    pub(super) async fn adopt_inventory(
        &self,
        on: &On<'_, C>,
        of: &[FluxKustomization],
        record: &mut Record,
    ) -> Result<(), Box<Failure>> {
        let kept: Vec<ObjectRef> = record.applied.values().flatten().cloned().collect();
        for of in of {
            let found = self.claimable(on, of, &kept, record).await?;
            if found.is_empty() {
                continue;
            }
            let found: Vec<ObjectRef> = found.into_iter().map(|one| one.object).collect();
            let intended = kept.iter().chain(&record.claimed).chain(&found).cloned().collect();
            self.ask_the_hub(on, intended).await?;
            let policy = self.policy(on, record).await?;
            for object in &found {
                let asked = Object { reference: object, content: None };
                let evaluated = policy.evaluate(Action::Delete, &asked, on.account.as_ref());
                evaluated.map_err(|refused| {
                    Box::new(Failure {
                        object: Some(object.clone()),
                        ..*failed(Stage::Prune, refused.to_string())
                    })
                })?;
            }
            let mut tell = on.teller(self.outbox);
            let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut tell);
            let mut outcome = on.cluster.claim(on.dispatch.key.applier, of, &found, &mut run).await;
            record.claimed.append(&mut outcome.inventory.clone());
            outcome.inventory.append(&mut record.inventory);
            outcome.inventory.sort();
            outcome.inventory.dedup();
            record.take(outcome)?;
        }
        Ok(())
    }

    /// What would become the applier's by the steps to come, apart from what it is going to apply.
    pub(super) async fn to_be_claimed(
        &self,
        on: &On<'_, C>,
        applied: &[ObjectRef],
        record: &mut Record,
    ) -> Result<Vec<PendingDeletion>, Box<Failure>> {
        let mut found = Vec::new();
        for step in &on.dispatch.spec.steps {
            let StepKind::AdoptInventory { of } = &step.kind else { continue };
            for of in of {
                found.extend(self.claimable(on, of, applied, record).await?);
            }
        }
        Ok(found)
    }

    /// What a Kustomization of Flux has applied that bears its labels still, and is neither `kept` nor the applier's already.
    async fn claimable(
        &self,
        on: &On<'_, C>,
        of: &FluxKustomization,
        kept: &[ObjectRef],
        record: &mut Record,
    ) -> Result<Vec<PendingDeletion>, Box<Failure>> {
        let object = flux::reference(of);
        let about = |why: String| {
            let message = format!("the inventory of Flux's Kustomization {of} cannot be read in: {why}");
            Box::new(Failure { object: Some(object.clone()), ..*failed(Stage::Prune, message) })
        };
        let read = self.read_as_allowed(on, &object, Stage::Prune, &about, record).await?;
        // What is not there any more, or goes just now, has nothing to give.
        let Some(read) = read.filter(|read| read["metadata"]["deletionTimestamp"].is_null()) else {
            return Ok(Vec::new());
        };
        let mut entries = flux::inventory(&read).map_err(|error| about(error.to_string()))?;
        let known: HashSet<&ObjectRef> = kept.iter().chain(&on.dispatch.inventory).collect();
        entries.retain(|entry| !known.contains(entry));
        let mut ignore = |_| ();
        let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut ignore);
        let found = on.cluster.claimable(of, &entries, &mut run).await;
        let found = found.map_err(|error| failure_while(Stage::Prune, &error))?;
        if !found.is_empty() && read["spec"]["suspend"] != true {
            return Err(about(format!(
                "it is not suspended, and would create again what is pruned: flux suspend kustomization {} -n {}",
                of.name, of.namespace
            )));
        }
        Ok(found)
    }

    /// Lets everything go, so that a Flux has it. As for a deletion, nothing is done on behalf of an account that is gone.
    pub(super) async fn give_back(&self, on: &On<'_, C>, record: &mut Record) -> Result<(), Box<Failure>> {
        self.lets_go_without(on, "objects are given back", record).await?;
        self.withdraw(on, Stage::Prune).await?;
        self.policy(on, record)
            .await?
            .check_account(on.account.as_ref())
            .map_err(|refused| failed(Stage::Prune, refused.to_string()))?;
        let mut tell = on.teller(self.outbox);
        let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut tell);
        let outcome = on.cluster.give_back(on.dispatch.key.applier, &record.inventory, &mut run).await;
        record.take(outcome)
    }
}
