//! A Cluster as a management cluster shows it: which one of the hub may become it, and what is written then.

use std::collections::BTreeMap;

use roadstead_api::{
    Cluster, ClusterApiOrigin, KindId, ManagementCluster, ManagementClusterPeer, ManagementClusterReference,
};
use roadstead_hub_plan::carried_labels;
use roadstead_hub_store::Stored;
use roadstead_model::ManagedCluster;
use serde_json::{Value, json};

use super::{LABEL, MANAGER, ManagementJob, address, conflict};
use crate::HubError;
use crate::clusters::Management;
use crate::identity::Identity;
use crate::objects::apply::Wanted;
use crate::objects::kubeconfigs::SUFFIX;
use crate::objects::{WriteOptions, managers};

impl Management {
    /// The Cluster that is shown, where it comes from this management cluster; none where there is none. Any other one came on
    /// board since its name was seen to be free, which may be hours ago: the management cluster's answers are waited for.
    pub(super) async fn own_or_none(
        &self,
        job: &ManagementJob,
        shown: &ManagedCluster,
    ) -> Result<Option<Stored>, HubError> {
        let Some(present) = self.store.get(KindId::Cluster, "", &shown.name).await? else { return Ok(None) };
        let why = match present.decode::<Cluster>()?.spec.cluster_api {
            Some(origin) if origin.management_cluster_ref == job.reference => return Ok(Some(present)),
            Some(_) => "another management cluster has onboarded it in the meantime",
            None => "it is already onboarded, and not by a management cluster",
        };
        Err(conflict(&format!("Cluster '{}'", shown.name), why))
    }

    /// The Cluster that is to move here, if it still may: what was planned may lie hours back, since the management cluster's own
    /// answers are waited for in between.
    pub(super) async fn movable(
        &self,
        job: &ManagementJob,
        shown: &ManagedCluster,
    ) -> Result<Stored, HubError> {
        let refused = |why: &str| conflict(&format!("Cluster '{}'", shown.name), why);
        let gone = || refused("it was deleted in the meantime");
        let present = self.store.get(KindId::Cluster, "", &shown.name).await?.ok_or_else(gone)?;
        let origin = present.decode::<Cluster>()?.spec.cluster_api.ok_or_else(gone)?;
        let from = origin.management_cluster_ref;
        let to = self.store.get_by_uid(job.uid).await?.ok_or_else(gone)?.decode::<ManagementCluster>()?;
        let from_there = self.store.get(KindId::ManagementCluster, &from.namespace, &from.name).await?;
        let granted = match from_there {
            Some(stored) => stored.decode::<ManagementCluster>()?.spec.allow_moves_to,
            None => Vec::new(),
        };
        let accepted = may_move(&from, &granted, (&job.reference, &to.spec.accept_moves_from));
        if origin.namespace != shown.namespace || !accepted {
            return Err(refused("it is no longer allowed to move here"));
        }
        Ok(present)
    }

    /// Makes a Cluster as it is shown, or makes it what is shown: `present` is what it was made sure of, and nothing else that
    /// has the name by now is touched.
    pub(super) async fn apply_shown(
        &self,
        job: &ManagementJob,
        shown: &ManagedCluster,
        present: Option<Stored>,
    ) -> Result<(), HubError> {
        let address = address(KindId::Cluster, "", &shown.name);
        let reserved = self.onboarding.may_make(&shown.name, &job.reference.namespace);
        if let (None, Err(reserved)) = (&present, reserved) {
            let why = format!("its name is reserved for another namespace (--reserve-cluster {reserved})");
            return Err(conflict(&format!("Cluster '{}'", shown.name), &why));
        }
        let origin = |of: &Stored| of.object.pointer("/spec/clusterApi/managementClusterRef").cloned();
        let before = present.as_ref().map(|present| (present.uid, origin(present)));
        let config = managed_cluster(job, shown, present)?;
        let guard = |now: Option<&Stored>, _: &Stored| {
            if now.map(|now| (now.uid, origin(now))) == before {
                return Ok(());
            }
            let why = "another cluster was onboarded under this name in the meantime";
            Err(conflict(&format!("Cluster '{}'", shown.name), why))
        };
        let options = WriteOptions { manager: MANAGER.to_owned(), ..WriteOptions::default() };
        let wanted = Wanted { config, force: true, maker: None, exact: false };
        self.objects.apply_guarded(&Identity::hub(), &address, wanted, options, guard).await.map(drop)
    }
}

/// What is wanted of a Cluster. What its spec says besides stays as it is, once it is there.
fn managed_cluster(
    job: &ManagementJob,
    shown: &ManagedCluster,
    present: Option<Stored>,
) -> Result<Value, HubError> {
    let ManagementClusterReference { namespace, name: whose } = &job.reference;
    let (policy, agent) = match present {
        Some(stored) => {
            let spec = stored.decode::<Cluster>()?.spec;
            (spec.deletion_policy, spec.agent)
        }
        None => job.object.spec.template.clone().map(|of| (of.deletion_policy, of.agent)).unwrap_or_default(),
    };
    let mut labels: BTreeMap<&str, &str> =
        carried_labels(shown).map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let origin = ClusterApiOrigin {
        management_cluster_ref: job.reference.clone(),
        namespace: shown.namespace.clone(),
        uid: shown.uid.clone(),
        paused: shown.paused,
        labels: labels.keys().map(|&key| key.to_owned()).collect(),
    };
    labels.insert(LABEL, whose);
    let mut config = json!({
        "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster",
        "metadata": { "name": shown.name, "labels": labels },
        "spec": {
            "kubeConfig": { "secretRef": { "namespace": namespace, "name": format!("{}{SUFFIX}", shown.name) } },
            "clusterApi": origin,
        },
    });
    if let Some(policy) = policy {
        config["spec"]["deletionPolicy"] = json!(policy);
    }
    if let Some(agent) = agent {
        config["spec"]["agent"] = json!(agent);
    }
    Ok(config)
}

/// Whether Clusters of `from`, which may go to the namespaces that `granted` names, may move to the ManagementCluster `to`, which accepts those of `accepted`.
pub(super) fn may_move(
    from: &ManagementClusterReference,
    granted: &[ManagementClusterPeer],
    (to, accepted): (&ManagementClusterReference, &[ManagementClusterPeer]),
) -> bool {
    let names = |peers: &[ManagementClusterPeer], home: &str, wanted: &ManagementClusterReference| {
        peers.iter().any(|peer| {
            peer.name == wanted.name && peer.namespace.as_deref().unwrap_or(home) == wanted.namespace
        })
    };
    names(accepted, &to.namespace, from)
        && (from.namespace == to.namespace || names(granted, &from.namespace, to))
}

/// A job's ManagementCluster, with those whose Clusters it accepts.
pub(super) fn accepts(job: &ManagementJob) -> (&ManagementClusterReference, &[ManagementClusterPeer]) {
    (&job.reference, &job.object.spec.accept_moves_from)
}

/// Whether a kubeconfig's Secret was made for this management cluster, or for one whose Clusters may move to it.
pub(super) fn is_offered(secret: &Stored, job: &ManagementJob) -> bool {
    let labels = secret.labels();
    let Some(whose) = labels.get(LABEL) else { return false };
    // The label alone says little: it is also on what was copied.
    let made = managers::entries(&secret.object)
        .and_then(Value::as_array)
        .is_some_and(|entries| entries.iter().any(|entry| entry["manager"] == MANAGER));
    let from = ManagementClusterReference { namespace: secret.namespace.clone(), name: whose.clone() };
    made && (from == job.reference || may_move(&from, &[], accepts(job)))
}
