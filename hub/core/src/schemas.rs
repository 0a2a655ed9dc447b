//! The JSON forms of values of `roadstead-model`, for the document of the views.

use schemars::JsonSchema;

/// What was done to one object.
#[derive(JsonSchema)]
#[schemars(rename = "ObjectResult")]
#[expect(dead_code, reason = "it stands for its JSON form in the document only")]
pub(crate) struct ObjectResultSchema {
    /// The object.
    object: ObjectRefSchema,
    /// `created`, `configured`, `recreated`, `adopted`, `unchanged`, `deleted`, `skipped`, `drifted`, `handedOver` or `takenOver`.
    action: String,
    /// `Kind namespace/name` of the applier to which it was handed over, or from which it was taken over.
    #[schemars(default)]
    other: Option<String>,
}

/// An object of a cluster.
#[derive(JsonSchema)]
#[schemars(rename = "ObjectRef")]
#[expect(dead_code, reason = "it stands for its JSON form in the document only")]
pub(crate) struct ObjectRefSchema {
    /// API group; empty for the core group.
    group: String,
    /// API version within the group.
    version: String,
    /// Kind of the object.
    kind: String,
    /// Namespace of the object; none where it is cluster-scoped.
    #[schemars(default)]
    namespace: String,
    /// Name of the object.
    name: String,
}

/// How long one stage of one step took.
#[derive(JsonSchema)]
#[schemars(rename = "StepTiming")]
#[expect(dead_code, reason = "it stands for its JSON form in the document only")]
pub(crate) struct StepTimingSchema {
    /// The index of the step in its dispatch, from 0; none where an agent of an older version did not tell it.
    step: Option<usize>,
    /// The label of the step.
    label: Option<String>,
    /// `finish`, `validate`, `apply`, `prune` or `wait`.
    stage: String,
    /// Microseconds on the clock.
    micros: u64,
}
