//! How the Clusters of a management cluster of Cluster API become Clusters here: what is read there is told to
//! [`Management::plan`]'s job, planned by `roadstead-hub-plan`, and carried out step by step.
//!
//! From the Secret that a step makes, a cluster comes on board as it does by every kubeconfig.

mod clusters;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use roadstead_api::{
    Cluster, ClusterApiOrigin, ConditionStatus, KindId, ManagementCluster, ManagementClusterReference,
    SecretReference,
};
use roadstead_hub_plan::{
    ManagementPlan, ManagementSituation, ManagementStep, Origin, Owner, PresentCluster, follow,
};
use roadstead_hub_store::{Filter, Part, Store, Stored};
use roadstead_kubeconfig::Access;
use roadstead_model::{Digest, KubeSystemUid, ManagedCluster, Reason, ResourceUid};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use self::clusters::{accepts, is_offered, may_move};
use crate::HubError;
use crate::address::Address;
use crate::clock::Clock;
use crate::clusters::onboard::{REST, RETRY};
use crate::clusters::{Failed, Onboarding};
use crate::context::Context;
use crate::identity::Identity;
use crate::objects::conditions::{self, READY};
use crate::objects::kubeconfigs::{KEY, KUBECONFIG_TYPE, SUFFIX, keys};
use crate::objects::{DeleteOptions, Objects, WriteOptions, status};

/// Who writes the fields that a management cluster decides: what it shows no longer goes with them.
const MANAGER: &str = "roadstead-cluster-api";
/// Of which ManagementCluster a Cluster and its Secret are.
const LABEL: &str = "fleet.roadstead.dev/management-cluster";
/// How long a management cluster is waited on for news before it is read again anyway.
pub const MANAGEMENT_READ: Duration = Duration::from_secs(30);
/// Names that a condition's message tells of each sort.
const NAMED: usize = 5;

/// What is to be done for a ManagementCluster.
#[derive(Debug)]
pub enum ManagementWatch {
    /// Nothing until then.
    Nothing(Timestamp),
    /// It is to be read.
    Read(Box<ManagementJob>),
}

/// A management cluster to be read.
#[derive(Debug)]
pub struct ManagementJob {
    /// The ManagementCluster.
    pub uid: ResourceUid,
    /// How to reach it.
    pub access: Access,
    /// The namespaces to be followed; none: all.
    pub namespaces: Vec<String>,
    reference: ManagementClusterReference,
    object: Box<ManagementCluster>,
}

/// What a step needs of the clusters themselves.
#[derive(Debug, Default)]
pub struct StepEvidence {
    /// What [`ManagementStep::Offer`] puts into the Secret.
    pub kubeconfig: Option<Zeroizing<Vec<u8>>>,
    /// Where the kubeconfig of [`ManagementStep::Move`] leads.
    pub reached: Option<KubeSystemUid>,
}

/// What was seen of a management cluster, and what came of it.
#[derive(Debug, Default)]
pub struct ManagementOutcome {
    /// How many Clusters it shows.
    pub clusters: usize,
    /// What was planned.
    pub plan: ManagementPlan,
    /// Steps that were refused, with the reason.
    pub refused: Vec<String>,
}

/// How the clusters of management clusters are followed.
pub struct Management {
    store: Store,
    clock: Arc<dyn Clock>,
    objects: Arc<Objects>,
    onboarding: Arc<Onboarding>,
}

impl Management {
    pub(crate) fn new(context: &Context, objects: &Arc<Objects>, onboarding: &Arc<Onboarding>) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            objects: Arc::clone(objects),
            onboarding: Arc::clone(onboarding),
        }
    }

    /// What is to be done for a ManagementCluster.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn plan(&self, uid: ResourceUid) -> Result<ManagementWatch, HubError> {
        let rest = ManagementWatch::Nothing(self.clock.now() + REST);
        let Some(stored) = self.store.get_by_uid(uid).await? else { return Ok(rest) };
        let object: ManagementCluster = stored.decode()?;
        // Nothing is done to its Clusters when it goes: they stay as they are.
        if stored.deletion_timestamp.is_some() || object.spec.suspend {
            return Ok(rest);
        }
        let secret = &object.spec.kube_config.secret_ref;
        let from = SecretReference { namespace: stored.namespace.clone(), name: secret.name.clone() };
        let keys = keys(secret.key.as_deref());
        let access = match self.onboarding.kubeconfig(&from, &keys).await? {
            Ok(text) => Access::read(&text, self.onboarding.allowed()).map_err(|refusal| refusal.to_string()),
            Err(why) => Err(why),
        };
        match access {
            Ok(access) => Ok(ManagementWatch::Read(Box::new(ManagementJob {
                uid,
                access,
                namespaces: object.spec.namespaces.clone(),
                reference: ManagementClusterReference { namespace: stored.namespace, name: stored.name },
                object: Box::new(object),
            }))),
            Err(why) => {
                self.set_management(uid, ConditionStatus::False, Reason::KubeConfigRefused, &why, |_| ())
                    .await?;
                Ok(rest)
            }
        }
    }

    /// What is to be done about the Clusters that a management cluster shows.
    ///
    /// # Errors
    /// [`HubError::Conflict`] where it is another cluster than before.
    pub async fn follow(
        &self,
        job: &ManagementJob,
        kube_system: KubeSystemUid,
        shown: Vec<ManagedCluster>,
    ) -> Result<ManagementPlan, HubError> {
        let ManagementClusterReference { namespace, name } = &job.reference;
        let known = job.object.status.as_ref().and_then(|status| status.kube_system_uid.as_deref());
        match known {
            Some(known) if known != kube_system.to_string() => {
                return Err(HubError::Conflict {
                    what: format!("ManagementCluster '{namespace}/{name}'"),
                    why: "its kubeconfig now leads to a different cluster (the uid of namespace kube-system differs), \
                          which does not have its Clusters; create another ManagementCluster for that one"
                        .to_owned(),
                });
            }
            Some(_) => {}
            // Before anything is made of it.
            None => {
                let why = "reading its Clusters";
                self.set_management(job.uid, ConditionStatus::Unknown, Reason::Progressing, why, |status| {
                    status.kube_system_uid = Some(kube_system.to_string());
                })
                .await?;
            }
        }
        let present = self.present_clusters(job).await?;
        Ok(follow(&ManagementSituation { shown, present, namespaces: job.namespaces.clone() }))
    }

    /// The Clusters of this hub, as a ManagementCluster sees them.
    async fn present_clusters(
        &self,
        job: &ManagementJob,
    ) -> Result<BTreeMap<String, PresentCluster>, HubError> {
        let own = &job.reference;
        let mut managing = BTreeMap::new();
        for one in self.stored(KindId::ManagementCluster, Filter::default()).await? {
            let spec = one.decode::<ManagementCluster>()?.spec;
            managing.insert((one.namespace, one.name), spec.allow_moves_to);
        }
        let labels = BTreeMap::from([(LABEL.to_owned(), own.name.clone())]);
        let filter = Filter { namespace: own.namespace.clone(), labels, ..Filter::default() };
        let mut offered: BTreeMap<String, Digest> = BTreeMap::new();
        for secret in self.stored(KindId::Secret, filter).await? {
            let value = secret.secret.as_ref().and_then(|secret| secret.expose(KEY));
            let Some(bytes) = value.and_then(|value| STANDARD.decode(value).ok().map(Zeroizing::new)) else {
                continue;
            };
            offered.insert(secret.name, Digest::of(&bytes));
        }
        let mut present = BTreeMap::new();
        for stored in self.stored(KindId::Cluster, Filter::default()).await? {
            let cluster: Cluster = stored.decode()?;
            let used = cluster.status.and_then(|status| status.kube_config);
            let origin = cluster.spec.cluster_api.map(|from| {
                let whose =
                    (from.management_cluster_ref.namespace.clone(), from.management_cluster_ref.name.clone());
                let granted = managing.get(&whose);
                let owner = match from.management_cluster_ref == *own {
                    true => Owner::This,
                    false if granted.is_some() => Owner::Other,
                    false => Owner::Gone,
                };
                let accepted =
                    may_move(&from.management_cluster_ref, granted.map_or(&[], Vec::as_slice), accepts(job));
                let management = format!("{}/{}", whose.0, whose.1);
                let ClusterApiOrigin { namespace, uid, paused, labels, .. } = from;
                Origin { owner, management, accepted, namespace, uid, paused, labels }
            });
            let seen = PresentCluster {
                origin,
                labels: stored.labels(),
                deleting: stored.deletion_timestamp.is_some(),
                used: used.and_then(|used| used.digest.parse().ok()),
                offered: offered.get(&format!("{}{SUFFIX}", stored.name)).copied(),
            };
            present.insert(stored.name, seen);
        }
        Ok(present)
    }

    async fn stored(&self, kind: KindId, filter: Filter) -> Result<Vec<Stored>, HubError> {
        let mut found = Vec::new();
        self.store.list_each(kind, &filter, Part::default(), i64::MAX, |stored| found.push(stored)).await?;
        Ok(found)
    }

    /// How to reach the cluster that a kubeconfig is of; why not, where this hub does not take it.
    ///
    /// # Errors
    /// The refusal, which quotes nothing secret.
    pub fn access(&self, kubeconfig: &[u8]) -> Result<Access, String> {
        Access::read(kubeconfig, self.onboarding.allowed()).map_err(|refusal| refusal.to_string())
    }

    /// The `kube-system` uid by which the Cluster `name` is known; none where nobody has reached it yet.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn recorded_identity(&self, name: &str) -> Result<Option<KubeSystemUid>, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(cluster) = tx.get(KindId::Cluster, "", name).await? else { return Ok(None) };
        Ok(tx.cluster_identity(cluster.uid.into()).await?)
    }

    /// Carries a step out.
    ///
    /// # Errors
    /// [`HubError::Conflict`] where what it would change is not of this management cluster, or a move does not lead to the
    /// same cluster; else as [`Objects::apply`] and [`Objects::delete`].
    pub async fn carry_out(
        &self,
        job: &ManagementJob,
        step: &ManagementStep,
        evidence: StepEvidence,
    ) -> Result<(), HubError> {
        let whose = &job.reference.name;
        match step {
            ManagementStep::Apply(shown) => {
                let present = self.own_or_none(job, shown).await?;
                self.apply_shown(job, shown, present).await?;
                tracing::info!(
                    cluster = shown.name,
                    management = whose,
                    "a Cluster was taken over from a management cluster"
                );
            }
            ManagementStep::Move(shown) => {
                let known = self.recorded_identity(&shown.name).await?;
                if known.is_some() && known != evidence.reached {
                    return Err(conflict(
                        &format!("Cluster '{}'", shown.name),
                        "it does not move here: its kubeconfig here leads to a different cluster than the registered one \
                         (the uid of namespace kube-system differs)",
                    ));
                }
                let present = self.movable(job, shown).await?;
                self.apply_shown(job, shown, Some(present)).await?;
                tracing::info!(
                    cluster = shown.name,
                    management = whose,
                    "a Cluster has moved to this management cluster"
                );
            }
            ManagementStep::Offer { name, .. } => {
                let Some(kubeconfig) = evidence.kubeconfig else { return Ok(()) };
                self.offer_kubeconfig(job, name, &kubeconfig).await?;
            }
            ManagementStep::Retire { name, why } => {
                self.retire_managed(job, name).await?;
                tracing::info!(cluster = name, management = whose, why, "retiring a Cluster");
            }
        }
        Ok(())
    }

    /// Puts a kubeconfig into the Secret of a Cluster of this management cluster; never into one that somebody else made.
    async fn offer_kubeconfig(
        &self,
        job: &ManagementJob,
        name: &str,
        kubeconfig: &[u8],
    ) -> Result<(), HubError> {
        let ManagementClusterReference { namespace, name: whose } = &job.reference;
        if self.managed(job, name).await?.is_none() {
            return Err(conflict(
                &format!("Cluster '{name}'"),
                "it does not belong to this management cluster: its kubeconfig is not taken from here",
            ));
        }
        let secret = address(KindId::Secret, namespace, &format!("{name}{SUFFIX}"));
        let present = self.store.get(KindId::Secret, namespace, &secret.name).await?;
        if present.as_ref().is_some_and(|present| !is_offered(present, job)) {
            return Err(conflict(
                &format!("Secret {namespace}/{}", secret.name),
                "it was not created for this Cluster, so the kubeconfig is not stored there; delete or rename it",
            ));
        }
        let mut config = json!({
            "apiVersion": "v1", "kind": "Secret", "type": KUBECONFIG_TYPE,
            "metadata": { "name": secret.name, "namespace": namespace,
                "labels": { LABEL: whose, "cluster.x-k8s.io/cluster-name": name } },
            "data": { KEY: STANDARD.encode(kubeconfig) },
        });
        // Not another one that was put in its place since it was read.
        if let Some(present) = present {
            config["metadata"]["uid"] = json!(present.uid.to_string());
        }
        self.apply_managed(&secret, config).await
    }

    /// Deletes a Cluster of this management cluster, and the Secret that was made for it.
    async fn retire_managed(&self, job: &ManagementJob, name: &str) -> Result<(), HubError> {
        let Some(cluster) = self.managed(job, name).await? else { return Ok(()) };
        let namespace = &job.reference.namespace;
        let secret = self.store.get(KindId::Secret, namespace, &format!("{name}{SUFFIX}")).await?;
        // The Secret first: the Cluster says that there is still something to do.
        for stored in secret.into_iter().filter(|secret| is_offered(secret, job)).chain([cluster]) {
            let options = DeleteOptions { uid: Some(stored.uid.to_string()), ..DeleteOptions::default() };
            let address = address(stored.kind, &stored.namespace, &stored.name);
            match self.objects.delete(&Identity::hub(), &address, &options).await {
                Ok(_) | Err(HubError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The Cluster `name`, if it comes from this management cluster.
    async fn managed(&self, job: &ManagementJob, name: &str) -> Result<Option<Stored>, HubError> {
        let Some(stored) = self.store.get(KindId::Cluster, "", name).await? else { return Ok(None) };
        let origin = stored.decode::<Cluster>()?.spec.cluster_api;
        Ok(origin.is_some_and(|origin| origin.management_cluster_ref == job.reference).then_some(stored))
    }

    async fn apply_managed(&self, address: &Address, config: Value) -> Result<(), HubError> {
        let options = WriteOptions { manager: MANAGER.to_owned(), ..WriteOptions::default() };
        self.objects.apply(&Identity::hub(), address, config, true, options).await.map(drop)
    }

    /// Takes down what came of reading a management cluster. Says when the next pass is due where that is not to be soon.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn record(
        &self,
        job: &ManagementJob,
        outcome: Result<ManagementOutcome, Failed>,
    ) -> Result<Option<Timestamp>, HubError> {
        let now = self.clock.now();
        match outcome {
            Ok(outcome) => {
                let message = told(&outcome);
                let clusters = u32::try_from(outcome.clusters).ok();
                self.set_management(job.uid, ConditionStatus::True, Reason::Succeeded, &message, |status| {
                    status.clusters = clusters;
                })
                .await?;
                Ok(None)
            }
            Err(Failed { reason, why, passing }) => {
                self.set_management(job.uid, ConditionStatus::False, reason, &why, |_| ()).await?;
                Ok(Some(now + if passing { RETRY } else { REST }))
            }
        }
    }

    async fn set_management(
        &self,
        uid: ResourceUid,
        is: ConditionStatus,
        reason: Reason,
        message: &str,
        change: impl FnOnce(&mut roadstead_api::ManagementClusterStatus) + Send,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(uid).await? else { return Ok(()) };
        let written = status::write::<ManagementCluster>(&mut tx, &mut stored, now, |status, generation| {
            change(status);
            status.observed_generation = Some(generation);
            conditions::set(&mut status.conditions, READY, is, reason, message, generation, now);
        });
        if written.await?.is_none() {
            return Ok(());
        }
        tx.commit().await?;
        Ok(())
    }
}

fn conflict(what: &str, why: &str) -> HubError {
    HubError::Conflict { what: what.to_owned(), why: why.to_owned() }
}

fn address(kind: KindId, namespace: &str, name: &str) -> Address {
    let version = kind.get().storage_version();
    Address { kind, version, namespace: namespace.to_owned(), name: name.to_owned() }
}

/// What a condition says of the Clusters that a management cluster shows.
fn told(outcome: &ManagementOutcome) -> String {
    let mut said = vec![format!("it has {} Clusters", outcome.clusters)];
    let plan = &outcome.plan;
    if let Some(names) = some_of(&plan.waiting, ", ") {
        let count = plan.waiting.len();
        said.push(format!("{count} without a control plane or a kubeconfig yet: {names}"));
    }
    let refused: Vec<String> = plan.refused.iter().chain(&outcome.refused).cloned().collect();
    if let Some(whys) = some_of(&refused, "; ") {
        said.push(format!("{} ignored: {whys}", refused.len()));
    }
    said.join("; ")
}

fn some_of(all: &[String], between: &str) -> Option<String> {
    let named = all.get(..all.len().min(NAMED)).filter(|named| !named.is_empty())?.join(between);
    let more = all.len().saturating_sub(NAMED);
    Some(if more > 0 { format!("{named} and {more} more") } else { named })
}
