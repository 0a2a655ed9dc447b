//! Correcting what others changed, between two dispatches: the objects in question only, as the last dispatch would apply them.
//!
//! Everything that holds for a dispatch holds here: the account, the cluster's own policy, the timeout. Only the hub is not asked:
//! what is corrected is in the inventory that it confirmed. What was done is told when it can be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use roadstead_agent_policy::Account;
use roadstead_apply::{Event, HealthRules, Manifest, Run};
use roadstead_model::{Group, ObjectRef, ServiceAccount, Stage, StepKind};
use roadstead_proto::limits::{MAX_CORRECTED, MAX_CORRECTED_MANAGERS};
use roadstead_proto::{Corrected, Correction, Failure};
use tokio::time::Instant;

use super::work::{Fetched, On, Record, Work, cancelled, failed, failure};
use crate::cluster::Cluster;
use crate::tend::{Book, Due, LastApplied};

/// How many characters of a manager's name are told.
const MAX_NAME: usize = 128;

/// What came of a correction.
pub(super) struct Came {
    /// When it began.
    pub(super) began: Instant,
    /// What it wrote, for the hub: several messages' worth where that is much.
    pub(super) corrections: Vec<Correction>,
    /// The objects that it wrote, or was about to.
    pub(super) written: BTreeSet<ObjectRef>,
    /// Those that may still be other than they should be.
    pub(super) unsettled: BTreeSet<ObjectRef>,
}

impl<C: Cluster> Work<'_, C> {
    /// Corrects what is due.
    pub(super) async fn correct(&self, due: &Due) -> Came {
        let LastApplied { dispatch, .. } = &*due.last;
        let began = Instant::now();
        let book = Book::of(self.tended, dispatch.key.applier, true);
        let cluster = self.cluster.acting_as(dispatch.spec.service_account.as_ref());
        let cluster = cluster.with_ledger(Arc::clone(&book) as Arc<_>);
        let cluster = cluster.under(dispatch.spec.guard.as_ref());
        // It parsed for the dispatch.
        let rules = HealthRules::new(&dispatch.spec.health).unwrap_or_default();
        let cluster = if rules.is_empty() { cluster } else { cluster.with_health(Arc::new(rules)) };
        let account = dispatch.spec.service_account.clone();
        let account = account.map(|ServiceAccount { namespace, name }| Account { namespace, name });
        let on = On { dispatch, cancel: &due.cancel, cluster: &cluster, account, step: None };
        let mut record = Record::default();
        let ended = self.correct_all(&on, due, &mut record).await;
        if let Err(failure) = &ended
            && !failure.cancelled
        {
            tracing::warn!(applier = %dispatch.spec.applier, error = failure.message, "a correction failed");
        }
        let settled: BTreeSet<&ObjectRef> = record.change_set.iter().map(|result| &result.object).collect();
        let unsettled = due.objects.keys().filter(|object| !settled.contains(object)).cloned().collect();
        let objects: Vec<Corrected> = record
            .change_set
            .iter()
            .filter(|result| result.action.wrote())
            .map(|result| Corrected {
                object: result.object.clone(),
                action: result.action,
                managers: managers(due, &result.object),
                fields: book.fields(&result.object),
            })
            .collect();
        for corrected in &objects {
            let Corrected { object, action, managers, fields } = corrected;
            tracing::info!(
                applier = %dispatch.spec.applier, %object, action = action.as_str(), ?managers, ?fields,
                "corrected a change made by others"
            );
        }
        let written = objects.iter().map(|corrected| corrected.object.clone()).collect();
        let took = began.elapsed();
        let of = |objects: &[Corrected]| Correction {
            key: dispatch.key.clone(),
            // That is told when it is sent.
            ago: Duration::ZERO,
            took,
            objects: objects.to_vec(),
        };
        let corrections = objects.chunks(MAX_CORRECTED).map(of).collect();
        Came { began, corrections, written, unsettled }
    }

    async fn correct_all(&self, on: &On<'_, C>, due: &Due, record: &mut Record) -> Result<(), Box<Failure>> {
        self.admit(on, record).await?;
        let wanted: BTreeSet<ObjectRef> = due.objects.keys().cloned().collect();
        let applied = on.dispatch.spec.steps.iter().filter_map(|step| match step.kind {
            StepKind::Apply { group } => Some(group),
            _ => None,
        });
        for index in applied {
            let group = on.group(index)?;
            let manifests = self.kept_manifests(on, group, record).await?;
            let desired = on.desired(group, manifests)?;
            let mut tell = |_: Event| ();
            let until = Instant::now() + on.dispatch.spec.timeout;
            let mut run = Run::new(until, on.cancel.clone(), &mut tell);
            let prepared = on.cluster.prepare(desired, &mut run).await.map_err(|error| failure(&error))?;
            let doubted = C::only(&prepared, &wanted);
            if C::objects(&doubted).is_empty() {
                continue;
            }
            let policy = self.policy(on, record).await?;
            self.judge(on, &policy, &doubted, &mut run).await?;
            let cluster = on.cluster.guarded(policy, on.account.clone());
            let inventory = std::mem::take(&mut record.inventory);
            record.take(cluster.apply(&doubted, &inventory, &mut run).await)?;
        }
        Ok(())
    }

    /// A group's objects, of a build that is kept.
    async fn kept_manifests(
        &self,
        on: &On<'_, C>,
        group: &Group,
        record: &mut Record,
    ) -> Result<Vec<Manifest>, Box<Failure>> {
        let Fetched { objects, .. } = tokio::select! {
            biased;
            () = on.cancel.cancelled() => return Err(cancelled(Stage::Finish, "reading the build")),
            fetched = self.objects_of(group.objects) => fetched,
        };
        let objects = objects.map_err(|error| failed(Stage::Finish, error.to_string()))?;
        self.finish(on, group, objects, record).await
    }
}

/// Who has written to an object since it was applied, as far as that is known.
fn managers(due: &Due, object: &ObjectRef) -> Vec<String> {
    let empty = BTreeSet::new();
    let writers = due.objects.get(object).unwrap_or(&empty);
    writers.iter().take(MAX_CORRECTED_MANAGERS).map(|name| name.chars().take(MAX_NAME).collect()).collect()
}
