//! The bodies of messages as checked values. See `link.proto` for what each is for; only what Rust adds is said here.

use std::time::Duration;

use roadstead_kstatus::Status;
use roadstead_model::{ChangeSet, DispatchKey, ObjectRef, ObjectResult, Stage, StageTiming};

/// An ordered list of steps for one Kustomization on one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// What makes it that dispatch.
    pub key: DispatchKey,
    /// The hub namespace of the Kustomization.
    pub namespace: String,
    /// The Kustomization's name.
    pub name: String,
    /// Impersonated for every read and write; none: the agent's own rights.
    pub service_account: Option<ServiceAccount>,
    /// What the Kustomization owned on this cluster before.
    pub inventory: Vec<ObjectRef>,
    /// Bounds validation, apply and health together.
    pub timeout: Duration,
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// For namespaced objects that name no namespace.
    pub default_namespace: String,
}

/// A service account of the workload cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    /// Its namespace there.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// One step of a dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Validate and apply the build's objects.
    Apply {
        /// Recreate an object whose change the apiserver calls immutable.
        force: bool,
    },
    /// Delete what stands in the inventory and not in the build.
    Prune,
    /// Wait until objects are healthy.
    Wait {
        /// These …
        objects: Vec<ObjectRef>,
        /// … and everything that was applied.
        all: bool,
    },
    /// Delete everything in the inventory.
    Delete,
}

/// What will be owned; nothing is written before the hub's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryIntent {
    /// The dispatch.
    pub key: DispatchKey,
    /// Everything that will be owned once it is done.
    pub objects: Vec<ObjectRef>,
}

/// The hub's answer to an [`InventoryIntent`], sent once that is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryAck {
    /// The dispatch.
    pub key: DispatchKey,
    /// Where this is not empty, nothing may be written.
    pub owned_by_another: Vec<OwnedByAnother>,
}

/// An object that another Kustomization owns on this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedByAnother {
    /// The object.
    pub object: ObjectRef,
    /// `namespace/name` of the owner on the hub.
    pub owner: String,
}

/// What was done, or seen, since the last one of this dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The dispatch.
    pub key: DispatchKey,
    /// Where the dispatch is.
    pub stage: Stage,
    /// What was done.
    pub results: Vec<ObjectResult>,
    /// Health, where it changed.
    pub health: Vec<ObjectHealth>,
}

/// An object's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHealth {
    /// The object.
    pub object: ObjectRef,
    /// kstatus' word.
    pub status: Status,
    /// Why.
    pub message: String,
}

/// How a dispatch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The dispatch.
    pub key: DispatchKey,
    /// Why it did not go through; none: all steps did.
    pub failure: Option<Failure>,
    /// What was done to which object.
    pub change_set: ChangeSet,
    /// What is owned now, failed deletions included.
    pub inventory: Vec<ObjectRef>,
    /// How long each stage took.
    pub timings: Vec<StageTiming>,
}

/// Why a dispatch did not go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where it stopped.
    pub stage: Stage,
    /// Names the object and the cause.
    pub message: String,
    /// The object that is to blame, where it is one.
    pub object: Option<ObjectRef>,
    /// It ended because the hub said so, a newer dispatch came, or the agent went down.
    pub cancelled: bool,
}
