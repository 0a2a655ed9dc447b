//! `Event`, as the core group and as `events.k8s.io` show it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::{MicroTime, ObjectMeta, Time, Typed};

/// ObjectReference names an object, or a part of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// API version of the referent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the referent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace of the referent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the referent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID of the referent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Version of the referent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of the referent that is meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// Event is a report of something that happened to an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The versioned schema of this representation of the object.
    #[serde(default)]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default)]
    pub kind: String,
    /// Standard object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The object that the event is about.
    pub involved_object: ObjectReference,
    /// A word for why it happened, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What happened, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Who reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<EventSource>,
    /// When it first happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_timestamp: Option<Time>,
    /// When it last happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<Time>,
    /// How often it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Normal or Warning; new types may come.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// When it was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_time: Option<MicroTime>,
    /// The series of events that this one stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<EventSeries>,
    /// What was done or failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// A second object that the event is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related: Option<ObjectReference>,
    /// The controller that reported it, as `kubernetes.io/kubelet`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reporting_component: String,
    /// Which instance of the controller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
}

impl Typed for Event {}

/// EventSource says who reported an event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EventSource {
    /// The component.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// EventSeries says how often an event happened, and when last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventSeries {
    /// How often, up to the last time.
    #[serde(default)]
    pub count: i32,
    /// The last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<MicroTime>,
}

/// Event is a report of something that happened to an object (as `events.k8s.io/v1` has it).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "Event")]
pub struct EventV1 {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// When it was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<MicroTime>,
    /// The series of events that this one stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<EventSeries>,
    /// The controller that reported it, as `kubernetes.io/kubelet`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_controller: String,
    /// Which instance of the controller.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
    /// What was done or failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// A word for why it happened, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The object that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regarding: Option<ObjectReference>,
    /// A second object that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<ObjectReference>,
    /// What happened, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Normal or Warning; new types may come.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// The core version's source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_source: Option<EventSource>,
    /// The core version's firstTimestamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_first_timestamp: Option<Time>,
    /// The core version's lastTimestamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_last_timestamp: Option<Time>,
    /// The core version's count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated_count: Option<i32>,
}
