//! Lists of the fleet views that are of objects of the hub: Kustomizations and Events, as far as lists show them.

use std::collections::BTreeMap;

use roadstead_hub_store::KustomizationRow;
use roadstead_model::{EventFilter, KustomizationFilter};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::identity::Identity;
use crate::views::Views;
use crate::views::fleet::{MAX_ITEMS, ReadyState, ready_of};

/// A Kustomization, as far as lists show it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationItem {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Cluster that it is for, by name; empty where it names none that is known.
    pub cluster: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where its manifests come from.
    pub source: ObjectName,
    /// The path in the source.
    pub path: String,
    /// The revision that was applied last; empty where none was.
    pub revision: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// What its Ready condition says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyState>,
}

/// An object of the hub.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What happened to an object of the hub.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EventItem {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// What happened, for programs.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// What it happened to.
    pub object: ObjectName,
    /// When it happened first.
    pub first: String,
    /// When it happened last.
    pub last: String,
    /// How often it happened.
    pub count: i64,
}

impl Views {
    /// A page of Kustomizations, by namespace and name; the next begins behind the pair.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. Where the database fails.
    pub async fn kustomizations(
        &self,
        who: &Identity,
        filter: &KustomizationFilter,
        after: Option<&(String, String)>,
        limit: i64,
    ) -> Result<(Vec<KustomizationItem>, Option<(String, String)>), HubError> {
        self.authorize_fleet(who)?;
        let limit = limit.clamp(1, MAX_ITEMS);
        let mut found = self.store.kustomization_rows(filter, after, limit + 1).await?;
        let full = i64::try_from(found.len()).unwrap_or(i64::MAX) > limit;
        if full {
            found.pop();
        }
        let next = found.last().filter(|_| full).map(|last| (last.namespace.clone(), last.name.clone()));
        Ok((found.into_iter().map(kustomization_item).collect(), next))
    }

    /// Events, those that last happened last first.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. Where the database fails.
    pub async fn events(
        &self,
        who: &Identity,
        filter: &EventFilter,
        limit: i64,
    ) -> Result<Vec<EventItem>, HubError> {
        who.authorize("list", roadstead_api::KindId::Event.get(), "", "", "")?;
        let found = self.store.latest_events(filter, limit.clamp(1, MAX_ITEMS)).await?;
        Ok(found.iter().map(event_item).collect())
    }
}

fn kustomization_item(row: KustomizationRow) -> KustomizationItem {
    let labels = row.labels.as_object().into_iter().flatten();
    KustomizationItem {
        labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        source: ObjectName { kind: row.source_kind, namespace: row.source_namespace, name: row.source_name },
        ready: row.ready.as_ref().map(ready_of),
        namespace: row.namespace,
        name: row.name,
        cluster: row.cluster,
        path: row.path,
        revision: row.revision,
        suspended: row.suspended,
    }
}

fn event_item(event: &Value) -> EventItem {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    EventItem {
        type_: text("/type"),
        reason: text("/reason"),
        message: text("/message"),
        object: ObjectName {
            kind: text("/involvedObject/kind"),
            namespace: text("/involvedObject/namespace"),
            name: text("/involvedObject/name"),
        },
        first: text("/firstTimestamp"),
        last: text("/lastTimestamp"),
        count: event["count"].as_i64().unwrap_or(1),
    }
}
