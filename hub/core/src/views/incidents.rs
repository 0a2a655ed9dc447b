//! Incidents: what fails for one cause, and where.

use roadstead_api::{KindId, Time};
use roadstead_hub_store::FleetIncident;
use roadstead_model::IncidentFilter;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::identity::Identity;
use crate::views::fleet::MAX_ITEMS;
use crate::views::lists::ObjectName;
use crate::views::{Views, visible};

/// Failures that have one cause, of which an Alert tells as one thing.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncidentItem {
    /// Its id, which messages of it have.
    pub id: String,
    /// The Alert.
    pub alert: ObjectName,
    /// The object that failed first.
    pub object: ObjectName,
    /// Why, for programs.
    pub reason: String,
    /// What it said.
    pub message: String,
    /// When that was.
    #[schemars(with = "String")]
    pub opened: Time,
    /// When the Alert last told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub told: Option<Time>,
    /// When it was over; none while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Time>,
    /// Objects that fail.
    pub failing: i64,
    /// Objects that fail, or failed.
    pub failed: i64,
    /// Objects of these that count as over although nobody said that they are well: they were deleted or suspended, were not checked or heard of any
    /// more, or the Alert is not for them any more.
    pub lapsed: i64,
    /// Clusters of those that fail.
    pub failing_clusters: i64,
    /// Clusters of all of them.
    pub clusters: i64,
    /// The first twenty of those that fail, or failed if none does: the names of clusters, or `NAMESPACE/NAME` of what is on none.
    pub names: Vec<String>,
}

impl From<FleetIncident> for IncidentItem {
    fn from(listed: FleetIncident) -> Self {
        let incident = listed.incident;
        let text = |pointer: &str| {
            incident.first.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Self {
            id: incident.id.to_string(),
            alert: ObjectName {
                kind: KindId::Alert.to_string(),
                namespace: listed.namespace,
                name: listed.alert,
            },
            object: ObjectName {
                kind: text("/involvedObject/kind"),
                namespace: text("/involvedObject/namespace"),
                name: text("/involvedObject/name"),
            },
            reason: text("/reason"),
            message: text("/message"),
            opened: Time(incident.opened_at),
            told: incident.told_at.map(Time),
            ended: listed.ended_at.map(Time),
            failing: incident.failing,
            failed: incident.failed,
            lapsed: incident.lapsed.count(),
            failing_clusters: incident.failing_clusters,
            clusters: incident.clusters,
            names: incident.names,
        }
    }
}

impl Views {
    /// Incidents, the latest first: those of Alerts that `who` may list.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], or the database fails.
    pub async fn incidents(
        &self,
        who: &Identity,
        filter: &IncidentFilter,
        limit: i64,
    ) -> Result<Vec<IncidentItem>, HubError> {
        let visible = visible::of_kinds(who, &[KindId::Alert], &filter.namespace)?;
        let found = self.store.incidents(filter, visible.as_ref(), limit.clamp(1, MAX_ITEMS)).await?;
        Ok(found.into_iter().map(IncidentItem::from).collect())
    }
}
