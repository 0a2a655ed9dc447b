//! What every object has: metadata, conditions, times, references.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! time {
    ($(#[$doc:meta])* $name:ident, $format:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Timestamp);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.strftime($format).fmt(f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map(Self).map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": "date-time" })
            }
        }
    };
}

time!(
    /// A time in whole seconds, as Kubernetes writes it: `2020-09-17T07:27:11Z`.
    Time,
    "%Y-%m-%dT%H:%M:%SZ"
);
time!(
    /// A time in microseconds, as Kubernetes' MicroTime: `2020-09-17T07:27:11.000000Z`.
    MicroTime,
    "%Y-%m-%dT%H:%M:%S.%6fZ"
);

/// The schema of a [`roadstead_model::GoDuration`].
pub(crate) fn duration_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "duration" })
}

/// ObjectMeta is metadata that all persisted resources must have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name must be unique within a namespace. Cannot be updated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A prefix from which a unique name is made where `name` is not given.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// The namespace within which the name must be unique; none for cluster-scoped kinds. Cannot be updated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique in time and space. Set by the server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The version of the object, for watches and for optimistic concurrency. Set by the server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts the changes of the desired state. Set by the server.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the object was created. Set by the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// When the object's deletion was asked for; it goes once its finalizers are gone. Set by the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    /// Seconds within which the object was to go. Set by the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels: keys and values by which objects are selected.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations: keys and values that tools store with the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who must still act before the object is removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The objects that this one depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Which manager set which fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<ManagedFieldsEntry>,
    /// Deprecated and never set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub self_link: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// OwnerReference names an object that owns this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// API version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
    /// Whether this owner is the managing controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner's foreground deletion waits for this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// ManagedFieldsEntry says which fields a manager set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFieldsEntry {
    /// The manager's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// `Apply` or `Update`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// The version that `fieldsV1` speaks of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// When the fields were last set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The format of `fieldsV1`: always `FieldsV1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fields_type: String,
    /// The set of fields.
    #[serde(rename = "fieldsV1", skip_serializing_if = "serde_json::Map::is_empty")]
    pub fields_v1: serde_json::Map<String, serde_json::Value>,
    /// The subresource through which the fields were set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// Condition contains details for one aspect of the current state of this API resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of condition in CamelCase.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition, one of True, False, Unknown.
    pub status: ConditionStatus,
    /// The last time the condition transitioned from one status to another.
    pub last_transition_time: Time,
    /// A programmatic identifier for the reason of the last transition.
    pub reason: String,
    /// Details about the transition, for people.
    pub message: String,
    /// The generation of the spec that the condition is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not known whether it does.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets the condition of `condition.type_`; its transition time moves only where its status does.
pub fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions.iter_mut().find(|present| present.type_ == condition.type_) {
        Some(present) => {
            if present.status == condition.status {
                condition.last_transition_time = present.last_transition_time;
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}

/// A reference to an object of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct LocalObjectReference {
    /// Name of the referent.
    pub name: String,
}

/// An object of a kind with a spec and a status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Object<Spec, Status> {
    /// The versioned schema of this representation of the object.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default)]
    pub kind: String,
    /// Standard object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: Spec,
    /// The observed state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// A type that holds objects of a kind, or what several kinds have in common, in their storage version.
pub trait Typed: serde::de::DeserializeOwned {
    /// Reads a stored object.
    ///
    /// # Errors
    /// Where it was not stored by this version of the types.
    fn from_object(object: &serde_json::Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }
}
