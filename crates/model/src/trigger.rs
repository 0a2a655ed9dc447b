//! What led to an attempt at reconciling.

use serde::Serialize;

/// What led to an attempt; the first that holds, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Trigger {
    /// The applier was deleted.
    Deletion,
    /// It is new, or somebody changed what it says.
    Spec,
    /// Somebody asked for a reconciliation.
    Request,
    /// It is for another cluster than before, or that one goes.
    Cluster,
    /// Its source has another revision.
    Revision,
    /// A ConfigMap or Secret that it is rendered by has changed.
    Inputs,
    /// Objects of another applier were handed over to it.
    Handover,
    /// Somebody confirmed deletions that waited.
    Confirmation,
    /// The attempt before it failed.
    Retry,
    /// What held it back does so no more.
    Release,
    /// Its interval was over.
    Interval,
    /// Others had changed what it applied.
    Drift,
}

const ALL: [Trigger; 12] = [
    Trigger::Deletion,
    Trigger::Spec,
    Trigger::Request,
    Trigger::Cluster,
    Trigger::Revision,
    Trigger::Inputs,
    Trigger::Handover,
    Trigger::Confirmation,
    Trigger::Retry,
    Trigger::Release,
    Trigger::Interval,
    Trigger::Drift,
];

impl Trigger {
    /// The word that people and the database see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deletion => "Deletion",
            Self::Spec => "Spec",
            Self::Request => "Request",
            Self::Cluster => "Cluster",
            Self::Revision => "Revision",
            Self::Inputs => "Inputs",
            Self::Handover => "Handover",
            Self::Confirmation => "Confirmation",
            Self::Retry => "Retry",
            Self::Release => "Release",
            Self::Interval => "Interval",
            Self::Drift => "Drift",
        }
    }

    /// The trigger of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        ALL.into_iter().find(|trigger| trigger.as_str() == word)
    }

    /// Whether somebody's last change of the applier itself is what led to it.
    #[must_use]
    pub fn is_a_change(self) -> bool {
        matches!(self, Self::Deletion | Self::Spec | Self::Request)
    }
}
