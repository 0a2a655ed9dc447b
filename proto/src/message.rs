//! The bodies of messages as checked values. See `link.proto` for what each is for; only what Rust adds is said here.

use std::time::Duration;

use roadstead_kstatus::Status;
use roadstead_model::{
    Action, ApplierRef, ApplierUid, ChangeSet, DispatchKey, DriftedObject, FieldDrift, FoundVariables, Held,
    ObjectRef, ObjectResult, Position, ReadObject, StepTiming,
};

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

/// An object that another applier owns on this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedByAnother {
    /// The object.
    pub object: ObjectRef,
    /// The owner on the hub. Of one that is gone only the uid is known, in the place of the name.
    pub owner: ApplierRef,
}

/// What was done, or seen, since the last one of this dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The dispatch.
    pub key: DispatchKey,
    /// Where the dispatch is.
    pub position: Position,
    /// What was done.
    pub results: Vec<ObjectResult>,
    /// Health, where it changed.
    pub health: Vec<ObjectHealth>,
}

/// Which dispatches wait in the agent until others have ended, and which have begun after they waited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// These wait.
    pub waiting: Vec<DispatchKey>,
    /// These have begun.
    pub started: Vec<Started>,
}

/// A dispatch that has begun after it waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The dispatch.
    pub key: DispatchKey,
    /// How long ago it began.
    pub ago: Duration,
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
    /// How long each stage of each step took.
    pub timings: Vec<StepTiming>,
    /// What its read steps found.
    pub reads: Vec<ReadObject>,
    /// What held variables and was found in the cluster.
    pub found: Vec<FoundVariables>,
    /// Deletions that wait for a person's confirmation.
    pub held: Vec<Held>,
    /// What somebody should look at though it did not fail.
    pub warnings: Vec<String>,
    /// The cluster's master keys that it was decrypted with, by kind and name.
    pub decrypted_with: Vec<String>,
}

/// Why a dispatch failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where the dispatch stopped.
    pub position: Position,
    /// Names the object and the cause.
    pub message: String,
    /// The object that is to blame, where it is one.
    pub object: Option<ObjectRef>,
    /// It ended because the hub said so, a newer dispatch came, or the agent went down.
    pub cancelled: bool,
}

/// What an agent did by itself between two dispatches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// The dispatch that applied what was corrected.
    pub key: DispatchKey,
    /// How long ago it began, when it is sent.
    pub ago: Duration,
    /// How long it took.
    pub took: Duration,
    /// What was corrected.
    pub objects: Vec<Corrected>,
    /// How many corrections before it, of any applier, are not told: too many waited.
    pub forgotten: u64,
}

/// An object that was corrected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrected {
    /// The object.
    pub object: ObjectRef,
    /// What was done to it.
    pub action: Action,
    /// Who had changed it, as far as its managed fields tell.
    pub managers: Vec<String>,
    /// Where it differed.
    pub fields: Vec<FieldDrift>,
}

/// Which objects differ from what was applied, and go on doing so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftReport {
    /// The dispatch that applied them.
    pub key: DispatchKey,
    /// The first of them.
    pub objects: Vec<DriftedObject>,
    /// How many there are.
    pub total: usize,
}

/// What an agent does not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentState {
    /// An operator of its cluster has paused it.
    pub paused: bool,
    /// The first of what it applied and cannot watch.
    pub unwatched: Vec<Unwatched>,
    /// How many there are.
    pub total: usize,
    /// How many appliers are corrected after a restart without a hub.
    pub corrected: usize,
    /// How many are only watched then, as what they need was not kept.
    pub watched: usize,
}

/// Something that was applied and cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwatched {
    /// A kind, and where.
    pub what: String,
    /// As which account; none: as the agent itself.
    pub account: Option<String>,
    /// Why.
    pub why: String,
}

/// Which appliers an agent tends from now on, and which it does not any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tended {
    /// It tends these.
    pub begun: Vec<ApplierUid>,
    /// It does not tend these any more.
    pub ended: Vec<ApplierUid>,
}

/// How the objects are that a dispatch waits for, or has waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthReport {
    /// The dispatch.
    pub key: DispatchKey,
    /// How they are together.
    pub state: HealthState,
    /// Names objects and why; empty where all are healthy.
    pub message: String,
    /// They are healthy again.
    pub recovered: bool,
    /// Those whose health has changed.
    pub objects: Vec<ObjectHealth>,
}

/// How the objects of a wait are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// They are still waited for.
    Waiting,
    /// All are what they should be.
    Healthy,
    /// Some are on their way.
    Progressing,
    /// Some have failed, or are on their way for too long.
    Failing,
}
