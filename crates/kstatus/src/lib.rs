//! From an object to its health, pure: the rules of kstatus, and on top of them the one of Flux.
//!
//! [`compute`] answers what kstatus answers for any object; [`compute_for_kustomization`] adds what a Kustomization's
//! health means by it (a Job that still runs is not done). Both take the time as a parameter and nothing else from
//! outside, so the same object gives the same answer in an agent, in the hub and in a test.

mod custom;
mod fields;
mod words;
mod workload;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::{Condition, Fields};

/// Where an object is on its way to what its spec says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// It is what its spec says.
    Current,
    /// It is on its way.
    InProgress,
    /// It got stuck: waiting longer is not expected to help.
    Failed,
    /// It is being deleted.
    Terminating,
    /// It is not there. Never computed from an object; callers use it for a missing one.
    NotFound,
}

impl Status {
    /// The word as kstatus writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::NotFound => "NotFound",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An object's status and what is waited for, or what went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The status.
    pub status: Status,
    /// For people: `Replicas: 1/3`, the message of a condition. At most [`MAX_MESSAGE`] bytes of the object's own text.
    pub message: String,
}

/// How much of a condition's message is kept, in bytes.
pub const MAX_MESSAGE: usize = 1024;

impl Health {
    /// The object is what its spec says.
    #[must_use]
    pub fn current(message: impl Into<String>) -> Self {
        Self { status: Status::Current, message: message.into() }
    }

    /// The object is on its way.
    #[must_use]
    pub fn in_progress(message: impl Into<String>) -> Self {
        Self { status: Status::InProgress, message: message.into() }
    }

    /// The object got stuck.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: Status::Failed, message: message.into() }
    }

    /// The object is not there.
    #[must_use]
    pub fn not_found() -> Self {
        Self { status: Status::NotFound, message: "not found".to_owned() }
    }

    /// Whether the object is what its spec says.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.status == Status::Current
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            self.status.fmt(f)
        } else {
            write!(f, "{}: {}", self.status, self.message)
        }
    }
}

/// The health of `object` by kstatus' rules. `now` decides how long a Pod has been unschedulable.
#[must_use]
pub fn compute(object: &Value, now: Timestamp) -> Health {
    let fields = Fields::of(object);
    if let Some(health) = generic(&fields) {
        return health;
    }
    let api_version = fields.text("/apiVersion");
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, fields.text("/kind")) {
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => {
            Health::current("Resource is always ready")
        }
        ("apps", "Deployment") => workload::deployment(&fields),
        ("apps", "StatefulSet") => workload::stateful_set(&fields),
        ("apps", "DaemonSet") => workload::daemon_set(&fields),
        ("apps", "ReplicaSet") => workload::replica_set(&fields),
        ("", "Pod") => workload::pod(&fields, now),
        ("batch", "Job") => workload::job(&fields),
        ("", "PersistentVolumeClaim") => custom::persistent_volume_claim(&fields),
        ("", "Service") => custom::service(&fields),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom::custom_resource_definition(&fields),
        _ => custom::by_ready_condition(&fields),
    }
}

/// The health of `object` as a Kustomization counts it: [`compute`], but a Job that has started is in progress until
/// it completes or fails.
#[must_use]
pub fn compute_for_kustomization(object: &Value, now: Timestamp) -> Health {
    let health = compute(object, now);
    let fields = Fields::of(object);
    let is_job = fields.text("/kind") == "Job" && fields.text("/apiVersion").starts_with("batch/");
    if is_job && health.is_current() && workload::is_unfinished_job(&fields) {
        return Health::in_progress(health.message);
    }
    health
}

/// What holds for every kind, before its own rules.
fn generic(fields: &Fields<'_>) -> Option<Health> {
    if fields.at("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return Some(Health {
            status: Status::Terminating,
            message: "Resource scheduled for deletion".to_owned(),
        });
    }
    if let Some(observed) = fields.integer("/status/observedGeneration")
        && let Some(generation) = fields.integer("/metadata/generation")
        && observed != generation
    {
        let message = format!("Generation: observed {observed}, latest {generation}");
        return Some(Health::in_progress(message));
    }
    if let Some(reconciling) = fields.condition("Reconciling").filter(Condition::is_true) {
        return Some(Health::in_progress(reconciling.explain()));
    }
    if let Some(stalled) = fields.condition("Stalled").filter(Condition::is_true) {
        return Some(Health::failed(stalled.explain()));
    }
    None
}
