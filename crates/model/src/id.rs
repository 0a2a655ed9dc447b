//! Typed identities: a cluster's uid cannot be handed over where an applier's is wanted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new random (version 4) id.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uid!(
    /// `metadata.uid` of any resource that the hub stores.
    ResourceUid
);
uid!(
    /// `metadata.uid` of an applier, an object of the hub that deploys: the owner of an inventory.
    ApplierUid
);
uid!(
    /// `metadata.uid` of a hub `Cluster`: the subject of its agent's certificate.
    ClusterUid
);
uid!(
    /// The uid of a workload cluster's `kube-system` namespace: what makes a cluster that cluster.
    KubeSystemUid
);
uid!(
    /// One run of a hub process.
    ReplicaId
);
uid!(
    /// One connection of an agent.
    SessionId
);

impl From<ResourceUid> for ApplierUid {
    fn from(uid: ResourceUid) -> Self {
        Self(uid.0)
    }
}

impl From<ApplierUid> for ResourceUid {
    fn from(uid: ApplierUid) -> Self {
        Self(uid.0)
    }
}

impl From<ResourceUid> for ClusterUid {
    fn from(uid: ResourceUid) -> Self {
        Self(uid.0)
    }
}

impl From<ClusterUid> for ResourceUid {
    fn from(uid: ClusterUid) -> Self {
        Self(uid.0)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Counts the restores of the hub's database: it grows when an older state may have come back, so that what the
    /// older state would say is refused by agents that saw a newer one.
    HubEpoch
);
counter!(
    /// `metadata.generation`: grows with each change of a spec.
    Generation
);
counter!(
    /// Counts the reconciliations of one applier that were dispatched, from 1.
    Attempt
);

/// What makes a dispatch that dispatch. Dispatches with the same key are the same work, and carrying one out twice
/// has the effect of once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchKey {
    /// The hub's epoch.
    pub epoch: HubEpoch,
    /// The applier whose objects are meant.
    pub applier: ApplierUid,
    /// The generation of its spec.
    pub generation: Generation,
    /// Which attempt this is.
    pub attempt: Attempt,
    /// The digest of all that is to be done ([`crate::DispatchSpec::digest`]). Between the hub and an agent of the first version:
    /// of the build, and none where nothing is applied.
    pub digest: Option<crate::Digest>,
}

impl DispatchKey {
    /// The order in which dispatches of one applier supersede each other.
    #[must_use]
    pub fn fence(&self) -> (HubEpoch, Attempt) {
        (self.epoch, self.attempt)
    }
}
