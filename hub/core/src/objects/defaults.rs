//! What an object is given that says nothing itself, by its namespace or by the hub.

use roadstead_api::{KindId, PipelineRole, annotated};
use roadstead_hub_store::{Stored, Tx};
use serde_json::{Value, json};

use crate::HubError;
use crate::address::Address;
use crate::identity::Identity;
use crate::objects::Objects;

/// On a namespace of the hub: the Cluster of what deploys from there and names none.
const DEFAULT_CLUSTER: &str = "fleet.roadstead.dev/default-cluster";

/// Has a Silence say who wrote it: whoever made it, or changed more than that. What it says of that itself does not count.
fn note_author(who: &Identity, before: Option<&Stored>, object: &mut Value) {
    let without = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("author");
        }
        spec
    };
    let same = before.filter(|before| without(&before.object) == without(object));
    let author =
        same.and_then(|before| before.object["spec"]["author"].as_str()).unwrap_or(&who.username).to_owned();
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.insert("author".to_owned(), author.into());
    }
}

/// The cluster that an applier's annotation chooses: where its spec names none, or still names that which the annotation chose before. What
/// is wrong with an annotation is said where it is checked.
fn annotated_cluster(before: Option<&Stored>, object: &Value) -> Option<String> {
    let annotated = |object: &Value| annotated::cluster(object).ok().flatten().map(str::to_owned);
    let named = |object: &Value| object["spec"]["clusterRef"]["name"].as_str().map(str::to_owned);
    let wanted = annotated(object)?;
    let given = before.map(|before| &before.object).filter(|before| annotated(before) == named(before));
    let follows = given.is_some_and(|given| named(given) == named(object));
    (follows || object["spec"]["clusterRef"].is_null()).then_some(wanted)
}

impl Objects {
    /// Completes an object that is written: gives it what it does not say itself, or cannot.
    pub(super) async fn complete(
        &self,
        tx: &mut Tx,
        who: &Identity,
        address: &Address,
        before: Option<&Stored>,
        object: &mut Value,
    ) -> Result<(), HubError> {
        if address.kind == KindId::Silence {
            note_author(who, before, object);
        }
        self.choose_cluster(tx, address, before, object).await
    }

    /// Has an applier that names no cluster name one: that of its annotation, which it follows, or that which it named `before`, or where it is
    /// new, the default. So it stays where it is when the default changes, and when somebody replaces it by what Git has: nothing moves from
    /// one cluster to another by itself.
    async fn choose_cluster(
        &self,
        tx: &mut Tx,
        address: &Address,
        before: Option<&Stored>,
        object: &mut Value,
    ) -> Result<(), HubError> {
        let named = |object: &Value, field: &str| !object["spec"][field].is_null();
        if address.kind.get().role != PipelineRole::Applier
            || !object["spec"].is_object()
            || named(object, "kubeConfig")
        {
            return Ok(());
        }
        if let Some(name) = annotated_cluster(before, object) {
            object["spec"]["clusterRef"] = json!({ "name": name });
            return Ok(());
        }
        if named(object, "clusterRef") {
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
