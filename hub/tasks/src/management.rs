//! Follows management clusters of Cluster API: reads what each shows, has the hub's core do what follows from that, and
//! waits for news.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_core::clusters::{
    Failed, MANAGEMENT_READ, ManagementJob, ManagementOutcome, ManagementWatch, StepEvidence,
};
use roadstead_hub_core::{Hub, HubError, ManagementStep};
use roadstead_model::{Digest, ManagedCluster, Queue, Reason, ResourceUid, chain};
use roadstead_onboard::{Cluster, OnboardError, Shown};
use roadstead_outbound::Purpose;
use tokio_util::sync::CancellationToken;

use crate::controllers::Controller;
use crate::onboard::failed;

/// Changes come in bursts: what comes within so long is read at once.
const BURST: Duration = Duration::from_secs(1);

/// A Secret's version, and the digest of the kubeconfig in it. A kubeconfig is read once for each version.
type Digests = BTreeMap<(String, String), (String, Digest)>;

/// Follows management clusters.
pub(crate) struct ManagementClusters {
    stop: CancellationToken,
    known: Mutex<BTreeMap<ResourceUid, Digests>>,
}

impl ManagementClusters {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { stop, known: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<ResourceUid, Digests>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for ManagementClusters {
    const QUEUE: Queue = Queue::ManagementCluster;
    // Each is processed all the time: it mostly waits for news.
    const CONCURRENCY: usize = 64;
    // They are all under way whenever a process ends, whatever ended it; reading what is there takes moments.
    const DANGEROUS: Duration = Duration::from_secs(5);

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let job = match hub.management.plan(uid).await? {
            ManagementWatch::Nothing(next) => {
                self.known().remove(&uid);
                return Ok(next);
            }
            ManagementWatch::Read(job) => job,
        };
        let cluster = match Cluster::new(&job.access, &hub.way_out(Purpose::Clusters)) {
            Ok(cluster) => cluster,
            Err(error) => {
                let later = hub.management.record(&job, Err(failed(&error))).await?;
                return Ok(later.unwrap_or_else(|| hub.now()));
            }
        };
        let (outcome, shown) = match self.follow(hub, &job, &cluster).await {
            Ok((outcome, shown)) => (Ok(outcome), shown),
            Err(why) => (Err(why), Shown::default()),
        };
        // What was done may be the first of several steps: one that makes room for another.
        let done = outcome.as_ref().is_ok_and(|outcome| outcome.plan.steps.len() > outcome.refused.len());
        if let Some(later) = hub.management.record(&job, outcome).await? {
            return Ok(later);
        }
        if !done {
            tokio::select! {
                () = cluster.changed(&shown, MANAGEMENT_READ) => {}
                () = self.stop.cancelled() => {}
            }
        }
        Ok(hub.now() + BURST)
    }
}

/// Why it is not known what a step needs.
enum Unknown {
    /// The management cluster did not say.
    ManagementCluster(OnboardError),
    /// That cluster cannot be asked.
    Cluster(HubError),
}

/// What a step needs of the clusters themselves.
async fn evidence(hub: &Hub, cluster: &Cluster, step: &ManagementStep) -> Result<StepEvidence, Unknown> {
    let (namespace, name) = match step {
        ManagementStep::Apply(_) | ManagementStep::Retire { .. } => return Ok(StepEvidence::default()),
        ManagementStep::Move(shown) => (&shown.namespace, &shown.name),
        ManagementStep::Offer { namespace, name } => (namespace, name),
    };
    let kubeconfig = cluster.managed_kubeconfig(namespace, name).await.map_err(Unknown::ManagementCluster)?;
    if matches!(step, ManagementStep::Offer { .. }) {
        return Ok(StepEvidence { kubeconfig: Some(kubeconfig), reached: None });
    }
    let known = hub.management.recorded_identity(name).await.map_err(Unknown::Cluster)?;
    if known.is_none() {
        return Ok(StepEvidence::default());
    }
    let refuse = |why: String| {
        Unknown::Cluster(HubError::Conflict {
            what: format!("Cluster '{name}'"),
            why: format!(
                "it does not move here until its kubeconfig here is known to lead to the same cluster: {why}"
            ),
        })
    };
    let access = hub.management.access(&kubeconfig).map_err(refuse)?;
    let target =
        Cluster::new(&access, &hub.way_out(Purpose::Clusters)).map_err(|error| refuse(chain(&error)))?;
    let identity = target.identify().await.map_err(|error| refuse(chain(&error)))?;
    Ok(StepEvidence { kubeconfig: None, reached: Some(identity.kube_system) })
}

impl ManagementClusters {
    async fn follow(
        &self,
        hub: &Hub,
        job: &ManagementJob,
        cluster: &Cluster,
    ) -> Result<(ManagementOutcome, Shown), Failed> {
        let unread = |error: OnboardError| match failed(&error) {
            failed if failed.reason == Reason::InstallationFailed => {
                Failed { reason: Reason::ClusterApiFailed, ..failed }
            }
            failed => failed,
        };
        let identity = cluster.identify().await.map_err(unread)?;
        let shown = cluster.managed(&job.namespaces).await.map_err(unread)?;
        let digests = self.digests(job.uid, cluster, &shown).await.map_err(unread)?;
        let clusters: Vec<ManagedCluster> = shown
            .clusters
            .iter()
            .map(|one| {
                let key = (one.namespace.clone(), one.name.clone());
                let kubeconfig = digests.get(&key).map(|(_, digest)| *digest);
                ManagedCluster { kubeconfig, ..one.clone() }
            })
            .collect();
        let mut outcome = ManagementOutcome { clusters: clusters.len(), ..ManagementOutcome::default() };
        outcome.plan = hub.management.follow(job, identity.kube_system, clusters).await?;
        let mut left_alone = BTreeSet::new();
        for step in &outcome.plan.steps {
            let name = match step {
                ManagementStep::Apply(shown) | ManagementStep::Move(shown) => &shown.name,
                ManagementStep::Offer { name, .. } | ManagementStep::Retire { name, .. } => name,
            };
            // What builds on a step that was refused.
            if left_alone.contains(name) {
                continue;
            }
            let done = match evidence(hub, cluster, step).await {
                Ok(evidence) => hub.management.carry_out(job, step, evidence).await,
                Err(Unknown::ManagementCluster(error)) => return Err(unread(error)),
                Err(Unknown::Cluster(why)) => Err(why),
            };
            match done {
                Ok(()) => {}
                // One that cannot be here keeps no other one away.
                Err(error @ (HubError::Invalid { .. } | HubError::Conflict { .. })) => {
                    left_alone.insert(name.clone());
                    outcome.refused.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((outcome, shown))
    }

    /// The digests of the kubeconfigs that are shown; reads those that are new.
    async fn digests(
        &self,
        uid: ResourceUid,
        cluster: &Cluster,
        shown: &Shown,
    ) -> Result<Digests, OnboardError> {
        let known = self.known().get(&uid).cloned().unwrap_or_default();
        let mut digests = Digests::new();
        for (whose, version) in &shown.kubeconfigs {
            let digest = match known.get(whose) {
                Some((same, digest)) if same == version => *digest,
                _ => match cluster.managed_kubeconfig(&whose.0, &whose.1).await {
                    Ok(text) => Digest::of(&text),
                    // Gone meanwhile, or without a kubeconfig yet: as if it were not there.
                    Err(OnboardError::Answer { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            digests.insert(whose.clone(), (version.clone(), digest));
        }
        self.known().insert(uid, digests.clone());
        Ok(digests)
    }
}
