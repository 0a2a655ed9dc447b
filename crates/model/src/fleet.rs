//! What of the fleet is asked for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ResourceUid;

/// Of which objects of the hub a view tells somebody who may not see all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// The kinds of which all are.
    pub kinds: Vec<String>,
    /// `KIND/NAMESPACE`, for those of which all in that namespace are.
    pub places: Vec<String>,
    /// Names of Clusters that are.
    pub clusters: Vec<String>,
}

/// Which deliveries are listed.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Of Alerts in this namespace; empty for all.
    pub namespace: String,
    /// Of Alerts of this name; empty for all.
    pub alert: String,
    /// In this state; empty for all.
    pub state: String,
    /// Made before the one with this id.
    pub before: Option<i64>,
}

/// Which Silences are listed.
#[derive(Debug, Clone, Default)]
pub struct SilenceFilter {
    /// In this namespace; empty for all.
    pub namespace: String,
}

/// Which incidents are listed.
#[derive(Debug, Clone, Default)]
pub struct IncidentFilter {
    /// Of Alerts in this namespace; empty for all.
    pub namespace: String,
    /// Of Alerts of this name; empty for all.
    pub alert: String,
    /// Those that are not over.
    pub open: bool,
    /// Opened before then.
    pub before: Option<Timestamp>,
}

/// Which owned objects are looked for; what is empty does not narrow.
#[derive(Debug, Clone, Default)]
pub struct InventoryFilter {
    /// The Cluster's name.
    pub cluster: String,
    /// The object's kind.
    pub kind: String,
    /// The object's namespace.
    pub namespace: String,
    /// A part of the object's name.
    pub name: String,
    /// The kind of the applier that owns it.
    pub applier_kind: String,
    /// That applier's namespace.
    pub applier_namespace: String,
    /// That applier's name.
    pub applier: String,
    /// Labels that it has, with these values.
    pub labels: BTreeMap<String, String>,
    /// Labels that it has, whatever their values.
    pub label_keys: Vec<String>,
}

/// Where in the order of owned objects something stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryKey(pub Uuid, pub String, pub String, pub String, pub String);

/// Which attempts are looked for; what is empty does not narrow.
#[derive(Debug, Clone)]
pub struct AttemptFilter {
    /// The applier's kind.
    pub applier_kind: String,
    /// The applier's namespace.
    pub applier_namespace: String,
    /// The applier's name.
    pub applier: String,
    /// The Cluster's name.
    pub cluster: String,
    /// Only those that failed.
    pub failed: bool,
    /// Only those that changed an object though neither the build nor the cluster had: drift.
    pub drift: bool,
    /// Only those that began before then.
    pub before: Option<Timestamp>,
}

/// Which appliers are looked for; what is empty does not narrow.
#[derive(Debug, Clone, Default)]
pub struct ApplierFilter {
    /// The kind.
    pub kind: String,
    /// The Cluster's name.
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// A part of the name.
    pub name: String,
    /// The kind of one of its sources.
    pub source_kind: String,
    /// The name of that source.
    pub source_name: String,
    /// The namespace of that source.
    pub source_namespace: String,
    /// `True`, `False` or `Unknown`: the Ready condition's status; `Suspended`: whatever it is.
    pub state: String,
}

/// Which sources are looked for; what is empty does not narrow.
#[derive(Debug, Clone, Default)]
pub struct SourceFilter {
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// A part of the name.
    pub name: String,
    /// As [`ApplierFilter::state`].
    pub state: String,
}

/// Where in a list of appliers or sources one stands: its namespace, its name and its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListKey(pub String, pub String, pub String);

/// Where in a list of Events one stands: when it last happened, as the Event has it, and its uid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventKey(pub String, pub ResourceUid);

/// Which Events are looked for; what is empty does not narrow.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only what Flux's controllers reported in the Cluster of this name.
    pub cluster: String,
    /// Kind of the object that they are about.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// A part of its name.
    pub name: String,
    /// `Normal` or `Warning`.
    pub type_: String,
    /// Only those that last happened before then.
    pub before: Option<Timestamp>,
}

/// Which drift is looked for; what is empty does not narrow.
#[derive(Debug, Clone, Default)]
pub struct DriftFilter {
    /// The Cluster's name.
    pub cluster: String,
    /// The applier's kind.
    pub applier_kind: String,
    /// The applier's namespace.
    pub applier_namespace: String,
    /// The applier's name.
    pub applier: String,
    /// Only what goes on.
    pub ongoing: bool,
    /// Only what was last told before then.
    pub before: Option<Timestamp>,
}
