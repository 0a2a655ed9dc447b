//! Correcting what others changed, between two dispatches: the objects in question only, as the last dispatch would apply them.
//!
//! Everything that holds for a dispatch holds here: the account, the cluster's own policy, the timeout. Only the hub is not asked:
//! what is corrected is in the inventory that it confirmed. What was done is told when it can be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use roadstead_agent_policy::Account;
use roadstead_apply::{Event, HealthRules, Manifest, Run};
use roadstead_model::{Action, Dispatch, Group, ObjectRef, ObjectResult, ServiceAccount, Stage, StepKind};
use roadstead_proto::limits::MAX_CORRECTED;
use roadstead_proto::{Corrected, Correction, Failure};
use tokio::time::Instant;

use super::work::{Fetched, On, Record, Work, cancelled, failed, failure};
use crate::builds::Unpacked;
use crate::cluster::Cluster;
use crate::tend::{Book, CorrectionOutcome, Drift, Due, LastApplied};

/// What was written to correct what others had changed.
pub(super) struct Written {
    /// When that began.
    pub(super) began: Instant,
    /// For the hub: several messages' worth where it is much.
    pub(super) corrections: Vec<Correction>,
}

impl<C: Cluster> Work<'_, C> {
    /// Corrects what is due, or looks at how it differs where that is only reported.
    pub(super) async fn correct(&self, due: &Due) -> (Written, CorrectionOutcome) {
        let LastApplied { dispatch, .. } = &*due.last;
        let began = Instant::now();
        let book = Arc::new(Book::of(self.tended, dispatch.key.applier, true).with_differences());
        let cluster = self.cluster.acting_as(dispatch.spec.service_account.as_ref());
        let cluster = cluster.with_ledger(Arc::clone(&book) as Arc<_>);
        let cluster = cluster.under(dispatch.spec.guard.as_ref());
        // They have nothing to do with each other but that they were changed at the same time.
        let cluster = cluster.each_by_itself();
        let cluster = if due.observes { cluster.observing() } else { cluster };
        // It parsed for the dispatch.
        let rules = HealthRules::new(&dispatch.spec.health).unwrap_or_default();
        let cluster = if rules.is_empty() { cluster } else { cluster.with_health(Arc::new(rules)) };
        let account = dispatch.spec.service_account.clone();
        let account = account.map(|ServiceAccount { namespace, name }| Account { namespace, name });
        let on = On {
            dispatch,
            lost: &[],
            returned: &[],
            cancel: &due.cancel,
            cluster: &cluster,
            account,
            step: None,
        };
        let mut record = Record::default();
        let ended = self.correct_all(&on, due, &mut record).await;
        if let Err(failure) = &ended
            && !failure.cancelled
        {
            tracing::warn!(applier = %dispatch.spec.applier, error = failure.message, "a correction failed");
        }
        let tells_values = record.policy.as_ref().is_none_or(|(policy, _)| policy.tells_values());
        let drift = drift(&book, due, tells_values);
        let settled: BTreeSet<&ObjectRef> = record.change_set.iter().map(|result| &result.object).collect();
        let unsettled = due.objects.keys().filter(|object| !settled.contains(object)).cloned().collect();
        let those = |is: fn(Action) -> bool| {
            record
                .change_set
                .iter()
                .filter(move |result| is(result.action))
                .map(|result| result.object.clone())
        };
        let objects: Vec<Corrected> = record
            .change_set
            .iter()
            .filter(|result| result.action.wrote())
            .map(|ObjectResult { object, action, .. }| {
                let Drift { managers, fields, .. } = drift.get(object).cloned().unwrap_or_default();
                Corrected { object: object.clone(), action: *action, managers, fields }
            })
            .collect();
        tell(dispatch, &objects);
        let took = began.elapsed();
        let of = |objects: &[Corrected]| Correction {
            key: dispatch.key.clone(),
            // That is told when it is sent.
            ago: Duration::ZERO,
            took,
            objects: objects.to_vec(),
            forgotten: 0,
        };
        let corrections = objects.chunks(MAX_CORRECTED).map(of).collect();
        let came = CorrectionOutcome {
            written: those(Action::wrote).collect(),
            reported: those(|action| action == Action::Drifted).collect(),
            skipped: those(|action| action == Action::Skipped).collect(),
            unsettled,
            failure: ended.err().map(|failure| failure.message).unwrap_or_default(),
            drift,
        };
        (Written { began, corrections }, came)
    }

    async fn correct_all(&self, on: &On<'_, C>, due: &Due, record: &mut Record) -> Result<(), Box<Failure>> {
        self.admit(on, record).await?;
        let wanted: BTreeSet<ObjectRef> = due.objects.keys().cloned().collect();
        let applied = on.dispatch.spec.steps.iter().filter_map(|step| match step.kind {
            StepKind::Apply { group } => Some(group),
            _ => None,
        });
        let mut first = None;
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
            match record.take(cluster.apply(&doubted, &inventory, &mut run).await) {
                Err(failure) if failure.cancelled => return Err(failure),
                Err(failure) => first = first.or(Some(failure)),
                Ok(()) => {}
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// A group's objects, of a build that is kept.
    async fn kept_manifests(
        &self,
        on: &On<'_, C>,
        group: &Group,
        record: &mut Record,
    ) -> Result<Vec<Manifest>, Box<Failure>> {
        record.memory = None;
        let Fetched { unpacked, .. } = tokio::select! {
            biased;
            () = on.cancel.cancelled() => return Err(cancelled(Stage::Finish, "reading the build")),
            fetched = self.objects_of(group.objects) => fetched,
        };
        let Unpacked { objects, memory } =
            unpacked.map_err(|error| failed(Stage::Finish, error.to_string()))?;
        record.memory = Some(memory);
        self.finish(on, group, objects, record).await
    }
}

/// How objects differed, and who changed them.
fn drift(book: &Book, due: &Due, tells_values: bool) -> BTreeMap<ObjectRef, Drift> {
    let differences = book.take_differences().into_iter();
    differences
        .map(|(object, difference)| {
            let writers = due.objects.get(&object).into_iter().flatten().cloned();
            let drift = Drift::new(difference, writers);
            (object, if tells_values { drift } else { drift.without_values() })
        })
        .collect()
}

/// Logs what was corrected. Values are for the hub only.
fn tell(dispatch: &Dispatch, objects: &[Corrected]) {
    for Corrected { object, action, managers, fields } in objects {
        let fields: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        tracing::info!(
            applier = %dispatch.spec.applier, %object, action = action.as_str(), ?managers, ?fields,
            "corrected a change made by others"
        );
    }
}
