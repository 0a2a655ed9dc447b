//! What the runner does to a cluster, and its one real form: the apply engine.
//!
//! The trait stands between so that the runner can be tried with faults that no real apiserver shows on demand.

use std::future::Future;

use roadstead_apply::{Desired, Engine, Error, Outcome, Prepared, Run, Waited};
use roadstead_model::{KustomizationUid, ObjectRef};
use roadstead_proto::ServiceAccount;

/// A cluster, as one identity sees it.
pub trait Cluster: Clone + Send + Sync + 'static {
    /// Objects that were checked and put in order, ready to be applied.
    type Ready: Send + Sync;

    /// The same cluster as a service account sees it.
    #[must_use]
    fn acting_as(&self, account: Option<&ServiceAccount>) -> Self;

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

    /// See [`Engine::apply`].
    fn apply(
        &self,
        ready: &Self::Ready,
        previous: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Outcome> + Send;

    /// See [`Engine::prune`].
    fn prune(
        &self,
        owner: KustomizationUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> impl Future<Output = Outcome> + Send;

    /// See [`Engine::wait`].
    fn wait(&self, objects: &[ObjectRef], run: &mut Run<'_>) -> impl Future<Output = Waited> + Send;
}

impl Cluster for Engine {
    type Ready = Prepared;

    fn acting_as(&self, account: Option<&ServiceAccount>) -> Self {
        let Some(ServiceAccount { namespace, name }) = account else { return self.clone() };
        self.impersonate(roadstead_apply::ServiceAccount { namespace: namespace.clone(), name: name.clone() })
    }

    async fn has_account(&self, account: &ServiceAccount, run: &mut Run<'_>) -> Result<bool, Error> {
        let reference = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        };
        Ok(self.get(&reference, run).await?.is_some())
    }

    async fn prepare(&self, desired: Desired, run: &mut Run<'_>) -> Result<Prepared, Error> {
        Self::prepare(self, desired, run).await
    }

    fn objects(ready: &Prepared) -> Vec<ObjectRef> {
        ready.objects()
    }

    async fn apply(&self, ready: &Prepared, previous: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        Self::apply(self, ready, previous, run).await
    }

    async fn prune(
        &self,
        owner: KustomizationUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Outcome {
        Self::prune(self, owner, inventory, keep, run).await
    }

    async fn wait(&self, objects: &[ObjectRef], run: &mut Run<'_>) -> Waited {
        Self::wait(self, objects, run).await
    }
}
