//! The planner: what is wanted, what was seen and what time it is, to what to do next with one Kustomization.
//!
//! Pure: no I/O, no clock, no async. The caller gathers a [`Situation`] from one snapshot of the database, asks
//! [`decide`], carries the [`Decision`] out, and comes back at the time that it names or when something changed.

mod access;
mod decide;
mod management;
mod pace;
mod refer;
mod rollout;
mod schedule;
#[cfg(test)]
mod tests;
mod trigger;
mod turns;

use jiff::Timestamp;
use roadstead_model::{ApplierUid, AttemptKind, ClusterUid, Digest, Generation, Reason, Revision};
use std::time::Duration;

pub use access::{Account, Asked, ClusterAccess, Delegation, Grant, Rights, may_deploy};
pub use decide::decide;
pub use management::{
    ManagementPlan, ManagementSituation, ManagementStep, Origin, Owner, PresentCluster, carried_labels,
    follow,
};
pub use refer::{Leave, may_refer, refer_by_namespace};
pub use rollout::{AgentState, Pace, Seeds, Tolerance, Upgrade, UpgradeOrder, roll_out};
pub use schedule::{MOST_APART, has_happened, jittered};
pub use turns::Turns;

/// Everything that a decision about one Kustomization depends on.
#[derive(Debug, Clone)]
pub struct Situation {
    /// Its uid: also what spreads intervals, so that a thousand Kustomizations do not fire together.
    pub uid: ApplierUid,
    /// The generation of its spec.
    pub generation: Generation,
    /// It is being deleted and waits for its finalizer.
    pub deleting: bool,
    /// `spec.suspend`.
    pub suspended: bool,
    /// `spec.prune`.
    pub prune: bool,
    /// `spec.interval`.
    pub interval: Duration,
    /// What an agent tends is looked at by a reconciliation once in so long all the same.
    pub full_interval: Duration,
    /// `spec.retryInterval`, else the interval.
    pub retry_interval: Duration,
    /// The value of the reconcile annotation, if any.
    pub request: Option<String>,
    /// A field of the spec that this version of the hub cannot act on, and what to do about it.
    pub unsupported: Option<String>,
    /// What holds every attempt back, the first to be told first.
    pub denials: Vec<Denial>,
    /// `spec.dependsOn`.
    pub dependencies: Vec<Dependency>,
    /// The names along a cycle of dependencies through this one, if there is one.
    pub cycle: Option<Vec<String>>,
    /// The cluster that its spec chooses.
    pub target: Target,
    /// The source that its spec refers to.
    pub source: Source,
    /// The newest attempt.
    pub last: Option<Attempted>,
    /// Ready says what stands in the way, from a [`Decision::Hold`], and not what came of the newest attempt.
    pub held: bool,
    /// Since when it is known that what the newest attempt waits for on the hub did not become Ready in time, though the
    /// attempt itself went well.
    pub late: Option<Timestamp>,
    /// Whether the cluster has to be looked at for what was applied last.
    pub tended: Tended,
    /// A person has confirmed the deletions for which the newest attempt waits, which did not know that yet.
    pub confirmed: bool,
    /// When the newest attempts began that somebody asked for, by the spec or by a request; newest first.
    pub asked_for: Vec<Timestamp>,
    /// Another applier's objects have become its own since the newest attempt began.
    pub handed: bool,
    /// Why what is wanted may be older than what the cluster has, where the database was restored and nobody has said since that it is
    /// what is wanted.
    pub older_than_applied: Option<String>,
    /// The clusters on which it owns objects, and whether each still exists.
    pub owns_on: Vec<Owned>,
}

/// Whether the agent tends what was applied: it watches all of it, and sees it stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tended {
    /// That is not known, or something else has to be looked at anyway.
    Unknown,
    /// It does: when an interval is over, nothing has to be done.
    Now,
    /// It did until then.
    Until(Timestamp),
    /// An agent has come back since then, and did not say that it tends this: it may be another process.
    Unclaimed(Timestamp),
}

/// Something that holds every attempt back until someone changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The reason of the Ready condition.
    pub reason: Reason,
    /// Why, and which field would have to change.
    pub message: String,
}

/// Another Kustomization that this one waits for.
#[derive(Debug, Clone)]
pub struct Dependency {
    /// `namespace/name`.
    pub name: String,
    /// What it is like.
    pub state: DependencyState,
}

/// The state of a dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DependencyState {
    /// There is none of that name.
    Missing,
    /// Its Ready condition is not True for its current generation.
    NotReady,
    /// It is not ready, for this reason.
    NotReadyBy(String),
    /// Ready, and it has another source than this one.
    Ready,
    /// Ready, and it shares this one's source: the revision that it applied last.
    ReadyAt(Option<Revision>),
}

/// The chosen cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// None can be chosen; why.
    NotFound(String),
    /// This one, which is being deleted and is to be left empty.
    Leaving {
        /// Its uid.
        uid: ClusterUid,
        /// Its name.
        name: String,
    },
    /// This one.
    Cluster {
        /// Its uid.
        uid: ClusterUid,
        /// Its name.
        name: String,
        /// How its agent stands to the hub.
        agent: AgentLink,
    },
}

/// How a cluster's agent stands to the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentLink {
    /// Connected to some replica.
    Connected,
    /// Connected, but its apiserver does not answer it; why.
    Blind(String),
    /// Not connected since then.
    Lost(Timestamp),
    /// None was ever connected.
    Never,
}

/// The source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is not there yet; for people.
    NotFound(String),
    /// It has no artifact yet, which it tells itself; why.
    NoArtifact(String),
    /// What it has may not be used, or cannot be: somebody has to change something. Why.
    Unusable(String),
    /// It is fetched at the revision to which the applier is pinned; for people.
    Fetching(String),
    /// Its artifact. It stays usable while the source cannot be reached.
    Artifact {
        /// At this revision.
        revision: Revision,
        /// With this content.
        digest: Digest,
    },
}

/// The newest attempt at reconciling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    /// The spec's generation then.
    pub generation: Generation,
    /// The cluster then.
    pub cluster: Option<ClusterUid>,
    /// The revision then.
    pub revision: Option<Revision>,
    /// The artifact then: what a source leaves out of a revision may change.
    pub artifact: Option<Digest>,
    /// The value of the reconcile annotation then.
    pub request: Option<String>,
    /// What it was to do.
    pub kind: AttemptKind,
    /// An object of the hub that it was rendered by is another one now.
    pub outdated: bool,
    /// It was made before the database was restored: something newer may have been applied since.
    pub is_past: bool,
    /// The digest of what was dispatched; none where that is not known.
    pub dispatch: Option<Digest>,
    /// Where it stands.
    pub state: AttemptState,
}

/// Where an attempt stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptState {
    /// Under way; given up at this time.
    Open {
        /// When.
        deadline: Timestamp,
    },
    /// Done.
    Finished {
        /// When; where nothing had to be sent, when the cluster was last known to have what it applied.
        at: Timestamp,
        /// Whether all went well.
        succeeded: bool,
    },
}

/// A cluster on which objects are owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The cluster.
    pub cluster: ClusterUid,
    /// Whether the hub still knows it.
    pub exists: bool,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, until this time or a change.
    Idle {
        /// The next pass is due then.
        until: Timestamp,
    },
    /// Nothing yet: it is asked for more often than it is reconciled.
    Pace {
        /// What was asked for is done then, or sooner for another reason.
        until: Timestamp,
    },
    /// `spec.suspend` is set: say so in a `Suspended` condition; Ready keeps its last value.
    Suspend,
    /// Not Ready, and nothing to dispatch.
    Hold {
        /// Why.
        reason: Reason,
        /// Why, for people: names the object and the cause.
        message: String,
        /// The next pass is due then, if nothing changes before.
        until: Timestamp,
        /// Whether it waits for something that has its own conditions and is expected to come, and so is not an error of its own.
        waits: bool,
    },
    /// Build this artifact and dispatch the build to this cluster.
    Reconcile {
        /// The cluster.
        cluster: ClusterUid,
        /// The source's revision.
        revision: Revision,
        /// The source's artifact.
        artifact: Digest,
        /// Something is new (spec, revision, request, or the last attempt failed), so that people are to see that it is
        /// under way; else it is the regular pass.
        news: bool,
    },
    /// Have everything deleted that is owned on this cluster: it is being deleted, or has moved to another.
    Delete {
        /// The cluster.
        cluster: ClusterUid,
    },
    /// The open attempt got no result in time: record that.
    GiveUp {
        /// Why, for people.
        message: String,
    },
    /// Drop the inventory on these clusters and let the object go.
    Release {
        /// What is left behind, for people; none where nothing is.
        orphaned: Option<String>,
    },
}
