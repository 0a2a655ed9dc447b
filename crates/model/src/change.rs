//! Change sets: what an apply did, object by object, and how long each stage took.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ObjectRef, Reason};

/// What was done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It was not there and is now.
    Created,
    /// It was there and differed.
    Configured,
    /// It was there, and a field that cannot change differed: it was deleted and recreated, because force was set.
    Recreated,
    /// It was there and belonged to nobody or to another Kustomization: it is owned from now on.
    Adopted,
    /// It was there as wanted: nothing was written.
    Unchanged,
    /// It was there and was removed.
    Deleted,
    /// It was left alone because it, or a rule, says so.
    Skipped,
    /// It is not as it was applied, or not there, and that is only reported.
    Drifted,
    /// Another applier builds it now, and owns it from then on. Of the hub: agents do not tell it.
    HandedOver,
    /// Another applier does not build it any more, and owned it until then. Of the hub: agents do not tell it.
    TakenOver,
}

impl Action {
    /// Whether the object was written, and is there now.
    #[must_use]
    pub fn wrote(self) -> bool {
        matches!(self, Self::Created | Self::Configured | Self::Recreated | Self::Adopted)
    }

    /// The word that people and logs see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Recreated => "recreated",
            Self::Adopted => "adopted",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Skipped => "skipped",
            Self::Drifted => "drifted",
            Self::HandedOver => "handedOver",
            Self::TakenOver => "takenOver",
        }
    }
}

/// What happened to one object in one reconciliation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectResult {
    /// The object.
    pub object: ObjectRef,
    /// What was done.
    pub action: Action,
    /// `Kind namespace/name` of the applier to which it was handed over, or from which it was taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

impl ObjectResult {
    /// That this was done to an object.
    #[must_use]
    pub fn new(object: ObjectRef, action: Action) -> Self {
        Self { object, action, other: None }
    }
}

/// The objects that one reconciliation dealt with, in the order in which it did.
pub type ChangeSet = Vec<ObjectResult>;

/// The stages of a reconciliation that an agent carries out, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Decrypt and substitute.
    Finish,
    /// Server-side dry-run.
    Validate,
    /// Write what differs.
    Apply,
    /// Delete what left the build.
    Prune,
    /// Wait for health.
    Wait,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Finish, Self::Validate, Self::Apply, Self::Prune, Self::Wait];

    /// Its name, as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finish => "finish",
            Self::Validate => "validate",
            Self::Apply => "apply",
            Self::Prune => "prune",
            Self::Wait => "wait",
        }
    }

    /// The reason that the Ready condition bears when this stage fails.
    #[must_use]
    pub fn failure(self) -> Reason {
        match self {
            Self::Finish => Reason::BuildFailed,
            Self::Validate => Reason::ValidationFailed,
            Self::Apply => Reason::ReconciliationFailed,
            Self::Prune => Reason::PruneFailed,
            Self::Wait => Reason::HealthCheckFailed,
        }
    }
}

/// Where a dispatch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The step's index, from 0; none before the first step, and where an agent of an older version does not tell it.
    pub step: Option<usize>,
    /// The stage of that step.
    pub stage: Stage,
}

/// How long a stage took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageTiming {
    /// The stage.
    pub stage: Stage,
    /// Wall-clock microseconds.
    pub micros: u64,
}

/// How long a stage of one step of a dispatch took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepTiming {
    /// The step's index, from 0; none where an agent of an older version did not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// The step's label, where the hub knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The stage.
    pub stage: Stage,
    /// Wall-clock microseconds.
    pub micros: u64,
}

impl StepTiming {
    /// How long each stage took over all steps, of those that there were. What cannot be summed up is as long as can be told.
    pub fn by_stage(timings: &[Self]) -> impl Iterator<Item = (Stage, Duration)> {
        let took = |stage| {
            let micros =
                timings.iter().filter(move |timing| timing.stage == stage).map(|timing| timing.micros);
            Some((stage, Duration::from_micros(micros.reduce(u64::saturating_add)?)))
        };
        Stage::ALL.into_iter().filter_map(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_the_names_by_which_they_are_stored() {
        for stage in Stage::ALL {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.as_str());
        }
    }

    #[test]
    fn stages_are_summed_up_over_steps() {
        let timing = |step, stage, micros| StepTiming { step: Some(step), label: None, stage, micros };
        let timings = [
            timing(0, Stage::Apply, 2),
            timing(1, Stage::Apply, 3),
            timing(2, Stage::Wait, u64::MAX),
            timing(3, Stage::Wait, 1),
        ];
        let summed: Vec<_> = StepTiming::by_stage(&timings).collect();
        let micros = Duration::from_micros;
        assert_eq!(summed, [(Stage::Apply, micros(5)), (Stage::Wait, micros(u64::MAX))]);
    }
}
