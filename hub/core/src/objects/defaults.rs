//! What a new object is given that says nothing itself, by its namespace or by the hub.

use roadstead_api::{KindId, PipelineRole};
use roadstead_hub_store::{Stored, Tx};
use serde_json::json;

use crate::HubError;
use crate::objects::Objects;

/// On a namespace of the hub: the Cluster of what deploys from there and names none.
const DEFAULT_CLUSTER: &str = "fleet.roadstead.dev/default-cluster";

impl Objects {
    /// Has a new applier that names no cluster name the default one. It stays with that when the default changes: nothing moves from
    /// one cluster to another by itself.
    pub(super) async fn choose_cluster(&self, tx: &mut Tx, stored: &mut Stored) -> Result<(), HubError> {
        let spec = &stored.object["spec"];
        if stored.kind.get().role != PipelineRole::Applier
            || !spec["clusterRef"].is_null()
            || !spec["kubeConfig"].is_null()
        {
            return Ok(());
        }
        let namespace = tx.get(KindId::Namespace, "", &stored.namespace).await?;
        let annotations = namespace.as_ref().map(|namespace| &namespace.object["metadata"]["annotations"]);
        let own = annotations.and_then(|annotations| annotations[DEFAULT_CLUSTER].as_str());
        if let Some(cluster) = own.or(self.default_cluster.as_deref()).filter(|name| !name.is_empty()) {
            stored.object["spec"]["clusterRef"] = json!({ "name": cluster });
        }
        Ok(())
    }
}
