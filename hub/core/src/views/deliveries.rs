//! What Alerts send, and what came of it.

use roadstead_api::{KindId, Time};
use roadstead_hub_store::FleetDelivery;
use roadstead_model::DeliveryFilter;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::identity::Identity;
use crate::views::fleet::MAX_ITEMS;
use crate::views::lists::ObjectName;
use crate::views::{Views, visible};

/// An event that an Alert sends, or sent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryItem {
    /// Which one; later ones have higher numbers.
    pub id: i64,
    /// The Alert.
    pub alert: ObjectName,
    /// The name of the Provider that it was last tried with, in the Alert's namespace; else empty.
    pub provider: String,
    /// `waiting`, `sent` or `failed`.
    pub state: String,
    /// How often it was tried.
    pub attempts: i32,
    /// What the event is about.
    pub object: ObjectName,
    /// `info` or `error`.
    pub severity: String,
    /// What happened, for programs.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// When it was sorted to the Alert.
    #[schemars(with = "String")]
    pub made: Time,
    /// When it arrived or was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Time>,
    /// Why the last attempt failed; else empty.
    pub error: String,
}

impl From<FleetDelivery> for DeliveryItem {
    fn from(delivery: FleetDelivery) -> Self {
        let text = |pointer: &str| {
            delivery.event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let object = ObjectName {
            kind: text("/involvedObject/kind"),
            namespace: text("/involvedObject/namespace"),
            name: text("/involvedObject/name"),
        };
        Self {
            id: delivery.id,
            object,
            severity: text("/severity"),
            reason: text("/reason"),
            message: text("/message"),
            alert: ObjectName {
                kind: KindId::Alert.to_string(),
                namespace: delivery.namespace,
                name: delivery.alert,
            },
            provider: delivery.provider,
            state: delivery.state,
            attempts: delivery.attempts,
            made: Time(delivery.made_at),
            ended: delivery.ended_at.map(Time),
            error: delivery.error,
        }
    }
}

impl Views {
    /// What Alerts send or sent, the latest first: of those that `who` may list.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], or the database fails.
    pub async fn deliveries(
        &self,
        who: &Identity,
        filter: &DeliveryFilter,
        limit: i64,
    ) -> Result<Vec<DeliveryItem>, HubError> {
        let visible = visible::of_kinds(who, &[KindId::Alert], &filter.namespace)?;
        let found = self.store.deliveries(filter, visible.as_ref(), limit.clamp(1, MAX_ITEMS)).await?;
        Ok(found.into_iter().map(DeliveryItem::from).collect())
    }
}
