//! What the runner does to a cluster, and its one real form: the apply engine.
//!
//! The trait stands between so that the runner can be tried with faults that no real apiserver shows on demand.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use roadstead_agent_policy::{Account, Policy, Rights};
use roadstead_apply::{
    Desired, Engine, Error, HealthRules, Ledger, Outcome, Prepared, Run, Scope, Sight, Waited,
};
use roadstead_model::{ApplierUid, FluxKustomization, Guard, ObjectRef, PendingDeletion, ServiceAccount};
use serde_json::Value;

use crate::warden::Warden;

/// A cluster, as one identity sees it.
pub trait Cluster: Clone + Send + Sync + 'static {
    /// Objects that were checked and put in order, ready to be applied.
    type Ready: Send + Sync;

    /// The same cluster as a service account sees it.
    #[must_use]
    fn acting_as(&self, account: Option<&ServiceAccount>) -> Self;

    /// The cluster's own policy, as it is now; the error is for people, and nothing is to be done then.
    fn policy(&self) -> impl Future<Output = Result<Arc<Policy>, String>> + Send;

    /// The same cluster, where `policy` is asked, and deletions are counted, before anything is deleted for `account`.
    #[must_use]
    fn guarded(&self, policy: Arc<Policy>, account: Option<Account>) -> Self;

    /// The same cluster, where the health of some kinds is told by rules.
    #[must_use]
    fn with_health(&self, rules: Arc<HealthRules>) -> Self;

    /// The same cluster, where nothing is asked about objects that stand as they were applied by this ledger.
    #[must_use]
    fn with_ledger(&self, ledger: Arc<dyn Ledger>) -> Self;

    /// The same cluster, where a guard holds volumes that would have to be recreated.
    #[must_use]
    fn under(&self, guard: Option<&Guard>) -> Self;

    /// The same cluster, where nothing is applied, and what differs is told.
    #[must_use]
    fn observing(&self) -> Self;

    /// See [`Engine::each_by_itself`].
    fn each_by_itself(&self) -> Self;

    /// See [`Engine::watch_owned`].
    fn watch_owned(
        &self,
        scope: &Scope,
        tell: &mut (dyn FnMut(Sight) + Send),
    ) -> impl Future<Output = String> + Send;

    /// See [`Engine::watch_whole`].
    fn watch_whole(
        &self,
        scope: &Scope,
        tell: &mut (dyn FnMut(Sight<Value>) + Send),
    ) -> impl Future<Output = String> + Send;

    /// See [`Engine::scope_of`].
    fn scope_of(&self, object: &ObjectRef) -> impl Future<Output = Result<Option<Scope>, String>> + Send;

    /// Those of the prepared objects that are wanted.
    fn only(ready: &Self::Ready, wanted: &BTreeSet<ObjectRef>) -> Self::Ready;

    /// What a service account may do in the agent's own namespace; the error is for people.
    fn rights(
        &self,
        account: &Account,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<Rights, String>> + Send;

    /// Gives `take` each object with what is to be sent of it.
    fn inspect(ready: &Self::Ready, take: &mut dyn FnMut(&ObjectRef, &Value));

    /// Whether the service account is there, as far as this identity can tell.
    fn has_account(
        &self,
        account: &ServiceAccount,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// See [`Engine::prepare`].
    fn prepare(
        &self,
        desired: Desired,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<Self::Ready, Error>> + Send;

    /// Everything that is about to be owned.
    fn objects(ready: &Self::Ready) -> Vec<ObjectRef>;

    /// See [`Engine::volumes_held`].
    fn volumes_held(
        &self,
        ready: &Self::Ready,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<Vec<PendingDeletion>, Error>> + Send;

    /// See [`Engine::apply`].
    fn apply(
        &self,
        ready: &Self::Ready,
        previous: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Outcome> + Send;

    /// See [`Engine::deletions`].
    fn deletions(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<Vec<PendingDeletion>, Error>> + Send;

    /// See [`Engine::claimable`].
    fn claimable(
        &self,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<Vec<PendingDeletion>, Error>> + Send;

    /// See [`Engine::claim`].
    fn claim(
        &self,
        owner: ApplierUid,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Outcome> + Send;

    /// See [`Engine::give_back`].
    fn give_back(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Outcome> + Send;

    /// See [`Engine::prune`].
    fn prune(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Outcome> + Send;

    /// Waits until objects are what is waited for.
    fn wait(
        &self,
        objects: &[ObjectRef],
        until: Until,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Waited> + Send;

    /// See [`Engine::tell`].
    fn tell(
        &self,
        event: &ObjectRef,
        content: &Value,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// See [`Engine::get`].
    fn read(
        &self,
        object: &ObjectRef,
        run: &mut Run<'_>,
    ) -> impl Future<Output = Result<Option<Value>, Error>> + Send;
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// See [`Engine::wait`].
    Healthy,
    /// See [`Engine::wait_done`].
    Done,
    /// See [`Engine::wait_terminated`].
    Gone,
}

/// The apply engine under the cluster's own policy.
#[derive(Clone)]
pub struct Guarded {
    engine: Engine,
    warden: Arc<Warden>,
}

impl Guarded {
    /// `engine`, and who knows the policy.
    #[must_use]
    pub fn new(engine: Engine, warden: Arc<Warden>) -> Self {
        Self { engine, warden }
    }

    fn with(&self, engine: Engine) -> Self {
        Self { engine, warden: Arc::clone(&self.warden) }
    }
}

impl Cluster for Guarded {
    type Ready = Prepared;

    fn acting_as(&self, account: Option<&ServiceAccount>) -> Self {
        let Some(account) = account else { return self.clone() };
        self.with(self.engine.impersonate(account.clone()))
    }

    async fn policy(&self) -> Result<Arc<Policy>, String> {
        self.warden.policy().await
    }

    fn guarded(&self, policy: Arc<Policy>, account: Option<Account>) -> Self {
        self.with(self.engine.gated(self.warden.gate(policy, account)))
    }

    fn with_health(&self, rules: Arc<HealthRules>) -> Self {
        self.with(self.engine.with_health(rules))
    }

    fn with_ledger(&self, ledger: Arc<dyn Ledger>) -> Self {
        self.with(self.engine.with_ledger(ledger))
    }

    fn under(&self, guard: Option<&Guard>) -> Self {
        let Some(guard) = guard else { return self.clone() };
        self.with(self.engine.holding_volumes(guard.confirmed.as_slice().into()))
    }

    fn observing(&self) -> Self {
        self.with(self.engine.observing())
    }

    fn each_by_itself(&self) -> Self {
        self.with(self.engine.each_by_itself())
    }

    async fn watch_owned(&self, scope: &Scope, tell: &mut (dyn FnMut(Sight) + Send)) -> String {
        self.engine.watch_owned(scope, tell).await
    }

    async fn watch_whole(&self, scope: &Scope, tell: &mut (dyn FnMut(Sight<Value>) + Send)) -> String {
        self.engine.watch_whole(scope, tell).await
    }

    async fn scope_of(&self, object: &ObjectRef) -> Result<Option<Scope>, String> {
        self.engine.scope_of(object).await
    }

    fn only(ready: &Prepared, wanted: &BTreeSet<ObjectRef>) -> Prepared {
        ready.only(wanted)
    }

    async fn rights(&self, account: &Account, run: &mut Run<'_>) -> Result<Rights, String> {
        let Account { namespace, name } = account.clone();
        let engine = self.engine.impersonate(ServiceAccount { namespace, name });
        let rules = engine.own_rules(self.warden.namespace(), run).await?;
        serde_json::from_value(rules).map_err(|_| "the apiserver's answer could not be parsed".to_owned())
    }

    fn inspect(ready: &Prepared, take: &mut dyn FnMut(&ObjectRef, &Value)) {
        ready.contents().for_each(|(reference, content)| take(reference, &content));
    }

    async fn has_account(&self, account: &ServiceAccount, run: &mut Run<'_>) -> Result<bool, Error> {
        let reference = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        };
        Ok(self.engine.get(&reference, run).await?.is_some())
    }

    async fn prepare(&self, desired: Desired, run: &mut Run<'_>) -> Result<Prepared, Error> {
        self.engine.prepare(desired, run).await
    }

    fn objects(ready: &Prepared) -> Vec<ObjectRef> {
        ready.objects()
    }

    async fn volumes_held(&self, ready: &Prepared, run: &mut Run<'_>) -> Result<Vec<PendingDeletion>, Error> {
        self.engine.volumes_held(ready, run).await
    }

    async fn apply(&self, ready: &Prepared, previous: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        self.engine.apply(ready, previous, run).await
    }

    async fn deletions(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        self.engine.deletions(owner, inventory, keep, run).await
    }

    async fn claimable(
        &self,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        self.engine.claimable(of, objects, run).await
    }

    async fn claim(
        &self,
        owner: ApplierUid,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Outcome {
        self.engine.claim(owner, of, objects, run).await
    }

    async fn give_back(&self, owner: ApplierUid, inventory: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        self.engine.give_back(owner, inventory, run).await
    }

    async fn prune(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Outcome {
        self.engine.prune(owner, inventory, keep, run).await
    }

    async fn wait(&self, objects: &[ObjectRef], until: Until, run: &mut Run<'_>) -> Waited {
        match until {
            Until::Healthy => self.engine.wait(objects, run).await,
            Until::Done => self.engine.wait_done(objects, run).await,
            Until::Gone => self.engine.wait_terminated(objects, run).await,
        }
    }

    async fn tell(&self, event: &ObjectRef, content: &Value, run: &mut Run<'_>) -> Result<(), Error> {
        self.engine.tell(event, content, run).await
    }

    async fn read(&self, object: &ObjectRef, run: &mut Run<'_>) -> Result<Option<Value>, Error> {
        self.engine.get(object, run).await
    }
}
