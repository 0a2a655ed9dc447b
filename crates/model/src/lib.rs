//! Domain values that every room shares: ids, revisions, digests, object references, inventories, change sets.
//!
//! Values only: nothing here knows a network, a clock, a database or an environment.

pub mod audit;
pub mod capability;
pub mod chain;
pub mod change;
mod confidential;
pub mod decrypt;
pub mod digest;
pub mod dispatch;
pub mod drift;
pub mod duration;
pub mod fleet;
pub mod guard;
pub mod health;
pub mod id;
pub mod ignore;
pub mod managed;
pub mod object;
pub mod offline;
pub mod order;
pub mod reason;
mod relayed;
pub mod revision;
pub mod schedule;
mod secret;
mod size;
pub mod substitute;
mod trace;
mod trigger;

pub use audit::{AuditEntry, AuditFilter, AuditOrigin, AuditOutcome};
pub use capability::{Capabilities, Capability};
pub use chain::chain;
pub use change::{Action, ChangeSet, ObjectResult, Position, Stage, StageTiming, StepTiming};
pub use confidential::{Confidential, json_length};
pub use decrypt::{Decrypt, GivenKey};
pub use digest::{Digest, DigestError, Hasher};
pub use dispatch::{
    AttemptKind, Conflicts, DEFAULT_NAMESPACE, Dispatch, DispatchSpec, FluxKustomization, Group, HookPolicy,
    Lacking, OnImmutable, Order, Purpose, ReadObject, ServiceAccount, Step, StepKind,
};
pub use drift::{DriftMode, DriftState, DriftedObject, FieldDrift, FieldValues};
pub use duration::{DurationError, GoDuration};
pub use fleet::{
    ApplierFilter, AttemptFilter, DeliveryFilter, DriftFilter, EventFilter, EventKey, IncidentFilter,
    InventoryFilter, InventoryKey, ListKey, SilenceFilter, SourceFilter, Visible,
};
pub use guard::{Guard, GuardMode, Held, PendingDeletion};
pub use health::HealthExpr;
pub use id::{
    ApplierUid, Attempt, ClusterUid, DispatchKey, Generation, HubEpoch, KubeSystemUid, ReplicaId,
    ResourceUid, SessionId,
};
pub use ignore::{IgnoreRule, IgnoreTarget};
pub use managed::ManagedCluster;
pub use object::{ApplierRef, GroupKind, MAX_OBJECTS, ObjectRef};
pub use offline::{Offline, OfflinePolicy};
pub use order::{AgentOrder, OrderKind, OrderState};
pub use reason::Reason;
pub use relayed::RelayedEvent;
pub use revision::{Revision, RevisionError};
pub use schedule::{Claim, Due, Queue, Room, Topic};
pub use secret::Secret;
pub use size::{SizeError, parse_size};
pub use substitute::{FoundVariables, GivenVariables, Substitute, VariablesFrom, VariablesKind};
pub use trace::{BadTraceparent, SpanId, TraceContext, TraceId};
pub use trigger::Trigger;
