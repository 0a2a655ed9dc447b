//! The Kubernetes-style kinds that the hub serves: types, versions, defaulting, validation, columns.
//!
//! Values only: no network, no clock, no database. [`KINDS`] is the one list; everything that serves, stores or checks
//! an object goes by it.

pub mod annotated;
mod applier;
pub mod artifact_generator;
pub mod cluster;
pub mod columns;
pub mod convert;
pub mod core_v1;
pub mod cron;
pub mod event;
pub mod external_artifact;
pub mod git_repository;
pub mod kind;
pub mod kustomization;
pub mod management_cluster;
pub mod notification;
pub mod object;
pub mod older;
pub mod rbac;
pub mod reference_grant;
pub mod references;
pub mod registry;
#[cfg(debug_assertions)]
pub mod rehearsal;
pub mod resource_quota;
pub mod rules;
pub mod schema;
pub mod silence;
pub mod source;
pub mod validate;

pub use applier::{AnyApplier, AnyApplierStatus, ApplierSpec, ApplierStatus};
pub use artifact_generator::*;
pub use cluster::{
    AgentRemoval, AgentUpgrade, Cluster, ClusterAccessGrant, ClusterAgent, ClusterApiOrigin,
    ClusterDeletionPolicy, ClusterKubeConfig, ClusterKubeConfigStatus, ClusterOffline, ClusterOfflineStatus,
    ClusterSpec, ClusterStatus, DriftPolicy, Lookup, ManagementClusterReference, SecretReference,
};
pub use columns::Column;
pub use convert::{from_storage, to_storage};
pub use core_v1::{ConfigMap, Namespace, NamespacePhase, Secret, ServiceAccount};
pub use cron::{CronError, CronSchedule, Times};
pub use event::*;
pub use external_artifact::*;
pub use git_repository::*;
pub use kind::{ChildRule, Kind, KindId, NameRule, PipelineRole, Scope, Version};
pub use kustomization::*;
pub use management_cluster::*;
pub use notification::*;
pub use object::{Condition, ConditionStatus, ObjectMeta, Time, Typed, set_condition};
pub use rbac::*;
pub use reference_grant::*;
pub use references::Reference;
pub use registry::KINDS;
#[cfg(debug_assertions)]
pub use rehearsal::*;
pub use resource_quota::*;
pub use rules::Verdict;
pub use silence::*;
pub use source::*;
pub use validate::{FieldError, Findings, structural};
