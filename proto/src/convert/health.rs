//! How the objects are that a dispatch waits for, or has waited for.

use super::{ConvertError, Result, key, list, messages, sized, text};
use crate::limits::{MAX_REPORT_BYTES, MAX_REPORTED, bounded};
use crate::message::{HealthReport, HealthState};
use crate::v1;

impl From<HealthReport> for v1::HealthReport {
    fn from(report: HealthReport) -> Self {
        let HealthReport { key, state, message, recovered, objects } = report;
        let mut message = bounded(&message);
        message.truncate(message.floor_char_boundary(MAX_REPORT_BYTES));
        Self {
            key: Some(key.into()),
            state: v1::HealthState::from(state).into(),
            message,
            recovered,
            objects: messages(objects),
        }
    }
}

impl TryFrom<v1::HealthReport> for HealthReport {
    type Error = ConvertError;

    fn try_from(report: v1::HealthReport) -> Result<Self> {
        let state = match report.state() {
            v1::HealthState::Waiting => HealthState::Waiting,
            v1::HealthState::Healthy => HealthState::Healthy,
            v1::HealthState::Progressing => HealthState::Progressing,
            v1::HealthState::Failing => HealthState::Failing,
            v1::HealthState::Unspecified => return Err(ConvertError::Unknown { field: "state".to_owned() }),
        };
        Ok(Self {
            key: key("key", report.key)?,
            state,
            message: text("message", sized("message", report.message, MAX_REPORT_BYTES)?)?,
            recovered: report.recovered,
            objects: list("objects", report.objects, MAX_REPORTED)?,
        })
    }
}

impl From<HealthState> for v1::HealthState {
    fn from(state: HealthState) -> Self {
        match state {
            HealthState::Waiting => Self::Waiting,
            HealthState::Healthy => Self::Healthy,
            HealthState::Progressing => Self::Progressing,
            HealthState::Failing => Self::Failing,
        }
    }
}
