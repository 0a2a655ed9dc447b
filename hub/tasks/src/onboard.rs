//! Brings clusters on board by their kubeconfigs: reaches each, asks the hub's core whether it may, and installs the agent.

use jiff::Timestamp;
use roadstead_hub_core::clusters::{Failed, OnboardingJob, OnboardingPlan};
use roadstead_hub_core::{Hub, HubError};
use roadstead_model::{Queue, Reason, ResourceUid, chain};
use roadstead_onboard::{Cluster, OnboardError};
use roadstead_outbound::Purpose;

use crate::controllers::Controller;

/// Brings clusters on board.
pub(crate) struct Clusters;

impl Controller for Clusters {
    const QUEUE: Queue = Queue::Cluster;
    // One that does not answer holds its place for up to half a minute.
    const CONCURRENCY: usize = 32;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        match hub.onboarding.plan(uid).await? {
            OnboardingPlan::Nothing(next) => Ok(next),
            OnboardingPlan::Reach(job) => {
                let outcome = reach(hub, &job).await;
                hub.onboarding.record(&job, outcome).await
            }
        }
    }
}

/// Says whether the agent was installed: not where it has joined already.
async fn reach(hub: &Hub, job: &OnboardingJob) -> Result<bool, Failed> {
    let cluster =
        Cluster::new(&job.access, &hub.way_out(Purpose::Clusters)).map_err(|error| failed(&error))?;
    let identity = cluster.identify().await.map_err(|error| failed(&error))?;
    let objects = hub.onboarding.admit(job, identity.kube_system).await?;
    for object in &objects {
        cluster.apply(object).await.map_err(|error| failed(&error))?;
    }
    Ok(!objects.is_empty())
}

pub(crate) fn failed(error: &OnboardError) -> Failed {
    let reason = match error {
        OnboardError::Refused(_) | OnboardError::Unusable(_) => Reason::KubeConfigRefused,
        OnboardError::Unreachable { .. } => Reason::ClusterUnreachable,
        OnboardError::Answer { .. } | OnboardError::Unplaced(_) => Reason::InstallationFailed,
    };
    Failed { reason, why: chain(error), passing: error.is_passing() }
}
