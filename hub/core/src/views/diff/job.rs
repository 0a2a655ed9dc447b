//! The comparison of two builds as a job: builds hold untrusted bytes, so a worker process reads them.

use std::fmt::Display;
use std::io::Read as _;

use flate2::read::GzDecoder;
use roadstead_model::Digest;
use roadstead_worker::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compare::{Difference, compare};
use crate::delivery::build::BLOB;

/// The kind of this job.
pub(crate) const DIFF_JOB: &str = "diff";
/// Bytes of the groups of one build, as JSON: two of them are in a worker's memory, as values.
const MAX_BYTES: usize = 16 << 20;

/// What a worker is asked to compare.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Order {
    /// The groups of either build, by their digests.
    pub(super) older: Vec<Digest>,
    pub(super) newer: Vec<Digest>,
    /// Whether any value may be one that a Secret said.
    pub(super) all_secret: bool,
}

/// What it answers.
pub(super) type Answer = Result<Difference, NotCompared>;

/// Why it cannot tell what differs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum NotCompared {
    TooLarge(String),
    Other(String),
}

fn other(error: &dyn Display) -> NotCompared {
    NotCompared::Other(error.to_string())
}

/// Does the job.
pub(crate) fn diff_job(context: &mut Context, input: &[u8]) -> Vec<u8> {
    let answer: Answer = serde_json::from_slice(input)
        .map_err(|error| NotCompared::Other(format!("the order cannot be parsed: {error}")))
        .and_then(|Order { older, newer, all_secret }| {
            Ok(compare(objects(context, &older)?, objects(context, &newer)?, all_secret))
        });
    // It is texts, numbers and values that were JSON.
    serde_json::to_vec(&answer).unwrap_or_default()
}

fn objects(context: &mut Context, groups: &[Digest]) -> Result<Vec<Value>, NotCompared> {
    let (mut all, mut left) = (Vec::new(), MAX_BYTES);
    for group in groups {
        let packed = context.ask(&[BLOB, group.as_bytes()].concat()).map_err(|error| other(&error))?;
        let (mut json, most) = (Vec::new(), left as u64 + 1);
        GzDecoder::new(packed).take(most).read_to_end(&mut json).map_err(|error| other(&error))?;
        left = left.checked_sub(json.len()).ok_or_else(|| {
            NotCompared::TooLarge(format!("builds of more than {MAX_BYTES} bytes are not compared"))
        })?;
        let objects: Vec<Value> = serde_json::from_slice(&json).map_err(|error| other(&error))?;
        all.extend(objects);
    }
    Ok(all)
}
