//! What one side of the link can do that one of the first version cannot. The hub names its own in its first message, and so
//! does the agent; neither is sent anything that it did not say it can read or do.

use std::collections::BTreeSet;

/// Most names that are read of a first message; there are far fewer.
const MAX_NAMES: usize = 256;

/// Something that was added after the first version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// A hub that can be told `recreated` and `adopted` apart from `configured`.
    RecreatedAndAdopted,
    /// A hub that can be told that an agent's policy refused an upgrade, apart from an upgrade that failed.
    RefusedUpgrades,
    /// A hub that can be told which dispatches wait in the agent, and when they begin.
    Backlog,
    /// A hub that can be told that an agent's apiserver does not answer.
    ApiServer,
    /// A hub that can be told what an agent corrected by itself, and says for which appliers it is not to; an agent that does either.
    Corrections,
    /// A hub that can be told how what was waited for is since; an agent that goes on watching it.
    HealthAfterReady,
    /// A hub that can be told which objects differ from what was applied, and how, and what an agent does not do; an agent that reports
    /// drift in place of correcting it.
    DriftReports,
    /// A hub that can be told that keys in the cluster have changed.
    KeyChanges,
    /// A hub that takes events of Flux's controllers in an agent's cluster.
    RelayedEvents,
    /// An agent that applies several groups, and compares a dispatch with its digest.
    Groups,
    /// An agent that applies a group's objects in the order in which they are given.
    AsGivenOrder,
    /// An agent that applies a group's objects in Helm's order.
    HelmOrder,
    /// An agent that leaves fields to the managers that have them.
    KeepOthers,
    /// An agent that replaces objects whose change the apiserver calls immutable.
    Replace,
    /// An agent that knows of appliers other than Kustomizations.
    Appliers,
    /// An agent that carries a dispatch out up to its first write, and tells what it would do.
    Plans,
    /// An agent that runs hooks.
    Hooks,
    /// An agent that reads objects for the hub.
    Reads,
    /// An agent that decrypts objects.
    Decryption,
    /// An agent that substitutes variables.
    Substitution,
    /// An agent that waits until what was deleted is gone.
    Termination,
    /// An agent that tells the health of objects by expressions.
    HealthExpressions,
    /// An agent that leaves fields to whoever changed them.
    IgnoreRules,
    /// An agent that counts what it would delete, and waits for a person's confirmation beyond the bounds.
    Guard,
    /// An agent that takes objects over from Flux.
    Adoption,
    /// An agent that reads an inventory of Flux's in, takes over from further managers, and gives objects back to Flux.
    FluxHandover,
    /// An agent that tells what it changed by an Event in its cluster.
    ClusterEvents,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::RecreatedAndAdopted,
        Self::RefusedUpgrades,
        Self::Backlog,
        Self::ApiServer,
        Self::Corrections,
        Self::HealthAfterReady,
        Self::DriftReports,
        Self::KeyChanges,
        Self::RelayedEvents,
        Self::Groups,
        Self::AsGivenOrder,
        Self::HelmOrder,
        Self::KeepOthers,
        Self::Replace,
        Self::Appliers,
        Self::Plans,
        Self::Hooks,
        Self::Reads,
        Self::Decryption,
        Self::Substitution,
        Self::Termination,
        Self::HealthExpressions,
        Self::IgnoreRules,
        Self::Guard,
        Self::Adoption,
        Self::FluxHandover,
        Self::ClusterEvents,
    ];

    /// Its name in the protocol, which never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RecreatedAndAdopted => "recreated-and-adopted",
            Self::RefusedUpgrades => "refused-upgrades",
            Self::Backlog => "backlog",
            Self::ApiServer => "apiserver",
            Self::Corrections => "corrections",
            Self::HealthAfterReady => "health-after-ready",
            Self::DriftReports => "drift-reports",
            Self::KeyChanges => "key-changes",
            Self::RelayedEvents => "relayed-events",
            Self::Groups => "groups",
            Self::AsGivenOrder => "as-given-order",
            Self::HelmOrder => "helm-order",
            Self::KeepOthers => "keep-others",
            Self::Replace => "replace",
            Self::Appliers => "appliers",
            Self::Plans => "plans",
            Self::Hooks => "hooks",
            Self::Reads => "reads",
            Self::Decryption => "decryption",
            Self::Substitution => "substitution",
            Self::Termination => "termination",
            Self::HealthExpressions => "health-expressions",
            Self::IgnoreRules => "ignore-rules",
            Self::Guard => "guard",
            Self::Adoption => "adoption",
            Self::FluxHandover => "flux-handover",
            Self::ClusterEvents => "cluster-events",
        }
    }

    /// The capability of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.name() == name)
    }
}

/// What one side can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(BTreeSet<Capability>);

impl Capabilities {
    /// What a hub of this version can read.
    #[must_use]
    pub fn of_this_hub() -> Self {
        Self(
            [
                Capability::RecreatedAndAdopted,
                Capability::RefusedUpgrades,
                Capability::Backlog,
                Capability::ApiServer,
                Capability::Corrections,
                Capability::HealthAfterReady,
                Capability::DriftReports,
                Capability::KeyChanges,
                Capability::RelayedEvents,
            ]
            .into(),
        )
    }

    /// What an agent of this version can do.
    #[must_use]
    pub fn of_this_agent() -> Self {
        Self(
            [
                Capability::Corrections,
                Capability::HealthAfterReady,
                Capability::DriftReports,
                Capability::Groups,
                Capability::Appliers,
                Capability::Hooks,
                Capability::Reads,
                Capability::Decryption,
                Capability::Substitution,
                Capability::Termination,
                Capability::HealthExpressions,
                Capability::IgnoreRules,
                Capability::Guard,
                Capability::Adoption,
                Capability::FluxHandover,
                Capability::ClusterEvents,
            ]
            .into(),
        )
    }

    /// What the other side named. Names that this version does not know are of no use to it.
    #[must_use]
    pub fn named<T: AsRef<str>>(names: &[T]) -> Self {
        Self(names.iter().take(MAX_NAMES).filter_map(|name| Capability::parse(name.as_ref())).collect())
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|capability| capability.name().to_owned()).collect()
    }

    /// Whether this can be done.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, Capability};

    #[test]
    fn names_are_read_as_they_are_written() {
        for capability in Capability::ALL {
            assert_eq!(Capability::parse(capability.name()), Some(capability));
        }
        for own in [Capabilities::of_this_hub(), Capabilities::of_this_agent()] {
            assert_eq!(Capabilities::named(&own.names()), own);
        }
        let mixed = Capabilities::named(&["of-the-future", "groups"]);
        assert!(mixed.has(Capability::Groups) && !mixed.has(Capability::Hooks));
        assert_eq!(mixed.names(), ["groups"]);
    }
}
