//! A dispatch under the cluster's own policy: read before anything is done, and again where that was a while ago.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use roadstead_agent_policy::{Account, Action, Object, Policy, Refused};
use roadstead_apply::Run;
use roadstead_model::{ObjectRef, Stage, StepKind};
use roadstead_proto::Failure;
use serde_json::Value;
use tokio::time::Instant;

use super::work::{On, Record, Work, cancelled, failed, failure_while};
use crate::cluster::Cluster;

/// So long a policy that was read is taken to be the policy.
const FRESH: Duration = Duration::from_secs(2);

/// How many refused objects a message names.
const MAX_REFUSED: usize = 3;

impl<C: Cluster> On<'_, C> {
    /// The stage in which what is refused of this dispatch fails.
    fn stage(&self) -> Stage {
        let steps = &self.dispatch.spec.steps;
        if steps.iter().any(|step| matches!(step.kind, StepKind::Apply { .. } | StepKind::Hook { .. })) {
            Stage::Apply
        } else if steps
            .iter()
            .any(|step| matches!(step.kind, StepKind::Prune | StepKind::Delete | StepKind::GiveBack))
        {
            Stage::Prune
        } else {
            Stage::Wait
        }
    }

    /// The failure of a dispatch that was cancelled before it was its turn.
    pub(super) fn never_had_its_turn(&self) -> Box<Failure> {
        cancelled(self.stage(), "waiting for other dispatches")
    }

    fn refusal(&self, refused: &Refused, object: Option<ObjectRef>) -> Box<Failure> {
        Box::new(Failure { object, ..*failed(self.stage(), refused.to_string()) })
    }
}

impl<C: Cluster> Work<'_, C> {
    /// An object of the cluster, read as the account of the dispatch where the cluster's policy lets it be; none where it is not there. `fails`
    /// makes a failure of the reason why it cannot be read.
    pub(super) async fn read_as_allowed(
        &self,
        on: &On<'_, C>,
        object: &ObjectRef,
        stage: Stage,
        fails: &(dyn Fn(String) -> Box<Failure> + Sync),
        record: &mut Record,
    ) -> Result<Option<Value>, Box<Failure>> {
        let policy = self.policy(on, record).await?;
        let asked = Object { reference: object, content: None };
        policy
            .evaluate(Action::Read, &asked, on.account.as_ref())
            .map_err(|refused| fails(refused.to_string()))?;
        let mut ignore = |_| ();
        let until = Instant::now() + on.dispatch.spec.timeout;
        let mut run = Run::new(until, on.cancel.clone(), &mut ignore);
        on.cluster.read(object, &mut run).await.map_err(|error| {
            let failure = failure_while(stage, &error);
            if failure.cancelled { failure } else { fails(error.to_string()) }
        })
    }

    /// The policy in force.
    pub(super) async fn policy(
        &self,
        on: &On<'_, C>,
        record: &mut Record,
    ) -> Result<Arc<Policy>, Box<Failure>> {
        if let Some((policy, read)) = &record.policy
            && read.elapsed() < FRESH
        {
            return Ok(Arc::clone(policy));
        }
        let read = Instant::now();
        let policy = tokio::select! {
            biased;
            () = on.cancel.cancelled() => return Err(cancelled(on.stage(), "reading the agent's policy")),
            policy = self.cluster.policy() => policy,
        };
        let policy = policy.map_err(|why| failed(on.stage(), why))?;
        record.policy = Some((Arc::clone(&policy), read));
        Ok(policy)
    }

    /// Whether anything may be done as the account that the dispatch names.
    pub(super) async fn admit(&self, on: &On<'_, C>, record: &mut Record) -> Result<(), Box<Failure>> {
        let policy = self.policy(on, record).await?;
        policy.check_account(on.account.as_ref()).map_err(|refused| on.refusal(&refused, None))?;
        let mut ignore = |_| ();
        let mut run = Run::new(Instant::now() + on.dispatch.spec.timeout, on.cancel.clone(), &mut ignore);
        let accounts = on.account.clone().into_iter().collect();
        self.check_rights(on, &policy, accounts, &mut run).await
    }

    /// Whether all that is about to be applied may be.
    pub(super) async fn judge(
        &self,
        on: &On<'_, C>,
        policy: &Policy,
        ready: &C::Ready,
        run: &mut Run<'_>,
    ) -> Result<(), Box<Failure>> {
        let (mut refused, mut accounts) = (Vec::new(), BTreeSet::new());
        C::inspect(ready, &mut |reference, content| {
            let object = Object { reference, content: Some(content) };
            match policy.evaluate(Action::Apply, &object, on.account.as_ref()) {
                Ok(()) => accounts.extend(policy.accounts_used(&object)),
                Err(why) => refused.push((reference.clone(), why)),
            }
        });
        match refused.as_slice() {
            [] => self.check_rights(on, policy, accounts, run).await,
            [(object, why)] => Err(on.refusal(why, Some(object.clone()))),
            several => {
                let mut named: Vec<String> =
                    several.iter().take(MAX_REFUSED).map(|(_, why)| why.to_string()).collect();
                if several.len() > MAX_REFUSED {
                    named.push(format!("and {} more", several.len() - MAX_REFUSED));
                }
                Err(failed(on.stage(), format!("nothing was applied: {}", named.join("; "))))
            }
        }
    }

    /// Whether none of these accounts has rights that the policy lets none have.
    async fn check_rights(
        &self,
        on: &On<'_, C>,
        policy: &Policy,
        accounts: BTreeSet<Account>,
        run: &mut Run<'_>,
    ) -> Result<(), Box<Failure>> {
        for account in accounts.iter().filter(|account| policy.wants_rights(account)) {
            let rights = self.cluster.rights(account, run).await;
            if on.cancel.is_cancelled() {
                return Err(cancelled(on.stage(), "asking for the rights of a service account"));
            }
            policy.check_rights(account, &rights).map_err(|refused| on.refusal(&refused, None))?;
        }
        Ok(())
    }
}
