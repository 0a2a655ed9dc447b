//! Drift: how an object on a cluster differs from what was applied, and what is done about it.

use serde::{Deserialize, Serialize};

use crate::ObjectRef;

/// What is done about a change that others made to an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriftMode {
    /// It is corrected.
    #[default]
    Correct,
    /// It is reported, and stays until another build is applied.
    Report,
}

/// Why an object differs from what was applied, and goes on doing so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriftState {
    /// It is only reported.
    Reported,
    /// It was corrected again and again, and is changed each time.
    Contended,
    /// It cannot be corrected.
    Failed,
}

impl DriftState {
    /// Its name in the database and in views.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Contended => "contended",
            Self::Failed => "failed",
        }
    }
}

/// A field of an object that differs from what was applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldDrift {
    /// A JSON pointer.
    pub path: String,
    /// What it is and what it should be; none where that is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<FieldValues>,
}

/// The values of a field that differs: as JSON, cut where they are long. Those of secret objects are keyed hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldValues {
    /// What is on the cluster; none where the field is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// What was applied; none where the field is not to be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
}

/// An object that differs from what was applied, and goes on doing so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftedObject {
    /// The object.
    pub object: ObjectRef,
    /// Why it goes on.
    pub state: DriftState,
    /// It is not on the cluster.
    pub missing: bool,
    /// Who changed it, as far as that is known.
    pub managers: Vec<String>,
    /// Where it differs; empty where it is missing, or where that is not known.
    pub fields: Vec<FieldDrift>,
    /// How often it was corrected, as far as that is remembered.
    pub corrected: u32,
    /// Why it cannot be corrected; else empty.
    pub message: String,
}
