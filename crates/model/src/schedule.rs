//! What is due to be processed, and what wakes whoever processes it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::{ResourceUid, TraceContext};

/// The queues of the hub's controllers: each holds one kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Fetches sources.
    Source,
    /// Plans what appliers are to do.
    Applier,
    /// Empties namespaces that are being deleted.
    Namespace,
    /// Brings clusters on board by their kubeconfigs.
    Cluster,
    /// Makes Clusters of Secrets that are kubeconfigs.
    KubeConfig,
    /// Follows management clusters of Cluster API.
    ManagementCluster,
    /// Says where Receivers are called.
    Receiver,
    /// Composes artifacts.
    Generator,
    /// Says what of Providers is missing.
    Provider,
    /// Sends what Alerts are for.
    Alert,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Source,
        Self::Applier,
        Self::Namespace,
        Self::Cluster,
        Self::KubeConfig,
        Self::ManagementCluster,
        Self::Receiver,
        Self::Generator,
        Self::Provider,
        Self::Alert,
    ];

    /// As the database has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Applier => "applier",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
            Self::KubeConfig => "kubeconfig",
            Self::ManagementCluster => "managementcluster",
            Self::Receiver => "receiver",
            Self::Generator => "generator",
            Self::Provider => "provider",
            Self::Alert => "alert",
        }
    }
}

/// A pass that this replica is to take, and no other until it is released or its time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The resource.
    pub uid: ResourceUid,
    /// Where it was due.
    pub queue: Queue,
    /// How many passes had been asked for when this one began.
    pub wanted: i64,
    /// How often in a row the replica was gone that had claimed it.
    pub lost: i32,
    /// What asked for it last, where traces are made.
    pub trace: Option<TraceContext>,
}

impl Claim {
    /// Whether it may be this pass that ends replicas: it is to be taken alone.
    #[must_use]
    pub fn is_suspect(self) -> bool {
        self.lost > 0
    }
}

/// What a loop finds in the schedule.
#[derive(Debug, Default)]
pub struct Due {
    /// To be processed now.
    pub claims: Vec<Claim>,
    /// Of which namespace each of these is.
    pub namespaces: Vec<String>,
    /// For how long those of them were due that were to be processed at a time, and not at once.
    pub waited: Vec<Duration>,
    /// When the next pass after these is due, of those that nobody has claimed; those that are taken alone aside, which
    /// follow each other.
    pub next: Option<Timestamp>,
}

/// What a loop has places for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// How many are free.
    pub free: usize,
    /// Whether one [suspect](Claim::is_suspect) may be among them.
    pub suspect: bool,
    /// How many one namespace has at most.
    pub of_one: usize,
    /// How many each namespace has.
    pub held: BTreeMap<String, usize>,
}

impl Room {
    /// So many free places, of which one namespace may have all.
    #[must_use]
    pub fn of(free: usize, suspect: bool) -> Self {
        Self { free, suspect, of_one: usize::MAX, held: BTreeMap::new() }
    }

    /// The namespaces that have all that they may have.
    #[must_use]
    pub fn spent(&self) -> Vec<&str> {
        let spent = self.held.iter().filter(|(_, held)| **held >= self.of_one);
        spent.map(|(namespace, _)| namespace.as_str()).collect()
    }
}

/// What may be worth a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The change log grew: watches.
    Resources,
    /// Something is due: the loop of that pass.
    Due(Queue),
    /// A reconciliation waits to be sent, or to be cancelled: the link.
    Dispatch,
    /// Events wait to be sorted to Alerts.
    News,
}
