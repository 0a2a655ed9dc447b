//! What leads to an attempt: for people, in the history.

use roadstead_model::{AttemptKind, ClusterUid, Trigger};

use crate::{AttemptState, Situation, Source};

impl Situation {
    /// What leads to an attempt of this kind on this cluster, when it is begun now.
    #[must_use]
    pub fn trigger(&self, kind: AttemptKind, cluster: Option<ClusterUid>) -> Trigger {
        if kind == AttemptKind::Delete {
            return if self.deleting { Trigger::Deletion } else { Trigger::Cluster };
        }
        let Some(last) = &self.last else { return Trigger::Spec };
        let failed =
            matches!(last.state, AttemptState::Finished { succeeded: false, .. }) || self.late.is_some();
        let is_other_revision = match &self.source {
            Source::Artifact { revision, digest } => {
                last.revision.as_ref() != Some(revision) || last.artifact != Some(*digest)
            }
            Source::NotFound(_) | Source::NoArtifact(_) | Source::Unusable(_) | Source::Fetching(_) => false,
        };
        if last.generation != self.generation {
            Trigger::Spec
        } else if last.request != self.request {
            Trigger::Request
        } else if last.kind == AttemptKind::Delete || last.cluster != cluster {
            Trigger::Cluster
        } else if is_other_revision {
            Trigger::Revision
        } else if last.outdated || last.kind == AttemptKind::Read {
            Trigger::Inputs
        } else if self.handed {
            Trigger::Handover
        } else if self.confirmed && failed {
            Trigger::Confirmation
        } else if failed {
            Trigger::Retry
        } else if self.held {
            Trigger::Release
        } else {
            Trigger::Interval
        }
    }
}
