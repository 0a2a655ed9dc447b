//! The stream of changes of what the fleet views show, each told to those who may see it when it is told.

use roadstead_api::{KINDS, KindId};
use roadstead_hub_store::{Event, Store, Stored, Watcher};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::HubError;
use crate::identity::Identity;
use crate::objects::reads::watch_error;
use crate::views::fleet::{ReadyState, ready_state};
use crate::views::{Views, visible};

/// A change of an object of the hub, as the stream of changes tells it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetChange {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    #[serde(rename = "type")]
    pub type_: &'static str,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object; empty for Clusters.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Its version: the stream can be taken up behind it.
    pub resource_version: String,
    /// The Cluster that it is, or is for; empty for sources.
    pub cluster: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// What its Ready condition says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyState>,
}

impl Views {
    /// The changes of what the fleet views show: from a version on, or (none) from now on.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where `who` may watch nothing of it. [`HubError::Gone`] where that version is no longer kept.
    pub async fn changes(&self, who: &Identity, from: Option<i64>) -> Result<FleetWatch, HubError> {
        // Before the first look, so that no change is missed behind it.
        let rights = who.changes_of_rights();
        if !sees_something(who) {
            who.authorize("watch", KindId::Kustomization.get(), "", "", "")?;
        }
        let from = match from {
            Some(version) => version,
            None => self.store.last_version().await?,
        };
        let watcher = self.store.watch_all(from).await.map_err(watch_error)?;
        Ok(FleetWatch { watcher, store: self.store.clone(), who: who.clone(), rights, read: None })
    }
}

/// Whether the stream tells the changes of a kind.
fn is_followed(kind: KindId) -> bool {
    kind.is_in_pipeline() || kind == KindId::Cluster
}

/// Whether the stream may tell somebody anything.
fn sees_something(who: &Identity) -> bool {
    let mut followed = KINDS.iter().map(|kind| kind.id).filter(|kind| is_followed(*kind));
    followed.any(|kind| visible::may_watch_some(who, kind))
}

/// The changes of what the fleet views show.
pub struct FleetWatch {
    watcher: Watcher,
    store: Store,
    who: Identity,
    /// Tells when what `who` may see has changed.
    rights: Option<watch::Receiver<u64>>,
    /// Read and not yet handed out.
    read: Option<Event>,
}

/// Ends once what somebody may see has changed.
async fn changed(rights: &mut Option<watch::Receiver<u64>>) {
    let is_over = match rights {
        Some(rights) => rights.changed().await.is_err(),
        None => true,
    };
    if is_over {
        std::future::pending::<()>().await;
    }
}

impl FleetWatch {
    /// The next change that whoever watches may see, by what they may do when it is told. May be dropped and called again without
    /// missing any.
    ///
    /// # Errors
    /// [`HubError::Gone`] where what was not read yet is no longer kept; [`HubError::Forbidden`] once whoever watches may see
    /// nothing any longer, or be taken for this one no longer.
    pub async fn next(&mut self) -> Result<FleetChange, HubError> {
        loop {
            let event = match &self.read {
                Some(event) => event.clone(),
                None => tokio::select! {
                    biased;
                    () = changed(&mut self.rights) => {
                        if !sees_something(&self.who) {
                            let why = "the right to watch the fleet was taken away";
                            return Err(HubError::Forbidden(why.to_owned()));
                        }
                        continue;
                    }
                    () = self.who.until_not_impersonated() => {
                        let why = "the right to impersonate was taken away";
                        return Err(HubError::Forbidden(why.to_owned()));
                    }
                    event = self.watcher.next() => event.map_err(watch_error)?,
                },
            };
            let object = event.object();
            let is_seen = is_followed(object.kind)
                && visible::may_watch(&self.who, object.kind, &object.namespace, &object.name);
            if !is_seen {
                self.read = None;
                continue;
            }
            self.read = Some(event.clone());
            let cluster = self.cluster_of(event.object()).await?;
            self.read = None;
            return Ok(change(&event, cluster));
        }
    }

    /// The Cluster that an object is, or is for.
    async fn cluster_of(&self, stored: &Stored) -> Result<String, HubError> {
        if stored.kind == KindId::Cluster {
            return Ok(stored.name.clone());
        }
        let spec = &stored.object["spec"];
        let Some(secret) = spec.pointer("/kubeConfig/secretRef/name").and_then(Value::as_str) else {
            return Ok(spec["clusterRef"]["name"].as_str().unwrap_or_default().to_owned());
        };
        let Some(uid) = self.store.clusters_of_secret(&stored.namespace, secret).await?.first().copied()
        else {
            return Ok(String::new());
        };
        Ok(self.store.get_by_uid(uid).await?.map(|cluster| cluster.name).unwrap_or_default())
    }
}

fn change(event: &Event, cluster: String) -> FleetChange {
    let stored: &Stored = event.object();
    FleetChange {
        type_: event.type_().as_str(),
        kind: stored.kind.to_string(),
        namespace: stored.namespace.clone(),
        name: stored.name.clone(),
        resource_version: stored.resource_version.to_string(),
        cluster,
        suspended: stored.object["spec"]["suspend"] == true,
        ready: ready_state(&stored.object),
    }
}
