//! What a new object is given that says nothing itself, by its namespace or by the hub.

use roadstead_api::{KindId, PipelineRole};
use roadstead_hub_store::{Stored, Tx};
use serde_json::{Value, json};

use crate::HubError;
use crate::address::Address;
use crate::objects::Objects;

/// On a namespace of the hub: the Cluster of what deploys from there and names none.
const DEFAULT_CLUSTER: &str = "fleet.roadstead.dev/default-cluster";

impl Objects {
    /// Has an applier that names no cluster name one: that which it named `before`, or where it is new, the default. So it stays where it is
    /// when the default changes, and when somebody replaces it by what Git has: nothing moves from one cluster to another by itself.
    pub(super) async fn choose_cluster(
        &self,
        tx: &mut Tx,
        address: &Address,
        before: Option<&Stored>,
        object: &mut Value,
    ) -> Result<(), HubError> {
        let named = |object: &Value, field: &str| !object["spec"][field].is_null();
        if address.kind.get().role != PipelineRole::Applier
            || !object["spec"].is_object()
            || named(object, "clusterRef")
            || named(object, "kubeConfig")
        {
            return Ok(());
        }
        let Some(default) = self.default_cluster(tx, &address.namespace).await? else { return Ok(()) };
        let stays = before.and_then(|before| before.object["spec"]["clusterRef"]["name"].as_str());
        object["spec"]["clusterRef"] = json!({ "name": stays.unwrap_or(&default) });
        Ok(())
    }

    /// The cluster of what deploys from a namespace of the hub and names none, if there is one.
    async fn default_cluster(&self, tx: &mut Tx, namespace: &str) -> Result<Option<String>, HubError> {
        let found = tx.get(KindId::Namespace, "", namespace).await?;
        let annotations = found.as_ref().map(|namespace| &namespace.object["metadata"]["annotations"]);
        let own = annotations.and_then(|annotations| annotations[DEFAULT_CLUSTER].as_str());
        let named = own.or(self.default_cluster.as_deref()).filter(|name| !name.is_empty());
        Ok(named.map(str::to_owned))
    }
}
