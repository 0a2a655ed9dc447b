//! How a cluster goes: with `deletionPolicy: Prune` its Cluster stays until what Kustomizations own there is pruned; by
//! `Abandon`, also where that is set later, it goes at once and everything stays.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Cluster, ClusterDeletionPolicy, ConditionStatus, Kustomization};
use roadstead_hub_store::Stored;
use roadstead_model::{ClusterUid, Reason};

use crate::{Hub, HubError, conditions, managers, triggers};

/// The type of the condition that says what a deletion waits for.
const RETIRED: &str = "Retired";

/// Kustomizations that a message names.
const NAMED: usize = 5;

/// How often it is looked whether all is pruned.
const RECHECK: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(3600);

impl Hub {
    /// A step of a Cluster's deletion. Says when to look again.
    pub(crate) async fn retire(&self, stored: &Stored, cluster: &Cluster) -> Result<Timestamp, HubError> {
        let now = self.now();
        if !stored.finalizers().any(|finalizer| finalizer == triggers::FINALIZER) {
            return Ok(now + REST);
        }
        let waits = match cluster.spec.deletion_policy {
            Some(ClusterDeletionPolicy::Prune) => self.still_pruned(stored.uid.into()).await?,
            Some(ClusterDeletionPolicy::Abandon) | None => Vec::new(),
        };
        let mut tx = self.store.begin().await?;
        let Some(mut present) = tx.get_by_uid(stored.uid).await? else { return Ok(now + REST) };
        if present.generation != stored.generation {
            return Ok(now);
        }
        if waits.is_empty() {
            triggers::let_go(&mut tx, &present, now).await?;
            tx.commit().await?;
            tracing::info!(cluster = stored.name, "cluster retired");
            return Ok(now + REST);
        }
        let mut status = cluster.status.clone().unwrap_or_default();
        let mut names = waits[..waits.len().min(NAMED)].join(", ");
        if waits.len() > NAMED {
            names = format!("{names} and {} more", waits.len() - NAMED);
        }
        let message = format!(
            "waiting until these Kustomizations are pruned: {names}. Where the cluster is gone for good, set \
             spec.deletionPolicy to Abandon"
        );
        let (reason, generation) = (Reason::Progressing, present.generation);
        conditions::set(
            &mut status.conditions,
            RETIRED,
            ConditionStatus::False,
            reason,
            &message,
            generation,
            now,
        );
        managers::set_status(&mut present, &status, now)?;
        tx.put(present).await?;
        tx.commit().await?;
        Ok(now + RECHECK)
    }

    /// The Kustomizations that are still to be pruned from a cluster.
    async fn still_pruned(&self, cluster: ClusterUid) -> Result<Vec<String>, HubError> {
        let mut names = Vec::new();
        for owner in self.store.kustomizations_with_inventory(cluster).await? {
            let Some(stored) = self.store.get_by_uid(owner.into()).await? else { continue };
            let spec = stored.decode::<Kustomization>()?.spec;
            if stored.deletion_timestamp.is_some() || (spec.prune && !spec.suspend) {
                names.push(format!("{}/{}", stored.namespace, stored.name));
            }
        }
        Ok(names)
    }
}
