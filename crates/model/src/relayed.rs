//! Events that Flux's controllers report, as an agent relays them to its hub.

use std::collections::BTreeMap;

use crate::ObjectRef;

/// An event that one of Flux's controllers in a cluster reported: `event.toolkit.fluxcd.io/v1beta1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedEvent {
    /// The object that it is about, in the cluster.
    pub object: ObjectRef,
    /// The object's uid, as the controller gives it.
    pub uid: String,
    /// Whether its severity is `error`.
    pub is_error: bool,
    /// When it happened: RFC 3339, where the controller keeps to that.
    pub timestamp: String,
    /// What happened, for people.
    pub message: String,
    /// What happened, in one word.
    pub reason: String,
    /// The controller that reported it.
    pub reporting_controller: String,
    /// Where that runs.
    pub reporting_instance: String,
    /// What else is known, with keys `GROUP/KEY`.
    pub metadata: BTreeMap<String, String>,
}
