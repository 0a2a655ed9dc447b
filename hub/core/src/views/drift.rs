//! Which objects differ, or differed, from what was applied.

use roadstead_api::Time;
use roadstead_hub_store::FleetDrift;
use roadstead_model::{ApplierRef, DriftFilter, FieldDrift};
use schemars::JsonSchema;
use serde::Serialize;

use crate::HubError;
use crate::identity::Identity;
use crate::views::fleet::MAX_ITEMS;
use crate::views::lists::ObjectName;
use crate::views::{Views, known_applier_kind, visible};

/// An object that differs, or differed, from what was applied.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftItem {
    /// The Cluster's name; empty where the Cluster is gone.
    pub cluster: String,
    /// The applier that owns the object.
    pub applier: ObjectName,
    /// API group; empty for the core group.
    pub group: String,
    /// The version that it was applied in.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty where it is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `reported`, `contended` or `failed`: why it goes on, or went on; `corrected` where it was corrected at once.
    pub state: String,
    /// It is not, or was not, on the cluster.
    pub missing: bool,
    /// Who changed it, as far as that is known: managers of fields.
    pub managers: Vec<String>,
    /// Where it differs.
    pub fields: Vec<DriftField>,
    /// Why it cannot be corrected; else empty.
    pub message: String,
    /// How often it was corrected.
    pub corrections: i32,
    /// When it was first told.
    #[schemars(with = "String")]
    pub first_seen: Time,
    /// When it was last told.
    #[schemars(with = "String")]
    pub last_seen: Time,
    /// When it was over; none while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Time>,
}

/// A field that differs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftField {
    /// A JSON pointer.
    pub path: String,
    /// Whether the values are told: the cluster's own policy may forbid it.
    pub told: bool,
    /// What is on the cluster, as JSON, cut where it is long, or as a keyed hash; none where the field is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// What was applied; none where the field is not to be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
}

impl From<FieldDrift> for DriftField {
    fn from(FieldDrift { path, values }: FieldDrift) -> Self {
        let told = values.is_some();
        let values = values.unwrap_or_default();
        Self { path, told, live: values.live, desired: values.desired }
    }
}

impl From<FleetDrift> for DriftItem {
    fn from(drift: FleetDrift) -> Self {
        let ApplierRef { kind, namespace, name } = drift.applier;
        Self {
            cluster: drift.cluster,
            applier: ObjectName { kind, namespace, name },
            group: drift.object.group,
            version: drift.object.version,
            kind: drift.object.kind,
            namespace: drift.object.namespace,
            name: drift.object.name,
            state: drift.state.unwrap_or_else(|| "corrected".to_owned()),
            missing: drift.missing,
            managers: drift.managers,
            fields: drift.fields.into_iter().map(DriftField::from).collect(),
            message: drift.message,
            corrections: drift.corrections,
            first_seen: Time(drift.first_seen),
            last_seen: Time(drift.last_seen),
            ended: drift.ended.map(Time),
        }
    }
}

impl Views {
    /// Objects that differ or differed, the latest first.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], [`HubError::NotFound`] for a kind that is not an applier's, or the database fails.
    pub async fn drift(
        &self,
        who: &Identity,
        filter: &DriftFilter,
        limit: i64,
    ) -> Result<Vec<DriftItem>, HubError> {
        let visible = visible::appliers(who, &filter.applier_namespace)?;
        known_applier_kind(&filter.applier_kind)?;
        let found = self.store.drift(filter, visible.as_ref(), limit.clamp(1, MAX_ITEMS)).await?;
        Ok(found.into_iter().map(DriftItem::from).collect())
    }
}
